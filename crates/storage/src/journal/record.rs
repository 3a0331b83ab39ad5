//! One record of a journal: an 80-byte header, the body in up to two parts, zeros up to the next multiple of 8.
//!
//! Every record proves three things by itself: that it is whole (two checksums), that it belongs here (the file's tag
//! and its own position), and how far the file was flushed when it was written. The last one tells a hole that a power
//! loss tore into unflushed bytes from damage to bytes that were on stable storage.

use bytes::Bytes;
use laneway_wire::{LaneId, Micros, Op};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::{
    error::Damage,
    fields::{put, u8_at, u16_at, u32_at, u64_at},
};

/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 80;

/// Records start at multiples of this.
pub const RECORD_ALIGN: u64 = 8;

/// Longest body in bytes: twice the largest frame a client can send, so that a batch with everything we add fits, and
/// a damaged length cannot ask for more.
pub const RECORD_BODY_BYTES_MAX: u64 = 128 * 1024 * 1024;

const MAGIC: u32 = u32::from_le_bytes(*b"LREC");

/// What an acknowledgement of an op promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncClass {
    /// The kernel has the write: survives a killed process, not a power loss.
    Replicated,
    /// The write is on stable storage: survives a power loss.
    Persisted,
}

/// What a record is. Others (placement of large bodies, cut suffixes) get their own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// One op of a lane, the body inline.
    Op,
}

/// One op on its way into the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The lane that ordered it.
    pub lane: LaneId,
    /// Its number in the lane.
    pub op: Op,
    /// The view in which it was proposed.
    pub view: u32,
    /// When the primary took it.
    pub timestamp: Micros,
    /// What its acknowledgement promises.
    pub class: SyncClass,
    /// First part of the body: the encoded operation.
    pub prefix: Bytes,
    /// Second part of the body: the message batch, or nothing.
    pub batch: Bytes,
}

impl Record {
    /// Bytes that the record takes in a file, padding included.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes((self.prefix.len() + self.batch.len()) as u64)
    }
}

/// The header of a record. Source: `docs/storage.md`, journal record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// What the record is.
    pub kind: RecordKind,
    /// See [`Record::class`].
    pub class: SyncClass,
    /// See [`Record::lane`].
    pub lane: LaneId,
    /// See [`Record::view`].
    pub view: u32,
    /// See [`Record::op`].
    pub op: Op,
    /// See [`Record::timestamp`].
    pub timestamp: Micros,
    /// Bytes of both parts of the body.
    pub body_bytes: u32,
    /// Bytes of the first part.
    pub prefix_bytes: u32,
    /// XxHash3-64 of the body.
    pub body_checksum: u64,
    /// Mark of the file, see [`super::JournalHeader::tag`].
    pub tag: u64,
    /// Where this record starts in its file.
    pub position: u64,
    /// Everything of this file below this position was on stable storage when the record was written.
    pub flushed: u64,
}

impl RecordHeader {
    /// The header of `record` at a place of a file.
    ///
    /// # Panics
    /// When the body is longer than [`RECORD_BODY_BYTES_MAX`]; whoever orders ops bounds their size.
    pub fn of(record: &Record, tag: u64, position: u64, flushed: u64) -> RecordHeader {
        let body_bytes = (record.prefix.len() + record.batch.len()) as u64;
        assert!(body_bytes <= RECORD_BODY_BYTES_MAX, "op {} of lane {} is too long", record.op, record.lane);
        assert!(position.is_multiple_of(RECORD_ALIGN) && flushed <= position);
        let mut checksum = Xxh3Default::new();
        checksum.update(&record.prefix);
        checksum.update(&record.batch);
        RecordHeader {
            kind: RecordKind::Op,
            class: record.class,
            lane: record.lane,
            view: record.view,
            op: record.op,
            timestamp: record.timestamp,
            body_bytes: body_bytes as u32,
            prefix_bytes: record.prefix.len() as u32,
            body_checksum: checksum.digest(),
            tag,
            position,
            flushed,
        }
    }

