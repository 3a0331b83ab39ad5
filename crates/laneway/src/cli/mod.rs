//! The command line: what can be typed, and what it means. Nothing here talks to a broker.
//!
//! `laneway` without a subcommand serves. Every argument struct lives in the file of its subcommand; what the client
//! subcommands do with them is in `commands`.

mod changes;
mod config;
mod connection;
mod doctor;
mod ping;
mod quickstart;
mod send;
mod serve;
mod streams;
mod tail;
mod target;
mod topics;
mod users;

use clap::{Parser, Subcommand};

pub use changes::ChangesArgs;
pub use config::{ConfigArgs, run_config};
pub use connection::{Connection, ConnectionArgs, ConnectionError};
pub use doctor::{DoctorArgs, run_doctor};
pub use ping::PingArgs;
pub use quickstart::QuickstartArgs;
pub use send::SendArgs;
pub use serve::ServeArgs;
pub use streams::{
    CreateStreamArgs, ListStreamsArgs, ShowStreamArgs, StreamArgs, StreamsArgs, StreamsCommand,
};
pub use tail::{Since, TailArgs, TailFormat, TailStart};
pub use target::{Target, TargetError, TopicTarget};
pub use topics::{
    CreateTopicArgs, DeleteSegmentsArgs, ListTopicsArgs, ShowTopicArgs, TopicArgs, TopicsArgs, TopicsCommand,
    UpdateTopicArgs,
};
pub use users::{
    CreateTokenArgs, CreateUserArgs, DeleteTokenArgs, ListUsersArgs, PasswordArgs, PermissionsArgs,
    RenameUserArgs, ShowUserArgs, TokensArgs, TokensCommand, UserArgs, UsersArgs, UsersCommand,
};

/// The process did what was asked.
pub const EXIT_OK: u8 = 0;
/// It could not: the broker refused, was not there, or something broke on the way.
pub const EXIT_FAILURE: u8 = 1;
/// It was not tried: the command line, the environment or the configuration file is wrong. (Also clap's own code.)
pub const EXIT_USAGE: u8 = 2;

const AFTER_HELP: &str = "\
Examples:
  laneway quickstart                         try everything, nothing to set up
  laneway --dev                              serve with root user iggy/iggy
  laneway --tcp 0.0.0.0:8090 --shards 4      serve to the network, four shards
  laneway doctor                             is this machine fit, and what to mend
  laneway config                             what is in effect, and what set it
  seq 9 | laneway send logs/web --create     send lines
  laneway tail logs/web --first              read them back

Every setting is a flag, a variable or a line of a TOML file; the first wins:
  --tcp ADDR  =  LANEWAY_TCP_ADDRESS=ADDR  =  [tcp] address = \"ADDR\"

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration (nothing tried).";

/// A persistent message broker: one thread per core, one log per shard, the Iggy binary protocol.
#[derive(Debug, Parser)]
#[command(name = "laneway", version, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub serve: ServeArgs,
}

impl Cli {
    /// What to do: the named subcommand, or `serve` with the flags that stood alone.
    pub fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Serve(self.serve))
    }
}

/// The subcommands. `Serve` is what runs when none is named.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the broker (the default).
    Serve(ServeArgs),
    /// Print the effective configuration and where each value comes from.
    Config(ConfigArgs),
    /// Look at machine, configuration and data directory, and say what to mend.
    Doctor(DoctorArgs),
    /// Send a file through a broker of its own, read it back, check every line.
    Quickstart(QuickstartArgs),
    /// Send lines of standard input to a topic.
    Send(SendArgs),
    /// Read messages of a topic.
    Tail(TailArgs),
    /// Create, list, show and delete streams.
    Streams(StreamsArgs),
    /// Create, list, show and delete topics.
    Topics(TopicsArgs),
    /// Show what happened to streams, topics, users and sessions.
    Changes(ChangesArgs),
    /// Create, list, show and delete users; say what they may do.
    Users(UsersArgs),
    /// Create, list and delete your personal access tokens.
    Tokens(TokensArgs),
    /// Measure the round trip to a broker.
    Ping(PingArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_subcommand_means_serve() {
        let cli = Cli::try_parse_from(["laneway", "--tcp", "off", "--dev"]).unwrap();
        let Command::Serve(args) = cli.into_command() else { panic!("not serve") };
        assert_eq!(args.tcp.as_deref(), Some("off"));
        assert!(args.dev);
    }

    #[test]
    fn serve_flags_before_a_subcommand_are_refused() {
        assert!(Cli::try_parse_from(["laneway", "--dev", "ping"]).is_err());
    }

    #[test]
    fn each_subcommand_parses_its_main_form() {
        for line in [
            "serve --data-dir /d --http off --shards 2 --config f.toml --log debug --set sessions.timeout=50s",
            "config --tcp off",
            "doctor --json --data-dir /d",
            "quickstart",
            "quickstart README.md --producers 2 --partitions 3",
            "send s/t --create --partitions 4 --key-regex ^(\\w+) --batch 10",
            "send s/t --key-column 2 --delimiter ,",
            "tail s/t --last 5 -f --format json",
            "tail s/t --offset 7 --partition 0 --partition 2",
            "streams create s",
            "streams list",
            "streams show s",
            "streams delete s",
            "topics create s/t --partitions 3 --segment-size 1MiB --durability replicated",
            "topics list s",
            "topics show s/t",
            "topics delete s/t",
            "topics update s/t --name u --message-expiry 3d --reset max_topic_size",
            "changes --group users --group sessions --new --follow --json",
            "users create ann --grant read_streams --grant logs/web:poll_messages --inactive",
            "users list --json",
            "users permissions ann --none",
            "users permissions 3 --grant all",
            "users password ann",
            "tokens create deploy --expires 90d",
            "tokens list",
            "tokens delete deploy",
            "ping --count 3 --server 127.0.0.1:8090",
        ] {
            let words = std::iter::once("laneway").chain(line.split_whitespace());
            Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn starts_and_keys_exclude_each_other() {
        for line in [
            "tail s/t --first --last 3",
            "send s/t --key-regex a --key-column 1",
            "tail s/t --offset 1 --since 5m",
        ] {
            let words = std::iter::once("laneway").chain(line.split_whitespace());
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }
}
