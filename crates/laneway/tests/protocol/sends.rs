//! Appends: confirmed once, stored once, refused before anything happened. Source: wire protocol, sections 2.8, 3.8, 4.4.

use laneway_wire::options::Options;
use laneway_wire::request::{
    CreatePartitions, CreateTopic, DeletePartitions, DeleteStream, DeleteTopic, GetPartitionRoute,
};
use laneway_wire::{Identifier, PartitionId, Partitioning};

use crate::client::{AT_INCARNATION, AT_METADATA_OP, AT_NUMBER, AT_OWNER, Client, Place, u32_at, u64_at};
use crate::harness;
use crate::messages::{Poll, batch, confirmed};
use crate::node::{Node, SHARDS};

#[test]
fn confirmation_is_raw_and_names_the_place() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        client.topic("other", 1);
        let places = client.topic("sends", 3);
        for place in &places {
            for (base, count) in [(0, 1), (1, 3), (4, 1)] {
                let payloads: Vec<_> = (0..count).map(|index| format!("{index}")).collect();
                let sent = client.send_frame(place, &payloads);
                let reply = client.exchange(&sent);
                let body = reply.body();
                assert_eq!(body.len(), 24, "no result section, one confirmation of 20 bytes");
                assert_eq!(
                    [u32_at(body, 0), u32_at(body, 4), u32_at(body, 8), u32_at(body, 12)],
                    [1, 1, 0, place.partition.0],
                    "one entry; stream 1, topic 0"
                );
                assert_eq!(u64_at(body, 16), base);
                assert!(reply.is_committed() && reply.header().partition_incarnation == place.incarnation);
            }
            assert_eq!(client.poll(place, Poll::offset(0)).offsets(), [0, 1, 2, 3, 4]);
        }
    }
}

#[test]
fn repeated_send_is_stored_once() {
    // S90
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let mut second = client.another();
        for place in client.topic("once", 3) {
            let sent = client.send_frame(&place, &["a", "b"]);
            let reply = client.exchange(&sent);
            assert_eq!(confirmed(&reply, &place), 0);
            assert_eq!(client.exchange(&sent), reply, "on the same connection");
            assert_eq!(second.exchange(&sent), reply, "on another one");
            let later = client.append(&place, &["c"]);
            assert_eq!(later, 2);
            assert_eq!(client.poll(&place, Poll::offset(0)).payloads(), ["a", "b", "c"]);
        }
        let place = client.route("once", 1);
        let sent = client.send_frame(&place, &["d"]);
        let reply = client.exchange(&sent);
        node.restart();
        let mut third = client.another();
        assert_eq!(third.exchange(&sent), reply, "after a restart");
        assert_eq!(third.poll(&place, Poll::offset(0)).payloads(), ["a", "b", "c", "d"]);
    }
}

#[test]
fn resend_of_a_send_on_its_way_shares_its_confirmation() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let mut second = client.another();
        let place = client.topic("flight", 1).remove(0);
        for round in 0..30 {
            let sent = client.send_frame(&place, &[format!("{round}")]);
            client.send(&sent);
            second.send(&sent);
            let replies = [client.reply_to(&sent), second.reply_to(&sent)];
            assert_eq!(confirmed(&replies[0], &place), round);
            assert_eq!(replies[0], replies[1]);
        }
        assert_eq!(client.poll(&place, Poll::offset(0)).offsets(), (0..30).collect::<Vec<_>>());
    }
}

#[test]
fn resend_after_a_kill_is_stored_once() {
    let mut broker = harness::Broker::start(harness::Settings::new(env!("CARGO_BIN_EXE_laneway")));
    let mut client = Client::sign_in(broker.address());
    let places = client.topic("killed", 3);
    let mut answered = Vec::new();
    let mut open = Vec::new();
    for place in &places {
        let sent = client.send_frame(place, &["answered"]);
        answered.push((client.exchange(&sent), sent));
    }
    for place in &places {
        let sent = client.send_frame(place, &["open"]);
        client.send(&sent);
        open.push(sent);
    }
    broker.kill();
    broker.restart();
    let mut again = client.another();
    for ((reply, sent), (place, open)) in answered.iter().zip(places.iter().zip(&open)) {
        assert_eq!(again.exchange(open).status(), 0);
        let first = again.exchange(open);
        assert_eq!(confirmed(&first, place), 1, "whether or not it was stored before");
        // The latest send of a session is what a partition remembers; an older one is below its window.
        let old = again.exchange(sent);
        match old.status() {
            0 => assert_eq!(old, *reply),
            status => assert_eq!(status, 85),
        }
        assert_eq!(again.poll(place, Poll::offset(0)).payloads(), ["answered", "open"]);
    }
}

