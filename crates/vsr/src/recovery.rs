//! What a log proves after a restart: which entries are there, which are lost, and whether an acknowledged one may be
//! among the lost. Source: cluster specification, 2.14.
//!
//! Storage says what it found, entry by entry and at the end of the log ([`LogScan`]); here it is decided what that
//! means ([`classify`]), what of it a lone replica may start with ([`RecoveredLog::check_alone`]), and whether the log
//! may serve as evidence in an election ([`trust`]).

use std::collections::BTreeMap;

use laneway_wire::Op;

use crate::entry::Durability;
use crate::header::{Header, Identity};
use crate::superblock::{BootId, CleanStop};
use crate::vote::{CheckpointId, LogTrust};

/// What storage found for one lane, from its checkpoint upward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogScan {
    /// In the order in which it was written.
    pub found: Vec<Found>,
    /// How the last flush ends.
    pub tail: Tail,
    /// What the witness of the last flush says.
    pub witness: Witness,
}

/// One thing in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The flush that wrote it. Later flushes have higher numbers.
    pub flush: u64,
    /// Where it is, in the terms of whoever scanned, who makes words of it.
    pub at: u64,
    /// What it is.
    pub kind: FoundKind,
}

/// What a place in the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundKind {
    /// An entry, whole.
    Entry(Header),
    /// An entry whose body does not match its header.
    BodyDamaged(Header),
    /// Bytes that were an entry once, or one of another lane or place: a flush behind them is whole, so they are not the
    /// torn end of the log.
    Damaged,
    /// The log was cut: nothing above this op counts that stands before.
    Truncated {
        /// The highest op that stays.
        above: Op,
    },
}

/// How the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// With a whole flush.
    Whole {
        /// Its number; 0 for an empty log.
        flush: u64,
    },
    /// With a flush that is not whole.
    Broken {
        /// The number that the broken flush would have.
        flush: u64,
        /// Where it begins.
        at: u64,
    },
}

/// The second place that says how far the log was flushed. An acknowledgement needs both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// The flush of this number was complete.
    Attests {
        /// The number.
        flush: u64,
    },
    /// It cannot be read.
    Unreadable,
    /// The storage keeps none: what the log says of itself is all there is, and a broken end is taken for torn.
    NotKept,
}

/// What is known at one op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveredSlot {
    /// The entry is there.
    Present {
        /// It.
        header: Header,
        /// Where it was found.
        at: u64,
    },
    /// An entry was there, and its body or all of it is damaged. It may have been acknowledged.
    Faulty {
        /// Its name, from its own header or from the entry after it.
        identity: Option<Identity>,
        /// Where the damage is, when it is known which one it is.
        at: Option<u64>,
    },
    /// Nothing is there, though the log goes on above.
    Missing {
        /// The name that the entry after it gives.
        identity: Option<Identity>,
    },
}

/// What is known about the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Nothing was acknowledged above the last entry.
    Certain,
    /// Something may have been: no vote and no nack before a view was adopted (recovering head).
    Unknown,
}

/// What has to be done to the files before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Nothing.
    Nothing,
    /// Cut the torn end, which was never acknowledged.
    Cut {
        /// Where it begins.
        at: u64,
    },
    /// Write the witness again.
    Witness,
}

/// A classified log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredLog {
    /// Every op from the one after the checkpoint to the head.
    pub slots: BTreeMap<Op, RecoveredSlot>,
    /// The highest op that is known to have been here; the op of the checkpoint when there is none above it.
    pub op_head: Op,
    /// Whether there was more.
    pub head: Head,
    /// What to do first.
    pub mend: Mend,
    /// The highest commit number in any entry.
    pub commit_seen: Op,
    /// Entries that a later write had replaced or that name another parent than what is there.
    pub stale: usize,
    /// Whether every entry promised stable storage.
    pub all_persisted: bool,
}

