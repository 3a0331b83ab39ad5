//! What a lane's log holds.

use bytes::Bytes;
use laneway_wire::{Micros, Op};

use crate::header::Header;

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
    /// The checksum that the batch carries, verified over its bytes by whoever hands the body to the core: the origin
    /// of a request, the link that received an entry, the scan that read one. 0 without a batch. It stands for the
    /// batch in the identity of the entry.
    pub batch_checksum: u64,
}

impl EntryBody {
    /// An operation without a batch.
    pub fn operation(prefix: impl Into<Bytes>) -> Self {
        Self { prefix: prefix.into(), batch: Bytes::new(), batch_checksum: 0 }
    }

    /// Bytes of both parts.
    pub fn bytes(&self) -> usize {
        self.prefix.len() + self.batch.len()
    }
}

/// One numbered entry of a lane's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place, its name and what names its body.
    pub header: Header,
    /// What it does.
    pub body: EntryBody,
}

impl Entry {
    /// Its number.
    pub fn op(&self) -> Op {
        self.header.op
    }

    /// When the primary took it, always after the entry before it.
    pub fn timestamp(&self) -> Micros {
        self.header.timestamp
    }
}
