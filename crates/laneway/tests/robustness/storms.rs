//! Connections that come and go.

use std::thread;

use crate::beside_a_neighbour;
use crate::catalog::{create_topic, deferred_poll_body};
use crate::wire::{Answer, Link, NON_REPLICATED, PING, REGISTER, Request, Session, register_body};

/// Reason of an eviction.
const INVALID_CREDENTIALS: u8 = 9;
const THREADS: usize = 4;
const PER_THREAD: usize = 500;

#[test]
fn storm_of_connections_leaves_nothing_behind() {
    beside_a_neighbour(|broker| {
        let address = broker.address();
        let session = Session::register(address);
        let ping =
            Request { client: 1, operation: NON_REPLICATED, code: PING, ..Request::default() }.encode();
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (session, ping) = (&session, &ping);
                scope.spawn(move || {
                    for round in 0..PER_THREAD {
                        match (number + round) % 4 {
                            // Comes and goes.
                            0 => drop(Link::open(address)),
                            // Leaves in the middle of a frame.
                            1 => Link::open(address).send(&ping[..round % 255 + 1]),
                            // Leaves before its answer comes.
                            2 => Link::open(address).send(ping),
                            // Signs on and leaves.
                            _ => drop(session.bind()),
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn storm_of_wrong_passwords_holds_nobody_up() {
    const CLIENTS: usize = 32;
    const SIGN_INS: usize = 4;
    beside_a_neighbour(|broker| {
        let address = broker.address();
        let mut body = register_body();
        let password = body.len() - 5;
        body[password] ^= 1;
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let body = body.clone();
                scope.spawn(move || {
                    for _ in 0..SIGN_INS {
                        let request = Request {
                            client: client as u128 + 1,
                            operation: REGISTER,
                            body: body.clone(),
                            ..Request::default()
                        };
                        let mut link = Link::open(address);
                        link.send(&request.encode());
                        match link.read() {
                            Answer::Eviction { reason: INVALID_CREDENTIALS } => {}
                            // Not looked at any more: a rejection, after which the client may try again.
                            Answer::Reply { .. } => {}
                            other => panic!("neither wrong nor later but {other:?}"),
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn crowd_of_idle_connections_leaves_nothing_behind() {
    beside_a_neighbour(|broker| {
        let crowd: Vec<Link> = (0..800).map(|_| Link::open(broker.address())).collect();
        thread::sleep(std::time::Duration::from_millis(200));
        drop(crowd);
    });
}

#[test]
fn clients_that_leave_while_their_polls_wait_leave_nothing_behind() {
    beside_a_neighbour(|broker| {
        let session = Session::register(broker.address());
        let mut bound = session.bind();
        create_topic(&mut bound, "wait", 1);
        let (incarnation, metadata_op) = bound.route("wait", 0);
        let mut body = deferred_poll_body("wait", 0, 1, 65_536);
        let tail = body.len() - 24;
        body[tail..tail + 8].copy_from_slice(&600_000_000u64.to_le_bytes());
        body[tail + 16..].copy_from_slice(&630_000_000u64.to_le_bytes());
        for _ in 0..300 {
            let mut leaving = session.bind();
            let poll = session.request(NON_REPLICATED, 106, body.clone());
            // The ping behind it makes sure that the poll was taken.
            let answers = leaving.provoke(&Request { incarnation, metadata_op, ..poll }.encode());
            assert!(answers.is_empty(), "a poll that waits has no answer yet: {answers:?}");
        }
    });
}
