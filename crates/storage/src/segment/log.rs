//! The stored part of one partition: its segments in order. Plain data; where a batch goes is decided here, a driver
//! writes it there, and then it is noted here.
//!
//! A batch gets its place when it is ordered ([`PartitionLog::place`]), in the order of its partition. A large one is
//! written there at once and starts a block; small ones follow each other and are written together later
//! ([`PartitionLog::plan_append`]). What is noted is always a gap-free front of what was placed.

use std::collections::{BTreeMap, VecDeque};

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
use crate::{blocks::block_after, error::Damage, journal::BatchPlace, layout::SegmentFile};

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
    /// Batches with a place that are not stored yet, oldest first.
    placed: VecDeque<PlacedBatch>,
}

/// Fewer bytes than these at the end of a block stay empty: the first bytes of a batch may be zeros, and a reader must see
/// its length to tell it from padding.
const REST_BYTES_MIN: u64 = 64;

static PADDING: [u8; REST_BYTES_MIN as usize] = [0; REST_BYTES_MIN as usize];

/// How a batch reaches its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// With others, when a checkpoint wants it there.
    Later,
    /// By itself, before it is acknowledged.
    Direct,
}

/// A batch that has a place and is not stored yet.
#[derive(Clone, Copy, Debug)]
struct PlacedBatch {
    entry: IndexEntry,
    bytes: u64,
    route: Route,
    /// The segment with this batch as its last one.
    after: SegmentMeta,
}

impl PlacedBatch {
    fn end(&self) -> u64 {
        self.entry.position + self.bytes
    }
}

/// Batches for one file, back to back.
#[derive(Clone, Debug)]
pub struct AppendStep {
    /// The segment.
    pub file: SegmentFile,
    /// Where the first batch goes.
    pub position: u64,
    /// The batches, with the padding between them.
    pub batches: Vec<Bytes>,
    /// Bytes of all that.
    pub bytes: u64,
}

