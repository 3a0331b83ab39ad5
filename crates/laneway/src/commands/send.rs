//! `laneway send STREAM/TOPIC`: the lines of standard input become messages.
//!
//! One thread reads the input, the other sends. What has arrived goes out as soon as its partition is free, so a slow
//! input is sent at once and a fast one in large batches. Lines that have arrived and are not acknowledged are bounded
//! by the blocks between the two threads and the batches of the producer.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use laneway_client::{BatchLimits, ClientError, Name, Options, Partitioner, Producer};
use laneway_wire::batch::PAYLOAD_BYTES_MAX;
use laneway_wire::{Micros, PartitionId};

use super::CommandError;
use super::connect;
use super::error::stopped_text;
use super::keys::KeyRule;
use super::lines::{LineBlocks, LineError, LongLine, lines};
use super::output::{bytes_text, count_text, counted, time_text};
use super::progress::Progress;
use super::streams::say;
use super::topics;
use crate::cli::{SendArgs, Target};
use crate::signals::Signals;

/// Size of one read of the input.
const READ_BYTES: usize = 256 * 1024;
/// Blocks that may wait between the reader and the sender.
const BLOCKS_MAX: usize = 8;
/// Bytes above which a batch takes no further line.
const BATCH_BYTES: usize = 1 << 20;
/// How long to wait for input before looking for acknowledgements. Only how soon an error is seen hangs on it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

type Block = Result<Vec<u8>, LineError>;

/// Sends every line and waits for the last acknowledgement.
pub fn send(args: &SendArgs) -> Result<(), CommandError> {
    let keys = key_rule(args)?;
    let told = Arc::new(Told::default());
    watch_signals(Arc::clone(&told))?;
    let mut client = connect::sign_in(&args.connection)?;
    if args.create {
        topics::create_if_missing(&mut client, &args.topic, args.partitions, &Options::new())?;
    }
    let limits = BatchLimits { messages: args.batch, bytes: BATCH_BYTES, ..BatchLimits::default() };
    let (stream, topic) = (name(&args.topic.stream), name(&args.topic.topic));
    topics::find(&mut client, &args.topic, Some("create it with --create, or look for a mistyped name"))?;
    let producer = Producer::open(client, &stream, &topic, limits)?;
    let partitions = NonZeroU32::new(producer.partitions())
        .ok_or_else(|| CommandError::NoPartitions { topic: args.topic.to_string() })?;
    if let Some(partition) = args.partition
        && !producer.has_partition(PartitionId(partition))
    {
        let last = partitions.get() - 1;
        return Err(CommandError::NoPartition { topic: args.topic.to_string(), partition, last });
    }
    let random = producer.client().session().client().0;
    let mut sender = Sender {
        producer,
        keys,
        partitioner: Partitioner::new(partitions, random),
        fixed: args.partition.map(PartitionId),
        ids: MessageIds::new()?,
        counts: Counts::default(),
        told: Arc::clone(&told),
        used: BTreeSet::new(),
        progress: Progress::new(!args.quiet),
        start: Instant::now(),
    };
    let (give, take) = sync_channel::<Block>(BLOCKS_MAX);
    std::thread::spawn(move || {
        let mut blocks = LineBlocks::new(io::stdin().lock(), READ_BYTES, PAYLOAD_BYTES_MAX, LongLine::Refuse);
        loop {
            let block = match blocks.next_block() {
                Ok(Some(block)) => Ok(block),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            let is_last = block.is_err();
            if give.send(block).is_err() || is_last {
                return;
            }
        }
    });
    told.has_begun.store(true, Ordering::Release);
    let result = sender.run(&take);
    sender.progress.clear();
    let counts = sender.counts;
    match result {
        Ok(()) => {
            if !args.quiet {
                sender.summarize();
            }
            Ok(())
        }
        Err(cause) => Err(CommandError::SendStopped {
            cause: Box::new(cause),
            acknowledged: counts.acknowledged,
            read: counts.lines - counts.empty,
        }),
    }
}

/// Where a run stands, for the thread that takes a signal.
#[derive(Debug, Default)]
struct Told {
    acknowledged: AtomicU64,
    read: AtomicU64,
    has_begun: AtomicBool,
}

/// A signal ends the run at once, but not without a word about what is stored: a sender that waits for a broker or for
/// its input could not say it.
fn watch_signals(told: Arc<Told>) -> Result<(), CommandError> {
    let signals = Signals::block().map_err(CommandError::Signals)?;
    let watcher = signals.watch(move |signal| {
        if told.has_begun.load(Ordering::Acquire) {
            // The acknowledgements first: what is read only grows.
            let acknowledged = told.acknowledged.load(Ordering::Acquire);
            let read = told.read.load(Ordering::Acquire);
            let clear = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
            let stopped = stopped_text(acknowledged, read);
            let others = if acknowledged < read { "; the others may be stored as well" } else { "" };
            // Nobody misses a word that cannot be written.
            let _ = writeln!(io::stderr().lock(), "{clear}stopped: {stopped}{others}");
        }
        std::process::exit(signal.exit_code());
    });
    watcher.map(drop).map_err(CommandError::Signals)
}

fn key_rule(args: &SendArgs) -> Result<KeyRule, CommandError> {
    Ok(match (&args.key_regex, args.key_column) {
        (Some(pattern), _) => KeyRule::pattern(pattern)?,
        (None, Some(column)) => KeyRule::column(column as usize, args.delimiter.as_deref())?,
        (None, None) => KeyRule::Balanced,
    })
}

/// A stream or topic of the command line, owned.
pub fn name(target: &Target) -> Name {
    match target {
        Target::Id(id) => Name::Id(*id),
        Target::Name(name) => Name::Text(name.clone()),
    }
}

/// Microseconds since 1970 now. A clock before that reads as 0.
pub fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    lines: u64,
    bytes: u64,
    empty: u64,
    without_key: u64,
    acknowledged: u64,
}

