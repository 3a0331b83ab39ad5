//! Plans the journal's writes. While one group is being written, whatever arrives waits for the next: the slower the
//! disk, the larger the groups, and nobody waits when the disk is idle.
//!
//! The planner owns no file and does no I/O. Life of a group: [`GroupCommit::begin`] builds it, a driver writes its
//! buffers at its position and flushes if it asks for that, then exactly one of [`GroupCommit::complete`],
//! [`GroupCommit::retry`] and [`GroupCommit::poison`] follows.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use laneway_wire::{LaneId, Op};

use super::{
    header::JOURNAL_HEADER_BYTES,
    merge::JournalMarks,
    record::{RECORD_ALIGN, RECORD_HEADER_BYTES, Record, RecordHeader, SyncClass},
};
use crate::layout::JournalName;

/// Parts of bodies up to this many bytes are copied next to their header: cheaper than one more entry in the vector.
const COPY_BYTES_MAX: usize = 1024;

/// Entries of one vectored write that the kernel takes (IOV_MAX).
pub const BUFFERS_MAX: usize = 1024;

/// Sizes that bound the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// A journal file is due for rotation once it reaches this many bytes.
    pub journal_bytes_max: u64,
    /// A group is closed once it reaches this many bytes; one record may exceed it alone.
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

/// One write: the buffers go to the file back to back, starting at the position.
#[derive(Clone, Debug)]
pub struct WriteGroup {
    /// The file.
    pub journal: JournalName,
    /// Where the group starts.
    pub position: u64,
    /// What to write, at most [`BUFFERS_MAX`] buffers. Empty when only a flush is due.
    pub buffers: Vec<Bytes>,
    /// Sum of the buffers' lengths.
    pub bytes: u64,
    /// Records in the group.
    pub records: u32,
    /// Whether a flush must follow the write before the group is complete.
    pub flush: bool,
}

/// What a finished group, or a rotation, moved forward: per lane the highest op, in lane order. Both are cumulative.
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
    place: JournalPlace,
    /// Where the next group starts.
    position: u64,
    /// Everything below is on stable storage.
    flushed: u64,
    pending: VecDeque<Record>,
    pending_bytes: u64,
    /// The highest op pushed of each lane.
    pushed: BTreeMap<LaneId, Op>,
    /// Ops written and not yet flushed.
    unsynced: BTreeMap<LaneId, Op>,
    flush_requested: bool,
    stage: Stage,
    marks: JournalMarks,
    retired: Vec<JournalMarks>,
    checkpoints: BTreeMap<LaneId, Op>,
}

#[derive(Debug)]
enum Stage {
    Idle,
    InFlight(InFlight),
    /// A group whose write failed for want of space and is to be written again.
    Waiting(InFlight, WriteGroup),
    Poisoned,
}

#[derive(Debug)]
struct InFlight {
    position: u64,
    end: u64,
    flush: bool,
    lanes: BTreeMap<LaneId, Op>,
}

impl GroupCommit {
    /// A planner for a fresh file.
    pub fn new(place: JournalPlace, limits: GroupLimits) -> GroupCommit {
        GroupCommit {
            limits,
            place,
            position: JOURNAL_HEADER_BYTES,
            flushed: JOURNAL_HEADER_BYTES,
            pending: VecDeque::new(),
            pending_bytes: 0,
            pushed: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            flush_requested: false,
            stage: Stage::Idle,
            marks: JournalMarks::new(place.name),
            retired: Vec::new(),
            checkpoints: BTreeMap::new(),
        }
    }

    /// Whether an op with this many body bytes may still be admitted. Asked before an op gets its number; an op that
    /// has one is always taken.
    pub fn has_room(&self, body_bytes: u64) -> bool {
        !self.is_poisoned() && self.pending_bytes.saturating_add(body_bytes) <= self.limits.pending_bytes_max
    }

    /// Takes an op that the lane has numbered.
    ///
    /// # Panics
    /// When the ops of a lane do not follow each other.
    pub fn push(&mut self, record: Record) -> Result<(), Poisoned> {
        if self.is_poisoned() {
            return Err(Poisoned);
        }
        if let Some(last) = self.pushed.insert(record.lane, record.op) {
            assert_eq!(record.op, last.next(), "lane {}: ops must follow each other", record.lane);
        }
        self.pending_bytes += record.stored_bytes();
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

    /// Whether nothing waits and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && matches!(self.stage, Stage::Idle)
    }

    /// Whether the journal can take nothing any more.
    pub fn is_poisoned(&self) -> bool {
        matches!(self.stage, Stage::Poisoned)
    }

