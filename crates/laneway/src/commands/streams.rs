//! `laneway streams create|list|show|delete`.

use std::io;

use laneway_client::{Client, StreamSummary};
use laneway_wire::Status;
use serde::Serialize;

use super::CommandError;
use super::connect::{self, identifier};
use super::output::{Row, Style, bytes_text, count_text, moment_text, printable, write_json, write_rows};
use super::topics::TopicRow;
use crate::cli::{
    CreateStreamArgs, ListStreamsArgs, ShowStreamArgs, StreamArgs, StreamsArgs, StreamsCommand, Target,
};

/// Runs one of the subcommands.
pub fn streams(args: &StreamsArgs) -> Result<(), CommandError> {
    match &args.command {
        StreamsCommand::Create(args) => create(args),
        StreamsCommand::List(args) => list(args),
        StreamsCommand::Show(args) => show(args),
        StreamsCommand::Delete(args) => delete(args),
    }
}

fn create(args: &CreateStreamArgs) -> Result<(), CommandError> {
    reachable_name(&args.name)?;
    let mut client = connect::sign_in(&args.connection)?;
    if args.if_missing {
        return create_if_missing(&mut client, &args.name);
    }
    client.create_stream(&args.name)?;
    say(&format!("created stream {}", args.name));
    Ok(())
}

/// Refuses a name that every later command would take for an id.
pub fn reachable_name(name: &str) -> Result<(), CommandError> {
    match name.parse() {
        Ok(Target::Id(id)) => Err(CommandError::Usage(format!(
            "{id} would be a name that is a number, which no later command could reach: choose another name"
        ))),
        _ => Ok(()),
    }
}

/// Creates a stream unless it is there. Somebody else may create it at the same time, which is as good.
pub fn create_if_missing(client: &mut Client, name: &str) -> Result<(), CommandError> {
    match client.create_stream(name) {
        Ok(_) => say(&format!("created stream {name}")),
        Err(error) if error.status() == Some(Status::StreamNameAlreadyExists) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn list(args: &ListStreamsArgs) -> Result<(), CommandError> {
    let streams = connect::sign_in(&args.connection)?.streams()?;
    let rows: Vec<StreamRow> = streams.iter().map(StreamRow::from).collect();
    write_rows(&mut io::stdout().lock(), Style::detect(args.json), &rows).map_err(CommandError::Output)
}

fn show(args: &ShowStreamArgs) -> Result<(), CommandError> {
    let StreamArgs { stream, connection } = &args.of;
    let mut client = connect::sign_in(connection)?;
    let details = client.stream(&identifier(stream))?.ok_or_else(|| missing(stream))?;
    let topics: Vec<TopicRow> = details.topics.iter().map(TopicRow::from).collect();
    let stream = StreamRow::from(&details.summary);
    let mut out = io::stdout().lock();
    let style = Style::detect(args.json);
    let written = match style {
        Style::Json => write_json(&mut out, &StreamAndTopics { stream, topics }),
        // The first line is the stream, the others are its topics.
        Style::Plain => {
            write_rows(&mut out, style, &[stream]).and_then(|()| write_rows(&mut out, style, &topics))
        }
        Style::Table => write_rows(&mut out, style, &[stream])
            .and_then(|()| io::Write::write_all(&mut out, b"\n"))
            .and_then(|()| write_rows(&mut out, style, &topics)),
    };
    written.map_err(CommandError::Output)
}

fn delete(args: &StreamArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.connection)?;
    client.delete_stream(&identifier(&args.stream))?;
    say(&format!("deleted stream {}", args.stream));
    Ok(())
}

/// The error for a stream that is not there.
pub fn missing(stream: &Target) -> CommandError {
    let hint = "see `laneway streams list`, or create it with `laneway streams create`".to_owned();
    CommandError::Missing { what: format!("stream {stream}"), hint }
}

/// A remark for the person who runs the command. Standard output is for data.
pub fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

#[derive(Debug, Serialize)]
struct StreamAndTopics {
    #[serde(flatten)]
    stream: StreamRow,
    topics: Vec<TopicRow>,
}

/// A stream in a list.
#[derive(Debug, Serialize)]
pub struct StreamRow {
    id: u32,
    name: String,
    topics_count: u32,
    messages_count: u64,
    size_bytes: u64,
    created_at: String,
}

impl From<&StreamSummary> for StreamRow {
    fn from(stream: &StreamSummary) -> Self {
        Self {
            id: stream.id.0,
            name: stream.name.clone(),
            topics_count: stream.topics_count,
            messages_count: stream.messages_count,
            size_bytes: stream.size_bytes,
            created_at: moment_text(stream.created_at.0),
        }
    }
}

impl Row for StreamRow {
    const HEADINGS: &'static [&'static str] = &["id", "name", "topics", "messages", "size", "created"];

    fn cells(&self, style: Style) -> Vec<String> {
        let (messages, size) = numbers(style, self.messages_count, self.size_bytes);
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.topics_count.to_string(),
            messages,
            size,
            self.created_at.clone(),
        ]
    }
}

/// A number of messages and of bytes: rounded and grouped for people, exact for programs.
pub fn numbers(style: Style, messages: u64, bytes: u64) -> (String, String) {
    match style {
        Style::Table => (count_text(messages), bytes_text(bytes)),
        Style::Plain | Style::Json => (messages.to_string(), bytes.to_string()),
    }
}
