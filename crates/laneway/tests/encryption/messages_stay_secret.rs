//! Messages of encrypted streams: clear for clients, nowhere else.

use laneway_wire::options::OptionMap;

use crate::KEY_A;
use crate::client::Client;
use crate::fetches::{fetch, offset, read};
use crate::messages::{Poll, numbered};
use crate::process::Home;

const ENCRYPTED: &[(&str, &str)] = &[("ENABLED", "true"), ("KEY", KEY_A)];

/// Payloads that nothing else on a disk looks like.
fn payloads(round: u32) -> Vec<String> {
    (0..40).map(|n| format!("secret-of-round-{round}-message-{n}-{}", "z".repeat(n * 7))).collect()
}

fn small_segments(client: &mut Client, stream: &str) {
    let mut options = OptionMap::new();
    options.set("segment_size", "1 MiB");
    client.create_topic_with(stream, stream, 3, &options).payload();
}

#[test]
fn s94_clients_read_what_they_sent_and_no_file_holds_it_across_kill_and_restart() {
    let home = Home::new();
    let mut broker = home.start(ENCRYPTED);
    let mut client = broker.client();
    client.create_stream("s");
    small_segments(&mut client, "s");
    let mut expected = Vec::new();
    for round in 0..3 {
        let mut client = broker.client();
        let place = client.route("s", 0);
        let base = client.append(&place, &payloads(round));
        assert_eq!(base, expected.len() as u64, "offsets go on");
        expected.extend(payloads(round));
        assert_eq!(client.poll(&place, Poll::offset(0).count(1000)).payloads(), expected);
        // The middle of batches, and a stored position.
        let part = client.poll(&place, Poll::offset(35).count(10));
        assert_eq!(part.payloads(), expected[35..expected.len().min(45)]);
        match round {
            0 => broker.kill(),
            _ => broker.stop(),
        }
        assert_eq!(home.files_with(b"secret-of-round"), Vec::<std::path::PathBuf>::new());
        broker = home.start(ENCRYPTED);
        let mut client = broker.client();
        let place = client.route("s", 0);
        assert_eq!(client.poll(&place, Poll::offset(0).count(1000)).payloads(), expected);
    }
    let mut client = broker.client();
    let place = client.route("s", 0);
    let next = Poll::next().by(numbered(7)).count(30).commit();
    assert_eq!(client.poll(&place, next).payloads(), expected[..30]);
    assert_eq!(client.poll(&place, next).payloads(), expected[30..60]);
}

#[test]
fn s94_a_plain_stream_is_found_by_the_same_search() {
    let home = Home::new();
    let broker = home.start(&[("KEY", KEY_A)]);
    let mut client = broker.client();
    client.create_stream("s");
    small_segments(&mut client, "s");
    let place = client.route("s", 0);
    client.append(&place, &payloads(0));
    broker.stop();
    assert!(!home.files_with(b"secret-of-round").is_empty(), "the search finds what is in plain text");
    // What was plain stays plain, whatever the node is set to later.
    let broker = home.start(ENCRYPTED);
    let mut client = broker.client();
    assert_eq!(client.shown("s").source.as_deref(), Some("none"));
    let place = client.route("s", 0);
    assert_eq!(client.append(&place, &payloads(1)), 40);
    assert_eq!(client.poll(&place, Poll::offset(0).count(1000)).payloads().len(), 80);
}

#[test]
fn a_fetch_of_several_partitions_reads_plain_messages() {
    let home = Home::new();
    let broker = home.start(ENCRYPTED);
    let mut client = broker.client();
    client.create_stream("s");
    small_segments(&mut client, "s");
    let places: Vec<_> = (0..3).map(|partition| client.route("s", partition)).collect();
    for (round, place) in places.iter().enumerate() {
        client.append(place, &payloads(round as u32));
    }
    let request = fetch(&places, |place| offset(place, 0)).min_count(120);
    let sent = client.raw(109, &request.body());
    let reply = client.exchange(&sent);
    let sections = read(&reply, &request);
    assert_eq!(sections.len(), 3);
    for (section, round) in sections.iter().zip(0..) {
        let texts: Vec<_> =
            section.payloads.iter().map(|payload| String::from_utf8_lossy(payload).into_owned()).collect();
        assert_eq!(texts, payloads(round));
    }
}

#[test]
fn a_resend_is_stored_once_and_answered_alike() {
    let home = Home::new();
    let broker = home.start(ENCRYPTED);
    let mut client = broker.client();
    client.create_stream("s");
    small_segments(&mut client, "s");
    let place = client.route("s", 0);
    let sent = client.send_frame(&place, &payloads(0));
    let first = client.exchange(&sent);
    let again = client.exchange(&sent);
    assert_eq!(first.body(), again.body(), "the original answer");
    assert_eq!(client.append(&place, &payloads(1)), 40);
}
