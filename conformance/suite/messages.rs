//! Sending: what was sent comes back bit by bit, where the confirmation says, from producers of every kind.

use std::collections::BTreeMap;

use iggy::prelude::*;

use crate::suite::support::{
    anonymous, check_numbered, check_refused, connect, count, create_topic, message, named,
    numbered_messages, poll, read_partition, run, send,
};

const MIB: usize = 1 << 20;

/// Bytes that differ at every place and between two seeds.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn payloads_of_every_size_come_back_unchanged() {
    const SIZES: [usize; 9] = [1, 2, 100, 4_095, 4_096, 65_537, MIB, 4 * MIB + 1, 10 * MIB];
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        for (number, size) in (0u64..).zip(SIZES) {
            let mut batch = [message(u128::from(number) + 7, pattern(number, size))];
            assert_eq!(send(&client, &names, 0, &mut batch).await, number);
        }
        let options = PollOptions { max_bytes: 40 * MIB as u32, ..count(100) };
        let polled = poll(&client, &names, 0, &anonymous(), PollingStrategy::first(), options).await;
        assert_eq!(polled.messages.len(), SIZES.len());
        for (number, (message, size)) in (0u64..).zip(polled.messages.iter().zip(SIZES)) {
            assert_eq!(message.header.id, u128::from(number) + 7);
            assert_eq!(message.header.payload_length as usize, size);
            assert!(message.payload == pattern(number, size), "the payload of {size} bytes changed");
        }
    });
}

#[test]
fn many_sizes_in_one_batch_come_back_unchanged() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let size_of = |number: u64| (number as usize * number as usize) % 5_000 + 1;
        let mut batch: Vec<_> =
            (0..500u64).map(|n| message(u128::from(n) + 1, pattern(n, size_of(n)))).collect();
        send(&client, &names, 0, &mut batch).await;
        let stored = read_partition(&client, &names, 0).await;
        assert_eq!(stored.len(), 500);
        for (number, message) in (0u64..).zip(&stored) {
            assert_eq!(message.header.id, u128::from(number) + 1);
            assert!(message.payload == pattern(number, size_of(number)));
        }
    });
}

#[test]
fn typed_user_headers_come_back_with_their_types() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let headers = every_kind_of_header();
        let mut batch = vec![
            IggyMessage::builder()
                .id(1)
                .payload("with".into())
                .user_headers(headers.clone())
                .build()
                .expect("valid"),
            message(2, "without"),
        ];
        send(&client, &names, 0, &mut batch).await;
        let stored = read_partition(&client, &names, 0).await;
        assert_eq!(stored[0].user_headers_map().expect("decode the headers"), Some(headers));
        assert_eq!(stored[0].payload, "with");
        assert_eq!(stored[1].user_headers_map().expect("decode the headers"), None);
    });
}

fn every_kind_of_header() -> BTreeMap<HeaderKey, HeaderValue> {
    let key = |name: &str| HeaderKey::try_from(name).expect("a valid key");
    BTreeMap::from([
        (key("raw"), HeaderValue::try_from(&[0u8, 255, 7][..]).expect("a valid value")),
        (key("string"), HeaderValue::try_from("grün").expect("a valid value")),
        (key("bool"), true.into()),
        (key("i8"), i8::MIN.into()),
        (key("i16"), i16::MIN.into()),
        (key("i32"), i32::MIN.into()),
        (key("i64"), i64::MIN.into()),
        (key("i128"), i128::MIN.into()),
        (key("u8"), u8::MAX.into()),
        (key("u16"), u16::MAX.into()),
        (key("u32"), u32::MAX.into()),
        (key("u64"), u64::MAX.into()),
        (key("u128"), u128::MAX.into()),
        (key("f32"), f32::MIN_POSITIVE.into()),
        (key("f64"), f64::MAX.into()),
        (HeaderKey::from(42u32), HeaderValue::try_from("x".repeat(255).as_str()).expect("a valid value")),
    ])
}

#[test]
fn largest_user_headers_come_back() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        // 374 entries of 267 bytes: close below the limit of 100,000 bytes.
        let headers: BTreeMap<HeaderKey, HeaderValue> = (0..374u16)
            .map(|n| (HeaderKey::from(n), HeaderValue::try_from(vec![n as u8; 255]).expect("a valid value")))
            .collect();
        let mut batch = [IggyMessage::builder()
            .payload("x".into())
            .user_headers(headers.clone())
            .build()
            .expect("valid")];
        assert!(batch[0].header.user_headers_length > 99_000);
        send(&client, &names, 0, &mut batch).await;
        let stored = read_partition(&client, &names, 0).await;
        assert_eq!(stored[0].user_headers_map().expect("decode the headers"), Some(headers));
    });
}

