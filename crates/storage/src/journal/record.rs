//! One record of a journal: a 160-byte header, the body in up to two parts, zeros up to the next multiple of 8.
//!
//! Every record proves by itself that it is whole (two checksums), that it belongs here (the file's tag, its own
//! position, the record before it), and how far the file had been written and flushed when it was written itself. The
//! last two tell a hole that a crash tore into bytes on their way from damage to bytes that had arrived.
//!
//! A batch is hashed once, where it came in: its own checksum covers every message, and the record's covers the header
//! that holds it.

use bytes::Bytes;
use laneway_wire::{
    Incarnation, LaneId, Micros, Offset, Op, PartitionId, PartitionKey, batch::BATCH_HEADER_BYTES,
};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::{
    error::Damage,
    fields::{put, u8_at, u16_at, u32_at, u64_at},
    layout::SegmentFile,
};

/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 160;

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

/// Where a batch lies in the segments of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// The segment.
    pub file: SegmentFile,
    /// Where the batch starts in it.
    pub position: u64,
}

/// How a record carries its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placing {
    /// In the journal, covered by a checksum of the record. For bodies that have none of their own, and for records
    /// without a batch.
    #[default]
    Unplaced,
    /// In the journal until a checkpoint copies it to its place.
    Inline(BatchPlace),
    /// At its place; the journal has only its header. The place starts a block.
    Direct(BatchPlace),
}

impl Placing {
    /// The place, if it is known.
    pub fn place(&self) -> Option<BatchPlace> {
        match self {
            Placing::Unplaced => None,
            Placing::Inline(place) | Placing::Direct(place) => Some(*place),
        }
    }

    /// Whether the batch is written to its place at once.
    pub fn is_direct(&self) -> bool {
        matches!(self, Placing::Direct(_))
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// One op of a lane, see [`Placing`].
    Op,
    /// No op: says how far the file is written and flushed, when nothing else came that would say it.
    Attest,
    /// Nothing follows in this file: the journal went on in another one, or recovery cut what followed.
    End,
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
    /// Where the batch goes. Anything but [`Placing::Unplaced`] needs a whole batch with its checksums.
    pub placing: Placing,
}

impl Record {
    /// The part of the batch that the journal holds.
    pub fn inline_batch(&self) -> &[u8] {
        match self.placing {
            Placing::Direct(_) => &self.batch[..BATCH_HEADER_BYTES.min(self.batch.len())],
            _ => &self.batch,
        }
    }

    /// Bytes that the record takes in a journal, padding included.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes((self.prefix.len() + self.inline_batch().len()) as u64)
    }

    /// Bytes that the record brings to the disk, wherever they go.
    pub fn written_bytes(&self) -> u64 {
        match self.placing {
            Placing::Direct(_) => self.stored_bytes() + self.batch.len() as u64,
            _ => self.stored_bytes(),
        }
    }
}

/// Where in a file a record is written, and what it says about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// Mark of the file, see [`super::JournalHeader::tag`].
    pub tag: u64,
    /// Where the record starts.
    pub position: u64,
    /// Everything of the file below this position was on stable storage when the record was written, batches at their
    /// places included.
    pub flushed: u64,
    /// Every write below this position had finished when the record was written.
    pub written: u64,
    /// Header checksum of the record before, or [`super::JournalHeader::tag`] for the first one.
    pub chain: u64,
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
    /// Bytes of both parts of the body that follow in the journal.
    pub body_bytes: u32,
    /// Bytes of the first part.
    pub prefix_bytes: u32,
    /// XxHash3-64 of the body; of a placed batch only its header.
    pub body_checksum: u64,
    /// See [`Record::placing`].
    pub placing: Placing,
    /// Where it stands and what it says about the file.
    pub at: RecordPlace,
    /// Checksum of the fields above.
    pub checksum: u64,
}

impl RecordHeader {
    /// The header of `record` at a place of a file.
    ///
    /// # Panics
    /// When the body is longer than [`RECORD_BODY_BYTES_MAX`]; whoever orders ops bounds their size.
    pub fn of(record: &Record, at: RecordPlace) -> RecordHeader {
        let inline = record.inline_batch();
        let body_bytes = (record.prefix.len() + inline.len()) as u64;
        assert!(body_bytes <= RECORD_BODY_BYTES_MAX, "op {} of lane {} is too long", record.op, record.lane);
        RecordHeader {
            kind: RecordKind::Op,
            class: record.class,
            lane: record.lane,
            view: record.view,
            op: record.op,
            timestamp: record.timestamp,
            body_bytes: body_bytes as u32,
            prefix_bytes: record.prefix.len() as u32,
            body_checksum: body_checksum(&record.placing, &record.prefix, inline),
            placing: record.placing,
            at,
            checksum: 0,
        }
        .sealed()
    }

    /// A record that carries no op.
    pub fn mark(kind: RecordKind, at: RecordPlace) -> RecordHeader {
        RecordHeader {
            kind,
            class: SyncClass::Persisted,
            lane: LaneId(0),
            view: 0,
            op: Op(0),
            timestamp: Micros(0),
            body_bytes: 0,
            prefix_bytes: 0,
            body_checksum: body_checksum(&Placing::Unplaced, &[], &[]),
            placing: Placing::Unplaced,
            at,
            checksum: 0,
        }
        .sealed()
    }

    fn sealed(mut self) -> RecordHeader {
        assert!(self.at.position.is_multiple_of(RECORD_ALIGN));
        assert!(self.at.flushed <= self.at.written && self.at.written <= self.at.position);
        self.checksum = xxh3_64(&self.encode_fields()[8..]);
        self
    }

