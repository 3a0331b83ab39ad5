//! `laneway topics ...`: the arguments.

use clap::{Args, Subcommand};

use super::{ConnectionArgs, Target, TopicTarget};

const AFTER_HELP: &str = "\
Examples:
  laneway topics create logs/web --partitions 4
  laneway topics create logs/audit --segment-size '64 MiB' --message-expiry '7 d'
  laneway topics list logs
  laneway topics show logs/web --json
  laneway topics update logs/web --message-expiry '3 d' --reset max_topic_size
  laneway topics delete-segments logs/web --partition 0 --count 2
  laneway topics delete logs/web";

/// The topics of a stream.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TopicsArgs {
    #[command(subcommand)]
    pub command: TopicsCommand,
}

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub enum TopicsCommand {
    /// Create a topic.
    Create(CreateTopicArgs),
    /// List the topics of a stream.
    List(ListTopicsArgs),
    /// Show one topic and its partitions.
    Show(ShowTopicArgs),
    /// Rename a topic, or change when its messages are removed.
    Update(UpdateTopicArgs),
    /// Delete the oldest messages of a partition, by whole segments.
    DeleteSegments(DeleteSegmentsArgs),
    /// Delete a topic with all its messages.
    Delete(TopicArgs),
}

const CREATE_HELP: &str = "\
Sizes and durations have units: '64 MiB', '7 d'. Whole segments are removed, never
parts: `laneway topics delete-segments --help` says which. --max-topic-size is at
least --segment-size, and divides evenly between the partitions; each of them keeps
a segment and the largest possible message (limits.frame_bytes_max, 64 MiB), however
small its share is.

Examples:
  laneway topics create logs/web --partitions 4
  laneway topics create logs/audit --segment-size '64 MiB' --message-expiry '7 d'
  laneway topics create logs/web --if-missing --max-topic-size '10 GiB'
  laneway topics create logs/fast --durability replicated";

/// Creates a topic. Options that are absent take the broker's defaults; the broker checks the values.
#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub struct CreateTopicArgs {
    /// Stream (name or id) and the name of the new topic.
    #[arg(value_name = "STREAM/TOPIC")]
    pub topic: TopicTarget,
    /// Number of partitions.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub partitions: u32,
    /// Create the stream too when it is missing, and succeed when the topic is there already.
    #[arg(long)]
    pub if_missing: bool,
    /// What an acknowledgement means: `persisted` (on stable storage) or `replicated` (survives a killed process).
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<String>,
    /// Size of one segment file, 1 MiB to 1 GiB.
    #[arg(long, value_name = "SIZE")]
    pub segment_size: Option<String>,
    /// Age at which messages are removed, or `never`.
    #[arg(long, value_name = "DURATION")]
    pub message_expiry: Option<String>,
    /// Size of the topic above which its oldest segments are removed, or `unlimited`.
    #[arg(long, value_name = "SIZE")]
    pub max_topic_size: Option<String>,
    /// Any other topic option; may be repeated.
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

const UPDATE_HELP: &str = "\
Only message_expiry and max_topic_size can be set and --reset later; what else a
topic is made with stays. `laneway topics show` lists it.

Examples:
  laneway topics update logs/web --name api
  laneway topics update logs/web --message-expiry '3 d' --reset max_topic_size";

/// Changes a topic, all or nothing. What is not named stays as it is.
#[derive(Debug, Args)]
#[command(after_help = UPDATE_HELP)]
pub struct UpdateTopicArgs {
    /// Stream and topic, by names or ids.
    #[arg(value_name = "STREAM/TOPIC")]
    pub topic: TopicTarget,
    /// New name of the topic, not a number: numbers are ids.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Age at which messages are removed, or `never`.
    #[arg(long, value_name = "DURATION")]
    pub message_expiry: Option<String>,
    /// Size of the topic above which its oldest segments are removed, or `unlimited`.
    #[arg(long, value_name = "SIZE")]
    pub max_topic_size: Option<String>,
    /// Option that returns to the broker's default; may be repeated.
    #[arg(long, value_name = "KEY")]
    pub reset: Vec<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

const DELETE_SEGMENTS_HELP: &str = "\
A partition is stored in segments. New messages go to the newest one, which is
never deleted; a segment that has reached the topic's segment_size is sealed,
and only sealed ones can go, the oldest first. A stored offset of a consumer
keeps the segments whose messages it has not passed: ask again when it has.
Readers that are behind go on at the oldest message that is left; offsets of
the others do not change.

Examples:
  laneway topics show logs/web                    how many segments are there
  laneway topics delete-segments logs/web --partition 0            the oldest
  laneway topics delete-segments logs/web --partition 0 --count 5
  laneway topics delete-segments logs/web --partition 0 --all    every sealed";

/// Deletes the oldest sealed segments of one partition.
#[derive(Debug, Args)]
#[command(after_help = DELETE_SEGMENTS_HELP)]
pub struct DeleteSegmentsArgs {
    /// Stream and topic, by names or ids.
    #[arg(value_name = "STREAM/TOPIC")]
    pub topic: TopicTarget,
    /// The partition.
    #[arg(long, value_name = "N")]
    pub partition: u32,
    /// Most segments that go.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// All sealed segments.
    #[arg(long, conflicts_with = "count")]
    pub all: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Lists the topics of one stream.
#[derive(Debug, Args)]
pub struct ListTopicsArgs {
    /// Name or id of the stream.
    #[arg(value_name = "STREAM")]
    pub stream: Target,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Names one topic.
#[derive(Debug, Args)]
pub struct TopicArgs {
    /// Stream and topic, by names or ids.
    #[arg(value_name = "STREAM/TOPIC")]
    pub topic: TopicTarget,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Shows one topic.
#[derive(Debug, Args)]
pub struct ShowTopicArgs {
    #[command(flatten)]
    pub of: TopicArgs,
    /// JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
