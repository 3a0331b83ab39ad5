//! Stored offsets of one partition's consumers, and the fences of reads that commit.
//!
//! A key has up to two values: the committed one, which is what replicas agree on, and a raised one, which a
//! committing read set in memory when its reply left and whose op is on its way. Whoever reads sees the higher, so a
//! consumer's next read starts behind the last one.
//!
//! Source: reads specification, section 3.

use std::collections::BTreeMap;

use laneway_reads::{Nanos, Start, StartError, Strategy};
use laneway_wire::{Offset, Op, Status};

use super::codec::{DecodeError, Put, Reader};
use super::consumer::{ConsumerKey, ConsumerKind};
use super::lane_op::StoreMode;

/// Offset keys of one kind in one partition unless configured otherwise.
pub const CONSUMER_OFFSETS_MAX: usize = 4096;

/// Whether a read that committed needs an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCommit {
    /// The committed offset covers it already.
    Covered,
    /// Propose a store of this offset, also when memory covers it: a lost op heals by the next.
    Submit,
}

/// What a `Next` read was admitted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceToken {
    /// The start that it resolved.
    pub start: Offset,
    /// When: at the owner for a deferred poll, at the start of the whole request for a fetch.
    pub at: Nanos,
}

/// The stored offsets of one partition.
#[derive(Clone, Debug)]
pub struct StoredOffsets {
    keys_max: usize,
    entries: BTreeMap<ConsumerKey, Entry>,
    keys: [usize; ConsumerKind::ALL.len()],
    /// The newest delete of any key. A key without a stamp of its own counts it, because a delete forgets the stamp.
    last_delete: Option<Nanos>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    committed: Option<Offset>,
    raised: Option<Raised>,
    /// The newest store by a client. Reads never stamp.
    stamp: Option<Nanos>,
    staged_stores: u32,
    staged_deletes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Raised {
    offset: Offset,
    /// The op that carries it. A store or delete behind it ends it.
    op: Op,
}

impl Entry {
    fn effective(&self) -> Option<Offset> {
        self.committed.max(self.raised.map(|raised| raised.offset))
    }

    fn is_vacant(&self) -> bool {
        self.committed.is_none()
            && self.raised.is_none()
            && self.staged_stores == 0
            && self.staged_deletes == 0
    }

    /// A store or delete at `op` ends what was raised before it.
    fn settle(&mut self, op: Op) {
        if self.raised.is_some_and(|raised| raised.op < op) {
            self.raised = None;
        }
    }
}

impl StoredOffsets {
    /// No offset is stored. `keys_max` bounds the keys of each kind.
    pub fn new(keys_max: usize) -> Self {
        Self { keys_max, entries: BTreeMap::new(), keys: [0; 3], last_delete: None }
    }

    /// The stored offset as this consumer sees it.
    pub fn stored(&self, consumer: &ConsumerKey) -> Option<Offset> {
        self.entries.get(consumer).and_then(Entry::effective)
    }

    /// The stored offset that is committed.
    pub fn committed(&self, consumer: &ConsumerKey) -> Option<Offset> {
        self.entries.get(consumer).and_then(|entry| entry.committed)
    }

    /// Keys of a kind.
    pub fn keys(&self, kind: ConsumerKind) -> usize {
        self.keys[kind_index(kind)]
    }

    /// Checks an explicit store: 4100 above the head (a partition without a head has nothing to store), 3024 for a key
    /// too many.
    pub fn admit_store(
        &self,
        consumer: &ConsumerKey,
        offset: Offset,
        head: Option<Offset>,
    ) -> Result<(), Status> {
        if consumer.kind.is_bound_by_head() && head.is_none_or(|head| offset > head) {
            return Err(Status::InvalidOffset);
        }
        self.admit_key(consumer)
    }

    /// Checks whether the key may be there: 3024 for a key too many.
    pub fn admit_key(&self, consumer: &ConsumerKey) -> Result<(), Status> {
        let full = self.keys(consumer.kind) >= self.keys_max;
        if full && !self.entries.contains_key(consumer) {
            return Err(Status::TooManyConsumerOffsets);
        }
        Ok(())
    }

