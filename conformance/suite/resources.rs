//! Streams, topics and partitions: create, get, list, delete, and every refusal.

use iggy::prelude::*;

use crate::suite::support::{
    check_refused, connect, create_topic, named, numbered, numbered_messages, run, send, with_partitions,
};

#[test]
fn created_stream_is_found_by_name_and_by_id() {
    run(async |broker| {
        let client = connect(broker).await;
        let created = client.create_stream("orders", &StreamCreateOptions::default()).await.expect("create");
        assert_eq!((created.name.as_str(), created.topics_count, created.messages_count), ("orders", 0, 0));
        for id in [named("orders"), numbered(created.id)] {
            let found = client.get_stream(&id).await.expect("get").expect("the stream is there");
            assert_eq!((found.id, found.name.as_str()), (created.id, "orders"));
            assert_eq!(found.created_at, created.created_at);
        }
    });
}

#[test]
fn streams_are_listed_in_order_of_their_ids() {
    run(async |broker| {
        let client = connect(broker).await;
        assert!(client.get_streams().await.expect("list").is_empty());
        for name in ["c", "a", "b"] {
            client.create_stream(name, &StreamCreateOptions::default()).await.expect("create");
        }
        let streams = client.get_streams().await.expect("list");
        assert_eq!(streams.iter().map(|stream| stream.name.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
        assert!(streams.is_sorted_by_key(|stream| stream.id));
    });
}

#[test]
fn stream_name_is_unique_and_free_again_after_the_delete() {
    run(async |broker| {
        let client = connect(broker).await;
        let first = client.create_stream("s", &StreamCreateOptions::default()).await.expect("create");
        check_refused(client.create_stream("s", &StreamCreateOptions::default()).await, &[1012]);
        client.delete_stream(&numbered(first.id)).await.expect("delete");
        assert!(client.get_stream(&named("s")).await.expect("get").is_none());
        client.create_stream("s", &StreamCreateOptions::default()).await.expect("create again");
    });
}

#[test]
fn stream_name_of_255_bytes_is_kept() {
    run(async |broker| {
        let client = connect(broker).await;
        let name = "ü".repeat(127) + "x";
        assert_eq!(name.len(), 255);
        client.create_stream(&name, &StreamCreateOptions::default()).await.expect("create");
        assert_eq!(client.get_streams().await.expect("list")[0].name, name);
    });
}

#[test]
fn missing_resources_read_as_nothing_and_refuse_changes() {
    run(async |broker| {
        let client = connect(broker).await;
        client.create_stream("s", &StreamCreateOptions::default()).await.expect("create");
        for missing in [named("none"), numbered(77)] {
            assert!(client.get_stream(&missing).await.expect("get").is_none());
            assert!(client.get_topic(&missing, &named("t")).await.expect("get").is_none());
            assert!(client.get_topic(&named("s"), &missing).await.expect("get").is_none());
            assert!(client.get_topics(&missing).await.expect("list").is_empty());
            check_refused(client.delete_stream(&missing).await, &[1009, 1010]);
            check_refused(client.create_topic(&missing, "t", &with_partitions(1)).await, &[1009, 1010]);
            check_refused(client.delete_topic(&missing, &named("t")).await, &[1009, 1010]);
            check_refused(client.delete_topic(&named("s"), &missing).await, &[2010, 2011]);
            check_refused(client.create_partitions(&named("s"), &missing, 1).await, &[2010, 2011]);
            check_refused(client.delete_partitions(&named("s"), &missing, 1).await, &[2010, 2011]);
        }
    });
}

#[test]
fn created_topic_reports_its_partitions_and_options() {
    run(async |broker| {
        let client = connect(broker).await;
        client.create_stream("s", &StreamCreateOptions::default()).await.expect("create");
        let message_expiry = IggyExpiry::ExpireDuration(IggyDuration::new_from_secs(3600));
        let max_topic_size = MaxTopicSize::Custom(IggyByteSize::from(8 << 30));
        let options = TopicCreateOptions {
            message_expiry: Some(message_expiry),
            max_topic_size: Some(max_topic_size),
            ..with_partitions(5)
        };
        let created = client.create_topic(&named("s"), "t", &options).await.expect("create");
        let found =
            client.get_topic(&named("s"), &named("t")).await.expect("get").expect("the topic is there");
        for topic in [&created, &found] {
            assert_eq!((topic.name.as_str(), topic.partitions_count, topic.messages_count), ("t", 5, 0));
            assert_eq!(topic.partitions.iter().map(|p| p.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
            let resolved = topic.resolved_options();
            assert_eq!((resolved.message_expiry, resolved.max_topic_size), (message_expiry, max_topic_size));
        }
        assert_eq!(created.id, found.id);
        let listed = client.get_topics(&named("s")).await.expect("list");
        assert_eq!(listed.iter().map(|t| (t.id, t.partitions_count)).collect::<Vec<_>>(), [(created.id, 5)]);
        let stream = client.get_stream(&named("s")).await.expect("get").expect("the stream is there");
        assert_eq!(stream.topics_count, 1);
    });
}

#[test]
fn topic_name_is_unique_in_its_stream_only() {
    run(async |broker| {
        let client = connect(broker).await;
        create_topic(&client, "a", 1).await;
        create_topic(&client, "b", 1).await;
        client
            .create_topic(&named("a"), "b", &with_partitions(1))
            .await
            .expect("the name is free in this stream");
        check_refused(client.create_topic(&named("a"), "a", &with_partitions(1)).await, &[2013]);
    });
}

#[test]
fn partitions_grow_and_shrink() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        client.create_partitions(&names.stream, &names.topic, 4).await.expect("create");
        assert_eq!(partition_ids(&client, &names.topic).await, [0, 1, 2, 3, 4]);
        send(&client, &names, 4, &mut numbered_messages(0, 1)).await;
        client.delete_partitions(&names.stream, &names.topic, 3).await.expect("delete");
        assert_eq!(partition_ids(&client, &names.topic).await, [0, 1]);
        check_refused(client.delete_partitions(&names.stream, &names.topic, 3).await, &[2019]);
    });
}

#[test]
fn recreated_partition_starts_empty() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 2).await;
        send(&client, &names, 1, &mut numbered_messages(0, 10)).await;
        client.delete_partitions(&names.stream, &names.topic, 1).await.expect("delete");
        client.create_partitions(&names.stream, &names.topic, 1).await.expect("create");
        let fresh = connect(broker).await;
        assert_eq!(send(&fresh, &names, 1, &mut numbered_messages(0, 1)).await, 0);
        // The first client still knows the old life of the partition. It must learn about the new one, not write
        // into it as if nothing had happened, and not fail for good.
        assert_eq!(send(&client, &names, 1, &mut numbered_messages(1, 1)).await, 1);
    });
}

