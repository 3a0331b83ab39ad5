//! `laneway quickstart [FILE]`: the arguments.

use std::path::PathBuf;

use clap::Args;

const AFTER_HELP: &str = "\
Starts a broker in this process on a free port and a temporary directory, sends
FILE line by line through several producers, reads it back, checks every line
and the order within each partition, and prints what it measured.

Examples:
  laneway quickstart
  laneway quickstart /var/log/syslog --producers 8 --partitions 8";

/// The main job, from nothing.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct QuickstartArgs {
    /// File to send; any size, any bytes [default: a file of the repository].
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Producers that send at the same time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub producers: u32,
    /// Partitions of the topic.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub partitions: u32,
    /// Most messages of one batch.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// Number of shards of the broker [default: one per available core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub shards: Option<u16>,
    /// Keep the broker running afterwards, so that a client can connect to it.
    #[arg(long)]
    pub keep: bool,
}
