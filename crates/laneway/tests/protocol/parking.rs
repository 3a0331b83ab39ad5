//! Polls that wait: what wakes them, what ends them, what they store. Source: reads, sections 4 and 13.6 to 13.13.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use laneway_wire::reply::{ClientHeader, read_list};
use laneway_wire::request::{CreatePartitions, DeletePartitions, DeleteTopic, GetClients, Logout};
use laneway_wire::{Identifier, Strategy};

use crate::client::{AT_CODE, Client, Place, Sent};
use crate::messages::{Poll, Polled, named, numbered};
use crate::node::{Node, SHARDS};

/// How long a test looks at something that must not happen.
const SETTLING: Duration = Duration::from_millis(40);

/// A wait that a test never sees the end of.
const LONG_MS: u64 = 20_000;

/// Sends a poll and makes sure that it is parked: a later request is answered, and it is not.
fn park(client: &mut Client, place: &Place, poll: Poll<'_>) -> Sent {
    let sent = client.poll_frame(place, poll);
    client.send(&sent);
    client.assert_alive();
    assert!(client.reply_within(&sent, SETTLING).is_none(), "the poll parks");
    sent
}

fn cancel(client: &Client, poll: &Sent) -> Sent {
    assert_eq!(client.session.client, poll.header().client);
    let header = Sent { bytes: poll.bytes[..256].to_vec() };
    header.with(AT_CODE, &108u32.to_le_bytes()).with_body(&[])
}

#[test]
fn commit_wakes_a_parked_poll() {
    // R80, R84, R86: partitions of every shard, connections on any.
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut producer = node.client();
        let mut reader = node.client();
        for (round, place) in producer.topic("wake", 4).iter().enumerate() {
            let sent = park(&mut reader, place, Poll::next().wait_ms(LONG_MS));
            let begun = Instant::now();
            producer.append(place, &[format!("{round}")]);
            let polled = Polled::read(&reader.reply_to(&sent), place);
            assert_eq!(polled.payloads(), [format!("{round}")]);
            assert!(begun.elapsed() < Duration::from_secs(3), "woken, not timed out");

            let beyond = park(&mut reader, place, Poll::offset(3).wait_ms(LONG_MS));
            producer.append(place, &["1", "2"]);
            assert!(reader.reply_within(&beyond, SETTLING).is_none(), "offset 3 is not there yet");
            producer.append(place, &["3"]);
            assert_eq!(Polled::read(&reader.reply_to(&beyond), place).payloads(), ["3"]);
        }
    }
}

#[test]
fn wait_ends_with_what_is_there() {
    // R82, R83
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in client.topic("idle", shards.into()) {
            let begun = Instant::now();
            let polled = client.poll(&place, Poll::offset(0).wait_ms(300));
            let took = begun.elapsed();
            assert_eq!(polled.messages.len(), 0);
            assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
            client.append(&place, &["a", "b"]);
            let begun = Instant::now();
            let polled = client.poll(&place, Poll::offset(0).min_count(3).wait_ms(300));
            assert_eq!(polled.payloads(), ["a", "b"], "below min_count");
            assert!(begun.elapsed() >= Duration::from_millis(300));
        }
    }
}

#[test]
fn poll_answers_at_its_own_min_count() {
    // R79, R80, R87, R88, R81
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut producer = node.client();
        let mut reader = node.client();
        let place = producer.topic("counts", 1).remove(0);
        let polls: Vec<_> = [1, 2, 3]
            .map(|min_count| park(&mut reader, &place, Poll::offset(0).min_count(min_count).wait_ms(LONG_MS)))
            .into();
        for (index, poll) in polls.iter().enumerate() {
            producer.append(&place, &[format!("{index}")]);
            let polled = Polled::read(&reader.reply_to(poll), &place);
            assert_eq!(polled.offsets(), (0..=index as u64).collect::<Vec<_>>());
            if let Some(next) = polls.get(index + 1) {
                assert!(reader.reply_within(next, SETTLING).is_none());
            }
        }
        assert_eq!(reader.poll(&place, Poll::offset(0).min_count(3).wait_ms(LONG_MS)).offsets(), [0, 1, 2]);
        // The bytes are full below min_count.
        let full = reader.poll(&place, Poll::offset(0).min_count(3).max_bytes(344).wait_ms(LONG_MS));
        assert_eq!(full.offsets(), [0]);
        let many: Vec<_> =
            (0..20).map(|_| park_soon(&mut reader, &place, Poll::offset(3).wait_ms(LONG_MS))).collect();
        reader.assert_alive();
        producer.append(&place, &["3"]);
        for poll in &many {
            assert_eq!(Polled::read(&reader.reply_to(poll), &place).offsets(), [3]);
        }
    }
}

