//! Sends messages to a topic in batches, several partitions at a time.
//!
//! At most one batch of a partition is on its way, as with other clients: were a second one sent before the first is
//! acknowledged, a refusal of the first alone would exchange their order. While a batch travels the next one fills, so
//! the slower the broker answers, the larger the batches get.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use laneway_wire::batch::{BATCH_HEADER_BYTES, BatchBuilder, MESSAGE_HEADER_BYTES};
use laneway_wire::{Micros, Offset, PartitionContext, PartitionId};

use crate::client::{Client, Ticket};
use crate::error::ClientError;
use crate::messages::{self, SendTarget};
use crate::resources::{Name, TopicDetails};

/// Bytes of messages that may wait for their acknowledgement, over all partitions. Room for one largest message.
const HELD_BYTES_MAX: usize = 64 << 20;

/// When a batch is full.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most messages of one batch, at least 1.
    pub messages: u32,
    /// Bytes above which a batch takes no further message. One message alone may be larger.
    pub bytes: usize,
    /// Batches that may be on their way at the same time, over all partitions, at least 1.
    pub in_flight: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { messages: 1000, bytes: 1 << 20, in_flight: 32 }
    }
}

/// A batch that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Where it is stored.
    pub partition: PartitionId,
    /// Offset of its first message; none if the broker did not say.
    pub base: Option<Offset>,
    /// Messages of the batch.
    pub messages: u32,
    /// Bytes of the batch on the wire.
    pub bytes: usize,
    /// From the moment it was given to the connection to its acknowledgement.
    pub latency: Duration,
}

/// One partition: the batch that fills, and the one that travels.
#[derive(Debug)]
struct Lane {
    context: PartitionContext,
    filling: Option<BatchBuilder>,
    travelling: Option<Travelling>,
}

#[derive(Clone, Copy, Debug)]
struct Travelling {
    ticket: Ticket,
    messages: u32,
    bytes: usize,
    since: Instant,
}

/// Sends to one topic over one client. Drop it or take the client back with [`Producer::into_client`]; what was not
/// flushed is not sent.
#[derive(Debug)]
pub struct Producer {
    client: Client,
    target: SendTarget,
    lanes: BTreeMap<PartitionId, Lane>,
    limits: BatchLimits,
    acknowledged: VecDeque<Acknowledged>,
    /// Bytes of messages that were pushed and are not acknowledged.
    held_bytes: usize,
}

impl Producer {
    /// Looks the topic up.
    ///
    /// Errors: [`ClientError::Missing`] when it does not exist.
    pub fn open(
        mut client: Client,
        stream: &Name,
        topic: &Name,
        limits: BatchLimits,
    ) -> Result<Self, ClientError> {
        assert!(limits.messages > 0 && limits.in_flight > 0, "limits that let nothing through");
        let Some(TopicDetails { partitions, .. }) =
            client.topic(&stream.as_identifier(), &topic.as_identifier())?
        else {
            return Err(ClientError::Missing { what: format!("topic {stream}/{topic}") });
        };
        let lanes = partitions
            .iter()
            .map(|partition| {
                (partition.id, Lane { context: partition.context, filling: None, travelling: None })
            })
            .collect();
        let target = SendTarget { stream: stream.clone(), topic: topic.clone() };
        Ok(Self { client, target, lanes, limits, acknowledged: VecDeque::new(), held_bytes: 0 })
    }

    /// Number of partitions of the topic.
    pub fn partitions(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// Whether the topic has this partition.
    pub fn has_partition(&self, partition: PartitionId) -> bool {
        self.lanes.contains_key(&partition)
    }

    /// The client behind it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Gives the client back.
    pub fn into_client(self) -> Client {
        self.client
    }

    /// Messages in the batch of a partition that fills.
    pub fn filling(&self, partition: PartitionId) -> u32 {
        self.lanes
            .get(&partition)
            .and_then(|lane| lane.filling.as_ref())
            .map_or(0, BatchBuilder::message_count)
    }

    /// Whether the batch of a partition is full: the next message begins another.
    pub fn is_filled(&self, partition: PartitionId) -> bool {
        self.is_full(partition, MESSAGE_HEADER_BYTES + 1)
    }

    /// Adds a message to the batch of its partition. When that is full and the previous one still travels, waits for
    /// its acknowledgement: a slow broker slows its producers.
    ///
    /// `id`: the message's identity, not 0. `timestamp`: the producer's time of it.
    pub fn push(
        &mut self,
        partition: PartitionId,
        id: u128,
        timestamp: Micros,
        payload: &[u8],
        user_headers: &[u8],
    ) -> Result<(), ClientError> {
        let message_bytes = MESSAGE_HEADER_BYTES + payload.len() + user_headers.len();
        if self.is_full(partition, message_bytes) {
            self.send(partition)?;
        }
        let missing = || ClientError::Missing { what: format!("partition {partition}") };
        let lane = self.lanes.get_mut(&partition).ok_or_else(missing)?;
        let mut filling = match lane.filling.take() {
            Some(filling) => filling,
            None => messages::start_batch(&self.target, partition)?,
        };
        let result = filling.push(id, timestamp, payload, user_headers);
        let is_free = lane.travelling.is_none();
        if filling.message_count() > 0 {
            lane.filling = Some(filling);
        }
        result?;
        if self.is_filled(partition) && is_free && self.in_flight() < self.limits.in_flight {
            self.send(partition)?;
        }
        // Many partitions with a batch each add up.
        self.held_bytes += message_bytes;
        if self.held_bytes > HELD_BYTES_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends every batch whose partition is free, without waiting for anything. For inputs that pause.
    pub fn send_ready(&mut self) -> Result<(), ClientError> {
        let ready: Vec<PartitionId> = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.filling.is_some() && lane.travelling.is_none())
            .map(|(partition, _)| *partition)
            .collect();
        for partition in ready {
            if self.in_flight() >= self.limits.in_flight {
                break;
            }
            self.send(partition)?;
        }
        self.collect_finished(Duration::ZERO)?;
        Ok(())
    }

    /// Sends everything and waits until all of it is acknowledged.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        let partitions: Vec<PartitionId> = self.lanes.keys().copied().collect();
        for partition in &partitions {
            self.send(*partition)?;
        }
        while self.in_flight() > 0 {
            self.await_one(None)?;
        }
        Ok(())
    }

