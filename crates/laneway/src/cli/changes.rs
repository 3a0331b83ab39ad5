//! `laneway changes`: the arguments.

use clap::{Args, ValueEnum};

use super::ConnectionArgs;

const AFTER_HELP: &str = "\
Columns: number of the change (op), time, user who asked (`-`: the broker itself),
what happened, to what. In a pipe and in JSON the time is in microseconds since 1970.
Every sign-in is a change of sessions: name the groups you want to leave them out.

The broker keeps the newest changes of resources and, apart from them, those of
sessions; see metadata.change_records_max. Only root and users with manage_servers
may read them.

Examples:
  laneway changes                                  everything that is kept
  laneway changes --new --follow                   what happens from now on
  laneway changes --group streams --group topics
  laneway changes --group users --group tokens --json";

/// Shows the metadata change log, oldest change first.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ChangesArgs {
    /// Only changes of these; may be repeated.
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<Group>,
    /// Only changes from now on.
    #[arg(long, requires = "follow")]
    pub new: bool,
    /// Go on with what happens next.
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// What a change is about. The numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Group {
    Streams = 1,
    Topics = 2,
    Partitions = 3,
    Groups = 4,
    Members = 5,
    Users = 6,
    Tokens = 7,
    Sessions = 8,
}
