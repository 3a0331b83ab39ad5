//! Fetches that wait: what wakes them, what ends them.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use laneway_wire::Identifier;
use laneway_wire::request::{DeleteTopic, Logout};

use crate::client::{Client, Place, Sent};
use crate::messages::numbered;
use crate::node::Node;
use crate::request::*;

#[test]
fn sum_over_partitions_ends_the_wait() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut producer, mut reader) = (node.client(), node.client());
        let places = producer.topic("sum", 7);
        for (round, target) in
            [offset as fn(&Place, u64) -> Target, |place, _| next(place)].iter().enumerate()
        {
            let held = round as u64;
            let fetch = fetch(&places, |place| Target { value: held, ..target(place, held) })
                .wait(LONG_US)
                .min_count(7 * (1 + if round == 1 { 1 } else { 0 }));
            let sent = reader.park(&fetch);
            for (index, place) in places.iter().enumerate() {
                assert!(reader.reply_within(&sent, Duration::from_millis(30)).is_none(), "{index} of 7");
                producer.append(place, &["m"]);
            }
            let sections = read(&reader.prompt(&sent), &fetch);
            assert_eq!(total(&sections), fetch.min_count as usize);
            assert_eq!(sections.len(), 7);
        }
    }
}

#[test]
fn single_message_at_offset_zero_ends_the_wait() {
    // 2.6: a head of 0 is no proof of emptiness.
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut producer, mut reader) = (node.client(), node.client());
        let places = producer.topic("zero", 4);
        for (at, place) in places.iter().enumerate() {
            let fetch = fetch(&places, |place| offset(place, u64::from((place.partition.0 as usize) < at)));
            let fetch = fetch.wait(LONG_US);
            let sent = reader.park(&fetch);
            producer.append(place, &["only"]);
            let sections = read(&reader.prompt(&sent), &fetch);
            assert_eq!((sections.len(), sections[0].offsets.as_slice()), (1, &[0][..]));
        }
    }
}

#[test]
fn wait_that_ends_empty_tells_starts_of_next() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("idle", 4);
        client.append(&places[1], &["a", "b"]);
        client.store(&places[1], numbered(1), 1);
        let begun = Instant::now();
        let mut fetch = fetch(&places[..3], |place| match place.partition.0 {
            0 => offset(place, 9),
            _ => next(place),
        })
        .wait(400_000);
        let sections = client.fetch(&fetch);
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(390) && took < PROMPT, "{took:?}");
        assert_eq!(sections.len(), 2, "offset targets get no section");
        let starts: Vec<_> = sections.iter().map(|section| section.head.next_offset.0).collect();
        assert_eq!(starts, [2, 0]);
        assert_eq!(sections[0].head.current_offset.0, 1);
        // Below min_count, what is there comes at the end of the wait.
        fetch.targets.push(offset(&places[3], 0));
        fetch.min_count = 10;
        client.append(&places[3], &["c"]);
        let begun = Instant::now();
        let sections = client.fetch(&fetch);
        assert!(begun.elapsed() >= Duration::from_millis(390));
        assert_eq!(total(&sections), 1);
    }
}

#[test]
fn store_while_parked_fences_its_section() {
    // R59
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut other) = (node.client(), node.client());
        let places = client.topic("fence", 4);
        for place in &places {
            client.append(place, &["0", "1", "2"]);
            client.store(place, numbered(1), 2);
        }
        let fetch = fetch(&places, next).wait(LONG_US).min_count(4).commit();
        let sent = client.park(&fetch);
        other.store(&places[1], numbered(1), 2);
        other.store(&places[2], numbered(1), 0);
        for place in &places {
            other.append(place, &["3"]);
        }
        let sections = read(&client.prompt(&sent), &fetch);
        let statuses: Vec<_> = sections.iter().map(|section| section.head.status.number()).collect();
        assert_eq!(statuses, [0, 58, 58, 0]);
        let stored: Vec<_> = places.iter().map(|place| other.stored(place, numbered(1))).collect();
        assert_eq!(stored, [Some(3), Some(2), Some(0), Some(3)]);
    }
}

#[test]
fn deleted_topic_ends_a_parked_fetch() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut admin) = (node.client(), node.client());
        for commit in [false, true] {
            let name = format!("gone-{commit}");
            let places = admin.topic(&name, 6);
            let fetch = Fetch { commit, ..fetch(&places, next).wait(LONG_US) };
            let sent = client.park(&fetch);
            let id = Identifier::Name(&name);
            assert_eq!(admin.ask(&DeleteTopic { stream: id, topic: id }).outcome(), 0);
            let sections = read(&client.prompt(&sent), &fetch);
            assert!(!sections.is_empty());
            for section in sections {
                assert_eq!(section.head.status.number(), 87);
            }
        }
    }
}

