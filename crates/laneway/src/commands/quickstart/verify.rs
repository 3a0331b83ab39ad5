//! Compares what comes back with what was sent: every line, byte for byte, and the order within each partition.
//!
//! An acknowledgement says at which offset a batch begins, so the producer knows exactly which line must stand at which
//! offset. It hands that expectation over, and the consumer's [`PartitionVerifier`] holds every message against it.
//! Nothing is taken on trust: offsets start at 0 and have no gap, every offset has exactly one expected line, its bytes
//! match by hash, and each producer's lines stand in the order in which they were sent.

use std::collections::BTreeMap;
use std::hash::Hasher;

use laneway_wire::{Offset, PartitionId};

/// Who sent a line, and which line of the input it is. Travels as the message id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineTag {
    /// Number of the producer, from 0.
    pub producer: u32,
    /// Number of the line in the input, from 1. (Of the piece, where a long line was split.)
    pub line: u64,
}

impl LineTag {
    /// As a message id: never 0, which would ask for a random one.
    pub fn id(self) -> u128 {
        (u128::from(self.producer) + 1) << 64 | u128::from(self.line)
    }

    /// The tag in a message id, if it is one.
    pub fn from_id(id: u128) -> Option<Self> {
        let producer = u32::try_from((id >> 64).checked_sub(1)?).ok()?;
        Some(Self { producer, line: id as u64 })
    }
}

/// Hash of a line's bytes. The standard library's own, so that a fault in the protocol's checksum cannot hide here.
pub fn line_hash(payload: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(payload);
    hasher.finish()
}

/// An acknowledged batch: what must stand at its offsets.
#[derive(Clone, Debug)]
pub struct SentBatch {
    pub partition: PartitionId,
    /// Number of the producer, from 0.
    pub producer: u32,
    /// Offset of the first line, from the acknowledgement.
    pub base: Offset,
    /// Line number and [`line_hash`], in the order of the batch.
    pub lines: Vec<(u64, u64)>,
}

/// What does not match.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("partition {partition}: offset {found} came where {expected} belongs")]
    Offset { partition: PartitionId, expected: u64, found: u64 },
    #[error("partition {partition}: offset {offset} was acknowledged twice")]
    Overlap { partition: PartitionId, offset: u64 },
    #[error("partition {partition}, offset {offset}: a message that nobody sent")]
    Unsent { partition: PartitionId, offset: u64 },
    #[error("partition {partition}, offset {offset}: line {expected:?} belongs here, {found:?} came")]
    Line { partition: PartitionId, offset: u64, expected: LineTag, found: Option<LineTag> },
    #[error("partition {partition}, offset {offset}: the bytes of line {line} changed on the way")]
    Bytes { partition: PartitionId, offset: u64, line: u64 },
    #[error(
        "partition {partition}, offset {offset}: line {line} of producer {producer} stands after its line {previous}"
    )]
    Order { partition: PartitionId, offset: u64, producer: u32, line: u64, previous: u64 },
    #[error(
        "partition {partition}: {missing} acknowledged lines did not come back, the first at offset {offset}"
    )]
    Missing { partition: PartitionId, offset: u64, missing: u64 },
    #[error("partition {partition}: the broker counts {head} messages, {verified} came back")]
    Head { partition: PartitionId, head: u64, verified: u64 },
}

/// Whether a message could be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the line that belongs there.
    Verified,
    /// Its acknowledgement is not known yet. Hand over the next expectation and ask again.
    Unknown,
}

/// Holds the messages of one partition against the expectations, in any order of arrival of the latter.
#[derive(Debug)]
pub struct PartitionVerifier {
    partition: PartitionId,
    next: u64,
    /// Batches whose lines did not all come back, by base offset. Bounded by what the caller hands over ahead.
    expected: BTreeMap<u64, SentBatch>,
    /// Last line seen of each producer.
    last_lines: BTreeMap<u32, u64>,
}

impl PartitionVerifier {
    /// A verifier that has seen nothing.
    pub fn new(partition: PartitionId) -> Self {
        Self { partition, next: 0, expected: BTreeMap::new(), last_lines: BTreeMap::new() }
    }

    /// How many lines were verified.
    pub fn verified(&self) -> u64 {
        self.next
    }

    /// How many expected batches wait for their messages.
    pub fn pending(&self) -> usize {
        self.expected.len()
    }

