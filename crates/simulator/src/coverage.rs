//! Marks: what a run went through. A set of runs that claims to test something and never met it has tested nothing.

macro_rules! marks {
    ($($name:ident => $text:literal,)*) => {
        /// Something that a run can go through.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Mark {
            $(#[doc = $text] $name,)*
        }

        impl Mark {
            /// All marks.
            pub const ALL: &[Mark] = &[$(Mark::$name,)*];

            /// What it says.
            pub fn text(self) -> &'static str {
                match self {
                    $(Mark::$name => $text,)*
                }
            }
        }
    };
}

marks! {
    Committed => "an op committed",
    ViewChanged => "a lane got another primary",
    PrimaryCrashed => "the primary of a lane crashed",
    BackupCrashed => "a backup crashed",
    AllCrashed => "every node was down at once",
    Repaired => "a missing entry came from a peer",
    Transferred => "a replica was caught up by a checkpoint of a peer",
    Recovered => "a restarted replica took part again",
    Readmitted => "a replica that had lost its directory took part again",
    RolledBackFound => "a directory of an older point was found out",
    TornTail => "a torn end of a log was cut",
    CorruptFound => "a damaged entry was found at a start",
    SuperblockHealed => "a superblock was read from fewer than all copies",
    Truncated => "an entry that never committed was dropped",
    Inherited => "an entry committed in a view after its own",
    Replayed => "a resend got the first answer again",
    InFlight => "a resend met its own request on the way",
    Unknown => "a client was told that the outcome is unknown",
    NotAccepted => "a client was told that nothing happened",
    NotPrimary => "a client was sent to another node",
    Read => "a read was answered",
    ReadRefused => "a read was refused",
    OffsetStored => "a consumer's offset was stored",
    SessionEnded => "a session ended",
    StreamDeleted => "a stream was deleted",
    PartitionFenced => "a partition ended",
    Checkpointed => "a replica made a checkpoint",
    CheckpointCompared => "two replicas had the same checkpoint",
    DiskFull => "a write found no room",
    Partitioned => "nodes were cut off from each other",
    Paused => "a process stood still",
    SlowShard => "a shard was slow",
    ClockStepped => "a wall clock jumped",
    Refused => "a replica refused to start",
}

/// How often each mark was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    counts: Vec<u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { counts: vec![0; Mark::ALL.len()] }
    }
}

impl Coverage {
    /// A mark was met.
    pub fn hit(&mut self, mark: Mark) {
        self.counts[mark as usize] += 1;
    }

    /// How often a mark was met.
    pub fn count(&self, mark: Mark) -> u64 {
        self.counts[mark as usize]
    }

    /// Adds what another run met.
    pub fn add(&mut self, other: &Coverage) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// The marks that were never met.
    pub fn missing(&self) -> impl Iterator<Item = Mark> {
        Mark::ALL.iter().copied().filter(|mark| self.count(*mark) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_met_is_named() {
        let mut coverage = Coverage::default();
        coverage.hit(Mark::Committed);
        let mut other = Coverage::default();
        other.hit(Mark::Committed);
        other.hit(Mark::Refused);
        coverage.add(&other);
        assert_eq!((coverage.count(Mark::Committed), coverage.count(Mark::Refused)), (2, 1));
        assert_eq!(coverage.missing().count(), Mark::ALL.len() - 2);
        assert!(Mark::ALL.iter().enumerate().all(|(index, mark)| *mark as usize == index));
    }
}
