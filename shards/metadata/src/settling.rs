//! Ops that are applied and wait for the shards that own their partitions, so that a client that reads its answer
//! finds the partition open, or gone.

use std::collections::{BTreeMap, BTreeSet};

use laneway_metadata::{Effect, PartitionPlace};
use laneway_wire::{LaneId, Op};

/// Number of a shard on its node.
pub type ShardPart = u16;

/// What one shard has to do for one op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardWork {
    /// Partitions to open.
    pub open: Vec<PartitionPlace>,
    /// Partitions to fence.
    pub fence: Vec<PartitionPlace>,
}

/// The shard that owns a lane on a node of `shards` shards.
pub fn owner(lane: LaneId, shards: u16) -> ShardPart {
    // The remainder is below a u16.
    (lane.0 % u32::from(shards)) as ShardPart
}

/// Splits what an op did to partitions over the shards that own them.
pub fn split(effects: &[Effect], shards: u16) -> BTreeMap<ShardPart, ShardWork> {
    let mut work: BTreeMap<ShardPart, ShardWork> = BTreeMap::new();
    for effect in effects {
        match effect {
            Effect::PartitionCreated(place) => {
                work.entry(owner(place.lane, shards)).or_default().open.push(*place);
            }
            Effect::PartitionDeleted(place) => {
                work.entry(owner(place.lane, shards)).or_default().fence.push(*place);
            }
            Effect::TopicChanged { .. }
            | Effect::SessionStarted { .. }
            | Effect::SessionEnded { .. }
            | Effect::GrantsChanged { .. } => {}
        }
    }
    work
}

/// Ops whose answers wait for shards. `T` is what the caller wants back.
#[derive(Debug)]
pub struct Settling<T> {
    ops: BTreeMap<Op, Pending<T>>,
}

#[derive(Debug)]
struct Pending<T> {
    shards: BTreeSet<ShardPart>,
    answers: Vec<T>,
}

impl<T> Default for Settling<T> {
    fn default() -> Self {
        Self { ops: BTreeMap::new() }
    }
}

impl<T> Settling<T> {
    /// Holds answers back until every one of `shards` is done. The set is not empty.
    pub fn hold(&mut self, op: Op, shards: BTreeSet<ShardPart>, answers: Vec<T>) {
        assert!(!shards.is_empty(), "an op that no shard works on needs no waiting");
        self.ops.insert(op, Pending { shards, answers });
    }

    /// Adds an answer for a resend of a request whose op is still settling. Gives it back when the op has settled.
    pub fn join(&mut self, op: Op, answer: T) -> Result<(), T> {
        match self.ops.get_mut(&op) {
            Some(pending) => {
                pending.answers.push(answer);
                Ok(())
            }
            None => Err(answer),
        }
    }

    /// A shard is done with an op. Gives the answers when it was the last one.
    pub fn done(&mut self, op: Op, shard: ShardPart) -> Vec<T> {
        let Some(pending) = self.ops.get_mut(&op) else { return Vec::new() };
        pending.shards.remove(&shard);
        match pending.shards.is_empty() {
            true => self.ops.remove(&op).map(|pending| pending.answers).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    /// Takes the answers of all ops; the ops go on waiting for their shards.
    pub fn take_answers(&mut self) -> impl Iterator<Item = T> + '_ {
        self.ops.values_mut().flat_map(|pending| std::mem::take(&mut pending.answers))
    }

    /// Number of ops that wait.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether no op waits.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_with_the_last_shard() {
        let mut settling = Settling::default();
        settling.hold(Op(4), BTreeSet::from([0, 2]), vec!["first"]);
        assert_eq!(settling.done(Op(4), 2), Vec::<&str>::new());
        assert_eq!(settling.join(Op(4), "resend"), Ok(()));
        assert_eq!(settling.done(Op(4), 2), Vec::<&str>::new());
        assert_eq!(settling.done(Op(4), 0), ["first", "resend"]);
        assert_eq!(settling.join(Op(4), "late"), Err("late"));
        assert!(settling.is_empty());
    }

    #[test]
    fn every_lane_has_one_owner_below_the_number_of_shards() {
        for shards in [1, 2, 3, 64] {
            for lane in [0, 1, 5, 70_000, u32::MAX] {
                assert!(owner(LaneId(lane), shards) < shards);
            }
        }
    }
}
