//! Reads of one partition: where they start, where they are cut, what they say, what refuses them, what they store.
//! Source: reads, sections 2, 3 and 13.1 to 13.6.

use std::thread::sleep;
use std::time::Duration;

use laneway_wire::{Consumer, ConsumerKind, Identifier, Strategy};

use crate::client::{AT_INCARNATION, AT_METADATA_OP, AT_OWNER, Client, Place};
use crate::messages::{ORIGIN, Poll, Polled, named, numbered};
use crate::node::{Node, SHARDS};

/// Both commands that poll.
const CODES: [u32; 2] = [100, 106];

/// Three batches of three messages, appended at three different times.
fn filled(client: &mut Client, name: &str, partitions: u32) -> Vec<Place> {
    let places = client.topic(name, partitions);
    for place in &places {
        for batch in 0..3 {
            let payloads: Vec<_> = (0..3).map(|index| format!("m{}", batch * 3 + index)).collect();
            client.append(place, &payloads);
            sleep(Duration::from_millis(2));
        }
    }
    places
}

/// Runs against places of every number of shards, over both codes.
fn everywhere(name: &str, test: impl Fn(&mut Client, &Place, u32)) {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in filled(&mut client, name, shards.into()) {
            for code in CODES {
                test(&mut client, &place, code);
            }
        }
    }
}

#[test]
fn offset_read_starts_at_its_offset() {
    // R1, R2
    everywhere("offset", |client, place, code| {
        for start in 0..9 {
            let polled = client.poll(place, Poll::offset(start).code(code));
            assert_eq!(polled.offsets(), (start..9).collect::<Vec<_>>());
            assert_eq!(polled.messages[0].payload, format!("m{start}").into_bytes());
        }
        for beyond in [9, 10, u64::MAX - 1, u64::MAX] {
            let polled = client.poll(place, Poll::offset(beyond).code(code));
            assert_eq!((polled.messages.len(), polled.head.current_offset.0), (0, 8));
        }
    });
}

#[test]
fn timestamp_read_starts_at_the_first_batch_not_older() {
    // R5, R6, R7, R8
    everywhere("timestamp", |client, place, code| {
        let all = client.poll(place, Poll::offset(0)).messages;
        let read = |client: &mut Client, micros| {
            client.poll(place, Poll::new(Strategy::Timestamp(micros)).code(code)).offsets()
        };
        for first in [0, 3, 6] {
            let appended = all[first].timestamp;
            let rest: Vec<_> = (first as u64..9).collect();
            assert_eq!(read(client, appended), rest, "the time of a batch");
            assert_eq!(read(client, appended - 1), rest, "between two batches");
            assert_eq!(read(client, appended + 1), (first as u64 + 3..9).collect::<Vec<_>>());
        }
        assert_eq!(read(client, all[8].timestamp + 1_000_000), [0; 0]);
        assert_eq!(read(client, u64::MAX), [0; 0]);
        assert_eq!(read(client, 0), (0..9).collect::<Vec<_>>());
        // The producers' time is decades before the broker's: it decides nothing.
        assert_eq!(read(client, ORIGIN + 1), (0..9).collect::<Vec<_>>());
        assert!(all.iter().all(|message| message.origin < message.timestamp));
        assert_eq!(all[4].origin, ORIGIN + 1);
    });
}

#[test]
fn first_and_last_reads() {
    // R9, R10
    everywhere("ends", |client, place, code| {
        let first = client.poll(place, Poll::new(Strategy::First).code(code).count(2));
        assert_eq!(first.offsets(), [0, 1]);
        for count in [1, 2, 3, 4, 8, 9, 10, 1000, u32::MAX] {
            let last = client.poll(place, Poll::new(Strategy::Last).code(code).count(count));
            assert_eq!(last.offsets(), (9u64.saturating_sub(count.into())..9).collect::<Vec<_>>());
        }
    });
}

#[test]
fn next_read_starts_behind_the_stored_offset() {
    // R11, R12, R16
    everywhere("next", |client, place, code| {
        for consumer in [numbered(code), named("a name"), named("7")] {
            assert_eq!(client.poll(place, Poll::next().code(code).by(consumer)).offsets().first(), Some(&0));
            for stored in [0, 2, 8] {
                client.store(place, consumer, stored);
                let polled = client.poll(place, Poll::next().code(code).by(consumer));
                assert_eq!(polled.offsets(), (stored + 1..9).collect::<Vec<_>>());
                assert_eq!(polled.head.current_offset.0, 8);
            }
            assert_eq!(client.delete_offset(place, consumer).outcome(), 0);
        }
    });
}

