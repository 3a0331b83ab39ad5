//! What a replica is told, and what it asks of its driver. Both are plain values.

use laneway_wire::{Micros, Nanos, Op, ReplicaId};

use crate::durability::Barrier;
use crate::entry::{Entry, View};
use crate::header::Identity;
use crate::message::{Message, Nonce, TransferMessage};
use crate::superblock::Promise;
use crate::vote::{CheckpointId, LogTrust};

/// Place of a change of the log ([`Effect::Write`] or [`Effect::Truncate`]) in the order of this replica's changes since
/// its start, from 1 without gaps. Changes must take effect in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogNumber(pub u64);

/// Number of a superblock record. Grows by one with every [`Effect::WriteSuperblock`], across restarts too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SuperblockNumber(pub u64);

/// Something that happened. Handed to `Replica::handle` with the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of an authenticated member or learner of the lane.
    Message {
        /// Who sent it.
        from: ReplicaId,
        /// What.
        message: Message,
    },
    /// Time passed; at the latest when `poll_timeout` said so. `wall` is the wall clock, already held inside the interval
    /// that the clocks of the cluster agree on.
    Timeout,
    /// Every log change through this one is taken by the kernel.
    Written(LogNumber),
    /// Every log change through this one is on stable storage.
    Synced(LogNumber),
    /// The log takes no more changes (no space, an I/O error). Nothing is acknowledged from now on.
    LogFailed,
    /// The entry of an [`Effect::Apply`] was applied.
    Applied(Op),
    /// Every superblock record through this one is durable. A driver may skip records that a newer one replaced.
    SuperblockWritten(SuperblockNumber),
    /// The answer to [`Effect::Read`]: the entry, or `None` when it is not readable.
    Read {
        /// The question.
        request: ReadRequest,
        /// What was found.
        entry: Option<Entry>,
    },
    /// The state of the lane through this op is durable outside of the log. Not above `commit_min`.
    Checkpointed(CheckpointId),
    /// A state transfer has put this checkpoint in place, durably: state, client table and all. `timestamp` is the one of
    /// its last op.
    CheckpointInstalled {
        /// What it covers.
        checkpoint: CheckpointId,
        /// The timestamp of that op.
        timestamp: Micros,
    },
    /// A state transfer ended without a checkpoint.
    TransferFailed,
    /// The metadata lane has admitted the disk of a member, or has not: a member that is not admitted counts in no quorum.
    Admission {
        /// The member, this replica included.
        replica: ReplicaId,
        /// Whether it counts.
        admitted: bool,
    },
    /// The latest moment that the cluster's clocks allow now. A backup refuses timestamps far above it.
    ClockBound(Micros),
}

/// What a read of the log is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadPurpose {
    /// To apply it.
    Apply,
    /// To send it to a peer that asked.
    Repair {
        /// The peer.
        to: ReplicaId,
        /// Its question.
        nonce: Nonce,
    },
}

/// A read of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadRequest {
    /// Where.
    pub op: Op,
    /// The name that the entry must have; zero takes what is there.
    pub identity: Identity,
    /// Why.
    pub purpose: ReadPurpose,
}

/// What a superblock record says about the lane. The driver adds who it is (cluster, disk, replica, roster) and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableState {
    /// The highest view that this replica has entered.
    pub view: View,
    /// The last view whose log it adopted or decided.
    pub log_view: View,
    /// A lower bound of what is committed.
    pub commit_max: Op,
    /// State through here is durable outside of the log.
    pub checkpoint: CheckpointId,
    /// What backs the view: the vote for it, or the log that started it.
    pub promise: Promise,
    /// Whether the log holds everything that was acknowledged from it, as far as known.
    pub trust: LogTrust,
    /// A checkpoint of another replica was installed and is not yet known to be on a quorum.
    pub syncing: bool,
}

/// What the core asks of its driver, in the order in which it must start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Put the entry into the log at its op; a later write of the same op replaces an earlier one. Answered by
    /// [`Event::Written`] and [`Event::Synced`].
    Write {
        /// Its place among the changes.
        number: LogNumber,
        /// The entry.
        entry: Entry,
    },
    /// Drop every entry above an op, durably. Answered like a write.
    Truncate {
        /// Its place among the changes.
        number: LogNumber,
        /// The highest op that stays.
        above: Op,
    },
    /// The entry is committed: apply it, then report [`Event::Applied`].
    Apply(Entry),
    /// Send a message. Everything that `after` names is durable already when this is handed out; the driver asserts it.
    Send {
        /// The receiver.
        to: ReplicaId,
        /// The message.
        message: Message,
        /// What must be durable first.
        after: Barrier,
    },
    /// Write the superblock. Answered by [`Event::SuperblockWritten`].
    WriteSuperblock {
        /// Its number.
        number: SuperblockNumber,
        /// Its content.
        state: Box<DurableState>,
    },
    /// Read an entry. Answered by [`Event::Read`].
    Read(ReadRequest),
    /// Once a superblock record is durable the log below an op is no longer needed: a checkpoint covers it, and the anchor
    /// and a window for repair stay. A driver may keep more.
    Trim {
        /// The lowest op that must stay.
        below: Op,
        /// The record that names the checkpoint.
        after: SuperblockNumber,
    },
    /// A view has started here. Waiters of ops that were proposed here in an older view are told that the outcome is not
    /// known (57), queued requests that they were not taken (58). What ran ahead of commit is rebuilt from `commit_min`.
    ViewStarted {
        /// The view.
        view: View,
        /// Who leads it.
        primary: ReplicaId,
    },
    /// This replica left normal status, or stopped being primary: as [`Effect::ViewStarted`] for the waiters; serve
    /// nothing until the next one.
    Stopped {
        /// The view that it entered.
        view: View,
    },
    /// A peer asks for a checkpoint or for bytes of one: answer it from what is durable here.
    ServeTransfer {
        /// The peer.
        to: ReplicaId,
        /// What it asked.
        message: TransferMessage,
    },
    /// A peer answered a state transfer of ours.
    DeliverTransfer {
        /// The peer.
        from: ReplicaId,
        /// What it said.
        message: TransferMessage,
    },
    /// The log cannot bring this replica up to date: fetch a checkpoint at or above `at_least` from one of the members.
    StartTransfer {
        /// The lowest op that helps.
        at_least: Op,
    },
    /// State transfer is no longer needed.
    CancelTransfer,
    /// This replica cannot go on: stop the lane and keep its files for examination.
    Halt(Halt),
}

/// Why a replica stopped for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// What is applied here is not what the cluster decided.
    #[error("op {op} is applied here as {ours}, and view {view:?} decided {theirs}")]
    Diverged {
        /// Where.
        op: Op,
        /// The view that says so.
        view: View,
        /// What is applied here.
        ours: Identity,
        /// What was decided.
        theirs: Identity,
    },
    /// A log of a lane with one member ends in damage: nobody else has the entry.
    #[error("op {op} is damaged, and no other replica holds it")]
    DamagedAlone {
        /// Where.
        op: Op,
    },
}

/// A moment as both clocks of a node tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The monotonic clock: timers and leases.
    pub monotonic: Nanos,
    /// The wall clock, held inside the interval that the clocks of the cluster agree on: timestamps.
    pub wall: Micros,
}