/// Why a lone replica does not start: nobody else has what is lost here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AloneError {
    /// An entry below the head is damaged or gone.
    #[error("op {op} is damaged, and no other replica holds it")]
    Entry {
        /// The op.
        op: Op,
        /// Where the damage is, in the terms of the scan.
        at: Option<u64>,
    },
    /// The end of the log is damaged, and what was there had been acknowledged, or may have been.
    #[error("the log ends in damage after op {op}; what was acknowledged there is lost")]
    Head {
        /// The last op that is sound.
        op: Op,
    },
}

/// Decides what a scan means. `checkpoint` is the state that the log continues.
pub fn classify(scan: &LogScan, checkpoint: CheckpointId) -> RecoveredLog {
    let mut stale = 0;
    let mut damaged = 0usize;
    let mut entries: BTreeMap<Op, Found> = BTreeMap::new();
    for found in &scan.found {
        match found.kind {
            FoundKind::Entry(header) | FoundKind::BodyDamaged(header) => {
                if header.op > checkpoint.op {
                    // Of two writes of one op the later one counts: repair, and entries of a later view, replace.
                    stale += usize::from(entries.insert(header.op, *found).is_some());
                }
            }
            FoundKind::Damaged => damaged += 1,
            FoundKind::Truncated { above } => {
                stale += entries.split_off(&above.next()).len();
            }
        }
    }
    stale += drop_superseded(&mut entries);
    let commit_seen = entries.values().filter_map(header_of).map(|header| header.commit).max();
    let all_persisted =
        entries.values().filter_map(header_of).all(|header| header.durability == Durability::Persisted);
    let op_head = entries.keys().next_back().copied().unwrap_or(checkpoint.op);
    let slots: BTreeMap<Op, RecoveredSlot> =
        (checkpoint.op.0 + 1..=op_head.0).map(Op).map(|op| (op, slot(op, &entries, damaged))).collect();
    let (mut head, mend) = end_of(scan);
    // Damage that no gap accounts for may have been an entry above everything that is left.
    if damaged > slots.values().filter(|slot| matches!(slot, RecoveredSlot::Faulty { at: None, .. })).count()
    {
        head = Head::Unknown;
    }
    RecoveredLog {
        slots,
        op_head,
        head,
        mend,
        commit_seen: commit_seen.unwrap_or(checkpoint.op).max(checkpoint.op),
        stale,
        all_persisted,
    }
}

fn header_of(found: &Found) -> Option<&Header> {
    match &found.kind {
        FoundKind::Entry(header) | FoundKind::BodyDamaged(header) => Some(header),
        FoundKind::Damaged | FoundKind::Truncated { .. } => None,
    }
}

/// Where neighbours do not name each other, the one that was written earlier is from a log that was replaced.
fn drop_superseded(entries: &mut BTreeMap<Op, Found>) -> usize {
    let mut dropped = 0;
    loop {
        let broken = entries.iter().zip(entries.iter().skip(1)).find_map(|((op, below), (next, above))| {
            let (lower, upper) = (header_of(below)?, header_of(above)?);
            let joined = next.0 != op.0 + 1 || upper.follows(lower);
            let older = if below.flush > above.flush { *next } else { *op };
            (!joined).then_some(older)
        });
        match broken {
            Some(op) => entries.remove(&op),
            None => return dropped,
        };
        dropped += 1;
    }
}

fn slot(op: Op, entries: &BTreeMap<Op, Found>, damaged: usize) -> RecoveredSlot {
    let named_above = entries.get(&op.next()).and_then(header_of).map(|header| header.parent);
    match entries.get(&op) {
        Some(Found { kind: FoundKind::Entry(header), at, .. }) => {
            RecoveredSlot::Present { header: *header, at: *at }
        }
        Some(found) => RecoveredSlot::Faulty {
            identity: header_of(found).map(|header| header.identity),
            at: Some(found.at),
        },
        // Damage somewhere and a gap here: the damage may well have been this entry.
        None if damaged > 0 => RecoveredSlot::Faulty { identity: named_above, at: None },
        None => RecoveredSlot::Missing { identity: named_above },
    }
}

