//! What clients and nodes tell each other, as plain values. A request is frozen once it was made: a resend is the same
//! request again.

use std::rc::Rc;

use bytes::Bytes;
use laneway_metadata::{CommittedReply, PartitionPlace, RequestIdentity, Verifier};
use laneway_partition::{ConsumerKey, Identity, Receipt};
use laneway_wire::{ClientId, LaneId, Offset, Op, PartitionKey, SessionEpoch, Status};

/// What a client wants changed in the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes a stream of that name.
    CreateStream(String),
    /// Deletes a stream.
    DeleteStream(String),
    /// Makes a topic in a stream.
    CreateTopic {
        /// The stream.
        stream: String,
        /// The name of the topic.
        topic: String,
        /// How many partitions it gets.
        partitions: u32,
        /// Whether its messages are persisted, or only replicated.
        persisted: bool,
    },
    /// Deletes a topic.
    DeleteTopic {
        /// The stream.
        stream: String,
        /// The topic.
        topic: String,
    },
    /// Adds partitions.
    CreatePartitions {
        /// The stream.
        stream: String,
        /// The topic.
        topic: String,
        /// How many.
        count: u32,
    },
    /// Deletes the partitions with the highest numbers.
    DeletePartitions {
        /// The stream.
        stream: String,
        /// The topic.
        topic: String,
        /// How many.
        count: u32,
    },
    /// Ends the session.
    Logout,
}

/// A request.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A session for a client; its password was checked elsewhere.
    Register {
        /// The client.
        client: ClientId,
        /// The hash of its secret.
        verifier: Verifier,
    },
    /// A change of the metadata.
    Metadata {
        /// Who asks.
        identity: RequestIdentity,
        /// What.
        change: Rc<Change>,
    },
    /// Which partitions are there; any node answers from what it has applied.
    Lookup,
    /// Appends a batch.
    Send {
        /// Who asks.
        identity: Identity,
        /// Where.
        partition: PartitionKey,
        /// The lane of the partition.
        lane: LaneId,
        /// The batch as its producer made it.
        batch: Bytes,
        /// Messages in it.
        count: u32,
    },
    /// Stores the offset of a consumer.
    Store {
        /// Who asks.
        identity: Identity,
        /// Where.
        partition: PartitionKey,
        /// The lane of the partition.
        lane: LaneId,
        /// Whose.
        consumer: ConsumerKey,
        /// Which.
        offset: Offset,
    },
    /// Reads messages.
    Poll {
        /// Where.
        partition: PartitionKey,
        /// The lane of the partition.
        lane: LaneId,
        /// The first.
        offset: Offset,
    },
    /// Reads the stored offset of a consumer.
    StoredOffset {
        /// Where.
        partition: PartitionKey,
        /// The lane of the partition.
        lane: LaneId,
        /// Whose.
        consumer: ConsumerKey,
    },
}

impl Ask {
    /// The lane that answers; lane 0 for metadata.
    pub fn lane(&self) -> LaneId {
        match self {
            Ask::Register { .. } | Ask::Metadata { .. } | Ask::Lookup => LaneId(0),
            Ask::Send { lane, .. }
            | Ask::Store { lane, .. }
            | Ask::Poll { lane, .. }
            | Ask::StoredOffset { lane, .. } => *lane,
        }
    }

    /// A short name for traces.
    pub fn kind(&self) -> &'static str {
        match self {
            Ask::Register { .. } => "register",
            Ask::Metadata { .. } => "metadata",
            Ask::Lookup => "lookup",
            Ask::Send { .. } => "send",
            Ask::Store { .. } => "store",
            Ask::Poll { .. } => "poll",
            Ask::StoredOffset { .. } => "stored-offset",
        }
    }
}

/// A request on its way: what, and which frontier of the metadata it was made against.
#[derive(Clone, Debug)]
pub struct Request {
    /// The client, by its number in the run.
    pub client: usize,
    /// Number of the exchange in the client; a reply names it again.
    pub exchange: u64,
    /// Metadata that the node must have applied before it decides.
    pub minimum: Op,
    /// What is asked.
    pub ask: Ask,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A status: nothing happened, or nobody knows.
    Refused(Status),
    /// The session is not known, or is over.
    NoSession,
    /// The session exists.
    Registered(SessionEpoch),
    /// A committed metadata request.
    Committed(CommittedReply),
    /// What the metadata holds.
    Places {
        /// As of this op.
        applied: Op,
        /// The partitions.
        places: Rc<[PartitionPlace]>,
    },
    /// A committed request of a partition.
    Receipt(Receipt),
    /// Messages.
    Polled {
        /// The highest committed offset.
        head: Option<Offset>,
        /// The numbers of the messages, from the offset that was asked for.
        messages: Vec<u128>,
    },
    /// The stored offset.
    Offset(Option<Offset>),
}

impl Answer {
    /// A short name for traces.
    pub fn kind(&self) -> &'static str {
        match self {
            Answer::Refused(_) => "refused",
            Answer::NoSession => "no-session",
            Answer::Registered(_) => "registered",
            Answer::Committed(_) => "committed",
            Answer::Places { .. } => "places",
            Answer::Receipt(_) => "receipt",
            Answer::Polled { .. } => "polled",
            Answer::Offset(_) => "offset",
        }
    }
}
