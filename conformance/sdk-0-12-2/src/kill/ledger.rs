use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use super::Outcome;

/// What the broker told the clients, and what they asked for without an answer.
pub(crate) struct Ledger {
    partitions: Vec<Mutex<PartitionLedger>>,
    offsets: Mutex<OffsetLedger>,
    metadata: Mutex<MetadataLedger>,
}

/// One acknowledged batch: messages `first..first + count` of its producer at offsets from `base`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) base: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionLedger {
    pub(crate) acknowledged: Vec<Acknowledged>,
    /// Message numbers whose sends ended without a proof.
    pub(crate) uncertain: Vec<Range<u64>>,
    /// The next message number; everything from the last entry of the two lists to here is on its way.
    pub(crate) next: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OffsetLedger {
    /// Highest offset whose store was acknowledged. The stores ascend.
    pub(crate) acknowledged: Option<u64>,
    /// Highest offset that was ever sent.
    pub(crate) sent: Option<u64>,
    pub(crate) stores: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MetadataLedger {
    /// Streams whose creation was acknowledged, with their ids. One leaves when its deletion is sent.
    pub(crate) created: BTreeMap<String, u32>,
    /// Streams whose deletion was acknowledged.
    pub(crate) deleted: BTreeSet<String>,
    pub(crate) changes: u64,
}

/// Everything that was acknowledged at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Promises {
    pub(crate) partitions: Vec<PartitionLedger>,
    pub(crate) offsets: OffsetLedger,
    pub(crate) metadata: MetadataLedger,
}

impl Ledger {
    pub(crate) fn new(producers: u32) -> Self {
        Self {
            partitions: (0..producers).map(|_| Mutex::default()).collect(),
            offsets: Mutex::default(),
            metadata: Mutex::default(),
        }
    }

    pub(crate) fn partition(&self, partition: u32) -> MutexGuard<'_, PartitionLedger> {
        self.partitions[partition as usize].lock().expect("no holder panics")
    }

    pub(crate) fn offsets(&self) -> MutexGuard<'_, OffsetLedger> {
        self.offsets.lock().expect("no holder panics")
    }

    pub(crate) fn metadata(&self) -> MutexGuard<'_, MetadataLedger> {
        self.metadata.lock().expect("no holder panics")
    }

    pub(crate) fn promises(&self) -> Promises {
        Promises {
            partitions: (0..self.producers()).map(|partition| self.partition(partition).clone()).collect(),
            offsets: *self.offsets(),
            metadata: self.metadata().clone(),
        }
    }

    /// Acknowledgements so far: one number per producer, then offset stores, then metadata changes.
    pub(crate) fn progress(&self) -> Vec<u64> {
        let mut counts: Vec<u64> = (0..self.producers())
            .map(|partition| self.partition(partition).acknowledged.len() as u64)
            .collect();
        counts.push(self.offsets().stores);
        counts.push(self.metadata().changes);
        counts
    }

    pub(crate) fn count(&self, outcome: &mut Outcome) {
        for partition in 0..self.producers() {
            let ledger = self.partition(partition);
            outcome.acknowledged_batches += ledger.acknowledged.len() as u64;
            outcome.acknowledged_messages += ledger.acknowledged.iter().map(|batch| batch.count).sum::<u64>();
            outcome.uncertain_batches += ledger.uncertain.len() as u64;
        }
        outcome.offset_stores = self.offsets().stores;
        outcome.metadata_changes = self.metadata().changes;
    }

    fn producers(&self) -> u32 {
        self.partitions.len() as u32
    }
}
