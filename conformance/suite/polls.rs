//! Polling one partition: where each strategy starts, what the limits cut, and waiting for messages.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use iggy::prelude::*;

use crate::suite::support::{
    TopicNames, anonymous, check_numbered, check_refused, connect, consumer_named, count, create_topic,
    named, numbered_messages, offsets, poll, run, send,
};

/// Batches and messages per batch of [`ten_batches`].
const BATCHES: u64 = 10;
const PER_BATCH: u64 = 10;
const ALL: u64 = BATCHES * PER_BATCH;

/// A topic whose partition 1 holds 100 numbered messages in batches of 10.
async fn ten_batches(client: &IggyClient) -> TopicNames {
    let names = create_topic(client, "t", 2).await;
    for batch in 0..BATCHES {
        let mut messages = numbered_messages(batch * PER_BATCH, PER_BATCH);
        assert_eq!(send(client, &names, 1, &mut messages).await, batch * PER_BATCH);
    }
    names
}

#[test]
fn offset_starts_at_every_message_inside_a_batch() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = ten_batches(&client).await;
        for start in 0..ALL {
            for limit in [1, 7, 10, 25] {
                let strategy = PollingStrategy::offset(start);
                let polled = poll(&client, &names, 1, &anonymous(), strategy, count(limit)).await;
                check_numbered(&polled.messages, start..ALL.min(start + u64::from(limit)));
                assert_eq!(polled.current_offset, ALL - 1);
            }
        }
    });
}

#[test]
fn offset_beyond_the_head_reads_nothing() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = ten_batches(&client).await;
        for start in [ALL, ALL + 1, u64::MAX - 1, u64::MAX] {
            let polled =
                poll(&client, &names, 1, &anonymous(), PollingStrategy::offset(start), count(10)).await;
            assert!(polled.messages.is_empty());
            assert_eq!(polled.current_offset, ALL - 1);
        }
    });
}

#[test]
fn first_starts_at_the_first_message() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = ten_batches(&client).await;
        for (limit, end) in [(1, 1), (15, 15), (1000, ALL)] {
            let polled = poll(&client, &names, 1, &anonymous(), PollingStrategy::first(), count(limit)).await;
            check_numbered(&polled.messages, 0..end);
        }
    });
}

#[test]
fn last_returns_the_last_messages_in_ascending_order() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = ten_batches(&client).await;
        for (limit, start) in [(1, 99), (5, 95), (10, 90), (13, 87), (100, 0), (1000, 0)] {
            let polled = poll(&client, &names, 1, &anonymous(), PollingStrategy::last(), count(limit)).await;
            check_numbered(&polled.messages, start..ALL);
        }
    });
}

#[test]
fn next_starts_after_the_stored_offset() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = ten_batches(&client).await;
        let consumer = consumer_named("reader");
        let polled = poll(&client, &names, 1, &consumer, PollingStrategy::next(), count(5)).await;
        check_numbered(&polled.messages, 0..5);
        for stored in [0, 4, 9, 42, 98] {
            client
                .store_consumer_offset(&consumer, &names.stream, &names.topic, Some(1), stored)
                .await
                .expect("store");
            let polled = poll(&client, &names, 1, &consumer, PollingStrategy::next(), count(5)).await;
            check_numbered(&polled.messages, stored + 1..ALL.min(stored + 6));
        }
        client
            .store_consumer_offset(&consumer, &names.stream, &names.topic, Some(1), ALL - 1)
            .await
            .expect("store");
        let polled = poll(&client, &names, 1, &consumer, PollingStrategy::next(), count(5)).await;
        assert!(polled.messages.is_empty());
    });
}

#[test]
fn timestamp_starts_at_the_first_batch_that_is_not_older() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = ten_batches(&client).await;
        let all = poll(&client, &names, 1, &anonymous(), PollingStrategy::first(), count(1000)).await;
        let time_of = |batch: u64| all.messages[(batch * PER_BATCH) as usize].header.timestamp;
        for batch in 1..BATCHES {
            assert!(time_of(batch - 1) < time_of(batch), "sequential batches have ascending append times");
        }
        let expect_start = async |time: u64, start: u64| {
            let strategy = PollingStrategy::timestamp(IggyTimestamp::from(time));
            let polled = poll(&client, &names, 1, &anonymous(), strategy, count(3)).await;
            check_numbered(&polled.messages, start..ALL.min(start + 3));
        };
        expect_start(0, 0).await;
        expect_start(time_of(0), 0).await;
        for batch in 1..BATCHES {
            expect_start(time_of(batch), batch * PER_BATCH).await;
            expect_start(time_of(batch - 1) + 1, batch * PER_BATCH).await;
        }
        expect_start(time_of(BATCHES - 1) + 1, ALL).await;
        expect_start(u64::MAX / 2, ALL).await;
    });
}

