//! A part of a stored batch, served without copying its messages. Source: wire protocol, section 4.5.

use std::ops::Range;

use super::verify::checksum_of;
use super::{BATCH_HEADER_BYTES, Batch, BatchHeader, Messages};
use crate::ids::Offset;

/// A record to serve: a new header, then these bytes of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The header to send first.
    pub header: [u8; BATCH_HEADER_BYTES],
    /// The frames to send behind it, as a range of the batch that was sliced.
    pub range: Range<usize>,
    /// Offset of the first message.
    pub first_offset: Offset,
    /// Messages in the slice, at least 1.
    pub count: u32,
}

impl Slice {
    /// Bytes of the record.
    pub fn bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.range.len()
    }

    /// Offset of the last message.
    pub fn last_offset(&self) -> Offset {
        Offset(self.first_offset.0.saturating_add(u64::from(self.count) - 1))
    }
}

/// The messages of a stored batch from `first_offset` on: at most `count` of them, and at most `byte_limit` bytes of
/// record, its 256-byte header counted. None when no message qualifies, when the first alone is over the limit, or when
/// the bytes are no batch.
///
/// The whole batch is recognised without walking its messages. Otherwise the walk touches the headers of the messages
/// before and in the slice. Allocates nothing.
pub fn slice(batch: &[u8], first_offset: Offset, count: u32, byte_limit: usize) -> Option<Slice> {
    let batch = Batch::parse(batch).ok()?;
    let header = &batch.header;
    let first = batch.messages().next()?.ok()?;
    let whole = batch.offset_of(&first)? >= first_offset
        && (1..=count).contains(&header.message_count)
        && batch.bytes.len() <= byte_limit;
    if whole && header.producer.is_none() {
        return Some(Slice {
            header: *batch.bytes.first_chunk()?,
            range: BATCH_HEADER_BYTES..batch.bytes.len(),
            first_offset: batch.offset_of(&first)?,
            count: header.message_count,
        });
    }
    part(&batch, first_offset, count, byte_limit)
}

fn part(batch: &Batch<'_>, first_offset: Offset, count: u32, byte_limit: usize) -> Option<Slice> {
    let mut messages = batch.messages();
    let (start, first) = find(batch, &mut messages, first_offset)?;
    let room = byte_limit.checked_sub(BATCH_HEADER_BYTES)?;
    if count == 0 || first.bytes.len() > room {
        return None;
    }
    let mut selected = Selected { end: start + first.bytes.len(), count: 1 };
    while selected.count < count {
        let Some(message) = messages.next() else { break };
        let end = selected.end + message.ok()?.bytes.len();
        if end - start > room {
            break;
        }
        selected = Selected { end, count: selected.count + 1 };
    }
    let mut header = BatchHeader {
        batch_length: (BATCH_HEADER_BYTES + selected.end - start) as u64,
        message_count: selected.count,
        producer: None,
        ..batch.header
    };
    let frames = Messages::over(&batch.bytes[..selected.end], start);
    header.batch_checksum = checksum_of(&header, frames).ok()?;
    Some(Slice {
        header: header.encode(),
        range: start..selected.end,
        first_offset: batch.offset_of(&first)?,
        count: selected.count,
    })
}

/// Where the slice ends so far.
struct Selected {
    end: usize,
    count: u32,
}

/// The first message at or behind `offset`, and where its frame starts.
fn find<'a>(
    batch: &Batch<'a>,
    messages: &mut Messages<'a>,
    offset: Offset,
) -> Option<(usize, super::Message<'a>)> {
    loop {
        let start = messages.next_at();
        let message = messages.next()?.ok()?;
        if batch.offset_of(&message)? >= offset {
            return Some((start, message));
        }
    }
}
