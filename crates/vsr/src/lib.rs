//! The consensus core: one replica of one lane, as a state machine without I/O. Events go in (a proposal, a finished
//! write, a finished flush, a finished apply), effects come out (write this entry, apply that one).
//!
//! This first core runs a roster of one: the quorum is the replica itself, and an entry commits when it is as durable
//! here as its class asks. The interface is the one that several replicas need: entries are numbered, carry the view,
//! commit in order only, and nothing is answered before its apply.
//!
//! Reading order: [`entry`] (what a log holds), [`replica`] (the state machine), [`invariants`] (what always holds).
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
