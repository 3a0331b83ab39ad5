//! What a lane's log holds.

use bytes::Bytes;
use laneway_wire::{LaneId, Micros, Op};

/// Election number of a lane. Grows with every change of the primary; a lone replica stays in view 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View(pub u32);

/// What must hold before an entry counts as acknowledged by a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The write was taken by the kernel: survives a killed process, not a power loss.
    Replicated,
    /// The write is on stable storage: survives a power loss.
    Persisted,
}

/// Bytes of an entry. Both parts are opaque to the core, and neither is ever copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryBody {
    /// The encoded operation.
    pub prefix: Bytes,
    /// The message batch that the operation appends; empty for every other operation.
    pub batch: Bytes,
}

impl EntryBody {
    /// An operation without a batch.
    pub fn operation(prefix: impl Into<Bytes>) -> Self {
        Self { prefix: prefix.into(), batch: Bytes::new() }
    }

    /// Bytes of both parts.
    pub fn bytes(&self) -> usize {
        self.prefix.len() + self.batch.len()
    }
}

/// One numbered entry of a lane's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The lane that orders it.
    pub lane: LaneId,
    /// Its number, from 1, without gaps.
    pub op: Op,
    /// The view in which it was proposed.
    pub view: View,
    /// When the primary took it, never before the entry before it.
    pub timestamp: Micros,
    /// What an acknowledgement of it means.
    pub durability: Durability,
    /// What it does.
    pub body: EntryBody,
}
