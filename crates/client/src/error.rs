//! What can go wrong, in three kinds that must stay apart: refused (nothing happened), unknown (it may have happened,
//! never reported as failed), broken (the other side does not speak the protocol).

use std::io;
use std::time::Duration;

use laneway_wire::batch::{BatchError, BuildError};
use laneway_wire::{Code, DecodeError, EncodeError, FrameError, ProtocolVersion, ProtocolWindow, Status};

/// The protocol version that this client announces.
pub const PROTOCOL: ProtocolVersion = ProtocolVersion::V0_12_2;

/// Why a call gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker refused; nothing happened.
    #[error("{}", sentence(*code, *status))]
    Refused {
        /// The command that was refused.
        code: Code,
        /// Why.
        status: Status,
    },
    /// The change may or may not have been made. Look before it is repeated.
    #[error("{}: no answer about the outcome; it may have been applied, so look before you repeat it", action(*code))]
    Uncertain {
        /// The command whose outcome is unknown.
        code: Code,
    },
    /// The session ended on the broker before the request was sent or answered; nothing of it was applied.
    #[error("{}: the broker forgot this session (restarted without its data, or logged out); try again", action(*code))]
    SessionLost {
        /// The command that was pending.
        code: Code,
    },
    /// No connection could be made.
    #[error(
        "cannot reach {address}: {}; is the broker running? start it with `laneway serve`",
        plain(source)
    )]
    Unreachable {
        /// `host:port` as it was asked for.
        address: String,
        /// What the last attempt met.
        source: io::Error,
    },
    /// The connection broke and could not be restored in time; nothing else is known.
    #[error("lost the connection to {address}: {}", plain(source))]
    Lost {
        /// `host:port` as it was asked for.
        address: String,
        /// What the connection met.
        source: io::Error,
    },
    /// No answer within the time that the caller gives.
    #[error("{}: no answer within {after:?}; a longer --timeout waits longer", action(*code))]
    Timeout {
        /// The command that waits.
        code: Code,
        /// How long.
        after: Duration,
    },
    /// The broker serves other protocol versions.
    #[error("{}", incompatible(*window))]
    Incompatible {
        /// What it serves, when it said so.
        window: Option<ProtocolWindow>,
    },
    /// The broker's bytes break the protocol.
    #[error("the broker at the other end breaks the protocol: {what}; is it a message broker at all?")]
    Protocol {
        /// The rule that is broken.
        what: String,
    },
    /// The arguments of a call cannot be written in the protocol.
    #[error("{0}")]
    Argument(#[from] EncodeError),
    /// The request is larger than a frame.
    #[error("{}: a request of {bytes} bytes is larger than a frame; send less at once", action(*code))]
    TooLarge {
        /// The command.
        code: Code,
        /// Bytes of the frame.
        bytes: usize,
    },
    /// A message or a batch cannot be built.
    #[error("{0}")]
    Message(#[from] BuildError),
    /// A stream or topic that a call needs is not there.
    #[error("{what} does not exist")]
    Missing {
        /// `stream NAME` or `topic STREAM/TOPIC`.
        what: String,
    },
    /// A call needs a session and there is none.
    #[error("not logged in")]
    NotLoggedIn,
    /// More calls are pending than one connection carries.
    #[error("more than {max} requests are pending on one connection")]
    TooManyPending {
        /// The limit.
        max: usize,
    },
    /// The machine gave no random bytes for a session identity.
    #[error("no random bytes from the operating system")]
    NoRandomness,
}

impl ClientError {
    /// The status behind a refusal.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Incompatible { .. } => Some(Status::IncompatibleProtocolVersion),
            _ => None,
        }
    }

    /// Whether a stream, topic or partition is missing, whichever number says so.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
            || self.status().is_some_and(|status| {
                matches!(
                    status,
                    Status::StreamIdNotFound
                        | Status::StreamNameNotFound
                        | Status::TopicIdNotFound
                        | Status::TopicNameNotFound
                        | Status::PartitionNotFound
                )
            })
    }
}

