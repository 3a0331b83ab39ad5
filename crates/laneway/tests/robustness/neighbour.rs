use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::catalog::{create_topic, deferred_poll_body, send_body};
use crate::wire::{Answer, Bound, NON_REPLICATED, PING, Session};

/// Stream and topic of the neighbour.
const TOPIC: &str = "neighbour";
const PAUSE: Duration = Duration::from_millis(5);
/// Longest time of a send and a poll together, while others misbehave and the machine may be busy.
const ROUND_MAX: Duration = Duration::from_secs(2);

/// A well-behaved client that sends and reads back one message after the other, while others misbehave.
pub struct Neighbour {
    shared: Arc<Shared>,
    thread: JoinHandle<Duration>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    /// Rounds that ended.
    rounds: AtomicU64,
}

impl Neighbour {
    pub fn start(address: SocketAddr) -> Self {
        let mut bound = Session::register(address).bind();
        create_topic(&mut bound, TOPIC, 1);
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        Self { shared, thread: std::thread::spawn(move || work(&mut bound, &seen)) }
    }

    /// Fails when a request of the neighbour was not answered as if it were alone, up to whole rounds from now on.
    pub fn finish(self) {
        let before = self.shared.rounds.load(Ordering::SeqCst);
        while self.shared.rounds.load(Ordering::SeqCst) < before + 2 && !self.thread.is_finished() {
            std::thread::sleep(PAUSE);
        }
        self.shared.stopping.store(true, Ordering::SeqCst);
        let longest = self.thread.join().expect("the neighbour was disturbed");
        println!(
            "neighbour: {} rounds, the longest took {longest:?}",
            self.shared.rounds.load(Ordering::SeqCst)
        );
        assert!(longest < ROUND_MAX, "the neighbour waited {longest:?}");
    }
}

/// Sends and reads until it is told to stop, and returns the time of the longest round.
fn work(bound: &mut Bound, shared: &Shared) -> Duration {
    let (incarnation, metadata_op) = bound.route(TOPIC, 0);
    let mut longest = Duration::ZERO;
    for round in 0.. {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        let started = Instant::now();
        bound.must(NON_REPLICATED, PING, Vec::new());
        let payload = format!("message {round}");
        let mut send = bound.session.request(160, 0, send_body(TOPIC, 0, payload.as_bytes()));
        (send.incarnation, send.metadata_op) = (incarnation, metadata_op);
        let sent = bound.ask_with(&send);
        assert!(sent.is_success(), "send: {sent:?}");
        let body = deferred_poll_body(TOPIC, round, 1, 65_536);
        let mut poll = bound.session.request(NON_REPLICATED, 106, body);
        (poll.incarnation, poll.metadata_op) = (incarnation, metadata_op);
        let Answer::Reply { status: 0, body, .. } = bound.ask_with(&poll) else {
            panic!("the neighbour's poll failed")
        };
        let stored = body.windows(payload.len()).any(|part| part == payload.as_bytes());
        assert!(stored, "message {round} does not come back");
        longest = longest.max(started.elapsed());
        shared.rounds.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(PAUSE);
    }
    longest
}
