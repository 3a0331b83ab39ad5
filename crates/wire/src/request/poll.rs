//! Reading one partition. Source: wire protocol, section 5.6, and the read semantics, sections 1.3 and 1.4.

use bytes::{BufMut, BytesMut};

use super::{Request, requests};
use crate::batch::{BATCH_HEADER_BYTES, MESSAGE_HEADER_BYTES};
use crate::code::Code;
use crate::field::Field;
use crate::ids::PartitionId;
use crate::primitive::{Consumer, DecodeError, EncodeError, Identifier, Reader, Strategy};
use crate::reply::POLL_HEAD_BYTES;

/// Longest wait of a read, in microseconds. Source: read semantics, section 1.4.
pub const WAIT_US_MAX: u64 = 600_000_000;
/// Longest timeout of a waiting read, in microseconds. Source: read semantics, section 1.4.
pub const TIMEOUT_US_MAX: u64 = 630_000_000;
/// What a timeout must leave behind the wait, in microseconds. Source: read semantics, section 1.4.
pub const REPLY_MARGIN_US: u64 = 1_000_000;
/// Smallest byte limit of a read: the head of the answer, a batch header and an empty frame.
pub const POLL_BYTES_MIN: u32 = (POLL_HEAD_BYTES + BATCH_HEADER_BYTES + MESSAGE_HEADER_BYTES) as u32;

const _: () = assert!(POLL_BYTES_MIN == 344, "the constant of the reference");

requests! {
    /// Reads messages of one partition (100).
    PollMessages<'a> {
        /// Who reads.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; absent means that the server chooses.
        partition: Option<PartitionId>,
        /// Where to start.
        strategy: Strategy,
        /// Most messages.
        count: u32,
        /// Whether the last offset read is stored.
        auto_commit: bool,
    }
}

/// Reads messages of one partition and may wait for them (106). Every field is within its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredPoll<'a> {
    /// What to read.
    pub poll: PollMessages<'a>,
    /// Longest wait, 0 to [`WAIT_US_MAX`] microseconds.
    pub wait_us: u64,
    /// Messages that end the wait, 1 to `count`.
    pub min_count: u32,
    /// Most bytes of head and records, at least [`POLL_BYTES_MIN`].
    pub max_bytes: u32,
    /// Time from receipt to answer, 1 to [`TIMEOUT_US_MAX`] microseconds; at least [`REPLY_MARGIN_US`] above a wait
    /// that is not 0.
    pub request_timeout_us: u64,
}

impl<'a> DeferredPoll<'a> {
    /// Reads the body, which must be consumed exactly. Errors: [`DecodeError::Range`] names the first field out of
    /// range.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let poll = DeferredPoll {
            poll: PollMessages {
                consumer: Field::read(&mut reader, "consumer")?,
                stream: Field::read(&mut reader, "stream")?,
                topic: Field::read(&mut reader, "topic")?,
                partition: Field::read(&mut reader, "partition")?,
                strategy: Field::read(&mut reader, "strategy")?,
                count: reader.u32("count")?,
                auto_commit: reader.boolean("auto_commit")?,
            },
            wait_us: reader.u64("wait_us")?,
            min_count: reader.u32("min_count")?,
            max_bytes: reader.u32("max_bytes")?,
            request_timeout_us: reader.u64("request_timeout_us")?,
        };
        reader.finish()?;
        match poll.out_of_range() {
            None => Ok(poll),
            Some(field) => Err(DecodeError::Range { field }),
        }
    }

    /// The first field that breaks its range.
    fn out_of_range(&self) -> Option<&'static str> {
        let timeout_min = if self.wait_us == 0 { 1 } else { self.wait_us.saturating_add(REPLY_MARGIN_US) };
        if self.wait_us > WAIT_US_MAX {
            return Some("wait_us");
        }
        if !(1..=self.poll.count).contains(&self.min_count) {
            return Some("min_count");
        }
        if self.max_bytes < POLL_BYTES_MIN {
            return Some("max_bytes");
        }
        (!(timeout_min..=TIMEOUT_US_MAX).contains(&self.request_timeout_us)).then_some("request_timeout_us")
    }
}

impl Request for DeferredPoll<'_> {
    const CODE: Code = Code::PollMessagesDeferred;

    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        if let Some(field) = self.out_of_range() {
            return Err(EncodeError::Range { field });
        }
        self.poll.encode(out)?;
        out.put_u64_le(self.wait_us);
        out.put_u32_le(self.min_count);
        out.put_u32_le(self.max_bytes);
        out.put_u64_le(self.request_timeout_us);
        Ok(())
    }
}