impl From<FrameError> for ClientError {
    fn from(error: FrameError) -> Self {
        Self::Protocol { what: error.to_string() }
    }
}

impl From<BatchError> for ClientError {
    fn from(error: BatchError) -> Self {
        Self::Protocol { what: error.to_string() }
    }
}

impl From<DecodeError> for ClientError {
    fn from(error: DecodeError) -> Self {
        Self::Protocol { what: error.to_string() }
    }
}

/// An error of the operating system without its number, which tells a person nothing.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

fn incompatible(window: Option<ProtocolWindow>) -> String {
    match window {
        Some(window) => format!(
            "the broker serves protocols {} to {}, this client speaks {PROTOCOL}; use tools of its version",
            window.min, window.max
        ),
        None => format!("the broker does not serve protocol {PROTOCOL}; use tools of its version"),
    }
}

/// A refusal for people: what was refused, and for the frequent numbers what to do about it.
fn sentence(code: Code, status: Status) -> String {
    match advice(status) {
        Some(advice) => format!("{advice} (status {}, {})", status.number(), status.name()),
        None => format!("{}: refused: {status}", action(code)),
    }
}

/// What a person wanted, in words; the names of the protocol mean nothing to most. Requests that this client does not
/// make keep theirs.
pub(crate) fn action(code: Code) -> &'static str {
    match code {
        Code::Ping => "ping",
        Code::LoginRegister | Code::LoginRegisterWithPat => "sign in",
        Code::BindSession => "go on with the session",
        Code::Logout => "sign out",
        Code::SendMessages => "send",
        Code::PollMessages | Code::PollMessagesDeferred | Code::FetchMessages => "read",
        Code::GetConsumerOffset => "look up a stored offset",
        Code::StoreConsumerOffset => "store an offset",
        Code::DeleteConsumerOffset => "delete a stored offset",
        Code::GetStream => "look up the stream",
        Code::GetStreams => "list the streams",
        Code::CreateStream => "create the stream",
        Code::DeleteStream => "delete the stream",
        Code::GetTopic => "look up the topic",
        Code::GetTopics => "list the topics",
        Code::CreateTopic => "create the topic",
        Code::DeleteTopic => "delete the topic",
        Code::GetUser => "look up the user",
        Code::GetUsers => "list the users",
        Code::CreateUser => "create the user",
        Code::DeleteUser => "delete the user",
        Code::UpdatePermissions => "change the permissions",
        Code::ChangePassword => "change the password",
        Code::GetPersonalAccessTokens => "list the tokens",
        Code::CreatePersonalAccessToken => "create the token",
        Code::DeletePersonalAccessToken => "delete the token",
        Code::CreatePartitions => "create partitions",
        Code::DeletePartitions => "delete partitions",
        Code::DeleteSegments => "delete segments",
        Code::UpdateResource => "update",
        other => other.name(),
    }
}

