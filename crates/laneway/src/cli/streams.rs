//! `laneway streams ...`: the arguments.

use clap::{Args, Subcommand};

use super::{ConnectionArgs, Target};

const AFTER_HELP: &str = "\
Examples:
  laneway streams create logs
  laneway streams list --json
  laneway streams show logs
  laneway streams delete logs";

/// The streams of a broker.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StreamsArgs {
    #[command(subcommand)]
    pub command: StreamsCommand,
}

/// What to do with streams.
#[derive(Debug, Subcommand)]
pub enum StreamsCommand {
    /// Create a stream.
    Create(CreateStreamArgs),
    /// List all streams.
    List(ListStreamsArgs),
    /// Show one stream and its topics.
    Show(ShowStreamArgs),
    /// Delete a stream with all its topics and messages.
    Delete(StreamArgs),
}

/// Creates a stream.
#[derive(Debug, Args)]
pub struct CreateStreamArgs {
    /// Name, 1 to 255 bytes, and not a number: numbers are ids.
    pub name: String,
    /// Succeed when the stream is there already.
    #[arg(long)]
    pub if_missing: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Lists streams.
#[derive(Debug, Args)]
pub struct ListStreamsArgs {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Names one stream.
#[derive(Debug, Args)]
pub struct StreamArgs {
    /// Name or id of the stream.
    #[arg(value_name = "STREAM")]
    pub stream: Target,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Shows one stream.
#[derive(Debug, Args)]
pub struct ShowStreamArgs {
    #[command(flatten)]
    pub of: StreamArgs,
    /// JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
