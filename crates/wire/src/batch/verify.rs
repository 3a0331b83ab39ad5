//! Admission of a producer's batch, stamping it, and checking a stored one. Source: wire protocol, section 4.4.

use super::checksum::{BatchChecksum, of_message};
use super::{BATCH_HEADER_BYTES, Batch, BatchError, BatchHeader, Messages, ProducerSection};
use crate::ids::{Micros, Offset, PartitionId};

/// What the owner of a partition needs to know about a batch that passed [`verify_producer_batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSummary {
    /// Messages, at least 1.
    pub message_count: u32,
    /// Bytes of the record.
    pub bytes: usize,
    /// Payload bytes of all messages.
    pub payload_bytes: u64,
    /// The earliest producer time.
    pub origin_timestamp: Micros,
    /// Identity of an idempotent producer.
    pub producer: Option<ProducerSection>,
}

/// Checks a batch as a producer sent it: layout, reserved bytes, limits, positions, every checksum, and that it fills
/// `batch` exactly. `messages_count` is what the request says. Allocates nothing; hashes every byte once.
pub fn verify_producer_batch(batch: &[u8], messages_count: u32) -> Result<BatchSummary, BatchError> {
    let batch = Batch::parse_exact(batch)?;
    let header = &batch.header;
    if header.message_count == 0 || header.message_count != messages_count {
        return Err(BatchError::MessageCount { batch: header.message_count, request: messages_count });
    }
    let payload_bytes = verify(&batch, batch.messages().limited_to_sent())?;
    Ok(BatchSummary {
        message_count: header.message_count,
        bytes: batch.bytes.len(),
        payload_bytes,
        origin_timestamp: header.origin_timestamp,
        producer: header.producer,
    })
}

/// Checks the stored record at the start of `bytes`, for recovery: everything that [`verify_producer_batch`] checks,
/// and that the producer section is gone. What follows the record is left alone.
pub fn verify_stored(bytes: &[u8]) -> Result<Batch<'_>, BatchError> {
    let batch = Batch::parse(bytes)?;
    if batch.header.producer.is_some() {
        return Err(BatchError::Producer);
    }
    if batch.header.message_count == 0 {
        return Err(BatchError::MessageCount { batch: 0, request: 0 });
    }
    verify(&batch, batch.messages())?;
    Ok(batch)
}

/// Writes partition, base offset and append time into a verified batch, strips its producer section and recomputes the
/// batch checksum. Returns the section. Allocates nothing; hashes eight bytes a message.
///
/// The section goes because older clients of the same protocol number refuse a record that has one, and because a batch
/// that lies stripped in the log is served without another thought. Source: wire protocol, section 9.
pub fn stamp(
    batch: &mut [u8],
    partition: PartitionId,
    base_offset: Offset,
    base_timestamp: Micros,
) -> Result<Option<ProducerSection>, BatchError> {
    let view = Batch::parse_exact(batch)?;
    let producer = view.header.producer;
    let mut header = BatchHeader {
        partition_id: partition.0.into(),
        base_offset,
        base_timestamp,
        producer: None,
        ..view.header
    };
    header.batch_checksum = checksum_of(&header, view.messages())?;
    let bytes = batch.first_chunk_mut::<BATCH_HEADER_BYTES>().expect("a parsed batch has its header");
    header.write(bytes);
    Ok(producer)
}

/// The batch checksum of `header` over `messages`, as their checksum fields say.
pub(super) fn checksum_of<'a>(
    header: &BatchHeader,
    messages: impl Iterator<Item = Result<super::Message<'a>, BatchError>>,
) -> Result<u64, BatchError> {
    let mut checksum = BatchChecksum::new(header);
    for message in messages {
        checksum.message(message?.checksum);
    }
    Ok(checksum.finish())
}

/// Checks frames and checksums; returns the payload bytes.
fn verify<'a>(batch: &Batch<'a>, messages: Messages<'a>) -> Result<u64, BatchError> {
    let mut checksum = BatchChecksum::new(&batch.header);
    let mut payload_bytes = 0;
    let mut index = 0;
    for message in messages {
        let message = message?;
        if index == batch.header.message_count {
            return Err(BatchError::Frames);
        }
        if message.payload.is_empty() {
            return Err(BatchError::EmptyPayload { index });
        }
        if message.offset_delta != index {
            return Err(BatchError::OffsetDelta { index, offset_delta: message.offset_delta });
        }
        if message.checksum != of_message(message.bytes) {
            return Err(BatchError::MessageChecksum { index });
        }
        checksum.message(message.checksum);
        payload_bytes += message.payload.len() as u64;
        index += 1;
    }
    if index != batch.header.message_count {
        return Err(BatchError::Frames);
    }
    let (stored, computed) = (batch.header.batch_checksum, checksum.finish());
    if stored != computed {
        return Err(BatchError::BatchChecksum { stored, computed });
    }
    Ok(payload_bytes)
}
