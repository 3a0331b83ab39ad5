//! What was acknowledged survives SIGKILL.

use std::time::{Duration, Instant};

use conformance_harness::{Broker, Settings};
use conformance_sdk_0_12_2::kill::{Plan, run};
use iggy::prelude::*;

#[test]
fn five_acknowledged_messages_survive_a_kill_and_the_sixth_gets_offset_five() {
    let mut broker = Broker::start(Settings::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("start a runtime");
    runtime.block_on(async {
        let name = Identifier::named("s").expect("a valid name");
        let client = connect(&broker).await;
        client.create_stream("s", &StreamCreateOptions::default()).await.expect("create the stream");
        let options = TopicCreateOptions { partitions_count: Some(1), ..Default::default() };
        client.create_topic(&name, "s", &options).await.expect("create the topic");
        for number in 0..5 {
            assert_eq!(send_one(&client, &name, number).await, number);
        }
        broker.kill();
        broker.restart();
        let client = connect(&broker).await;
        assert_eq!(send_one(&client, &name, 5).await, 5);
        let polled = client
            .poll_messages(
                &name,
                &name,
                0,
                &Consumer::default(),
                &PollingStrategy::first(),
                PollOptions::default(),
            )
            .await
            .expect("poll");
        let stored: Vec<_> =
            polled.messages.iter().map(|message| (message.header.offset, message.payload.to_vec())).collect();
        let expected: Vec<_> = (0..6u64).map(|number| (number, number.to_string().into_bytes())).collect();
        assert_eq!(stored, expected);
    });
}

/// Kills until `KILL_CYCLES` (50), and prints what went through. `KILL_SEED` repeats a run.
#[test]
fn nothing_acknowledged_is_lost_doubled_or_reordered_over_random_kills() {
    let plan = Plan {
        cycles: from_environment("KILL_CYCLES", 50),
        duration: Duration::from_secs(600),
        producers: 4,
        seed: from_environment("KILL_SEED", u64::from(std::process::id())),
    };
    println!("seed {}", plan.seed);
    let started = Instant::now();
    let outcome = run(&plan);
    println!("{outcome:#?} in {:?}", started.elapsed());
    assert_eq!(outcome.kills, plan.cycles);
    assert!(outcome.acknowledged_batches >= outcome.kills * u64::from(plan.producers));
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

async fn connect(broker: &Broker) -> IggyClient {
    let client = IggyClient::from_connection_string(&broker.connection_string()).expect("a valid string");
    client.connect().await.expect("connect and sign in");
    client
}

/// Sends one message whose payload is its number, and returns its offset.
async fn send_one(client: &IggyClient, name: &Identifier, number: u64) -> u64 {
    let message = IggyMessage::builder().payload(number.to_string().into()).build().expect("a valid message");
    let sent =
        client.send_messages(name, name, &Partitioning::partition_id(0), &mut [message]).await.expect("send");
    sent.confirmations[0].base_offset
}
