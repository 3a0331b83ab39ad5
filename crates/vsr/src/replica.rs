//! One replica of one lane.

use std::collections::VecDeque;

use laneway_wire::{LaneId, Micros, Op};

use crate::entry::{Durability, Entry, EntryBody, View};
use crate::invariants;

/// Entries that may be proposed and not yet applied. A later view change has to describe each of them.
pub const PIPELINE_OPS_MAX: usize = 1024;

/// Bytes of entries that may be proposed and not yet applied. One larger entry is taken when nothing else is in flight.
pub const PIPELINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why a proposal was not taken. Nothing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Too much is in flight.
    #[error("lane {lane} has {ops} entries and {bytes} bytes in flight; retry when some have committed")]
    Full {
        /// The lane.
        lane: LaneId,
        /// Entries in flight.
        ops: usize,
        /// Their bytes.
        bytes: usize,
    },
}

/// What the core asks of its driver, in the order in which it must start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append the entry to the log. Answered by [`Replica::handle_written`], and by [`Replica::handle_synced`] once a
    /// flush that started after the write has finished.
    Write(Entry),
    /// The entry is committed: apply it, then call [`Replica::handle_applied`].
    Apply(Entry),
}

/// How far a replica has come. Every field is the highest op for which the statement holds; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// Proposed here.
    pub op_head: Op,
    /// The write has finished: survives a killed process.
    pub written: Op,
    /// A flush after the write has finished: survives a power loss.
    pub synced: Op,
    /// Known to be committed.
    pub commit_max: Op,
    /// Applied here.
    pub commit_min: Op,
}

/// One replica of one lane. Lives on the shard that owns the lane, created at recovery with the op that was applied
/// last, and ends with the shard.
#[derive(Debug)]
pub struct Replica {
    lane: LaneId,
    view: View,
    frontier: Frontier,
    timestamp_last: Micros,
    /// Entries above `commit_min`, oldest first.
    pipeline: VecDeque<Entry>,
    pipeline_bytes: usize,
    effects: VecDeque<Effect>,
}

impl Replica {
    /// A replica that has applied everything through `applied`, whose newest entry carries `timestamp_last`.
    pub fn new(lane: LaneId, applied: Op, timestamp_last: Micros) -> Self {
        let frontier = Frontier {
            op_head: applied,
            written: applied,
            synced: applied,
            commit_max: applied,
            commit_min: applied,
        };
        Self {
            lane,
            view: View::default(),
            frontier,
            timestamp_last,
            pipeline: VecDeque::new(),
            pipeline_bytes: 0,
            effects: VecDeque::new(),
        }
    }

    /// The lane of this replica.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// The current view.
    pub fn view(&self) -> View {
        self.view
    }

    /// How far this replica has come.
    pub fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Entries that are proposed and not yet applied.
    pub fn in_flight(&self) -> usize {
        self.pipeline.len()
    }

    /// The op and timestamp that the next proposal at `now` gets. Lets the caller stamp them into the body first.
    pub fn next(&self, now: Micros) -> (Op, Micros) {
        (self.frontier.op_head.next(), now.max(self.timestamp_last))
    }

    /// Whether a body of `bytes` would be taken now.
    pub fn admit(&self, bytes: usize) -> Result<(), ProposeError> {
        let full_ops = self.pipeline.len() >= PIPELINE_OPS_MAX;
        let full_bytes = !self.pipeline.is_empty() && self.pipeline_bytes + bytes > PIPELINE_BYTES_MAX;
        if full_ops || full_bytes {
            return Err(ProposeError::Full {
                lane: self.lane,
                ops: self.pipeline.len(),
                bytes: self.pipeline_bytes,
            });
        }
        Ok(())
    }

    /// Orders a new entry. Emits [`Effect::Write`].
    pub fn propose(
        &mut self,
        now: Micros,
        durability: Durability,
        body: EntryBody,
    ) -> Result<Op, ProposeError> {
        self.admit(body.bytes())?;
        let (op, timestamp) = self.next(now);
        let entry = Entry { lane: self.lane, op, view: self.view, timestamp, durability, body };
        self.frontier.op_head = op;
        self.timestamp_last = timestamp;
        self.pipeline_bytes += entry.body.bytes();
        self.pipeline.push_back(entry.clone());
        self.effects.push_back(Effect::Write(entry));
        self.check();
        Ok(op)
    }

    /// Every write through `op` has finished.
    pub fn handle_written(&mut self, op: Op) {
        assert!(op <= self.frontier.op_head, "lane {}: op {op} written but never proposed", self.lane);
        self.frontier.written = self.frontier.written.max(op);
        self.commit();
    }

    /// A flush that covers every write through `op` has finished.
    pub fn handle_synced(&mut self, op: Op) {
        assert!(op <= self.frontier.written, "lane {}: op {op} flushed before it was written", self.lane);
        self.frontier.synced = self.frontier.synced.max(op);
        self.commit();
    }

    /// The entry at `op`, the oldest one in flight, has been applied.
    pub fn handle_applied(&mut self, op: Op) {
        assert!(op == self.frontier.commit_min.next(), "lane {}: op {op} applied out of order", self.lane);
        assert!(op <= self.frontier.commit_max, "lane {}: op {op} applied before its commit", self.lane);
        let entry = self.pipeline.pop_front().expect("an entry stays in flight until it is applied");
        assert!(entry.op == op, "lane {}: the pipeline lost an entry before op {op}", self.lane);
        self.pipeline_bytes -= entry.body.bytes();
        self.frontier.commit_min = op;
        self.check();
    }

    /// The next thing to do, if any.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Advances the commit point over every entry that is as durable as its class asks. Commits are in order, so an
    /// entry that waits for a flush holds back what comes after it.
    fn commit(&mut self) {
        loop {
            let op = self.frontier.commit_max.next();
            let index = (op.0 - self.frontier.commit_min.0 - 1) as usize;
            let Some(entry) = self.pipeline.get(index) else { break };
            assert!(entry.op == op, "lane {}: the pipeline has a gap before op {op}", self.lane);
            if op > self.durable(entry.durability) {
                break;
            }
            self.frontier.commit_max = op;
            self.effects.push_back(Effect::Apply(entry.clone()));
        }
        self.check();
    }

    fn durable(&self, durability: Durability) -> Op {
        match durability {
            Durability::Replicated => self.frontier.written,
            Durability::Persisted => self.frontier.synced,
        }
    }

    fn check(&self) {
        assert!(invariants::frontiers_ordered(&self.frontier), "lane {}: {:?}", self.lane, self.frontier);
        assert!(
            self.pipeline.len() as u64 == self.frontier.op_head.0 - self.frontier.commit_min.0,
            "lane {}: the pipeline holds exactly what is not applied",
            self.lane
        );
    }
}

#[cfg(test)]
mod tests;
