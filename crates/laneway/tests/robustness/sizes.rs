//! Frames whose length field is small, huge or a lie.

use std::time::Duration;

use crate::beside_a_neighbour;
use crate::catalog::{prepare, samples};
use crate::wire::{Answer, HEADER_BYTES, Link, NON_REPLICATED, PING, Request, SIZE, Session};

/// Most bytes of a frame.
const FRAME_BYTES_MAX: u32 = 64 << 20;
/// What the process may hold for clients that announced large frames and sent nothing of them.
const ANNOUNCED_GROWTH_MAX: u64 = 64 << 20;

/// A whole frame of `bytes` zero bytes after the header of `request`.
fn padded(request: &Request, bytes: u32) -> Vec<u8> {
    let mut frame = Request { body: Vec::new(), ..request.clone() }.encode();
    frame.resize(bytes as usize, 0);
    frame[SIZE].copy_from_slice(&bytes.to_le_bytes());
    frame
}

#[test]
fn sizes_that_cannot_be_end_the_connection_without_an_answer() {
    beside_a_neighbour(|broker| {
        let session = Session::register(broker.address());
        for size in [0, 1, 255, FRAME_BYTES_MAX + 1, 1 << 31, u32::MAX] {
            let mut frame = session.request(NON_REPLICATED, PING, Vec::new()).encode();
            frame[SIZE].copy_from_slice(&size.to_le_bytes());
            let mut bound = session.bind();
            bound.link.send(&frame);
            assert_eq!(bound.link.read(), Answer::Closed, "size {size} on a bound connection");
            let mut link = Link::open(broker.address());
            link.send(&frame);
            assert_eq!(link.read(), Answer::Closed, "size {size} on a new connection");
        }
    });
}

#[test]
fn empty_bodies_of_every_request_are_answered() {
    beside_a_neighbour(|broker| {
        let session = Session::register(broker.address());
        let mut bound = session.bind();
        let context = prepare(&mut bound);
        for sample in samples(&bound, context) {
            let mut request = sample.request(&bound, context);
            request.body.clear();
            assert_eq!(request.encode().len(), HEADER_BYTES);
            if !sample.body.is_empty() {
                let answer = session.bind().ask_with(&request);
                assert!(!answer.is_success(), "{}: {answer:?}", sample.name);
            }
        }
    });
}

#[test]
fn bodies_of_64_mb_are_refused_or_end_the_connection() {
    beside_a_neighbour(|broker| {
        let session = Session::register(broker.address());
        let mut bound = session.bind();
        let context = prepare(&mut bound);
        let all = samples(&bound, context);
        for name in ["ping", "create stream", "send messages", "deferred poll", "get topic", "register"] {
            let sample = all.iter().find(|sample| sample.name == name).expect("a sample of this name");
            let request = sample.request(&bound, context);
            let mut bound = session.bind();
            // The broker may close the connection before it has read the rest.
            if bound.link.try_send(&padded(&request, FRAME_BYTES_MAX)).is_ok() {
                let answer = bound.link.read();
                // A ping has no body to decode; every other body of zeros is malformed.
                assert!(name == "ping" || !answer.is_success(), "{name}: {answer:?}");
            }
            let mut link = Link::open(broker.address());
            if link.try_send(&padded(&request, FRAME_BYTES_MAX)).is_ok() {
                let answer = link.read();
                assert!(name == "ping" || !answer.is_success(), "{name} on a new connection: {answer:?}");
            }
        }
    });
}

#[test]
fn announced_bodies_cost_nothing_until_they_come() {
    beside_a_neighbour(|broker| {
        let session = Session::register(broker.address());
        let before = broker.process_use().resident_bytes;
        let mut links = Vec::new();
        for _ in 0..100 {
            let mut frame = session.request(160, 0, vec![0; 64]).encode();
            frame[SIZE].copy_from_slice(&FRAME_BYTES_MAX.to_le_bytes());
            let mut bound = session.bind();
            bound.link.send(&frame);
            links.push(bound);
        }
        std::thread::sleep(Duration::from_millis(500));
        let after = broker.process_use().resident_bytes;
        println!("{} MiB for 100 announced frames of 64 MiB", after.saturating_sub(before) >> 20);
        assert!(after < before + ANNOUNCED_GROWTH_MAX, "{before} bytes grew to {after}");
    });
}
