//! `laneway quickstart [FILE]`: the main job, from nothing. A broker, several producers and consumers, a real file, and
//! the proof that every line came back.
//!
//! The consumers follow while the producers send. Payloads are lines with their newline byte, so an empty line is a
//! message too and the file comes back byte for byte. Memory stays bounded whatever the size of the file: blocks,
//! batches and expectations pass through bounded queues.

mod consume;
mod host;
mod latencies;
mod produce;
mod report;
mod source;
mod verify;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use laneway_client::{Client, ClientError, Credentials, Options, Settings};
use laneway_wire::{Identifier, PartitionId};

use super::CommandError;
use super::lines::LineError;
use super::program::program_text;
use crate::cli::QuickstartArgs;
use crate::passwords::random_password;
use crate::signals::Signals;
use host::{Host, Root};
use produce::Produced;
use report::Report;
use source::Source;
use verify::Mismatch;

/// Names of what is created.
const STREAM: &str = "quickstart";
const TOPIC: &str = "lines";
/// Blocks that may wait for one producer.
const BLOCKS_MAX: usize = 4;
/// Acknowledged batches that may wait for one consumer.
const EXPECTATIONS_MAX: usize = 64;
/// Most consumers, each with a thread and a connection; they share the partitions.
const CONSUMERS_MAX: u32 = 8;
/// Longest wait for one answer. A large file on a slow disk may take a while to flush.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Length of the root user's password when nobody needs to type it.
const PASSWORD_LETTERS: usize = 24;