/// Cases A and C to F of the specification's table: the end of the log against its witness.
fn end_of(scan: &LogScan) -> (Head, Mend) {
    match (scan.tail, scan.witness) {
        (Tail::Whole { flush }, Witness::Attests { flush: attested }) if attested > flush => {
            // A flush that was acknowledged is not there at all.
            (Head::Unknown, Mend::Nothing)
        }
        (Tail::Whole { .. }, Witness::Attests { .. } | Witness::NotKept) => (Head::Certain, Mend::Nothing),
        (Tail::Whole { .. }, Witness::Unreadable) => (Head::Certain, Mend::Witness),
        (Tail::Broken { flush, at }, Witness::Attests { flush: attested }) if attested < flush => {
            (Head::Certain, Mend::Cut { at })
        }
        (Tail::Broken { at, .. }, Witness::NotKept) => (Head::Certain, Mend::Cut { at }),
        (Tail::Broken { .. }, Witness::Attests { .. } | Witness::Unreadable) => {
            (Head::Unknown, Mend::Nothing)
        }
    }
}

impl RecoveredLog {
    /// The highest op up to which every entry is present.
    pub fn contiguous(&self, checkpoint: Op) -> Op {
        let present = self.slots.values().take_while(|slot| matches!(slot, RecoveredSlot::Present { .. }));
        Op(checkpoint.0 + present.count() as u64)
    }

    /// The commit point after a restart: what the superblock knew, what any entry said, what the checkpoint holds.
    pub fn commit_max(&self, superblock: Op) -> Op {
        superblock.max(self.commit_seen)
    }

    /// Whether a lane with one member may start with this log: there is nobody to repair from, so everything that it may
    /// have acknowledged must be here. A torn end was never acknowledged. Source: V66, V82.
    pub fn check_alone(&self) -> Result<(), AloneError> {
        for (op, slot) in &self.slots {
            match slot {
                RecoveredSlot::Present { .. } => {}
                RecoveredSlot::Faulty { at, .. } => return Err(AloneError::Entry { op: *op, at: *at }),
                RecoveredSlot::Missing { .. } => return Err(AloneError::Entry { op: *op, at: None }),
            }
        }
        match self.head {
            Head::Certain => Ok(()),
            Head::Unknown => Err(AloneError::Head { op: self.op_head }),
        }
    }
}

/// What is known about the last run of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRun {
    /// Trust before it: what was doubtful stays doubtful until a view was adopted and repaired.
    pub trust: LogTrust,
    /// The mark of an orderly stop, if it left one.
    pub clean: Option<CleanStop>,
    /// The start of the machine under which it ran.
    pub boot: BootId,
}

/// Whether a log may be believed to hold everything that was acknowledged from it: every entry promised stable storage,
/// or the process stopped in order at this very head, or the machine has not restarted since. Otherwise a power loss may
/// have taken what only the kernel had.
pub fn trust(log: &RecoveredLog, head: Option<Identity>, run: &LastRun, boot: BootId) -> LogTrust {
    let stopped_here =
        run.clean.is_some_and(|stop| stop.op_head == log.op_head && Some(stop.identity) == head);
    let same_boot = run.boot == boot && boot != BootId::default();
    match run.trust == LogTrust::Trusted && (log.all_persisted || stopped_here || same_boot) {
        true => LogTrust::Trusted,
        false => LogTrust::Untrusted,
    }
}

/// What a peer remembers that a replica has promised: the proof against a directory that was put back from an older
/// copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The highest view in which it spoke.
    pub view: u32,
    /// The highest op that it acknowledged as being on stable storage, while that was committed.
    pub persisted_committed: Op,
}

/// Whether a replica that comes back knows less than it promised: it is treated as if its disk had been emptied. Source:
/// V88.
pub fn is_rolled_back(remembered: &Remembered, view: u32, op_head: Op) -> bool {
    view < remembered.view || op_head < remembered.persisted_committed
}

#[cfg(test)]
mod tests;
