//! Segments that are deleted under load and under kills: what was removed stays removed, what was not is there, and disk
//! space comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

use laneway_wire::Strategy;
use laneway_wire::options::OptionMap;
use laneway_wire::request::DeleteSegments;

use crate::client::{Client, Place};
use crate::load::until_gone;
use crate::messages::Poll;
use crate::serve::{Serve, cycles, segments, wait_for};

const PAYLOAD: usize = 100_000;

fn payload(offset: u64) -> Vec<u8> {
    let mut payload = vec![b'.'; PAYLOAD];
    payload[..8].copy_from_slice(&offset.to_le_bytes());
    payload
}

/// Every message from the start on is there, in order, with its bytes. Gives the start and the end.
fn check(client: &mut Client, place: &Place) -> (u64, u64) {
    let mut next = None;
    let mut start = None;
    loop {
        let from = next.map_or(Strategy::First, |next| Strategy::Offset(laneway_wire::Offset(next)));
        let polled = client.poll(place, Poll::new(from).code(100).count(100));
        let Some(last) = polled.messages.last() else {
            // Nothing may be left but the head.
            let end = next.unwrap_or(match polled.head.current_offset.0 {
                0 => 0,
                head => head + 1,
            });
            return (start.unwrap_or(end), end);
        };
        start = start.or(polled.messages.first().map(|first| first.offset));
        for message in &polled.messages {
            assert!(next.is_none_or(|next| next == message.offset), "a gap before {}", message.offset);
            assert_eq!(message.payload, payload(message.offset));
            next = Some(message.offset + 1);
        }
        assert_eq!(next, Some(last.offset + 1));
    }
}

/// S84, S85 under kills: the start never goes back, also when the checkpoint that frees the files is cut short.
#[test]
fn removed_segments_stay_removed_under_kills() {
    let home = tempfile::tempdir().unwrap();
    let options = [
        "LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB",
        "LANEWAY_STORAGE_CACHE_BYTES_MAX=4 MiB",
        "LANEWAY_DATA_MAINTENANCE_MESSAGES_INTERVAL=50 ms",
    ];
    // What a client was told: the offset after its last append, and the highest start it has seen.
    let (end, start) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut place = None;
    for cycle in 0..cycles(6) {
        let serve = Serve::start(home.path(), [2, 1, 3][cycle as usize % 3], &options);
        let mut client = Client::sign_in(serve.address);
        if cycle == 0 {
            client.create_stream("trim");
            let map = OptionMap::new().with("segment_size", 1_u64 << 20);
            client.create_topic_with("trim", "trim", 2, &map).payload();
        }
        let at = client.route("trim", 1);
        let (found_start, found_end) = check(&mut client, &at);
        assert!(found_start >= start.load(Ordering::SeqCst), "removed segments came back");
        assert!(found_end >= end.load(Ordering::SeqCst), "acknowledged messages are gone");
        end.store(found_end, Ordering::SeqCst);
        place = Some(at.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let address = serve.address;
        let appender = spawn({
            let (at, end, stop) = (at.clone(), end.clone(), stop.clone());
            move || {
                until_gone(|| {
                    let mut client = Client::sign_in(address);
                    while !stop.load(Ordering::SeqCst) {
                        let next = end.load(Ordering::SeqCst);
                        assert_eq!(client.append(&at, &[payload(next)]), next);
                        end.store(next + 1, Ordering::SeqCst);
                    }
                });
            }
        });
        let deleter = spawn({
            let (at, start, stop) = (at.clone(), start.clone(), stop.clone());
            move || {
                until_gone(|| {
                    let mut client = Client::sign_in(address);
                    while !stop.load(Ordering::SeqCst) {
                        let (stream, topic, partition) = (at.stream(), at.topic(), at.partition);
                        client.must(&DeleteSegments { stream, topic, partition, segments_count: 2 });
                        let first = client.poll(&at, Poll::new(Strategy::First).code(100).count(1));
                        if let Some(first) = first.messages.first() {
                            start.fetch_max(first.offset, Ordering::SeqCst);
                        }
                        sleep(Duration::from_millis(30));
                    }
                });
            }
        });
        // Both have signed in and work; how long that takes depends on what else the machine does.
        wait_for("messages are appended and removed", || {
            end.load(Ordering::SeqCst) >= found_end + 25 && start.load(Ordering::SeqCst) > found_start
        });
        sleep(Duration::from_millis(130 * cycle));
        serve.kill();
        stop.store(true, Ordering::SeqCst);
        appender.join().unwrap();
        deleter.join().unwrap();
    }
    let at = place.unwrap();
    let serve = Serve::start(home.path(), 2, &options);
    let mut client = Client::sign_in(serve.address);
    let (found_start, found_end) = check(&mut client, &at);
    println!("{found_end} messages, {found_start} removed");
    assert!(found_start >= start.load(Ordering::SeqCst) && found_start > 0);
    assert!(found_end >= end.load(Ordering::SeqCst));
    let (stream, topic, partition) = (at.stream(), at.topic(), at.partition);
    client.must(&DeleteSegments { stream, topic, partition, segments_count: u32::MAX });
    wait_for("the files of removed segments go", || segments(home.path()).len() <= 1);
    assert_eq!(serve.stop(), Some(0));
}