#[test]
fn empty_partition_answers_empty() {
    // R14: the context is checked by `Polled::read`.
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in client.topic("empty", 3) {
            let strategies = [
                Poll::offset(0).strategy,
                Strategy::First,
                Strategy::Last,
                Strategy::Next,
                Strategy::Timestamp(0),
            ];
            for strategy in strategies {
                for code in CODES {
                    let polled = client.poll(&place, Poll::new(strategy).code(code));
                    assert_eq!((polled.messages.len(), polled.head.current_offset.0), (0, 0));
                    assert_eq!(polled.body_bytes, 40);
                }
            }
        }
    }
}

#[test]
fn count_bounds_a_read() {
    // R15, R18, R19: `Polled::read` verifies the checksum of each slice.
    everywhere("count", |client, place, code| {
        for start in 0..9 {
            for count in 1..10 {
                let polled = client.poll(place, Poll::offset(start).code(code).count(count));
                assert_eq!(polled.offsets(), (start..9.min(start + u64::from(count))).collect::<Vec<_>>());
                for message in &polled.messages {
                    assert_eq!(message.base_offset, message.offset / 3 * 3, "the stored batch's");
                    assert_eq!(message.payload, format!("m{}", message.offset).into_bytes());
                    assert_eq!(message.origin, ORIGIN + message.offset % 3);
                }
            }
        }
        if code == 100 {
            let polled = client.poll(place, Poll::offset(0).code(100).count(0));
            assert_eq!((polled.messages.len(), polled.head.current_offset.0), (0, 8));
        }
    });
}

#[test]
fn bytes_bound_a_read() {
    // R21, R24, R25, R26
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let place = client.topic("bytes", 1).remove(0);
        let payloads: Vec<_> = (0..10).map(|_| [b'x'; 100]).collect();
        client.append(&place, &payloads);
        client.append(&place, &payloads);
        let message = 48 + 100;
        for max_bytes in [344, 443, 444, 445, 591, 592, 1000, 1776, 1777, 2032, 2179, 2180, 4000] {
            let polled = client.poll(&place, Poll::offset(0).max_bytes(max_bytes));
            let room = max_bytes as usize - 40;
            let first = room.saturating_sub(256) / message;
            let expected = match first {
                0 => 1,
                1..10 => first,
                _ => 10 + (room - 256 - 10 * message).saturating_sub(256) / message,
            };
            assert_eq!(polled.messages.len(), expected.min(20), "max_bytes {max_bytes}");
            assert!(polled.messages.len() == 1 || polled.body_bytes <= max_bytes as usize, "R21");
        }
        // The smallest limit passes through everything, one message at a time.
        for offset in 0..20 {
            assert_eq!(client.poll(&place, Poll::offset(offset).max_bytes(344)).offsets(), [offset]);
        }
    }
}

#[test]
fn limit_above_the_servers_is_cut_to_it() {
    // R27
    let node = Node::start_with(2, |config| {
        config.reads.read_bytes_max = 64 << 10;
        config.reads.inflight_bytes_max = 1 << 20;
    });
    let mut client = node.client();
    let place = client.topic("cap", 1).remove(0);
    for _ in 0..5 {
        client.append(&place, &[[7; 30_000]]);
    }
    for code in CODES {
        let polled = client.poll(&place, Poll::offset(0).code(code).max_bytes(u32::MAX));
        assert_eq!(polled.offsets(), [0, 1], "64 KiB hold two");
    }
    client.append(&place, &[vec![8; 1 << 20]]);
    for code in CODES {
        assert_eq!(
            client.poll(&place, Poll::offset(5).code(code).max_bytes(344)).offsets(),
            [5],
            "a larger one comes alone"
        );
    }
}

#[test]
fn largest_message_can_be_read() {
    // R28
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("largest", 1).remove(0);
    let headers = vec![b'h'; 100_000];
    let mut builder = laneway_wire::batch::BatchBuilder::new();
    builder.push(1, laneway_wire::Micros(ORIGIN), &vec![b'p'; 64_000_000], &headers).expect("in its limits");
    let batch = builder.finish().expect("a batch");
    let partitioning = laneway_wire::Partitioning::Partition(place.partition);
    let sent = client.send_frame_of(&place, partitioning, 1, &batch);
    assert_eq!(client.exchange(&sent).status(), 0);
    client.append(&place, &["small"]);
    for code in CODES {
        let polled = client.poll(&place, Poll::offset(0).code(code));
        assert_eq!(polled.offsets(), [0], "alone");
        assert_eq!(polled.messages[0].payload.len(), 64_000_000);
        assert_eq!(polled.body_bytes, 40 + 64_100_304);
    }
}

