//! The sending half: one thread deals the lines out, several send them.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use laneway_client::{BatchLimits, Client, Producer, Settings};
use laneway_wire::PartitionId;

use super::latencies::Latencies;
use super::verify::{LineTag, SentBatch, line_hash};
use super::{QuickstartError, STREAM, TOPIC};
use crate::commands::lines::{LineBlocks, LineError, LongLine, lines};
use crate::commands::send::now;

/// Size of one read of the file, and so about the size of a block.
const READ_BYTES: usize = 128 * 1024;
/// A line that is longer travels in pieces; every piece is checked as a line of its own.
const PIECE_BYTES_MAX: usize = 8 << 20;
/// Bytes above which a batch takes no further line.
const BATCH_BYTES: usize = 256 * 1024;

/// How long to wait for lines before looking for acknowledgements.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Some lines in a row.
#[derive(Debug)]
pub struct Block {
    /// Number of its first line, from 1.
    first: u64,
    bytes: Vec<u8>,
}

/// What one producer has to tell.
#[derive(Debug, Default)]
pub struct Produced {
    /// Lines acknowledged.
    pub lines: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Batches acknowledged.
    pub batches: u64,
    pub latencies: Latencies,
}

impl Produced {
    /// Adds what another producer has to tell.
    pub fn add(&mut self, other: &Produced) {
        self.lines += other.lines;
        self.bytes += other.bytes;
        self.batches += other.batches;
        self.latencies.merge(&other.latencies);
    }
}

/// Reads the source to its end and deals blocks out to the producers, in turn.
pub fn deal(source: impl Read, producers: &[SyncSender<Block>]) -> Result<(), LineError> {
    let mut blocks = LineBlocks::new(source, READ_BYTES, PIECE_BYTES_MAX, LongLine::Split);
    let mut next = 1;
    let mut turns = producers.iter().cycle();
    while let Some(bytes) = blocks.next_block()? {
        let first = next;
        next += lines(&bytes).count() as u64;
        let Some(producer) = turns.next() else { break };
        if producer.send(Block { first, bytes }).is_err() {
            // That producer has failed and says why itself.
            break;
        }
    }
    Ok(())
}

/// Sends what it is dealt and hands on what must stand where. `checkers`: by partition, who checks it.
pub fn produce(
    settings: Settings,
    number: u32,
    messages_per_batch: u32,
    blocks: &Receiver<Block>,
    checkers: &BTreeMap<PartitionId, SyncSender<SentBatch>>,
) -> Result<Produced, QuickstartError> {
    let limits = BatchLimits { messages: messages_per_batch, bytes: BATCH_BYTES, ..BatchLimits::default() };
    let producer = Producer::open(Client::connect(settings)?, &STREAM.into(), &TOPIC.into(), limits)?;
    let partitions = producer.partitions().max(1);
    let mut sending = Sending {
        producer,
        number,
        checkers,
        unacknowledged: BTreeMap::new(),
        produced: Produced::default(),
    };
    loop {
        let block = match blocks.recv_timeout(LOOK_EVERY) {
            Ok(block) => block,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                // The source pauses. What is there goes out, and nobody must wait for an acknowledgement that is here.
                sending.producer.send_ready()?;
                sending.hand_on()?;
                continue;
            }
        };
        let now = now();
        for (line, payload) in (block.first..).zip(lines(&block.bytes)) {
            // Neighbours go to different partitions, so that every partition gets lines of every producer.
            let partition = PartitionId((line % u64::from(partitions)) as u32);
            sending.unacknowledged.entry(partition).or_default().push_back((line, line_hash(payload)));
            let id = LineTag { producer: number, line }.id();
            sending.producer.push(partition, id, now, payload, b"")?;
            sending.produced.bytes += payload.len() as u64;
        }
        sending.hand_on()?;
    }
    sending.producer.flush()?;
    sending.hand_on()?;
    Ok(sending.produced)
}

struct Sending<'a> {
    producer: Producer,
    number: u32,
    checkers: &'a BTreeMap<PartitionId, SyncSender<SentBatch>>,
    /// Line number and hash of what was pushed, by partition, in order.
    unacknowledged: BTreeMap<PartitionId, VecDeque<(u64, u64)>>,
    produced: Produced,
}

impl Sending<'_> {
    /// Turns acknowledgements into expectations.
    fn hand_on(&mut self) -> Result<(), QuickstartError> {
        while let Some(batch) = self.producer.poll_acknowledged() {
            let partition = batch.partition;
            let base = batch.base.ok_or(QuickstartError::Unconfirmed { partition })?;
            let count = batch.messages as usize;
            let waiting = self.unacknowledged.entry(partition).or_default();
            assert!(waiting.len() >= count, "more lines acknowledged than sent");
            let lines = waiting.drain(..count).collect();
            self.produced.lines += u64::from(batch.messages);
            self.produced.batches += 1;
            self.produced.latencies.record(batch.latency);
            let sent = SentBatch { partition, producer: self.number, base, lines };
            let checker = self.checkers.get(&partition).expect("every partition has a checker");
            if checker.send(sent).is_err() {
                // That consumer has failed and says why itself.
                return Err(QuickstartError::Stopped);
            }
        }
        Ok(())
    }
}
