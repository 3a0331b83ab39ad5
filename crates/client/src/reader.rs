//! Reads a topic, all partitions or some, over one client.
//!
//! One poll of each partition is on its way. While following, a poll waits at the broker until a message comes, so an
//! idle reader costs neither end anything. Beyond [`WAITING_MAX`] partitions they take turns.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use laneway_wire::batch::records;
use laneway_wire::{Micros, Offset, PartitionContext, PartitionId, Strategy};

use crate::client::{Client, Ticket};
use crate::error::ClientError;
use crate::messages::{self, Poll, PollHead, SendTarget};
use crate::resources::{Name, TopicDetails};

/// Polls that may be on their way at once. Source: wire protocol, section 7.4.
pub const WAITING_MAX: usize = 64;
/// Most messages of one answer.
const COUNT_MAX: u32 = 1000;
/// Most bytes of one answer, unless its first message alone is larger.
const BYTES_MAX: u32 = 1 << 20;

/// Where reading starts, in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this offset.
    Offset(Offset),
    /// At the earliest message.
    First,
    /// This many messages before the end.
    Last(u32),
    /// At the first batch that was appended at or after this time.
    Timestamp(Micros),
}

/// When reading ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// At the messages that were there when reading began.
    Now,
    /// Never: wait for more.
    Stopped,
}

#[derive(Debug)]
struct Cursor {
    partition: PartitionId,
    context: PartitionContext,
    next: Strategy,
    /// Messages to ask for, where the strategy counts from the end.
    count: u32,
    /// First offset that is not read any more; known after the first answer.
    end: Option<u64>,
    waiting: Option<Ticket>,
    is_done: bool,
}

/// One answer: messages of one partition, in order.
#[derive(Clone, Debug)]
pub struct Polled {
    /// Where they are from.
    pub partition: PartitionId,
    /// Highest offset that the partition had at that time; 0 also when it was empty.
    pub current_offset: Offset,
    /// How many there are.
    pub messages_count: u32,
    records: Bytes,
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    pub offset: Offset,
    /// When the broker stored it, microseconds since the epoch.
    pub timestamp: Micros,
    /// When its producer made it, microseconds since the epoch.
    pub origin_timestamp: Micros,
    pub id: u128,
    pub payload: &'a [u8],
    /// Encoded; see `laneway_wire::options`.
    pub user_headers: &'a [u8],
}

impl Polled {
    /// The messages; ends after the first error.
    pub fn messages(&self) -> impl Iterator<Item = Result<Received<'_>, ClientError>> {
        records(&self.records).flat_map(|batch| {
            let (batch, error) = match batch {
                Ok(batch) => (Some(batch), None),
                Err(error) => (None, Some(Err(error.into()))),
            };
            let messages = batch.into_iter().flat_map(|batch| {
                batch.messages().map(move |message| {
                    let message = message?;
                    let offset = batch
                        .offset_of(&message)
                        .ok_or_else(|| ClientError::Protocol { what: "an offset above 64 bits".into() })?;
                    Ok(Received {
                        offset,
                        timestamp: batch.header.base_timestamp,
                        origin_timestamp: batch.origin_timestamp_of(&message),
                        id: message.id,
                        payload: message.payload,
                        user_headers: message.user_headers,
                    })
                })
            });
            messages.chain(error)
        })
    }
}

/// Reads one topic. The client is lent to every call, so one connection can do other things in between.
#[derive(Debug)]
pub struct Reader {
    target: SendTarget,
    until: Until,
    cursors: VecDeque<Cursor>,
}

impl Reader {
    /// Looks the topic up and prepares to read `partitions` of it, or all if the list is empty.
    ///
    /// Errors: [`ClientError::Missing`] when the topic or a partition does not exist.
    pub fn open(
        client: &mut Client,
        stream: &Name,
        topic: &Name,
        partitions: &[PartitionId],
        start: Start,
        until: Until,
    ) -> Result<Self, ClientError> {
        let Some(TopicDetails { partitions: existing, .. }) =
            client.topic(&stream.as_identifier(), &topic.as_identifier())?
        else {
            return Err(ClientError::Missing { what: format!("topic {stream}/{topic}") });
        };
        if let Some(partition) =
            partitions.iter().find(|wanted| existing.iter().all(|other| other.id != **wanted))
        {
            return Err(ClientError::Missing { what: format!("partition {partition} of {stream}/{topic}") });
        }
        let wanted =
            existing.iter().filter(|partition| partitions.is_empty() || partitions.contains(&partition.id));
        let cursors = wanted.map(|partition| {
            let is_empty = partition.messages_count == 0 && partition.current_offset.0 == 0;
            let after_last = if is_empty { 0 } else { partition.current_offset.0.saturating_add(1) };
            let (next, count) = match start {
                Start::Offset(offset) => (Strategy::Offset(offset), COUNT_MAX),
                Start::First => (Strategy::First, COUNT_MAX),
                Start::Timestamp(at) => (Strategy::Timestamp(at.0), COUNT_MAX),
                Start::Last(0) => (Strategy::Offset(Offset(after_last)), COUNT_MAX),
                Start::Last(count) => (Strategy::Last, count),
            };
            let is_done = until == Until::Now && start == Start::Last(0);
            Cursor {
                partition: partition.id,
                context: partition.context,
                next,
                count,
                end: None,
                waiting: None,
                is_done,
            }
        });
        let target = SendTarget { stream: stream.clone(), topic: topic.clone() };
        Ok(Self { target, until, cursors: cursors.collect() })
    }

