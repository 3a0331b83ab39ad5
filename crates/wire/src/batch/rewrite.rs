//! A record with other message bodies: what a broker that encrypts at rest does on the way in and on the way out.

use bytes::{BufMut, BytesMut};

use super::checksum::of_message;
use super::verify::checksum_of;
use super::{BATCH_HEADER_BYTES, Batch, BatchError, BatchHeader, MESSAGE_HEADER_BYTES, Message, Messages};

/// Lengths of the body that was written for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLengths {
    /// Bytes of the payload.
    pub payload: u32,
    /// Bytes of the user headers behind it.
    pub user_headers: u32,
}

/// Writes `record` behind what `out` holds, with the body that `body` appends for each message. Ids, offsets, times and
/// the producer section stay; lengths and checksums are made anew. Gives the bytes that were written.
///
/// # Panics
/// When `body` appends another number of bytes than it says.
pub fn rewrite<E: From<BatchError>>(
    record: &Batch<'_>,
    out: &mut BytesMut,
    mut body: impl FnMut(&Message<'_>, &mut BytesMut) -> Result<BodyLengths, E>,
) -> Result<usize, E> {
    let start = out.len();
    out.reserve(record.bytes.len());
    out.put_bytes(0, BATCH_HEADER_BYTES);
    for message in record.messages() {
        let message = message?;
        let frame_at = out.len();
        out.put_slice(&message.bytes[..MESSAGE_HEADER_BYTES]);
        let lengths = body(&message, out)?;
        let frame = &mut out[frame_at..];
        let body_bytes = lengths.payload as usize + lengths.user_headers as usize;
        assert_eq!(frame.len(), MESSAGE_HEADER_BYTES + body_bytes, "the body is as long as it says");
        frame[32..36].copy_from_slice(&lengths.user_headers.to_le_bytes());
        frame[36..40].copy_from_slice(&lengths.payload.to_le_bytes());
        let checksum = of_message(frame);
        frame[..8].copy_from_slice(&checksum.to_le_bytes());
    }
    let written = &mut out[start..];
    let mut header = BatchHeader { batch_length: written.len() as u64, ..record.header };
    header.batch_checksum = checksum_of(&header, Messages::over(written, BATCH_HEADER_BYTES))?;
    header.write(written.first_chunk_mut().expect("the header was written first"));
    Ok(written.len())
}