#[test]
fn number_below_the_window_is_too_old() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("window", 1).remove(0);
    let never_sent = client.send_frame(&place, &["late"]);
    let sent: Vec<_> = (0..2000).map(|index| client.send_frame(&place, &[format!("{index}")])).collect();
    for chunk in sent.chunks(200) {
        chunk.iter().for_each(|frame| client.send(frame));
        chunk.iter().for_each(|frame| assert_eq!(client.reply_to(frame).status(), 0));
    }
    for frame in [&never_sent, &sent[0]] {
        let reply = client.exchange(frame);
        assert_eq!(reply.status(), 85, "{:?}", frame.header());
        reply.assert_refused(85);
    }
    assert_eq!(client.poll(&place, Poll::new(laneway_wire::Strategy::Last).count(1)).offsets(), [1999]);
}

#[test]
fn equal_messages_of_two_requests_are_two() {
    // S91
    let node = Node::start(1);
    let mut client = node.client();
    let place = client.topic("twice", 1).remove(0);
    assert_eq!([client.append(&place, &["same"]), client.append(&place, &["same"])], [0, 1]);
}

#[test]
fn incarnation_that_is_not_the_current_one_is_history() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for place in client.topic("lives", 3) {
            for incarnation in [0, place.incarnation.0 + 1, u64::MAX] {
                let sent = client.send_frame(&place, &["x"]).with(AT_INCARNATION, &incarnation.to_le_bytes());
                let reply = client.exchange(&sent);
                reply.assert_refused(87);
                assert_eq!(reply.header().partition_incarnation.0, incarnation, "the echo");
            }
            let owned = client.send_frame(&place, &["x"]).with(AT_OWNER, &1u64.to_le_bytes());
            client.exchange(&owned).assert_refused(5009);
            let future = client.send_frame(&place, &["x"]);
            let future = future.with(AT_METADATA_OP, &u64::MAX.to_le_bytes()).with(AT_INCARNATION, &[9; 8]);
            // A node that lags behind may not say that a history is gone.
            client.exchange(&future).assert_refused(58);
            assert_eq!(client.append(&place, &["x"]), 0, "nothing was stored");
        }
    }
}

#[test]
fn life_that_ended_is_history_in_the_next() {
    // S22, S23
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let old = client.topic("reborn", 3).remove(2);
        client.append(&old, &["gone"]);
        client.store(&old, crate::messages::numbered(1), 0);
        let name = Identifier::Name("reborn");
        assert_eq!(
            client.ask(&DeletePartitions { stream: name, topic: name, partitions_count: 1 }).outcome(),
            0
        );
        let sent = client.send_frame(&old, &["x"]);
        client.exchange(&sent).assert_refused(3007);
        assert_eq!(client.poll_status(&old, Poll::offset(0)), 3007);
        assert_eq!(
            client.ask(&CreatePartitions { stream: name, topic: name, partitions_count: 1 }).outcome(),
            0
        );
        let new = client.route("reborn", 2);
        assert!(new.incarnation > old.incarnation);
        let sent = client.send_frame(&old, &["x"]);
        client.exchange(&sent).assert_refused(87);
        assert_eq!(client.poll_status(&old, Poll::offset(0)), 87);
        let store = client.store_frame(&old, crate::messages::numbered(1), 0);
        client.exchange(&store).assert_refused(87);
        assert!(client.poll(&new, Poll::offset(0)).messages.is_empty());
        assert_eq!(client.stored(&new, crate::messages::numbered(1)), None);
        assert_eq!(client.append(&new, &["first"]), 0);
    }
}