    /// Batches on their way.
    pub fn in_flight(&self) -> usize {
        self.lanes.values().filter(|lane| lane.travelling.is_some()).count()
    }

    /// The next acknowledgement that has arrived; those of one partition come in the order of their batches.
    pub fn poll_acknowledged(&mut self) -> Option<Acknowledged> {
        self.acknowledged.pop_front()
    }

    /// Waits up to `patience` for some batch to be acknowledged; `false` if none was, or none travels.
    pub fn await_acknowledged(&mut self, patience: Duration) -> Result<bool, ClientError> {
        self.collect_finished(patience)
    }

    fn is_full(&self, partition: PartitionId, message_bytes: usize) -> bool {
        self.lanes.get(&partition).and_then(|lane| lane.filling.as_ref()).is_some_and(|filling| {
            let bytes = filling.bytes();
            let has_messages = bytes > BATCH_HEADER_BYTES;
            filling.message_count() >= self.limits.messages
                || (has_messages && bytes.saturating_add(message_bytes) > self.limits.bytes)
        })
    }

    /// Puts the batch of a partition on its way, once its previous one is acknowledged and the window has room.
    fn send(&mut self, partition: PartitionId) -> Result<(), ClientError> {
        if self.filling(partition) == 0 {
            return Ok(());
        }
        while self.lanes.get(&partition).is_some_and(|lane| lane.travelling.is_some()) {
            self.await_one(Some(partition))?;
        }
        while self.in_flight() >= self.limits.in_flight {
            self.await_one(None)?;
        }
        let Some(lane) = self.lanes.get_mut(&partition) else { return Ok(()) };
        let Some(batch) = lane.filling.take() else { return Ok(()) };
        let (messages, bytes) = (batch.message_count(), batch.bytes());
        let call = messages::finish_batch(batch)?.with_context(lane.context);
        let ticket = self.client.submit(call)?;
        lane.travelling = Some(Travelling { ticket, messages, bytes, since: Instant::now() });
        self.client.transmit();
        Ok(())
    }

    /// Waits until one partition is free, or, without one, until the batch that travels longest is acknowledged. Takes
    /// every other acknowledgement as it comes, so that no latency counts the time of another batch.
    fn await_one(&mut self, partition: Option<PartitionId>) -> Result<(), ClientError> {
        let longest = self
            .lanes
            .iter()
            .filter(|(id, _)| partition.is_none_or(|wanted| wanted == **id))
            .filter_map(|(id, lane)| {
                lane.travelling.map(|travelling| (travelling.since, *id, travelling.ticket))
            })
            .min_by_key(|(since, id, _)| (*since, *id));
        let Some((since, partition, ticket)) = longest else { return Ok(()) };
        let timeout = self.client.settings().timeout;
        while self.lanes.get(&partition).is_some_and(|lane| lane.travelling.is_some()) {
            let patience = timeout.saturating_sub(since.elapsed());
            if !self.collect_finished(patience)? && patience.is_zero() {
                // The end of patience: the client knows whether the batch may be stored.
                self.client.take_or_give_up(ticket, timeout)?;
            }
        }
        Ok(())
    }

    fn collect_finished(&mut self, patience: Duration) -> Result<bool, ClientError> {
        let mut any = false;
        loop {
            let travelling: Vec<(Ticket, PartitionId, Travelling)> = self
                .lanes
                .iter()
                .filter_map(|(id, lane)| {
                    lane.travelling.map(|travelling| (travelling.ticket, *id, travelling))
                })
                .collect();
            if travelling.is_empty() {
                return Ok(any);
            }
            let tickets: Vec<Ticket> = travelling.iter().map(|(ticket, ..)| *ticket).collect();
            let patience = if any { Duration::ZERO } else { patience };
            let Some((ticket, answer)) = self.client.wait_any(&tickets, patience)? else { return Ok(any) };
            if let Some((_, partition, travelling)) =
                travelling.into_iter().find(|(other, ..)| *other == ticket)
            {
                self.note(partition, travelling, answer)?;
                any = true;
            }
        }
    }

    fn note(
        &mut self,
        partition: PartitionId,
        travelling: Travelling,
        answer: Result<crate::session::Answer, ClientError>,
    ) -> Result<(), ClientError> {
        if let Some(lane) = self.lanes.get_mut(&partition) {
            lane.travelling = None;
        }
        let base = messages::parse_confirmation(&answer?.payload, partition);
        let Travelling { messages, bytes, since, .. } = travelling;
        self.held_bytes = self.held_bytes.saturating_sub(bytes - BATCH_HEADER_BYTES);
        self.acknowledged.push_back(Acknowledged {
            partition,
            base,
            messages,
            bytes,
            latency: since.elapsed(),
        });
        Ok(())
    }
}
