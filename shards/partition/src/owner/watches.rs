//! Grouped fetches of this node that follow partitions of this shard. Each registers once for all of its partitions
//! here; a commit tells the fetches of its partition the new head, once for everything that one flush committed. A
//! partition that nobody follows costs a lookup.

use std::collections::{BTreeMap, BTreeSet};

use laneway_reads::Strategy;
use laneway_wire::{LaneId, Offset, PartitionKey, Status};

use super::{Owner, Todo};
use crate::core::ConsumerKey;
use crate::message::{ShardId, WatchId, WatchTarget, WatchedState, WatchedTarget};

/// News of a partition for a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// The shard of the fetch.
    pub to: ShardId,
    /// The watch.
    pub watch: WatchId,
    /// The partition.
    pub key: PartitionKey,
    /// Its new head, or why it cannot be read any more.
    pub head: Result<Offset, Status>,
}

/// Who follows which partition.
#[derive(Debug)]
pub(super) struct Watches {
    max: usize,
    by_partition: BTreeMap<PartitionKey, BTreeSet<(ShardId, WatchId)>>,
    by_watch: BTreeMap<(ShardId, WatchId), Vec<PartitionKey>>,
}

impl Watches {
    /// At most `max` fetches.
    pub(super) fn new(max: usize) -> Self {
        Self { max, by_partition: BTreeMap::new(), by_watch: BTreeMap::new() }
    }

    fn add(&mut self, watcher: (ShardId, WatchId), key: PartitionKey) {
        self.by_partition.entry(key).or_default().insert(watcher);
        self.by_watch.entry(watcher).or_default().push(key);
    }

    fn remove(&mut self, watcher: (ShardId, WatchId)) {
        for key in self.by_watch.remove(&watcher).unwrap_or_default() {
            if let Some(watchers) = self.by_partition.get_mut(&key) {
                watchers.remove(&watcher);
                if watchers.is_empty() {
                    self.by_partition.remove(&key);
                }
            }
        }
    }

    fn of(&self, key: PartitionKey) -> impl Iterator<Item = (ShardId, WatchId)> + '_ {
        self.by_partition.get(&key).into_iter().flatten().copied()
    }
}

impl Owner {
    /// A fetch begins to follow partitions. Says where each of them stands now: a commit after this answer is pushed.
    pub fn handle_watch(
        &mut self,
        from: ShardId,
        watch: WatchId,
        consumer: &ConsumerKey,
        targets: &[WatchTarget],
    ) -> Vec<WatchedTarget> {
        let full = self.watches.by_watch.len() >= self.watches.max;
        let refusal = match (self.stopping, full) {
            (true, _) => Some(Status::TransientNotAccepted),
            (_, true) => Some(Status::DeferredPollCapacityExceeded),
            _ => None,
        };
        let mut watched = Vec::with_capacity(targets.len());
        for target in targets {
            let state = match refusal {
                Some(status) => Err(status),
                None => self.stand(consumer, target),
            };
            if state.is_ok() {
                self.watches.add((from, watch), target.key);
            }
            watched.push(WatchedTarget { key: target.key, state });
        }
        watched
    }

    /// A fetch stops following.
    pub fn handle_unwatch(&mut self, from: ShardId, watch: WatchId) {
        self.watches.remove((from, watch));
    }

    fn stand(&self, consumer: &ConsumerKey, target: &WatchTarget) -> Result<WatchedState, Status> {
        let partition = self.lanes.get(&target.lane).and_then(|owned| owned.state.get(target.key));
        let Some(partition) = partition else { return Err(self.missing(target.lane, target.key)) };
        let start = match target.strategy {
            Strategy::Offset(offset) => offset,
            _ => match partition.stored_offset(consumer) {
                Some(stored) => stored.next().ok_or(Status::InvalidOffset)?,
                None => Offset(0),
            },
        };
        Ok(WatchedState { start, head: partition.head() })
    }

    /// Tells who follows a partition its new head.
    pub(super) fn push_head(&mut self, lane: LaneId, key: PartitionKey) {
        if !self.watches.by_partition.contains_key(&key) {
            return;
        }
        let head = self.lanes.get(&lane).and_then(|owned| owned.state.get(key)?.head());
        if let Some(head) = head {
            self.push(key, Ok(head));
        }
    }

    /// Ends what follows a partition that is gone.
    pub(super) fn end_watches_of(&mut self, key: PartitionKey, status: Status) {
        self.push(key, Err(status));
        self.watches.by_partition.remove(&key);
    }

    /// Ends everything, for a stop.
    pub(super) fn end_watches(&mut self, status: Status) {
        let keys: Vec<PartitionKey> = self.watches.by_partition.keys().copied().collect();
        for key in keys {
            self.end_watches_of(key, status);
        }
    }

    fn push(&mut self, key: PartitionKey, head: Result<Offset, Status>) {
        let pushes: Vec<Push> =
            self.watches.of(key).map(|(to, watch)| Push { to, watch, key, head }).collect();
        self.todo.extend(pushes.into_iter().map(Todo::Push));
    }
}
