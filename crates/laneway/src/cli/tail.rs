//! `laneway tail STREAM/TOPIC`: the arguments.

use clap::{Args, ValueEnum};

use super::{ConnectionArgs, TopicTarget};

/// Messages of each partition that `tail` shows when no start is named.
const LAST_DEFAULT: u32 = 10;

const AFTER_HELP: &str = "\
Shows the last 10 messages of each partition and ends, unless told where to
start and to follow. The order within a partition is the order of its offsets;
between partitions there is none.

Examples:
  laneway tail logs/web --first | head           from the beginning
  laneway tail logs/web -f                       the last ones, then new ones
  laneway tail logs/web --offset 1000 --partition 2 --count 5
  laneway tail logs/web --since '1 h 30 m' --format json | jq .payload";

/// Reads messages without changing any stored offset.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TailArgs {
    /// Topic to read, by names or ids.
    #[arg(value_name = "STREAM/TOPIC")]
    pub topic: TopicTarget,
    /// Start at this offset of each partition.
    #[arg(long, value_name = "OFFSET", group = "start")]
    pub offset: Option<u64>,
    /// Start at the oldest message of each partition.
    #[arg(long, group = "start")]
    pub first: bool,
    /// Start N messages before the end of each partition [default: 10].
    #[arg(long, value_name = "N", group = "start")]
    pub last: Option<u32>,
    /// Start at a time: a duration before now (`5 m`), or microseconds since 1970.
    #[arg(long, value_name = "TIME", group = "start", value_parser = parse_since)]
    pub since: Option<Since>,
    /// Read only this partition; may be repeated [default: all].
    #[arg(long, value_name = "ID")]
    pub partition: Vec<u32>,
    /// Keep waiting for new messages.
    #[arg(long, short)]
    pub follow: bool,
    /// End after this many messages in total.
    #[arg(long, short = 'n', value_name = "N")]
    pub count: Option<u64>,
    /// How to print a message: its payload and a line end, or one JSON object with offset, timestamp and headers.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = TailFormat::Plain)]
    pub format: TailFormat,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// The value of `--since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Microseconds before now.
    AgoUs(u64),
    /// Microseconds since 1970.
    AtUs(u64),
}

/// Output of `tail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TailFormat {
    /// The payload's bytes as they are, and a line end.
    Plain,
    /// One JSON object a line.
    Json,
}

/// Where reading starts, in each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailStart {
    Offset(u64),
    First,
    /// This many messages before the end.
    Last(u32),
    /// The first message at or after this time, microseconds since 1970.
    TimestampUs(u64),
}

impl TailArgs {
    /// The start that was asked for. `now_us`: microseconds since 1970, for a start that is relative to it.
    pub fn start(&self, now_us: u64) -> TailStart {
        match (self.offset, self.first, self.last, self.since) {
            (Some(offset), ..) => TailStart::Offset(offset),
            (_, true, ..) => TailStart::First,
            (_, _, _, Some(Since::AtUs(at))) => TailStart::TimestampUs(at),
            (_, _, _, Some(Since::AgoUs(ago))) => TailStart::TimestampUs(now_us.saturating_sub(ago)),
            (_, _, last, None) => TailStart::Last(last.unwrap_or(LAST_DEFAULT)),
        }
    }
}

fn parse_since(text: &str) -> Result<Since, laneway_config::units::UnitError> {
    if let Ok(at_us) = text.parse() {
        return Ok(Since::AtUs(at_us));
    }
    let ago = laneway_config::units::parse_duration(text)?;
    Ok(Since::AgoUs(u64::try_from(ago.as_micros()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};
    use super::*;

    fn check(flags: &[&str], expected: TailStart) {
        let words = ["laneway", "tail", "s/t"].iter().chain(flags);
        let Command::Tail(args) = Cli::try_parse_from(words).unwrap().into_command() else {
            panic!("not tail")
        };
        assert_eq!(args.start(1_000_000_000), expected, "{flags:?}");
    }

    #[test]
    fn every_start_is_told_apart() {
        check(&[], TailStart::Last(10));
        check(&["--last", "0"], TailStart::Last(0));
        check(&["--first"], TailStart::First);
        check(&["--offset", "0"], TailStart::Offset(0));
        check(&["--since", "1712000000000000"], TailStart::TimestampUs(1_712_000_000_000_000));
        check(&["--since", "1 m"], TailStart::TimestampUs(940_000_000));
        check(&["--since", "1 h"], TailStart::TimestampUs(0));
    }
}
