//! The consensus core: one replica of one lane, as a state machine without I/O. Events go in (a proposal, a message, a
//! finished write, a finished flush, a finished apply, time), effects come out (write this entry, send that message,
//! apply a third). Viewstamped Replication for one to nine members; one member is the same code with a quorum of one.
//!
//! Reading order: [`entry`] and [`header`] (what a log holds), [`roster`] and [`quorum`] (who decides), [`message`],
//! [`event`] and [`durability`] (what goes in and out, and what must be durable first), [`vote`] and [`mod@merge`] (what
//! survives a change of the primary), [`replica`] (the state machine), [`invariants`] (what always holds).
//! `docs/consensus.md` tells it in prose.
#![forbid(unsafe_code)]

pub mod clock;
pub mod entry;
pub mod header;
pub mod quorum;
pub mod recovery;
pub mod roster;
pub mod superblock;
pub mod vote;

pub mod marks;
pub mod mutation;
mod random;

pub mod config;
pub mod message;

pub mod durability;
pub mod event;
pub mod log;
pub mod transfer;

pub mod invariants;
pub mod merge;
pub mod replica;

#[cfg(test)]
mod exploration;

pub use config::{Config, ConfigError, Timing};
pub use durability::Barrier;
pub use entry::{Durability, Entry, EntryBody, View};
pub use event::{
    DurableState, Effect, Event, Halt, LogNumber, Moment, ReadPurpose, ReadRequest, SuperblockNumber,
};
pub use header::{ClusterId, DiskId, Draft, Epoch, Header, Identity};
pub use message::{Anchor, Message, Nonce, Progress, StartView, TransferMessage};
pub use mutation::Mutation;
pub use quorum::{QuorumError, Quorums};
pub use replica::{Frontier, ProposeError, Replica, Restored, Status};
pub use roster::{Roster, RosterError};
pub use superblock::{BootId, Identification, Superblock, SuperblockWriter};
pub use vote::{CheckpointId, Held, LogTrust, Slot, Vote};
