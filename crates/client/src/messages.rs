//! Sending, polling, routes and stored offsets: the calls on partitions. Source: wire protocol, sections 5.5 and 5.6.

use std::time::Duration;

use bytes::{BufMut, Bytes};
use laneway_wire::batch::BatchBuilder;
use laneway_wire::primitive::{AckLevel, CONTEXT_BYTES, put_optional_partition};
use laneway_wire::{
    Code, Consumer, ConsumerKind, HEADER_BYTES, Identifier, Incarnation, Offset, Op, PartitionContext,
    PartitionId, Partitioning, Reader, ReplicaId, Strategy,
};

use crate::client::Client;
use crate::error::ClientError;
use crate::resources::Name;
use crate::session::Call;

/// What a broker needs beyond the wait before it must have answered a deferred poll.
const POLL_MARGIN: Duration = Duration::from_secs(10);
/// Longest wait of a deferred poll. Source: wire protocol, section 5.6.
pub const WAIT_MAX: Duration = Duration::from_secs(600);
/// Bytes before the records of an answer to a poll.
const POLL_HEAD_BYTES: usize = 16 + CONTEXT_BYTES;
/// The consumer under which this client reads without storing anything.
const ANONYMOUS: Consumer<'static> = Consumer { kind: ConsumerKind::Consumer, id: Identifier::Numeric(0) };

/// The topic that messages go to or come from.
#[derive(Clone, Debug)]
pub struct SendTarget {
    pub stream: Name,
    pub topic: Name,
}

/// A poll of one partition.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    pub partition: PartitionId,
    pub strategy: Strategy,
    /// Most messages, at least 1.
    pub count: u32,
    /// Most bytes of the answer, at least 344; the first message comes even if it is larger.
    pub max_bytes: u32,
    /// How long the broker may wait for a first message, up to [`WAIT_MAX`].
    pub wait: Duration,
}

/// What stands before the records of a poll's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollHead {
    pub partition: PartitionId,
    /// Highest committed offset; 0 also when there is none.
    pub current_offset: Offset,
    pub messages_count: u32,
    pub context: PartitionContext,
}

/// Where a partition is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub incarnation: Incarnation,
    pub metadata_op: Op,
    pub view: u32,
    pub partitions_count: u32,
    pub primary: ReplicaId,
}

impl Route {
    /// What requests to the partition carry.
    pub fn context(&self) -> PartitionContext {
        PartitionContext {
            incarnation: self.incarnation,
            metadata_op: self.metadata_op,
            ..Default::default()
        }
    }
}

/// A consumer's progress in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredOffset {
    pub partition: PartitionId,
    /// Highest committed offset.
    pub current: Offset,
    pub stored: Offset,
}

/// Starts a SendMessages frame: header, metadata whose count follows, and the batch that fills.
pub(crate) fn start_batch(target: &SendTarget, partition: PartitionId) -> Result<BatchBuilder, ClientError> {
    let mut call = Call::new(Code::SendMessages, 0);
    let body = call.body();
    let start = body.len();
    body.put_u32_le(0);
    target.stream.as_identifier().put(body, "stream_id")?;
    target.topic.as_identifier().put(body, "topic_id")?;
    Partitioning::Partition(partition).put(body)?;
    body.put_u32_le(0);
    let metadata_len = (body.len() - start - 4) as u32;
    body.get_mut(start..start + 4).expect("just written").copy_from_slice(&metadata_len.to_le_bytes());
    Ok(BatchBuilder::append_to(call.into_frame()))
}

/// Ends the frame of [`start_batch`].
pub(crate) fn finish_batch(batch: BatchBuilder) -> Result<Call, ClientError> {
    let count = batch.message_count();
    let mut frame = batch.finish()?;
    let metadata_len = frame.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|bytes| bytes.try_into().ok());
    let metadata_len = u32::from_le_bytes(metadata_len.expect("start_batch wrote it")) as usize;
    let end = HEADER_BYTES + 4 + metadata_len;
    frame.get_mut(end - 4..end).expect("start_batch wrote it").copy_from_slice(&count.to_le_bytes());
    Ok(Call::from_frame(Code::SendMessages, frame))
}

