//! Plans the journal's writes. While groups are being written, whatever arrives waits for the next: the slower the
//! disk, the larger the groups, and nobody waits when the disk is idle.
//!
//! The planner owns no file and does no I/O. Life of a group: [`GroupCommit::begin`] builds it, a driver writes its
//! block and its bodies and makes them durable as [`WriteGroup::sync`] says, then exactly one of
//! [`GroupCommit::complete`], [`GroupCommit::retry`] and [`GroupCommit::poison`] follows. Groups may finish in any
//! order; an op counts only when everything before it in the file does.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use laneway_wire::{LaneId, Op};

use super::{
    header::JOURNAL_HEADER_BYTES,
    merge::JournalMarks,
    record::{
        BatchPlace, Placing, RECORD_HEADER_BYTES, Record, RecordHeader, RecordKind, RecordPlace, SyncClass,
    },
};
use crate::{
    blocks::{self, BLOCK_BYTES, BlockPool},
    layout::JournalName,
};

/// Groups in flight. One is flushed while the next is written; more only shorten the groups.
const IN_FLIGHT_MAX: usize = 4;

/// Bytes that must wait before a group begins beside another. Less is written sooner by waiting for the one in flight:
/// a flush costs as much as writing this many bytes.
const OVERLAP_BYTES_MIN: u64 = 128 * 1024;

/// Bodies of one group that go to their places, so that the operations in flight are bounded.
const BODIES_MAX: usize = 64;

/// Sizes that bound the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Bytes of a journal file, a multiple of a block. Full, it is due for rotation.
    pub journal_bytes_max: u64,
    /// A group is closed once it brings this many bytes; one record may exceed it alone.
    pub group_bytes_max: u64,
    /// Admission ends ([`GroupCommit::has_room`]) once this many bytes wait.
    pub pending_bytes_max: u64,
}

impl Default for GroupLimits {
    /// 64 MiB, 8 MiB, 128 MiB: a group takes some milliseconds on the slowest disk in use, and a full queue a second.
    fn default() -> Self {
        GroupLimits { journal_bytes_max: 64 << 20, group_bytes_max: 8 << 20, pending_bytes_max: 128 << 20 }
    }
}

/// A fresh journal file, as the driver made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    /// The file.
    pub name: JournalName,
    /// Mark of its records.
    pub tag: u64,
}

/// How a group becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSync {
    /// Not at all: the kernel has it, which survives a killed process.
    None,
    /// The write of the block is durable by itself.
    WithWrite,
    /// A flush after the write, which also covers groups that were written without one.
    Flush,
}

/// One write: a run of whole blocks of the journal, and batches that go to their places.
#[derive(Clone, Debug)]
pub struct WriteGroup {
    /// The file.
    pub journal: JournalName,
    /// Where the group starts, a multiple of a block.
    pub position: u64,
    /// What to write there: aligned memory, whole blocks. Empty when only a flush is due.
    pub block: Bytes,
    /// What to write elsewhere. Always durable before the group is.
    pub bodies: Vec<(BatchPlace, Bytes)>,
    /// Records in the group.
    pub records: u32,
    /// How it becomes durable.
    pub sync: GroupSync,
    number: u64,
}

/// What finished groups, or a rotation, moved forward: per lane the highest op, in lane order. Both are cumulative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Ops that now survive a killed process.
    pub written: Vec<(LaneId, Op)>,
    /// Ops that now survive a power loss.
    pub synced: Vec<(LaneId, Op)>,
}

/// The journal cannot be written any more; see [`crate::StorageError::Poisoned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal is poisoned by an earlier failure")]
pub struct Poisoned;

/// The planner of one shard's journal.
#[derive(Debug)]
pub struct GroupCommit {
    limits: GroupLimits,
    file: FileState,
    pending: VecDeque<Record>,
    /// Bytes that the pending records bring.
    pending_bytes: u64,
    /// The highest op pushed of each lane.
    pushed: BTreeMap<LaneId, Op>,
    /// Ops written and not yet flushed.
    unsynced: BTreeMap<LaneId, Op>,
    flush_requested: bool,
    attest_requested: bool,
    in_flight: VecDeque<InFlight>,
    /// Groups whose write failed for want of space and is to be tried again.
    waiting: VecDeque<WriteGroup>,
    next_number: u64,
    is_poisoned: bool,
    pool: BlockPool,
    marks: JournalMarks,
    retired: Vec<JournalMarks>,
    checkpoints: BTreeMap<LaneId, Op>,
}