#[test]
fn acknowledged_message_is_seen_by_every_connection() {
    // R30
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut producer = node.client();
        let mut readers: Vec<_> = (0..3).map(|_| node.client()).collect();
        let places = producer.topic("seen", 3);
        for round in 0..8 {
            for place in &places {
                producer.append(place, &[format!("{round}")]);
                for reader in &mut readers {
                    let polled =
                        reader.poll(place, Poll::new(Strategy::Last).count(1).code(CODES[round % 2]));
                    assert_eq!(polled.offsets(), [round as u64]);
                }
            }
        }
    }
}

#[test]
fn fences_of_a_read() {
    // R36, R37, R39, R42
    everywhere("fences", |client, place, code| {
        let frame = |client: &Client| client.poll_frame(place, Poll::offset(0).code(code));
        let wrong = place.incarnation.0 + 1;
        for incarnation in [0, wrong] {
            let poll = frame(client).with(AT_INCARNATION, &incarnation.to_le_bytes());
            assert_eq!(client.exchange(&poll).status(), 87);
        }
        let future = frame(client).with(AT_METADATA_OP, &u64::MAX.to_le_bytes());
        let future = future.with(AT_INCARNATION, &wrong.to_le_bytes());
        assert_eq!(client.exchange(&future).status(), 58);
        let owned = frame(client).with(AT_OWNER, &1u64.to_le_bytes());
        assert_eq!(client.exchange(&owned).status(), 5009);
        let external = Consumer { kind: ConsumerKind::ExternalGroup, id: Identifier::Name("external") };
        assert_eq!(client.poll_status(place, Poll::offset(0).code(code).by(external)), 5);
        assert_eq!(client.poll_status(place, Poll::next().code(code).by(external).commit()), 5);
    });
}

#[test]
fn missing_places_have_their_own_codes() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("here", 1).remove(0);
    let missing = [
        (Place { partition: laneway_wire::PartitionId(1), ..place.clone() }, 3007),
        (Place { stream: "gone".to_owned(), ..place.clone() }, 1010),
        (Place { topic: "gone".to_owned(), ..place.clone() }, 2011),
    ];
    for (place, code) in missing {
        for poll in CODES {
            assert_eq!(client.poll_status(&place, Poll::offset(0).code(poll)), code);
        }
    }
}

#[test]
fn absent_partition_is_the_first() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = filled(&mut client, "absent", 2).remove(0);
    let sent = client.poll_frame(&place, Poll::offset(0).code(100));
    let flag = 256 + 7 + 2 * (2 + "absent".len());
    assert_eq!(sent.bytes[flag], 1);
    let polled = Polled::read(&client.exchange(&sent.with(flag, &[0])), &place);
    assert_eq!(polled.offsets().len(), 9);
}

#[test]
fn deferred_poll_out_of_its_ranges_is_refused() {
    // R71, R72, R74, R75
    let node = Node::start(1);
    let mut client = node.client();
    let place = filled(&mut client, "ranges", 1).remove(0);
    let poll = Poll::offset(0);
    let long = Poll { wait_us: 600_000_001, ..poll }.timeout_us(630_000_000);
    let short = Poll { wait_us: 1_000_000, ..poll }.timeout_us(1_999_999);
    let refused = [
        long,
        short,
        poll.timeout_us(0),
        poll.timeout_us(630_000_001),
        poll.min_count(0),
        poll.count(2).min_count(3),
        poll.count(0).min_count(0),
        poll.max_bytes(343),
    ];
    for poll in refused {
        assert_eq!(client.poll_status(&place, poll), 3, "{poll:?}");
    }
    let good = client.poll_frame(&place, poll);
    for body in [&good.body()[..good.body().len() - 1], &[good.body(), &[0]].concat()] {
        let frame = good.with_body(body);
        assert_eq!(client.exchange(&frame).status(), 3);
    }
    // A strategy and a consumer kind that nobody knows.
    let strategy = 256 + 7 + 2 * (2 + "ranges".len()) + 5;
    assert_eq!(client.exchange(&good.with(strategy, &[6])).status(), 3);
    assert_eq!(client.exchange(&good.with(256, &[4])).status(), 3);
    let sent = client.poll_frame(&place, poll.timeout_us(1));
    assert_ne!(client.exchange(&sent).status(), 3, "a timeout of a microsecond is legal without a wait");
}

