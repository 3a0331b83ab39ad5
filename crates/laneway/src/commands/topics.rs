//! `laneway topics create|list|show|update|delete-segments|delete`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use laneway_client::{Client, Options, PartitionDetails, TopicDetails, TopicSummary};
use laneway_wire::{PartitionId, Status};
use serde::Serialize;

use super::CommandError;
use super::connect::{self, identifier};
use super::output::{Row, Style, counted, moment_text, printable, write_json, write_rows};
use super::streams::{self, numbers, say};
use crate::cli::{
    CreateTopicArgs, DeleteSegmentsArgs, ListTopicsArgs, ShowTopicArgs, Target, TopicArgs, TopicTarget,
    TopicsArgs, TopicsCommand, UpdateTopicArgs,
};

/// Runs one of the subcommands.
pub fn topics(args: &TopicsArgs) -> Result<(), CommandError> {
    match &args.command {
        TopicsCommand::Create(args) => create(args),
        TopicsCommand::List(args) => list(args),
        TopicsCommand::Show(args) => show(args),
        TopicsCommand::Update(args) => update(args),
        TopicsCommand::DeleteSegments(args) => delete_segments(args),
        TopicsCommand::Delete(args) => delete(args),
    }
}

fn create(args: &CreateTopicArgs) -> Result<(), CommandError> {
    let options = options(args)?;
    let name = new_name(&args.topic.topic)?;
    let mut client = connect::sign_in(&args.connection)?;
    if args.if_missing {
        return create_if_missing(&mut client, &args.topic, args.partitions, &options);
    }
    client.create_topic(&identifier(&args.topic.stream), &name, args.partitions, &options)?;
    say(&format!("created topic {} with {}", args.topic, counted(args.partitions.into(), "partition")));
    Ok(())
}

/// Creates the stream and the topic unless they are there. What is there stays as it is.
pub fn create_if_missing(
    client: &mut Client,
    target: &TopicTarget,
    partitions: u32,
    options: &Options,
) -> Result<(), CommandError> {
    if client.topic(&identifier(&target.stream), &identifier(&target.topic))?.is_some() {
        return Ok(());
    }
    if client.stream(&identifier(&target.stream))?.is_none() {
        streams::create_if_missing(client, &new_name(&target.stream)?)?;
    }
    match client.create_topic(&identifier(&target.stream), &new_name(&target.topic)?, partitions, options) {
        Ok(_) => say(&format!("created topic {target} with {}", counted(partitions.into(), "partition"))),
        Err(error) if error.status() == Some(Status::TopicNameAlreadyExists) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// The name for something new. A number names by id, and ids are the broker's to give.
fn new_name(target: &Target) -> Result<String, CommandError> {
    match target {
        Target::Name(name) => Ok(name.clone()),
        Target::Id(id) => Err(CommandError::Usage(format!(
            "{id} would be a name that is a number, which no later command could reach: choose another name"
        ))),
    }
}

/// The value of an option as the protocol spells it. A number without a unit would be microseconds or bytes there, and
/// a topic that forgets after 7 us is not what `--message-expiry 7` asks for.
fn typed_value(key: &str, value: &str) -> Result<String, CommandError> {
    let flag = match key {
        "segment_size" => "--segment-size",
        "message_expiry" => "--message-expiry",
        "max_topic_size" => "--max-topic-size",
        _ => return Ok(value.to_owned()),
    };
    match value {
        "never" if key == "message_expiry" => Ok("never_expire".to_owned()),
        "" | "0" => Ok(value.to_owned()),
        _ if value.bytes().all(|byte| byte.is_ascii_digit()) => {
            let example = if key == "message_expiry" { "'7 d'" } else { "'64 MiB'" };
            Err(CommandError::Usage(format!("{flag}: {value} has no unit; write for example {example}")))
        }
        _ => Ok(value.to_owned()),
    }
}

fn options(args: &CreateTopicArgs) -> Result<Options, CommandError> {
    let mut options = Options::new();
    let named = [
        ("durability", &args.durability),
        ("segment_size", &args.segment_size),
        ("message_expiry", &args.message_expiry),
        ("max_topic_size", &args.max_topic_size),
    ];
    for (key, value) in named {
        if let Some(value) = value {
            options.insert(key.to_owned(), typed_value(key, value)?);
        }
    }
    for option in &args.options {
        let Some((key, value)) = option.split_once('=') else {
            return Err(CommandError::Usage(format!("--option {option}: write KEY=VALUE")));
        };
        if options.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(CommandError::Usage(format!("the option {key} is given twice")));
        }
    }
    Ok(options)
}

fn list(args: &ListTopicsArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.connection)?;
    // The list of a stream that does not exist is empty, so look for the stream itself.
    let details = client.stream(&identifier(&args.stream))?.ok_or_else(|| streams::missing(&args.stream))?;
    let rows: Vec<TopicRow> = details.topics.iter().map(TopicRow::from).collect();
    write_rows(&mut io::stdout().lock(), Style::detect(args.json), &rows).map_err(CommandError::Output)
}

