//! Workloads b and c: connections that each send one small message and wait for its acknowledgement.

use std::time::{Duration, Instant};

use laneway_wire::Micros;
use laneway_wire::batch::BatchBuilder;

use crate::Result;
use crate::connection::Connection;
use crate::latency::Latencies;
use crate::process::Broker;
use crate::topic::Topic;
use crate::workers::{self, Taken};

const PAYLOAD_BYTES: usize = 100;

pub struct Sent {
    pub taken: Taken,
    pub latencies: Latencies,
    pub retries: u64,
    /// Messages of each connection.
    counts: Vec<u64>,
}

/// Connection `n` sends to partition `n` modulo their number, for `time`.
pub fn send(broker: &Broker, topic: &Topic, connections: usize, time: Duration) -> Result<Sent> {
    let states: Result<Vec<_>> = (0..connections).map(|_| Connection::open(broker.address())).collect();
    let (taken, done) = workers::run(broker, states?, |producer, mut connection| {
        let partition = producer % topic.partitions();
        let (mut latencies, mut number, mut last) = (Latencies::default(), 0, None);
        let start = Instant::now();
        while start.elapsed() < time {
            let mut batch = BatchBuilder::append_to(topic.start_send(partition, 1)?);
            let payload = topic.payload(producer, number, PAYLOAD_BYTES);
            batch.push(id(producer, number), Micros(number + 1), payload, &[])?;
            let frame = batch.finish()?;
            let since = Instant::now();
            let (base, _) = topic.send(&mut connection, partition, frame)?;
            latencies.push(since.elapsed());
            if last.is_some_and(|last| base <= last) {
                return Err(format!("connection {producer}: offset {base} after {last:?}").into());
            }
            last = Some(base);
            number += 1;
        }
        Ok((latencies, number, connection.retries()))
    })?;
    let mut sent = Sent { taken, latencies: Latencies::default(), retries: 0, counts: Vec::new() };
    for (latencies, count, retries) in done {
        sent.latencies.extend(latencies);
        sent.counts.push(count);
        sent.retries += retries;
    }
    Ok(sent)
}

/// Reads everything back: each producer's messages are all there, in order, and nothing else is.
pub fn verify(broker: &Broker, topic: &Topic, sent: &Sent) -> Result<()> {
    let mut connection = Connection::open(broker.address())?;
    let mut next = vec![0; sent.counts.len()];
    for partition in 0..topic.partitions() {
        let total = sent.counts.iter().skip(partition).step_by(topic.partitions()).sum();
        topic.read_back(&mut connection, partition, total, |offset, _, message| {
            let producer = ((message.id >> 64) as usize).wrapping_sub(1);
            let number = *next.get(producer).ok_or("a message that nobody sent")?;
            let expected = topic.payload(producer, number, PAYLOAD_BYTES);
            let is_right = producer % topic.partitions() == partition
                && message.id == id(producer, number)
                && message.payload == expected;
            if !is_right {
                return Err(format!("partition {partition}, offset {offset}: another message").into());
            }
            next[producer] += 1;
            Ok(())
        })?;
    }
    if next != sent.counts {
        return Err("acknowledged messages are missing".into());
    }
    Ok(())
}

fn id(producer: usize, number: u64) -> u128 {
    (producer as u128 + 1) << 64 | u128::from(number)
}
