//! Why a command did not do what it was asked.

use std::io;
use std::path::PathBuf;

use laneway_client::ClientError;

use super::keys::KeyRuleError;
use super::lines::LineError;
use super::output::{count_text, counted, printable};
use super::quickstart::QuickstartError;
use crate::cli::ConnectionError;

/// Why a command ended early. Every message names the cause, and the fix where there is one.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The connection arguments are unusable.
    #[error("{0}")]
    Connection(#[from] ConnectionError),
    /// The rule for message keys is unusable.
    #[error("{0}")]
    KeyRule(#[from] KeyRuleError),
    /// Another argument is unusable.
    #[error("{0}")]
    Usage(String),
    /// The broker refused, or could not be reached.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// Standard output could not be written. A broken pipe is no failure, see [`super::finish`].
    #[error("write to standard output: {0}")]
    Output(#[source] io::Error),
    /// The input could not be read or has a line that is too long.
    #[error("{0}")]
    Lines(#[from] LineError),
    /// A file could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    File {
        /// As it was named.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A stream or a topic that was named is not there.
    #[error("there is no {}: {hint}", printable(what))]
    Missing {
        /// `stream NAME` or `topic STREAM/TOPIC`.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// A partition that was asked for does not exist.
    #[error("{topic} has no partition {partition}, its partitions are 0 to {last}")]
    NoPartition {
        /// `STREAM/TOPIC`.
        topic: String,
        /// As it was asked for.
        partition: u32,
        /// The highest that exists.
        last: u32,
    },
    /// The topic has no partitions at all.
    #[error(
        "{topic} has no partitions: add some with `iggy partition create`, or make a topic with --partitions"
    )]
    NoPartitions {
        /// `STREAM/TOPIC`.
        topic: String,
    },
    /// The current password, given to change it, is not the user's.
    #[error("the first line is not the current password of user {}: nothing was changed", printable(user))]
    WrongPassword {
        /// As it was named.
        user: String,
    },
    /// Sending stopped in the middle.
    #[error("{cause}\n{}", stopped_text(*acknowledged, *read))]
    SendStopped {
        /// Why.
        cause: Box<CommandError>,
        /// Lines that the broker acknowledged.
        acknowledged: u64,
        /// Lines that were taken from the input, without empty ones.
        read: u64,
    },
    /// Stopping by a signal could not be prepared.
    #[error("signals cannot be blocked: {0}")]
    Signals(#[source] io::Error),
    /// The quickstart found a difference or could not run.
    #[error("{0}")]
    Quickstart(#[from] QuickstartError),
}

/// What is certain when sending stops before the end.
pub fn stopped_text(acknowledged: u64, read: u64) -> String {
    let are = if acknowledged == 1 { "is acknowledged and stays" } else { "are acknowledged and stay" };
    format!("{} of {} read {are} stored", count_text(acknowledged), counted(read, "line"))
}

impl CommandError {
    /// Whether nothing was tried because the command line makes no sense.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Connection(_) | Self::KeyRule(_) | Self::Usage(_) => true,
            Self::Client(ClientError::Argument(_)) => true,
            Self::SendStopped { cause, .. } => cause.is_usage(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_certain_is_counted_in_whole_sentences() {
        assert_eq!(stopped_text(1, 1), "1 of 1 line read is acknowledged and stays stored");
        assert_eq!(stopped_text(2000, 3000), "2,000 of 3,000 lines read are acknowledged and stay stored");
    }
}