#[test]
fn plain_read_stores_nothing() {
    // R44, R46
    everywhere("plain", |client, place, code| {
        for strategy in [Strategy::First, Strategy::Last, Strategy::Next, Poll::offset(3).strategy] {
            client.poll(place, Poll::new(strategy).code(code));
            assert_eq!(client.stored(place, numbered(1)), None);
        }
        client.poll(place, Poll::offset(9).code(code).commit());
        assert_eq!(client.stored(place, numbered(1)), None, "an empty read stores nothing");
    });
}

#[test]
fn committing_read_stores_its_last_offset() {
    // R45, R47, R50, R51
    everywhere("commit", |client, place, code| {
        let mut second = client.another();
        let poll = Poll::next().code(code).by(numbered(code)).commit();
        for expected in [&[0, 1][..], &[2, 3], &[4, 5], &[6, 7], &[8], &[]] {
            assert_eq!(client.poll(place, poll.count(2)).offsets(), expected);
            let last = expected.last().copied().or(Some(8));
            assert_eq!(second.stored(place, numbered(code)), last, "on another connection");
        }
        // A read of older messages does not take it back; a store does.
        client.poll(place, Poll::offset(0).code(code).by(numbered(code)).count(2).commit());
        assert_eq!(client.stored(place, numbered(code)), Some(8));
        client.store(place, numbered(code), 4);
        assert_eq!(client.stored(place, numbered(code)), Some(4));
        assert_eq!(second.poll(place, poll).offsets(), [5, 6, 7, 8]);
        assert_eq!(client.stored(place, numbered(code)), Some(8));
    });
}

#[test]
fn committing_read_that_bytes_cut_stores_what_it_returned() {
    // R45
    let node = Node::start(3);
    let mut client = node.client();
    let place = client.topic("cut", 1).remove(0);
    client.append(&place, &[[b'x'; 100]; 10]);
    let polled = client.poll(&place, Poll::next().commit().max_bytes(40 + 256 + 3 * 148));
    assert_eq!(polled.offsets(), [0, 1, 2]);
    assert_eq!(client.stored(&place, numbered(1)), Some(2));
}

#[test]
fn progress_of_one_connection_keeps_its_order() {
    // R65, R66, R67, R68
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in filled(&mut client, "order", 3) {
            let poll = Poll::next().commit().count(4);
            let polls: Vec<_> = (0..3).map(|_| client.poll_frame(&place, poll)).collect();
            let get = client.get_offset_frame(&place, numbered(1));
            polls.iter().for_each(|poll| client.send(poll));
            client.send(&get);
            let read: Vec<_> =
                polls.iter().map(|poll| Polled::read(&client.reply_to(poll), &place).offsets()).collect();
            assert_eq!(read, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8]]);
            assert_eq!(crate::messages::stored_in(&client.reply_to(&get), &place), Some(8));

            let store = client.store_frame(&place, numbered(1), 5);
            let next = client.poll_frame(&place, Poll::next());
            let get = client.get_offset_frame(&place, numbered(1));
            let delete = client.delete_offset_frame(&place, numbered(1));
            let first = client.poll_frame(&place, Poll::next().count(1));
            for frame in [&store, &next, &get, &delete, &first] {
                client.send(frame);
            }
            assert_eq!(client.reply_to(&store).outcome(), 0);
            assert_eq!(Polled::read(&client.reply_to(&next), &place).offsets(), [6, 7, 8]);
            assert_eq!(crate::messages::stored_in(&client.reply_to(&get), &place), Some(5));
            assert_eq!(client.reply_to(&delete).outcome(), 0);
            assert_eq!(Polled::read(&client.reply_to(&first), &place).offsets(), [0]);
        }
    }
}

#[test]
fn head_of_u64_max_has_no_next() {
    // R13 needs a stored offset of u64::MAX, which a plain consumer cannot store above the head: it is refused.
    let node = Node::start(1);
    let mut client = node.client();
    let place = filled(&mut client, "max", 1).remove(0);
    let store = client.store_frame(&place, numbered(1), u64::MAX);
    assert_eq!(client.exchange(&store).outcome(), 4100);
    assert_eq!(client.poll(&place, Poll::next()).offsets().first(), Some(&0));
}
