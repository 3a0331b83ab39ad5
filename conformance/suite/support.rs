//! What the tests share: a broker per test, a connected client, a topic, and messages that can be told apart.

use std::time::Duration;

use bytes::Bytes;
use conformance_harness::{Broker, Settings};
use iggy::prelude::*;

/// How long one test may take. Generous, because the machine may be busy with a build; a hang is still found.
const TEST_MAX: Duration = Duration::from_secs(120);

/// Runs one test against a broker of its own, then stops the broker as a service manager does.
///
/// So every test also shows that the broker survived it without a panic, and drains and exits with 0 on SIGTERM.
pub fn run(test: impl AsyncFnOnce(&mut Broker)) {
    let mut broker = Broker::start(Settings::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("start the runtime of the test");
    let outcome = runtime.block_on(async { tokio::time::timeout(TEST_MAX, test(&mut broker)).await });
    outcome.unwrap_or_else(|_| panic!("the test did not end within {TEST_MAX:?}"));
    runtime.shutdown_timeout(Duration::from_secs(1));
    broker.assert_healthy();
    let status = broker.stop();
    assert!(status.success(), "the broker drained and then ended with {status}");
    broker.assert_no_panic();
}

/// A client that is connected and signed in as root.
pub async fn connect(broker: &Broker) -> IggyClient {
    connect_to(&broker.connection_string()).await
}

pub async fn connect_to(connection_string: &str) -> IggyClient {
    let client = IggyClient::from_connection_string(connection_string).expect("a valid connection string");
    client.connect().await.expect("connect and sign in");
    client
}

/// A topic by its names.
#[derive(Clone, Debug)]
pub struct TopicNames {
    pub stream: Identifier,
    pub topic: Identifier,
}

/// Creates stream `name` with one topic `name` of `partitions` partitions.
pub async fn create_topic(client: &IggyClient, name: &str, partitions: u32) -> TopicNames {
    let stream = named(name);
    client.create_stream(name, &StreamCreateOptions::default()).await.expect("create the stream");
    client.create_topic(&stream, name, &with_partitions(partitions)).await.expect("create the topic");
    TopicNames { topic: stream.clone(), stream }
}

pub fn with_partitions(partitions: u32) -> TopicCreateOptions {
    TopicCreateOptions { partitions_count: Some(partitions), ..TopicCreateOptions::default() }
}

pub fn named(name: &str) -> Identifier {
    Identifier::named(name).expect("a valid name")
}

pub fn numbered(id: u32) -> Identifier {
    Identifier::numeric(id).expect("a valid id")
}

pub fn message(id: u128, payload: impl Into<Bytes>) -> IggyMessage {
    IggyMessage::builder().id(id).payload(payload.into()).build().expect("a valid message")
}

/// Messages `first..first + count`: the id is the number + 1, the payload names the number.
pub fn numbered_messages(first: u64, count: u64) -> Vec<IggyMessage> {
    (first..first + count).map(|number| message(u128::from(number) + 1, numbered_payload(number))).collect()
}

pub fn numbered_payload(number: u64) -> String {
    format!("message {number}")
}

/// Sends one batch to one partition and returns the offset of its first message.
pub async fn send(client: &IggyClient, to: &TopicNames, partition: u32, messages: &mut [IggyMessage]) -> u64 {
    let partitioning = Partitioning::partition_id(partition);
    let sent = client.send_messages(&to.stream, &to.topic, &partitioning, messages).await.expect("send");
    let [confirmation] = &sent.confirmations[..] else {
        panic!("one batch has one confirmation, not {:?}", sent.confirmations)
    };
    assert_eq!(confirmation.partition_id, partition);
    confirmation.base_offset
}

pub fn anonymous() -> Consumer {
    Consumer::new(numbered(1))
}

pub fn consumer_named(name: &str) -> Consumer {
    Consumer::new(named(name))
}

pub fn count(count: u32) -> PollOptions {
    PollOptions { count, ..PollOptions::default() }
}

/// A poll that must succeed.
pub async fn poll(
    client: &IggyClient,
    from: &TopicNames,
    partition: u32,
    consumer: &Consumer,
    strategy: PollingStrategy,
    options: PollOptions,
) -> PolledMessages {
    let polled = client
        .poll_messages(&from.stream, &from.topic, partition, consumer, &strategy, options)
        .await
        .unwrap_or_else(|e| panic!("poll with {strategy:?} and {options:?}: {e}"));
    assert_eq!(polled.partition_id, partition);
    assert_eq!(polled.count as usize, polled.messages.len());
    polled
}

/// Everything in one partition, read in order with as many polls as it takes.
pub async fn read_partition(client: &IggyClient, from: &TopicNames, partition: u32) -> Vec<IggyMessage> {
    let mut all: Vec<IggyMessage> = Vec::new();
    loop {
        let start = PollingStrategy::offset(all.len() as u64);
        let polled = poll(client, from, partition, &anonymous(), start, count(1000)).await;
        if polled.messages.is_empty() {
            return all;
        }
        for message in polled.messages {
            assert_eq!(message.header.offset, all.len() as u64, "offsets are dense");
            all.push(message);
        }
    }
}

pub fn offsets(messages: &[IggyMessage]) -> Vec<u64> {
    messages.iter().map(|message| message.header.offset).collect()
}

/// Checks that `messages` are exactly the numbered messages at these offsets, where offset = number.
pub fn check_numbered(messages: &[IggyMessage], expected: std::ops::Range<u64>) {
    assert_eq!(offsets(messages), expected.clone().collect::<Vec<_>>());
    for message in messages {
        let number = message.header.offset;
        assert_eq!(message.header.id, u128::from(number) + 1);
        assert_eq!(message.payload, numbered_payload(number).as_bytes());
    }
}

/// Checks that a call was refused with one of these status codes.
pub fn check_refused<T: std::fmt::Debug>(result: Result<T, IggyError>, codes: &[u32]) {
    match result {
        Ok(value) => panic!("accepted with {value:?}, expected a refusal with {codes:?}"),
        Err(e) => assert!(codes.contains(&e.as_code()), "refused with {} ({e}), not {codes:?}", e.as_code()),
    }
}
