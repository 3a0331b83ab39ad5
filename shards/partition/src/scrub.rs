//! Verification of sealed segments in the background, so that damage of the medium is found while a copy may still be
//! somewhere, and not by the reader who needs the bytes.
//!
//! One task of each shard reads one chunk after the other at a bounded rate, checks every batch as a read does, and
//! says what it found. It changes nothing: what is damaged is answered with an error to whoever reads it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use laneway_storage::segment::SegmentIndex;
use laneway_storage::{SegmentFile, StorageError};
use laneway_wire::{LaneId, Offset, PartitionKey};

use crate::owner::ScrubPlace;
use crate::shard::{Shard, yield_now};

/// Bytes that one step reads.
const CHUNK_BYTES: u64 = 1024 * 1024;

/// Damaged segments that are remembered. More are counted and logged all the same.
const DAMAGED_MAX: usize = 1024;

/// How sealed segments are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubSettings {
    /// Time from the end of a pass to the next one.
    pub interval: Duration,
    /// Bytes that one shard reads in a second, at least 1; none when nothing is verified.
    pub bytes_per_second: Option<u64>,
}

/// What a shard's verification has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Passes over all sealed segments.
    pub passes: u64,
    /// Segments that were verified.
    pub segments: u64,
    /// Bytes that were verified.
    pub bytes: u64,
    /// Segments that were found damaged or unreadable, each counted once.
    pub damaged: u64,
}

/// Messages that cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// The lowest offset that may be affected.
    pub first: Offset,
    /// The last offset of the segment.
    pub last: Offset,
}

/// Verification of one shard's segments.
#[derive(Debug, Default)]
pub struct Scrub {
    counts: Cell<ScrubCounts>,
    damaged: RefCell<BTreeMap<SegmentFile, DamagedRange>>,
}

impl Scrub {
    /// The totals since the shard started.
    pub fn counts(&self) -> ScrubCounts {
        self.counts.get()
    }

    /// Segments with damage that was found and is still there.
    pub fn damaged(&self) -> Vec<(SegmentFile, DamagedRange)> {
        self.damaged.borrow().iter().map(|(file, range)| (*file, *range)).collect()
    }

    fn count(&self, change: impl FnOnce(&mut ScrubCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Remembers damage. Says whether it is new.
    fn note(&self, file: SegmentFile, range: DamagedRange) -> bool {
        let mut damaged = self.damaged.borrow_mut();
        let is_new = !damaged.contains_key(&file);
        if damaged.len() < DAMAGED_MAX {
            damaged.insert(file, range);
        }
        if is_new {
            self.count(|counts| counts.damaged += 1);
        }
        is_new
    }
}

impl Shard {
    /// Verifies sealed segments until the shard's thread ends.
    pub async fn serve_scrub(self: Rc<Self>) {
        let ScrubSettings { interval, bytes_per_second } = self.settings.scrub;
        let Some(bytes_per_second) = bytes_per_second else { return };
        loop {
            compio::time::sleep(interval).await;
            if self.is_stopping() {
                return;
            }
            self.scrub_pass(bytes_per_second.max(1)).await;
        }
    }

    async fn scrub_pass(&self, bytes_per_second: u64) {
        let mut place = ScrubPlace::default();
        loop {
            if self.is_stopping() {
                return;
            }
            let step = self.owner.borrow().next_sealed(&mut place);
            match step {
                Some(Some((lane, file, range))) => {
                    self.scrub_segment(lane, file, range, bytes_per_second).await;
                }
                // Many partitions have no sealed segment: the others of the shard come first.
                Some(None) => yield_now().await,
                None => break,
            }
        }
        // What was removed or mended meanwhile is no damage any more.
        self.scrub.count(|counts| counts.passes += 1);
        let owner = self.owner.borrow();
        self.scrub.damaged.borrow_mut().retain(|file, _| owner.holds_segment(*file));
    }

    async fn scrub_segment(
        &self,
        lane: LaneId,
        file: SegmentFile,
        range: DamagedRange,
        bytes_per_second: u64,
    ) {
        let mut next = range.first;
        let mut index: Option<SegmentIndex> = None;
        while next <= range.last {
            let plan = self.owner.borrow().plan_scrub(lane, file, next, CHUNK_BYTES);
            // It was removed meanwhile, or the shard stops.
            let Some(mut plan) = plan.filter(|_| !self.is_stopping()) else { return };
            if let (None, Some(index)) = (plan.start, &index) {
                plan = plan.with_index(index);
            }
            let segment_bytes = plan.segment.bytes;
            match self.segments.read(plan).await {
                Ok(chunk) => {
                    let mut bytes: u64 = chunk.batches.iter().map(|batch| batch.bytes.len() as u64).sum();
                    if chunk.index.is_some() {
                        // Finding the batches read the whole segment, which counts, too.
                        bytes += segment_bytes;
                        index = chunk.index;
                    }
                    let Some(last) = chunk.batches.last() else { return };
                    next = Offset(last.header.base_offset.0 + u64::from(last.header.message_count));
                    drop(chunk.batches);
                    self.scrub.count(|counts| counts.bytes += bytes);
                    let pause_us = bytes.saturating_mul(1_000_000) / bytes_per_second;
                    compio::time::sleep(Duration::from_micros(pause_us)).await;
                }
                // Nothing is wrong with the data.
                Err(error) if error.is_exhausted() || !self.owner.borrow().holds_segment(file) => return,
                Err(error) => {
                    let first = match &error {
                        StorageError::BatchDamaged { offset, .. } => *offset,
                        _ => next,
                    };
                    return self.found_damage(file, DamagedRange { first, ..range }, &error);
                }
            }
        }
        self.scrub.count(|counts| counts.segments += 1);
        self.scrub.damaged.borrow_mut().remove(&file);
    }

    fn found_damage(&self, file: SegmentFile, range: DamagedRange, error: &StorageError) {
        if self.scrub.note(file, range) {
            let partition = self.partition_name(file.partition);
            let (first, last) = (range.first.0, range.last.0);
            tracing::error!(%partition, first, last, %error, "a sealed segment is damaged: these offsets cannot be read");
        }
    }

    /// A partition as people know it.
    pub(crate) fn partition_name(&self, key: PartitionKey) -> String {
        let place = self.owner.borrow().place_of(key);
        let metadata = self.metadata();
        let topic = place.and_then(|(stream, topic)| metadata.topic(stream.0, topic.0).ok());
        match topic {
            Some((stream, topic)) => format!("{}/{}/{}", stream.name, topic.name, key.partition),
            None => key.to_string(),
        }
    }
}
