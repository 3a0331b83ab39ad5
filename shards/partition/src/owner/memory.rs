//! Where batches go, and how long they stay in memory.

use laneway_storage::{Placing, Route};
use laneway_vsr::Entry;
use laneway_wire::{LaneId, Offset, PartitionKey};

use super::{OwnedLane, Owner};
use crate::core::LaneOp;

/// Batches from this size on are written to their segments at once; smaller ones ride in the journal. Measured, see
/// `docs/storage.md`: from here on a write of its own costs less than writing the bytes twice.
pub const DIRECT_BYTES_MIN: usize = 64 * 1024;

/// Bytes beyond the cache that may wait in memory for a checkpoint. A batch stays while one before it waits.
const UNSTORED_BYTES_MAX: u64 = 128 << 20;

/// Memory of batches, looked at now and then: looking costs a walk over the partitions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Batches that stay in memory although segments hold them, bytes.
    keep: u64,
    /// Bytes that came since the last look.
    grown: u64,
    /// More waits for a checkpoint than should.
    wants_checkpoint: bool,
}

impl Memory {
    pub(super) fn grow(&mut self, bytes: u64) {
        self.grown += bytes;
    }
}

impl OwnedLane {
    /// Gives the batch of an entry its place. Entries come in the order of the lane.
    pub(super) fn place(&mut self, lane: LaneId, entry: &Entry) -> Placing {
        let batch = &entry.body.batch;
        if batch.is_empty() {
            return Placing::Unplaced;
        }
        let log = LaneOp::appends_to(&entry.body.prefix).and_then(|key| self.logs.get_mut(&key));
        let Some(log) = log else { return Placing::Unplaced };
        let is_direct = batch.len() >= DIRECT_BYTES_MIN;
        let route = if is_direct { Route::Direct } else { Route::Later };
        match log.place(batch, route) {
            Ok(place) if is_direct => Placing::Direct(place),
            Ok(place) => Placing::Inline(place),
            // This process stamped the batch: it cannot be wrong unless we are.
            Err(damage) => panic!("op {} of lane {lane}: the batch is {damage}", entry.header.op),
        }
    }

    /// Segments hold what was written to them directly, as soon as it is committed and nothing before it waits.
    pub(super) fn note_direct(&mut self, key: PartitionKey) {
        let Some(partition) = self.state.get_mut(key) else { return };
        let (Some(head), Some(log)) = (partition.head(), self.logs.get_mut(&key)) else { return };
        let end = log.note_direct(Offset(head.0 + 1));
        if end > partition.disk_end() {
            partition.flushed(Offset(end.0 - 1));
            let start = partition.retained_start();
            self.remove_below(key, start);
        }
    }
}

impl Owner {
    /// Keeps about `bytes` of batches in memory that segments hold.
    pub fn keep_in_memory(&mut self, bytes: u64) {
        self.memory.keep = bytes;
    }

    /// Whether a checkpoint should free memory. Taken with the call.
    pub fn take_wants_checkpoint(&mut self) -> bool {
        std::mem::take(&mut self.memory.wants_checkpoint)
    }

    /// Frees memory once the lanes have grown by a part of what they may keep.
    pub(super) fn trim_memory(&mut self) {
        let keep = self.memory.keep;
        if self.memory.grown < (keep / 8).max(1 << 20) {
            return;
        }
        self.memory.grown = 0;
        self.release_memory(keep);
        let unstored: u64 = self
            .lanes
            .values()
            .flat_map(|owned| owned.state.iter())
            .map(|partition| partition.unflushed_bytes())
            .sum();
        self.memory.wants_checkpoint = unstored > UNSTORED_BYTES_MAX;
    }
}
