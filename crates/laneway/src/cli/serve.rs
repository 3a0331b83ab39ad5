//! `laneway serve`: the flags. Each one is the twin of a configuration key; their values are checked by `laneway-config`,
//! so that a flag, a variable and a file line that say the same wrong thing get the same answer.

use std::path::PathBuf;

use clap::Args;

const AFTER_HELP: &str = "\
Nothing is required. The first start creates the root user: from LANEWAY_ROOT_USERNAME and LANEWAY_ROOT_PASSWORD
(IGGY_ROOT_* work too), as iggy/iggy with --dev, or else as iggy with a random password that is printed once.

Examples:
  laneway serve --dev
  laneway serve --data-dir /var/lib/laneway --tcp 0.0.0.0:8090 --config /etc/laneway.toml
  LANEWAY_HEARTBEAT_INTERVAL=10s laneway serve --set connections.max=1000

SIGTERM and SIGINT drain and exit 0; a second one ends the process at once.";

/// Flags of the broker. The ones that are absent leave the environment, the file and the defaults in charge.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ServeArgs {
    /// Directory of all data; created when missing [default: ./laneway-data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Address of the TCP listener, or `off` [default: 127.0.0.1:8090]. Port 0 picks a free one.
    #[arg(long, value_name = "ADDR|off")]
    pub tcp: Option<String>,
    /// Address of the HTTP listener, or `off` [default: off].
    #[arg(long, value_name = "ADDR|off")]
    pub http: Option<String>,
    /// Number of shards, or `auto` for one per available core [default: auto].
    #[arg(long, value_name = "N|auto")]
    pub shards: Option<String>,
    /// TOML file with settings.
    #[arg(long, value_name = "FILE", env = "LANEWAY_CONFIG")]
    pub config: Option<PathBuf>,
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,laneway_storage=debug` [default: info].
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
    /// Any other key of the configuration; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// For development: a new root user gets the well-known password iggy/iggy.
    #[arg(long)]
    pub dev: bool,
}
