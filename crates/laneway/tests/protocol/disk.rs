//! A disk that fails: what clients are told, what is still served, and what a restart finds.

use std::path::Path;
use std::time::{Duration, Instant};

use laneway_storage::driver::faults::fail;

use crate::client::{Client, Place};
use crate::messages::{Poll, batch, numbered};
use crate::node::Node;

const EIO: i32 = 5;
const PAYLOAD: usize = 200_000;

fn small_journals(shards: u16) -> Node {
    Node::start_with(shards, |config| {
        config.storage.journal_bytes_max = 4 << 20;
        config.storage.cache_bytes_max = 4 << 20;
    })
}

fn send(client: &mut Client, place: &Place) -> u32 {
    let frame = client.send_frame(place, &[vec![b'x'; PAYLOAD]]);
    client.exchange(&frame).outcome()
}

fn offsets(client: &mut Client, place: &Place) -> usize {
    client.poll(place, Poll::offset(0).code(100).count(10_000)).messages.len()
}

fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory.join("journal")).expect("a directory").count()
}

/// A write or a flush of the journal that failed: nothing of it is repeated, also when the disk works again, and nothing
/// that was acknowledged is lost.
#[test]
fn failed_journal_takes_nothing_until_a_restart_and_is_read_from() {
    for operation in ["write", "flush"] {
        let mut node = small_journals(1);
        let mut client = node.client();
        let place = client.topic("broken", 1).remove(0);
        for _ in 0..5 {
            assert_eq!(send(&mut client, &place), 0);
        }
        let fault = fail(node.data_dir(), ".journal", operation, EIO);
        let unknown = client.send_frame(&place, &[vec![b'x'; PAYLOAD]]);
        assert_eq!(client.exchange(&unknown).outcome(), 57, "{operation}: it may have been written");
        assert_eq!(send(&mut client, &place), 4010);
        drop(fault);
        assert_eq!(send(&mut client, &place), 4010, "a failed {operation} is not repeated");
        let store = client.store_frame(&place, numbered(1), 3);
        assert_eq!(client.exchange(&store).outcome(), 4010);
        assert_eq!(offsets(&mut client, &place), 5, "reads go on");
        assert_eq!(client.poll_status(&place, Poll::next().commit().count(1)), 58, "nothing is stored");
        assert_eq!(client.exchange(&unknown).outcome(), 57, "still unknown");
        node.restart();
        let mut client = client.another();
        let found = offsets(&mut client, &place);
        assert!((5..=6).contains(&found), "{operation}: {found}");
        assert_eq!(client.exchange(&unknown).outcome(), 0, "sent again it is stored once");
        assert_eq!(offsets(&mut client, &place), 6);
        assert_eq!(send(&mut client, &place), 0);
    }
}

/// Checkpoints that fail: messages are refused before the journals grow without bound, and are taken again once a
/// checkpoint succeeds.
#[test]
fn failing_checkpoints_bound_what_is_accepted() {
    let node = small_journals(1);
    let mut client = node.client();
    let place = client.topic("clogged", 1).remove(0);
    // Small enough for the journal: larger batches go straight to their segments and fill no journal.
    let send = |client: &mut Client, place: &Place| {
        let frame = client.send_frame(place, &[vec![b'x'; 50_000]]);
        client.exchange(&frame).outcome()
    };
    assert_eq!(send(&mut client, &place), 0);
    let fault = fail(node.data_dir(), ".checkpoint.tmp", "write", EIO);
    let mut sent = 1;
    loop {
        match send(&mut client, &place) {
            0 => sent += 1,
            refused => {
                assert_eq!(refused, 4010);
                break;
            }
        }
        assert!(sent < 4_000, "200 MB in journals of 4");
    }
    assert!(files(node.data_dir()) < 20, "{} journals", files(node.data_dir()));
    assert!(offsets(&mut client, &place) > 0, "reads go on");
    client.store(&place, numbered(1), 0);
    drop(fault);
    let end = Instant::now() + Duration::from_secs(40);
    while send(&mut client, &place) != 0 {
        assert!(Instant::now() < end, "messages are taken again");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A read that fails is an error, not an empty answer, and passes with its cause.
#[test]
fn failed_read_of_a_segment_is_an_error_while_it_lasts() {
    let mut node = small_journals(2);
    let mut client = node.client();
    let places = client.topic("unread", 2);
    for place in &places {
        for _ in 0..3 {
            assert_eq!(send(&mut client, place), 0);
        }
    }
    node.restart();
    let mut client = node.client();
    for place in &places {
        let fault = fail(node.data_dir(), ".segment", "read", EIO);
        assert_eq!(client.poll_status(place, Poll::offset(0).code(100).count(10)), 4011);
        assert_eq!(send(&mut client, place), 0, "writes go on");
        assert_eq!(client.poll(place, Poll::offset(3).code(100).count(10)).offsets(), [3], "from memory");
        drop(fault);
        assert_eq!(offsets(&mut client, place), 4);
    }
}

/// Below the configured free space messages are refused at once, and everything else works.
#[test]
fn too_little_free_space_refuses_messages_only() {
    let node = Node::start_with(2, |config| config.storage.free_bytes_min = Some(1 << 60));
    let mut client = node.client();
    let place = client.topic("full", 2).remove(1);
    assert_eq!(send(&mut client, &place), 3009);
    let small = client.send_frame_of(
        &place,
        laneway_wire::Partitioning::Partition(place.partition),
        1,
        &batch(&["small"], None),
    );
    assert_eq!(client.exchange(&small).outcome(), 3009);
    assert_eq!(offsets(&mut client, &place), 0);
    client.assert_alive();
    client.topic("more", 1);
}