    /// Takes note of an acknowledged batch of this partition.
    pub fn expect(&mut self, batch: SentBatch) -> Result<(), Mismatch> {
        assert_eq!(batch.partition, self.partition, "an expectation of another partition");
        let base = batch.base.0;
        let end = base.saturating_add(batch.lines.len() as u64);
        let before = self.expected.range(..end).next_back();
        let overlaps =
            before.is_some_and(|(other, sent)| other.saturating_add(sent.lines.len() as u64) > base);
        if base < self.next || overlaps {
            return Err(Mismatch::Overlap { partition: self.partition, offset: base });
        }
        self.expected.insert(base, batch);
        Ok(())
    }

    /// Judges the next message. `Unknown` changes nothing, so the same message may be shown again.
    pub fn check(&mut self, offset: Offset, id: u128, payload: &[u8]) -> Result<Verdict, Mismatch> {
        let (partition, found) = (self.partition, offset.0);
        if found != self.next {
            return Err(Mismatch::Offset { partition, expected: self.next, found });
        }
        let Some((base, batch)) = self.expected.range(..=found).next_back() else {
            return Ok(Verdict::Unknown);
        };
        let base = *base;
        let index = usize::try_from(found - base).unwrap_or(usize::MAX);
        let Some(&(line, hash)) = batch.lines.get(index) else { return Ok(Verdict::Unknown) };
        let expected = LineTag { producer: batch.producer, line };
        let is_last = index + 1 == batch.lines.len();

        let tag = LineTag::from_id(id);
        if tag != Some(expected) {
            return Err(Mismatch::Line { partition, offset: found, expected, found: tag });
        }
        if line_hash(payload) != hash {
            return Err(Mismatch::Bytes { partition, offset: found, line });
        }
        let producer = expected.producer;
        if let Some(&previous) = self.last_lines.get(&producer).filter(|previous| **previous >= line) {
            return Err(Mismatch::Order { partition, offset: found, producer, line, previous });
        }
        self.last_lines.insert(producer, line);
        self.next += 1;
        if is_last {
            self.expected.remove(&base);
        }
        Ok(Verdict::Verified)
    }

