//! The `laneway` program.

use std::process::ExitCode;

use clap::Parser;
use laneway::cli::{Cli, Command, run_config, run_doctor};
use laneway::{allocator, commands, serve};

fn main() -> ExitCode {
    allocator::return_large_blocks();
    let code = match Cli::parse().into_command() {
        Command::Serve(args) => serve::serve(&args),
        Command::Config(args) => run_config(&args),
        Command::Doctor(args) => run_doctor(&args),
        Command::Quickstart(args) => commands::finish(commands::quickstart(&args)),
        Command::Send(args) => commands::finish(commands::send(&args)),
        Command::Tail(args) => commands::finish(commands::tail(&args)),
        Command::Streams(args) => commands::finish(commands::streams(&args)),
        Command::Changes(args) => commands::finish(commands::changes(&args)),
        Command::Topics(args) => commands::finish(commands::topics(&args)),
        Command::Users(args) => commands::finish(commands::users(&args)),
        Command::Tokens(args) => commands::finish(commands::tokens(&args)),
        Command::Ping(args) => commands::finish(commands::ping(&args)),
    };
    ExitCode::from(code)
}
