//! Many at once: tasks on one client, connections, and the latency of a lone producer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use iggy::prelude::*;

use crate::suite::support::{
    anonymous, connect, connect_to, count, create_topic, message, offsets, poll, read_partition, run, send,
};

#[test]
fn sixty_four_tasks_share_one_client() {
    const TASKS: u64 = 64;
    const SENDS: u64 = 25;
    const PARTITIONS: u32 = 4;
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", PARTITIONS).await;
        let tasks = (0..TASKS).map(|task| {
            let (client, names) = (&client, &names);
            async move {
                let partition = (task % u64::from(PARTITIONS)) as u32;
                for number in 0..SENDS {
                    let id = u128::from(task * SENDS + number) + 1;
                    let base = send(client, names, partition, &mut [message(id, id.to_string())]).await;
                    let strategy = PollingStrategy::offset(base);
                    let polled = poll(client, names, partition, &anonymous(), strategy, count(1)).await;
                    assert_eq!(offsets(&polled.messages), [base]);
                    assert_eq!(polled.messages[0].header.id, id, "task {task} reads what it wrote");
                }
            }
        });
        join_all(tasks).await;
        for partition in 0..PARTITIONS {
            let stored = read_partition(&client, &names, partition).await;
            let mut last_of_task: HashMap<u64, u128> = HashMap::new();
            for message in &stored {
                let task = (message.header.id - 1) as u64 / SENDS;
                assert_eq!(task % u64::from(PARTITIONS), u64::from(partition));
                let before = last_of_task.insert(task, message.header.id);
                assert!(before.is_none_or(|id| id + 1 == message.header.id), "task {task} is out of order");
            }
            assert_eq!(stored.len() as u64, TASKS * SENDS / u64::from(PARTITIONS));
        }
    });
}

#[test]
fn two_hundred_connections_are_served() {
    const CONNECTIONS: usize = 200;
    run(async |broker| {
        let first = connect(broker).await;
        let names = create_topic(&first, "t", 8).await;
        let string = broker.connection_string();
        let mut clients = Vec::new();
        // Each sign-in costs the broker a password hash, so they do not all come at once.
        while clients.len() < CONNECTIONS {
            clients.extend(join_all((0..20).map(|_| connect_to(&string))).await);
        }
        let sends = clients.iter().enumerate().map(async |(number, client)| {
            let partition = (number % 8) as u32;
            let base = send(client, &names, partition, &mut [message(number as u128 + 1, "x")]).await;
            let strategy = PollingStrategy::offset(base);
            let polled = poll(client, &names, partition, &anonymous(), strategy, count(1)).await;
            assert_eq!(polled.messages[0].header.id, number as u128 + 1);
        });
        join_all(sends).await;
        let stats = first.get_stats().await.expect("stats");
        assert!(stats.clients_count as usize > CONNECTIONS, "{} clients", stats.clients_count);
        assert_eq!(stats.messages_count, CONNECTIONS as u64);
    });
}

#[test]
fn sequential_batches_do_not_stall() {
    const SENDS: usize = 300;
    /// A delayed acknowledgement costs 40 ms; a flush to disk stays far below this.
    const P50_MAX: Duration = Duration::from_millis(20);
    run(async |broker| {
        let client = connect(broker).await;
        let names = create_topic(&client, "t", 1).await;
        let mut times = Vec::with_capacity(SENDS);
        for _ in 0..SENDS {
            let mut batch: Vec<_> = (0..100u128).map(|n| message(n + 1, vec![b'x'; 100])).collect();
            let started = Instant::now();
            send(&client, &names, 0, &mut batch).await;
            times.push(started.elapsed());
        }
        times.sort_unstable();
        let [p50, p99] = [times[SENDS / 2], times[SENDS * 99 / 100]];
        println!("{SENDS} sends of 100 messages of 100 bytes: p50 {p50:?}, p99 {p99:?}");
        assert!(p50 < P50_MAX, "p50 {p50:?}");
    });
}