#[test]
fn partition_without_messages_reads_as_empty() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let strategies = [
            PollingStrategy::first(),
            PollingStrategy::last(),
            PollingStrategy::next(),
            PollingStrategy::offset(0),
            PollingStrategy::offset(9),
            PollingStrategy::timestamp(IggyTimestamp::from(1)),
        ];
        for strategy in strategies {
            let polled = poll(&client, &names, 0, &anonymous(), strategy, count(10)).await;
            assert!(polled.messages.is_empty());
            assert_eq!(polled.current_offset, 0);
            assert_ne!(polled.context().incarnation, 0);
        }
    });
}

#[test]
fn byte_limit_cuts_between_messages_and_never_to_nothing() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let mut batch: Vec<_> =
            (0..20u128).map(|n| crate::suite::support::message(n + 1, vec![n as u8; 1000])).collect();
        send(&client, &names, 0, &mut batch).await;
        // The head of the reply is 40 bytes, the batch header 256, each frame 1048.
        for (max_bytes, expected) in
            [(344, 1), (1_344, 1), (2_391, 1), (2_392, 2), (11_000, 10), (1 << 20, 20)]
        {
            let options = PollOptions { max_bytes, ..count(1000) };
            let polled = poll(&client, &names, 0, &anonymous(), PollingStrategy::first(), options).await;
            assert_eq!(polled.messages.len(), expected, "with max_bytes {max_bytes}");
        }
        let smallest = PollOptions { max_bytes: 344, ..count(1000) };
        for start in 0..20 {
            let polled =
                poll(&client, &names, 0, &anonymous(), PollingStrategy::offset(start), smallest).await;
            assert_eq!(offsets(&polled.messages), [start]);
        }
    });
}

#[test]
fn polls_of_what_is_missing_are_refused() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        for (stream, topic, partition, codes) in [
            (&names.stream, &names.topic, 1, &[3007][..]),
            (&names.stream, &named("none"), 0, &[2010, 2011]),
            (&named("none"), &names.topic, 0, &[1009, 1010]),
        ] {
            let strategy = PollingStrategy::first();
            let polled =
                client.poll_messages(stream, topic, partition, &anonymous(), &strategy, count(1)).await;
            check_refused(polled, codes);
        }
    });
}

#[test]
fn acknowledged_message_is_seen_by_every_connection() {
    run(async |broker| {
        let writer = connect(broker).await;
        let readers = [connect(broker).await, connect(broker).await, connect(broker).await];
        let names = create_topic(&writer, "t", 4).await;
        for number in 0..50u64 {
            let partition = (number % 4) as u32;
            let offset = send(&writer, &names, partition, &mut numbered_messages(number, 1)).await;
            for reader in &readers {
                let strategy = PollingStrategy::offset(offset);
                let polled = poll(reader, &names, partition, &anonymous(), strategy, count(1)).await;
                assert_eq!(offsets(&polled.messages), [offset]);
            }
        }
    });
}

fn wait(max_wait: Duration, min_count: u32) -> PollOptions {
    PollOptions { min_count, ..PollOptions::wait(max_wait.into()) }
}

#[test]
fn waiting_poll_ends_empty_after_its_wait() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let started = Instant::now();
        let options = wait(Duration::from_millis(400), 1);
        let polled = poll(&client, &names, 0, &anonymous(), PollingStrategy::first(), options).await;
        assert!(polled.messages.is_empty());
        let waited = started.elapsed();
        assert!((Duration::from_millis(390)..Duration::from_secs(5)).contains(&waited), "waited {waited:?}");
    });
}

