//! One replica of one lane.

use std::collections::VecDeque;

use laneway_wire::{LaneId, Micros, Nanos, Op};

use crate::config::{Config, WINDOW_BYTES_MAX};
use crate::entry::{Durability, Entry, EntryBody, View};
use crate::event::{Effect, Event, LogNumber};
use crate::header::{ClusterId, Draft, Header, Identity};
use crate::invariants;
use crate::vote::CheckpointId;

mod restore;

pub use restore::Restored;

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
    /// Another replica orders the entries of this lane.
    #[error("lane {lane} is led by another replica")]
    NotPrimary {
        /// The lane.
        lane: LaneId,
    },
    /// No view has started, or what the view inherited is not applied yet.
    #[error("lane {lane} does not take entries yet")]
    NotReady {
        /// The lane.
        lane: LaneId,
    },
}

/// How far a replica has come. Every field is the highest op for which the statement holds; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// In the log here, or on its way to it.
    pub op_head: Op,
    /// The write has finished, without a gap below: survives a killed process.
    pub written: Op,
    /// A flush after the write has finished, without a gap below: survives a power loss.
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
    config: Config,
    view: View,
    frontier: Frontier,
    timestamp_last: Micros,
    head: Identity,
    log_number: LogNumber,
    /// Entries above `commit_min`, oldest first.
    pipeline: VecDeque<Entry>,
    pipeline_bytes: usize,
    effects: VecDeque<Effect>,
}

impl Replica {
    /// The only member of a lane. It has applied everything through `applied`, whose entry carries `timestamp_last`.
    pub fn alone(config: Config, applied: CheckpointId, timestamp_last: Micros) -> Self {
        let frontier = Frontier {
            op_head: applied.op,
            written: applied.op,
            synced: applied.op,
            commit_max: applied.op,
            commit_min: applied.op,
        };
        Self {
            config,
            view: View::default(),
            frontier,
            timestamp_last,
            head: applied.identity,
            log_number: LogNumber(0),
            pipeline: VecDeque::new(),
            pipeline_bytes: 0,
            effects: VecDeque::new(),
        }
    }

    /// The only member of a lane whose log does not keep names: the chain of names starts anew at every boot.
    pub fn alone_in(lane: LaneId, applied: Op, timestamp_last: Micros) -> Self {
        let config = Config::alone(ClusterId::default(), lane);
        let identity = Identity::root(config.cluster, lane);
        Replica::alone(config, CheckpointId { op: applied, identity }, timestamp_last)
    }

    /// The lane of this replica.
    pub fn lane(&self) -> LaneId {
        self.config.lane
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

    /// The op and timestamp that the next proposal at `wall` gets. Lets the caller stamp them into the body first.
    /// Timestamps strictly increase. Source: V61.
    pub fn next(&self, wall: Micros) -> (Op, Micros) {
        (self.frontier.op_head.next(), wall.max(Micros(self.timestamp_last.0 + 1)))
    }

    /// Whether a body of `bytes` would be taken now.
    pub fn admit(&self, bytes: usize) -> Result<(), ProposeError> {
        let full_ops = self.pipeline.len() >= self.config.window_ops();
        let full_bytes = !self.pipeline.is_empty() && self.pipeline_bytes + bytes > WINDOW_BYTES_MAX;
        if full_ops || full_bytes {
            return Err(ProposeError::Full {
                lane: self.config.lane,
                ops: self.pipeline.len(),
                bytes: self.pipeline_bytes,
            });
        }
        Ok(())
    }

    /// Orders a new entry. Emits [`Effect::Write`].
    pub fn propose(
        &mut self,
        wall: Micros,
        durability: Durability,
        body: EntryBody,
    ) -> Result<Op, ProposeError> {
        self.admit(body.bytes())?;
        let (op, timestamp) = self.next(wall);
        let draft = Draft {
            op,
            parent: self.head,
            view: self.view,
            commit: self.frontier.commit_min,
            timestamp,
            epoch: self.config.roster.epoch(),
            primary: self.config.replica,
            durability,
        };
        let header = Header::seal(self.config.cluster, self.config.lane, draft, &body);
        let entry = Entry { header, body };
        self.head = header.identity;
        self.frontier.op_head = op;
        self.timestamp_last = timestamp;
        self.pipeline_bytes += entry.body.bytes();
        self.pipeline.push_back(entry.clone());
        self.log_number.0 += 1;
        self.effects.push_back(Effect::Write { number: self.log_number, entry });
        self.check();
        Ok(op)
    }

    /// Something happened.
    pub fn handle(&mut self, _now: Nanos, event: Event) {
        match event {
            Event::Written(number) => self.handle_written(self.op_of(number)),
            Event::Synced(number) => self.handle_synced(self.op_of(number)),
            Event::Applied(op) => self.handle_applied(op),
            _ => {}
        }
    }

    /// When [`Event::Timeout`] is due; [`Nanos::NEVER`] when no timer runs.
    pub fn poll_timeout(&self) -> Nanos {
        Nanos::NEVER
    }

    /// Every write through `op` has finished.
    pub fn handle_written(&mut self, op: Op) {
        assert!(op <= self.frontier.op_head, "lane {}: op {op} written but never proposed", self.config.lane);
        self.frontier.written = self.frontier.written.max(op);
        self.commit();
    }

    /// A flush that covers every write through `op` has finished.
    pub fn handle_synced(&mut self, op: Op) {
        assert!(
            op <= self.frontier.written,
            "lane {}: op {op} flushed before it was written",
            self.config.lane
        );
        self.frontier.synced = self.frontier.synced.max(op);
        self.commit();
    }

    /// The entry at `op`, the oldest one in flight, has been applied.
    pub fn handle_applied(&mut self, op: Op) {
        let lane = self.config.lane;
        assert!(op == self.frontier.commit_min.next(), "lane {lane}: op {op} applied out of order");
        assert!(op <= self.frontier.commit_max, "lane {lane}: op {op} applied before its commit");
        let entry = self.pipeline.pop_front().expect("an entry stays in flight until it is applied");
        assert!(entry.op() == op, "lane {lane}: the pipeline lost an entry before op {op}");
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
            assert!(entry.op() == op, "lane {}: the pipeline has a gap before op {op}", self.config.lane);
            if op > self.durable(entry.header.durability) {
                break;
            }
            self.frontier.commit_max = op;
            self.effects.push_back(Effect::Apply(entry.clone()));
        }
        self.check();
    }

    fn op_of(&self, number: LogNumber) -> Op {
        Op(self.frontier.op_head.0 - (self.log_number.0 - number.0))
    }

    fn durable(&self, durability: Durability) -> Op {
        match durability {
            Durability::Replicated => self.frontier.written,
            Durability::Persisted => self.frontier.synced,
        }
    }

    fn check(&self) {
        let lane = self.config.lane;
        assert!(invariants::frontiers_ordered(&self.frontier), "lane {lane}: {:?}", self.frontier);
        assert!(
            self.pipeline.len() as u64 == self.frontier.op_head.0 - self.frontier.commit_min.0,
            "lane {lane}: the pipeline holds exactly what is not applied"
        );
    }
}

#[cfg(test)]
mod tests;