/// Base offset of the batch that was sent to `partition`; none if the broker did not confirm one, which is no failure.
pub(crate) fn parse_confirmation(payload: &[u8], partition: PartitionId) -> Option<Offset> {
    let mut reader = Reader::new(payload);
    let count = reader.u32("confirmations").ok()?;
    let mut found = None;
    for _ in 0..count {
        reader.u32("stream_id").ok()?;
        reader.u32("topic_id").ok()?;
        let confirmed = PartitionId(reader.u32("partition_id").ok()?);
        let base = Offset(reader.u64("base_offset").ok()?);
        if confirmed == partition {
            found = Some(base);
        }
    }
    reader.finish().ok()?;
    found
}

/// A poll that may wait at the broker (command 106).
pub fn poll_deferred(target: &SendTarget, poll: &Poll) -> Result<Call, ClientError> {
    let mut call = poll_call(Code::PollMessagesDeferred, target, poll)?;
    let wait = poll.wait.min(WAIT_MAX);
    let body = call.body();
    body.put_u64_le(micros(wait));
    body.put_u32_le(1);
    body.put_u32_le(poll.max_bytes);
    body.put_u64_le(micros(wait + POLL_MARGIN));
    Ok(call)
}

/// A poll that answers at once (command 100); `wait` and `max_bytes` do not count.
pub fn poll_now(target: &SendTarget, poll: &Poll) -> Result<Call, ClientError> {
    poll_call(Code::PollMessages, target, poll)
}

fn poll_call(code: Code, target: &SendTarget, poll: &Poll) -> Result<Call, ClientError> {
    let mut call = Call::new(code, 0);
    let body = call.body();
    ANONYMOUS.put(body)?;
    target.stream.as_identifier().put(body, "stream_id")?;
    target.topic.as_identifier().put(body, "topic_id")?;
    put_optional_partition(body, Some(poll.partition));
    poll.strategy.put(body);
    body.put_u32_le(poll.count);
    // Never commits: looking must not move anybody's progress.
    body.put_u8(0);
    Ok(call)
}

