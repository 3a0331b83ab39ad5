//! What crosses between shards. Everything is owned: buffers move, nothing is shared.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::{Bytes, BytesMut};
use laneway_metadata::permissions::Rule;
use laneway_metadata::{Metadata, PasswordChange, PasswordHash, Register, SessionId};
use laneway_reads::{ConnectionId, Deadlines, Requester, SessionKey, Strategy};
use laneway_shard_metadata::{ShardWork, Verdict};
use laneway_transport::OutFrame;
use laneway_wire::batch::ProducerSection;
use laneway_wire::{
    EvictionReason, LaneId, Offset, Op, PartitionKey, ProtocolVersion, RequestNumber, Status, StreamId,
    TopicId, UserId,
};

use crate::calls::CallId;
use crate::core::{ConsumerKey, FenceToken, Identity};
use crate::passwords::Checked;
use crate::reply::Echo;
use crate::stream_keys::StreamCipher;

/// Number of a shard on its node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// The way into another shard. What is published is the newest metadata version.
pub type Post = laneway_mailbox::Sender<Message, Arc<Metadata>>;

/// The way into this shard.
pub type Inbox = laneway_mailbox::Mailbox<Message, Arc<Metadata>>;

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo {
    /// The shard of the connection.
    pub origin: ShardId,
    /// The connection.
    pub connection: ConnectionId,
    /// What the answer repeats of the request.
    pub echo: Echo,
}

/// A message between two shards.
#[derive(Debug)]
pub enum Message {
    /// A request for the owner of a partition.
    Partition(Box<PartitionRequest>),
    /// A request for the metadata lane.
    Metadata(Box<MetadataRequest>),
    /// An answer for a client of the receiving shard.
    Reply {
        /// Whose request it answers.
        to: ReplyTo,
        /// The frame; none ends a cancelled read that gets no answer.
        frame: Option<OutFrame>,
    },
    /// A question of a task of another shard.
    Question {
        /// The shard that asks.
        from: ShardId,
        /// Its name for the question.
        call: CallId,
        /// The question.
        question: Question,
    },
    /// The answer to a question of this shard.
    Answer {
        /// The question.
        call: CallId,
        /// The answer.
        answer: Answer,
    },
    /// A watched partition changed: its new head, or why it cannot be read any more.
    Watched {
        /// The watch.
        watch: WatchId,
        /// The partition.
        key: PartitionKey,
        /// What it came to.
        head: Result<Offset, Status>,
    },
    /// A grouped fetch stops following partitions of the receiving shard.
    Unwatch {
        /// The shard of the fetch.
        from: ShardId,
        /// The watch.
        watch: WatchId,
    },
    /// A client takes a deferred read back.
    Cancel(Requester),
    /// A connection of another shard ended: drop its deferred reads.
    ConnectionLost(ConnectionId),
    /// The limits of a topic or the number of its partitions changed: segments of it may have to go.
    TopicChanged(StreamId, TopicId),
    /// Sessions ended: refuse their deferred reads, forget their receipts.
    SessionsEnded(Vec<SessionId>),
    /// A user may do something else from now on: its reads that wait are looked at again.
    GrantsChanged(UserId),
    /// A request showed that its session is over: evict its connection.
    Evict {
        /// Whose request.
        to: ReplyTo,
        /// Why.
        reason: EvictionReason,
    },
    /// The metadata lane created partitions that this shard owns, or deleted some. Answered by
    /// [`Message::LifecycleDone`].
    Lifecycle {
        /// The op that decided it.
        op: Op,
        /// What this shard has to do for it.
        work: ShardWork,
    },
    /// A shard has committed everything that the metadata op asked of it.
    LifecycleDone {
        /// The op.
        op: Op,
        /// The shard.
        shard: ShardId,
    },
    /// Whether the shard takes its turns: it raises the flag.
    Alive(Arc<AtomicBool>),
    /// A connection was bound to a session, or left it: for the session's lifetime.
    Attached {
        /// The session.
        session: SessionId,
        /// Whether it joined.
        joined: bool,
    },
}

/// A request for the owner of a partition.
#[derive(Debug)]
pub struct PartitionRequest {
    /// The partition's lane.
    pub lane: LaneId,
    /// The partition.
    pub key: PartitionKey,
    /// Metadata op that the origin has applied.
    pub metadata_op: Op,
    /// Where the answer goes.
    pub reply_to: ReplyTo,
    /// What is asked.
    pub work: Work,
}