    /// Checks a delete: 3021 without a stored offset. Even that refusal stamps: a read that was admitted before it must
    /// not store after it.
    pub fn admit_delete(&mut self, consumer: &ConsumerKey, now: Nanos) -> Result<(), Status> {
        let there = self
            .entries
            .get(consumer)
            .is_some_and(|entry| entry.effective().is_some() || entry.staged_stores > 0);
        if there {
            return Ok(());
        }
        self.stamp_delete(now);
        Err(Status::ConsumerOffsetNotFound)
    }

    /// An explicit store was proposed.
    pub fn stage_store(&mut self, consumer: &ConsumerKey) {
        self.entry(consumer).staged_stores += 1;
    }

    /// A delete was proposed.
    pub fn stage_delete(&mut self, consumer: &ConsumerKey) {
        self.entry(consumer).staged_deletes += 1;
    }

    /// The op of a staged store was applied or dropped.
    pub fn unstage_store(&mut self, consumer: &ConsumerKey) {
        if let Some(entry) = self.entries.get_mut(consumer) {
            entry.staged_stores = entry.staged_stores.saturating_sub(1);
        }
        self.remove_vacant(consumer);
    }

    /// The op of a staged delete was applied or dropped.
    pub fn unstage_delete(&mut self, consumer: &ConsumerKey) {
        if let Some(entry) = self.entries.get_mut(consumer) {
            entry.staged_deletes = entry.staged_deletes.saturating_sub(1);
        }
        self.remove_vacant(consumer);
    }

    /// A read returned messages through `last` and commits them: raises the offset in memory at once. `op` is the op
    /// that the store will get if it is proposed now. 3024 for a key too many: then nothing is returned either.
    pub fn raise(&mut self, consumer: &ConsumerKey, last: Offset, op: Op) -> Result<AutoCommit, Status> {
        self.admit_key(consumer)?;
        if self.committed(consumer).is_some_and(|committed| committed >= last) {
            return Ok(AutoCommit::Covered);
        }
        let entry = self.entry(consumer);
        // With a client's store on its way, what counts is what comes behind that store.
        let keep = entry.staged_stores == 0 && entry.staged_deletes == 0;
        let before = entry.raised.filter(|raised| keep && raised.offset >= last);
        entry.raised = Some(Raised { offset: before.map_or(last, |raised| raised.offset), op });
        Ok(AutoCommit::Submit)
    }

    /// Applies a store.
    pub fn apply_store(
        &mut self,
        op: Op,
        consumer: &ConsumerKey,
        offset: Offset,
        mode: StoreMode,
        now: Nanos,
    ) {
        let entry = self.entry(consumer);
        match mode {
            StoreMode::Explicit => {
                entry.committed = Some(offset);
                entry.stamp = Some(now);
                entry.settle(op);
            }
            StoreMode::Auto => {
                entry.committed = entry.committed.max(Some(offset));
                let committed = entry.committed;
                let covers = |raised: Raised| raised.op <= op && Some(raised.offset) <= committed;
                if entry.raised.is_some_and(covers) {
                    entry.raised = None;
                }
            }
        }
    }

    /// Applies a delete: [`Status::Ok`], or 3021 when nothing is stored.
    pub fn apply_delete(&mut self, op: Op, consumer: &ConsumerKey, now: Nanos) -> Status {
        self.stamp_delete(now);
        let Some(entry) = self.entries.get_mut(consumer) else {
            return Status::ConsumerOffsetNotFound;
        };
        let stored = entry.committed.take();
        entry.stamp = None;
        entry.settle(op);
        self.remove_vacant(consumer);
        match stored {
            Some(_) => Status::Ok,
            None => Status::ConsumerOffsetNotFound,
        }
    }

