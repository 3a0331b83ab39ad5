//! Lost replies and restarts: what was acknowledged stays, and nothing is done twice.

use std::time::Duration;

use iggy::prelude::*;

use crate::suite::proxy::Proxy;
use crate::suite::support::{
    TopicNames, check_numbered, connect, connect_to, consumer_named, create_topic, named, numbered_messages,
    read_partition, run, send, with_partitions,
};

const CREATE_STREAM: u8 = 128;
const DELETE_STREAM: u8 = 130;
const CREATE_PARTITIONS: u8 = 136;
const SEND_MESSAGES: u8 = 160;
const STORE_OFFSET: u8 = 161;

#[test]
fn send_whose_reply_is_lost_is_stored_once() {
    run(async |broker| {
        let proxy = Proxy::start(broker.address()).await;
        let client = connect_to(&proxy.connection_string()).await;
        let names = create_topic(&client, "t", 1).await;
        for round in 0..5u64 {
            proxy.lose_replies(SEND_MESSAGES, 1 + (round % 3) as u32);
            let base = send(&client, &names, 0, &mut numbered_messages(round * 10, 10)).await;
            assert_eq!(base, round * 10, "the confirmation of the first write is repeated");
            assert_eq!(proxy.lost(), 1 + (round % 3) as u32);
        }
        check_numbered(&read_partition(&client, &names, 0).await, 0..50);
    });
}

#[test]
fn producer_whose_replies_are_lost_stores_everything_once() {
    run(async |broker| {
        let proxy = Proxy::start(broker.address()).await;
        let client = connect_to(&proxy.connection_string()).await;
        let names = create_topic(&client, "t", 1).await;
        let producer = client
            .producer("t", "t")
            .expect("valid names")
            .direct(DirectConfig::builder().batch_length(5).build())
            .partitioning(Partitioning::partition_id(0))
            .build();
        producer.init().await.expect("init");
        for round in 0..5u64 {
            proxy.lose_replies(SEND_MESSAGES, 2);
            producer.send(numbered_messages(round * 20, 20)).await.expect("send");
            assert_eq!(proxy.lost(), 2);
        }
        check_numbered(&read_partition(&client, &names, 0).await, 0..100);
    });
}

#[test]
fn metadata_change_whose_reply_is_lost_is_done_once() {
    run(async |broker| {
        let proxy = Proxy::start(broker.address()).await;
        let client = connect_to(&proxy.connection_string()).await;
        proxy.lose_replies(CREATE_STREAM, 2);
        let stream = client.create_stream("s", &StreamCreateOptions::default()).await.expect("create");
        assert_eq!((stream.name.as_str(), proxy.lost()), ("s", 2));
        client.create_topic(&named("s"), "t", &with_partitions(1)).await.expect("create");
        proxy.lose_replies(CREATE_PARTITIONS, 2);
        client.create_partitions(&named("s"), &named("t"), 3).await.expect("create");
        assert_eq!(proxy.lost(), 2);
        let topic =
            client.get_topic(&named("s"), &named("t")).await.expect("get").expect("the topic is there");
        assert_eq!(topic.partitions_count, 4, "three partitions were added once");
        proxy.lose_replies(DELETE_STREAM, 1);
        client.delete_stream(&named("s")).await.expect("a repeated delete is answered as the first one");
        assert_eq!(proxy.lost(), 1);
        assert!(client.get_streams().await.expect("list").is_empty());
    });
}

#[test]
fn refused_change_whose_reply_is_lost_stays_refused() {
    run(async |broker| {
        let proxy = Proxy::start(broker.address()).await;
        let client = connect_to(&proxy.connection_string()).await;
        client.create_stream("s", &StreamCreateOptions::default()).await.expect("create");
        proxy.lose_replies(CREATE_STREAM, 1);
        let again = client.create_stream("s", &StreamCreateOptions::default()).await;
        crate::suite::support::check_refused(again, &[1012]);
        assert_eq!(proxy.lost(), 1);
    });
}