/// What a client asks of a partition.
#[derive(Debug)]
pub enum Work {
    /// Append a batch that the origin has verified.
    Append {
        /// Who sends.
        identity: Identity,
        /// The stream, for the confirmation.
        stream: StreamId,
        /// The topic, for the confirmation.
        topic: TopicId,
        /// The batch, uniquely owned, so that it can be stamped where it lies.
        batch: BytesMut,
        /// Messages in it.
        messages: u32,
        /// What an idempotent producer says of it.
        producer: Option<ProducerSection>,
    },
    /// Read messages.
    Poll(PollWork),
    /// Store a consumer's offset.
    StoreOffset {
        /// Who stores.
        identity: Identity,
        /// The consumer.
        consumer: ConsumerKey,
        /// The offset.
        offset: Offset,
    },
    /// Forget a consumer's offset.
    DeleteOffset {
        /// Who deletes.
        identity: Identity,
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// Delete the oldest sealed segments.
    DeleteSegments {
        /// Who deletes.
        identity: Identity,
        /// How many, at most.
        count: u32,
    },
    /// Read a consumer's offset.
    GetOffset {
        /// The consumer.
        consumer: ConsumerKey,
    },
}

/// Where the outcome of a poll goes.
#[derive(Clone, Copy, Debug)]
pub enum PollTo {
    /// To the client that polls.
    Client(ReplyTo),
    /// To the grouped fetch that reads.
    Fetch {
        /// The shard of the fetch.
        origin: ShardId,
        /// Its question.
        call: CallId,
    },
}

/// Whose right a read stands on, from its admission until its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The session.
    pub session: SessionKey,
    /// Its user.
    pub user: UserId,
    /// The stream that is read.
    pub stream: StreamId,
    /// The topic that is read.
    pub topic: TopicId,
}

impl Access {
    /// Whether the read may still be answered.
    ///
    /// Errors: [`Status::StaleClient`] when the session is over, [`Status::Unauthorized`] when the permission is gone.
    pub fn check(&self, metadata: &Metadata) -> Result<(), Status> {
        let SessionKey { client, session } = self.session;
        metadata.sessions().live(client, session).ok_or(Status::StaleClient)?;
        metadata.permit(self.user, Rule::Poll(self.stream, self.topic))
    }
}

/// A poll, checked.
#[derive(Debug)]
pub struct PollWork {
    /// What allows it.
    pub access: Access,
    /// Who reads.
    pub consumer: ConsumerKey,
    /// The identity that an offset stored on the way carries.
    pub requester: Requester,
    /// Where it starts.
    pub strategy: Strategy,
    /// Most messages.
    pub count: u32,
    /// Messages that end the wait.
    pub min_count: u32,
    /// Most bytes of head and records; none for an immediate poll.
    pub max_bytes: Option<u32>,
    /// Whether the last returned offset is stored.
    pub commit: bool,
    /// When it ends.
    pub deadlines: Deadlines,
    /// What opens the messages of an encrypted stream.
    pub cipher: StreamCipher,
}

/// A change that the metadata lane has to order, as the client sent it. `Debug` hides the body, which may hold a password.
pub struct MetadataRequest {
    /// Where the answer goes.
    pub reply_to: ReplyTo,
    /// The signed-in user.
    pub user: UserId,
    /// The protocol of the connection.
    pub protocol: ProtocolVersion,
    /// The body of the request.
    pub body: BytesMut,
    /// What its origin made of the passwords in it.
    pub prepared: Prepared,
}

impl fmt::Debug for MetadataRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reply_to, user, protocol, body, prepared } = self;
        f.debug_struct("MetadataRequest")
            .field("reply_to", reply_to)
            .field("user", user)
            .field("protocol", protocol)
            .field("body_bytes", &body.len())
            .field("prepared", prepared)
            .finish()
    }
}

/// What the origin of a request made of the passwords in it, before anything was ordered.
#[derive(Debug)]
pub enum Prepared {
    /// There are none.
    Nothing,
    /// The hash for a new user; none for a caller who may not make users.
    NewUser(Option<PasswordHash>),
    /// A change of a password; none when the current one is wrong, or is not the caller's to change.
    Change(Option<PasswordChange>),
}

/// A question that one task waits for.
#[derive(Debug)]
pub enum Question {
    /// Open a session. For the metadata shard.
    Register(Register),
    /// What the partitions of a scope hold.
    Usage(UsageScope),
    /// The connections of a shard.
    Clients,
    /// Follow the heads of partitions for a grouped fetch, until it says [`Message::Unwatch`].
    Watch {
        /// The fetch's name for it.
        watch: WatchId,
        /// Whose it is, when it waits: one that does not wait is told where things stand and follows nothing.
        waits: Option<Access>,
        /// Who reads.
        consumer: ConsumerKey,
        /// The partitions, and where the fetch starts in each.
        targets: Vec<WatchTarget>,
    },
    /// Read one partition for a grouped fetch.
    Read(Box<FetchRead>),
}

