//! The idempotent producer: a batch that is sent twice is stored once, whoever sends it again.

use iggy::prelude::*;

use crate::suite::support::{
    TopicNames, check_numbered, check_refused, connect, create_topic, named, numbered_messages,
    read_partition, run, send,
};

const OUT_OF_ORDER: u32 = 92;
const FENCED: u32 = 93;
const UNKNOWN: u32 = 94;

fn producer(id: u64, epoch: u16, sequence: u32) -> BatchProducer {
    BatchProducer::new(id, epoch, sequence).expect("values in their ranges")
}

async fn send_as(
    client: &IggyClient,
    to: &TopicNames,
    producer: BatchProducer,
    mut messages: Vec<IggyMessage>,
) -> Result<u64, IggyError> {
    let sent = client.send_producer_messages(&to.stream, &to.topic, 0, producer, &mut messages).await?;
    Ok(sent.confirmations[0].base_offset)
}

#[test]
fn repeated_batch_gets_its_first_place_again() {
    run(async |broker| {
        let (first, second) = (connect(broker).await, connect(broker).await);
        let names = create_topic(&first, "t", 1).await;
        let id = first.next_producer_id().await.expect("a producer id");
        for (client, sequence, base) in [(&first, 0, 0), (&first, 5, 5), (&first, 5, 5), (&second, 0, 0)] {
            let batch = numbered_messages(u64::from(sequence), 5);
            assert_eq!(send_as(client, &names, producer(id, 0, sequence), batch).await.expect("send"), base);
        }
        check_numbered(&read_partition(&second, &names, 0).await, 0..10);
    });
}

#[test]
fn gaps_old_epochs_and_strangers_are_refused() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let id = client.next_producer_id().await.expect("a producer id");
        let batch = || numbered_messages(0, 3);
        check_refused(send_as(&client, &names, producer(id, 0, 1), batch()).await, &[UNKNOWN]);
        assert_eq!(send_as(&client, &names, producer(id, 0, 0), batch()).await.expect("send"), 0);
        check_refused(send_as(&client, &names, producer(id, 0, 4), batch()).await, &[OUT_OF_ORDER]);
        assert_eq!(
            send_as(&client, &names, producer(id, 1, 0), numbered_messages(3, 3)).await.expect("send"),
            3
        );
        check_refused(send_as(&client, &names, producer(id, 0, 3), batch()).await, &[FENCED]);
        check_numbered(&read_partition(&client, &names, 0).await, 0..6);
    });
}

#[test]
fn repeated_batch_is_known_after_a_kill() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let id = client.next_producer_id().await.expect("a producer id");
        assert_eq!(
            send_as(&client, &names, producer(id, 0, 0), numbered_messages(0, 5)).await.expect("send"),
            0
        );
        assert_eq!(
            send_as(&client, &names, producer(id, 0, 5), numbered_messages(5, 5)).await.expect("send"),
            5
        );
        drop(client);
        broker.kill();
        broker.restart();
        let client = connect(broker).await;
        assert_eq!(
            send_as(&client, &names, producer(id, 0, 5), numbered_messages(5, 5)).await.expect("send"),
            5
        );
        assert_eq!(
            send_as(&client, &names, producer(id, 0, 10), numbered_messages(10, 5)).await.expect("send"),
            10
        );
        check_numbered(&read_partition(&client, &names, 0).await, 0..15);
    });
}

#[test]
fn idempotent_producer_writes_beside_an_ordinary_one() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let idempotent = client
            .producer("t", "t")
            .expect("valid names")
            .direct(DirectConfig::builder().batch_length(10).build())
            .partitioning(Partitioning::partition_id(0))
            .idempotent()
            .build();
        idempotent.init().await.expect("init");
        for round in 0..5u64 {
            idempotent.send(numbered_messages(round * 40, 30)).await.expect("send");
            send(&client, &names, 0, &mut numbered_messages(round * 40 + 30, 10)).await;
        }
        check_numbered(&read_partition(&client, &names, 0).await, 0..200);
        let topic =
            client.get_topic(&named("t"), &named("t")).await.expect("get").expect("the topic is there");
        assert_eq!(topic.messages_count, 200);
    });
}
