//! The topic under load: how its messages look, how they are sent, and how they are read back and checked.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use laneway_client::messages::{Poll, SendTarget, parse_polled, poll_deferred};
use laneway_client::{Call, Name, Options};
use laneway_wire::batch::{Batch, Message, records};
use laneway_wire::reply::parse_confirmations;
use laneway_wire::{Code, Offset, PartitionContext, PartitionId, Partitioning, Strategy, request};

use crate::Result;
use crate::connection::{Connection, open_client};

/// Most bytes of one answer: a whole batch of 1000 messages with its headers fits.
const POLL_BYTES_MAX: u32 = 2 << 20;
const POLL_MESSAGES_MAX: u32 = 1000;

pub struct Topic {
    target: SendTarget,
    contexts: Vec<PartitionContext>,
    random: Vec<u8>,
}

impl Topic {
    /// Creates a stream with one topic of default settings.
    pub fn create(address: SocketAddr, name: &str, partitions: u32) -> Result<Self> {
        let mut client = open_client(address)?;
        client.create_stream(name)?;
        let stream = Name::from(name);
        let details = client.create_topic(&stream.as_identifier(), name, partitions, &Options::new())?;
        let contexts = details.partitions.iter().map(|partition| partition.context).collect();
        let mut random = vec![0; 1 << 20];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        Ok(Self { target: SendTarget { stream, topic: Name::from(name) }, contexts, random })
    }

    pub fn partitions(&self) -> usize {
        self.contexts.len()
    }

    /// Payload of message `number` of one producer. Different numbers give different random bytes.
    pub fn payload(&self, producer: usize, number: u64, bytes: usize) -> &[u8] {
        let mixed = (number ^ (producer as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let at = mixed as usize % (self.random.len() - bytes);
        &self.random[at..at + bytes]
    }

    /// Start of a send: room for the header, then everything in front of the batch.
    pub fn start_send(&self, partition: usize, messages: u32) -> Result<BytesMut> {
        let send = request::SendMessages {
            stream: self.target.stream.as_identifier(),
            topic: self.target.topic.as_identifier(),
            partitioning: Partitioning::Partition(PartitionId(partition as u32)),
            messages_count: messages,
            batch_at: 0,
        };
        Ok(Call::of(&send)?.into_frame())
    }

    /// Sends a complete frame; returns the base offset and the frame.
    pub fn send(
        &self,
        connection: &mut Connection,
        partition: usize,
        frame: BytesMut,
    ) -> Result<(u64, BytesMut)> {
        let call = Call::from_frame(Code::SendMessages, frame).with_context(self.contexts[partition]);
        let (answer, frame) = connection.exchange(call)?;
        let confirmations = parse_confirmations(&answer.payload)?;
        let confirmation = confirmations.first().ok_or("a send without confirmation")?;
        if confirmation.partition.0 as usize != partition {
            return Err(format!("partition {} confirmed for {partition}", confirmation.partition).into());
        }
        Ok((confirmation.base_offset.0, frame.try_into_mut().map_err(|_| "the frame is still in use")?))
    }

    /// Reads a partition from its first to its last message and shows each to `check`, with its offset. Fails unless
    /// there are exactly `messages`, at the offsets from 0 on.
    pub fn read_back(
        &self,
        connection: &mut Connection,
        partition: usize,
        messages: u64,
        mut check: impl FnMut(u64, &Batch<'_>, &Message<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut next = 0;
        while next < messages {
            let poll = Poll {
                partition: PartitionId(partition as u32),
                strategy: Strategy::Offset(Offset(next)),
                count: POLL_MESSAGES_MAX,
                max_bytes: POLL_BYTES_MAX,
                wait: Duration::ZERO,
            };
            let call = poll_deferred(&self.target, &poll)?.with_context(self.contexts[partition]);
            let (answer, _) = connection.exchange(call)?;
            let (head, batches) = parse_polled(&answer.payload)?;
            if head.messages_count == 0 || head.current_offset.0 + 1 != messages {
                return Err(format!("partition {partition} has not {messages} messages: {head:?}").into());
            }
            let expected = next + u64::from(head.messages_count);
            for batch in records(&batches) {
                let batch = batch?;
                for message in batch.messages() {
                    let message = message?;
                    if batch.offset_of(&message) != Some(Offset(next)) {
                        return Err(format!("partition {partition}: another offset than {next}").into());
                    }
                    check(next, &batch, &message)?;
                    next += 1;
                }
            }
            if next != expected {
                return Err(format!("partition {partition}: {next} follows, announced {expected}").into());
            }
        }
        Ok(())
    }
}