#[test]
fn message_times_are_kept_and_stamped() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let before = IggyTimestamp::now().as_micros();
        let mut batch = numbered_messages(0, 3);
        for (step, message) in (0u64..).zip(&mut batch) {
            message.header.origin_timestamp = 1_700_000_000_000_000 + step * 250;
        }
        send(&client, &names, 0, &mut batch).await;
        let after = IggyTimestamp::now().as_micros();
        let stored = read_partition(&client, &names, 0).await;
        for (step, message) in (0u64..).zip(&stored) {
            assert_eq!(message.header.origin_timestamp, 1_700_000_000_000_000 + step * 250);
            assert!((before..=after).contains(&message.header.timestamp), "{}", message.header.timestamp);
            assert_eq!(message.header.timestamp, stored[0].header.timestamp, "one append time per batch");
        }
    });
}

#[test]
fn message_without_an_id_gets_one() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        send(&client, &names, 0, &mut [message(0, "a"), message(0, "b")]).await;
        let stored = read_partition(&client, &names, 0).await;
        assert_ne!(stored[0].header.id, 0);
        assert_ne!(stored[0].header.id, stored[1].header.id);
    });
}

#[test]
fn confirmations_name_the_place_of_each_batch() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 2).await;
        let mut next = [0u64; 2];
        for round in 0..20u64 {
            let partition = (round % 2) as u32;
            let size = round % 5 + 1;
            let first = &mut next[partition as usize];
            let base = send(&client, &names, partition, &mut numbered_messages(*first, size)).await;
            assert_eq!(base, *first);
            *first += size;
        }
        for partition in 0..2 {
            check_numbered(&read_partition(&client, &names, partition).await, 0..next[partition as usize]);
        }
    });
}

#[test]
fn sends_to_what_is_missing_are_refused() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 2).await;
        for (stream, topic, partition, codes) in [
            (&names.stream, &names.topic, 2, &[3007][..]),
            (&names.stream, &named("none"), 0, &[2010, 2011]),
            (&named("none"), &names.topic, 0, &[1009, 1010]),
        ] {
            let partitioning = Partitioning::partition_id(partition);
            let sent = client.send_messages(stream, topic, &partitioning, &mut numbered_messages(0, 1)).await;
            check_refused(sent, codes);
        }
        assert!(read_partition(&client, &names, 0).await.is_empty());
    });
}

#[test]
fn balanced_batches_go_round_the_partitions() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 3).await;
        for number in 0..9 {
            let mut batch = [message(number + 1, "x")];
            client
                .send_messages(&names.stream, &names.topic, &Partitioning::balanced(), &mut batch)
                .await
                .expect("send");
        }
        for partition in 0..3 {
            assert_eq!(read_partition(&client, &names, partition).await.len(), 3);
        }
    });
}

#[test]
fn keyed_batches_go_to_the_partition_of_their_key() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 3).await;
        let key = Partitioning::messages_key_str("order-42").expect("a valid key");
        for number in 0..4 {
            let sent = client
                .send_messages(&names.stream, &names.topic, &key, &mut [message(number + 1, "x")])
                .await
                .expect("send");
            // The hash of this key is 0xbbc33ad1, which leaves 1 over 3.
            assert_eq!(sent.confirmations[0].partition_id, 1);
        }
        assert_eq!(read_partition(&client, &names, 1).await.len(), 4);
    });
}

#[test]
fn producer_creates_its_topic_and_splits_its_batches() {
    run(async |broker| {
        let client = connect(broker).await;
        let producer = client
            .producer("built", "events")
            .expect("valid names")
            .direct(DirectConfig::builder().batch_length(100).build())
            .partitioning(Partitioning::partition_id(0))
            .create_topic_if_not_exists(2, IggyExpiry::ServerDefault, MaxTopicSize::ServerDefault)
            .build();
        producer.init().await.expect("create the stream and the topic");
        let sent = producer.send(numbered_messages(0, 250)).await.expect("send");
        let bases: Vec<_> = sent.confirmations.iter().map(|c| (c.partition_id, c.base_offset)).collect();
        assert_eq!(bases, [(0, 0), (0, 100), (0, 200)]);
        let topic = client.get_topic(&named("built"), &named("events")).await.expect("get").expect("created");
        assert_eq!(topic.partitions_count, 2);
        let names = crate::suite::support::TopicNames { stream: named("built"), topic: named("events") };
        check_numbered(&read_partition(&client, &names, 0).await, 0..250);
    });
}

#[test]
fn background_producer_delivers_everything_in_order() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let producer = client
            .producer("t", "t")
            .expect("valid names")
            .background(BackgroundConfig::builder().batch_length(64).build())
            .partitioning(Partitioning::partition_id(0))
            .build();
        producer.init().await.expect("init");
        for number in 0..2_000 {
            producer.send(numbered_messages(number, 1)).await.expect("queue");
        }
        producer.shutdown().await;
        check_numbered(&read_partition(&client, &names, 0).await, 0..2_000);
    });
}