/// Ids of the messages of one run: a random start and a count, so that they are unique without a draw for each.
#[derive(Debug)]
struct MessageIds {
    next: u128,
}

impl MessageIds {
    fn new() -> Result<Self, CommandError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| ClientError::NoRandomness)?;
        Ok(Self { next: u128::from_le_bytes(random) })
    }

    fn draw(&mut self) -> u128 {
        self.next = self.next.wrapping_add(1).max(1);
        self.next
    }
}

struct Sender {
    producer: Producer,
    keys: KeyRule,
    partitioner: Partitioner,
    fixed: Option<PartitionId>,
    ids: MessageIds,
    counts: Counts,
    told: Arc<Told>,
    /// Partitions that hold acknowledged messages of this run.
    used: BTreeSet<PartitionId>,
    progress: Progress,
    start: Instant,
}

impl Sender {
    fn run(&mut self, blocks: &Receiver<Block>) -> Result<(), CommandError> {
        let result = self.take_all(blocks);
        // Whole lines that came before an error of the input are as good as any.
        let flushed =
            if matches!(result, Err(CommandError::Client(_))) { Ok(()) } else { self.producer.flush() };
        self.count_acknowledged();
        result.and(flushed.map_err(CommandError::from))
    }

    fn take_all(&mut self, blocks: &Receiver<Block>) -> Result<(), CommandError> {
        loop {
            let block = match blocks.try_recv() {
                Ok(block) => block,
                Err(TryRecvError::Disconnected) => return Ok(()),
                Err(TryRecvError::Empty) => {
                    // The input pauses: what is there goes out now.
                    self.end_turn();
                    self.producer.send_ready()?;
                    match blocks.recv_timeout(LOOK_EVERY) {
                        Ok(block) => block,
                        Err(RecvTimeoutError::Disconnected) => return Ok(()),
                        Err(RecvTimeoutError::Timeout) => {
                            self.count_acknowledged();
                            continue;
                        }
                    }
                }
            };
            let block = block?;
            let now = now();
            for line in lines(&block) {
                self.push(line.strip_suffix(b"\n").unwrap_or(line), now)?;
            }
            self.count_acknowledged();
        }
    }

    fn push(&mut self, line: &[u8], now: Micros) -> Result<(), CommandError> {
        self.counts.lines += 1;
        if line.is_empty() {
            // The protocol knows no empty message.
            self.counts.empty += 1;
            return Ok(());
        }
        // Before it can be stored, so that no line is stored that does not count as read.
        self.told.read.store(self.counts.lines - self.counts.empty, Ordering::Release);
        self.counts.bytes += line.len() as u64;
        let partition = match (self.fixed, self.keys.key(line)) {
            (Some(partition), _) => partition,
            (None, Some(key)) => self.partitioner.by_key(&key),
            (None, None) => {
                self.counts.without_key += u64::from(!matches!(self.keys, KeyRule::Balanced));
                self.partitioner.current()
            }
        };
        self.producer.push(partition, self.ids.draw(), now, line, b"")?;
        // Whole batches take turns, not lines: that keeps batches large.
        if self.fixed.is_none()
            && partition == self.partitioner.current()
            && self.producer.is_filled(partition)
        {
            self.end_turn();
        }
        Ok(())
    }

    fn end_turn(&mut self) {
        if self.producer.filling(self.partitioner.current()) > 0 {
            self.partitioner.advance();
        }
    }

    fn count_acknowledged(&mut self) {
        while let Some(batch) = self.producer.poll_acknowledged() {
            self.counts.acknowledged += u64::from(batch.messages);
            self.used.insert(batch.partition);
        }
        let (counts, start) = (self.counts, self.start);
        self.told.acknowledged.store(counts.acknowledged, Ordering::Release);
        self.progress.update(|| {
            let rate = counts.acknowledged as f64 / start.elapsed().as_secs_f64();
            format!(
                "{} acknowledged, {} read, {} messages/s",
                counted(counts.acknowledged, "message"),
                bytes_text(counts.bytes),
                count_text(rate as u64)
            )
        });
    }

    fn summarize(&self) {
        let Counts { bytes, empty, without_key, acknowledged, .. } = self.counts;
        say(&format!(
            "{} ({}) acknowledged in {}, over {} of {}",
            counted(acknowledged, "message"),
            bytes_text(bytes),
            time_text(self.start.elapsed()),
            self.used.len(),
            counted(self.producer.partitions().into(), "partition")
        ));
        if empty > 0 {
            let were = if empty == 1 { "was" } else { "were" };
            say(&format!(
                "{} {were} left out: a message has at least one byte",
                counted(empty, "empty line")
            ));
        }
        if without_key > 0 {
            let were = if without_key == 1 { "was" } else { "were" };
            say(&format!(
                "{} had no key and {were} spread over the partitions",
                counted(without_key, "line")
            ));
        }
    }
}
