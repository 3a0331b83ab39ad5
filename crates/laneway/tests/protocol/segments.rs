//! Reads of what checkpoints moved from memory to segments: as the reads of memory.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use laneway_wire::Strategy;
use laneway_wire::reply::Record;

use crate::client::{Client, Place};
use crate::messages::{Poll, numbered};
use crate::node::Node;

/// Messages of one batch, and bytes of a payload.
const BATCH: u64 = 10;
const PAYLOAD_BYTES: usize = 20_000;
const BATCHES: u64 = 60;

fn payload(offset: u64) -> Vec<u8> {
    let mut payload = vec![b'.'; PAYLOAD_BYTES];
    payload[..8].copy_from_slice(&offset.to_le_bytes());
    payload
}

/// Twelve megabytes through a journal of four, with a memory of four beside it.
fn filled(shards: u16) -> (Node, Client, Place) {
    let node = Node::start_with(shards, |config| {
        config.storage.journal_bytes_max = 4 << 20;
        config.storage.cache_bytes_max = 4 << 20;
    });
    let mut client = node.client();
    let place = client.topic("segments", shards.into()).remove(usize::from(shards) - 1);
    for batch in 0..BATCHES {
        let payloads: Vec<_> = (0..BATCH).map(|index| payload(batch * BATCH + index)).collect();
        assert_eq!(client.append(&place, &payloads), batch * BATCH);
    }
    (node, client, place)
}

fn segment_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .map(|entry| entry.expect("a directory entry"))
        .map(|entry| match entry.file_type().expect("its type").is_dir() {
            true => segment_bytes(&entry.path()),
            false if entry.path().extension().is_some_and(|name| name == "segment") => {
                entry.metadata().map_or(0, |file| file.len())
            }
            false => 0,
        })
        .sum()
}

/// Section 17 of the resources: hits and misses of each partition that was read.
#[test]
fn statistics_tell_reads_of_memory_from_reads_of_segments() {
    let (mut node, mut client, place) = filled(2);
    let caches = |client: &mut Client| {
        let body = client.must(&laneway_wire::request::GetStats {});
        let stats =
            laneway_wire::reply::Stats::read(&mut laneway_wire::Reader::new(&body)).expect("statistics");
        stats.caches.iter().map(|cache| (cache.partition, cache.hits, cache.misses)).collect::<Vec<_>>()
    };
    assert_eq!(caches(&mut client), [], "nothing was read yet");
    client.poll(&place, Poll::offset(BATCHES * BATCH - 1));
    client.poll(&place, Poll::offset(BATCHES * BATCH));
    assert_eq!(caches(&mut client), [(place.partition.0, 1, 0)], "an empty answer counts nothing");
    node.restart();
    let mut client = client.another();
    client.poll(&place, Poll::offset(0).count(1));
    client.poll(&place, Poll::offset(0).count(1));
    assert_eq!(caches(&mut client), [(place.partition.0, 0, 2)], "after a restart everything is in segments");
}

/// Every strategy at many places.
fn assert_reads(client: &mut Client, place: &Place) {
    let end = BATCHES * BATCH;
    let mut times = Vec::new();
    for start in (0..end).step_by(37).chain([1, 9, 10, 11, end - 1]) {
        let polled = client.poll(place, Poll::offset(start).count(13).max_bytes(8 << 20));
        assert_eq!(polled.offsets(), (start..end.min(start + 13)).collect::<Vec<_>>());
        assert_eq!(polled.head.current_offset.0, end - 1);
        for message in &polled.messages {
            assert_eq!(message.payload, payload(message.offset));
            assert_eq!(message.base_offset, message.offset / BATCH * BATCH);
        }
        times.push((polled.messages[0].base_offset, polled.messages[0].timestamp));
    }
    for (base, time) in times {
        let polled = client.poll(place, Poll::new(Strategy::Timestamp(time)).count(3));
        assert!(
            polled.messages[0].offset <= base && polled.messages[0].timestamp == time,
            "the first of this time"
        );
        let before = client.poll(place, Poll::new(Strategy::Timestamp(time - 1)).count(1));
        assert!(before.messages[0].timestamp >= time - 1);
        assert!(before.messages[0].offset <= polled.messages[0].offset);
        let later = client.poll(place, Poll::new(Strategy::Timestamp(time + 1)).count(1));
        assert!(later.messages.first().is_none_or(|first| first.timestamp > time && first.offset > base));
    }
    assert_eq!(client.poll(place, Poll::new(Strategy::Timestamp(u64::MAX))).messages.len(), 0);
    assert_eq!(client.poll(place, Poll::new(Strategy::Timestamp(0)).count(1)).offsets(), [0]);
    assert_eq!(client.poll(place, Poll::new(Strategy::First).count(2)).offsets(), [0, 1]);
    let last = client.poll(place, Poll::new(Strategy::Last).count(450).max_bytes(1 << 20));
    assert_eq!(last.offsets()[0], end - 450);
    assert!(last.body_bytes <= 1 << 20 && last.messages.len() > 50, "cut by its bytes, not far below them");
    assert_eq!(client.poll(place, Poll::offset(0).max_bytes(344)).offsets(), [0]);
    assert_eq!(client.poll(place, Poll::offset(end)).messages.len(), 0);
    // 100 has no limit of its own: the server's is 16 MiB, and everything is 12.
    let all = client.poll(place, Poll::offset(0).code(100).count(u32::MAX));
    assert_eq!(all.offsets(), (0..end).collect::<Vec<_>>(), "from segments into memory without a gap");
}

#[test]
fn every_strategy_reads_segments() {
    for shards in [1, 2] {
        let (mut node, mut client, place) = filled(shards);
        let deadline = Instant::now() + Duration::from_secs(10);
        while segment_bytes(node.data_dir()) < 4 << 20 {
            assert!(Instant::now() < deadline, "a checkpoint moves data to segments");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_reads(&mut client, &place);
        node.restart();
        let mut client = client.another();
        assert_reads(&mut client, &place);
        assert_eq!(client.append(&place, &["next"]), BATCHES * BATCH, "offsets go on");
    }
}

#[test]
fn committing_polls_walk_through_segments() {
    let (_node, mut client, place) = filled(2);
    let poll = Poll::next().commit().count(70).max_bytes(8 << 20);
    let mut next = 0;
    while next < BATCHES * BATCH {
        // Two at a time on one connection: what one returns, the other does not.
        let frames = [client.poll_frame(&place, poll), client.poll_frame(&place, poll)];
        frames.iter().for_each(|frame| client.send(frame));
        for frame in &frames {
            let polled = crate::messages::Polled::read(&client.reply_to(frame), &place);
            for offset in polled.offsets() {
                assert_eq!(offset, next);
                next += 1;
            }
        }
        assert_eq!(client.stored(&place, numbered(1)), Some(next - 1));
    }
}