    /// Whether everything that was to be read has been read.
    pub fn is_done(&self) -> bool {
        self.cursors.iter().all(|cursor| cursor.is_done)
    }

    /// The next messages of some partition. `None` when none came within `wait`, or at the end, see
    /// [`Reader::is_done`].
    pub fn next(&mut self, client: &mut Client, wait: Duration) -> Result<Option<Polled>, ClientError> {
        loop {
            self.ask(client, wait)?;
            let tickets: Vec<Ticket> = self.cursors.iter().filter_map(|cursor| cursor.waiting).collect();
            if tickets.is_empty() {
                return Ok(None);
            }
            // The broker answers a waiting poll when its time is over; more than that is the connection's fault.
            let patience = wait + client.settings().timeout;
            let Some((ticket, answer)) = client.wait_any(&tickets, patience)? else {
                let ticket = *tickets.first().expect("checked above");
                return client.take_or_give_up(ticket, patience).map(|_| None);
            };
            let at =
                self.cursors.iter().position(|cursor| cursor.waiting == Some(ticket)).expect("one of ours");
            // To the back of the queue: partitions take turns.
            let mut cursor = self.cursors.remove(at).expect("found above");
            cursor.waiting = None;
            let noted = answer.and_then(|answer| note(&mut cursor, self.until, &answer.payload));
            self.cursors.push_back(cursor);
            if let Some(polled) = noted? {
                return Ok(Some(polled));
            }
            if self.until == Until::Stopped {
                return Ok(None);
            }
        }
    }

    fn ask(&mut self, client: &mut Client, wait: Duration) -> Result<(), ClientError> {
        let mut waiting = self.cursors.iter().filter(|cursor| cursor.waiting.is_some()).count();
        let wait = if self.until == Until::Now { Duration::ZERO } else { wait };
        for cursor in &mut self.cursors {
            if cursor.is_done || cursor.waiting.is_some() {
                continue;
            }
            if waiting >= WAITING_MAX {
                break;
            }
            let poll = Poll {
                partition: cursor.partition,
                strategy: cursor.next,
                count: cursor.count,
                max_bytes: BYTES_MAX,
                wait,
            };
            let call = messages::poll_deferred(&self.target, &poll)?.with_context(cursor.context);
            cursor.waiting = Some(client.submit(call)?);
            waiting += 1;
        }
        Ok(())
    }
}

/// Moves the cursor behind what came.
fn note(cursor: &mut Cursor, until: Until, payload: &Bytes) -> Result<Option<Polled>, ClientError> {
    let (head, records) = messages::parse_polled(payload)?;
    let PollHead { partition, current_offset, messages_count, .. } = head;
    if partition != cursor.partition {
        return Err(ClientError::Protocol { what: "messages of another partition".into() });
    }
    if until == Until::Now && cursor.end.is_none() {
        cursor.end = Some(current_offset.0.saturating_add(1));
    }
    if messages_count == 0 {
        cursor.is_done = until == Until::Now;
        if cursor.next == Strategy::Last {
            // Nothing to count back from. Asking again in the same way could skip messages that come many at once.
            cursor.next = match current_offset.next() {
                Some(next) if current_offset.0 > 0 => Strategy::Offset(next),
                _ => Strategy::First,
            };
        }
        return Ok(None);
    }
    let polled = Polled { partition, current_offset, messages_count, records };
    let mut last = None;
    let mut found = 0;
    for message in polled.messages() {
        let offset = message?.offset;
        if last.is_some_and(|last: Offset| last.next() != Some(offset)) {
            return Err(ClientError::Protocol { what: format!("offset {offset} out of order") });
        }
        last = Some(offset);
        found += 1;
    }
    let last = last.filter(|_| found == messages_count);
    let last = last
        .ok_or_else(|| ClientError::Protocol { what: "another number of messages than announced".into() })?;
    cursor.next = Strategy::Offset(last.next().unwrap_or(last));
    cursor.count = COUNT_MAX;
    cursor.is_done = cursor.end.is_some_and(|end| last.0.saturating_add(1) >= end);
    Ok(Some(polled))
}
