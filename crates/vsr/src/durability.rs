//! What must be durable before which message leaves. One table, used by the core when it sends and by drivers and the
//! simulator when they check.

use laneway_wire::Op;

use crate::entry::View;
use crate::event::{LogNumber, SuperblockNumber};
use crate::message::Message;

/// What was durable when a message was made. The driver asserts that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Barrier {
    /// This record of the superblock, and so every older one.
    pub superblock: SuperblockNumber,
    /// Every change of the log through this one is taken by the kernel.
    pub written: LogNumber,
    /// Every change of the log through this one is on stable storage.
    pub synced: LogNumber,
}

impl Barrier {
    /// Nothing.
    pub const NONE: Barrier =
        Barrier { superblock: SuperblockNumber(0), written: LogNumber(0), synced: LogNumber(0) };
}

/// What the table asks for one kind of message. Stated in the terms of the protocol, so that a checker can ask a model
/// of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// The superblock names this view, or a later one, as entered.
    pub view: Option<View>,
    /// The superblock names this view as the one whose log is held.
    pub log_view: Option<View>,
    /// The superblock holds exactly this vote.
    pub vote: bool,
    /// The log is written through here.
    pub written: Op,
    /// The log is on stable storage through here.
    pub synced: Op,
}

/// The table. Source: cluster specification, 3.6; `docs/consensus.md` shows it in prose.
pub fn requirement(message: &Message) -> Requirement {
    let settled =
        |view: View| Requirement { view: Some(view), log_view: Some(view), ..Requirement::default() };
    match message {
        // A primary speaks for its view only when a restart could not make it forget that the view is settled.
        Message::Prepare { view, .. } | Message::Heartbeat { view, .. } => settled(*view),
        // An acknowledgement is a promise about both the log and the view in which it counts.
        Message::PrepareOk { view, progress } | Message::HeartbeatAck { view, progress, .. } => {
            Requirement { written: progress.received.op, synced: progress.persisted.op, ..settled(*view) }
        }
        // A suspicion binds nobody.
        Message::StartViewChange { .. } => Requirement::default(),
        // A vote is a promise, and only one is ever made for a view.
        Message::DoViewChange(vote) => {
            Requirement { view: Some(vote.view), vote: true, ..Requirement::default() }
        }
        // Who starts a view serves every body up to its head.
        Message::StartView(start) => settled(start.view),
        Message::RecoveryReply { start_view, .. } => match start_view {
            Some(start) => settled(start.view),
            None => Requirement::default(),
        },
        // Questions, answers that prove themselves, and clock samples.
        Message::GetView { .. }
        | Message::GetHeaders { .. }
        | Message::Headers { .. }
        | Message::GetPrepare { .. }
        | Message::RepairPrepare { .. }
        | Message::RangeEvicted { .. }
        | Message::Transfer { .. }
        | Message::Recovery { .. }
        | Message::Ping { .. }
        | Message::Pong { .. } => Requirement::default(),
    }
}