#[test]
fn deleted_topic_takes_its_messages_along() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        send(&client, &names, 0, &mut numbered_messages(0, 10)).await;
        client.delete_topic(&names.stream, &names.topic).await.expect("delete");
        assert!(client.get_topic(&names.stream, &names.topic).await.expect("get").is_none());
        let refused = client
            .send_messages(
                &names.stream,
                &names.topic,
                &Partitioning::partition_id(0),
                &mut numbered_messages(0, 1),
            )
            .await;
        check_refused(refused, &[2010, 2011]);
        client.create_topic(&names.stream, "t", &with_partitions(1)).await.expect("create again");
        assert_eq!(send(&client, &names, 0, &mut numbered_messages(0, 1)).await, 0);
    });
}

#[test]
fn counts_and_sizes_follow_the_messages() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 2).await;
        send(&client, &names, 0, &mut numbered_messages(0, 10)).await;
        send(&client, &names, 1, &mut numbered_messages(0, 5)).await;
        let topic =
            client.get_topic(&names.stream, &names.topic).await.expect("get").expect("the topic is there");
        assert_eq!(topic.messages_count, 15);
        assert!(topic.size.as_bytes_u64() > 15 * 48);
        let by_partition: Vec<_> =
            topic.partitions.iter().map(|p| (p.messages_count, p.current_offset)).collect();
        assert_eq!(by_partition, [(10, 9), (5, 4)]);
        let stream = client.get_stream(&names.stream).await.expect("get").expect("the stream is there");
        assert_eq!((stream.messages_count, stream.size), (15, topic.size));
    });
}

async fn partition_ids(client: &IggyClient, name: &Identifier) -> Vec<u32> {
    let topic = client.get_topic(name, name).await.expect("get").expect("the topic is there");
    assert_eq!(topic.partitions_count as usize, topic.partitions.len());
    topic.partitions.iter().map(|partition| partition.id).collect()
}
