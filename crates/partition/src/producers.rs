//! Idempotent producers: a batch with a producer section is stored once, whatever session sends it.
//!
//! Source: wire protocol, section 9.

use std::collections::{BTreeMap, VecDeque};

use laneway_wire::batch::{ProducerSection, SEQUENCES};
use laneway_wire::{Micros, Offset, Op, RequestNumber, Status};

use super::codec::{DecodeError, Put, Reader};
use super::identity::{Admit, PRODUCER_BYTES, Receipt, ReceiptKind, put_producer, take_producer};
use super::receipts::is_young;

/// Batches of one producer whose confirmation is kept: what a producer may have in flight and send again.
pub const HELD_PER_PRODUCER: usize = 8;
/// Producers with state in one partition unless configured otherwise.
pub const PRODUCERS_MAX: usize = 4096;

/// Bytes of an applied batch in a checkpoint.
const HELD_BYTES: usize = PRODUCER_BYTES + 4 + 8 + 8 + 8;

/// The producers of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producers {
    producers_max: usize,
    states: BTreeMap<u64, State>,
    staged: BTreeMap<u64, VecDeque<StagedBatch>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    epoch: u16,
    /// Batches of this epoch, oldest first, at least one.
    held: VecDeque<Held>,
}

/// An applied batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    producer: ProducerSection,
    message_count: u32,
    op: Op,
    base_offset: Offset,
    timestamp: Micros,
}

/// A proposed batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StagedBatch {
    op: Op,
    producer: ProducerSection,
    message_count: u32,
}

/// The newest that is known of a producer, proposed batches included.
struct Latest {
    epoch: u16,
    next_sequence: u32,
}

impl Producers {
    /// No producer yet.
    pub fn new(producers_max: usize) -> Self {
        assert!(producers_max > 0, "a partition must remember at least one producer");
        Self { producers_max, states: BTreeMap::new(), staged: BTreeMap::new() }
    }

    /// What to do with a batch. A receipt is made out to `request`, which asks now.
    pub fn admit(
        &self,
        producer: &ProducerSection,
        message_count: u32,
        request: RequestNumber,
        now: Micros,
    ) -> Admit {
        let Some(latest) = self.latest(producer.producer_id) else {
            return self.admit_unknown(producer, now);
        };
        if producer.epoch < latest.epoch {
            return Admit::Refuse(Status::ProducerEpochFenced);
        }
        if producer.epoch > latest.epoch {
            return match producer.base_sequence {
                0 => Admit::New,
                _ => Admit::Refuse(Status::ProducerSequenceOutOfOrder),
            };
        }
        if producer.base_sequence == latest.next_sequence {
            return Admit::New;
        }
        self.admit_again(producer, message_count, request, latest.next_sequence)
    }

    fn admit_unknown(&self, producer: &ProducerSection, now: Micros) -> Admit {
        if producer.base_sequence != 0 {
            return Admit::Refuse(Status::ProducerUnknown);
        }
        let full = self.states.len() + self.staged.len() >= self.producers_max;
        if full && self.oldest().is_none_or(|(_, newest)| is_young(newest.timestamp, now)) {
            return Admit::Refuse(Status::TransientNotAccepted);
        }
        Admit::New
    }

    /// A sequence of the current epoch that is not the next one.
    fn admit_again(
        &self,
        producer: &ProducerSection,
        message_count: u32,
        request: RequestNumber,
        next_sequence: u32,
    ) -> Admit {
        let staged = self.staged.get(&producer.producer_id).and_then(|staged| {
            staged.iter().find(|batch| batch.producer == *producer && batch.message_count == message_count)
        });
        if let Some(staged) = staged {
            return Admit::InFlight(staged.op);
        }
        let held =
            self.states.get(&producer.producer_id).filter(|state| state.epoch == producer.epoch).and_then(
                |state| {
                    state
                        .held
                        .iter()
                        .find(|held| held.producer == *producer && held.message_count == message_count)
                },
            );
        if let Some(held) = held {
            return Admit::Replay(Receipt {
                kind: ReceiptKind::Append,
                request,
                op: held.op,
                base_offset: held.base_offset,
                message_count: held.message_count,
                timestamp: held.timestamp,
                status: Status::Ok,
            });
        }
        // Sequences wrap, so "before" is the nearer half of the circle. A batch that was written but whose confirmation
        // is no longer held must not be called unwritten.
        let behind = next_sequence.wrapping_sub(producer.base_sequence) % SEQUENCES;
        let same_start = self
            .states
            .get(&producer.producer_id)
            .is_some_and(|state| state.held.iter().any(|held| held.producer == *producer));
        match behind <= SEQUENCES / 2 && !same_start {
            true => Admit::Refuse(Status::RequestTooOld),
            false => Admit::Refuse(Status::ProducerSequenceOutOfOrder),
        }
    }

