//! The facts that a replica must still know after a restart, whatever happened to its log: who it is, in which view it
//! is, what it voted, what it has installed.
//!
//! A record is kept in four copies. [`record`] is its bytes, [`copies`] says which copy to believe, [`writer`] in which
//! order to write them. All of it is without I/O: a driver carries out the steps of the writer.

pub mod copies;
pub mod record;
pub mod writer;

use laneway_wire::{LaneId, Op, ReplicaId};

use crate::entry::View;
use crate::header::{ClusterId, DiskId, Header, Identity};
use crate::roster::Roster;
use crate::vote::{CheckpointId, LogTrust, VOTE_SLOTS_MAX, Vote};

pub use copies::{OpenError, Opened, open};
pub use record::{COPIES, COPY_SPACING, FORMAT, RECORD_BYTES, RecordError, Stamp};
pub use writer::{Give, Step, SuperblockWriter};

/// One start of the machine, as the operating system names it. While it is the same, the kernel has kept every write
/// that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(pub u128);

/// Who a replica is. Nothing of it ever changes in one data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identification {
    /// The cluster.
    pub cluster: ClusterId,
    /// The data directory.
    pub disk: DiskId,
    /// The lane.
    pub lane: LaneId,
    /// The node.
    pub replica: ReplicaId,
    /// Nodes in the roster of the cluster.
    pub nodes: u8,
}

/// What belongs to somebody else. Source: V86.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignSuperblock {
    /// Another cluster.
    #[error("it is of cluster {found:032x}, this node is of cluster {expected:032x}")]
    Cluster {
        /// In the record.
        found: u128,
        /// In the configuration.
        expected: u128,
    },
    /// Another data directory.
    #[error("it is of disk {found:032x}, this directory is disk {expected:032x}")]
    Disk {
        /// In the record.
        found: u128,
        /// In the directory.
        expected: u128,
    },
    /// Another lane.
    #[error("it is of lane {found}, expected lane {expected}")]
    Lane {
        /// In the record.
        found: LaneId,
        /// By its name.
        expected: LaneId,
    },
    /// Another node.
    #[error("it is of replica {found}, this node is replica {expected}")]
    Replica {
        /// In the record.
        found: ReplicaId,
        /// In the configuration.
        expected: ReplicaId,
    },
    /// A cluster of another size.
    #[error("it is of a roster of {found} nodes, the configured roster has {expected}")]
    Nodes {
        /// In the record.
        found: u8,
        /// In the configuration.
        expected: u8,
    },
}

impl Identification {
    /// Refuses what another replica wrote, and names both values of the first difference.
    pub fn check(&self, found: &Identification) -> Result<(), ForeignSuperblock> {
        if found.cluster != self.cluster {
            return Err(ForeignSuperblock::Cluster { found: found.cluster.0, expected: self.cluster.0 });
        }
        if found.disk != self.disk {
            return Err(ForeignSuperblock::Disk { found: found.disk.0, expected: self.disk.0 });
        }
        if found.lane != self.lane {
            return Err(ForeignSuperblock::Lane { found: found.lane, expected: self.lane });
        }
        if found.replica != self.replica {
            return Err(ForeignSuperblock::Replica { found: found.replica, expected: self.replica });
        }
        if found.nodes != self.nodes {
            return Err(ForeignSuperblock::Nodes { found: found.nodes, expected: self.nodes });
        }
        Ok(())
    }
}

/// A durable checkpoint and where its bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointRef {
    /// Which state.
    pub id: CheckpointId,
    /// Which snapshot file; 0 for the empty state.
    pub snapshot: u64,
    /// Hash of its bytes; 0 for the empty state.
    pub snapshot_hash: u128,
}

/// The log ended here when the process stopped in order. Only the newest start may believe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanStop {
    /// The last entry.
    pub op_head: Op,
    /// Its name.
    pub identity: Identity,
}

/// Ops whose effects are being replaced by an installed checkpoint: their bytes in the log count for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncRange {
    /// The first.
    pub first: Op,
    /// The last: the op of the checkpoint.
    pub last: Op,
}

/// Headers that back a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promise {
    /// None: the log speaks for itself.
    None,
    /// A vote in the view of the record.
    Vote(Vote),
    /// The log that was decided in `log_view`.
    View {
        /// The highest op of that log. Entries above it that are older than the view are leftovers.
        op_head: Op,
        /// Its headers, downward from `op_head`, as far as they are needed.
        headers: Vec<Header>,
    },
}

/// What one record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Who wrote it.
    pub who: Identification,
    /// The member list.
    pub roster: Roster,
    /// The view that the replica is in, or has voted for.
    pub view: View,
    /// The view in which its head was decided.
    pub log_view: View,
    /// A lower bound of what is committed.
    pub commit_max: Op,
    /// Its durable state.
    pub checkpoint: CheckpointRef,
    /// A checkpoint on its way in.
    pub sync: Option<SyncRange>,
    /// The checkpoint came from another replica, and is not yet known to be on a quorum.
    pub syncing: bool,
    /// Whether the log holds everything that was acknowledged.
    pub trust: LogTrust,
    /// How the last run ended. `None` while one runs.
    pub clean: Option<CleanStop>,
    /// The start of the machine under which the log was written.
    pub boot: BootId,
    /// What the replica is bound by.
    pub promise: Promise,
}

impl Superblock {
    /// The first record of a replica that may start at view 0 with an empty log. Who may is not decided here: an
    /// emptied directory must never get one on its own (V87).
    pub fn fresh(who: Identification, roster: Roster, boot: BootId) -> Superblock {
        let root = Identity::root(who.cluster, who.lane);
        Superblock {
            who,
            roster,
            view: View(0),
            log_view: View(0),
            commit_max: Op(0),
            checkpoint: CheckpointRef {
                id: CheckpointId { op: Op(0), identity: root },
                ..CheckpointRef::default()
            },
            sync: None,
            syncing: false,
            trust: LogTrust::Trusted,
            clean: None,
            boot,
            promise: Promise::None,
        }
    }

    /// Whether the fields agree with each other.
    pub fn is_consistent(&self) -> bool {
        let promise = match &self.promise {
            Promise::None => true,
            Promise::Vote(vote) => {
                vote.is_well_formed() && vote.view == self.view && vote.log_view == self.log_view
            }
            Promise::View { op_head, headers } => {
                headers.len() <= VOTE_SLOTS_MAX
                    && headers.first().is_none_or(|header| header.op == *op_head)
                    && self.view == self.log_view
                    && headers.windows(2).all(|pair| pair[0].follows(&pair[1]))
            }
        };
        let sync = self.sync.is_none_or(|range| range.first <= range.last);
        promise && sync && self.log_view <= self.view && self.checkpoint.id.op <= self.commit_max
    }

    /// Whether `next` may be written over this record: nothing that was promised is taken back (V29). The checkpoint
    /// goes back only while another one is installed.
    pub fn may_become(&self, next: &Superblock) -> bool {
        let checkpoint = self.checkpoint.id.op <= next.checkpoint.id.op || next.sync.is_some();
        let vote = match (&self.promise, &next.promise) {
            // One content per view, for ever (V31). It ends with the adoption of a log of that view or of a later one.
            (Promise::Vote(before), Promise::Vote(after)) => before.view != after.view || before == after,
            (Promise::Vote(before), _) => next.log_view >= before.view,
            _ => true,
        };
        self.who == next.who
            && self.view <= next.view
            && self.log_view <= next.log_view
            && self.commit_max <= next.commit_max
            && self.roster.epoch() <= next.roster.epoch()
            && checkpoint
            && vote
    }
}

#[cfg(test)]
mod tests;