fn park_soon(client: &mut Client, place: &Place, poll: Poll<'_>) -> Sent {
    let sent = client.poll_frame(place, poll);
    client.send(&sent);
    sent
}

#[test]
fn last_poll_is_resolved_when_it_wakes() {
    // R89
    let node = Node::start(2);
    let mut producer = node.client();
    let mut reader = node.client();
    let place = producer.topic("last", 1).remove(0);
    let last = park(&mut reader, &place, Poll::new(Strategy::Last).count(2).min_count(2).wait_ms(LONG_MS));
    producer.append(&place, &["a", "b", "c", "d"]);
    assert_eq!(Polled::read(&reader.reply_to(&last), &place).payloads(), ["c", "d"]);
}

#[test]
fn long_wait_is_cut_to_the_servers() {
    // R85
    let node = Node::start_with(2, |config| config.reads.wait_max = Duration::from_millis(400));
    let mut client = node.client();
    for place in client.topic("cut", 2) {
        let begun = Instant::now();
        let polled = client.poll(&place, Poll { wait_us: 600_000_000, ..Poll::offset(0) });
        let took = begun.elapsed();
        assert_eq!(polled.messages.len(), 0);
        assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn waiting_poll_does_not_delay_the_connection() {
    // R67, R68
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("beside", 2);
        let parked = park(&mut client, &places[0], Poll::next().commit().wait_ms(LONG_MS));
        assert_eq!(client.append(&places[1], &["x"]), 0);
        assert_eq!(client.poll(&places[1], Poll::next().commit()).offsets(), [0]);
        assert_eq!(client.poll(&places[0], Poll::next().by(numbered(2)).commit()).offsets(), [0; 0]);
        assert_eq!(client.poll(&places[0], Poll::offset(0)).offsets(), [0; 0]);
        client.append(&places[0], &["y"]);
        assert_eq!(Polled::read(&client.reply_to(&parked), &places[0]).payloads(), ["y"]);
    }
}

#[test]
fn request_that_waits_in_a_lane_loses_its_time() {
    // R90, R91
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("queue", 1).remove(0);
    let first = park(&mut client, &place, Poll::next().commit().wait_ms(1500));
    // Its whole timeout passes behind the first one.
    let late = client.poll_frame(&place, Poll::next().commit().timeout_us(300_000));
    client.send(&late);
    assert_eq!(Polled::read(&client.reply_to(&first), &place).messages.len(), 0);
    let reply = client.reply_to(&late);
    assert_eq!(reply.status(), 58);
    assert_eq!(client.stored(&place, numbered(1)), None);
}

#[test]
fn cancelled_plain_poll_has_no_reply() {
    // R97, R98, R102, R104
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in client.topic("cancel", shards.into()) {
            let parked = park(&mut client, &place, Poll::next().wait_ms(LONG_MS));
            let behind = client.poll_frame(&place, Poll::next().wait_ms(LONG_MS));
            client.send(&behind);
            for poll in [&behind, &parked] {
                let cancel = cancel(&client, poll);
                client.link.send(&cancel);
            }
            client.assert_alive();
            assert_eq!(client.append(&place, &["x"]), 0);
            for poll in [&behind, &parked] {
                assert!(client.reply_within(poll, SETTLING).is_none(), "no reply at all");
            }
            // A cancel of what was answered, or never sent, is nothing.
            let polled = client.frame(&laneway_wire::request::Ping {});
            assert_eq!(client.exchange(&polled).status(), 0);
            let cancel = cancel(&client, &polled);
            client.link.send(&cancel);
            assert_eq!(client.poll(&place, Poll::next()).offsets(), [0]);
        }
    }
}

