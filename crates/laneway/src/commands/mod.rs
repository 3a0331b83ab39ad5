//! The subcommands that talk to a broker as a client does. What can be typed is in `cli`; the client is in
//! `laneway_client`. Each command is a function from its arguments to a result; [`finish`] turns that into what a shell
//! sees.

mod changes;
mod connect;
mod error;
mod grants;
mod keys;
mod lines;
mod message_text;
mod output;
mod ping;
mod program;
mod progress;
mod quickstart;
mod send;
mod stdout;
mod streams;
mod tail;
mod tokens;
mod topics;
mod users;

pub use changes::changes;
pub use error::CommandError;
pub use ping::ping;
pub use quickstart::quickstart;
pub use send::send;
pub use streams::streams;
pub use tail::tail;
pub use tokens::tokens;
pub use topics::topics;
pub use users::users;

use std::io::{self, Write};

use crate::cli::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};

/// Prints what went wrong to standard error and gives the exit code. A reader of standard output that went away has
/// seen what it wanted: success.
pub fn finish(result: Result<(), CommandError>) -> u8 {
    match result {
        Ok(()) => EXIT_OK,
        Err(CommandError::Output(error)) if stdout::is_broken_pipe(&error) => EXIT_OK,
        Err(error) => {
            // Standard error may be gone as well; there is nobody left to tell.
            let _ = writeln!(io::stderr().lock(), "error: {error}");
            if error.is_usage() { EXIT_USAGE } else { EXIT_FAILURE }
        }
    }
}
