//! Batches as a client makes them. Source: wire protocol, sections 4.1 to 4.3 and 9.

use bytes::{BufMut, BytesMut};

use super::checksum::of_message;
use super::verify::checksum_of;
use super::{
    BATCH_HEADER_BYTES, BatchHeader, MESSAGE_HEADER_BYTES, Messages, PAYLOAD_BYTES_MAX, ProducerSection,
    USER_HEADERS_BYTES_MAX,
};
use crate::header::BODY_BYTES_MAX;
use crate::ids::{Micros, Offset};

/// Why a message or a batch cannot be built. A refused message leaves the batch as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A message needs a payload.
    #[error("the payload is empty")]
    EmptyPayload,
    /// The payload is above [`PAYLOAD_BYTES_MAX`].
    #[error("payload of {bytes} bytes, at most {PAYLOAD_BYTES_MAX} are allowed")]
    PayloadTooLarge {
        /// Its length.
        bytes: usize,
    },
    /// The user headers are above [`USER_HEADERS_BYTES_MAX`].
    #[error("user headers of {bytes} bytes, at most {USER_HEADERS_BYTES_MAX} are allowed")]
    UserHeadersTooLarge {
        /// Their length.
        bytes: usize,
    },
    /// The batch would not fit a frame.
    #[error("the batch would be larger than a frame")]
    BatchTooLarge,
    /// The times of the messages are more than 2^32 microseconds apart.
    #[error("the times of the messages are more than 71 minutes apart")]
    TimestampSpan,
    /// The producer section is out of range.
    #[error("producer section out of range")]
    Producer,
    /// A batch has at least one message.
    #[error("the batch is empty")]
    EmptyBatch,
}

/// Writes a batch behind what a buffer already holds, so that a request is built in one buffer.
#[derive(Debug)]
pub struct BatchBuilder {
    out: BytesMut,
    start: usize,
    timestamps: Vec<u64>,
    producer: Option<ProducerSection>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// A batch in a buffer of its own.
    pub fn new() -> Self {
        BatchBuilder::append_to(BytesMut::new())
    }

    /// A batch behind the bytes of `out`, usually the metadata of a send.
    pub fn append_to(mut out: BytesMut) -> Self {
        let start = out.len();
        out.put_bytes(0, BATCH_HEADER_BYTES);
        BatchBuilder { out, start, timestamps: Vec::new(), producer: None }
    }

    /// Marks the batch as one of an idempotent producer.
    pub fn producer(&mut self, producer: ProducerSection) -> Result<(), BuildError> {
        if !producer.is_valid() {
            return Err(BuildError::Producer);
        }
        self.producer = Some(producer);
        Ok(())
    }

    /// Messages so far.
    pub fn message_count(&self) -> u32 {
        self.timestamps.len() as u32
    }

    /// Bytes of the batch so far.
    pub fn bytes(&self) -> usize {
        self.out.len() - self.start
    }

    /// Appends a message. `id` is its random identity, `timestamp` the producer's time of it, `user_headers` an encoded
    /// block (see [`crate::options::user_headers`]) or empty.
    pub fn push(
        &mut self,
        id: u128,
        timestamp: Micros,
        payload: &[u8],
        user_headers: &[u8],
    ) -> Result<(), BuildError> {
        if payload.is_empty() {
            return Err(BuildError::EmptyPayload);
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BuildError::PayloadTooLarge { bytes: payload.len() });
        }
        if user_headers.len() > USER_HEADERS_BYTES_MAX {
            return Err(BuildError::UserHeadersTooLarge { bytes: user_headers.len() });
        }
        let frame_bytes = MESSAGE_HEADER_BYTES + payload.len() + user_headers.len();
        if self.bytes() + frame_bytes > BODY_BYTES_MAX {
            return Err(BuildError::BatchTooLarge);
        }
        self.out.reserve(frame_bytes);
        // Checksum and time difference follow when the earliest time of the batch is known.
        self.out.put_u64_le(0);
        self.out.put_u128_le(id);
        self.out.put_u32_le(self.message_count());
        self.out.put_u32_le(0);
        self.out.put_u32_le(user_headers.len() as u32);
        self.out.put_u32_le(payload.len() as u32);
        self.out.put_u64_le(0);
        self.out.put_slice(payload);
        self.out.put_slice(user_headers);
        self.timestamps.push(timestamp.0);
        Ok(())
    }

    /// Fills in times and checksums and gives the buffer back, the batch behind what it held before.
    pub fn finish(mut self) -> Result<BytesMut, BuildError> {
        let Some(origin) = self.timestamps.iter().copied().min() else {
            return Err(BuildError::EmptyBatch);
        };
        let batch = &mut self.out[self.start..];
        let mut position = BATCH_HEADER_BYTES;
        for timestamp in &self.timestamps {
            let delta = u32::try_from(timestamp - origin).map_err(|_| BuildError::TimestampSpan)?;
            batch[position + 28..position + 32].copy_from_slice(&delta.to_le_bytes());
            let len = frame_bytes(&batch[position..]);
            let checksum = of_message(&batch[position..position + len]);
            batch[position..position + 8].copy_from_slice(&checksum.to_le_bytes());
            position += len;
        }
        let mut header = BatchHeader {
            partition_id: 0,
            base_offset: Offset(0),
            base_timestamp: Micros(0),
            origin_timestamp: Micros(origin),
            batch_length: batch.len() as u64,
            batch_checksum: 0,
            message_count: self.timestamps.len() as u32,
            producer: self.producer,
        };
        let messages = Messages::over(batch, BATCH_HEADER_BYTES);
        header.batch_checksum = checksum_of(&header, messages).expect("the builder writes whole frames");
        header.write(batch.first_chunk_mut().expect("the builder writes the header first"));
        Ok(self.out)
    }
}

/// Length of the frame that the builder wrote at the start of `frame`.
fn frame_bytes(frame: &[u8]) -> usize {
    MESSAGE_HEADER_BYTES + super::u32_at(frame, 32) as usize + super::u32_at(frame, 36) as usize
}
