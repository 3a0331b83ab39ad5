//! The high-level readers: a consumer of one partition, and a reader of several, which fetches them together.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use iggy::prelude::*;

use crate::suite::support::{
    TopicNames, connect, consumer_named, create_topic, numbered_messages, numbered_payload, run, send,
};

/// Status of a command that the broker does not offer.
const FEATURE_UNAVAILABLE: u32 = 5;
/// How long a reader may stay silent. It reports a refused fetch only after six tries, which take it 31 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);

fn short_wait() -> PollOptions {
    PollOptions { count: 40, ..PollOptions::wait(Duration::from_millis(500).into()) }
}

async fn consume(consumer: &mut IggyConsumer, expected: std::ops::Range<u64>) {
    for number in expected {
        let received = tokio::time::timeout(SILENCE_MAX, consumer.next())
            .await
            .unwrap_or_else(|_| panic!("no message {number} after {SILENCE_MAX:?}"))
            .expect("the stream does not end")
            .unwrap_or_else(|e| panic!("message {number}: {e}"));
        assert_eq!(received.message.header.offset, number);
        assert_eq!(received.message.payload, numbered_payload(number).as_bytes());
        assert_eq!(received.partition_id, 1);
    }
}

async fn consumer_of_partition_one(client: &IggyClient, commit: CommitPolicy) -> IggyConsumer {
    let mut consumer = client
        .consumer("reader", "t", "t")
        .expect("valid names")
        .partitions([1])
        .poll_options(PollOptions { commit, ..short_wait() })
        .build();
    consumer.init().await.expect("start the consumer");
    consumer
}

async fn stored_offset(client: &IggyClient, names: &TopicNames) -> Option<u64> {
    client
        .get_consumer_offset(&consumer_named("reader"), &names.stream, &names.topic, Some(1))
        .await
        .expect("get the offset")
        .map(|info| info.stored_offset)
}

#[test]
fn consumer_of_one_partition_follows_the_appends() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 3).await;
        send(&client, &names, 1, &mut numbered_messages(0, 100)).await;
        let mut consumer = consumer_of_partition_one(&client, CommitPolicy::Manual).await;
        consume(&mut consumer, 0..100).await;
        let writer = connect(broker).await;
        for first in [100, 105, 110] {
            send(&writer, &names, 1, &mut numbered_messages(first, 5)).await;
            consume(&mut consumer, first..first + 5).await;
        }
        consumer.shutdown().await.expect("shut down");
        assert_eq!(stored_offset(&client, &names).await, None);
    });
}

#[test]
fn consumer_that_commits_goes_on_where_it_stopped() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 3).await;
        send(&client, &names, 1, &mut numbered_messages(0, 100)).await;
        let auto = CommitPolicy::Auto(AutoCommit::default());
        for (commit, read) in [(CommitPolicy::OnRead, 0..35), (auto, 35..60), (CommitPolicy::OnRead, 60..100)]
        {
            let mut consumer = consumer_of_partition_one(&client, commit).await;
            consume(&mut consumer, read.clone()).await;
            // Shutting down moves the stored offset back to the last message that was handed over.
            consumer.shutdown().await.expect("shut down");
            assert_eq!(stored_offset(&client, &names).await, Some(read.end - 1), "after {commit:?}");
        }
    });
}

#[test]
fn reader_of_three_partitions_reads_all_or_says_why_not() {
    const PER_PARTITION: u64 = 50;
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 3).await;
        for partition in 0..3 {
            send(&client, &names, partition, &mut numbered_messages(0, PER_PARTITION)).await;
        }
        let mut reader = client
            .reader(&names.stream, &names.topic, &consumer_named("reader"))
            .partitions(0..3)
            .options(short_wait())
            .build()
            .await
            .expect("build the reader");
        let mut read: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        while read.values().map(Vec::len).sum::<usize>() < 3 * PER_PARTITION as usize {
            let next =
                tokio::time::timeout(SILENCE_MAX, reader.next()).await.expect("the reader is not silent");
            match next {
                Ok(batch) => {
                    read.entry(batch.partition_id)
                        .or_default()
                        .extend(super::support::offsets(&batch.messages));
                }
                Err(e) if e.error.as_code() == FEATURE_UNAVAILABLE => {
                    println!("grouped fetch is refused with status 5, as long as it is not there: {e}");
                    assert!(read.is_empty(), "refused after messages were read");
                    return;
                }
                Err(e) => panic!("read: {e} (status {})", e.error.as_code()),
            }
        }
        println!("grouped fetch reads");
        let expected: Vec<u64> = (0..PER_PARTITION).collect();
        assert!((0..3).all(|partition| read[&partition] == expected), "{read:?}");
        reader.close().await.expect("close");
    });
}
