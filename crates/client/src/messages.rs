//! Sending, polling, routes and stored offsets: the calls on partitions. Source: wire protocol, sections 5.5 and 5.6.

use std::time::Duration;

use bytes::Bytes;
use laneway_wire::batch::BatchBuilder;
use laneway_wire::primitive::AckLevel;
use laneway_wire::reply::{ConsumerOffset, PartitionRoute, PollReply, parse_confirmations, read_optional};
use laneway_wire::{
    Code, Consumer, ConsumerKind, HEADER_BYTES, Identifier, Offset, PartitionContext, PartitionId,
    Partitioning, Strategy, request,
};

pub use laneway_wire::reply::PollHead;

use crate::client::Client;
use crate::error::ClientError;
use crate::resources::Name;
use crate::session::Call;

/// What a broker needs beyond the wait before it must have answered a deferred poll.
const POLL_MARGIN: Duration = Duration::from_secs(10);
/// Longest wait of a deferred poll. Source: wire protocol, section 5.6.
pub const WAIT_MAX: Duration = Duration::from_secs(600);
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

/// What requests to a partition carry, by its route.
pub fn context_of(route: &PartitionRoute) -> PartitionContext {
    PartitionContext { incarnation: route.incarnation, metadata_op: route.metadata_op, ..Default::default() }
}

/// Starts a SendMessages frame: header, metadata whose count follows, and the batch that fills.
pub(crate) fn start_batch(target: &SendTarget, partition: PartitionId) -> Result<BatchBuilder, ClientError> {
    let send = request::SendMessages {
        stream: target.stream.as_identifier(),
        topic: target.topic.as_identifier(),
        partitioning: Partitioning::Partition(partition),
        messages_count: 0,
        batch_at: 0,
    };
    Ok(BatchBuilder::append_to(Call::of(&send)?.into_frame()))
}

/// Ends the frame of [`start_batch`].
pub(crate) fn finish_batch(batch: BatchBuilder) -> Result<Call, ClientError> {
    let count = batch.message_count();
    let mut frame = batch.finish()?;
    // The count stands last in the metadata, right in front of the batch.
    let body = frame.get(HEADER_BYTES..).unwrap_or_default();
    let batch_at = HEADER_BYTES + request::SendMessages::parse(body)?.batch_at;
    frame
        .get_mut(batch_at - 4..batch_at)
        .expect("start_batch wrote it")
        .copy_from_slice(&count.to_le_bytes());
    Ok(Call::from_frame(Code::SendMessages, frame))
}

/// Base offset of the batch that was sent to `partition`; none if the broker did not confirm one, which is no failure.
pub(crate) fn parse_confirmation(payload: &[u8], partition: PartitionId) -> Option<Offset> {
    let confirmations = parse_confirmations(payload).ok()?;
    let confirmation = confirmations.iter().find(|confirmation| confirmation.partition == partition);
    confirmation.map(|confirmation| confirmation.base_offset)
}

/// A poll that may wait at the broker (command 106).
pub fn poll_deferred(target: &SendTarget, poll: &Poll) -> Result<Call, ClientError> {
    let wait = poll.wait.min(WAIT_MAX);
    Call::of(&request::DeferredPoll {
        poll: poll_request(target, poll),
        wait_us: micros(wait),
        min_count: 1,
        max_bytes: poll.max_bytes,
        request_timeout_us: micros(wait + POLL_MARGIN),
    })
}

/// A poll that answers at once (command 100); `wait` and `max_bytes` do not count.
pub fn poll_now(target: &SendTarget, poll: &Poll) -> Result<Call, ClientError> {
    Call::of(&poll_request(target, poll))
}

fn poll_request<'a>(target: &'a SendTarget, poll: &Poll) -> request::PollMessages<'a> {
    request::PollMessages {
        consumer: ANONYMOUS,
        stream: target.stream.as_identifier(),
        topic: target.topic.as_identifier(),
        partition: Some(poll.partition),
        strategy: poll.strategy,
        count: poll.count,
        // Looking must not move anybody's progress.
        auto_commit: false,
    }
}

/// Takes the answer to a poll apart: its head and its records.
pub fn parse_polled(payload: &Bytes) -> Result<(PollHead, Bytes), ClientError> {
    let PollReply { head, records } = PollReply::parse(payload)?;
    Ok((head, payload.slice_ref(records)))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Client {
    /// Asks where a partition is served.
    pub fn route(
        &mut self,
        target: &SendTarget,
        partition: PartitionId,
    ) -> Result<PartitionRoute, ClientError> {
        let (stream, topic) = (target.stream.as_identifier(), target.topic.as_identifier());
        let answer = self.call(Call::of(&request::GetPartitionRoute { stream, topic, partition })?)?;
        Ok(PartitionRoute::parse(&answer.payload)?)
    }

    /// The stored offset of a consumer; `None` when it stored none.
    pub fn consumer_offset(
        &mut self,
        consumer: &Consumer<'_>,
        target: &SendTarget,
        partition: PartitionId,
        context: PartitionContext,
    ) -> Result<Option<ConsumerOffset>, ClientError> {
        let request = request::GetConsumerOffset {
            consumer: *consumer,
            stream: target.stream.as_identifier(),
            topic: target.topic.as_identifier(),
            partition: Some(partition),
        };
        let answer = self.call(Call::of(&request)?.with_context(context))?;
        Ok(read_optional(&answer.payload)?)
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
        let request = request::StoreConsumerOffset {
            consumer: *consumer,
            stream: target.stream.as_identifier(),
            topic: target.topic.as_identifier(),
            partition: Some(partition),
            offset,
            ack: AckLevel::Quorum,
        };
        self.call(Call::of(&request)?.with_context(context)).map(drop)
    }

    /// Forgets the offset of a consumer.
    pub fn delete_consumer_offset(
        &mut self,
        consumer: &Consumer<'_>,
        target: &SendTarget,
        partition: PartitionId,
        context: PartitionContext,
    ) -> Result<(), ClientError> {
        let request = request::DeleteConsumerOffset {
            consumer: *consumer,
            stream: target.stream.as_identifier(),
            topic: target.topic.as_identifier(),
            partition: Some(partition),
            ack: AckLevel::Quorum,
        };
        self.call(Call::of(&request)?.with_context(context)).map(drop)
    }
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
