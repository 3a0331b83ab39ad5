//! What a shard asked of its disk.

use std::cell::Cell;

/// Counters of one shard, shared by its journal writer and its segment store.
#[derive(Debug, Default)]
pub struct StorageCounters {
    counts: Cell<StorageCounts>,
}

/// Totals since the shard started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageCounts {
    /// Write operations, continuations of short writes included.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Write operations that are durable when they are done, among the others.
    pub durable_writes: u64,
    /// Bytes of batches that had to move because their memory was not aligned.
    pub moved_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Flushes of files and directories.
    pub flushes: u64,
    /// Files opened.
    pub opens: u64,
    /// Files removed.
    pub removals: u64,
}

impl StorageCounters {
    /// The totals now.
    pub fn get(&self) -> StorageCounts {
        self.counts.get()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut StorageCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }
}
