//! Clients that take their time.

use std::time::{Duration, Instant};

use crate::beside_a_neighbour;
use crate::catalog::{create_topic, deferred_poll_body, send_body};
use crate::harness::Broker;
use crate::wire::{Answer, Bound, Link, NON_REPLICATED, PING, Request, Session};

/// Requests that a client writes without reading a reply.
const UNREAD_REQUESTS: usize = 40_000;
const UNREAD_CLIENTS: usize = 4;
/// What the process may hold for clients that do not read.
const UNREAD_GROWTH_MAX: u64 = 192 << 20;
const WATCH: Duration = Duration::from_secs(3);

/// Stream and topic with 16 messages of 1 MiB, and a poll for one reply of 1 MiB.
fn large_poll(bound: &mut Bound) -> Request {
    create_topic(bound, "large", 1);
    let (incarnation, metadata_op) = bound.route("large", 0);
    for _ in 0..16 {
        let mut send = bound.session.request(160, 0, send_body("large", 0, &vec![b'x'; 1 << 20]));
        send.incarnation = incarnation;
        let answer = bound.ask_with(&send);
        assert!(answer.is_success(), "send: {answer:?}");
    }
    let body = deferred_poll_body("large", 0, 1, 2 << 20);
    Request { incarnation, metadata_op, ..bound.session.request(NON_REPLICATED, 106, body) }
}

/// Highest resident memory while it is watched.
fn peak_resident(broker: &Broker, time: Duration) -> u64 {
    let started = Instant::now();
    let mut peak = 0;
    while started.elapsed() < time {
        peak = peak.max(broker.process_use().resident_bytes);
        std::thread::sleep(Duration::from_millis(20));
    }
    peak
}

fn without_reading(request: impl Fn(&mut Bound) -> Request) {
    beside_a_neighbour(|broker| {
        let session = Session::register(broker.address());
        let template = request(&mut session.bind());
        let before = broker.process_use().resident_bytes;
        let mut silent = Vec::new();
        for _ in 0..UNREAD_CLIENTS {
            let mut bound = session.bind();
            let mut bytes = Vec::new();
            for _ in 0..UNREAD_REQUESTS {
                let fresh = session.request(template.operation, template.code, template.body.clone());
                bytes.extend_from_slice(&Request { number: fresh.number, ..template.clone() }.encode());
            }
            let sent = bound.link.send_what_fits(&bytes, Duration::from_millis(500));
            assert!(
                sent < bytes.len(),
                "the broker takes requests without an end from a client that does not read"
            );
            println!("{sent} bytes of requests fit");
            silent.push(bound);
        }
        let peak = peak_resident(broker, WATCH);
        println!("{} MiB for {UNREAD_CLIENTS} clients that do not read", peak.saturating_sub(before) >> 20);
        assert!(peak < before + UNREAD_GROWTH_MAX, "{before} bytes grew to {peak}");
        // The first of them reads at last, and is served.
        let answer = silent[0].link.read();
        assert!(answer.is_success(), "the first reply is still there: {answer:?}");
    });
}

#[test]
fn client_that_never_reads_large_replies_is_not_read_from() {
    without_reading(large_poll);
}

#[test]
fn client_that_never_reads_small_replies_is_not_read_from() {
    without_reading(|bound| bound.session.request(NON_REPLICATED, 10, Vec::new()));
}

#[test]
fn clients_that_send_one_byte_a_second_are_waited_for() {
    const CLIENTS: usize = 20;
    const SECONDS: usize = 5;
    beside_a_neighbour(|broker| {
        let session = Session::register(broker.address());
        let ping =
            Request { client: 1, operation: NON_REPLICATED, code: PING, ..Request::default() }.encode();
        let mut unbound: Vec<Link> = (0..CLIENTS).map(|_| Link::open(broker.address())).collect();
        let mut bound: Vec<(Bound, Vec<u8>)> = (0..CLIENTS)
            .map(|_| (session.bind(), session.request(NON_REPLICATED, PING, Vec::new()).encode()))
            .collect();
        for second in 0..SECONDS {
            for link in &mut unbound {
                link.send(&ping[second..=second]);
            }
            for (bound, frame) in &mut bound {
                bound.link.send(&frame[second..=second]);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        // Half of them finish their frame, the others leave.
        for link in unbound.iter_mut().step_by(2) {
            link.send(&ping[SECONDS..]);
            assert!(link.read().is_success());
        }
        for (bound, frame) in bound.iter_mut().step_by(2) {
            bound.link.send(&frame[SECONDS..]);
            assert!(bound.link.read().is_success());
        }
    });
}

#[test]
fn request_in_pieces_is_put_together() {
    beside_a_neighbour(|broker| {
        let mut bound = Session::register(broker.address()).bind();
        for piece in [1, 3, 100, 255, 256, 257] {
            let request = bound.session.request(NON_REPLICATED, 300, [2, 1, b's', 2, 1, b't'].into());
            for part in request.encode().chunks(piece) {
                bound.link.send(part);
            }
            let answer = bound.link.read();
            let Answer::Reply { number, status: 0, .. } = answer else {
                panic!("pieces of {piece}: {answer:?}")
            };
            assert_eq!(number, request.number);
        }
    });
}