    /// Where a `Next` read of this consumer starts.
    pub fn next_start(&self, consumer: &ConsumerKey) -> Result<Offset, StartError> {
        match Strategy::Next.resolve(0, None, self.stored(consumer))? {
            Start::Offset(offset) => Ok(offset),
            Start::Timestamp(_) => unreachable!("next resolves to an offset"),
        }
    }

    /// Whether a `Next` read may still answer. A plain one only asks for the start it resolved. A committing one is
    /// refused, too, when a client stored or deleted this offset since, even the same value, or is about to: the
    /// client's word must win.
    pub fn fence_holds(&self, consumer: &ConsumerKey, token: FenceToken, committing: bool) -> bool {
        if self.next_start(consumer) != Ok(token.start) {
            return false;
        }
        if !committing {
            return true;
        }
        let entry = self.entries.get(consumer);
        let staged = entry.is_some_and(|entry| entry.staged_stores > 0 || entry.staged_deletes > 0);
        let stamp = entry.and_then(|entry| entry.stamp).or(self.last_delete);
        !staged && stamp.is_none_or(|stamp| stamp < token.at)
    }

    /// Forgets what was proposed and never committed.
    pub fn discard_staged(&mut self) {
        for entry in self.entries.values_mut() {
            entry.raised = None;
            entry.staged_stores = 0;
            entry.staged_deletes = 0;
        }
        self.entries.retain(|_, entry| !entry.is_vacant());
        self.recount();
    }

    /// The committed offsets in the order of their keys.
    pub fn iter_committed(&self) -> impl Iterator<Item = (&ConsumerKey, Offset)> {
        self.entries.iter().filter_map(|(key, entry)| Some((key, entry.committed?)))
    }

    /// The lowest offset that a consumer or a consumer group has committed: what lies above it is not read yet. External
    /// groups keep nothing. Source: resources specification, section 8.2.
    pub fn barrier(&self) -> Option<Offset> {
        self.iter_committed()
            .filter(|(consumer, _)| consumer.kind != ConsumerKind::External)
            .map(|(_, offset)| offset)
            .min()
    }

    /// Appends the committed offsets: `count u32`, then `key, offset u64` each.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_count(self.iter_committed().count());
        for (consumer, offset) in self.iter_committed() {
            consumer.encode(out);
            out.put_u64(offset.0);
        }
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>, keys_max: usize) -> Result<Self, DecodeError> {
        let mut offsets = Self::new(keys_max);
        for _ in 0..reader.count(12)? {
            let consumer = ConsumerKey::decode(reader)?;
            let committed = Some(Offset(reader.u64()?));
            let twice = offsets.entries.insert(consumer, Entry { committed, ..Entry::default() }).is_some();
            if twice {
                return Err(reader.range("consumer key"));
            }
        }
        offsets.recount();
        Ok(offsets)
    }

    pub(crate) fn counts_are_exact(&self) -> bool {
        let mut copy = self.clone();
        copy.recount();
        copy.keys == self.keys && self.entries.values().all(|entry| !entry.is_vacant())
    }

    fn entry(&mut self, consumer: &ConsumerKey) -> &mut Entry {
        if !self.entries.contains_key(consumer) {
            self.keys[kind_index(consumer.kind)] += 1;
            self.entries.insert(consumer.clone(), Entry::default());
        }
        self.entries.get_mut(consumer).expect("it was just inserted")
    }

    fn remove_vacant(&mut self, consumer: &ConsumerKey) {
        if self.entries.get(consumer).is_some_and(Entry::is_vacant) {
            self.entries.remove(consumer);
            self.keys[kind_index(consumer.kind)] -= 1;
        }
    }

    fn stamp_delete(&mut self, now: Nanos) {
        self.last_delete = self.last_delete.max(Some(now));
    }

    fn recount(&mut self) {
        self.keys = [0; 3];
        for consumer in self.entries.keys() {
            self.keys[kind_index(consumer.kind)] += 1;
        }
    }
}

fn kind_index(kind: ConsumerKind) -> usize {
    kind as usize - 1
}

#[cfg(test)]
#[path = "offsets_tests.rs"]
mod tests;
