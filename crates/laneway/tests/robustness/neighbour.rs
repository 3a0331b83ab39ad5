use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::catalog::{create_topic, deferred_poll_body, send_body};
use crate::wire::{Bound, NON_REPLICATED, PING, Session};

/// Stream and topic of the neighbour.
const TOPIC: &str = "neighbour";
const PAUSE: Duration = Duration::from_millis(5);
/// Longest time of a send and a poll together, while others misbehave and the machine may be busy.
const ROUND_MAX: Duration = Duration::from_secs(5);

/// A well-behaved client that sends and reads back one message after the other, while others misbehave.
pub struct Neighbour {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<Rounds>,
}

/// What the neighbour saw.
#[derive(Debug)]
struct Rounds {
    count: u64,
    longest: Duration,
}

impl Neighbour {
    pub fn start(address: SocketAddr) -> Self {
        let mut bound = Session::register(address).bind();
        create_topic(&mut bound, TOPIC, 1);
        let stopping = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopping);
        Self { stopping, thread: std::thread::spawn(move || work(&mut bound, &seen)) }
    }

    /// Fails when a request of the neighbour was not answered as if it were alone.
    pub fn finish(self) {
        assert!(!self.thread.is_finished(), "the neighbour ended early; its panic is printed above");
        self.stopping.store(true, Ordering::SeqCst);
        let rounds = self.thread.join().expect("the neighbour was disturbed");
        println!("neighbour: {rounds:?}");
        assert!(rounds.count > 0);
        assert!(rounds.longest < ROUND_MAX, "the neighbour waited {:?}", rounds.longest);
    }
}

fn work(bound: &mut Bound, stopping: &AtomicBool) -> Rounds {
    let (incarnation, metadata_op) = bound.route(TOPIC, 0);
    let mut rounds = Rounds { count: 0, longest: Duration::ZERO };
    while !stopping.load(Ordering::SeqCst) {
        let started = Instant::now();
        bound.must(NON_REPLICATED, PING, Vec::new());
        let payload = format!("message {}", rounds.count);
        let mut send = bound.session.request(160, 0, send_body(TOPIC, 0, payload.as_bytes()));
        (send.incarnation, send.metadata_op) = (incarnation, metadata_op);
        let sent = bound.ask_with(&send);
        assert!(sent.is_success(), "send: {sent:?}");
        let body = deferred_poll_body(TOPIC, rounds.count, 1, 65_536);
        let mut poll = bound.session.request(NON_REPLICATED, 106, body);
        (poll.incarnation, poll.metadata_op) = (incarnation, metadata_op);
        let crate::wire::Answer::Reply { status: 0, body, .. } = bound.ask_with(&poll) else {
            panic!("the neighbour's poll failed")
        };
        let stored = body.windows(payload.len()).any(|part| part == payload.as_bytes());
        assert!(stored, "message {} does not come back", rounds.count);
        rounds.count += 1;
        rounds.longest = rounds.longest.max(started.elapsed());
        std::thread::sleep(PAUSE);
    }
    rounds
}
