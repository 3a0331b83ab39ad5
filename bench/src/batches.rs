//! Workload a: large batches, one producer and later one consumer for each partition.

use std::time::Instant;

use bytes::BytesMut;
use laneway_wire::batch::{BATCH_HEADER_BYTES, BatchBuilder, stamp};
use laneway_wire::{Micros, Offset, PartitionId};

use crate::Result;
use crate::connection::Connection;
use crate::latency::Latencies;
use crate::process::Broker;
use crate::topic::Topic;
use crate::workers::{self, Taken};

pub const MESSAGES: u32 = 1000;
pub const PAYLOAD_BYTES: usize = 1000;
/// Payload bytes of one batch.
pub const BATCH_BYTES: u64 = MESSAGES as u64 * PAYLOAD_BYTES as u64;
/// Encoded batches that a producer sends in turn. Each send gets a time of its own, see [`origin`].
const VARIANTS: u64 = 4;
/// `origin_timestamp` in the batch header, behind which the base offset and other fields are 0 from a producer.
const ORIGIN_AT: std::ops::Range<usize> = 24..32;

/// Producer time of a batch: names its place in the partition, so that no two batches are interchangeable.
fn origin(batch: u64) -> u64 {
    1_700_000_000_000_000 + batch
}

pub struct Produced {
    pub taken: Taken,
    pub latencies: Latencies,
    pub retries: u64,
}

/// Sends `batches` to each partition.
pub fn produce(broker: &Broker, topic: &Topic, batches: u64) -> Result<Produced> {
    let mut states = Vec::new();
    for partition in 0..topic.partitions() {
        let frames: Result<Vec<_>> = (0..VARIANTS).map(|variant| encode(topic, partition, variant)).collect();
        states.push((Connection::open(broker.address())?, frames?));
    }
    let (taken, done) = workers::run(broker, states, |partition, (mut connection, mut frames)| {
        let batch_at = topic.start_send(partition, MESSAGES)?.len();
        let mut latencies = Latencies::default();
        for batch in 0..batches {
            let mut frame = std::mem::take(&mut frames[(batch % VARIANTS) as usize]);
            let bytes = &mut frame[batch_at..];
            bytes[ORIGIN_AT].copy_from_slice(&origin(batch).to_le_bytes());
            // Partition, offset and time stay those of a producer; what is wanted is the checksum of the batch.
            stamp(bytes, PartitionId(0), Offset(0), Micros(0))?;
            let since = Instant::now();
            let (base, frame) = topic.send(&mut connection, partition, frame)?;
            latencies.push(since.elapsed());
            if base != batch * u64::from(MESSAGES) {
                return Err(format!("partition {partition}: batch {batch} at offset {base}").into());
            }
            frames[(batch % VARIANTS) as usize] = frame;
        }
        Ok((latencies, connection.retries()))
    })?;
    let mut produced = Produced { taken, latencies: Latencies::default(), retries: 0 };
    for (latencies, retries) in done {
        produced.latencies.extend(latencies);
        produced.retries += retries;
    }
    Ok(produced)
}

/// Reads everything back and compares it.
pub fn consume(broker: &Broker, topic: &Topic, batches: u64) -> Result<Taken> {
    let connections: Result<Vec<_>> =
        (0..topic.partitions()).map(|_| Connection::open(broker.address())).collect();
    let (taken, _) = workers::run(broker, connections?, |partition, mut connection| {
        let messages = batches * u64::from(MESSAGES);
        topic.read_back(&mut connection, partition, messages, |offset, batch, message| {
            let (number, index) = (offset / u64::from(MESSAGES), offset % u64::from(MESSAGES));
            let expected = payload(topic, partition, number % VARIANTS, index);
            if batch.origin_timestamp_of(message).0 != origin(number) || message.payload != expected {
                return Err(format!("partition {partition}, offset {offset}: another message").into());
            }
            Ok(())
        })
    })?;
    Ok(taken)
}

fn payload(topic: &Topic, partition: usize, variant: u64, index: u64) -> &[u8] {
    topic.payload(partition, variant * u64::from(MESSAGES) + index, PAYLOAD_BYTES)
}

fn encode(topic: &Topic, partition: usize, variant: u64) -> Result<BytesMut> {
    let frame = topic.start_send(partition, MESSAGES)?;
    let start = frame.len();
    let mut batch = BatchBuilder::append_to(frame);
    for index in 0..u64::from(MESSAGES) {
        let id = u128::from(variant + 1) << 64 | u128::from(index);
        batch.push(id, Micros(origin(0)), payload(topic, partition, variant, index), &[])?;
    }
    let frame = batch.finish()?;
    assert!(frame.len() > start + BATCH_HEADER_BYTES, "messages follow the header");
    Ok(frame)
}
