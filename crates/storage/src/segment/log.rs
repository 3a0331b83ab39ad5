//! The stored part of one partition: its segments in order. Plain data; appends are planned here, done by a driver,
//! and then noted here.

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway_wire::{
    Micros, Offset, PartitionKey,
    batch::{BATCH_HEADER_BYTES, BatchHeader},
};

use super::{
    catalogue::{self, SegmentMeta},
    index::{IndexEntry, SegmentIndex},
    read::{ReadPlan, ReadTarget},
};
use crate::{error::Damage, layout::SegmentFile};

/// One partition's segments.
#[derive(Clone, Debug)]
pub struct PartitionLog {
    partition: PartitionKey,
    segment_size: u64,
    segments: Vec<SegmentMeta>,
    /// The offset after the last stored message.
    next: Offset,
    /// By base offset. An index may be missing, and then a read builds it.
    indexes: BTreeMap<Offset, SegmentIndex>,
}

/// Batches for one file, back to back.
#[derive(Clone, Debug)]
pub struct AppendStep {
    /// The segment.
    pub file: SegmentFile,
    /// Where the first batch goes; 0 means that the file is new.
    pub position: u64,
    /// The batches.
    pub batches: Vec<Bytes>,
    /// Their bytes.
    pub bytes: u64,
    /// The segment as it is after the step.
    after: SegmentMeta,
    entries: Vec<(IndexEntry, u64)>,
}

/// What to write where, in order.
#[derive(Clone, Debug, Default)]
pub struct AppendPlan {
    /// One step a file.
    pub steps: Vec<AppendStep>,
}

impl PartitionLog {
    /// A partition without stored batches. `segment_size`: bytes at which a segment is sealed.
    pub fn new(partition: PartitionKey, segment_size: u64) -> PartitionLog {
        PartitionLog {
            partition,
            segment_size,
            segments: Vec::new(),
            next: Offset(0),
            indexes: BTreeMap::new(),
        }
    }

    /// Reads the list that [`PartitionLog::encode`] wrote, and gives what follows it.
    pub fn decode(
        partition: PartitionKey,
        segment_size: u64,
        bytes: &[u8],
    ) -> Result<(PartitionLog, &[u8]), Damage> {
        let (next, segments, rest) = catalogue::decode(bytes)?;
        Ok((PartitionLog { partition, segment_size, segments, next, indexes: BTreeMap::new() }, rest))
    }

    /// Appends the segment list to a checkpoint's payload. Source: `docs/storage.md`, segment list.
    pub fn encode(&self, out: &mut Vec<u8>) {
        catalogue::encode(self.next, &self.segments, out);
    }

    /// The partition.
    pub fn partition(&self) -> PartitionKey {
        self.partition
    }

    /// Changes the size at which later segments are sealed.
    pub fn set_segment_size(&mut self, segment_size: u64) {
        self.segment_size = segment_size;
    }

    /// The offset at which the next batch to be stored must start.
    pub fn next_offset(&self) -> Offset {
        self.next
    }

    /// The lowest stored offset; equal to [`PartitionLog::next_offset`] when nothing is stored.
    pub fn start_offset(&self) -> Offset {
        self.segments.first().map_or(self.next, |first| first.base)
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> &[SegmentMeta] {
        &self.segments
    }

    /// The files of all segments, oldest first.
    pub fn files(&self) -> impl Iterator<Item = SegmentFile> + '_ {
        self.segments.iter().map(|segment| self.file(segment.base))
    }

    /// Plans where batches go. They must be stamped, whole, and follow [`PartitionLog::next_offset`]. A segment is
    /// sealed after the batch with which it reaches the segment size, so it can be longer by one batch.
    pub fn plan_append(&self, batches: impl IntoIterator<Item = Bytes>) -> Result<AppendPlan, Damage> {
        let mut steps: Vec<AppendStep> = Vec::new();
        let mut open = self.segments.last().copied().filter(|last| !last.sealed);
        let mut next = self.next;
        for batch in batches {
            let header = whole_batch(&batch, next)?;
            let segment = open.get_or_insert(SegmentMeta {
                base: next,
                next,
                bytes: 0,
                max_timestamp: header.base_timestamp,
                sealed: false,
            });
            let file = self.file(segment.base);
            if steps.last().is_none_or(|step| step.file != file) {
                steps.push(AppendStep::new(file, *segment));
            }
            next = end_of(&header).ok_or(Damage::Offsets)?;
            let entry = IndexEntry {
                offset: header.base_offset,
                timestamp: header.base_timestamp,
                position: segment.bytes,
            };
            segment.next = next;
            segment.bytes += header.batch_length;
            segment.max_timestamp = segment.max_timestamp.max(header.base_timestamp);
            segment.sealed = segment.bytes >= self.segment_size;
            steps.last_mut().expect("pushed above").add(batch, entry, *segment);
            open = Some(*segment).filter(|segment| !segment.sealed);
        }
        Ok(AppendPlan { steps })
    }

    /// Notes that a plan was written. Steps of segments that retention removed meanwhile change nothing but the end.
    ///
    /// # Panics
    /// When the plan is not the next one.
    pub fn appended(&mut self, plan: &AppendPlan) {
        for step in &plan.steps {
            self.appended_step(step);
        }
    }