/// The file that is being written.
#[derive(Debug)]
struct FileState {
    place: JournalPlace,
    /// Where the next group starts.
    position: u64,
    /// Every write below has finished.
    written: u64,
    /// Everything below is on stable storage.
    flushed: u64,
    /// Checksum of the last record's header.
    chain: u64,
    /// Where the last group with an op ends, once it is written.
    ops_end: u64,
    /// What the last written record says of `written`.
    attested: u64,
}

impl FileState {
    fn new(place: JournalPlace) -> FileState {
        FileState {
            place,
            position: JOURNAL_HEADER_BYTES,
            written: JOURNAL_HEADER_BYTES,
            flushed: JOURNAL_HEADER_BYTES,
            chain: place.tag,
            ops_end: JOURNAL_HEADER_BYTES,
            attested: JOURNAL_HEADER_BYTES,
        }
    }
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    end: u64,
    sync: GroupSync,
    lanes: BTreeMap<LaneId, Op>,
    /// Earlier ops that this group's flush covers.
    covers: BTreeMap<LaneId, Op>,
    /// What its records say of `written`.
    attests: u64,
    is_done: bool,
}

impl GroupCommit {
    /// A planner for a fresh file.
    pub fn new(place: JournalPlace, limits: GroupLimits) -> GroupCommit {
        GroupCommit {
            limits,
            file: FileState::new(place),
            pending: VecDeque::new(),
            pending_bytes: 0,
            pushed: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            flush_requested: false,
            attest_requested: false,
            in_flight: VecDeque::new(),
            waiting: VecDeque::new(),
            next_number: 1,
            is_poisoned: false,
            pool: BlockPool::default(),
            marks: JournalMarks::new(place.name),
            retired: Vec::new(),
            checkpoints: BTreeMap::new(),
        }
    }

    /// Whether an op with this many body bytes may still be admitted. Asked before an op gets its number; an op that
    /// has one is always taken.
    pub fn has_room(&self, body_bytes: u64) -> bool {
        !self.is_poisoned && self.pending_bytes.saturating_add(body_bytes) <= self.limits.pending_bytes_max
    }

    /// Takes an op that the lane has numbered.
    ///
    /// # Panics
    /// When the ops of a lane do not follow each other.
    pub fn push(&mut self, record: Record) -> Result<(), Poisoned> {
        if self.is_poisoned {
            return Err(Poisoned);
        }
        if let Some(last) = self.pushed.insert(record.lane, record.op) {
            assert_eq!(record.op, last.next(), "lane {}: ops must follow each other", record.lane);
        }
        self.pending_bytes += record.written_bytes();
        self.pending.push_back(record);
        Ok(())
    }

    /// Asks the next group to flush, even if no op in it needs that; it covers everything written before. For the flush
    /// interval of replicated ops, and for a clean shutdown (until [`GroupCommit::is_idle`] and nothing is unsynced).
    pub fn request_flush(&mut self) {
        self.flush_requested = !self.unsynced.is_empty() || !self.pending.is_empty();
    }

    /// Whether some op survives only a killed process so far.
    pub fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// Whether nothing in the file says yet that the last group had arrived. The next group will; when none comes, see
    /// [`GroupCommit::request_attest`].
    pub fn needs_attest(&self) -> bool {
        self.is_idle() && self.file.attested < self.file.ops_end
    }

    /// Asks for a group that says how far the file is written and flushed, so that damage of the last group is not
    /// taken for a torn write.
    pub fn request_attest(&mut self) {
        self.attest_requested = self.needs_attest();
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.in_flight.is_empty()
    }

