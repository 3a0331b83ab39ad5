//! How a logged command names a resource: by number or by name, resolved when the command is applied.

use laneway_wire::{Identifier, Status};
use rkyv::{Archive, Deserialize, Serialize};

/// A number or a name, as the client sent it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub enum Ref {
    /// By number.
    Id(u32),
    /// By name, 1 to 255 bytes. Never read as a number, even when it looks like one.
    Name(String),
}

impl Ref {
    /// How to look it up.
    pub fn as_key(&self) -> RefKey<'_> {
        match self {
            Ref::Id(id) => RefKey::Id(*id),
            Ref::Name(name) => RefKey::Name(name),
        }
    }
}

/// A [`Ref`] that borrows its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefKey<'a> {
    /// By number.
    Id(u32),
    /// By name.
    Name(&'a str),
}

impl RefKey<'_> {
    /// A copy that a command can keep.
    pub fn to_owned(self) -> Ref {
        match self {
            RefKey::Id(id) => Ref::Id(id),
            RefKey::Name(name) => Ref::Name(name.to_owned()),
        }
    }

    fn is_name(self) -> bool {
        matches!(self, RefKey::Name(_))
    }
}

impl<'a> From<&'a Ref> for RefKey<'a> {
    fn from(target: &'a Ref) -> Self {
        target.as_key()
    }
}

impl<'a> From<Identifier<'a>> for RefKey<'a> {
    fn from(identifier: Identifier<'a>) -> Self {
        match identifier {
            Identifier::Numeric(id) => RefKey::Id(id),
            Identifier::Name(name) => RefKey::Name(name),
        }
    }
}

impl From<u32> for RefKey<'_> {
    fn from(id: u32) -> Self {
        RefKey::Id(id)
    }
}

impl<'a> From<&'a str> for RefKey<'a> {
    fn from(name: &'a str) -> Self {
        RefKey::Name(name)
    }
}

/// What a lookup did not find. The parent comes first: a topic of a missing stream is a missing stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No such stream.
    #[error("stream is missing")]
    Stream {
        /// Whether the request named it by name.
        by_name: bool,
    },
    /// No such topic in the stream.
    #[error("topic is missing")]
    Topic {
        /// Whether the request named it by name.
        by_name: bool,
    },
    /// No such partition in the topic.
    #[error("partition is missing")]
    Partition,
    /// No such user.
    #[error("user is missing")]
    User,
}

impl Missing {
    pub(crate) fn stream(target: RefKey<'_>) -> Self {
        Missing::Stream { by_name: target.is_name() }
    }

    pub(crate) fn topic(target: RefKey<'_>) -> Self {
        Missing::Topic { by_name: target.is_name() }
    }

    /// The result code of a committed op: the same for numbers and names.
    pub fn committed_status(self) -> Status {
        match self {
            Missing::Stream { .. } => Status::StreamIdNotFound,
            Missing::Topic { .. } => Status::TopicIdNotFound,
            Missing::Partition => Status::PartitionNotFound,
            Missing::User => Status::ResourceNotFound,
        }
    }

    /// The status of a partition command or offset command that is refused before anything happened.
    pub fn admission_status(self) -> Status {
        match self {
            Missing::Stream { by_name: true } => Status::StreamNameNotFound,
            Missing::Topic { by_name: true } => Status::TopicNameNotFound,
            other => other.committed_status(),
        }
    }
}