fn show(args: &ShowTopicArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.of.connection)?;
    let details = find(&mut client, &args.of.topic, None)?;
    let partitions: Vec<PartitionRow> = details.partitions.iter().map(PartitionRow::from).collect();
    let options = details.summary.options.clone();
    let topic = TopicRow::from(&details.summary);
    let mut out = io::stdout().lock();
    let style = Style::detect(args.json);
    let written = match style {
        Style::Json => {
            let options = options.into_iter().map(json_option).collect();
            write_json(&mut out, &TopicAndPartitions { topic, options, partitions })
        }
        // The first line is the topic, the others are its partitions.
        Style::Plain => {
            write_rows(&mut out, style, &[topic]).and_then(|()| write_rows(&mut out, style, &partitions))
        }
        Style::Table => write_rows(&mut out, style, &[topic])
            .and_then(|()| writeln!(out))
            .and_then(|()| write_rows(&mut out, style, &partitions))
            .and_then(|()| writeln!(out))
            .and_then(|()| {
                options
                    .iter()
                    .try_for_each(|(key, value)| writeln!(out, "{key} = {}", option_text(key, value)))
            }),
    };
    written.map_err(CommandError::Output)
}

fn update(args: &UpdateTopicArgs) -> Result<(), CommandError> {
    args.name.as_deref().map_or(Ok(()), streams::reachable_name)?;
    let set = [
        ("name", &args.name),
        ("message_expiry", &args.message_expiry),
        ("max_topic_size", &args.max_topic_size),
    ];
    let set: Options = set
        .iter()
        .filter_map(|(key, value)| Some((*key, value.as_ref()?)))
        .map(|(key, value)| Ok((key.to_owned(), typed_value(key, value)?)))
        .collect::<Result<_, CommandError>>()?;
    if set.is_empty() && args.reset.is_empty() {
        return Err(CommandError::Usage("nothing to change: name an option, or --reset one".to_owned()));
    }
    let reset: Vec<&str> = args.reset.iter().map(String::as_str).collect();
    if let Some(key) = reset.iter().find(|key| set.contains_key(**key)) {
        return Err(CommandError::Usage(format!("{key} is both set and reset")));
    }
    let mut client = connect::sign_in(&args.connection)?;
    client.update_topic(&identifier(&args.topic.stream), &identifier(&args.topic.topic), &set, &reset)?;
    say(&format!("updated topic {}", args.topic));
    Ok(())
}

fn delete(args: &TopicArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.connection)?;
    client.delete_topic(&identifier(&args.topic.stream), &identifier(&args.topic.topic))?;
    say(&format!("deleted topic {}", args.topic));
    Ok(())
}

fn delete_segments(args: &DeleteSegmentsArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.connection)?;
    let before = partition(&mut client, args)?;
    let count = if args.all { u32::MAX } else { args.count };
    let (stream, topic) = (identifier(&args.topic.stream), identifier(&args.topic.topic));
    client.delete_segments(&stream, &topic, PartitionId(args.partition), count)?;
    let after = partition(&mut client, args)?;
    // Others may write meanwhile: a count that did not fall says nothing.
    let segments = before.segments_count.saturating_sub(after.segments_count);
    let of = format!("of partition {} of topic {}", args.partition, args.topic);
    match segments {
        0 if before.segments_count <= 1 => {
            say(&format!("nothing deleted {of}: it has no sealed segment"));
        }
        0 => say(&format!(
            "nothing deleted {of}: stored offsets of consumers keep its {}",
            counted(u64::from(before.segments_count - 1), "sealed segment")
        )),
        _ => say(&format!("deleted {} {of}", counted(segments.into(), "segment"))),
    }
    Ok(())
}