#[test]
fn deleted_topic_of_the_same_name_is_another_history() {
    let node = Node::start(2);
    let mut client = node.client();
    let old = client.topic("again", 1).remove(0);
    client.append(&old, &["gone"]);
    assert_eq!(client.ask(&DeleteStream { stream: Identifier::Name("again") }).outcome(), 0);
    let new = client.topic("again", 1).remove(0);
    assert_ne!(new.incarnation, old.incarnation);
    let sent = client.send_frame(&old, &["x"]);
    client.exchange(&sent).assert_refused(87);
    assert_eq!(client.append(&new, &["x"]), 0);
}

#[test]
fn missing_places_have_their_own_codes() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("here", 1).remove(0);
    let batch = batch(&["x"], None);
    let (here, gone) = (Identifier::Name("here"), Identifier::Name("gone"));
    let (zero, nine) = (Identifier::Numeric(0), Identifier::Numeric(9));
    let cases = [
        (here, here, 7, 3007),
        (gone, here, 0, 1010),
        (nine, here, 0, 1009),
        (here, gone, 0, 2011),
        (here, nine, 0, 2010),
        (zero, zero, 1, 3007),
    ];
    for (stream, topic, partition, code) in cases {
        let metadata = laneway_wire::request::SendMessages {
            stream,
            topic,
            partitioning: Partitioning::Partition(PartitionId(partition)),
            messages_count: 1,
            batch_at: 0,
        };
        let sent = client.frame_at(&place, &metadata);
        let body = [sent.body(), &batch].concat();
        client.exchange(&sent.with_body(&body)).assert_refused(code);
        let route = client.ask(&GetPartitionRoute { stream, topic, partition: PartitionId(partition) });
        assert_eq!((route.status(), route.body().len()), (code, 0), "its route");
    }
}

#[test]
fn topic_without_partitions_takes_nothing() {
    // S16
    let node = Node::start(1);
    let mut client = node.client();
    let place = client.topic("full", 1).remove(0);
    let stream = Identifier::Name("full");
    let empty = CreateTopic { stream, partitions_count: 0, name: "empty", options: Options::EMPTY };
    assert_eq!(client.ask(&empty).outcome(), 0);
    let place = Place { topic: "empty".to_owned(), ..place };
    let sent = client.send_frame(&place, &["x"]);
    client.exchange(&sent).assert_refused(3008);
    assert_eq!(client.ask(&DeleteTopic { stream, topic: Identifier::Name("empty") }).outcome(), 0);
}

#[test]
fn partition_is_the_clients_choice() {
    let node = Node::start(1);
    let mut client = node.client();
    let place = client.topic("choice", 2).remove(0);
    let batch = batch(&["x"], None);
    for partitioning in [Partitioning::Balanced, Partitioning::Key(b"key")] {
        let sent = client.send_frame_of(&place, partitioning, 1, &batch);
        client.exchange(&sent).assert_refused(5);
    }
    // Kind 2 with a length that is not 4.
    let sent = client.send_frame_of(&place, Partitioning::Key(b"key"), 1, &batch);
    let kind = sent.bytes.windows(5).position(|bytes| bytes == b"\x03\x03key").expect("the partitioning");
    client.exchange(&sent.with(kind, &[2])).assert_refused(3);
    assert_eq!(client.append(&place, &["x"]), 0);
}

/// Places in a batch: fields of its header, and the first frame behind it.
const AT_LENGTH: usize = 32;
const AT_BATCH_CHECKSUM: usize = 40;
const AT_COUNT: usize = 48;
const AT_RESERVED: usize = 80;
const AT_FRAME: usize = 256;

/// Overwrites and makes the checksums right again, so that only the rule under test is broken.
fn sealed(batch: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    use xxhash_rust::xxh3::xxh3_64;
    let mut batch = batch.to_vec();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let frame = xxh3_64(&batch[AT_FRAME + 8..]);
    batch[AT_FRAME..AT_FRAME + 8].copy_from_slice(&frame.to_le_bytes());
    let covered = [&batch[..40], &batch[48..52], &frame.to_le_bytes()].concat();
    let checksum = xxh3_64(&covered);
    batch[AT_BATCH_CHECKSUM..AT_BATCH_CHECKSUM + 8].copy_from_slice(&checksum.to_le_bytes());
    batch
}

fn damaged(batch: &[u8], at: usize) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[at] ^= 1;
    batch
}