/// Cause and fix for the refusals that people meet.
pub fn advice(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::InvalidCommand => "the broker does not accept this request; it may not know this command",
        Status::FeatureUnavailable => "the broker does not offer this",
        Status::StaleClient => "the broker ended the connection because nothing came for too long",
        Status::Unauthenticated => "not signed in, or the session has ended: sign in again",
        Status::Unauthorized => {
            "this user may not do that: sign in as another user or ask for the permission"
        }
        Status::InvalidCredentials => "wrong user name or password",
        Status::ResourceNotFound => "there is no such user, or no such token",
        Status::InvalidUsername => "a user name has 3 to 50 bytes",
        Status::InvalidPassword => "a password has 3 to 100 bytes",
        Status::UserAlreadyExists => "a user of this name exists already",
        Status::CannotDeleteUser => "the root user cannot be deleted",
        Status::CannotChangePermissions => "the root user may do everything, which cannot be changed",
        Status::CannotModifyRootUser => "the root user keeps its name and stays active",
        Status::InvalidPersonalAccessTokenName => "the name of a token has 3 to 30 bytes",
        Status::PersonalAccessTokenAlreadyExists => "you have a token of this name already",
        Status::PersonalAccessTokensLimitReached => "you have as many tokens as a user may have",
        Status::InvalidPersonalAccessTokenExpiry => "the token would end too far in the future",
        Status::InvalidPersonalAccessToken => "the token is unknown or expired",
        Status::TransientNotAccepted => {
            "the broker is busy or starting, nothing was done: try again in a moment"
        }
        Status::HistoryUnavailable => "the partition was deleted or recreated in the meantime",
        Status::DeferredPollCapacityExceeded => {
            "the broker holds too many waiting reads: try again, or wait with fewer"
        }
        Status::InvalidSizeBytes => "the next message is larger than this reader accepts",
        Status::StreamIdNotFound | Status::StreamNameNotFound => {
            "there is no such stream: see `laneway streams list`, or create it first (a number is an id, not a name)"
        }
        Status::StreamNameAlreadyExists => "a stream of this name exists already",
        Status::TopicIdNotFound | Status::TopicNameNotFound => {
            "there is no such topic: see `laneway topics list STREAM`, or create it first"
        }
        Status::TopicNameAlreadyExists => "a topic of this name exists already in the stream",
        Status::PartitionNotFound => {
            "there is no such partition: `laneway topics show STREAM/TOPIC` lists them"
        }
        Status::TooManyPartitions => "too many partitions for one request: create fewer at once",
        Status::PartitionsLimitReached => "the broker holds as many partitions as it may",
        Status::TopicFull => "the topic has reached its maximum size",
        Status::InvalidOptionValue => {
            "an option has a value that the broker does not accept: sizes and durations have units and limits, words are \
             spelled as `laneway config --keys` says under topic.*"
        }
        Status::UnsupportedOptionKey => {
            "the broker does not know one of the options: `laneway topics show STREAM/TOPIC` lists those of a topic"
        }
        Status::OptionNotUpdatable => {
            "an option cannot be changed after the topic was made: only its name, message_expiry and max_topic_size can"
        }
        Status::InvalidTopicSize => {
            "max_topic_size is smaller than segment_size: make one of them fit the other"
        }
        Status::UnsupportedCriticalOption => {
            "the broker cannot open this stream: it is encrypted under a key that is not configured; the log of the \
             broker's start names such streams"
        }
        Status::TooBigMessagePayload => "a message has more than 64,000,000 bytes",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_refusals_name_cause_and_number() {
        let refused = |status| ClientError::Refused { code: Code::CreateTopic, status }.to_string();
        assert_eq!(
            refused(Status::TopicNameAlreadyExists),
            "a topic of this name exists already in the stream (status 2013, TopicNameAlreadyExists)"
        );
        for number in [40, 41, 42, 1009, 1010, 1012, 2010, 2011, 2013, 3007, 1019, 4041, 4042, 4103, 4107] {
            assert!(advice(Status::from_number(number)).is_some(), "{number}");
        }
        assert_eq!(refused(Status::CannotOpenDatabase), "create the topic: refused: CannotOpenDatabase (19)");
    }

    #[test]
    fn timeouts_say_what_and_how_long() {
        let error = ClientError::Timeout { code: Code::PollMessagesDeferred, after: Duration::from_secs(11) };
        assert_eq!(error.to_string(), "read: no answer within 11s; a longer --timeout waits longer");
    }

    #[test]
    fn unreachable_broker_is_explained() {
        let error = ClientError::Unreachable {
            address: "127.0.0.1:8090".into(),
            source: io::Error::from_raw_os_error(111),
        };
        let text = "cannot reach 127.0.0.1:8090: connection refused; is the broker running? start it with `laneway serve`";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn incompatible_broker_names_its_window() {
        let error = ClientError::Incompatible { window: Some(ProtocolWindow::LANEWAY) };
        assert!(error.to_string().contains("protocols 0.12.1 to 0.12.2"), "{error}");
        assert_eq!(error.status().map(Status::number), Some(14003));
    }
}
