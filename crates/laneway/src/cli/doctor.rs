//! `laneway doctor`: the flags.

use std::io::{self, Write};

use clap::Args;

use super::{EXIT_FAILURE, EXIT_OK, ServeArgs};
use crate::doctor::{self, Verdict};

const AFTER_HELP: &str = "\
Takes the flags of `laneway serve` and looks at what a start with them would
meet. Changes nothing; writes one small file beside the data and removes it.

Examples:
  laneway doctor
  laneway doctor --config /etc/laneway.toml
  laneway doctor --json | jq '.checks[] | select(.verdict != \"ok\")'

Exit codes: 0 nothing failed (there may be warnings), 1 something failed.";

/// Looks at machine, configuration and data directory.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// Prints the report to standard output. Returns the exit code of the process.
pub fn run_doctor(args: &DoctorArgs) -> u8 {
    let report = match args.serve.load() {
        Ok(resolved) => doctor::examine(&resolved.config),
        Err(error) => doctor::unreadable(&error),
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).map(|json| json + "\n").unwrap_or_default(),
        false => report.to_string(),
    };
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever closed the pipe has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("laneway: cannot write: {error}");
            EXIT_FAILURE
        }
        _ if report.verdict() == Verdict::Fail => EXIT_FAILURE,
        _ => EXIT_OK,
    }
}