/// A grouped fetch that follows partitions of another shard. Unique on the asking shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// A partition that a grouped fetch follows.
#[derive(Clone, Copy, Debug)]
pub struct WatchTarget {
    /// Its lane.
    pub lane: LaneId,
    /// The partition.
    pub key: PartitionKey,
    /// Where the fetch starts: an offset, or `Next`.
    pub strategy: Strategy,
}

/// A partition as a grouped fetch finds it.
#[derive(Clone, Copy, Debug)]
pub struct WatchedTarget {
    /// The partition.
    pub key: PartitionKey,
    /// Where it stands, or why it cannot be read.
    pub state: Result<WatchedState, Status>,
}

/// Where a watched partition stands.
#[derive(Clone, Copy, Debug)]
pub struct WatchedState {
    /// The offset that the fetch starts at.
    pub start: Offset,
    /// The head; none before the first message.
    pub head: Option<Offset>,
}

/// One read of a grouped fetch.
#[derive(Debug)]
pub struct FetchRead {
    /// The partition's lane.
    pub lane: LaneId,
    /// The partition.
    pub key: PartitionKey,
    /// Metadata op that the origin has applied.
    pub metadata_op: Op,
    /// The read, without a wait.
    pub work: PollWork,
    /// Whether a first message above the byte limit may come alone: one read of a fetch has that turn.
    pub oversized: Oversized,
    /// What a `Next` target was resolved against when the fetch began; a store since then ends its read.
    pub fence: Option<FenceToken>,
}

/// Whether a read may return a first message above its byte limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversized {
    /// It comes alone.
    Allowed,
    /// The read is refused with 90 and stores nothing.
    Refused,
}

/// What one read of a grouped fetch found.
#[derive(Debug)]
pub struct ReadPart {
    /// The records as they lie.
    pub records: Vec<Bytes>,
    /// Messages in them.
    pub messages: u32,
    /// Bytes in them.
    pub bytes: u64,
    /// Head at the time of the read.
    pub head: Option<Offset>,
    /// Where the next read of the partition starts.
    pub next_offset: Offset,
}

/// Which partitions a question about sizes means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageScope {
    /// All.
    Node,
    /// Those of one stream.
    Stream(StreamId),
    /// Those of one topic.
    Topic(StreamId, TopicId),
}

/// The answer to a [`Question`].
#[derive(Debug)]
pub enum Answer {
    /// To [`Question::Register`].
    Registered(Verdict),
    /// To [`Question::Usage`].
    Usage(Vec<PartitionUsage>),
    /// The archive for a bug report, from the thread that made it.
    Snapshot(Option<Bytes>),
    /// To [`Question::Clients`].
    Clients(Vec<ClientRow>),
    /// To [`Question::Watch`], in the order of the targets.
    Watched(Vec<WatchedTarget>),
    /// To [`Question::Read`].
    Read(Result<ReadPart, Status>),
    /// What became of a password; from the threads that check.
    Password(Checked),
}

/// One connection of a shard, for a listing.
#[derive(Clone, Debug)]
pub struct ClientRow {
    /// The number that clients see.
    pub id: u32,
    /// The signed-in user.
    pub user: Option<UserId>,
    /// Where it comes from.
    pub address: String,
}

/// What one partition holds.
#[derive(Clone, Copy, Debug)]
pub struct PartitionUsage {
    /// Its stream.
    pub stream: StreamId,
    /// Its topic.
    pub topic: TopicId,
    /// Its identity.
    pub key: PartitionKey,
    /// Segments, the active one included.
    pub segments: u32,
    /// Head; none before the first message.
    pub head: Option<Offset>,
    /// Bytes that are retained, framing included.
    pub bytes: u64,
    /// Messages that are retained.
    pub messages: u64,
    /// Where its reads found their messages.
    pub cache: CacheCounts,
}

/// Reads of a partition that returned messages, since its shard took it over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// All of them were in memory.
    pub hits: u64,
    /// Segments were read for them.
    pub misses: u64,
}

impl CacheCounts {
    /// Counts one read.
    pub fn count(&mut self, from_disk: bool) {
        match from_disk {
            true => self.misses += 1,
            false => self.hits += 1,
        }
    }
}

impl Work {
    /// Whose progress the work changes or follows, if any: such work of one connection runs in order.
    pub fn progress_of(&self) -> Option<&ConsumerKey> {
        match self {
            Work::Append { .. } | Work::DeleteSegments { .. } => None,
            Work::Poll(poll) => (poll.commit || poll.strategy == Strategy::Next).then_some(&poll.consumer),
            Work::StoreOffset { consumer, .. }
            | Work::DeleteOffset { consumer, .. }
            | Work::GetOffset { consumer } => Some(consumer),
        }
    }
}

impl ReplyTo {
    /// The request that is answered.
    pub fn request(&self) -> RequestNumber {
        self.echo.header().request
    }
}
