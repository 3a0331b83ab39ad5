//! Deliberate bugs, to prove that the simulator finds them. Planting one needs the feature `mutations`; without it every
//! question about one is a constant `false`.

/// One deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutation {
    /// A merge truncates as soon as nobody who voted holds a copy, without a quorum of nacks.
    DropNackQuorum,
    /// A backup acknowledges an entry when it starts the write.
    AckBeforeDurable,
    /// The primary counts itself when it proposes.
    CountSelfBeforeDurable,
    /// A vote leaves before its superblock record is durable.
    SkipSuperblockBeforeVote,
    /// A backup works in an adopted view before the superblock names it.
    SkipSuperblockBeforeAck,
    /// A vote is computed anew each time it is sent.
    RecomputeVote,
    /// Adoption truncates one entry too many, into what is committed.
    TruncateAtCommit,
    /// Adoption keeps the entries above the announced head.
    KeepRelics,
    /// Apply goes on over an entry whose body is missing.
    ApplyOverGap,
    /// A vote nacks everything whose body is not readable, acknowledged or not.
    NackFaulty,
    /// A vote nacks entries that it holds.
    NackHeld,
    /// The primary-elect raises its log view when the merge is done, before it holds the merged log.
    EarlyLogView,
    /// A backup takes an entry with another name over the one that it has.
    OverwriteOtherIdentity,
    /// Acknowledgements count whatever their identity says.
    IgnoreAckIdentity,
    /// Acknowledgements of an older view count.
    CountOldViewAcks,
    /// Reads are served without a lease.
    ReadWithoutLease,
    /// A backup compares heartbeat counters across views.
    KeepHeartbeatCounter,
    /// A recovering replica adopts a log that was sent to an earlier start of it.
    AcceptForeignNonce,
    /// The merge takes the lowest op of a vote for committed.
    FloorIsCommitted,
    /// The merge takes the highest head of any vote, not only of the latest log view.
    IgnoreLogView,
    /// A backup acknowledges entries above a gap.
    AckOverGap,
    /// The commit quorum is one short.
    SmallCommitQuorum,
    /// A view starts with one suspicion.
    LoneSuspicion,
    /// A vote leaves while the promise of the lease runs.
    IgnorePromise,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 24] = [
        Mutation::DropNackQuorum,
        Mutation::AckBeforeDurable,
        Mutation::CountSelfBeforeDurable,
        Mutation::SkipSuperblockBeforeVote,
        Mutation::SkipSuperblockBeforeAck,
        Mutation::RecomputeVote,
        Mutation::TruncateAtCommit,
        Mutation::KeepRelics,
        Mutation::ApplyOverGap,
        Mutation::NackFaulty,
        Mutation::NackHeld,
        Mutation::EarlyLogView,
        Mutation::OverwriteOtherIdentity,
        Mutation::IgnoreAckIdentity,
        Mutation::CountOldViewAcks,
        Mutation::ReadWithoutLease,
        Mutation::KeepHeartbeatCounter,
        Mutation::AcceptForeignNonce,
        Mutation::FloorIsCommitted,
        Mutation::IgnoreLogView,
        Mutation::AckOverGap,
        Mutation::SmallCommitQuorum,
        Mutation::LoneSuspicion,
        Mutation::IgnorePromise,
    ];
}

/// Which bug is planted in a replica, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mutations {
    #[cfg(any(test, feature = "mutations"))]
    planted: Option<Mutation>,
}

impl Mutations {
    /// None.
    pub const NONE: Mutations = Mutations {
        #[cfg(any(test, feature = "mutations"))]
        planted: None,
    };

    /// Exactly one.
    #[cfg(any(test, feature = "mutations"))]
    pub fn only(mutation: Mutation) -> Mutations {
        Mutations { planted: Some(mutation) }
    }

    /// Whether a bug is planted.
    #[cfg(any(test, feature = "mutations"))]
    pub fn has(self, mutation: Mutation) -> bool {
        self.planted == Some(mutation)
    }

    /// Whether a bug is planted.
    #[cfg(not(any(test, feature = "mutations")))]
    #[inline(always)]
    pub fn has(self, _mutation: Mutation) -> bool {
        false
    }

    /// Whether any bug is planted: asserts that would find it at once stand aside.
    pub fn any(self) -> bool {
        Mutation::ALL.iter().any(|mutation| self.has(*mutation))
    }
}
