//! Identities and positions that every crate shares. Each is a newtype, so that two numbers of different meaning
//! cannot be exchanged by mistake.

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

number! {
    /// Number of a stream on the server, from 0. Reused after a delete.
    StreamId(u32);
    /// Number of a topic in its stream, from 0. Reused after a delete.
    TopicId(u32);
    /// Number of a partition in its topic, dense from 0.
    PartitionId(u32);
    /// Number of a user; 0 is root.
    UserId(u32);
    /// Place of one message in its partition. Dense, the first is 0. A byte place in a file is a position, never an
    /// offset.
    Offset(u64);
    /// Number of an entry in a lane's log, from 1; 0 means "none yet".
    Op(u64);
    /// One life of a partition: the metadata op that created it. Never 0 for a live partition.
    Incarnation(u64);
    /// The op that decided which member of a consumer group owns a partition; 0 means "no group".
    OwnerGeneration(u64);
    /// Random identity that a client chooses for its session; never 0.
    ClientId(u128);
    /// One life of a session: the metadata op at which its registration committed; 0 before that.
    SessionEpoch(u64);
    /// Number of a request in its session, from 1; 0 before the session exists.
    RequestNumber(u64);
    /// Microseconds since the Unix epoch.
    Micros(u64);
    /// One replicated log (one consensus group). Lane 0 is the metadata lane.
    LaneId(u32);
    /// A node as clients see it in the roster.
    ReplicaId(u8);
}

impl Offset {
    /// The offset after this one. An offset of `u64::MAX` has none.
    pub fn next(self) -> Option<Offset> {
        self.0.checked_add(1).map(Offset)
    }
}

impl Op {
    /// The op after this one. A log of 2^64 entries cannot exist.
    pub fn next(self) -> Op {
        Op(self.0.checked_add(1).expect("a log never holds 2^64 entries"))
    }
}

impl LaneId {
    /// The lane of streams, topics, users and sessions.
    pub const METADATA: LaneId = LaneId(0);
}

/// Identity of a partition over time: the op that created it and its number. One op creates partitions of one topic
/// only, so the pair is unique for ever, and numbers that are reused cannot alias an older history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// The metadata op that created this life of the partition.
    pub incarnation: Incarnation,
    /// Its number in the topic.
    pub partition: PartitionId,
}

impl std::fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.incarnation, self.partition)
    }
}
