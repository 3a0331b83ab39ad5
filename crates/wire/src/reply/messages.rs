//! Sends, reads and routes. Source: wire protocol, section 5.6.

use bytes::{BufMut, BytesMut};

use super::{Record, count32, records};
use crate::batch::{BatchError, records as batch_records};
use crate::ids::{Incarnation, Offset, Op, PartitionId, ReplicaId, StreamId, TopicId};
use crate::primitive::{DecodeError, PartitionContext, Reader};
use crate::status::Status;

/// Bytes of the head of a poll answer.
pub const POLL_HEAD_BYTES: usize = 40;
/// Bytes of a table entry of a fetch answer.
pub const FETCH_ENTRY_BYTES: usize = 56;
/// Most sections of a fetch answer. Source: wire protocol, section 1.13.
pub const FETCH_SECTIONS_MAX: usize = 1000;
const CONFIRMATION_BYTES: usize = 20;

records! {
    /// Where a batch was appended.
    SendConfirmation {
        /// The stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The partition.
        partition: PartitionId,
        /// Offset of the first message of the batch.
        base_offset: Offset,
    }
    /// Head of a poll answer; the records follow.
    PollHead {
        /// The partition read. `u32::MAX` in an empty answer to command 100 tells a member to sync its assignment.
        partition: PartitionId,
        /// Last committed offset, 0 when the partition is empty.
        current_offset: Offset,
        /// Messages in the records.
        messages_count: u32,
        /// What was served: incarnation, bound owner generation, metadata op.
        context: PartitionContext,
    }
    /// One partition of a fetch answer.
    FetchSection {
        /// The partition.
        partition: PartitionId,
        /// Outcome for this partition alone.
        status: Status,
        /// Last committed offset, 0 when the partition is empty.
        current_offset: Offset,
        /// Messages in its records.
        messages_count: u32,
        /// What was served.
        context: PartitionContext,
        /// Where the next read of this partition starts.
        next_offset: Offset,
        /// Bytes of its records.
        records_len: u32,
    }
    /// Which node serves a partition.
    PartitionRoute {
        /// The life of the partition, never 0.
        incarnation: Incarnation,
        /// The metadata op at which the route was read.
        metadata_op: Op,
        /// View of the partition's lane.
        view: u32,
        /// Partitions of the topic.
        partitions_count: u32,
        /// The node, as the roster names it.
        primary_replica: ReplicaId,
    }
}

impl crate::field::Field<'_> for Status {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        reader.u32(field).map(Status::from_number)
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), crate::primitive::EncodeError> {
        out.put_u32_le(self.number());
        Ok(())
    }
}

impl PollHead {
    /// An empty answer.
    pub fn empty(partition: PartitionId, current_offset: Offset, context: PartitionContext) -> Self {
        PollHead { partition, current_offset, messages_count: 0, context }
    }
}

impl FetchSection {
    /// The section of a partition that could not be read: everything but the status is zero.
    pub fn failed(partition: PartitionId, status: Status) -> Self {
        FetchSection {
            partition,
            status,
            current_offset: Offset(0),
            messages_count: 0,
            context: PartitionContext::default(),
            next_offset: Offset(0),
            records_len: 0,
        }
    }
}

impl PartitionRoute {
    /// Reads the answer to GetPartitionRoute, which must be consumed exactly.
    pub fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let route = PartitionRoute::read(&mut reader)?;
        reader.finish()?;
        Ok(route)
    }
}

/// Appends the answer to a send.
pub fn put_confirmations(out: &mut BytesMut, confirmations: &[SendConfirmation]) {
    out.put_u32_le(count32(confirmations.len()));
    confirmations.iter().for_each(|confirmation| confirmation.put(out));
}

/// Reads the answer to a send. An empty body is a success without confirmations.
pub fn parse_confirmations(body: &[u8]) -> Result<Vec<SendConfirmation>, DecodeError> {
    if body.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = Reader::new(body);
    let count = reader.u32("confirmations")? as usize;
    let bytes = reader.take(count.saturating_mul(CONFIRMATION_BYTES), "confirmations")?;
    reader.finish()?;
    super::read_list(bytes)
}

/// A poll answer: head and records. The records hold exactly the messages that the head counts.
#[derive(Clone, Copy, Debug)]
pub struct PollReply<'a> {
    /// The head.
    pub head: PollHead,
    /// Records back to back; walk them with [`crate::batch::records`].
    pub records: &'a [u8],
}

impl<'a> PollReply<'a> {
    /// Reads an answer to a poll and checks the layout of its records, not their checksums.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let head = PollHead::read(&mut reader)?;
        let records = reader.rest();
        check_records(records, head.messages_count)?;
        Ok(PollReply { head, records })
    }
}

/// Appends the table of a fetch answer; the records of the sections follow in the same order.
///
/// # Panics
/// When there are more than [`FETCH_SECTIONS_MAX`] sections.
pub fn put_fetch_table(out: &mut BytesMut, sections: &[FetchSection]) {
    assert!(sections.len() <= FETCH_SECTIONS_MAX, "a fetch has at most as many sections as targets");
    out.put_u32_le(count32(sections.len()));
    sections.iter().for_each(|section| section.put(out));
}

/// A fetch answer: its table and the records of each section.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchReply<'a> {
    /// The sections in the order of the table, each with its records.
    pub sections: Vec<(FetchSection, &'a [u8])>,
}

impl<'a> FetchReply<'a> {
    /// Reads an answer to a fetch, which must be consumed exactly, and checks the layout of its records. Whether the
    /// sections belong to the request is for the caller to check.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let count = reader.u32("sections")? as usize;
        if count > FETCH_SECTIONS_MAX {
            return Err(DecodeError::Range { field: "sections" });
        }
        let table = reader.take(count * FETCH_ENTRY_BYTES, "sections")?;
        let mut sections: Vec<(FetchSection, &[u8])> = Vec::with_capacity(count);
        for section in super::read_list::<FetchSection>(table)? {
            let records = reader.take(section.records_len as usize, "records")?;
            if !section.status.is_ok() && (section.messages_count != 0 || !records.is_empty()) {
                return Err(DecodeError::Range { field: "records" });
            }
            check_records(records, section.messages_count)?;
            sections.push((section, records));
        }
        reader.finish()?;
        let mut partitions: Vec<PartitionId> =
            sections.iter().map(|(section, _)| section.partition).collect();
        partitions.sort_unstable();
        if partitions.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(DecodeError::Duplicate { field: "section partition" });
        }
        Ok(FetchReply { sections })
    }
}

/// Checks that `records` are whole records with `messages_count` messages in all.
fn check_records(records: &[u8], messages_count: u32) -> Result<(), DecodeError> {
    let mut messages = 0u64;
    for batch in batch_records(records) {
        let batch = batch.map_err(broken_record)?;
        let mut frames = 0u64;
        for message in batch.messages() {
            message.map_err(broken_record)?;
            frames += 1;
        }
        if frames != u64::from(batch.header.message_count) {
            return Err(DecodeError::Range { field: "message_count" });
        }
        messages += frames;
    }
    if messages != u64::from(messages_count) {
        return Err(DecodeError::Range { field: "messages_count" });
    }
    Ok(())
}

fn broken_record(_: BatchError) -> DecodeError {
    DecodeError::Range { field: "record" }
}