    /// The next write, or nothing when one is in flight or nothing waits.
    pub fn begin(&mut self) -> Option<WriteGroup> {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Waiting(in_flight, group) => {
                self.stage = Stage::InFlight(in_flight);
                return Some(group);
            }
            busy => {
                self.stage = busy;
                return None;
            }
        }
        if self.pending.is_empty() && !self.flush_requested {
            return None;
        }
        let mut builder = GroupBuilder::new(self.place, self.position, self.flushed);
        while self.pending.front().is_some_and(|record| builder.has_room(record, self.limits.group_bytes_max))
        {
            let record = self.pending.pop_front().expect("the front was just looked at");
            self.pending_bytes -= record.stored_bytes();
            builder.add(record);
        }
        let flush = builder.persisted || std::mem::take(&mut self.flush_requested);
        let (group, lanes) = builder.finish(flush);
        let end = group.position + group.bytes;
        self.stage = Stage::InFlight(InFlight { position: group.position, end, flush, lanes });
        Some(group)
    }

    /// The group is written, and flushed if it asked for that.
    ///
    /// # Panics
    /// When the group is not the one in flight.
    pub fn complete(&mut self, group: WriteGroup) -> Progress {
        let in_flight = self.take_in_flight(&group);
        self.position = in_flight.end;
        for (lane, op) in &in_flight.lanes {
            self.marks.note(*lane, *op);
            self.unsynced.insert(*lane, *op);
        }
        let synced = if in_flight.flush { self.all_synced() } else { Vec::new() };
        Progress { written: in_flight.lanes.into_iter().collect(), synced }
    }

    /// The write failed for want of space before any flush. The group stays first in line and keeps its place: bytes
    /// that reached the file are overwritten by the same bytes.
    pub fn retry(&mut self, group: WriteGroup) {
        let in_flight = self.take_in_flight(&group);
        self.stage = Stage::Waiting(in_flight, group);
    }

    /// A write or flush failed in a way that leaves the file's state unknown. Nothing more is planned. What waited or
    /// was in flight may or may not be there after a restart.
    pub fn poison(&mut self) {
        self.stage = Stage::Poisoned;
        self.pending.clear();
        self.pending_bytes = 0;
    }

    /// Whether the file has grown past its bound and nothing is in flight. Groups may still be begun: rotation is due,
    /// not urgent.
    pub fn rotation_due(&self) -> bool {
        self.position >= self.limits.journal_bytes_max && matches!(self.stage, Stage::Idle)
    }

    /// Bytes in the current file.
    pub fn journal_bytes(&self) -> u64 {
        self.position
    }

    /// The driver flushed the current file and made a new one: everything written is now synced.
    ///
    /// # Panics
    /// When a group is in flight.
    pub fn rotated(&mut self, place: JournalPlace) -> Progress {
        assert!(matches!(self.stage, Stage::Idle), "rotation while a group is in flight");
        assert!(place.name.sequence > self.place.name.sequence, "journal sequence went back");
        let synced = self.all_synced();
        self.retired.push(std::mem::replace(&mut self.marks, JournalMarks::new(place.name)));
        self.place = place;
        self.position = JOURNAL_HEADER_BYTES;
        self.flushed = JOURNAL_HEADER_BYTES;
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

    fn take_in_flight(&mut self, group: &WriteGroup) -> InFlight {
        let Stage::InFlight(in_flight) = std::mem::replace(&mut self.stage, Stage::Idle) else {
            panic!("no group is in flight");
        };
        assert_eq!(in_flight.position, group.position, "another group is in flight");
        in_flight
    }

    fn all_synced(&mut self) -> Vec<(LaneId, Op)> {
        self.flushed = self.position;
        std::mem::take(&mut self.unsynced).into_iter().collect()
    }
}

/// Lays records out: headers, paddings and small bodies share buffers, large parts ride as they are.
struct GroupBuilder {
    place: JournalPlace,
    start: u64,
    position: u64,
    flushed: u64,
    buffers: Vec<Bytes>,
    scratch: BytesMut,
    lanes: BTreeMap<LaneId, Op>,
    records: u32,
    persisted: bool,
}

impl GroupBuilder {
    fn new(place: JournalPlace, position: u64, flushed: u64) -> GroupBuilder {
        GroupBuilder {
            place,
            start: position,
            position,
            flushed,
            buffers: Vec::new(),
            scratch: BytesMut::new(),
            lanes: BTreeMap::new(),
            records: 0,
            persisted: false,
        }
    }

    fn has_room(&self, record: &Record, bytes_max: u64) -> bool {
        // A record adds at most its header, its two parts, and the piece of scratch between and behind them.
        let buffers = self.buffers.len() + 5 <= BUFFERS_MAX;
        self.records == 0 || (buffers && self.position - self.start + record.stored_bytes() <= bytes_max)
    }

    fn add(&mut self, record: Record) {
        let header = RecordHeader::of(&record, self.place.tag, self.position, self.flushed);
        self.scratch.reserve(RECORD_HEADER_BYTES);
        self.scratch.put_slice(&header.encode());
        let body = record.prefix.len() + record.batch.len();
        self.add_part(record.prefix);
        self.add_part(record.batch);
        let padding = header.stored_bytes() as usize - RECORD_HEADER_BYTES - body;
        debug_assert!(padding < RECORD_ALIGN as usize);
        self.scratch.put_bytes(0, padding);
        self.position += header.stored_bytes();
        self.lanes.insert(record.lane, record.op);
        self.records += 1;
        self.persisted |= record.class == SyncClass::Persisted;
    }

    fn add_part(&mut self, part: Bytes) {
        if part.len() <= COPY_BYTES_MAX {
            self.scratch.put_slice(&part);
        } else {
            self.flush_scratch();
            self.buffers.push(part);
        }
    }

    fn flush_scratch(&mut self) {
        if !self.scratch.is_empty() {
            self.buffers.push(self.scratch.split().freeze());
        }
    }

    fn finish(mut self, flush: bool) -> (WriteGroup, BTreeMap<LaneId, Op>) {
        self.flush_scratch();
        let bytes = self.position - self.start;
        debug_assert_eq!(bytes, self.buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>());
        assert!(self.buffers.len() <= BUFFERS_MAX, "a group outgrew one vectored write");
        let group = WriteGroup {
            journal: self.place.name,
            position: self.start,
            buffers: self.buffers,
            bytes,
            records: self.records,
            flush,
        };
        (group, self.lanes)
    }
}

#[cfg(test)]
#[path = "group_commit_tests.rs"]
mod tests;