#[test]
fn cancelled_committing_poll_has_one_reply() {
    // R99, R101
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in client.topic("gate", shards.into()) {
            let parked = park(&mut client, &place, Poll::next().commit().wait_ms(LONG_MS));
            let behind = client.poll_frame(&place, Poll::next().commit().wait_ms(LONG_MS));
            client.send(&behind);
            for poll in [&behind, &parked] {
                let frame = cancel(&client, poll);
                client.link.send(&frame);
                let reply = client.reply_to(poll);
                assert_eq!((reply.status(), reply.body().len()), (58, 0));
            }
            client.append(&place, &["x"]);
            sleep(Duration::from_millis(20));
            assert_eq!(client.stored(&place, numbered(1)), None);
            assert_eq!(client.poll(&place, Poll::next().commit()).offsets(), [0]);
        }
    }
}

#[test]
fn race_of_cancel_and_commit_has_one_outcome() {
    // R100
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut producer = node.client();
        let mut reader = node.client();
        let place = producer.topic("race", 1).remove(0);
        let mut outcomes = [0, 0];
        for round in 0..60u64 {
            let name = format!("reader-{round}");
            let poll = Poll::offset(round).by(named(&name)).commit().wait_ms(LONG_MS);
            let sent = park_soon(&mut reader, &place, poll);
            let frame = cancel(&reader, &sent);
            scope(|scope| {
                scope.spawn(|| producer.append(&place, &["x"]));
                scope.spawn(|| {
                    sleep(Duration::from_micros(round * 40));
                    reader.link.send(&frame);
                });
            });
            let reply = reader.reply_to(&sent);
            let stored = reader.stored(&place, named(&name));
            match reply.status() {
                0 => assert_eq!(Some(Polled::read(&reply, &place).offsets()[0]), stored),
                58 => assert_eq!(stored, None, "58 and the offset moved"),
                other => panic!("status {other}"),
            }
            outcomes[usize::from(reply.status() == 0)] += 1;
        }
        println!("{shards} shards: {outcomes:?} cancelled and served");
    }
}

#[test]
fn cancel_of_another_identity_does_nothing() {
    // R103
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("others", 1).remove(0);
    let parked = park(&mut client, &place, Poll::next().commit().wait_ms(LONG_MS));
    let frame = cancel(&client, &parked);
    let wrong = [
        frame.with(184, &(client.session.epoch.0 + 1).to_le_bytes()),
        frame.with(128, &99u128.to_le_bytes()),
        frame.with(168, &(parked.number() + 1000).to_le_bytes()),
    ];
    for frame in &wrong {
        client.link.send(frame);
    }
    // From another connection of the same session.
    let mut second = client.another();
    second.link.send(&frame);
    second.assert_alive();
    let ping = client.frame(&laneway_wire::request::Ping {});
    client.send(&ping);
    // A cancel has no reply, whatever is wrong with it.
    assert_eq!(client.reply_to(&ping).status(), 0);
    client.append(&place, &["x"]);
    assert_eq!(Polled::read(&client.reply_to(&parked), &place).offsets(), [0]);
}

