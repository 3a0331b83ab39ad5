//! Views of records and of the message frames in them. Source: wire protocol, section 4.2.

use std::ops::Range;

use super::{
    BATCH_HEADER_BYTES, BatchError, BatchHeader, MESSAGE_HEADER_BYTES, PAYLOAD_BYTES_MAX, SEAL_BYTES_MAX,
    USER_HEADERS_BYTES_MAX, u32_at, u64_at,
};
use crate::ids::{Micros, Offset};

/// One record: a batch header and its frames.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The parsed header.
    pub header: BatchHeader,
    /// The whole record, header included; as long as `batch_length`.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The record at the start of `bytes`; what follows it is left alone. Frames are not checked.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let Some(header) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(BatchError::Short { needed: BATCH_HEADER_BYTES as u64, have: bytes.len() });
        };
        let header = BatchHeader::parse(header)?;
        let length = usize::try_from(header.batch_length).ok().and_then(|length| bytes.get(..length));
        let Some(bytes) = length else {
            return Err(BatchError::Short { needed: header.batch_length, have: bytes.len() });
        };
        Ok(Batch { header, bytes })
    }

    /// The record that fills `bytes` exactly.
    pub fn parse_exact(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let batch = Batch::parse(bytes)?;
        match bytes.len() - batch.bytes.len() {
            0 => Ok(batch),
            surplus => Err(BatchError::Trailing { bytes: surplus as u64 }),
        }
    }

    /// The frames behind the header.
    pub fn frame_bytes(&self) -> &'a [u8] {
        &self.bytes[BATCH_HEADER_BYTES..]
    }

    /// The messages in order. Stops with an error at the first frame that does not fit.
    pub fn messages(&self) -> Messages<'a> {
        Messages::over(self.bytes, BATCH_HEADER_BYTES)
    }

    /// Offset of a message of this batch. None when it would not fit 64 bits.
    pub fn offset_of(&self, message: &Message<'_>) -> Option<Offset> {
        self.header.base_offset.0.checked_add(message.offset_delta.into()).map(Offset)
    }

    /// The producer's time of a message of this batch.
    pub fn origin_timestamp_of(&self, message: &Message<'_>) -> Micros {
        Micros(self.header.origin_timestamp.0.saturating_add(message.timestamp_delta.into()))
    }
}

/// One message frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// XxHash3-64 of the frame behind this field.
    pub checksum: u64,
    /// Random id that the client gave it.
    pub id: u128,
    /// Its offset minus the `base_offset` of the batch.
    pub offset_delta: u32,
    /// Its producer time minus the `origin_timestamp` of the batch, in microseconds.
    pub timestamp_delta: u32,
    /// What the application sent.
    pub payload: &'a [u8],
    /// User headers, encoded; see [`crate::options::user_headers`].
    pub user_headers: &'a [u8],
    /// The whole frame.
    pub bytes: &'a [u8],
}

/// The messages of a record, one `Result` each; ends after the first error.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    bytes: &'a [u8],
    position: usize,
    index: u32,
    payload_bytes_max: usize,
}

impl<'a> Messages<'a> {
    /// Frames from `position` to the end of `record`.
    pub(super) fn over(record: &'a [u8], position: usize) -> Self {
        let payload_bytes_max = PAYLOAD_BYTES_MAX + SEAL_BYTES_MAX;
        Messages { bytes: record, position, index: 0, payload_bytes_max }
    }

    /// Takes payloads only as large as a producer may send them, not as large as they may be stored.
    pub(super) fn limited_to_sent(self) -> Self {
        Messages { payload_bytes_max: PAYLOAD_BYTES_MAX, ..self }
    }

    /// Where the next frame starts, counted from the start of the record.
    pub fn next_at(&self) -> usize {
        self.position
    }

    fn read(&self) -> Result<Message<'a>, BatchError> {
        let left = &self.bytes[self.position..];
        let Some(header) = left.first_chunk::<MESSAGE_HEADER_BYTES>() else {
            return Err(BatchError::Frames);
        };
        let (user_headers_length, payload_length) = (u32_at(header, 32), u32_at(header, 36));
        if payload_length as usize > self.payload_bytes_max {
            return Err(BatchError::PayloadTooLarge { index: self.index, bytes: payload_length });
        }
        if user_headers_length as usize > USER_HEADERS_BYTES_MAX {
            return Err(BatchError::UserHeadersTooLarge { index: self.index, bytes: user_headers_length });
        }
        if u64_at(header, 40) != 0 {
            return Err(BatchError::Reserved);
        }
        // Both lengths are within their limits, so the sum cannot overflow.
        let payload_end = MESSAGE_HEADER_BYTES + payload_length as usize;
        let Some(bytes) = left.get(..payload_end + user_headers_length as usize) else {
            return Err(BatchError::Frames);
        };
        Ok(Message {
            checksum: u64_at(header, 0),
            id: u128::from_le_bytes(header[8..24].try_into().expect("sixteen bytes")),
            offset_delta: u32_at(header, 24),
            timestamp_delta: u32_at(header, 28),
            payload: &bytes[MESSAGE_HEADER_BYTES..payload_end],
            user_headers: &bytes[payload_end..],
            bytes,
        })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position >= self.bytes.len() {
            return None;
        }
        let message = self.read();
        match &message {
            Ok(message) => {
                self.position += message.bytes.len();
                self.index = self.index.saturating_add(1);
            }
            Err(_) => self.position = self.bytes.len(),
        }
        Some(message)
    }
}

/// The messages of the record at the start of `batch`, with the byte range of each frame in the record.
pub fn frames<'a>(
    batch: &'a [u8],
) -> Result<impl Iterator<Item = Result<(Range<usize>, Message<'a>), BatchError>>, BatchError> {
    let mut messages = Batch::parse(batch)?.messages();
    Ok(std::iter::from_fn(move || {
        let start = messages.next_at();
        let message = messages.next()?;
        Some(message.map(|message| (start..start + message.bytes.len(), message)))
    }))
}

/// Records back to back: the tail of a poll answer, or a segment. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// Walks `bytes` as records back to back.
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { bytes, position: 0 }
}

impl Records<'_> {
    /// Where the next record starts; after an error, where the broken one does.
    pub fn next_at(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let left = self.bytes.get(self.position..)?;
        if left.is_empty() {
            return None;
        }
        let batch = Batch::parse(left);
        match &batch {
            Ok(batch) => self.position += batch.bytes.len(),
            Err(_) => self.bytes = &[],
        }
        Some(batch)
    }
}
