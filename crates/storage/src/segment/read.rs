//! Reading batches out of a segment: which bytes to ask for, and what they must look like. Every batch that leaves
//! here was checked in full: layout, offsets, the checksum of every message and of the batch.

use bytes::Bytes;
use laneway_wire::{
    Micros, Offset, PartitionKey,
    batch::{BatchHeader, RECORD_BYTES_MAX, verify_stored},
};

use super::{
    catalogue::SegmentMeta,
    index::{INDEX_STRIDE, IndexEntry, SegmentIndex, parse_header, wanted_at},
    log::end_of,
};
use crate::{blocks::skip_padding, error::Damage, layout::SegmentFile};

/// Longest batch that a read believes in: the largest frame a client can send, with room for a record at both limits.
pub(super) const BATCH_BYTES_MAX: u64 = 128 * 1024 * 1024;

const _: () = assert!(RECORD_BYTES_MAX as u64 <= BATCH_BYTES_MAX, "every legal batch can be read");

/// The first batch that a read wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadTarget {
    /// The batch that holds this offset.
    Offset(Offset),
    /// The first batch with this append time or a later one.
    Timestamp(Micros),
}

/// A bounded read of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// The file.
    pub file: SegmentFile,
    /// The segment as it was when the read was planned; nothing behind its recorded length is looked at.
    pub segment: SegmentMeta,
    /// Where to start, if the index is there. Without it, the driver builds the index first.
    pub start: Option<IndexEntry>,
    /// The first batch wanted.
    pub target: ReadTarget,
    /// Bytes of batches at which the read stops; the first batch comes whatever its length.
    pub bytes_max: u64,
}

impl ReadPlan {
    /// The plan with a start that a freshly built index gives.
    pub fn with_index(mut self, index: &SegmentIndex) -> ReadPlan {
        self.start = match self.target {
            ReadTarget::Offset(offset) => index.floor_offset(offset),
            ReadTarget::Timestamp(timestamp) => index.floor_timestamp(timestamp),
        };
        self
    }
}

/// A batch as it lies in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Its header.
    pub header: BatchHeader,
    /// Header and frames: the bytes of the wire.
    pub bytes: Bytes,
}

/// What a read found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadChunk {
    /// Whole batches in offset order, the first holds the target. They share one buffer.
    pub batches: Vec<StoredBatch>,
    /// An index built on the way, for [`super::PartitionLog::install_index`].
    pub index: Option<SegmentIndex>,
}

/// Performs a plan step by step: ask [`ReadCursor::request`], read, [`ReadCursor::feed`], until there is no request.
#[derive(Debug)]
pub struct ReadCursor {
    partition: PartitionKey,
    segment: SegmentMeta,
    target: ReadTarget,
    bytes_max: u64,
    position: u64,
    expected: Offset,
    /// Length of the next request.
    wanted: u64,
    found: Vec<StoredBatch>,
    found_bytes: u64,
    done: bool,
}

impl ReadCursor {
    /// Starts at the plan's index entry, or at the front of the segment.
    pub fn new(plan: &ReadPlan) -> ReadCursor {
        let (position, expected) =
            plan.start.map_or((0, plan.segment.base), |entry| (entry.position, entry.offset));
        ReadCursor {
            partition: plan.file.partition,
            segment: plan.segment,
            target: plan.target,
            bytes_max: plan.bytes_max,
            position,
            expected,
            // The stride is what the index may start early.
            wanted: plan.bytes_max.saturating_add(INDEX_STRIDE).min(BATCH_BYTES_MAX),
            found: Vec::new(),
            found_bytes: 0,
            done: false,
        }
    }

    /// Position and length of the next piece to read.
    pub fn request(&self) -> Option<(u64, usize)> {
        let left = self.segment.bytes.saturating_sub(self.position);
        (!self.done && left > 0).then_some((self.position, self.wanted.min(left) as usize))
    }

    /// Takes exactly what was requested. Errors give the position, the lowest offset that is affected, and what is
    /// wrong there. Damage behind a sound batch ends the read before it, and is the error of the next read.
    pub fn feed(&mut self, piece: &Bytes) -> Result<(), (u64, Offset, Damage)> {
        let start = self.position;
        while !self.done && self.position < self.segment.bytes {
            let at = usize::try_from(self.position - start).unwrap_or(usize::MAX);
            match self.step(piece, at) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) if !self.found.is_empty() => self.done = true,
                Err(damage) => return Err((self.position, self.expected, damage)),
            }
        }
        Ok(())
    }

    /// Whole batches from the target on.
    pub fn finish(self) -> Vec<StoredBatch> {
        self.found
    }

    /// Looks at the batch at the current position; false when another piece is needed.
    fn step(&mut self, piece: &Bytes, at: usize) -> Result<bool, Damage> {
        let rest = piece.get(at..).unwrap_or_default();
        let left = self.segment.bytes - self.position;
        if let Some(next) = skip_padding(self.position, rest) {
            self.position = next;
            return Ok(true);
        }
        if rest.len() < wanted_at(self.position) && left > rest.len() as u64 {
            return Ok(self.ask_again(self.wanted));
        }
        let header = parse_header(rest, self.expected, left)?;
        if header.partition_id != u64::from(self.partition.partition.0) {
            return Err(Damage::Misplaced);
        }
        let next = end_of(&header).filter(|next| *next <= self.segment.next).ok_or(Damage::Offsets)?;
        if self.wants(&header, next) {
            let length = header.batch_length as usize;
            if rest.len() < length {
                return Ok(self.ask_again(header.batch_length));
            }
            verify_stored(&rest[..length]).map_err(|_| Damage::BodyChecksum)?;
            self.found.push(StoredBatch { header, bytes: piece.slice(at..at + length) });
            self.found_bytes += header.batch_length;
            self.done = self.found_bytes >= self.bytes_max;
        }
        self.position += header.batch_length;
        self.expected = next;
        Ok(true)
    }

    /// Whether the read has reached its target with this batch.
    fn wants(&self, header: &BatchHeader, next: Offset) -> bool {
        match self.target {
            ReadTarget::Offset(offset) => next > offset,
            ReadTarget::Timestamp(timestamp) => !self.found.is_empty() || header.base_timestamp >= timestamp,
        }
    }

    /// Ends the piece. What was found is enough if there is anything, else the next piece starts at this batch.
    fn ask_again(&mut self, length: u64) -> bool {
        self.done = !self.found.is_empty();
        self.wanted = self.wanted.max(length);
        false
    }
}