/// Waits until the broker has noticed that this connection is the only one.
fn await_alone(client: &mut Client) {
    let deadline = Instant::now() + Duration::from_secs(5);
    let count = |client: &mut Client| {
        let body = client.must(&GetClients {});
        read_list::<ClientHeader<'_>>(&body).expect("clients").len()
    };
    while count(client) > 1 {
        assert!(Instant::now() < deadline, "a lost connection is noticed");
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn lost_connection_stores_nothing() {
    // R107, R125
    for shards in SHARDS {
        let node = Node::start_with(shards, |config| config.reads.pending_per_session_max = 2);
        let mut keeper = node.client();
        let places = keeper.topic("lost", 2);
        for round in 0..4u64 {
            for place in &places {
                let mut lost = keeper.another();
                park(&mut lost, place, Poll::offset(round).commit().wait_ms(LONG_MS));
                drop(lost);
                await_alone(&mut keeper);
                keeper.append(place, &[format!("{round}")]);
                assert_eq!(keeper.stored(place, numbered(1)), None, "nothing is stored for who is gone");
            }
        }
    }
}

#[test]
fn full_quota_of_a_session_refuses_its_next() {
    // R122, R124, R125, R126
    for shards in SHARDS {
        let node = Node::start_with(shards, |config| config.reads.pending_per_session_max = 3);
        let (mut client, mut other) = (node.client(), node.client());
        let place = client.topic("quota", 1).remove(0);
        let mut second = client.another();
        let parked: Vec<_> =
            (0..2).map(|_| park(&mut client, &place, Poll::offset(0).wait_ms(LONG_MS))).collect();
        let third = park(&mut second, &place, Poll::offset(0).wait_ms(LONG_MS));
        assert_eq!(client.poll_status(&place, Poll::offset(0).wait_ms(LONG_MS)), 90);
        assert_eq!(
            second.poll_status(&place, Poll::next().commit().wait_ms(LONG_MS)),
            90,
            "its connections share"
        );
        assert_eq!(
            client.poll(&place, Poll::offset(0)).messages.len(),
            0,
            "a poll that does not wait needs none"
        );
        let others = park(&mut other, &place, Poll::offset(0).wait_ms(LONG_MS));
        let frame = cancel(&client, &parked[0]);
        client.link.send(&frame);
        client.assert_alive();
        let again = park(&mut client, &place, Poll::offset(0).wait_ms(LONG_MS));
        client.append(&place, &["x"]);
        for poll in [&parked[1], &again] {
            assert_eq!(Polled::read(&client.reply_to(poll), &place).offsets(), [0]);
        }
        assert_eq!(Polled::read(&second.reply_to(&third), &place).offsets(), [0]);
        assert_eq!(Polled::read(&other.reply_to(&others), &place).offsets(), [0]);
    }
}

#[test]
fn full_quota_of_a_shard_refuses_everybody() {
    // R123
    let node = Node::start_with(1, |config| {
        config.reads.pending_per_shard_max = 4;
        config.reads.pending_per_session_max = 4;
    });
    let (mut one, mut other) = (node.client(), node.client());
    let place = one.topic("shard", 1).remove(0);
    for client in [&mut one, &mut other] {
        for _ in 0..2 {
            park(client, &place, Poll::offset(0).wait_ms(LONG_MS));
        }
    }
    assert_eq!(one.poll_status(&place, Poll::offset(0).wait_ms(LONG_MS)), 90);
}

#[test]
fn deleted_partition_ends_its_polls() {
    // R112, R113
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut admin) = (node.client(), node.client());
        for round in 0..3u32 {
            let name = format!("gone-{round}");
            let place = admin.topic(&name, round + 1).remove(round as usize);
            let plain = park(&mut client, &place, Poll::offset(0).wait_ms(LONG_MS));
            let committing = park(&mut client, &place, Poll::next().commit().wait_ms(LONG_MS));
            let id = Identifier::Name(&name);
            match round {
                0 => assert_eq!(admin.ask(&DeleteTopic { stream: id, topic: id }).outcome(), 0),
                _ => {
                    let delete = DeletePartitions { stream: id, topic: id, partitions_count: 1 };
                    assert_eq!(admin.ask(&delete).outcome(), 0);
                    let create = CreatePartitions { stream: id, topic: id, partitions_count: 1 };
                    assert_eq!(admin.ask(&create).outcome(), 0);
                    let reborn = admin.route(&name, round);
                    admin.append(&reborn, &["of the next life"]);
                }
            }
            for poll in [&plain, &committing] {
                let reply = client.reply_within(poll, Duration::from_secs(3)).expect("promptly");
                assert_eq!(reply.status(), 87);
            }
        }
    }
}

#[test]
fn end_of_the_session_ends_its_polls() {
    // R108
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut admin) = (node.client(), node.client());
        for place in admin.topic("session", shards.into()) {
            let mut owner = node.client();
            let mut waiter = owner.another();
            let parked = park(&mut waiter, &place, Poll::next().commit().wait_ms(LONG_MS));
            assert_eq!(owner.ask(&Logout {}).status(), 0);
            let reply = waiter.reply_within(&parked, Duration::from_secs(3)).expect("promptly");
            assert_eq!(reply.status(), 30);
        }
        client.assert_alive();
    }
}