#[test]
fn cancel_ends_a_parked_fetch() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut producer) = (node.client(), node.client());
        let places = client.topic("cancel", 5);
        for _ in 0..3 {
            let plain = client.park(&fetch(&places, |place| offset(place, 100)).wait(LONG_US));
            let committing = client.park(&fetch(&places, next).min_count(900).wait(LONG_US).commit());
            for sent in [&plain, &committing, &plain, &committing] {
                client.link.send(&cancel(sent));
            }
            assert_eq!(client.prompt(&committing).status(), 58);
            producer.append(&places[0], &["x"]);
            assert!(client.reply_within(&plain, SETTLING).is_none(), "a plain one gets no answer");
            assert!(client.reply_within(&committing, SETTLING).is_none(), "exactly one answer");
            assert_eq!(client.stored(&places[0], numbered(1)), None);
        }
    }
}

#[test]
fn lost_connections_free_everything() {
    for shards in SHARDS {
        let node = Node::start_with(shards, |config| config.reads.pending_per_shard_max = 64);
        let mut client = node.client();
        let places = client.topic("lost", 6);
        for _ in 0..30 {
            let mut reader = client.another();
            for _ in 0..8 {
                let sent = reader.fetch_frame(&fetch(&places, next).wait(LONG_US).commit());
                reader.send(&sent);
            }
            reader.assert_alive();
        }
        sleep(SETTLING);
        client.append(&places[0], &["x"]);
        sleep(SETTLING);
        assert_eq!(client.stored(&places[0], numbered(1)), None, "nothing is stored for who is gone");
        let fetch = fetch(&places, |place| offset(place, 1)).wait(LONG_US);
        let sent = client.park(&fetch);
        client.append(&places[0], &["y"]);
        assert_eq!(total(&read(&client.prompt(&sent), &fetch)), 1);
    }
}

#[test]
fn full_quota_refuses_the_whole_fetch() {
    // 4.6: for each session and for all, 90 at once. What does not wait needs none.
    for shards in SHARDS {
        let node = Node::start_with(shards, |config| {
            config.reads.pending_per_shard_max = 5;
            config.reads.pending_per_user_max = Some(5);
            config.reads.pending_per_session_max = 3;
        });
        let (mut client, mut other) = (node.client(), node.client());
        let places = client.topic("quota", 6);
        let waits = fetch(&places, next).wait(LONG_US);
        let parked: Vec<Sent> = (0..3).map(|_| client.park(&waits)).collect();
        assert_eq!(client.fetch_status(&waits.clone().commit()), 90);
        assert_eq!(client.fetch(&fetch(&places, next)).len(), 6);
        let others: Vec<Sent> = (0..2).map(|_| other.park(&waits)).collect();
        assert_eq!(other.fetch_status(&waits), 90, "the shard is full");
        client.link.send(&cancel(&parked[0]));
        client.assert_alive();
        let again = client.park(&waits);
        client.append(&places[3], &["x"]);
        for sent in [&parked[1], &parked[2], &again] {
            assert_eq!(total(&read(&client.prompt(sent), &waits)), 1);
        }
        for sent in &others {
            assert_eq!(total(&read(&other.prompt(sent), &waits)), 1);
        }
    }
}

#[test]
fn end_of_the_session_ends_its_fetches() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut admin = node.client();
        let places = admin.topic("session", 5);
        for commit in [false, true] {
            let mut owner = node.client();
            let mut waiters: Vec<Client> = (0..6).map(|_| owner.another()).collect();
            let fetch = Fetch { commit, ..fetch(&places, next).wait(LONG_US) };
            let parked: Vec<Sent> = waiters.iter_mut().map(|waiter| waiter.park(&fetch)).collect();
            assert_eq!(owner.ask(&Logout {}).status(), 0);
            for (waiter, sent) in waiters.iter_mut().zip(&parked) {
                assert_eq!(waiter.prompt(sent).status(), 30);
            }
        }
    }
}

#[test]
fn stop_answers_parked_fetches() {
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("stop", 5);
        let plain = fetch(&places, |place| offset(place, 0)).wait(LONG_US);
        let committing = fetch(&places, next).wait(LONG_US).commit();
        let sent = [client.park(&plain), client.park(&committing)];
        scope(|scope| {
            scope.spawn(|| node.stop());
            for (sent, fetch) in sent.iter().zip([&plain, &committing]) {
                let reply = client.prompt(sent);
                if reply.status() != 58 {
                    let sections = read(&reply, fetch);
                    assert!(!sections.is_empty());
                    // Shards stop one after the other: a partition may still have answered that it has nothing.
                    let statuses: Vec<_> =
                        sections.iter().map(|section| section.head.status.number()).collect();
                    assert!(statuses.contains(&58) && total(&sections) == 0, "{statuses:?}");
                    assert!(statuses.iter().all(|status| [0, 58].contains(status)), "{statuses:?}");
                }
            }
        });
    }
}