#[test]
fn offset_store_whose_reply_is_lost_succeeds() {
    run(async |broker| {
        let proxy = Proxy::start(broker.address()).await;
        let client = connect_to(&proxy.connection_string()).await;
        let names = create_topic(&client, "t", 1).await;
        send(&client, &names, 0, &mut numbered_messages(0, 10)).await;
        proxy.lose_replies(STORE_OFFSET, 2);
        let consumer = consumer_named("c");
        client
            .store_consumer_offset(&consumer, &names.stream, &names.topic, Some(0), 7)
            .await
            .expect("store");
        assert_eq!((proxy.lost(), stored_offset(&client, &names).await), (2, Some(7)));
    });
}

async fn stored_offset(client: &IggyClient, names: &TopicNames) -> Option<u64> {
    let info = client.get_consumer_offset(&consumer_named("c"), &names.stream, &names.topic, Some(0)).await;
    info.expect("get the offset").map(|info| info.stored_offset)
}

#[test]
fn everything_is_there_after_a_clean_restart() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 3).await;
        for partition in 0..3 {
            send(&client, &names, partition, &mut numbered_messages(0, 100)).await;
        }
        let consumer = consumer_named("c");
        client
            .store_consumer_offset(&consumer, &names.stream, &names.topic, Some(0), 41)
            .await
            .expect("store");
        client.create_stream("gone", &StreamCreateOptions::default()).await.expect("create");
        client.delete_stream(&named("gone")).await.expect("delete");
        let before = client.get_topic(&names.stream, &names.topic).await.expect("get").expect("there");
        drop(client);
        assert!(broker.stop().success());
        broker.restart();
        let client = connect(broker).await;
        let after = client.get_topic(&names.stream, &names.topic).await.expect("get").expect("there");
        assert_eq!(format!("{:?}", after.options), format!("{:?}", before.options));
        assert_eq!((after.id, after.created_at, after.messages_count), (before.id, before.created_at, 300));
        assert_eq!(client.get_streams().await.expect("list").len(), 1);
        assert_eq!(stored_offset(&client, &names).await, Some(41));
        for partition in 0..3 {
            check_numbered(&read_partition(&client, &names, partition).await, 0..100);
            assert_eq!(send(&client, &names, partition, &mut numbered_messages(100, 1)).await, 100);
        }
    });
}

#[test]
fn connected_client_goes_on_after_a_restart() {
    run(async |broker| {
        let string = format!("{}?reconnection_interval=50ms", broker.connection_string());
        let client = connect_to(&string).await;
        let names = create_topic(&client, "t", 1).await;
        for round in 0..3u64 {
            assert_eq!(send(&client, &names, 0, &mut numbered_messages(round * 10, 10)).await, round * 10);
            assert!(broker.stop().success());
            broker.restart();
        }
        check_numbered(&read_partition(&client, &names, 0).await, 0..30);
        client
            .create_stream("after", &StreamCreateOptions::default())
            .await
            .expect("the session still lives");
    });
}

#[test]
fn send_during_an_outage_is_stored_once_when_the_broker_is_back() {
    run(async |broker| {
        let string = format!("{}?reconnection_interval=50ms", broker.connection_string());
        let client = connect_to(&string).await;
        let names = create_topic(&client, "t", 1).await;
        send(&client, &names, 0, &mut numbered_messages(0, 10)).await;
        broker.kill();
        let sending = {
            let names = names.clone();
            tokio::spawn(async move {
                let base = send(&client, &names, 0, &mut numbered_messages(10, 10)).await;
                (client, base)
            })
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        broker.restart();
        let (client, base) = sending.await.expect("the send succeeds");
        assert_eq!(base, 10);
        check_numbered(&read_partition(&client, &names, 0).await, 0..20);
    });
}