    /// A batch was proposed.
    pub fn stage(&mut self, op: Op, producer: ProducerSection, message_count: u32) {
        let batch = StagedBatch { op, producer, message_count };
        self.staged.entry(producer.producer_id).or_default().push_back(batch);
    }

    /// The op of a staged batch was applied.
    pub fn unstage(&mut self, op: Op, producer_id: u64) {
        let Some(staged) = self.staged.get_mut(&producer_id) else { return };
        staged.retain(|batch| batch.op != op);
        if staged.is_empty() {
            self.staged.remove(&producer_id);
        }
    }

    /// Forgets what was proposed and never committed.
    pub fn discard_staged(&mut self) {
        self.staged.clear();
    }

    /// Keeps the confirmation of an applied batch. The primary has decided that it is new.
    pub fn record(
        &mut self,
        op: Op,
        producer: &ProducerSection,
        message_count: u32,
        base_offset: Offset,
        timestamp: Micros,
    ) {
        let known = self.states.contains_key(&producer.producer_id);
        if !known
            && self.states.len() >= self.producers_max
            && let Some((oldest, _)) = self.oldest()
        {
            self.states.remove(&oldest);
        }
        let held = Held { producer: *producer, message_count, op, base_offset, timestamp };
        let state = self
            .states
            .entry(producer.producer_id)
            .or_insert_with(|| State { epoch: producer.epoch, held: VecDeque::new() });
        if state.epoch != producer.epoch {
            state.epoch = producer.epoch;
            state.held.clear();
        }
        state.held.push_back(held);
        if state.held.len() > HELD_PER_PRODUCER {
            state.held.pop_front();
        }
    }

    /// Producers with state.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether no producer has state.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    fn latest(&self, producer_id: u64) -> Option<Latest> {
        let staged = self.staged.get(&producer_id).and_then(VecDeque::back).map(|batch| Latest {
            epoch: batch.producer.epoch,
            next_sequence: batch.producer.next_sequence(batch.message_count),
        });
        staged.or_else(|| {
            let state = self.states.get(&producer_id)?;
            let newest = state.held.back()?;
            let next_sequence = newest.producer.next_sequence(newest.message_count);
            Some(Latest { epoch: state.epoch, next_sequence })
        })
    }

    /// The producer that was quiet longest. A scan: it is needed only when a new producer meets a full table.
    fn oldest(&self) -> Option<(u64, &Held)> {
        self.states
            .iter()
            .filter_map(|(producer_id, state)| Some((*producer_id, state.held.back()?)))
            .min_by_key(|(producer_id, newest)| (newest.op, *producer_id))
    }

    /// Appends `batches u32` and per batch, grouped by producer and oldest first, `producer 14, message_count u32, op
    /// u64, base_offset u64, timestamp u64`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_count(self.states.values().map(|state| state.held.len()).sum());
        for held in self.states.values().flat_map(|state| &state.held) {
            put_producer(out, &held.producer);
            out.put_u32(held.message_count);
            out.put_u64(held.op.0);
            out.put_u64(held.base_offset.0);
            out.put_u64(held.timestamp.0);
        }
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>, producers_max: usize) -> Result<Self, DecodeError> {
        let mut producers = Self::new(producers_max);
        for _ in 0..reader.count(HELD_BYTES)? {
            let producer = take_producer(reader)?;
            let message_count = reader.u32()?;
            let op = Op(reader.u64()?);
            let base_offset = Offset(reader.u64()?);
            producers.record(op, &producer, message_count, base_offset, Micros(reader.u64()?));
        }
        Ok(producers)
    }
}

#[cfg(test)]
#[path = "producers_tests.rs"]
mod tests;