#[test]
fn batches_that_break_a_rule_are_refused() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("rules", 1).remove(0);
    let good = batch(&["payload"], None);
    assert_eq!(
        sealed(&good, AT_COUNT, &1u32.to_le_bytes()),
        good,
        "the helper computes what the builder does"
    );
    let length = good.len() as u64;
    let longer = [&good[..], &[0]].concat();
    let cases: Vec<(&str, Vec<u8>, u32, u32)> = vec![
        ("a damaged payload", damaged(&good, AT_FRAME + 48), 1, 4027),
        ("a damaged message checksum", damaged(&good, AT_FRAME), 1, 4027),
        ("a damaged id", damaged(&good, AT_FRAME + 8), 1, 4027),
        ("a damaged batch checksum", damaged(&good, AT_BATCH_CHECKSUM), 1, 4039),
        ("another origin timestamp", damaged(&good, 24), 1, 4039),
        ("a count that is not the request's", good.clone(), 2, 4009),
        ("no message in the request", good.clone(), 0, 4009),
        ("a count above the frames", sealed(&good, AT_COUNT, &2u32.to_le_bytes()), 2, 3),
        ("a reserved byte", sealed(&good, AT_RESERVED, &[1]), 1, 3),
        ("a reserved field of a message", sealed(&good, AT_FRAME + 40, &[1]), 1, 3),
        ("an offset_delta out of place", sealed(&good, AT_FRAME + 24, &1u32.to_le_bytes()), 1, 3),
        ("a length below the bytes", sealed(&good, AT_LENGTH, &(length - 1).to_le_bytes()), 1, 3),
        ("a length above the bytes", sealed(&good, AT_LENGTH, &(length + 1).to_le_bytes()), 1, 3),
        ("a length below the header", sealed(&good, AT_LENGTH, &255u64.to_le_bytes()), 1, 3),
        ("a byte behind the batch", longer, 1, 3),
        ("no batch", Vec::new(), 1, 3),
        ("half a header", good[..100].to_vec(), 1, 3),
    ];
    let partitioning = Partitioning::Partition(place.partition);
    for (what, batch, count, code) in cases {
        let sent = client.send_frame_of(&place, partitioning, count, &batch);
        let reply = client.exchange(&sent);
        assert_eq!(reply.status(), code, "{what}");
        reply.assert_refused(code);
    }
    assert_eq!(client.append(&place, &["x"]), 0, "nothing was stored");
}

#[test]
fn messages_out_of_their_limits_are_refused() {
    // S92
    let node = Node::start(1);
    let mut client = node.client();
    let place = client.topic("sizes", 1).remove(0);
    let partitioning = Partitioning::Partition(place.partition);
    let message = |payload: usize, headers: usize| {
        let mut bytes = batch(&["x"], None);
        bytes.resize(AT_FRAME + 48 + payload + headers, b'h');
        bytes[AT_FRAME + 32..AT_FRAME + 36].copy_from_slice(&(headers as u32).to_le_bytes());
        bytes[AT_FRAME + 36..AT_FRAME + 40].copy_from_slice(&(payload as u32).to_le_bytes());
        let length = bytes.len() as u64;
        sealed(&bytes, AT_LENGTH, &length.to_le_bytes())
    };
    let cases = [
        (message(0, 0), 4024),
        (message(0, 20), 4024),
        (message(1, 100_001), 4017),
        (message(64_000_001, 0), 4022),
        (message(1, 100_000), 0),
    ];
    for (bytes, code) in cases {
        let sent = client.send_frame_of(&place, partitioning, 1, &bytes);
        assert_eq!(client.exchange(&sent).status(), code);
    }
}

#[test]
fn number_is_shared_by_partitions() {
    // The key of a resend is the partition, too: the same number elsewhere is another request.
    let node = Node::start(3);
    let mut client = node.client();
    let places = client.topic("numbers", 3);
    let number = client.next_number().0.to_le_bytes();
    for place in &places {
        let sent = client.send_frame(place, &["x"]).with(AT_NUMBER, &number);
        assert_eq!(confirmed(&client.exchange(&sent), place), 0);
        assert_eq!(confirmed(&client.exchange(&sent), place), 0);
    }
}
