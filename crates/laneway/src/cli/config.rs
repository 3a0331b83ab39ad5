//! `laneway config`: the effective configuration, with the source of each value.

use clap::Args;

use super::ServeArgs;

/// Takes the flags of `serve`, so that a command line can be tried before it is run.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// Prints the effective configuration. Placeholder until the table of keys is wired.
pub fn run_config(_args: &ConfigArgs) -> u8 {
    super::EXIT_FAILURE
}