    /// Whether a group is in flight.
    pub fn is_writing(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether the journal can take nothing any more.
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    /// The next write, or nothing when enough is in flight or nothing waits.
    pub fn begin(&mut self) -> Option<WriteGroup> {
        if let Some(group) = self.waiting.pop_front() {
            return Some(group);
        }
        if self.is_poisoned || !self.may_begin() {
            return None;
        }
        let flush_requested = std::mem::take(&mut self.flush_requested);
        let attest_requested = std::mem::take(&mut self.attest_requested);
        if self.pending.is_empty() && !flush_requested && !attest_requested {
            return None;
        }
        let records = self.take_records();
        let persisted = flush_requested
            || attest_requested
            || records.iter().any(|record| record.class == SyncClass::Persisted);
        let mark = (records.is_empty() && attest_requested).then_some(RecordKind::Attest);
        Some(self.build(records, mark, persisted))
    }

    /// The last group of the file: says that nothing follows, and flushes everything. To be given to the driver's
    /// rotation.
    ///
    /// # Panics
    /// When a group is in flight.
    pub fn close(&mut self) -> WriteGroup {
        assert!(self.in_flight.is_empty(), "rotation while a group is in flight");
        let group = self.build(Vec::new(), Some(RecordKind::End), true);
        // It moves no op forward by itself: `rotated` says that it is done.
        let closing = self.in_flight.pop_back().expect("it was just begun");
        self.unsynced.extend(closing.covers);
        group
    }

    /// The group is written, and durable as it asked for.
    ///
    /// # Panics
    /// When the group is not in flight.
    pub fn complete(&mut self, group: WriteGroup) -> Progress {
        let in_flight = self.in_flight.iter_mut().find(|in_flight| in_flight.number == group.number);
        in_flight.expect("a group completes once, after it began").is_done = true;
        self.pool.give(group.block);
        let mut written = BTreeMap::new();
        let mut synced = BTreeMap::new();
        while self.in_flight.front().is_some_and(|first| first.is_done) {
            let done = self.in_flight.pop_front().expect("the front was just looked at");
            self.file.written = done.end;
            self.file.attested = done.attests;
            for (lane, op) in &done.lanes {
                self.marks.note(*lane, *op);
                self.file.ops_end = done.end;
            }
            match done.sync {
                GroupSync::None => self.unsynced.extend(&done.lanes),
                GroupSync::WithWrite | GroupSync::Flush => {
                    self.file.flushed = done.end;
                    synced.extend(&done.covers);
                    synced.extend(&done.lanes);
                }
            }
            written.extend(done.lanes);
        }
        Progress { written: written.into_iter().collect(), synced: synced.into_iter().collect() }
    }

    /// The write failed for want of space before anything of it counted. The group keeps its place: bytes that reached
    /// the disk are overwritten by the same bytes.
    pub fn retry(&mut self, group: WriteGroup) {
        self.waiting.push_back(group);
    }

    /// A write or flush failed in a way that leaves the file's state unknown. Nothing more is planned. What waited or
    /// was in flight may or may not be there after a restart.
    pub fn poison(&mut self) {
        self.is_poisoned = true;
        self.pending.clear();
        self.pending_bytes = 0;
    }

    /// Whether the file is full. Groups may still be begun: the file then grows beyond its bound.
    pub fn rotation_due(&self) -> bool {
        let next: u64 = self.pending.front().map_or(0, Record::stored_bytes);
        // The last block is for the record that ends the file.
        let end = blocks::block_after(self.file.position + next) + BLOCK_BYTES;
        end > self.limits.journal_bytes_max && self.file.position > JOURNAL_HEADER_BYTES
    }

    /// Bytes in the current file.
    pub fn journal_bytes(&self) -> u64 {
        self.file.position
    }

    /// The driver wrote the group of [`GroupCommit::close`] and went on in a new file: everything written is synced.
    ///
    /// # Panics
    /// When a group is in flight.
    pub fn rotated(&mut self, place: JournalPlace) -> Progress {
        assert!(self.in_flight.is_empty(), "rotation while a group is in flight");
        assert!(place.name.sequence > self.file.place.name.sequence, "journal sequence went back");
        self.retired.push(std::mem::replace(&mut self.marks, JournalMarks::new(place.name)));
        self.file = FileState::new(place);
        let synced = std::mem::take(&mut self.unsynced).into_iter().collect();
        Progress { written: Vec::new(), synced }
    }

    /// A checkpoint of the lane is durable.
    pub fn checkpointed(&mut self, lane: LaneId, op: Op) {
        let covered = self.checkpoints.entry(lane).or_default();
        *covered = op.max(*covered);
    }

    /// Takes the older files that no lane needs any more, oldest first.
    pub fn take_deletable(&mut self) -> Vec<JournalName> {
        let covered = |marks: &mut JournalMarks| marks.covered_by(&self.checkpoints);
        self.retired.extract_if(.., covered).map(|marks| marks.journal).collect()
    }

    fn may_begin(&self) -> bool {
        let Some(last) = self.in_flight.back() else { return true };
        // A flush of the whole file covers what had finished when it began, and only with nothing beside it is that
        // easy to say.
        last.sync != GroupSync::Flush
            && !self.needs_flush_group()
            && self.in_flight.len() < IN_FLIGHT_MAX
            && self.pending_bytes >= OVERLAP_BYTES_MIN
    }

    /// Whether a durable group now would have to flush what earlier groups wrote without.
    fn needs_flush_group(&self) -> bool {
        !self.unsynced.is_empty() || self.in_flight.iter().any(|group| group.sync == GroupSync::None)
    }

    fn take_records(&mut self) -> Vec<Record> {
        let room = self.limits.journal_bytes_max.saturating_sub(self.file.position + BLOCK_BYTES);
        // A file that could not be rotated in time grows: small groups would not help it.
        let room = if room == 0 { u64::MAX } else { room };
        let (mut records, mut written, mut stored, mut bodies) = (Vec::new(), 0, 0, 0);
        while let Some(record) = self.pending.front() {
            written += record.written_bytes();
            stored += record.stored_bytes();
            bodies += usize::from(record.placing.is_direct());
            let fits = written <= self.limits.group_bytes_max
                && blocks::block_after(stored) <= room
                && bodies <= BODIES_MAX;
            if !fits && !records.is_empty() {
                break;
            }
            records.extend(self.pending.pop_front());
        }
        self.pending_bytes -= records.iter().map(Record::written_bytes).sum::<u64>();
        records
    }

    fn build(&mut self, records: Vec<Record>, mark: Option<RecordKind>, persisted: bool) -> WriteGroup {
        let sync = match persisted {
            false => GroupSync::None,
            true if self.needs_flush_group() || (records.is_empty() && mark.is_none()) => GroupSync::Flush,
            true => GroupSync::WithWrite,
        };
        let stored: u64 = records.iter().map(Record::stored_bytes).sum();
        let count = records.len() as u32 + u32::from(mark.is_some());
        let room = stored as usize + RECORD_HEADER_BYTES + BLOCK_BYTES as usize;
        let mut block = if count > 0 { self.pool.take(room) } else { BytesMut::new() };
        let position = self.file.position;
        let mut lanes = BTreeMap::new();
        let mut bodies = Vec::new();
        for record in records {
            let header = RecordHeader::of(&record, self.at(position + block.len() as u64));
            self.put(&mut block, header, &record.prefix, record.inline_batch());
            lanes.insert(record.lane, record.op);
            if let Placing::Direct(place) = record.placing {
                bodies.push((place, record.batch));
            }
        }
        if let Some(kind) = mark {
            let header = RecordHeader::mark(kind, self.at(position));
            self.put(&mut block, header, &[], &[]);
        }
        blocks::pad(&mut block);
        self.file.position += block.len() as u64;
        let number = self.next_number;
        self.next_number += 1;
        let attests = if count > 0 { self.file.written } else { self.file.attested };
        self.in_flight.push_back(InFlight {
            number,
            end: self.file.position,
            sync,
            lanes,
            covers: if sync == GroupSync::Flush {
                std::mem::take(&mut self.unsynced)
            } else {
                BTreeMap::new()
            },
            attests,
            is_done: false,
        });
        let journal = self.file.place.name;
        WriteGroup { journal, position, block: block.freeze(), bodies, records: count, sync, number }
    }

    /// What a record that starts at a position says.
    fn at(&self, position: u64) -> RecordPlace {
        let FileState { flushed, written, chain, place, .. } = self.file;
        RecordPlace { tag: place.tag, position, flushed, written, chain }
    }

    fn put(&mut self, block: &mut BytesMut, header: RecordHeader, prefix: &[u8], batch: &[u8]) {
        block.put_slice(&header.encode());
        block.put_slice(prefix);
        block.put_slice(batch);
        let padding = header.stored_bytes() as usize - RECORD_HEADER_BYTES - prefix.len() - batch.len();
        block.put_bytes(0, padding);
        self.file.chain = header.checksum;
    }
}

#[cfg(test)]
#[path = "group_commit_tests.rs"]
mod tests;
