//! Damage of sealed segments: found in the background, named, and answered with an error; everything around it is served.

use std::fs;
use std::time::Duration;

use laneway_wire::options::OptionMap;

use crate::client::Client;
use crate::messages::Poll;
use crate::serve::{Serve, segments, wait_for};

#[test]
fn damage_of_a_sealed_segment_is_found_and_named() {
    let home = tempfile::tempdir().unwrap();
    let options = [
        "LANEWAY_DATA_MAINTENANCE_SCRUB_INTERVAL=100 ms",
        "LANEWAY_DATA_MAINTENANCE_SCRUB_BYTES_PER_SECOND=64 MiB",
    ];
    let serve = Serve::start(home.path(), 2, &options);
    let mut client = Client::sign_in(serve.address);
    client.create_stream("scrub");
    client
        .create_topic_with("scrub", "scrub", 2, &OptionMap::new().with("segment_size", 1_u64 << 20))
        .payload();
    let place = client.route("scrub", 1);
    for batch in 0..16_u8 {
        // Four batches a segment.
        client.append(&place, &[vec![batch; 300_000]]);
    }
    assert_eq!(serve.stop(), Some(0));
    // A bit in the middle of the message at offset 5, the second one of the second segment.
    let mut files: Vec<_> = segments(home.path()).into_iter().map(|(_, path)| path).collect();
    files.sort();
    let mut bytes = fs::read(&files[1]).unwrap();
    let at = bytes.iter().position(|byte| *byte == 5).unwrap();
    let run = bytes[at..].windows(4).position(|window| window == [5; 4]).unwrap();
    bytes[at + run + 150_000] ^= 4;
    fs::write(&files[1], bytes).unwrap();

    let mut serve = Serve::start(home.path(), 2, &options);
    wait_for("the damage is found", || serve.said().contains("a sealed segment is damaged"));
    let said = serve.said();
    let line = said.lines().find(|line| line.contains("a sealed segment is damaged")).unwrap().to_owned();
    for word in ["scrub/scrub/1", "first=5", "last=7"] {
        assert!(line.contains(word), "{word} is not in: {line}");
    }
    std::thread::sleep(Duration::from_millis(500));
    let lines = serve.said().lines().filter(|line| line.contains("a sealed segment is damaged")).count();
    assert_eq!(lines, 1, "once, not with every pass");
    let mut client = Client::sign_in(serve.address);
    assert_eq!(client.poll(&place, Poll::offset(0).code(100).count(100)).offsets(), [0, 1, 2, 3, 4]);
    assert_eq!(client.poll_status(&place, Poll::offset(5).code(100).count(100)), 4011);
    assert_eq!(client.poll(&place, Poll::offset(8).code(100).count(100)).offsets().len(), 8);
    assert!(serve.alive());
}
