//! Stored offsets of individual consumers. Source: wire protocol, section 5.5; resources, sections 7 and 24.

use std::collections::HashMap;

use laneway_wire::{Consumer, ConsumerKind, Identifier};
use xxhash_rust::xxh32::xxh32;

use crate::client::{AT_INCARNATION, AT_OWNER, u32_at, u64_at};
use crate::messages::{Poll, named, numbered};
use crate::node::{Node, SHARDS};

#[test]
fn store_get_and_delete() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in client.topic("offsets", 3) {
            client.append(&place, &["a", "b", "c"]);
            assert_eq!(client.stored(&place, numbered(1)), None);
            for offset in [2, 0, 1] {
                let store = client.store_frame(&place, numbered(1), offset);
                let reply = client.exchange(&store);
                assert_eq!(reply.body(), [0; 4], "a result section and nothing else");
                assert!(reply.is_committed() && reply.header().partition_incarnation == place.incarnation);
                let get = client.get_offset_frame(&place, numbered(1));
                let reply = client.exchange(&get);
                let body = reply.body();
                assert_eq!(body.len(), 20);
                assert_eq!(
                    (u32_at(body, 0), u64_at(body, 4), u64_at(body, 12)),
                    (place.partition.0, 2, offset)
                );
            }
            let deleted = client.delete_offset(&place, numbered(1));
            assert!(deleted.is_committed() && deleted.body() == [0; 4]);
            assert_eq!(client.stored(&place, numbered(1)), None);
        }
    }
}

#[test]
fn offset_above_the_head_is_invalid() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in client.topic("above", 2) {
            let empty = client.store_frame(&place, numbered(1), 0);
            assert_eq!(client.exchange(&empty).outcome(), 4100, "nothing can be consumed of nothing");
            client.append(&place, &["a", "b"]);
            client.store(&place, numbered(1), 1);
            for offset in [2, 100, u64::MAX] {
                let store = client.store_frame(&place, numbered(1), offset);
                assert_eq!(client.exchange(&store).outcome(), 4100);
            }
            assert_eq!(client.stored(&place, numbered(1)), Some(1));
        }
    }
}

#[test]
fn delete_of_nothing_is_not_found() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("nothing", 1).remove(0);
    client.append(&place, &["a"]);
    client.store(&place, numbered(1), 0);
    let sent = client.delete_offset_frame(&place, numbered(2));
    // Nothing is there to delete in whatever order: it is refused before it is ordered.
    client.exchange(&sent).assert_refused(3021);
    assert_eq!(client.exchange(&sent).outcome(), 3021);
    assert_eq!(client.stored(&place, numbered(1)), Some(0));
}

#[test]
fn repeated_store_takes_effect_once() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let mut second = client.another();
        let place = client.topic("again", 1).remove(0);
        client.append(&place, &["a", "b", "c"]);
        let store = client.store_frame(&place, numbered(1), 2);
        let reply = client.exchange(&store);
        assert_eq!(second.exchange(&store), reply);
        second.store(&place, numbered(1), 0);
        let again = client.exchange(&store);
        assert!(again == reply || again.status() == 85, "{:?}", again.header());
        assert_eq!(client.stored(&place, numbered(1)), Some(0), "the repeated store did not run again");
    }
}

#[test]
fn names_and_numbers_are_keys_of_their_own() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("keys", 1).remove(0);
    client.append(&place, &["a", "b", "c", "d"]);
    let hash = xxh32(b"reader", 0);
    let keys = [numbered(7), named("7"), named("reader"), numbered(hash), named("Reader")];
    for (offset, key) in keys.iter().take(4).enumerate() {
        client.store(&place, *key, offset as u64);
    }
    for (offset, key) in keys.iter().enumerate() {
        assert_eq!(client.stored(&place, *key), (offset < 4).then_some(offset as u64), "{key:?}");
        let next = client.poll(&place, Poll::next().by(*key));
        let first = if offset < 4 { offset as u64 + 1 } else { 0 };
        assert_eq!(next.offsets(), (first..4).collect::<Vec<_>>());
    }
}