    /// Judges the end, once every expectation was handed over and the partition has no more to read. `count`: how many
    /// messages the broker says the partition holds.
    pub fn finish(&self, count: u64) -> Result<(), Mismatch> {
        let expected: u64 = self.expected.values().map(|batch| batch.lines.len() as u64).sum();
        if let Some((base, batch)) = self.expected.first_key_value() {
            let seen = self.next.saturating_sub(*base).min(batch.lines.len() as u64);
            let (offset, missing) = (base + seen, expected - seen);
            return Err(Mismatch::Missing { partition: self.partition, offset, missing });
        }
        if count != self.next {
            return Err(Mismatch::Head { partition: self.partition, head: count, verified: self.next });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: PartitionId = PartitionId(3);

    /// A message as a consumer sees it: offset, id, payload.
    type Received = (u64, u128, Vec<u8>);

    fn payload(line: u64) -> Vec<u8> {
        format!("line {line}\n").into_bytes()
    }

    fn sent(producer: u32, base: u64, numbers: std::ops::Range<u64>) -> SentBatch {
        let lines = numbers.map(|line| (line, line_hash(&payload(line)))).collect();
        SentBatch { partition: PARTITION, producer, base: Offset(base), lines }
    }

    fn received(offset: u64, producer: u32, line: u64) -> Received {
        (offset, LineTag { producer, line }.id(), payload(line))
    }

    /// Two producers, three batches, nine lines.
    fn scene() -> (Vec<SentBatch>, Vec<Received>) {
        let batches = vec![sent(1, 3, 10..13), sent(0, 0, 1..4), sent(0, 6, 20..23)];
        let mut messages: Vec<Received> = (0..3).map(|i| received(i, 0, 1 + i)).collect();
        messages.extend((0..3).map(|i| received(3 + i, 1, 10 + i)));
        messages.extend((0..3).map(|i| received(6 + i, 0, 20 + i)));
        (batches, messages)
    }

    fn verify(batches: Vec<SentBatch>, messages: &[Received], count: u64) -> Result<u64, Mismatch> {
        let mut verifier = PartitionVerifier::new(PARTITION);
        batches.into_iter().try_for_each(|batch| verifier.expect(batch))?;
        for (offset, id, payload) in messages {
            if verifier.check(Offset(*offset), *id, payload)? == Verdict::Unknown {
                return Err(Mismatch::Unsent { partition: PARTITION, offset: *offset });
            }
        }
        verifier.finish(count).map(|()| verifier.verified())
    }

    /// Spoils a good run and expects it to be noticed in exactly this way.
    #[track_caller]
    fn check_spoiled(spoil: impl FnOnce(&mut Vec<SentBatch>, &mut Vec<Received>), expected: &str) {
        let (mut batches, mut messages) = scene();
        spoil(&mut batches, &mut messages);
        let mismatch = verify(batches, &messages, 9).expect_err("the damage was not noticed");
        assert!(mismatch.to_string().contains(expected), "{mismatch}");
    }

    #[test]
    fn good_run_is_verified_whole() {
        let (batches, messages) = scene();
        assert_eq!(verify(batches, &messages, 9), Ok(9));
    }

    #[test]
    fn one_flipped_bit_is_noticed() {
        for index in 0..9 {
            check_spoiled(|_, messages| messages[index].2[0] ^= 1, "bytes of line");
        }
    }

    #[test]
    fn lost_line_is_noticed_wherever_it_was() {
        check_spoiled(|_, messages| drop(messages.remove(0)), "offset 1 came where 0 belongs");
        check_spoiled(|_, messages| drop(messages.remove(4)), "offset 5 came where 4 belongs");
        check_spoiled(
            |_, messages| drop(messages.pop()),
            "1 acknowledged lines did not come back, the first at offset 8",
        );
    }

    #[test]
    fn line_lost_with_its_offset_is_noticed() {
        check_spoiled(
            |_, messages| {
                messages.remove(4);
                messages[4..].iter_mut().for_each(|message| message.0 -= 1);
            },
            "LineTag { producer: 1, line: 11 } belongs here",
        );
    }

    #[test]
    fn repeated_or_exchanged_lines_are_noticed() {
        check_spoiled(|_, messages| messages.insert(1, messages[0].clone()), "offset 0 came where 1 belongs");
        check_spoiled(
            |_, messages| {
                messages.swap(0, 1);
                (messages[0].0, messages[1].0) = (0, 1);
            },
            "line: 1 } belongs here",
        );
    }

    #[test]
    fn swapped_contents_under_right_ids_are_noticed() {
        check_spoiled(
            |_, messages| {
                let (one, other) = (messages[1].2.clone(), messages[2].2.clone());
                (messages[1].2, messages[2].2) = (other, one);
            },
            "bytes of line 2",
        );
    }

    #[test]
    fn message_that_nobody_sent_is_noticed() {
        check_spoiled(|_, messages| messages.push(received(9, 0, 99)), "a message that nobody sent");
        let (batches, messages) = scene();
        let mismatch = verify(batches, &messages, 10).unwrap_err();
        assert_eq!(mismatch, Mismatch::Head { partition: PARTITION, head: 10, verified: 9 });
    }

    #[test]
    fn batches_in_the_wrong_order_are_noticed() {
        // Both sides agree on the offsets, but a producer's earlier lines stand behind its later ones.
        let batches = vec![sent(0, 0, 20..23), sent(0, 3, 1..4)];
        let mut messages: Vec<Received> = (0..3).map(|i| received(i, 0, 20 + i)).collect();
        messages.extend((0..3).map(|i| received(3 + i, 0, 1 + i)));
        assert!(matches!(verify(batches, &messages, 6), Err(Mismatch::Order { line: 1, previous: 22, .. })));
    }

    #[test]
    fn offset_that_is_acknowledged_twice_is_noticed() {
        check_spoiled(|batches, _| batches.push(sent(1, 8, 40..42)), "offset 8 was acknowledged twice");
        check_spoiled(|batches, _| batches.push(sent(1, 2, 40..41)), "acknowledged twice");
    }

    #[test]
    fn message_may_come_before_its_expectation() {
        let mut verifier = PartitionVerifier::new(PARTITION);
        let (offset, id, bytes) = received(0, 0, 1);
        assert_eq!(verifier.check(Offset(offset), id, &bytes), Ok(Verdict::Unknown));
        verifier.expect(sent(0, 0, 1..2)).unwrap();
        assert_eq!(verifier.check(Offset(offset), id, &bytes), Ok(Verdict::Verified));
        assert_eq!((verifier.verified(), verifier.pending()), (1, 0));
    }

    #[test]
    fn tags_survive_the_way_through_an_id() {
        let tag = LineTag { producer: u32::MAX, line: u64::MAX };
        assert_eq!(LineTag::from_id(tag.id()), Some(tag));
        assert_ne!(LineTag { producer: 0, line: 0 }.id(), 0);
        assert_eq!(LineTag::from_id(5), None);
        assert_eq!(LineTag::from_id(u128::MAX), None);
    }
}
