//! A stored batch as a read looks at it. Bytes of a disk are untrusted: nothing here indexes or adds unchecked.

use bytes::Bytes;
use laneway_wire::batch::{BATCH_HEADER_BYTES, BatchHeader, MESSAGE_HEADER_BYTES};
use laneway_wire::{Micros, Offset};

/// A longer batch cannot have been taken in, so such a length is damage. Far above the largest frame of the protocol.
const BATCH_BYTES_MAX: u64 = 1 << 30;

/// What the header of a batch says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub base_offset: Offset,
    pub base_timestamp: Micros,
    /// At least 1; the offset after the last message fits 64 bits.
    pub message_count: u32,
    /// Bytes of header and frames.
    pub length: u64,
}

impl Head {
    pub(crate) fn end_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(u64::from(self.message_count)))
    }

    /// Reads a header; `None` when no stored batch can begin like this.
    pub(crate) fn parse(header: &[u8; BATCH_HEADER_BYTES]) -> Option<Head> {
        let header = BatchHeader::parse(header).ok()?;
        let messages = u64::from(header.message_count);
        let length_min = BATCH_HEADER_BYTES as u64 + MESSAGE_HEADER_BYTES as u64 * messages;
        let plausible = messages > 0
            && (length_min..=BATCH_BYTES_MAX).contains(&header.batch_length)
            && header.base_offset.0.checked_add(messages).is_some()
            && header.producer.is_none();
        plausible.then_some(Head {
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            message_count: header.message_count,
            length: header.batch_length,
        })
    }
}

/// The batch of `length` bytes at `position`, if the chunk holds all of it.
pub(crate) fn whole(chunk: &Bytes, position: usize, length: u64) -> Option<Bytes> {
    let end = position.checked_add(usize::try_from(length).ok()?)?;
    (end <= chunk.len()).then(|| chunk.slice(position..end))
}