#[test]
fn waiting_poll_is_woken_by_an_append() {
    run(async |broker| {
        let (reader, writer) = (connect(broker).await, connect(broker).await);
        let names = create_topic(&writer, "t", 1).await;
        let consumer = anonymous();
        for number in 0..20 {
            let polled = poll(
                &reader,
                &names,
                0,
                &consumer,
                PollingStrategy::offset(number),
                wait(Duration::from_secs(30), 1),
            );
            let append = async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                send(&writer, &names, 0, &mut numbered_messages(number, 1)).await;
            };
            let started = Instant::now();
            let (polled, ()) = tokio::join!(polled, append);
            check_numbered(&polled.messages, number..number + 1);
            assert!(started.elapsed() < Duration::from_secs(5), "woken after {:?}", started.elapsed());
        }
    });
}

#[test]
fn waiting_poll_waits_for_its_minimum() {
    run(async |broker| {
        let (reader, writer) = (connect(broker).await, connect(broker).await);
        let names = create_topic(&writer, "t", 1).await;
        let consumer = anonymous();
        let polled =
            poll(&reader, &names, 0, &consumer, PollingStrategy::first(), wait(Duration::from_secs(30), 5));
        let append = async {
            for number in 0..5 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                send(&writer, &names, 0, &mut numbered_messages(number, 1)).await;
            }
        };
        let (polled, ()) = tokio::join!(polled, append);
        check_numbered(&polled.messages, 0..5);
    });
}

#[test]
fn waiting_poll_does_not_block_its_connection() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let consumer = anonymous();
        let waiting =
            poll(&client, &names, 0, &consumer, PollingStrategy::first(), wait(Duration::from_secs(30), 1));
        let others = async {
            for _ in 0..20 {
                client.ping().await.expect("ping");
                client.get_streams().await.expect("list");
            }
            send(&client, &names, 0, &mut numbered_messages(0, 1)).await;
        };
        let started = Instant::now();
        let (polled, ()) = tokio::join!(waiting, others);
        check_numbered(&polled.messages, 0..1);
        assert!(started.elapsed() < Duration::from_secs(10), "took {:?}", started.elapsed());
    });
}

#[test]
fn abandoned_wait_does_not_disturb_the_connection() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let consumer = anonymous();
        for _ in 0..10 {
            let waiting = poll(
                &client,
                &names,
                0,
                &consumer,
                PollingStrategy::first(),
                wait(Duration::from_secs(60), 1),
            );
            assert!(tokio::time::timeout(Duration::from_millis(20), waiting).await.is_err());
            client.ping().await.expect("ping");
        }
        send(&client, &names, 0, &mut numbered_messages(0, 1)).await;
        let polled = poll(&client, &names, 0, &consumer, PollingStrategy::first(), count(10)).await;
        check_numbered(&polled.messages, 0..1);
    });
}

/// Command code of the poll that does not wait. The typed client never sends it.
const POLL_MESSAGES: u32 = 100;

#[test]
fn plain_poll_reads_as_the_deferred_one() {
    run(async |broker| {
        let client = connect(broker).await;
        ten_batches(&client).await;
        let strategies = [
            (PollingStrategy::offset(33), 33..40),
            (PollingStrategy::first(), 0..7),
            (PollingStrategy::last(), 93..100),
            (PollingStrategy::next(), 0..7),
        ];
        for (strategy, expected) in strategies {
            let reply = client
                .send_binary_request(POLL_MESSAGES, plain_poll_body("t", 1, &strategy, 7))
                .await
                .expect("poll");
            let polled = PolledMessages::from_bytes(reply, &strategy).expect("decode");
            assert_eq!((polled.partition_id, polled.current_offset), (1, ALL - 1));
            check_numbered(&polled.messages, expected);
        }
        let strategy = PollingStrategy::first();
        let reply = client
            .send_binary_request(POLL_MESSAGES, plain_poll_body("t", 1, &strategy, 0))
            .await
            .expect("a poll for no message is answered");
        assert!(PolledMessages::from_bytes(reply, &strategy).expect("decode").messages.is_empty());
    });
}

/// The body of a plain poll of topic `name` in stream `name`, as consumer 1, without a commit.
fn plain_poll_body(name: &str, partition: u32, strategy: &PollingStrategy, count: u32) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u8(1);
    body.put_slice(&[1, 4, 1, 0, 0, 0]);
    for _ in 0..2 {
        body.put_slice(&[2, name.len() as u8]);
        body.put_slice(name.as_bytes());
    }
    body.put_u8(1);
    body.put_u32_le(partition);
    body.put_u8(strategy.kind.as_code());
    body.put_u64_le(strategy.value);
    body.put_u32_le(count);
    body.put_u8(0);
    body.freeze()
}
