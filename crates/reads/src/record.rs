//! A stored batch as a read looks at it: its head, where its frames lie, its checks, and how it is cut.
//!
//! Bytes of a disk are untrusted: nothing here indexes or adds unchecked.
//!
//! Source: wire protocol, section 4.

use bytes::Bytes;
use laneway_wire::{Micros, Offset};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// Bytes of a batch header.
pub(crate) const HEADER_BYTES: usize = 256;
/// Bytes of a message frame before its payload.
const FRAME_BYTES: usize = 48;
/// A longer batch cannot have been taken in, so such a length is damage. Far above the largest frame of the protocol.
const BATCH_BYTES_MAX: u64 = 1 << 30;

/// A batch and what its header says.
pub(crate) struct Record<'a> {
    pub base_offset: Offset,
    pub base_timestamp: Micros,
    pub message_count: u32,
    pub bytes: &'a Bytes,
}

impl Record<'_> {
    pub(crate) fn end_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(u64::from(self.message_count)))
    }
}

/// Header of a batch on disk, checked for plausibility only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub base_offset: Offset,
    pub base_timestamp: Micros,
    pub message_count: u32,
    pub length: u64,
}

impl Head {
    pub(crate) fn end_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(u64::from(self.message_count)))
    }
}

/// What lies at a position of a chunk.
pub(crate) enum Scan {
    /// The chunk ends before the header does; `need` bytes from the position are needed.
    Short { need: u64 },
    /// No batch can begin like this.
    Bad,
    /// A batch header.
    Head(Head),
}

/// Looks at the batch header at `position` of a chunk.
pub(crate) fn scan(chunk: &[u8], position: usize) -> Scan {
    let Some(header) = position.checked_add(HEADER_BYTES).and_then(|end| chunk.get(position..end)) else {
        return Scan::Short { need: HEADER_BYTES as u64 };
    };
    let (Some(base_offset), Some(base_timestamp), Some(length), Some(message_count)) =
        (u64_at(header, 8), u64_at(header, 16), u64_at(header, 32), u32_at(header, 48))
    else {
        return Scan::Bad;
    };
    let frames_min = HEADER_BYTES as u64 + FRAME_BYTES as u64 * u64::from(message_count);
    let plausible = message_count > 0
        && length >= frames_min
        && length <= BATCH_BYTES_MAX
        && base_offset.checked_add(u64::from(message_count)).is_some();
    if !plausible {
        return Scan::Bad;
    }
    Scan::Head(Head {
        base_offset: Offset(base_offset),
        base_timestamp: Micros(base_timestamp),
        message_count,
        length,
    })
}

/// The batch of `length` bytes at `position`, if the chunk holds all of it.
pub(crate) fn whole(chunk: &Bytes, position: usize, length: u64) -> Option<Bytes> {
    let end = position.checked_add(usize::try_from(length).ok()?)?;
    (end <= chunk.len()).then(|| chunk.slice(position..end))
}

/// The frames of a batch do not tile it.
#[derive(Debug)]
pub(crate) struct BadFrames;

/// Where the frames of a batch lie: the start of each, and the end of the last.
pub(crate) struct Frames<'a> {
    batch: &'a Bytes,
    bounds: Vec<usize>,
}

/// How much of a range of messages fits.
pub(crate) struct Fit {
    pub messages: u32,
}

/// Finds the frames of a batch.
pub(crate) fn frames(batch: &Bytes, message_count: u32) -> Result<Frames<'_>, BadFrames> {
    let fits = (batch.len() / FRAME_BYTES) as u64 >= u64::from(message_count);
    if !fits {
        return Err(BadFrames);
    }
    let mut bounds = Vec::with_capacity(message_count as usize + 1);
    let mut position = HEADER_BYTES;
    bounds.push(position);
    for _ in 0..message_count {
        let frame = batch.get(position..).ok_or(BadFrames)?;
        let headers = u32_at(frame, 32).ok_or(BadFrames)? as usize;
        let payload = u32_at(frame, 36).ok_or(BadFrames)? as usize;
        position = position
            .checked_add(FRAME_BYTES)
            .and_then(|position| position.checked_add(headers))
            .and_then(|position| position.checked_add(payload))
            .filter(|end| *end <= batch.len())
            .ok_or(BadFrames)?;
        bounds.push(position);
    }
    if position != batch.len() {
        return Err(BadFrames);
    }
    Ok(Frames { batch, bounds })
}

impl Frames<'_> {
    /// How many messages from `from` on, at most up to `to`, fit into `bytes` together with one header.
    pub(crate) fn fit(&self, from: u32, to: u32, bytes: u64) -> Option<Fit> {
        let start = *self.bounds.get(from as usize)?;
        let ends = self.bounds.get(from as usize + 1..=to as usize)?;
        let messages = ends.partition_point(|end| (HEADER_BYTES + end - start) as u64 <= bytes) as u32;
        Some(Fit { messages })
    }

    /// Whether the checksum of the batch and those of the messages `from..to` hold.
    pub(crate) fn verify(&self, from: u32, to: u32) -> bool {
        let Some(stored) = u64_at(self.batch, 40) else { return false };
        let count = self.bounds.len() - 1;
        if self.checksum(self.batch.get(..HEADER_BYTES), 0, count) != Some(stored) {
            return false;
        }
        (from as usize..to as usize).all(|index| self.verify_frame(index) == Some(true))
    }

    fn verify_frame(&self, index: usize) -> Option<bool> {
        let frame = self.batch.get(*self.bounds.get(index)?..*self.bounds.get(index + 1)?)?;
        Some(xxh3_64(frame.get(8..)?) == u64_at(frame, 0)?)
    }

    /// The messages `from..to` as a record of their own: a fresh header and a slice of the frames.
    pub(crate) fn slice(&self, from: u32, to: u32) -> Option<Vec<Bytes>> {
        let (start, end) = (*self.bounds.get(from as usize)?, *self.bounds.get(to as usize)?);
        let mut header = [0_u8; HEADER_BYTES];
        header.copy_from_slice(self.batch.get(..HEADER_BYTES)?);
        let length = (HEADER_BYTES + end - start) as u64;
        header[32..40].copy_from_slice(&length.to_le_bytes());
        header[48..52].copy_from_slice(&(to - from).to_le_bytes());
        let checksum = self.checksum(Some(&header), from as usize, to as usize)?;
        header[40..48].copy_from_slice(&checksum.to_le_bytes());
        Some(vec![Bytes::copy_from_slice(&header), self.batch.slice(start..end)])
    }

    fn checksum(&self, header: Option<&[u8]>, from: usize, to: usize) -> Option<u64> {
        let header = header?;
        let mut hash = Xxh3Default::new();
        hash.update(header.get(0..40)?);
        hash.update(header.get(48..52)?);
        for position in self.bounds.get(from..to)? {
            hash.update(self.batch.get(*position..position + 8)?);
        }
        Some(hash.digest())
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