fn partition(client: &mut Client, args: &DeleteSegmentsArgs) -> Result<PartitionDetails, CommandError> {
    let details = find(client, &args.topic, None)?;
    details.partitions.into_iter().find(|each| each.id.0 == args.partition).ok_or_else(|| {
        CommandError::Missing {
            what: format!("partition {} of topic {}", args.partition, args.topic),
            hint: format!("see `laneway topics show {}`", args.topic),
        }
    })
}

/// Looks a topic up that must be there. `hint`: what to do when the stream or the topic is not; none: how to find or
/// create it.
pub fn find(
    client: &mut Client,
    target: &TopicTarget,
    hint: Option<&str>,
) -> Result<TopicDetails, CommandError> {
    if let Some(details) = client.topic(&identifier(&target.stream), &identifier(&target.topic))? {
        return Ok(details);
    }
    let stream = &target.stream;
    let (what, how) = match client.stream(&identifier(stream))? {
        Some(_) => {
            let how =
                format!("see `laneway topics list {stream}`, or create it with `laneway topics create`");
            (format!("topic {target}"), how)
        }
        None => (
            format!("stream {stream}"),
            "see `laneway streams list`, or create it with `laneway streams create`".to_owned(),
        ),
    };
    Err(CommandError::Missing { what, hint: hint.map_or(how, str::to_owned) })
}

/// An option for people.
fn option_text(key: &str, value: &str) -> String {
    match key {
        "message_expiry" if is_no_limit(key, value) => "never".to_owned(),
        "max_topic_size" if is_no_limit(key, value) => "unlimited".to_owned(),
        _ => printable(value),
    }
}

/// An option for programs, `null` where there is no limit.
fn json_option((key, value): (String, String)) -> (String, Option<String>) {
    let value = (!is_no_limit(&key, &value)).then_some(value);
    (key, value)
}

/// The largest number stands for no limit. Source: wire protocol, section 3.7.
fn is_no_limit(key: &str, value: &str) -> bool {
    matches!(key, "message_expiry" | "max_topic_size") && value == u64::MAX.to_string()
}

#[derive(Debug, Serialize)]
struct TopicAndPartitions {
    #[serde(flatten)]
    topic: TopicRow,
    options: BTreeMap<String, Option<String>>,
    partitions: Vec<PartitionRow>,
}

/// A topic in a list.
#[derive(Debug, Serialize)]
pub struct TopicRow {
    id: u32,
    name: String,
    partitions_count: u32,
    messages_count: u64,
    size_bytes: u64,
    created_at: String,
}

impl From<&TopicSummary> for TopicRow {
    fn from(topic: &TopicSummary) -> Self {
        Self {
            id: topic.id.0,
            name: topic.name.clone(),
            partitions_count: topic.partitions_count,
            messages_count: topic.messages_count,
            size_bytes: topic.size_bytes,
            created_at: moment_text(topic.created_at.0),
        }
    }
}

impl Row for TopicRow {
    const HEADINGS: &'static [&'static str] = &["id", "name", "partitions", "messages", "size", "created"];

    fn cells(&self, style: Style) -> Vec<String> {
        let (messages, size) = numbers(style, self.messages_count, self.size_bytes);
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.partitions_count.to_string(),
            messages,
            size,
            self.created_at.clone(),
        ]
    }
}

/// A partition in a list.
#[derive(Debug, Serialize)]
struct PartitionRow {
    id: u32,
    messages_count: u64,
    /// None in a partition that holds nothing.
    current_offset: Option<u64>,
    segments_count: u32,
    size_bytes: u64,
}

impl From<&PartitionDetails> for PartitionRow {
    fn from(partition: &PartitionDetails) -> Self {
        Self {
            id: partition.id.0,
            messages_count: partition.messages_count,
            current_offset: (partition.messages_count > 0).then_some(partition.current_offset.0),
            segments_count: partition.segments_count,
            size_bytes: partition.size_bytes,
        }
    }
}

impl Row for PartitionRow {
    const HEADINGS: &'static [&'static str] = &["partition", "messages", "last offset", "segments", "size"];

    fn cells(&self, style: Style) -> Vec<String> {
        let (messages, size) = numbers(style, self.messages_count, self.size_bytes);
        let last = self.current_offset.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
        vec![self.id.to_string(), messages, last, self.segments_count.to_string(), size]
    }
}
