//! The 256-byte batch header. Source: wire protocol, sections 4.1 and 9.

use super::{BATCH_HEADER_BYTES, BatchError, SEQUENCES, u32_at, u64_at};
use crate::ids::{Micros, Offset};

const PRODUCER_AT: usize = 52;
const RESERVED_AT: usize = 72;
const PRODUCER_PRESENT: u8 = 1;

/// First bytes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// 0 from producers, the partition's number after the append.
    pub partition_id: u64,
    /// 0 from producers; then the offset of the message with `offset_delta` 0, also in a slice without that message.
    pub base_offset: Offset,
    /// 0 from producers, then the append time, one for the whole batch.
    pub base_timestamp: Micros,
    /// The earliest time that the producer gave to a message.
    pub origin_timestamp: Micros,
    /// Bytes of the batch, this header included.
    pub batch_length: u64,
    /// XxHash3-64 over the fields above, the count, the producer section and the checksums of the messages.
    pub batch_checksum: u64,
    /// Messages in the batch.
    pub message_count: u32,
    /// Identity of an idempotent producer. Never stored, never served: see [`super::stamp`].
    pub producer: Option<ProducerSection>,
}

impl BatchHeader {
    /// Reads a header. Errors: [`BatchError::Length`], [`BatchError::Reserved`], [`BatchError::Producer`].
    pub fn parse(bytes: &[u8; BATCH_HEADER_BYTES]) -> Result<Self, BatchError> {
        let batch_length = u64_at(bytes, 32);
        if batch_length < BATCH_HEADER_BYTES as u64 {
            return Err(BatchError::Length { length: batch_length });
        }
        if bytes[RESERVED_AT..].iter().any(|byte| *byte != 0) {
            return Err(BatchError::Reserved);
        }
        Ok(BatchHeader {
            partition_id: u64_at(bytes, 0),
            base_offset: Offset(u64_at(bytes, 8)),
            base_timestamp: Micros(u64_at(bytes, 16)),
            origin_timestamp: Micros(u64_at(bytes, 24)),
            batch_length,
            batch_checksum: u64_at(bytes, 40),
            message_count: u32_at(bytes, 48),
            producer: ProducerSection::parse(bytes)?,
        })
    }

    /// Writes all 256 bytes.
    pub fn write(&self, bytes: &mut [u8; BATCH_HEADER_BYTES]) {
        bytes[..8].copy_from_slice(&self.partition_id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.base_offset.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base_timestamp.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.origin_timestamp.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.batch_length.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.batch_checksum.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.message_count.to_le_bytes());
        bytes[PRODUCER_AT..].fill(0);
        if let Some(producer) = self.producer {
            bytes[PRODUCER_AT] = PRODUCER_PRESENT;
            bytes[56..64].copy_from_slice(&producer.producer_id.to_le_bytes());
            bytes[64..66].copy_from_slice(&producer.epoch.to_le_bytes());
            bytes[68..72].copy_from_slice(&producer.base_sequence.to_le_bytes());
        }
    }

    /// The header as bytes.
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        self.write(&mut bytes);
        bytes
    }
}

/// Identity of an idempotent producer and the place of the batch in its sequence. Source: wire protocol, section 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerSection {
    /// Up to 2^63 - 1.
    pub producer_id: u64,
    /// Up to 32767.
    pub epoch: u16,
    /// Sequence of the first message, below [`SEQUENCES`].
    pub base_sequence: u32,
}

impl ProducerSection {
    /// Whether every field is in its range.
    pub fn is_valid(&self) -> bool {
        self.producer_id <= i64::MAX as u64 && self.epoch <= i16::MAX as u16 && self.base_sequence < SEQUENCES
    }

    /// The sequence that follows `messages` messages after `base_sequence`; it wraps to 0.
    pub fn next_sequence(&self, messages: u32) -> u32 {
        ((u64::from(self.base_sequence) + u64::from(messages)) % u64::from(SEQUENCES)) as u32
    }

    fn parse(bytes: &[u8; BATCH_HEADER_BYTES]) -> Result<Option<Self>, BatchError> {
        let section = &bytes[PRODUCER_AT..RESERVED_AT];
        if section.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let padding = [bytes[53], bytes[54], bytes[55], bytes[66], bytes[67]];
        if bytes[PRODUCER_AT] != PRODUCER_PRESENT || padding != [0; 5] {
            return Err(BatchError::Producer);
        }
        let producer = ProducerSection {
            producer_id: u64_at(bytes, 56),
            epoch: u16::from_le_bytes([bytes[64], bytes[65]]),
            base_sequence: u32_at(bytes, 68),
        };
        producer.is_valid().then_some(Some(producer)).ok_or(BatchError::Producer)
    }
}
