//! `laneway ping`: the arguments.

use std::time::Duration;

use clap::Args;
use laneway_config::units::parse_duration;

use super::ConnectionArgs;

const AFTER_HELP: &str = "\
Connects once and measures the round trip of each ping. Needs no login, so no password.

Examples:
  laneway ping
  laneway ping --server 10.0.0.5:8090 --count 100 --interval '10 ms'";

/// Measures the round trip to a broker.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct PingArgs {
    /// Number of pings.
    #[arg(long, short = 'c', value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Pause between two pings.
    #[arg(long, short = 'i', value_name = "DURATION", default_value = "1 s", value_parser = parse_duration)]
    pub interval: Duration,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}
