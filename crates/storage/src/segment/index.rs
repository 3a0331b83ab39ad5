//! The sparse index of one segment: about one entry every 64 KiB, in memory only. It says where to start reading and
//! nothing more; what is read there is checked as if the index did not exist.

use bytes::Bytes;
use laneway_wire::{
    Micros, Offset,
    batch::{BATCH_HEADER_BYTES, BatchHeader},
};

use super::{log::end_of, read::BATCH_BYTES_MAX};
use crate::{
    blocks::{block_after, skip_padding},
    error::Damage,
};

/// Bytes between two entries: small enough that a read wastes little, large enough that a full segment of 1 GiB needs
/// under 400 KiB of index.
pub const INDEX_STRIDE: u64 = 64 * 1024;

/// Bytes of one request while an index is built.
const SCAN_BYTES: u64 = 256 * 1024;

/// One batch that the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its base offset.
    pub offset: Offset,
    /// Its append time.
    pub timestamp: Micros,
    /// Where it starts in the file.
    pub position: u64,
}

/// The index of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentIndex {
    entries: Vec<IndexEntry>,
    /// Bytes of the segment that the index knows.
    covered: u64,
}

impl SegmentIndex {
    /// Adds the batch that follows the last one.
    pub fn add(&mut self, batch: IndexEntry, bytes: u64) {
        debug_assert!(batch.position >= self.covered, "batches are added in order");
        if self.entries.last().is_none_or(|last| batch.position - last.position >= INDEX_STRIDE) {
            self.entries.push(batch);
        }
        self.covered = batch.position + bytes;
    }

    /// Bytes of the segment that the index knows.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// The last entry at or below an offset.
    pub fn floor_offset(&self, offset: Offset) -> Option<IndexEntry> {
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        self.entries.get(after.checked_sub(1)?).copied()
    }

    /// The last entry whose batches before it are all older than a time. Batches of one time may span entries, so the
    /// entry must itself be older.
    pub fn floor_timestamp(&self, timestamp: Micros) -> Option<IndexEntry> {
        let after = self.entries.partition_point(|entry| entry.timestamp < timestamp);
        self.entries.get(after.saturating_sub(1)).copied()
    }

    /// Memory that the entries take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<IndexEntry>()
    }
}

/// Builds an index by walking the batch headers of a segment. Ask [`IndexScan::request`], read, [`IndexScan::feed`],
/// until there is no request.
#[derive(Debug)]
pub struct IndexScan {
    index: SegmentIndex,
    expected: Offset,
    segment_bytes: u64,
}

impl IndexScan {
    /// Starts at the front of a segment with this base offset and recorded length.
    pub fn new(base: Offset, segment_bytes: u64) -> IndexScan {
        IndexScan { index: SegmentIndex::default(), expected: base, segment_bytes }
    }

    /// Position and length of the next piece to read.
    pub fn request(&self) -> Option<(u64, usize)> {
        let position = self.index.covered;
        let length = SCAN_BYTES.min(self.segment_bytes.saturating_sub(position));
        (length > 0).then_some((position, length as usize))
    }

    /// Takes exactly what was requested. Errors give the position and what is wrong there.
    pub fn feed(&mut self, piece: &Bytes) -> Result<(), (u64, Damage)> {
        let start = self.index.covered;
        let end = start + piece.len() as u64;
        // A header or a padded block that crosses the end of the piece starts the next piece; the first always fits.
        while self.index.covered < end {
            let position = self.index.covered;
            let rest = piece.get((position - start) as usize..).unwrap_or_default();
            if let Some(next) = skip_padding(position, rest) {
                self.index.covered = next;
                continue;
            }
            if rest.len() < wanted_at(position) && position > start && end < self.segment_bytes {
                return Ok(());
            }
            let header = parse_header(rest, self.expected, self.segment_bytes - position)
                .map_err(|damage| (position, damage))?;
            let entry = IndexEntry { offset: header.base_offset, timestamp: header.base_timestamp, position };
            self.index.add(entry, header.batch_length);
            self.expected = end_of(&header).ok_or((position, Damage::Offsets))?;
        }
        Ok(())
    }

    /// The offset at which the next batch must start.
    pub fn expected(&self) -> Offset {
        self.expected
    }

    /// The offset after the last batch, and the index.
    pub fn finish(self) -> (Offset, SegmentIndex) {
        (self.expected, self.index)
    }
}

/// Bytes that must be there to say what stands at a position: a batch header, or padding up to the next block.
pub(super) fn wanted_at(position: u64) -> usize {
    BATCH_HEADER_BYTES.max((block_after(position) - position) as usize)
}

/// A plausible batch header that starts `bytes`: whole, at the expected offset, and no longer than what is left of its
/// segment.
pub(super) fn parse_header(bytes: &[u8], expected: Offset, left: u64) -> Result<BatchHeader, Damage> {
    let block = bytes.first_chunk::<BATCH_HEADER_BYTES>().ok_or(Damage::Short)?;
    let header = BatchHeader::parse(block).map_err(|_| Damage::HeaderChecksum)?;
    if header.batch_length > left || header.batch_length > BATCH_BYTES_MAX || header.message_count == 0 {
        return Err(Damage::Length);
    }
    if header.base_offset != expected {
        return Err(Damage::Offsets);
    }
    Ok(header)
}
