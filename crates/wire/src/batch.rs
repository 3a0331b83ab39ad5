//! Message batches: one 256-byte header followed by message frames without padding. The same bytes travel in a send,
//! lie in the log and travel in answers. Source: wire protocol, section 4 (and section 9 for the producer section).
//!
//! Verifying, stamping and slicing allocate nothing. A message frame is never rewritten: the batch checksum covers the
//! checksums of the messages, so stamping and slicing hash eight bytes a message.

mod builder;
mod checksum;
mod header;
mod message;
mod rewrite;
mod slice;
mod verify;

#[cfg(test)]
mod tests;

pub use builder::{BatchBuilder, BuildError};
pub use header::{BatchHeader, ProducerSection};
pub use message::{Batch, Message, Messages, Records, frames, records};
pub use rewrite::{BodyLengths, rewrite};
pub use slice::{Slice, slice};
pub use verify::{BatchSummary, stamp, verify_producer_batch, verify_stored};

use crate::status::Status;

/// Bytes of a batch header.
pub const BATCH_HEADER_BYTES: usize = 256;
/// Bytes of a message frame before its payload.
pub const MESSAGE_HEADER_BYTES: usize = 48;
/// Largest payload. Source: wire protocol, section 1.13.
pub const PAYLOAD_BYTES_MAX: usize = 64_000_000;
/// Largest block of user headers of one message. Source: wire protocol, section 1.13.
pub const USER_HEADERS_BYTES_MAX: usize = 100_000;
/// Bytes by which a stored payload may exceed [`PAYLOAD_BYTES_MAX`]: nonce and tag of a broker that encrypts at rest.
pub const SEAL_BYTES_MAX: usize = 28;
/// A batch header and one message at both limits.
pub const RECORD_BYTES_MAX: usize =
    BATCH_HEADER_BYTES + MESSAGE_HEADER_BYTES + PAYLOAD_BYTES_MAX + USER_HEADERS_BYTES_MAX;
/// Number of producer sequences; the next after the last is 0. Source: wire protocol, section 9.
pub const SEQUENCES: u32 = 1 << 31;

const _: () = assert!(RECORD_BYTES_MAX == 64_100_304, "the constant of the reference");

/// Why bytes are no batch, or not one that may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end inside of a batch.
    #[error("batch of {needed} bytes, {have} are there")]
    Short {
        /// Bytes that the batch says it has.
        needed: u64,
        /// Bytes that are there.
        have: usize,
    },
    /// Bytes follow a batch that must fill them.
    #[error("{bytes} bytes follow the batch")]
    Trailing {
        /// How many.
        bytes: u64,
    },
    /// `batch_length` is below the header.
    #[error("batch_length is {length}")]
    Length {
        /// The field.
        length: u64,
    },
    /// A reserved byte is not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// The producer section is malformed.
    #[error("malformed producer section")]
    Producer,
    /// Frames do not tile the batch, or their number is not `message_count`.
    #[error("message frames do not fill the batch")]
    Frames,
    /// A message is not at the place that its `offset_delta` says.
    #[error("message {index} has offset_delta {offset_delta}")]
    OffsetDelta {
        /// Its position in the batch.
        index: u32,
        /// The field.
        offset_delta: u32,
    },
    /// No message, or another number of messages than the request says.
    #[error("batch of {batch} messages, the request says {request}")]
    MessageCount {
        /// `message_count` of the batch.
        batch: u32,
        /// `messages_count` of the request.
        request: u32,
    },
    /// A message without payload.
    #[error("message {index} has no payload")]
    EmptyPayload {
        /// Its position in the batch.
        index: u32,
    },
    /// A payload above [`PAYLOAD_BYTES_MAX`].
    #[error("message {index} has a payload of {bytes} bytes")]
    PayloadTooLarge {
        /// Its position in the batch.
        index: u32,
        /// Its payload length.
        bytes: u32,
    },
    /// User headers above [`USER_HEADERS_BYTES_MAX`].
    #[error("message {index} has user headers of {bytes} bytes")]
    UserHeadersTooLarge {
        /// Its position in the batch.
        index: u32,
        /// Length of its user headers.
        bytes: u32,
    },
    /// The bytes of a message do not match its checksum.
    #[error("message {index} does not match its checksum")]
    MessageChecksum {
        /// Its position in the batch.
        index: u32,
    },
    /// The batch does not match its checksum.
    #[error("batch checksum is {stored:#018x}, computed {computed:#018x}")]
    BatchChecksum {
        /// The field.
        stored: u64,
        /// What it should be.
        computed: u64,
    },
}

impl BatchError {
    /// The status that answers a send of such a batch. Source: wire protocol, sections 4.4 and 6.
    pub fn status(&self) -> Status {
        match self {
            BatchError::Short { .. }
            | BatchError::Trailing { .. }
            | BatchError::Length { .. }
            | BatchError::Reserved
            | BatchError::Producer
            | BatchError::Frames
            | BatchError::OffsetDelta { .. } => Status::InvalidCommand,
            BatchError::MessageCount { .. } => Status::InvalidMessagesCount,
            BatchError::EmptyPayload { .. } => Status::EmptyMessagePayload,
            BatchError::PayloadTooLarge { .. } => Status::TooBigMessagePayload,
            BatchError::UserHeadersTooLarge { .. } => Status::TooBigUserHeaders,
            BatchError::MessageChecksum { .. } => Status::InvalidMessageChecksum,
            BatchError::BatchChecksum { .. } => Status::InvalidBatchChecksum,
        }
    }
}

/// Four bytes of a record at a place that the caller has checked to exist.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Eight bytes of a record at a place that the caller has checked to exist.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
