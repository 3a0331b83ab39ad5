//! One run of random kills: [`run`] is the loop, the other modules are the clients under it and the checks.

mod checks;
mod ledger;
mod metadata;
mod producer;
mod random;
mod reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use conformance_harness::{Broker, Settings};
use iggy::prelude::*;
use tokio::task::JoinHandle;

use ledger::Ledger;
use random::Random;

/// Stream and topic that the producers write to; producer n owns partition n.
const TOPIC: &str = "kill";
/// How long all producers together may take to get something acknowledged after a restart.
const PROGRESS_MAX: Duration = Duration::from_secs(40);
/// How long the broker lives at most after every producer made progress.
const LIFE_MAX_MS: u64 = 150;
/// One in so many restarts is killed before it listens.
const KILL_AT_START_ONE_IN: u64 = 6;
/// How long such a start lives at most.
const START_LIFE_MAX_MS: u64 = 40;

/// How long a run goes on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kills, at most.
    pub cycles: u64,
    /// Time after which no further kill starts.
    pub duration: Duration,
    /// Producers, and partitions.
    pub producers: u32,
    /// Decides the times of the kills and the sizes of the batches.
    pub seed: u64,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub kills: u64,
    /// Kills of a broker that did not listen yet.
    pub kills_at_start: u64,
    pub acknowledged_batches: u64,
    pub acknowledged_messages: u64,
    /// Batches whose outcome the client could not tell. They may be stored or not.
    pub uncertain_batches: u64,
    pub metadata_changes: u64,
    pub offset_stores: u64,
    pub longest_start: Duration,
}

/// Kills and checks until the plan is done, then reads everything once more.
///
/// # Panics
/// When something that was acknowledged is missing, doubled, reordered or changed, when a broker does not start, and
/// when a client makes no progress after a restart.
pub fn run(plan: &Plan) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("start a runtime");
    let mut broker = Broker::start(Settings::default());
    let outcome = runtime.block_on(run_on(&mut broker, plan));
    runtime.shutdown_timeout(Duration::from_secs(1));
    assert!(broker.stop().success(), "the broker stops cleanly at the end");
    broker.assert_no_panic();
    outcome
}

async fn run_on(broker: &mut Broker, plan: &Plan) -> Outcome {
    let mut random = Random::new(plan.seed);
    let mut outcome = Outcome::default();
    let workers = Workers::start(broker, plan).await;
    let started = Instant::now();
    while outcome.kills < plan.cycles && started.elapsed() < plan.duration {
        let waited = Instant::now();
        workers.wait_for_progress().await;
        let waited = waited.elapsed();
        tokio::time::sleep(Duration::from_millis(random.below(LIFE_MAX_MS))).await;
        let promised = workers.ledger.promises();
        broker.kill();
        outcome.kills += 1;
        if random.below(KILL_AT_START_ONE_IN) == 0 {
            broker.spawn();
            tokio::time::sleep(Duration::from_millis(random.below(START_LIFE_MAX_MS))).await;
            broker.kill();
            outcome.kills_at_start += 1;
        }
        let start = Instant::now();
        broker.restart();
        outcome.longest_start = outcome.longest_start.max(start.elapsed());
        let restarted = start.elapsed();
        checks::check_recent(&broker.connection_string(), &workers.ledger, &promised).await;
        println!(
            "kill {}: progress after {waited:?}, listening after {restarted:?}, checked after {:?}",
            outcome.kills,
            start.elapsed() - restarted
        );
        broker.assert_no_panic();
    }
    let ledger = workers.stop().await;
    checks::check_all(&broker.connection_string(), &ledger).await;
    ledger.count(&mut outcome);
    outcome
}

/// The tasks that write, and what they were told.
struct Workers {
    ledger: Arc<Ledger>,
    stopping: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Workers {
    async fn start(broker: &Broker, plan: &Plan) -> Self {
        // A link that was up at all starts over with short pauses, or most of a run would be spent in pauses of 10 s.
        let options = "reconnection_interval=5ms&reestablish_after=1ms";
        let string = format!("{}?{options}", broker.connection_string());
        let client = connect(&string).await;
        let name = name();
        client.create_stream(TOPIC, &StreamCreateOptions::default()).await.expect("create the stream");
        let options = TopicCreateOptions { partitions_count: Some(plan.producers), ..Default::default() };
        client.create_topic(&name, TOPIC, &options).await.expect("create the topic");
        let ledger = Arc::new(Ledger::new(plan.producers));
        let stopping = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for partition in 0..plan.producers {
            let random = Random::new(plan.seed ^ u64::from(partition + 1));
            tasks.push(tokio::spawn(producer::produce(
                string.clone(),
                partition,
                random,
                Arc::clone(&ledger),
                Arc::clone(&stopping),
            )));
        }
        tasks.push(tokio::spawn(producer::store_offsets(
            string.clone(),
            Arc::clone(&ledger),
            Arc::clone(&stopping),
        )));
        tasks.push(tokio::spawn(metadata::change(string, Arc::clone(&ledger), Arc::clone(&stopping))));
        Self { ledger, stopping, tasks }
    }

    /// Waits until every producer had a batch acknowledged from now on, and an offset store and a metadata change
    /// went through.
    async fn wait_for_progress(&self) {
        let before = self.ledger.progress();
        let deadline = Instant::now() + PROGRESS_MAX;
        loop {
            for task in &self.tasks {
                assert!(!task.is_finished(), "a worker ended early; its panic is printed above");
            }
            let now = self.ledger.progress();
            if before.iter().zip(&now).all(|(before, now)| now > before) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "no progress after {PROGRESS_MAX:?}: {before:?}, then {now:?} (producers, offsets, metadata)"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn stop(self) -> Arc<Ledger> {
        self.stopping.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.expect("a worker panicked");
        }
        self.ledger
    }
}

pub(crate) async fn connect(string: &str) -> IggyClient {
    let client = IggyClient::from_connection_string(string).expect("a valid connection string");
    client.connect().await.expect("connect and sign in");
    client
}

pub(crate) fn name() -> Identifier {
    Identifier::named(TOPIC).expect("a valid name")
}

pub(crate) fn consumer() -> Consumer {
    Consumer::new(name())
}