    /// Bytes from this record to the next.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(u64::from(self.body_bytes))
    }

    /// The bytes of the header.
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut block = [0u8; RECORD_HEADER_BYTES];
        put(&mut block, 8, MAGIC.to_le_bytes());
        block[12] = match self.kind {
            RecordKind::Op => 1,
        };
        block[13] = match self.class {
            SyncClass::Replicated => 1,
            SyncClass::Persisted => 2,
        };
        put(&mut block, 16, self.lane.0.to_le_bytes());
        put(&mut block, 20, self.view.to_le_bytes());
        put(&mut block, 24, self.op.0.to_le_bytes());
        put(&mut block, 32, self.timestamp.0.to_le_bytes());
        put(&mut block, 40, self.body_bytes.to_le_bytes());
        put(&mut block, 44, self.prefix_bytes.to_le_bytes());
        put(&mut block, 48, self.body_checksum.to_le_bytes());
        put(&mut block, 56, self.tag.to_le_bytes());
        put(&mut block, 64, self.position.to_le_bytes());
        put(&mut block, 72, self.flushed.to_le_bytes());
        let checksum = xxh3_64(&block[8..]);
        put(&mut block, 0, checksum.to_le_bytes());
        block
    }

    /// Reads the header that starts `bytes`, and checks that it belongs to the file with this tag at this position.
    pub fn parse(bytes: &[u8], tag: u64, position: u64) -> Result<RecordHeader, Damage> {
        let block = bytes.get(..RECORD_HEADER_BYTES).ok_or(Damage::Short)?;
        if u32_at(block, 8) != Some(MAGIC) {
            return Err(Damage::Magic);
        }
        if u64_at(block, 0) != Some(xxh3_64(&block[8..])) {
            return Err(Damage::HeaderChecksum);
        }
        let header = Self::parse_fields(block)?;
        if header.tag != tag || header.position != position || header.flushed > position {
            return Err(Damage::Misplaced);
        }
        Ok(header)
    }

    /// True when the bytes carry the mark of a record of this file, whether or not the rest of the header is whole. A
    /// single damaged field cannot hide both marks.
    pub(crate) fn resembles(bytes: &[u8], tag: u64) -> bool {
        u32_at(bytes, 8) == Some(MAGIC) || u64_at(bytes, 56) == Some(tag)
    }

    fn parse_fields(block: &[u8]) -> Result<RecordHeader, Damage> {
        let kind = match u8_at(block, 12).ok_or(Damage::Short)? {
            1 => RecordKind::Op,
            other => return Err(Damage::Kind(other)),
        };
        let class = match u8_at(block, 13) {
            Some(1) => SyncClass::Replicated,
            Some(2) => SyncClass::Persisted,
            _ => return Err(Damage::Reserved),
        };
        if u16_at(block, 14) != Some(0) {
            return Err(Damage::Reserved);
        }
        let body_bytes = u32_at(block, 40).ok_or(Damage::Short)?;
        let prefix_bytes = u32_at(block, 44).ok_or(Damage::Short)?;
        if u64::from(body_bytes) > RECORD_BODY_BYTES_MAX || prefix_bytes > body_bytes {
            return Err(Damage::Length);
        }
        Ok(RecordHeader {
            kind,
            class,
            lane: LaneId(u32_at(block, 16).ok_or(Damage::Short)?),
            view: u32_at(block, 20).ok_or(Damage::Short)?,
            op: Op(u64_at(block, 24).ok_or(Damage::Short)?),
            timestamp: Micros(u64_at(block, 32).ok_or(Damage::Short)?),
            body_bytes,
            prefix_bytes,
            body_checksum: u64_at(block, 48).ok_or(Damage::Short)?,
            tag: u64_at(block, 56).ok_or(Damage::Short)?,
            position: u64_at(block, 64).ok_or(Damage::Short)?,
            flushed: u64_at(block, 72).ok_or(Damage::Short)?,
        })
    }
}

fn stored_bytes(body_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64 + body_bytes).next_multiple_of(RECORD_ALIGN)
}
