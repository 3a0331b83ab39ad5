//! What replicas of one lane tell each other, as plain values. Encoding, checksums and authentication belong to the
//! links: when a message reaches the core, its sender is proven, its header is sound in this lane and its body is the one
//! that the header names.

use bytes::Bytes;
use laneway_wire::{Nanos, Op};

use crate::entry::{Entry, View};
use crate::header::{DiskId, Header, Identity};
use crate::vote::{CheckpointId, Vote};

/// Most headers in one [`Message::Headers`].
pub const HEADERS_MAX: usize = 512;

/// Most entries that one [`Message::GetPrepare`] asks for.
pub const GET_PREPARE_MAX: usize = 64;

/// Number that pairs an answer with its question. Never repeats on one replica, not across restarts either, because the
/// upper half comes from the boot's seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u64);

/// A place in a log and the name of the entry there. Op 0 goes with the root identity of the lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Anchor {
    /// The op.
    pub op: Op,
    /// Its name.
    pub identity: Identity,
}

/// The decided log of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartView {
    /// The view.
    pub view: View,
    /// The head of the log when this was sent.
    pub op_head: Op,
    /// Committed through here.
    pub commit_max: Op,
    /// The sender's checkpoint.
    pub checkpoint: CheckpointId,
    /// Headers from `op_head` downward without a gap, to `commit_max` where the sender still has them.
    pub headers: Vec<Header>,
    /// The probe that this answers; `None` in the broadcast that starts the view.
    pub nonce: Option<Nonce>,
}

/// A cumulative acknowledgement. An identity proves the whole log below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Written through here: survives a killed process.
    pub received: Anchor,
    /// On stable storage through here.
    pub persisted: Anchor,
    /// In memory or on its way to the log through here.
    pub held: Op,
    /// The durable checkpoint.
    pub checkpoint: Op,
}

/// A message between two replicas of one lane. Every message names the view it was sent in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Primary to backups: replicate this entry. `view` is the view that sends it; the header keeps the one that made it.
    Prepare { view: View, commit: Op, checkpoint: Op, entry: Entry },
    /// Backup to primary: how far the log is here.
    PrepareOk { view: View, progress: Progress },
    /// Primary to backups: it lives, and this is committed. `checkpoint_quorum` is covered by the checkpoints of a
    /// replication quorum.
    Heartbeat {
        view: View,
        sequence: u64,
        sent_at: Nanos,
        commit: Op,
        op_head: Op,
        checkpoint: Op,
        checkpoint_quorum: Op,
    },
    /// Backup to primary: `sent_at` echoed; grants the lease.
    HeartbeatAck { view: View, sequence: u64, sent_at: Nanos, progress: Progress },
    /// Suspecting replica to all: the primary before `target` should be replaced. Raises no view alone.
    StartViewChange { view: View, target: View, commit_max: Op },
    /// Replica to all members: a vote.
    DoViewChange(Box<Vote>),
    /// New primary to all, or primary to one that asked.
    StartView(Box<StartView>),
    /// Replica to all: what is the current view?
    GetView { view: View, nonce: Nonce, op_head: Op, recovering: bool },
    /// Replica to any: headers of `first..=last`.
    GetHeaders { view: View, nonce: Nonce, first: Op, last: Op },
    /// The answer, from high to low without a gap.
    Headers { view: View, nonce: Nonce, headers: Vec<Header> },
    /// Replica to any: entries by name; a zero identity asks the primary of the view for whatever is at the op.
    GetPrepare { view: View, nonce: Nonce, wanted: Vec<Anchor> },
    /// The answer, one message an entry. `commit` is the sender's, `settled` says that it is the primary of `view` in
    /// normal status.
    RepairPrepare { view: View, nonce: Nonce, settled: bool, entry: Entry },
    /// The front of what was asked for is gone.
    RangeEvicted { view: View, nonce: Nonce, oldest: Op, checkpoint: Op },
    /// Any to any: state transfer. The core passes these on to the transfer session.
    Transfer { view: View, message: TransferMessage },
    /// Amnesiac replica to members.
    Recovery { view: View, nonce: Nonce, disk: DiskId },
    /// The answer; `start_view` when the sender is the settled primary.
    RecoveryReply {
        view: View,
        nonce: Nonce,
        log_view: View,
        op_head: Op,
        commit_max: Op,
        start_view: Option<Box<StartView>>,
    },
    /// Clock sample request, one a link.
    Ping { view: View, sent_at: Nanos },
    /// The answer: the monotonic time of the ping echoed, and the wall clock of the sender.
    Pong { view: View, sent_at: Nanos, wall: laneway_wire::Micros },
}

