//! The reading half: consumers follow the topic while it is being written and check every message.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use laneway_client::{Client, Polled, Reader, Settings, Start, Until};
use laneway_wire::{Identifier, PartitionId};

use super::verify::{Mismatch, PartitionVerifier, SentBatch, Verdict};
use super::{QuickstartError, STREAM, TOPIC};

/// Longest wait at the broker for a next message. The end of the run is seen between two waits.
const WAIT: Duration = Duration::from_millis(50);
/// A message may be read before its producer has taken note of the acknowledgement. More than this is no race.
const EXPECTATION_WAIT: Duration = Duration::from_secs(10);
/// After the last acknowledgement, what was acknowledged must come back within this time of the last message.
const STALL: Duration = Duration::from_secs(5);

/// Reads its partitions until the producers are done and everything acknowledged has been seen. Returns how many lines
/// it verified.
pub fn consume(
    settings: Settings,
    partitions: &[PartitionId],
    expectations: &Receiver<SentBatch>,
) -> Result<u64, QuickstartError> {
    let mut client = Client::connect(settings)?;
    let (stream, topic) = (STREAM.into(), TOPIC.into());
    let mut reader = Reader::open(&mut client, &stream, &topic, partitions, Start::First, Until::Stopped)?;
    let mut checks = Checks {
        verifiers: partitions
            .iter()
            .map(|partition| (*partition, PartitionVerifier::new(*partition)))
            .collect(),
        expectations,
        producers_done: false,
    };
    let mut last_message = Instant::now();
    loop {
        if let Some(polled) = reader.next(&mut client, WAIT)? {
            checks.check(&polled)?;
            last_message = Instant::now();
            continue;
        }
        checks.take_ready()?;
        if checks.producers_done && (checks.is_complete() || last_message.elapsed() > STALL) {
            break;
        }
    }
    let details = client.topic(&Identifier::Name(STREAM), &Identifier::Name(TOPIC))?;
    let counts = details.map(|details| details.partitions).unwrap_or_default();
    let mut verified = 0;
    for (partition, verifier) in &checks.verifiers {
        let count =
            counts.iter().find(|found| found.id == *partition).map_or(0, |found| found.messages_count);
        verifier.finish(count)?;
        verified += verifier.verified();
    }
    Ok(verified)
}

struct Checks<'a> {
    verifiers: BTreeMap<PartitionId, PartitionVerifier>,
    expectations: &'a Receiver<SentBatch>,
    producers_done: bool,
}

impl Checks<'_> {
    fn check(&mut self, polled: &Polled) -> Result<(), QuickstartError> {
        for message in polled.messages() {
            let message = message?;
            loop {
                let verifier =
                    self.verifiers.get_mut(&polled.partition).expect("only its own partitions are read");
                match verifier.check(message.offset, message.id, message.payload)? {
                    Verdict::Verified => break,
                    Verdict::Unknown => self.await_expectation(polled.partition, message.offset.0)?,
                }
            }
        }
        Ok(())
    }

    /// Waits for one more expectation, whichever partition it is of.
    fn await_expectation(&mut self, partition: PartitionId, offset: u64) -> Result<(), QuickstartError> {
        match self.expectations.recv_timeout(EXPECTATION_WAIT) {
            Ok(batch) => self.expect(batch),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                Err(Mismatch::Unsent { partition, offset }.into())
            }
        }
    }

    /// Takes the expectations that are there. Only when nothing is to be read: while messages come, they are taken one by
    /// one as needed, and the bounded queue slows the producers down to the pace of the checks.
    fn take_ready(&mut self) -> Result<(), QuickstartError> {
        loop {
            match self.expectations.try_recv() {
                Ok(batch) => self.expect(batch)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    self.producers_done = true;
                    return Ok(());
                }
            }
        }
    }

    fn expect(&mut self, batch: SentBatch) -> Result<(), QuickstartError> {
        let verifier = self.verifiers.get_mut(&batch.partition).expect("expectations go to their checker");
        Ok(verifier.expect(batch)?)
    }

    fn is_complete(&self) -> bool {
        self.verifiers.values().all(|verifier| verifier.pending() == 0)
    }
}
