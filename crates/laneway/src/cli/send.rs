//! `laneway send STREAM/TOPIC`: the arguments.

use clap::Args;

use super::{ConnectionArgs, TopicTarget};

/// Most messages that one batch of `send` may hold.
const BATCH_MAX: i64 = 100_000;

const AFTER_HELP: &str = "\
Each line becomes one message. Its line end (the newline byte; a carriage return
before it stays) is not stored, and empty lines are left out: a message has at
least one byte. Lines of one key go to one partition, in their order; without a
key, batches go to the partitions in turn, from a random one on.
An acknowledged line is on stable storage (a topic may be created with less).

Examples:
  laneway send logs/web --create --partitions 4 < access.log
  tail -f access.log | laneway send logs/web --key-regex '^(\\S+)'
  laneway send shop/orders --key-column 2 --delimiter , < orders.csv
  LANEWAY_SERVER=iggy://iggy:iggy@10.0.0.5:8090 laneway send logs/web < a.log";

/// Sends the lines of standard input.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SendArgs {
    /// Topic to send to, by names or ids.
    #[arg(value_name = "STREAM/TOPIC")]
    pub topic: TopicTarget,
    /// Create the stream and the topic when they are missing.
    #[arg(long)]
    pub create: bool,
    /// Partitions of a topic that --create makes.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "create", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub partitions: u32,
    /// Send everything to this partition.
    #[arg(long, value_name = "ID", conflicts_with_all = ["key_regex", "key_column"])]
    pub partition: Option<u32>,
    /// Key of a line: the first capture of this regular expression, or its whole match. A line without a match has none.
    #[arg(long, value_name = "REGEX", conflicts_with = "key_column")]
    pub key_regex: Option<String>,
    /// Key of a line: this column, counted from 1. A line with fewer columns has none.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub key_column: Option<u32>,
    /// What separates columns [default: any run of blanks].
    #[arg(long, value_name = "TEXT", requires = "key_column")]
    pub delimiter: Option<String>,
    /// Most messages of one batch. A batch also leaves when the input pauses.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=BATCH_MAX))]
    pub batch: u32,
    /// No progress and no summary, even on a terminal.
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}