/// Takes the answer to a poll apart: its head and its records.
pub fn parse_polled(payload: &Bytes) -> Result<(PollHead, Bytes), ClientError> {
    let mut reader = Reader::new(payload);
    let head = PollHead {
        partition: PartitionId(reader.u32("partition_id")?),
        current_offset: Offset(reader.u64("current_offset")?),
        messages_count: reader.u32("messages_count")?,
        context: reader.context()?,
    };
    debug_assert_eq!(reader.position(), POLL_HEAD_BYTES);
    Ok((head, payload.slice(POLL_HEAD_BYTES..)))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Client {
    /// Asks where a partition is served.
    pub fn route(&mut self, target: &SendTarget, partition: PartitionId) -> Result<Route, ClientError> {
        let mut call = Call::new(Code::GetPartitionRoute, 0);
        target.stream.as_identifier().put(call.body(), "stream_id")?;
        target.topic.as_identifier().put(call.body(), "topic_id")?;
        call.body().put_u32_le(partition.0);
        let answer = self.call(call)?;
        let mut reader = Reader::new(&answer.payload);
        let route = Route {
            incarnation: Incarnation(reader.u64("incarnation")?),
            metadata_op: Op(reader.u64("metadata_op")?),
            view: reader.u32("view")?,
            partitions_count: reader.u32("partitions_count")?,
            primary: ReplicaId(reader.u8("primary_replica")?),
        };
        reader.finish()?;
        Ok(route)
    }

    /// The stored offset of a consumer; `None` when it stored none.
    pub fn consumer_offset(
        &mut self,
        consumer: &Consumer<'_>,
        target: &SendTarget,
        partition: PartitionId,
        context: PartitionContext,
    ) -> Result<Option<StoredOffset>, ClientError> {
        let call = offset_call(Code::GetConsumerOffset, consumer, target, partition)?.with_context(context);
        let answer = self.call(call)?;
        if answer.payload.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(&answer.payload);
        Ok(Some(StoredOffset {
            partition: PartitionId(reader.u32("partition_id")?),
            current: Offset(reader.u64("current_offset")?),
            stored: Offset(reader.u64("stored_offset")?),
        }))
    }

    /// Stores the offset of a consumer.
    pub fn store_consumer_offset(
        &mut self,
        consumer: &Consumer<'_>,
        target: &SendTarget,
        partition: PartitionId,
        context: PartitionContext,
        offset: Offset,
    ) -> Result<(), ClientError> {
        let mut call =
            offset_call(Code::StoreConsumerOffset, consumer, target, partition)?.with_context(context);
        call.body().put_u64_le(offset.0);
        call.body().put_u8(AckLevel::Quorum as u8);
        self.call(call).map(drop)
    }

    /// Forgets the offset of a consumer.
    pub fn delete_consumer_offset(
        &mut self,
        consumer: &Consumer<'_>,
        target: &SendTarget,
        partition: PartitionId,
        context: PartitionContext,
    ) -> Result<(), ClientError> {
        let mut call =
            offset_call(Code::DeleteConsumerOffset, consumer, target, partition)?.with_context(context);
        call.body().put_u8(AckLevel::Quorum as u8);
        self.call(call).map(drop)
    }
}

fn offset_call(
    code: Code,
    consumer: &Consumer<'_>,
    target: &SendTarget,
    partition: PartitionId,
) -> Result<Call, ClientError> {
    let mut call = Call::new(code, 0);
    let body = call.body();
    consumer.put(body)?;
    target.stream.as_identifier().put(body, "stream_id")?;
    target.topic.as_identifier().put(body, "topic_id")?;
    put_optional_partition(body, Some(partition));
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::Micros;
    use laneway_wire::batch::verify_producer_batch;

    fn target() -> SendTarget {
        SendTarget { stream: Name::Id(1), topic: Name::Text("web".into()) }
    }

    #[test]
    fn send_body_holds_its_count_and_a_valid_batch() {
        let mut batch = start_batch(&target(), PartitionId(2)).unwrap();
        batch.push(1, Micros(1_700_000_000_000_000), b"hello", b"").unwrap();
        batch.push(2, Micros(1_700_000_000_000_250), b"hi", b"").unwrap();
        let frame = finish_batch(batch).unwrap().into_frame();
        let body = &frame[HEADER_BYTES..];
        // Identifier 6, name 5, partitioning 6, count 4.
        assert_eq!(body[..4], 21u32.to_le_bytes());
        assert_eq!(body[4..21], [1, 4, 1, 0, 0, 0, 2, 3, b'w', b'e', b'b', 2, 4, 2, 0, 0, 0]);
        assert_eq!(body[21..25], 2u32.to_le_bytes());
        assert_eq!(verify_producer_batch(&body[25..], 2).unwrap().message_count, 2);
    }

    #[test]
    fn deferred_poll_has_the_layout_of_the_protocol() {
        let poll = Poll {
            partition: PartitionId(3),
            strategy: Strategy::Offset(Offset(41)),
            count: 1000,
            max_bytes: 1 << 20,
            wait: Duration::from_secs(5),
        };
        let body = poll_deferred(&target(), &poll).unwrap().into_frame().split_off(HEADER_BYTES);
        let mut expected = vec![1, 1, 4, 0, 0, 0, 0, 1, 4, 1, 0, 0, 0, 2, 3];
        expected.extend(b"web");
        expected.extend([1, 3, 0, 0, 0, 1, 41, 0, 0, 0, 0, 0, 0, 0, 0xe8, 3, 0, 0, 0]);
        expected.extend(5_000_000u64.to_le_bytes());
        expected.extend(1u32.to_le_bytes());
        expected.extend((1u32 << 20).to_le_bytes());
        expected.extend(15_000_000u64.to_le_bytes());
        assert_eq!(body.as_ref(), expected);
        let now = poll_now(&target(), &poll).unwrap().into_frame().split_off(HEADER_BYTES);
        assert_eq!(now.as_ref(), &expected[..expected.len() - 24]);
    }

    #[test]
    fn confirmation_is_optional_and_never_half_read() {
        let mut payload = 1u32.to_le_bytes().to_vec();
        payload.extend([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_confirmation(&payload, PartitionId(3)), Some(Offset(77)));
        assert_eq!(parse_confirmation(&payload, PartitionId(4)), None);
        assert_eq!(parse_confirmation(&[], PartitionId(3)), None);
        assert_eq!(parse_confirmation(&payload[..23], PartitionId(3)), None);
        payload.push(0);
        assert_eq!(parse_confirmation(&payload, PartitionId(3)), None);
    }
}