    /// Bytes from this record to the next.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(u64::from(self.body_bytes))
    }

    /// Where the record ends.
    pub fn end(&self) -> u64 {
        self.at.position + self.stored_bytes()
    }

    /// The bytes of the header.
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut block = self.encode_fields();
        put(&mut block, 0, self.checksum.to_le_bytes());
        block
    }

    fn encode_fields(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut block = [0u8; RECORD_HEADER_BYTES];
        put(&mut block, 8, MAGIC.to_le_bytes());
        block[12] = match (self.kind, self.placing) {
            (RecordKind::Op, Placing::Unplaced) => 1,
            (RecordKind::Op, Placing::Inline(_)) => 2,
            (RecordKind::Op, Placing::Direct(_)) => 3,
            (RecordKind::Attest, _) => 4,
            (RecordKind::End, _) => 5,
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
        put(&mut block, 56, self.at.tag.to_le_bytes());
        put(&mut block, 64, self.at.position.to_le_bytes());
        put(&mut block, 72, self.at.flushed.to_le_bytes());
        put(&mut block, 80, self.at.written.to_le_bytes());
        put(&mut block, 88, self.at.chain.to_le_bytes());
        if let Some(place) = self.placing.place() {
            put(&mut block, 96, place.file.partition.incarnation.0.to_le_bytes());
            put(&mut block, 104, place.file.partition.partition.0.to_le_bytes());
            put(&mut block, 112, place.file.base.0.to_le_bytes());
            put(&mut block, 120, place.position.to_le_bytes());
        }
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
        let RecordPlace { flushed, written, .. } = header.at;
        if header.at.tag != tag || header.at.position != position || flushed > written || written > position {
            return Err(Damage::Misplaced);
        }
        Ok(header)
    }

    /// True when the bytes carry the tag of this file where a record has it.
    pub(crate) fn is_tagged(bytes: &[u8], tag: u64) -> bool {
        u64_at(bytes, 56) == Some(tag)
    }

    /// Whether the body is the one that was written, as far as the record's own checksum covers it.
    pub(crate) fn covers(&self, body: &[u8]) -> bool {
        let (prefix, batch) = body.split_at(body.len().min(self.prefix_bytes as usize));
        body_checksum(&self.placing, prefix, batch) == self.body_checksum
    }

    fn parse_fields(block: &[u8]) -> Result<RecordHeader, Damage> {
        let kind_byte = u8_at(block, 12).ok_or(Damage::Short)?;
        let kind = match kind_byte {
            1..=3 => RecordKind::Op,
            4 => RecordKind::Attest,
            5 => RecordKind::End,
            other => return Err(Damage::Kind(other)),
        };
        let class = match u8_at(block, 13) {
            Some(1) => SyncClass::Replicated,
            Some(2) => SyncClass::Persisted,
            _ => return Err(Damage::Reserved),
        };
        let reserved = block[128..].iter().chain(&block[108..112]).any(|byte| *byte != 0);
        if reserved || u16_at(block, 14) != Some(0) {
            return Err(Damage::Reserved);
        }
        let body_bytes = u32_at(block, 40).ok_or(Damage::Short)?;
        let prefix_bytes = u32_at(block, 44).ok_or(Damage::Short)?;
        if u64::from(body_bytes) > RECORD_BODY_BYTES_MAX || prefix_bytes > body_bytes {
            return Err(Damage::Length);
        }
        let word = |at| u64_at(block, at).ok_or(Damage::Short);
        let partition = PartitionKey {
            incarnation: Incarnation(word(96)?),
            partition: PartitionId(u32_at(block, 104).ok_or(Damage::Short)?),
        };
        let file = SegmentFile { partition, base: Offset(word(112)?) };
        let place = BatchPlace { file, position: word(120)? };
        let placing = match kind_byte {
            2 => Placing::Inline(place),
            3 => Placing::Direct(place),
            _ => Placing::Unplaced,
        };
        // A placed batch has at least its header here, and a direct one nothing else.
        let batch_bytes = (body_bytes - prefix_bytes) as usize;
        let fits = match placing {
            Placing::Unplaced => true,
            Placing::Inline(_) => batch_bytes >= BATCH_HEADER_BYTES,
            Placing::Direct(_) => batch_bytes == BATCH_HEADER_BYTES,
        };
        if !fits {
            return Err(Damage::Length);
        }
        Ok(RecordHeader {
            kind,
            class,
            lane: LaneId(u32_at(block, 16).ok_or(Damage::Short)?),
            view: u32_at(block, 20).ok_or(Damage::Short)?,
            op: Op(word(24)?),
            timestamp: Micros(word(32)?),
            body_bytes,
            prefix_bytes,
            body_checksum: word(48)?,
            placing,
            at: RecordPlace {
                tag: word(56)?,
                position: word(64)?,
                flushed: word(72)?,
                written: word(80)?,
                chain: word(88)?,
            },
            checksum: word(0)?,
        })
    }
}

fn body_checksum(placing: &Placing, prefix: &[u8], batch: &[u8]) -> u64 {
    let covered = match placing {
        Placing::Unplaced => batch,
        // The header holds the batch's own checksum, which covers the rest.
        Placing::Inline(_) | Placing::Direct(_) => &batch[..batch.len().min(BATCH_HEADER_BYTES)],
    };
    let mut checksum = Xxh3Default::new();
    checksum.update(prefix);
    checksum.update(covered);
    checksum.digest()
}

fn stored_bytes(body_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64 + body_bytes).next_multiple_of(RECORD_ALIGN)
}