/// What to write where, in order.
#[derive(Clone, Debug, Default)]
pub struct AppendPlan {
    /// One step for each run of batches that follow each other in a file.
    pub steps: Vec<AppendStep>,
    /// Every batch of the plan, also those that are at their places already.
    batches: Vec<PlacedBatch>,
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
            placed: VecDeque::new(),
        }
    }

    /// Reads the list that [`PartitionLog::encode`] wrote, and gives what follows it.
    pub fn decode(
        partition: PartitionKey,
        segment_size: u64,
        bytes: &[u8],
    ) -> Result<(PartitionLog, &[u8]), Damage> {
        let (next, segments, rest) = catalogue::decode(bytes)?;
        let log = PartitionLog {
            partition,
            segment_size,
            segments,
            next,
            indexes: BTreeMap::new(),
            placed: VecDeque::new(),
        };
        Ok((log, rest))
    }

    /// Appends the segment list to a checkpoint's payload. Source: `docs/storage.md`, segment list.
    pub fn encode(&self, out: &mut Vec<u8>) {
        catalogue::encode(self.next, &self.segments, out);
    }

    /// Appends the segment list as it will be when every batch below an offset is at its place. A batch must begin or
    /// end there.
    pub fn encode_at(&self, end: Offset, out: &mut Vec<u8>) {
        let mut ahead = PartitionLog {
            partition: self.partition,
            segment_size: self.segment_size,
            segments: self.segments.clone(),
            next: self.next,
            indexes: BTreeMap::new(),
            placed: VecDeque::new(),
        };
        for placed in self.placed.iter().take_while(|placed| placed.after.next <= end) {
            ahead.store(placed);
        }
        assert_eq!(ahead.next, end, "partition {}: a batch has no place", self.partition);
        ahead.encode(out);
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
        self.segments.iter().map(|segment| segment.batch_bytes).sum()
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> &[SegmentMeta] {
        &self.segments
    }

    /// The files of all segments, oldest first.
    pub fn files(&self) -> impl Iterator<Item = SegmentFile> + '_ {
        self.segments.iter().map(|segment| self.file(segment.base))
    }

    /// Gives the next batch its place: behind the batch that was placed before it. A segment is sealed after the batch
    /// with which its batches reach the segment size, so it can be longer by one batch and by padding.
    ///
    /// Errors: a batch that does not begin where the one before it ended.
    pub fn place(&mut self, batch: &[u8], route: Route) -> Result<BatchPlace, Damage> {
        let placed = self.next_place(self.placed.back(), batch, route)?;
        self.placed.push_back(placed);
        Ok(self.place_of(&placed))
    }

    /// Takes a batch with the place that it was given in an earlier run.
    ///
    /// Errors: a place that no run can have given after what is there.
    pub fn place_again(&mut self, batch: &[u8], place: BatchPlace, route: Route) -> Result<(), Damage> {
        let last = self.last(self.placed.back());
        let mut placed = self.next_place(self.placed.back(), batch, route)?;
        let follows = match last.filter(|last| last.base == place.file.base) {
            // Where the segment size was another one, the segment may go on beyond it, or have ended before it.
            Some(last) => place.position >= last.bytes,
            None => place.file.base == placed.entry.offset && place.position == 0,
        };
        if !follows || place.file.partition != self.partition {
            return Err(Damage::Misplaced);
        }
        let begun = last.filter(|last| last.base == place.file.base);
        placed.entry.position = place.position;
        placed.after.base = place.file.base;
        placed.after.bytes = place.position.checked_add(placed.bytes).ok_or(Damage::Length)?;
        placed.after.max_timestamp =
            begun.map_or(placed.entry.timestamp, |last| last.max_timestamp.max(placed.entry.timestamp));
        placed.after.batch_bytes = begun.map_or(0, |last| last.batch_bytes) + placed.bytes;
        placed.after.sealed = placed.after.batch_bytes >= self.segment_size;
        self.placed.push_back(placed);
        Ok(())
    }

    /// Forgets the places of batches from an offset on, which were never committed.
    pub fn discard_placed(&mut self, from: Offset) {
        while self.placed.back().is_some_and(|placed| placed.entry.offset >= from) {
            self.placed.pop_back();
        }
    }

    /// Notes the batches that were written directly and have no batch before them that still has to be written, up to
    /// an offset: what is committed. Gives the offset after the last stored message.
    pub fn note_direct(&mut self, committed: Offset) -> Offset {
        while let Some(first) = self.placed.front()
            && first.route == Route::Direct
            && first.after.next <= committed
        {
            let first = self.placed.pop_front().expect("the front was just looked at");
            self.store(&first);
        }
        self.next
    }

    /// Plans the writes that bring batches to their places. They must be stamped, whole, and follow
    /// [`PartitionLog::next_offset`]; a batch without a place gets one. Those that were written directly are part of the
    /// plan and cause no write.
    pub fn plan_append(&self, batches: impl IntoIterator<Item = Bytes>) -> Result<AppendPlan, Damage> {
        let mut plan = AppendPlan::default();
        let mut next = self.next;
        let mut places = self.placed.iter();
        for batch in batches {
            let placed = match places.next() {
                Some(placed) => *placed,
                None => self.next_place(plan.batches.last(), &batch, Route::Later)?,
            };
            if placed.entry.offset != next || placed.bytes != batch.len() as u64 {
                return Err(Damage::Offsets);
            }
            next = placed.after.next;
            if placed.route == Route::Later {
                plan.add(self.place_of(&placed), batch);
            }
            plan.batches.push(placed);
        }
        Ok(plan)
    }

    /// Notes that a plan was written.
    ///
    /// # Panics
    /// When the plan is not the next one.
    pub fn appended(&mut self, plan: &AppendPlan) {
        for batch in &plan.batches {
            if batch.after.next <= self.next {
                // Noted meanwhile: it had been written directly.
                continue;
            }
            self.placed.pop_front();
            self.store(batch);
        }
    }

    fn store(&mut self, batch: &PlacedBatch) {
        assert_eq!(batch.entry.offset, self.next, "partition {}: append out of order", self.partition);
        let base = batch.after.base;
        match self.segments.last_mut() {
            Some(last) if last.base == base => {
                assert!(last.bytes <= batch.entry.position, "append out of order");
                *last = batch.after;
            }
            last => {
                // Whatever size the last one was meant to have: it takes no more.
                if let Some(last) = last {
                    last.sealed = true;
                }
                self.segments.push(batch.after);
                self.indexes.insert(base, SegmentIndex::default());
            }
        }
        self.next = batch.after.next;
        if let Some(index) = self.indexes.get_mut(&base) {
            index.add(batch.entry, batch.bytes);
        }
    }

    /// The segment that the batch after `before` may go on in.
    fn last(&self, before: Option<&PlacedBatch>) -> Option<SegmentMeta> {
        before.map(|before| before.after).or(self.segments.last().copied())
    }

    fn next_place(
        &self,
        before: Option<&PlacedBatch>,
        batch: &[u8],
        route: Route,
    ) -> Result<PlacedBatch, Damage> {
        let last = self.last(before);
        let expected = before.map_or(self.next, |before| before.after.next);
        let header = batch_header(batch, expected)?;
        let next = end_of(&header).ok_or(Damage::Offsets)?;
        let timestamp = header.base_timestamp;
        let open = last.filter(|last| !last.sealed);
        // A block has one writer at a time: a direct batch begins one, and what follows it begins the next.
        let is_apart = route == Route::Direct || before.is_some_and(|before| before.route == Route::Direct);
        let position = match open {
            Some(open) if is_apart || block_after(open.bytes) - open.bytes < REST_BYTES_MIN => {
                block_after(open.bytes)
            }
            Some(open) => open.bytes,
            None => 0,
        };
        let bytes = header.batch_length;
        let end = position.checked_add(bytes).ok_or(Damage::Length)?;
        let batch_bytes = open.map_or(0, |open| open.batch_bytes) + bytes;
        let after = SegmentMeta {
            base: open.map_or(expected, |open| open.base),
            next,
            bytes: end,
            batch_bytes,
            max_timestamp: open.map_or(timestamp, |open| open.max_timestamp.max(timestamp)),
            sealed: batch_bytes >= self.segment_size,
        };
        let entry = IndexEntry { offset: header.base_offset, timestamp, position };
        let placed = PlacedBatch { entry, bytes, route, after };
        debug_assert_eq!(placed.end(), after.bytes);
        Ok(placed)
    }

    fn place_of(&self, placed: &PlacedBatch) -> BatchPlace {
        BatchPlace { file: self.file(placed.after.base), position: placed.entry.position }
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

impl AppendPlan {
    fn add(&mut self, place: BatchPlace, batch: Bytes) {
        // The end of a block that stays empty is written with what stands around it.
        let gap = |step: &AppendStep| {
            let gap = place.position.checked_sub(step.position + step.bytes)?;
            (step.file == place.file && gap < REST_BYTES_MIN).then_some(gap as usize)
        };
        if let Some(gap) = self.steps.last().and_then(gap) {
            let step = self.steps.last_mut().expect("it was just looked at");
            step.bytes += gap as u64;
            step.batches.extend((gap > 0).then(|| Bytes::from_static(&PADDING[..gap])));
        } else {
            let BatchPlace { file, position } = place;
            self.steps.push(AppendStep { file, position, batches: Vec::new(), bytes: 0 });
        }
        let step = self.steps.last_mut().expect("pushed above");
        step.bytes += batch.len() as u64;
        step.batches.push(batch);
    }
}

/// The offset after the last message of a stored batch. `None` for an offset that cannot be.
pub(super) fn end_of(header: &BatchHeader) -> Option<Offset> {
    header.base_offset.0.checked_add(u64::from(header.message_count)).map(Offset)
}

/// The header of a batch that must start at an offset. `batch` may end behind its header.
fn batch_header(batch: &[u8], expected: Offset) -> Result<BatchHeader, Damage> {
    let block = batch.first_chunk::<BATCH_HEADER_BYTES>().ok_or(Damage::Short)?;
    let header = BatchHeader::parse(block).map_err(|_| Damage::HeaderChecksum)?;
    let fits = batch.len() == BATCH_HEADER_BYTES || header.batch_length == batch.len() as u64;
    if !fits || header.message_count == 0 {
        return Err(Damage::Length);
    }
    if header.base_offset != expected {
        return Err(Damage::Offsets);
    }
    Ok(header)
}
