//! Compares what the broker holds with what it acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use iggy::prelude::*;

use super::ledger::{Ledger, PartitionLedger, Promises};
use super::producer::{number_of, payload};
use super::reader::read_from;
use super::{connect, consumer, name};

/// Messages before the acknowledged head that the check after each restart reads again. The last check reads all.
const RECENT_MESSAGES: u64 = 500;

/// Checks the newest part of everything, right after a restart and while the clients go on.
pub(crate) async fn check_recent(string: &str, ledger: &Ledger, promised: &Promises) {
    let client = connect(string).await;
    for (partition, promised) in (0u32..).zip(&promised.partitions) {
        let Some(last) = promised.acknowledged.last() else { continue };
        let start = (last.base + last.count).saturating_sub(RECENT_MESSAGES);
        let stored = read_from(&client, partition, start).await;
        // What was read may have been acknowledged since the kill, or be on its way.
        let now = ledger.partition(partition).clone();
        check_partition(partition, start, &stored, promised, &now);
    }
    check_offset(&client, ledger, promised).await;
    check_metadata(&client, ledger, promised).await;
}

/// Checks everything, when no client writes any more.
pub(crate) async fn check_all(string: &str, ledger: &Ledger) {
    let client = connect(string).await;
    let promised = ledger.promises();
    for (partition, promised) in (0u32..).zip(&promised.partitions) {
        let stored = read_from(&client, partition, 0).await;
        check_partition(partition, 0, &stored, promised, promised);
        check_nothing_else(partition, &stored, promised);
    }
    check_offset(&client, ledger, &promised).await;
    check_metadata(&client, ledger, &promised).await;
}

/// Every promised batch that begins at or after `start` lies where the broker said, unchanged, and nothing of what
/// is there lies there twice.
fn check_partition(
    partition: u32,
    start: u64,
    stored: &[IggyMessage],
    promised: &PartitionLedger,
    now: &PartitionLedger,
) {
    let at = |offset: u64| offset.checked_sub(start).and_then(|index| stored.get(index as usize));
    for batch in promised.acknowledged.iter().filter(|batch| batch.base >= start) {
        for step in 0..batch.count {
            let (number, offset) = (batch.first + step, batch.base + step);
            let message = at(offset).unwrap_or_else(|| {
                panic!("partition {partition}: acknowledged message {number} is missing at offset {offset}")
            });
            assert_eq!(
                number_of(message.header.id),
                number,
                "partition {partition}: offset {offset} was reused"
            );
        }
    }
    let bases: Vec<u64> = promised.acknowledged.iter().map(|batch| batch.base).collect();
    assert!(bases.is_sorted(), "partition {partition}: later batches got lower offsets");
    let mut seen = BTreeSet::new();
    for message in stored {
        let (number, offset) = (number_of(message.header.id), message.header.offset);
        assert!(
            seen.insert(number),
            "partition {partition}: message {number} is there twice, again at {offset}"
        );
        assert!(number < now.next, "partition {partition}: message {number} at {offset} was never sent");
        assert!(
            message.payload == payload(partition, number),
            "partition {partition}: message {number} at {offset} changed"
        );
    }
}

/// What is there was acknowledged, or its send ended without a proof.
fn check_nothing_else(partition: u32, stored: &[IggyMessage], promised: &PartitionLedger) {
    let batches: BTreeMap<u64, u64> =
        promised.acknowledged.iter().map(|batch| (batch.first, batch.first + batch.count)).collect();
    for message in stored {
        let number = number_of(message.header.id);
        let acknowledged = batches.range(..=number).next_back().is_some_and(|(_, end)| number < *end);
        let uncertain = promised.uncertain.iter().any(|range| range.contains(&number));
        assert!(
            acknowledged || uncertain,
            "partition {partition}: message {number} was refused and is there"
        );
    }
}

async fn check_offset(client: &IggyClient, ledger: &Ledger, promised: &Promises) {
    let Some(acknowledged) = promised.offsets.acknowledged else { return };
    let stored = client
        .get_consumer_offset(&consumer(), &name(), &name(), Some(0))
        .await
        .expect("get the stored offset")
        .map(|info| info.stored_offset);
    let sent = ledger.offsets().sent;
    assert!(
        stored >= Some(acknowledged) && stored <= sent,
        "stored offset {stored:?}, acknowledged {acknowledged}, highest sent {sent:?}"
    );
}

async fn check_metadata(client: &IggyClient, ledger: &Ledger, promised: &Promises) {
    let listed: BTreeMap<String, u32> = client
        .get_streams()
        .await
        .expect("list the streams")
        .into_iter()
        .map(|stream| (stream.name, stream.id))
        .collect();
    let still_created = ledger.metadata().created.clone();
    for (name, id) in promised.metadata.created.iter().filter(|(name, _)| still_created.contains_key(*name)) {
        assert_eq!(listed.get(name), Some(id), "the acknowledged stream {name}");
    }
    for name in &promised.metadata.deleted {
        assert!(!listed.contains_key(name), "the deleted stream {name} is back");
    }
}