#[test]
fn stop_ends_every_poll() {
    // R120
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let place = client.topic("stop", 1).remove(0);
        let parked = park(&mut client, &place, Poll::next().commit().wait_ms(LONG_MS));
        let begun = Instant::now();
        scope(|scope| {
            scope.spawn(|| node.stop());
            assert_eq!(client.reply_to(&parked).status(), 58);
        });
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

/// A committing `Next` poll is parked; `between` happens on another session; a message comes.
fn fenced(between: impl Fn(&mut Client, &Place)) -> (u32, Option<u64>) {
    let node = Node::start(2);
    let (mut client, mut other) = (node.client(), node.client());
    let place = client.topic("fence", 1).remove(0);
    client.append(&place, &["0", "1", "2"]);
    client.store(&place, numbered(1), 2);
    let parked = park(&mut client, &place, Poll::next().commit().wait_ms(LONG_MS));
    between(&mut other, &place);
    other.append(&place, &["3"]);
    let reply = client.reply_to(&parked);
    (reply.status(), client.stored(&place, numbered(1)))
}

#[test]
fn stores_of_others_fence_a_committing_next() {
    // R55, R56, R57, R63
    assert_eq!(fenced(|_, _| {}), (0, Some(3)));
    assert_eq!(fenced(|other, place| other.store(place, numbered(1), 0)), (58, Some(0)));
    assert_eq!(fenced(|other, place| other.store(place, numbered(1), 2)), (58, Some(2)));
    let delete =
        |other: &mut Client, place: &Place| assert_eq!(other.delete_offset(place, numbered(1)).outcome(), 0);
    assert_eq!(fenced(delete), (58, None));
    assert_eq!(fenced(|other, place| other.store(place, numbered(2), 0)), (0, Some(3)));
}

#[test]
fn delete_of_nothing_fences_a_committing_next() {
    // R57
    let node = Node::start(2);
    let (mut client, mut other) = (node.client(), node.client());
    let place = client.topic("fence", 1).remove(0);
    let parked = park(&mut client, &place, Poll::next().commit().wait_ms(LONG_MS));
    assert_eq!(other.delete_offset(&place, numbered(1)).outcome(), 3021);
    other.append(&place, &["x"]);
    assert_eq!(client.reply_to(&parked).status(), 58);
    assert_eq!(client.stored(&place, numbered(1)), None);
}

#[test]
fn committing_next_polls_of_one_key_deliver_once() {
    // R61
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut producer = node.client();
        let place = producer.topic("twice", 1).remove(0);
        let (mut one, mut other) = (node.client(), node.client());
        for round in 0..10 {
            let poll = Poll::next().commit().wait_ms(LONG_MS);
            let (first, second) = (park_soon(&mut one, &place, poll), park_soon(&mut other, &place, poll));
            one.assert_alive();
            other.assert_alive();
            producer.append(&place, &[format!("{round}")]);
            let mut statuses = [one.reply_to(&first).status(), other.reply_to(&second).status()];
            statuses.sort_unstable();
            assert_eq!(statuses, [0, 58], "one returns it");
        }
    }
}

#[test]
fn stores_do_not_fence_other_reads() {
    // R62, R64
    let node = Node::start(2);
    let (mut client, mut other) = (node.client(), node.client());
    let place = client.topic("free", 1).remove(0);
    client.append(&place, &["0", "1"]);
    client.store(&place, numbered(1), 1);
    let explicit = park(&mut client, &place, Poll::offset(2).commit().wait_ms(LONG_MS));
    let same = park(&mut client, &place, Poll::next().by(numbered(2)).min_count(3).wait_ms(LONG_MS));
    other.store(&place, numbered(1), 0);
    other.append(&place, &["2"]);
    assert_eq!(Polled::read(&client.reply_to(&explicit), &place).offsets(), [2]);
    assert_eq!(client.stored(&place, numbered(1)), Some(2));
    assert_eq!(Polled::read(&client.reply_to(&same), &place).offsets(), [0, 1, 2]);
    // A plain `Next` is refused when its start moved, and only then.
    client.store(&place, numbered(3), 2);
    let kept = park(&mut client, &place, Poll::next().by(numbered(3)).wait_ms(LONG_MS));
    other.store(&place, numbered(3), 2);
    client.store(&place, numbered(4), 2);
    let moved = park(&mut client, &place, Poll::next().by(numbered(4)).wait_ms(LONG_MS));
    other.store(&place, numbered(4), 1);
    other.append(&place, &["3"]);
    assert_eq!(Polled::read(&client.reply_to(&kept), &place).offsets(), [3]);
    assert_eq!(client.reply_to(&moved).status(), 58);
}