/// State transfer messages. The session that makes and reads them is beside the replica, see `transfer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferMessage {
    /// What checkpoint do you hold?
    GetCheckpoint { nonce: Nonce, commit_min: Op },
    /// An offer; `None` when there is none, or when the sender is busy.
    Checkpoint { nonce: Nonce, offer: Option<Box<CheckpointOffer>> },
    /// Bytes of an artifact of a checkpoint.
    GetChunk { nonce: Nonce, checkpoint: CheckpointId, artifact: u32, offset: u64, bytes: u32 },
    /// The answer.
    Chunk { nonce: Nonce, checkpoint: CheckpointId, artifact: u32, offset: u64, bytes: Bytes },
}

/// A checkpoint that a replica can give away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOffer {
    /// What it covers.
    pub checkpoint: CheckpointId,
    /// The commit number of the sender.
    pub commit_max: Op,
    /// Its parts, in the order of their numbers.
    pub artifacts: Vec<Artifact>,
}

/// One part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// What it is, in the terms of the state machine (a snapshot, a catalogue, a segment).
    pub kind: u8,
    /// What it is called there (a segment's base offset, say).
    pub name: u64,
    /// Its length.
    pub bytes: u64,
    /// Hash of its bytes.
    pub hash: u128,
}

impl Message {
    /// The view in which it was sent.
    pub fn view(&self) -> View {
        match self {
            Message::Prepare { view, .. }
            | Message::PrepareOk { view, .. }
            | Message::Heartbeat { view, .. }
            | Message::HeartbeatAck { view, .. }
            | Message::StartViewChange { view, .. }
            | Message::GetView { view, .. }
            | Message::GetHeaders { view, .. }
            | Message::Headers { view, .. }
            | Message::GetPrepare { view, .. }
            | Message::RepairPrepare { view, .. }
            | Message::RangeEvicted { view, .. }
            | Message::Transfer { view, .. }
            | Message::Recovery { view, .. }
            | Message::RecoveryReply { view, .. }
            | Message::Ping { view, .. }
            | Message::Pong { view, .. } => *view,
            Message::DoViewChange(vote) => vote.view,
            Message::StartView(start) => start.view,
        }
    }

    /// A short name for traces and counters.
    pub fn kind(&self) -> &'static str {
        match self {
            Message::Prepare { .. } => "prepare",
            Message::PrepareOk { .. } => "prepare_ok",
            Message::Heartbeat { .. } => "heartbeat",
            Message::HeartbeatAck { .. } => "heartbeat_ack",
            Message::StartViewChange { .. } => "start_view_change",
            Message::DoViewChange(_) => "do_view_change",
            Message::StartView(_) => "start_view",
            Message::GetView { .. } => "get_view",
            Message::GetHeaders { .. } => "get_headers",
            Message::Headers { .. } => "headers",
            Message::GetPrepare { .. } => "get_prepare",
            Message::RepairPrepare { .. } => "repair_prepare",
            Message::RangeEvicted { .. } => "range_evicted",
            Message::Transfer { .. } => "transfer",
            Message::Recovery { .. } => "recovery",
            Message::RecoveryReply { .. } => "recovery_reply",
            Message::Ping { .. } => "ping",
            Message::Pong { .. } => "pong",
        }
    }
}