/// Why the run failed. Every mismatch is one of the broker, or of this check; either must be loud.
#[derive(Debug, thiserror::Error)]
pub enum QuickstartError {
    #[error("cannot make a temporary directory: {source}; set TMPDIR to a directory with room")]
    Directory { source: io::Error },
    #[error("cannot read {label}: {source}")]
    Source { label: String, source: io::Error },
    #[error("{0}")]
    Lines(#[from] LineError),
    #[error("the broker does not start: {what}")]
    Broker { what: String },
    #[error("the broker does not stop cleanly: {what}")]
    Stop { what: String },
    #[error("signals cannot be blocked: {0}")]
    Signals(#[source] io::Error),
    #[error("no random bytes for a password")]
    NoRandomness,
    #[error("VERIFICATION FAILED: {0}")]
    Mismatch(#[from] Mismatch),
    #[error("VERIFICATION FAILED: {sent} lines were sent, {verified} came back")]
    Count { sent: u64, verified: u64 },
    #[error("partition {partition}: an acknowledgement without an offset")]
    Unconfirmed { partition: PartitionId },
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("stopped because another part failed")]
    Stopped,
    #[error("a part of the run panicked")]
    Panicked,
}

/// Runs everything and prints the report.
pub fn quickstart(args: &QuickstartArgs) -> Result<(), CommandError> {
    let source = Source::new(args.file.as_deref());
    // Before anything is started: a file that is not there should not cost a broker.
    source.open().map_err(|error| QuickstartError::Source { label: source.label(), source: error })?;
    let signals = Signals::block().map_err(QuickstartError::Signals)?;
    let password = match args.keep {
        true => "iggy".to_owned(),
        false => random_password(PASSWORD_LETTERS).map_err(|_| QuickstartError::NoRandomness)?,
    };
    let root = Root { username: "iggy".to_owned(), password };

    let start = Instant::now();
    let host = Host::start(&root, args.shards)?;
    let boot = start.elapsed();
    let keeping = Arc::new(AtomicBool::new(false));
    let (stop, stopped) = sync_channel(1);
    let (directory, kept) = (host.directory(), Arc::clone(&keeping));
    signals
        .watch(move |signal| {
            if kept.load(Ordering::Acquire) {
                // The main thread waits for this and shuts down in order.
                let _ = stop.send(());
            } else {
                // In the middle of a run nobody waits for results; only the directory must not stay.
                let _ = std::fs::remove_dir_all(directory);
                std::process::exit(signal.exit_code());
            }
        })
        .map_err(QuickstartError::Signals)?;

    let settings = Settings {
        address: host.address().to_string(),
        credentials: Some(Credentials { username: root.username.clone(), password: root.password.clone() }),
        timeout: TIMEOUT,
    };
    let plan = Plan { producers: args.producers, partitions: args.partitions, batch: args.batch };
    let outcome = run(&settings, &source, plan);
    let result = outcome.map_err(CommandError::from).and_then(|outcome| {
        let report = Report {
            label: source.label(),
            boot,
            plan,
            outcome,
            program: program_text(),
            kept: args.keep.then_some(host.address()),
        };
        report.print(&mut io::stdout().lock()).map_err(CommandError::Output)
    });
    if result.is_ok() && args.keep {
        keeping.store(true, Ordering::Release);
        let _ = stopped.recv();
    }
    let shut_down = host.shutdown().map_err(CommandError::from);
    result.and(shut_down)
}

/// How a run is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub producers: u32,
    pub partitions: u32,
    /// Most messages of one batch.
    pub batch: u32,
}

impl Plan {
    /// As many consumers as partitions, up to a limit.
    pub fn consumers(self) -> u32 {
        self.partitions.clamp(1, CONSUMERS_MAX)
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub produced: Produced,
    /// Lines that came back and match.
    pub verified: u64,
    /// From the first line to the last acknowledgement.
    pub sending: Duration,
    /// From the first line to the last one verified.
    pub total: Duration,
}

/// Sends the source through the broker at `settings` and checks what comes back. The topic must not exist yet.
pub fn run(settings: &Settings, source: &Source, plan: Plan) -> Result<Outcome, QuickstartError> {
    let input =
        source.open().map_err(|error| QuickstartError::Source { label: source.label(), source: error })?;
    let mut client = Client::connect(settings.clone())?;
    client.create_stream(STREAM)?;
    let topic = client.create_topic(&Identifier::Name(STREAM), TOPIC, plan.partitions, &Options::new())?;
    let partitions: Vec<PartitionId> = topic.partitions.iter().map(|partition| partition.id).collect();
    let start = Instant::now();
    thread::scope(|scope| {
        let mut checkers = BTreeMap::new();
        let mut consumers = Vec::new();
        for consumer in 0..plan.consumers() {
            let (give, take) = sync_channel(EXPECTATIONS_MAX);
            let mine =
                partitions.iter().copied().filter(|partition| partition.0 % plan.consumers() == consumer);
            let mine: Vec<PartitionId> = mine.collect();
            checkers.extend(mine.iter().map(|partition| (*partition, give.clone())));
            consumers.push(scope.spawn(move || consume::consume(settings.clone(), &mine, &take)));
        }
        let mut feeds = Vec::new();
        let mut producers = Vec::new();
        for number in 0..plan.producers {
            let (give, take) = sync_channel(BLOCKS_MAX);
            let checkers = checkers.clone();
            feeds.push(give);
            producers.push(
                scope.spawn(move || produce::produce(settings.clone(), number, plan.batch, &take, &checkers)),
            );
        }
        // Consumers are done when the last producer has dropped its copy.
        drop(checkers);
        let dealt = produce::deal(input, &feeds);
        drop(feeds);

        let produced: Vec<_> = producers.into_iter().map(join).collect();
        let sending = start.elapsed();
        let verified: Vec<_> = consumers.into_iter().map(join).collect();
        let total = start.elapsed();
        // A mismatch explains everything else, a producer's failure explains a consumer's.
        let mut failures: Vec<QuickstartError> = Vec::new();
        let verified =
            verified.into_iter().filter_map(|result| result.map_err(|error| failures.push(error)).ok()).sum();
        let mut sum = Produced::default();
        for result in produced {
            match result {
                Ok(one) => sum.add(&one),
                Err(error) => failures.push(error),
            }
        }
        failures.extend(dealt.err().map(QuickstartError::from));
        failures.sort_by_key(QuickstartError::rank);
        match failures.into_iter().next() {
            Some(error) => Err(error),
            None if sum.lines != verified => Err(QuickstartError::Count { sent: sum.lines, verified }),
            None => Ok(Outcome { produced: sum, verified, sending, total }),
        }
    })
}

impl QuickstartError {
    /// Lower explains more.
    fn rank(&self) -> u8 {
        match self {
            Self::Mismatch(Mismatch::Missing { .. } | Mismatch::Unsent { .. }) => 1,
            Self::Mismatch(_) | Self::Count { .. } => 0,
            Self::Stopped => 3,
            _ => 2,
        }
    }
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T, QuickstartError>>) -> Result<T, QuickstartError> {
    thread.join().unwrap_or(Err(QuickstartError::Panicked))
}
