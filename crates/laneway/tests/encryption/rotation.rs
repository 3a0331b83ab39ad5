//! Keys that change, and keys that are missing.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::messages::Poll;
use crate::process::Home;
use crate::{KEY_A, KEY_B, NAME_OF_A, NAME_OF_B};

const PATIENCE: Duration = Duration::from_secs(20);

fn fill(client: &mut Client, stream: &str) {
    client.create_topic(stream, stream, 1);
    let place = client.route(stream, 0);
    client.append(&place, &["first", "second"]);
}

fn read(client: &mut Client, stream: &str) -> Vec<String> {
    let place = client.route(stream, 0);
    client.poll(&place, Poll::offset(0)).payloads()
}

/// Waits until the streams are wrapped under these keys and nothing else: it happens in the background.
fn settles(client: &mut Client, streams: &[String], keks: &str) {
    let end = Instant::now() + PATIENCE;
    for stream in streams {
        while client.shown(stream).keks.as_deref() != Some(keks) {
            assert!(Instant::now() < end, "{stream}: {:?}", client.shown(stream));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn s97_streams_stay_readable_through_a_rotation_and_move_to_the_new_key() {
    let home = Home::new();
    let broker = home.start(&[("ENABLED", "true"), ("KEY", KEY_A)]);
    let mut client = broker.client();
    // More than one op re-wraps.
    let streams: Vec<String> = (0..70).map(|n| format!("s{n}")).collect();
    for stream in &streams {
        client.create_stream(stream);
    }
    fill(&mut client, &streams[0]);
    let key = client.shown(&streams[0]).key;
    broker.stop();

    let broker = home.start(&[("ENABLED", "true"), ("KEY", KEY_B), ("PREVIOUS_KEYS", KEY_A)]);
    let mut client = broker.client();
    assert_eq!(read(&mut client, &streams[0]), ["first", "second"]);
    settles(&mut client, &streams, &format!("{NAME_OF_A},{NAME_OF_B}"));
    client.create_stream("during");
    fill(&mut client, "during");
    // The rotation is in the log: a kill does not undo it.
    broker.kill();

    let broker = home.start(&[("ENABLED", "true"), ("KEY", KEY_B), ("RETIRED_KEYS", NAME_OF_A)]);
    let mut client = broker.client();
    settles(&mut client, &streams, NAME_OF_B);
    settles(&mut client, &["during".to_owned()], NAME_OF_B);
    assert_eq!(client.shown(&streams[0]).key, key, "the key of a stream never changes");
    assert_eq!(read(&mut client, &streams[0]), ["first", "second"]);
    broker.stop();

    let broker = home.start(&[("KEY", KEY_B)]);
    let mut client = broker.client();
    for stream in [streams[0].as_str(), "during"] {
        assert_eq!(read(&mut client, stream), ["first", "second"]);
    }
}

#[test]
fn s98_without_its_key_an_encrypted_directory_is_not_served() {
    let home = Home::new();
    let broker = home.start(&[("ENABLED", "true"), ("KEY", KEY_A)]);
    let mut client = broker.client();
    client.create_stream("locked");
    fill(&mut client, "locked");
    broker.stop();

    let output = home.refuses(&[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("1 encrypted streams and encryption.key is not set"), "{message}");

    // Another key opens other streams, and never answers with what it cannot open.
    let broker = home.start(&[("ENABLED", "true"), ("KEY", KEY_B)]);
    let mut client = broker.client();
    let locked = |client: &mut Client, stream: &str| {
        use laneway_wire::request::GetPartitionRoute;
        use laneway_wire::{Identifier, PartitionId};
        let stream = Identifier::Name(stream);
        client.ask(&GetPartitionRoute { stream, topic: stream, partition: PartitionId(0) }).status()
    };
    assert_eq!(locked(&mut client, "locked"), 4107);
    client.create_stream("open");
    fill(&mut client, "open");
    let mut place = client.route("open", 0);
    assert_eq!(read(&mut client, "open"), ["first", "second"]);
    place.stream = "locked".into();
    place.topic = "locked".into();
    assert_eq!(client.poll_status(&place, Poll::offset(0)), 4107);
    let send = client.send_frame(&place, &["third"]);
    client.exchange(&send).assert_refused(4107);
    assert!(home.log().contains("no configured key opens this stream"), "{}", home.log());
    broker.stop();

    let broker = home.start(&[("KEY", KEY_A), ("PREVIOUS_KEYS", KEY_B)]);
    let mut client = broker.client();
    for stream in ["locked", "open"] {
        assert_eq!(read(&mut client, stream), ["first", "second"]);
    }
}