#[test]
fn names_of_one_hash_are_keys_of_their_own() {
    let mut seen = HashMap::new();
    let (one, other) = (0u32..)
        .find_map(|number| {
            let name = format!("consumer-{number}");
            seen.insert(xxh32(name.as_bytes(), 0), number).map(|first| (format!("consumer-{first}"), name))
        })
        .expect("2^32 hashes collide soon");
    assert!(one != other && xxh32(one.as_bytes(), 0) == xxh32(other.as_bytes(), 0));
    let mut node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("hashes", 1).remove(0);
    client.append(&place, &["a", "b"]);
    client.store(&place, named(&one), 0);
    assert_eq!(client.stored(&place, named(&other)), None);
    client.store(&place, named(&other), 1);
    node.restart();
    let mut client = client.another();
    assert_eq!(client.stored(&place, named(&one)), Some(0));
    assert_eq!(client.stored(&place, named(&other)), Some(1));
    assert_eq!(client.delete_offset(&place, named(&one)).outcome(), 0);
    assert_eq!(client.stored(&place, named(&other)), Some(1));
}

#[test]
fn new_key_above_the_limit_is_refused() {
    // S118 and R52
    for shards in SHARDS {
        let node = Node::start_with(shards, |config| config.partition.consumer_offsets_max = 3);
        let mut client = node.client();
        let place = client.topic("limit", 1).remove(0);
        client.append(&place, &["a", "b"]);
        for consumer in 0..3 {
            client.store(&place, numbered(consumer), 0);
        }
        let store = client.store_frame(&place, numbered(3), 0);
        assert_eq!(client.exchange(&store).outcome(), 3024);
        for code in [100, 106] {
            let poll = Poll::next().code(code).by(numbered(3));
            assert_eq!(client.poll_status(&place, poll.commit()), 3024);
            assert_eq!(client.poll(&place, poll).offsets(), [0, 1], "a plain read needs no key");
        }
        client.store(&place, numbered(2), 1);
        assert_eq!(client.poll(&place, Poll::next().by(numbered(1)).commit()).offsets(), [1]);
        assert_eq!(client.delete_offset(&place, numbered(0)).outcome(), 0);
        client.store(&place, numbered(3), 0);
    }
}

#[test]
fn offsets_survive_a_restart() {
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("kept", 3);
        for place in &places {
            client.append(place, &["a", "b", "c"]);
            client.store(place, numbered(1), 2);
            client.store(place, named("one"), 1);
            client.store(place, numbered(2), 0);
            assert_eq!(client.delete_offset(place, numbered(2)).outcome(), 0);
            assert_eq!(
                client.poll(place, Poll::next().by(named("poll")).count(2).commit()).offsets(),
                [0, 1]
            );
        }
        for _ in 0..2 {
            node.restart();
            client = client.another();
            for place in &places {
                assert_eq!(client.stored(place, numbered(1)), Some(2));
                assert_eq!(client.stored(place, named("one")), Some(1));
                assert_eq!(client.stored(place, numbered(2)), None);
                assert_eq!(client.stored(place, named("poll")), Some(1));
            }
        }
    }
}

#[test]
fn fences_of_a_store() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("fenced", 1).remove(0);
    client.append(&place, &["a"]);
    let store = client.store_frame(&place, numbered(1), 0);
    let cases = [
        (store.with(AT_INCARNATION, &[0; 8]), 87),
        (store.with(AT_INCARNATION, &[1; 8]), 87),
        (store.with(AT_OWNER, &1u64.to_le_bytes()), 5009),
    ];
    for (frame, code) in cases {
        client.exchange(&frame).assert_refused(code);
    }
    assert_eq!(client.stored(&place, numbered(1)), None);
    assert_eq!(client.exchange(&store).outcome(), 0);
}

#[test]
fn kinds_that_come_later_are_said_to_be_missing() {
    let node = Node::start(1);
    let mut client = node.client();
    let place = client.topic("kinds", 1).remove(0);
    client.append(&place, &["a"]);
    for kind in [ConsumerKind::Group, ConsumerKind::ExternalGroup] {
        let consumer = Consumer { kind, id: Identifier::Numeric(1) };
        let store = client.store_frame(&place, consumer, 0);
        let reply = client.exchange(&store);
        reply.assert_refused(5);
    }
}
