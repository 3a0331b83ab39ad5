//! Stored offsets of consumers: store, get, delete, and the commit that is part of a read.

use iggy::prelude::*;

use crate::suite::support::{
    check_numbered, check_refused, connect, consumer_named, count, create_topic, named, numbered,
    numbered_messages, poll, run, send,
};

#[test]
fn stored_offset_is_read_back_and_deleted() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 2).await;
        send(&client, &names, 1, &mut numbered_messages(0, 10)).await;
        let (stream, topic, consumer) = (&names.stream, &names.topic, consumer_named("c"));
        let get = async || client.get_consumer_offset(&consumer, stream, topic, Some(1)).await.expect("get");
        assert!(get().await.is_none());
        for offset in [3, 9, 0] {
            client.store_consumer_offset(&consumer, stream, topic, Some(1), offset).await.expect("store");
            let info = get().await.expect("an offset is stored");
            assert_eq!((info.partition_id, info.current_offset, info.stored_offset), (1, 9, offset));
        }
        client.delete_consumer_offset(&consumer, stream, topic, Some(1)).await.expect("delete");
        assert!(get().await.is_none());
        check_refused(client.delete_consumer_offset(&consumer, stream, topic, Some(1)).await, &[3021]);
    });
}

#[test]
fn offset_above_the_head_is_refused() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        send(&client, &names, 0, &mut numbered_messages(0, 10)).await;
        for offset in [10, 11, u64::MAX] {
            let stored = client
                .store_consumer_offset(&consumer_named("c"), &names.stream, &names.topic, Some(0), offset)
                .await;
            check_refused(stored, &[4100]);
        }
    });
}

#[test]
fn offsets_of_missing_places_are_refused() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let consumer = consumer_named("c");
        for (stream, topic, partition, codes) in [
            (&names.stream, &names.topic, 1, &[3007][..]),
            (&names.stream, &named("none"), 0, &[2010, 2011]),
            (&named("none"), &names.topic, 0, &[1009, 1010]),
        ] {
            check_refused(
                client.store_consumer_offset(&consumer, stream, topic, Some(partition), 0).await,
                codes,
            );
            check_refused(
                client.delete_consumer_offset(&consumer, stream, topic, Some(partition)).await,
                codes,
            );
        }
    });
}

#[test]
fn consumers_do_not_share_their_offsets() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 2).await;
        for partition in 0..2 {
            send(&client, &names, partition, &mut numbered_messages(0, 10)).await;
        }
        // The name "7" and the number 7 are two consumers.
        let consumers =
            [consumer_named("a"), consumer_named("b"), consumer_named("7"), Consumer::new(numbered(7))];
        for partition in 0..2 {
            for (offset, consumer) in (u64::from(partition)..).zip(&consumers) {
                client
                    .store_consumer_offset(consumer, &names.stream, &names.topic, Some(partition), offset)
                    .await
                    .expect("store");
            }
        }
        for partition in 0..2 {
            for (offset, consumer) in (u64::from(partition)..).zip(&consumers) {
                let info = client
                    .get_consumer_offset(consumer, &names.stream, &names.topic, Some(partition))
                    .await
                    .expect("get")
                    .expect("an offset is stored");
                assert_eq!((info.partition_id, info.stored_offset), (partition, offset));
            }
        }
    });
}

#[test]
fn committing_read_stores_what_it_returned() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        send(&client, &names, 0, &mut numbered_messages(0, 25)).await;
        let consumer = consumer_named("c");
        let options = PollOptions { commit: CommitPolicy::OnRead, ..count(10) };
        for (start, end) in [(0, 10), (10, 20), (20, 25), (25, 25)] {
            let polled = poll(&client, &names, 0, &consumer, PollingStrategy::next(), options).await;
            check_numbered(&polled.messages, start..end);
            let info = client
                .get_consumer_offset(&consumer, &names.stream, &names.topic, Some(0))
                .await
                .expect("get")
                .expect("an offset is stored");
            assert_eq!(info.stored_offset, end - 1);
        }
    });
}

#[test]
fn concurrent_committing_reads_share_the_messages() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        send(&client, &names, 0, &mut numbered_messages(0, 100)).await;
        let consumer = consumer_named("c");
        let options = PollOptions { commit: CommitPolicy::OnRead, ..count(10) };
        let reads = (0..10).map(|_| poll(&client, &names, 0, &consumer, PollingStrategy::next(), options));
        let mut offsets: Vec<u64> = futures_util::future::join_all(reads)
            .await
            .iter()
            .flat_map(|polled| crate::suite::support::offsets(&polled.messages))
            .collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (0..100).collect::<Vec<_>>());
    });
}
