//! Frames that were cut or flipped.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::beside_a_neighbour;
use crate::catalog::{Context, Expectation, Sample, prepare, samples};
use crate::harness::Broker;
use crate::wire::{
    Answer, Bound, CODE, HEADER_BYTES, LOGOUT, Link, OPERATION, REGISTER, Request, SIZE, Session, numbered,
};

const DELETE_STREAM: u8 = 130;
/// More streams than a run of flipped requests creates.
const STREAMS_MAX: u32 = 200;

/// A session, its samples, and the connection that they are sent on.
struct Attacker {
    address: SocketAddr,
    session: Arc<Session>,
    bound: Bound,
    context: Context,
    samples: Vec<Sample>,
}

impl Attacker {
    fn new(broker: &Broker) -> Self {
        let session = Session::register(broker.address());
        let mut bound = session.bind();
        let context = prepare(&mut bound);
        let samples = samples(&bound, context);
        Self { address: broker.address(), session, bound, context, samples }
    }

    /// A fresh connection, of a new session when a broken frame happened to end the old one.
    fn rebind(&mut self) {
        self.bound = self.session.try_bind().unwrap_or_else(|| {
            self.session = Session::register(self.address);
            self.session.bind()
        });
    }

    /// Deletes whatever flipped requests created, which may be many thousand partitions. The neighbour's stream is the
    /// first one, number 0.
    fn delete_streams(&mut self) {
        self.rebind();
        for id in 1..=STREAMS_MAX {
            self.bound.ask(DELETE_STREAM, 0, numbered(id));
        }
    }

    /// Sends a request that must be answered.
    fn ask(&mut self, request: &Request) -> Answer {
        let answer = self.bound.ask_with(request);
        self.replace_when_spent(std::slice::from_ref(&answer));
        answer
    }

    /// Sends bytes that may have no answer.
    fn provoke(&mut self, bytes: &[u8]) -> Vec<Answer> {
        let answers = self.bound.provoke(bytes);
        self.replace_when_spent(&answers);
        answers
    }

    fn replace_when_spent(&mut self, answers: &[Answer]) {
        let is_spent = |answer: &Answer| {
            answer.ends_the_connection() || matches!(answer, Answer::Reply { status: 40, .. })
        };
        if answers.iter().any(is_spent) {
            self.rebind();
        }
    }
}

#[test]
fn whole_frames_are_answered() {
    beside_a_neighbour(|broker| {
        let mut attacker = Attacker::new(broker);
        for sample in attacker.samples.clone() {
            let request = sample.request(&attacker.bound, attacker.context);
            if sample.expectation == Expectation::Nothing {
                assert_eq!(attacker.provoke(&request.encode()), [], "{}", sample.name);
                continue;
            }
            let answer = attacker.ask(&request);
            let is_expected = match sample.expectation {
                Expectation::Success => answer.is_success(),
                _ => answer != Answer::Closed,
            };
            assert!(is_expected, "{}: {answer:?}", sample.name);
        }
    });
}

#[test]
fn bodies_cut_at_every_byte_are_refused() {
    beside_a_neighbour(|broker| {
        let mut attacker = Attacker::new(broker);
        for sample in attacker.samples.clone() {
            for length in 0..sample.body.len() {
                let mut request = sample.request(&attacker.bound, attacker.context);
                request.body.truncate(length);
                let answer = if sample.operation == REGISTER {
                    register_answer(attacker.address, &request)
                } else {
                    attacker.ask(&request)
                };
                assert!(
                    !answer.is_success(),
                    "{} cut to {length} bytes of {}: {answer:?}",
                    sample.name,
                    sample.body.len()
                );
            }
        }
    });
}

/// The answer on a connection of its own: a bound one answers a sign-in with what it is bound to.
fn register_answer(address: SocketAddr, request: &Request) -> Answer {
    let mut link = Link::open(address);
    link.send(&request.encode());
    link.read()
}

#[test]
fn connections_that_end_inside_a_frame_are_closed() {
    beside_a_neighbour(|broker| {
        let attacker = Attacker::new(broker);
        for sample in attacker.samples.clone() {
            let frame = sample.request(&attacker.bound, attacker.context).encode();
            for length in 1..frame.len() {
                let mut link = Link::open(attacker.address);
                link.send(&frame[..length]);
                link.finish();
                let answers = link.read_to_the_end();
                assert!(answers.is_empty(), "{} cut after {length} bytes: {answers:?}", sample.name);
            }
            for length in (1..frame.len()).step_by(61) {
                let mut bound = attacker.session.bind();
                bound.link.send(&frame[..length]);
                bound.link.finish();
                let answers = bound.link.read_to_the_end();
                assert!(answers.is_empty(), "{} cut after {length} bytes: {answers:?}", sample.name);
            }
        }
    });
}

#[test]
fn frames_with_a_flipped_bit_are_answered_or_end_the_connection() {
    beside_a_neighbour(|broker| {
        let mut attacker = Attacker::new(broker);
        for (index, sample) in attacker.samples.clone().iter().enumerate() {
            let length = HEADER_BYTES + sample.body.len();
            for at in 0..length {
                let mut frame = sample.request(&attacker.bound, attacker.context).encode();
                frame[at] ^= 1 << ((at * 5 + index) % 8);
                if SIZE.contains(&at) {
                    with_a_wrong_size(&attacker, &frame);
                } else {
                    attacker.provoke(&frame);
                }
                // A frame that became a sign-in, a sign-off or a bind changes what the connection is.
                if at == OPERATION || CODE.contains(&at) || matches!(sample.operation, REGISTER | LOGOUT) {
                    attacker.rebind();
                }
            }
        }
        attacker.delete_streams();
    });
}

/// The broker waits for more than was sent, or takes the rest of the frame for the next header. Either way the
/// connection ends when the client is done.
fn with_a_wrong_size(attacker: &Attacker, frame: &[u8]) {
    let Some(mut bound) = attacker.session.try_bind() else { return };
    if bound.link.try_send(frame).is_ok() {
        bound.link.finish();
        bound.link.read_to_the_end();
    }
}

#[test]
fn bytes_of_other_protocols_end_the_connection() {
    let tls_hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let noise: Vec<u8> = (0..4_096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let openings: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &tls_hello, &[0xff; 1_000], &[0; 1_000], &noise];
    beside_a_neighbour(|broker| {
        for opening in openings {
            let mut link = Link::open(broker.address());
            if link.try_send(opening).is_ok() {
                link.finish();
                let answers = link.read_to_the_end();
                assert!(!answers.iter().any(Answer::is_success), "{answers:?}");
            }
        }
    });
}
