//! Recent batches of one partition in memory, as shared immutable buffers.

use std::collections::VecDeque;

use bytes::Bytes;
use laneway_wire::{Micros, Offset};

use crate::record::Head;

/// One batch as it lies in the log and goes out on the wire: header and frames. Its checks were made when it was
/// taken in, so nothing here verifies it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Offset of its first message.
    pub base_offset: Offset,
    /// Its messages; at least 1.
    pub message_count: u32,
    /// Its append time.
    pub base_timestamp: Micros,
    /// The batch header and the frames behind it.
    pub bytes: Bytes,
}

impl StoredBatch {
    /// A batch by what its header says; `None` when the header is no header of a stored batch that fills `bytes`.
    /// Frames and checksums are not looked at.
    pub fn parse(bytes: Bytes) -> Option<Self> {
        let head = Head::parse(bytes.first_chunk()?)?;
        (head.length == bytes.len() as u64).then_some(Self {
            base_offset: head.base_offset,
            message_count: head.message_count,
            base_timestamp: head.base_timestamp,
            bytes,
        })
    }

    /// Offset of its last message.
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0 + u64::from(self.message_count) - 1)
    }

    /// Offset after its last message.
    pub fn end_offset(&self) -> Offset {
        Offset(self.base_offset.0 + u64::from(self.message_count))
    }
}

/// The newest batches of a partition, contiguous and in order. Holds what no segment holds yet, and may keep some of
/// what one does hold, as a cache. Lives in its partition on the owner shard.
#[derive(Clone, Debug, Default)]
pub struct MemoryTail {
    batches: VecDeque<StoredBatch>,
    bytes: u64,
}

impl MemoryTail {
    /// Appends the next batch.
    pub fn push(&mut self, batch: StoredBatch) {
        assert!(batch.message_count > 0, "an empty batch has no place in a log");
        if let Some(last) = self.batches.back() {
            assert!(last.end_offset() == batch.base_offset, "the tail would have a gap");
            debug_assert!(last.base_timestamp <= batch.base_timestamp, "append times went back");
        }
        self.bytes += batch.bytes.len() as u64;
        self.batches.push_back(batch);
    }

    /// Drops batches from the front while `drop` agrees.
    pub fn drop_while(&mut self, mut drop: impl FnMut(&StoredBatch) -> bool) {
        while let Some(front) = self.batches.front()
            && drop(front)
        {
            self.bytes -= front.bytes.len() as u64;
            self.batches.pop_front();
        }
    }

    /// Offset of the oldest message here.
    pub fn start(&self) -> Option<Offset> {
        self.batches.front().map(|batch| batch.base_offset)
    }

    /// Bytes of all batches, framing included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of batches.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether nothing is here.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The oldest batch.
    pub fn front(&self) -> Option<&StoredBatch> {
        self.batches.front()
    }

    /// The batches from the one that holds `offset` on. Empty when the offset lies above; the whole tail when it lies
    /// below.
    pub fn from_offset(&self, offset: Offset) -> impl Iterator<Item = &StoredBatch> {
        let first = self.batches.partition_point(|batch| batch.end_offset() <= offset);
        self.batches.range(first..)
    }

    /// The first batch with an append time at or after `timestamp`.
    pub fn at_timestamp(&self, timestamp: Micros) -> Option<&StoredBatch> {
        let first = self.batches.partition_point(|batch| batch.base_timestamp < timestamp);
        self.batches.get(first)
    }

    /// All batches, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &StoredBatch> {
        self.batches.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base: u64, count: u32, timestamp: u64) -> StoredBatch {
        StoredBatch {
            base_offset: Offset(base),
            message_count: count,
            base_timestamp: Micros(timestamp),
            bytes: Bytes::from(vec![0; 10]),
        }
    }

    fn tail() -> MemoryTail {
        let mut tail = MemoryTail::default();
        for (base, count, timestamp) in [(5, 3, 100), (8, 1, 100), (9, 4, 200)] {
            tail.push(batch(base, count, timestamp));
        }
        tail
    }

    fn check_offset(offset: u64, expected: &[u64]) {
        let got: Vec<u64> = tail().from_offset(Offset(offset)).map(|batch| batch.base_offset.0).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn offset_finds_the_batch_that_holds_it() {
        check_offset(0, &[5, 8, 9]);
        check_offset(7, &[5, 8, 9]);
        check_offset(8, &[8, 9]);
        check_offset(12, &[9]);
        check_offset(13, &[]);
    }

    #[test]
    fn timestamp_finds_the_first_batch_not_before_it() {
        let at = |timestamp| tail().at_timestamp(Micros(timestamp)).map(|batch| batch.base_offset.0);
        assert_eq!([at(0), at(100), at(101), at(200), at(201)], [Some(5), Some(5), Some(9), Some(9), None]);
    }

    #[test]
    fn dropped_batches_leave_the_byte_count() {
        let mut tail = tail();
        tail.drop_while(|batch| batch.base_offset < Offset(9));
        assert_eq!((tail.start(), tail.bytes(), tail.len()), (Some(Offset(9)), 10, 1));
    }

    #[test]
    #[should_panic(expected = "gap")]
    fn gap_is_a_bug() {
        tail().push(batch(14, 1, 300));
    }
}
