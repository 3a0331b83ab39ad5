//! `laneway config`: the effective configuration, with the source of each value.

use std::io::{self, Write};

use clap::Args;
use laneway_config::{ConfigError, Resolved, key_list};
use laneway_encryption::RingError;

use super::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE, ServeArgs};
use crate::cpus::Cores;
use crate::logging::{self, LoggingError};
use crate::root_user::{RootCredentials, RootError};
use crate::{descriptors, keys, probe};

const AFTER_HELP: &str = "\
Takes the flags of `laneway serve`, so that a command line, a file or an
environment can be tried before it is used.

Examples:
  laneway config --config /etc/laneway.toml
  laneway config --set reads.wait_max='1 m'
  laneway config --keys                        every key, its range and meaning";

/// Takes the flags of `serve`, so that a command line can be tried before it is run.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ConfigArgs {
    /// List every key with its default, range and meaning instead. Reads no file and no environment.
    #[arg(long)]
    pub keys: bool,
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// Why a broker would not start with this configuration.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error(transparent)]
    Keys(#[from] RingError),
    #[error(transparent)]
    Engine(#[from] probe::EngineUnavailable),
}

/// Prints the effective configuration to standard output, or what is wrong with it to standard error. Returns the exit
/// code of the process.
pub fn run_config(args: &ConfigArgs) -> u8 {
    let text = if args.keys { Ok(key_list()) } else { listing(&args.serve) };
    match text {
        Ok(text) => match io::stdout().write_all(text.as_bytes()) {
            // Whoever closed the pipe has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_OK,
            Err(error) => {
                eprintln!("laneway: cannot write: {error}");
                EXIT_FAILURE
            }
            Ok(()) => EXIT_OK,
        },
        Err(refusal) => {
            eprintln!("laneway: {refusal}");
            EXIT_USAGE
        }
    }
}

/// The table, with what each `auto` comes to on this machine. Checks what a start checks.
fn listing(args: &ServeArgs) -> Result<String, Refusal> {
    let Resolved { config, mut effective } = args.load()?;
    logging::check_filter(&config.log.filter)?;
    RootCredentials::decide(&config.root)?;
    keys::ring(&config.encryption)?;
    let report = probe::probe(config.engine)?;
    effective.note_auto("shards", Cores::available().count());
    if let Ok(descriptors) = descriptors::raise_limit() {
        effective.note_auto("connections.max", descriptors::connections_max(None, descriptors));
    }
    Ok(format!("{}\nengine here: {report}\n", effective.table()))
}