    fn appended_step(&mut self, step: &AppendStep) {
        let base = step.file.base;
        if step.position == 0 {
            assert_eq!(base, self.next, "partition {}: append out of order", self.partition);
            self.segments.push(step.after);
            self.indexes.insert(base, SegmentIndex::default());
        } else {
            let last = self.segments.last_mut().expect("an open segment is never removed");
            assert_eq!((last.base, last.bytes), (base, step.position), "append out of order");
            *last = step.after;
        }
        self.next = step.after.next;
        if let Some(index) = self.indexes.get_mut(&base) {
            for (entry, bytes) in &step.entries {
                index.add(*entry, *bytes);
            }
        }
    }

    /// Where to read from an offset on: up to `bytes_max` bytes of whole batches of one segment, but at least one
    /// batch. `None` when the offset is not stored (below the start, or at the end).
    pub fn plan_read(&self, offset: Offset, bytes_max: u64) -> Option<ReadPlan> {
        let at = self.segments.partition_point(|segment| segment.next <= offset);
        let segment = self.segments.get(at).filter(|segment| segment.base <= offset)?;
        let start = self.index(segment).map(|index| index.floor_offset(offset));
        Some(self.read_plan(segment, start, ReadTarget::Offset(offset), bytes_max))
    }

    /// Where to read from the first batch whose append time is at or after `timestamp`. `None` when every stored batch
    /// is older.
    pub fn plan_read_timestamp(&self, timestamp: Micros, bytes_max: u64) -> Option<ReadPlan> {
        let at = self.segments.partition_point(|segment| segment.max_timestamp < timestamp);
        let segment = self.segments.get(at)?;
        let start = self.index(segment).map(|index| index.floor_timestamp(timestamp));
        Some(self.read_plan(segment, start, ReadTarget::Timestamp(timestamp), bytes_max))
    }

    /// Keeps an index that a read built, unless its segment has gone or grown meanwhile.
    pub fn install_index(&mut self, file: SegmentFile, index: SegmentIndex) {
        let current = self.segments.iter().find(|segment| segment.base == file.base);
        if file.partition == self.partition && current.is_some_and(|now| now.bytes == index.covered()) {
            self.indexes.insert(file.base, index);
        }
    }

    /// Drops all indexes to save memory; reads build them again.
    pub fn forget_indexes(&mut self) {
        self.indexes.clear();
    }

    /// Memory that the indexes take, in bytes.
    pub fn index_memory_bytes(&self) -> usize {
        self.indexes.values().map(SegmentIndex::memory_bytes).sum()
    }

    /// Removes the sealed segments that end at or below `start`, and gives their files. A file may be unlinked once a
    /// checkpoint without it is durable.
    pub fn advance_start(&mut self, start: Offset) -> Vec<SegmentFile> {
        let gone = self.segments.iter().take_while(|segment| segment.sealed && segment.next <= start).count();
        let files: Vec<SegmentFile> = self
            .segments
            .drain(..gone)
            .map(|gone| SegmentFile { partition: self.partition, base: gone.base })
            .collect();
        for file in &files {
            self.indexes.remove(&file.base);
        }
        files
    }

    fn index(&self, segment: &SegmentMeta) -> Option<&SegmentIndex> {
        self.indexes.get(&segment.base).filter(|index| index.covered() == segment.bytes)
    }

    fn read_plan(
        &self,
        segment: &SegmentMeta,
        start: Option<Option<IndexEntry>>,
        target: ReadTarget,
        bytes_max: u64,
    ) -> ReadPlan {
        ReadPlan {
            file: self.file(segment.base),
            segment: *segment,
            start: start.flatten(),
            target,
            bytes_max,
        }
    }

    fn file(&self, base: Offset) -> SegmentFile {
        SegmentFile { partition: self.partition, base }
    }
}

impl AppendStep {
    fn new(file: SegmentFile, before: SegmentMeta) -> AppendStep {
        let position = before.bytes;
        AppendStep { file, position, batches: Vec::new(), bytes: 0, after: before, entries: Vec::new() }
    }

    fn add(&mut self, batch: Bytes, entry: IndexEntry, after: SegmentMeta) {
        self.entries.push((entry, batch.len() as u64));
        self.bytes += batch.len() as u64;
        self.batches.push(batch);
        self.after = after;
    }
}

/// The offset after the last message of a stored batch. `None` for an offset that cannot be.
pub(super) fn end_of(header: &BatchHeader) -> Option<Offset> {
    header.base_offset.0.checked_add(u64::from(header.message_count)).map(Offset)
}

fn whole_batch(batch: &Bytes, expected: Offset) -> Result<BatchHeader, Damage> {
    let block = batch.first_chunk::<BATCH_HEADER_BYTES>().ok_or(Damage::Short)?;
    let header = BatchHeader::parse(block).map_err(|_| Damage::HeaderChecksum)?;
    if header.batch_length != batch.len() as u64 || header.message_count == 0 {
        return Err(Damage::Length);
    }
    if header.base_offset != expected {
        return Err(Damage::Offsets);
    }
    Ok(header)
}
