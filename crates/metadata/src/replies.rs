//! What a committed request answered, in a form that any protocol version can be encoded from. A repeated request gets
//! the same answer, so this is what the client table keeps.

use std::sync::Arc;

use laneway_wire::{Micros, Op, RequestNumber, Status, StreamId, TopicId, UserId};
use rkyv::{Archive, Deserialize, Serialize};

use crate::archive::AsNumber;
use crate::options::set::OptionRecord;
use crate::options::{Scope, StoredOptions};
use crate::permissions::{Permissions, PermissionsRecord};
use crate::users::UserStatus;

/// The answer of one committed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedReply {
    /// The request's number in its session.
    pub request: RequestNumber,
    /// The request's identity as its client chose it.
    pub request_checksum: u128,
    /// The op at which it committed. The reply header carries it as op and as commit.
    pub op: Op,
    /// When it committed.
    pub timestamp: Micros,
    /// The operation byte of the request.
    pub operation: u8,
    /// The result code. Anything but `Ok` is a committed refusal and has an empty body.
    pub status: Status,
    /// What follows the result section.
    pub body: ReplyBody,
}

/// The payload of a committed reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// Nothing.
    Empty,
    /// A stream as it was created: a stream header with no topics.
    StreamCreated(StreamCreated),
    /// A topic as it was created: a topic header and its partitions.
    TopicCreated(TopicCreated),
    /// A user as it was created.
    UserCreated(UserCreated),
    /// A token, which only the one who waited for the op is shown, because nobody keeps it.
    TokenCreated,
}

/// A new user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCreated {
    /// Its number.
    pub id: UserId,
    /// When it was created.
    pub created_at: Micros,
    /// Whether it may sign in.
    pub status: UserStatus,
    /// Its name.
    pub username: Arc<str>,
    /// What it may do.
    pub permissions: Option<Permissions>,
    /// What it stores.
    pub options: Arc<StoredOptions>,
}

/// A new stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamCreated {
    /// Its number.
    pub id: StreamId,
    /// When it was created.
    pub created_at: Micros,
    /// Its name.
    pub name: Arc<str>,
    /// What it stores.
    pub options: Arc<StoredOptions>,
}

/// A new topic. Its partitions have the numbers 0 up to `partitions_count`, exclusive; all were created at `created_at`,
/// have the op of the reply as incarnation, and are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCreated {
    /// Its number.
    pub id: TopicId,
    /// When it was created.
    pub created_at: Micros,
    /// How many partitions it got.
    pub partitions_count: u32,
    /// Its name.
    pub name: Arc<str>,
    /// What it stores.
    pub options: Arc<StoredOptions>,
}

/// A reply as snapshots hold it.
#[derive(Debug, Archive, Serialize, Deserialize)]
pub struct ReplyRecord {
    #[rkyv(with = AsNumber)]
    request: RequestNumber,
    request_checksum: u128,
    #[rkyv(with = AsNumber)]
    op: Op,
    #[rkyv(with = AsNumber)]
    timestamp: Micros,
    operation: u8,
    status: u32,
    body: BodyRecord,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
enum BodyRecord {
    Empty,
    StreamCreated(CreatedRecord),
    TopicCreated(CreatedRecord),
    UserCreated(UserCreatedRecord),
    TokenCreated,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
struct UserCreatedRecord {
    #[rkyv(with = AsNumber)]
    id: UserId,
    #[rkyv(with = AsNumber)]
    created_at: Micros,
    status: UserStatus,
    username: String,
    permissions: Option<PermissionsRecord>,
    options: Vec<OptionRecord>,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
struct CreatedRecord {
    id: u32,
    #[rkyv(with = AsNumber)]
    created_at: Micros,
    partitions_count: u32,
    name: String,
    options: Vec<OptionRecord>,
}

impl From<&CommittedReply> for ReplyRecord {
    fn from(reply: &CommittedReply) -> Self {
        let body = match &reply.body {
            ReplyBody::Empty => BodyRecord::Empty,
            ReplyBody::StreamCreated(stream) => BodyRecord::StreamCreated(CreatedRecord {
                id: stream.id.0,
                created_at: stream.created_at,
                partitions_count: 0,
                name: stream.name.as_ref().to_owned(),
                options: stream.options.to_records(),
            }),
            ReplyBody::TopicCreated(topic) => BodyRecord::TopicCreated(CreatedRecord {
                id: topic.id.0,
                created_at: topic.created_at,
                partitions_count: topic.partitions_count,
                name: topic.name.as_ref().to_owned(),
                options: topic.options.to_records(),
            }),
            ReplyBody::UserCreated(user) => BodyRecord::UserCreated(UserCreatedRecord {
                id: user.id,
                created_at: user.created_at,
                status: user.status,
                username: user.username.as_ref().to_owned(),
                permissions: user.permissions.as_ref().map(PermissionsRecord::from),
                options: user.options.to_records(),
            }),
            ReplyBody::TokenCreated => BodyRecord::TokenCreated,
        };
        Self {
            request: reply.request,
            request_checksum: reply.request_checksum,
            op: reply.op,
            timestamp: reply.timestamp,
            operation: reply.operation,
            status: reply.status.number(),
            body,
        }
    }
}

impl ReplyRecord {
    /// The reply; none when its options are not ones.
    pub(crate) fn restore(self) -> Option<CommittedReply> {
        let body = match self.body {
            BodyRecord::Empty => ReplyBody::Empty,
            BodyRecord::StreamCreated(stream) => ReplyBody::StreamCreated(StreamCreated {
                id: StreamId(stream.id),
                created_at: stream.created_at,
                name: stream.name.into(),
                options: Arc::new(StoredOptions::from_records(Scope::Stream, stream.options)?),
            }),
            BodyRecord::TopicCreated(topic) => ReplyBody::TopicCreated(TopicCreated {
                id: TopicId(topic.id),
                created_at: topic.created_at,
                partitions_count: topic.partitions_count,
                name: topic.name.into(),
                options: Arc::new(StoredOptions::from_records(Scope::Topic, topic.options)?),
            }),
            BodyRecord::UserCreated(user) => ReplyBody::UserCreated(UserCreated {
                id: user.id,
                created_at: user.created_at,
                status: user.status,
                username: user.username.into(),
                permissions: user.permissions.map(Permissions::from),
                options: Arc::new(StoredOptions::from_records(Scope::User, user.options)?),
            }),
            BodyRecord::TokenCreated => ReplyBody::TokenCreated,
        };
        Some(CommittedReply {
            request: self.request,
            request_checksum: self.request_checksum,
            op: self.op,
            timestamp: self.timestamp,
            operation: self.operation,
            status: Status::from_number(self.status),
            body,
        })
    }
}
