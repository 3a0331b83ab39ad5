use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use iggy::prelude::*;

use super::ledger::{Acknowledged, Ledger};
use super::random::Random;
use super::{connect, consumer, name};

/// Most messages of one batch.
const BATCH_MAX: u64 = 20;
/// Most bytes of an ordinary payload.
const PAYLOAD_BYTES_MAX: u64 = 2_000;
/// One in so many messages is large.
const LARGE_ONE_IN: u64 = 200;
const LARGE_BYTES: usize = 150_000;

/// Sends batch after batch to one partition and writes down what it is told.
pub(crate) async fn produce(
    string: String,
    partition: u32,
    mut random: Random,
    ledger: Arc<Ledger>,
    stopping: Arc<AtomicBool>,
) {
    let partitioning = Partitioning::partition_id(partition);
    let mut client = connect(&string).await;
    while !stopping.load(Ordering::SeqCst) {
        let count = random.below(BATCH_MAX) + 1;
        let first = {
            let mut ledger = ledger.partition(partition);
            ledger.next += count;
            ledger.next - count
        };
        let mut messages: Vec<_> = (first..first + count).map(|number| message(partition, number)).collect();
        match client.send_messages(&name(), &name(), &partitioning, &mut messages).await {
            Ok(sent) => {
                let base = sent.confirmations.first().expect("a confirmation names the place").base_offset;
                ledger.partition(partition).acknowledged.push(Acknowledged { first, count, base });
            }
            Err(e) => {
                println!(
                    "partition {partition}: messages {first}+{count} without a proof: {e} ({})",
                    e.as_code()
                );
                ledger.partition(partition).uncertain.push(first..first + count);
                // The lane of the old client stays blocked by the operation without an outcome.
                client = reconnect(&string, &stopping).await;
            }
        }
    }
}

/// Stores ascending offsets of partition 0.
pub(crate) async fn store_offsets(string: String, ledger: Arc<Ledger>, stopping: Arc<AtomicBool>) {
    let mut client = connect(&string).await;
    while !stopping.load(Ordering::SeqCst) {
        let head = ledger.partition(0).acknowledged.last().map(|batch| batch.base + batch.count - 1);
        let Some(offset) = head.filter(|head| ledger.offsets().sent.is_none_or(|sent| sent < *head)) else {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        ledger.offsets().sent = Some(offset);
        match client.store_consumer_offset(&consumer(), &name(), &name(), Some(0), offset).await {
            Ok(()) => {
                let mut ledger = ledger.offsets();
                ledger.acknowledged = Some(offset);
                ledger.stores += 1;
            }
            Err(e) => {
                println!("offset {offset} without a proof: {e} ({})", e.as_code());
                client = reconnect(&string, &stopping).await;
            }
        }
    }
}

/// A new client, as soon as the broker lets one in.
pub(crate) async fn reconnect(string: &str, stopping: &AtomicBool) -> IggyClient {
    loop {
        let client = IggyClient::from_connection_string(string).expect("a valid connection string");
        match client.connect().await {
            Ok(()) => return client,
            Err(e) => assert!(!stopping.load(Ordering::SeqCst), "cannot connect at the end: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Message `number` of the producer of `partition`; its payload depends on both and on nothing else.
fn message(partition: u32, number: u64) -> IggyMessage {
    let payload = payload(partition, number);
    IggyMessage::builder().id(id_of(number)).payload(payload).build().expect("a valid message")
}

/// Message id of message `number`. The id 0 would be replaced by the client.
pub(crate) fn id_of(number: u64) -> u128 {
    u128::from(number) + 1
}

/// Inverse of [`id_of`].
pub(crate) fn number_of(id: u128) -> u64 {
    u64::try_from(id - 1).expect("an id that was sent")
}

pub(crate) fn payload(partition: u32, number: u64) -> Bytes {
    let mut random = Random::new((u64::from(partition) << 48) ^ number);
    let length = if random.below(LARGE_ONE_IN) == 0 {
        LARGE_BYTES
    } else {
        random.below(PAYLOAD_BYTES_MAX) as usize + 1
    };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.below(u64::MAX).to_le_bytes());
    }
    bytes.truncate(length);
    Bytes::from(bytes)
}
