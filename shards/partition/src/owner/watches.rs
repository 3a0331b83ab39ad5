//! Grouped fetches of this node that follow partitions of this shard. Each registers once for all of its partitions
//! here; a commit tells the fetches of its partition the new head, once for everything that one flush committed. A
//! partition that nobody follows costs a lookup.

use std::collections::{BTreeMap, BTreeSet};

use laneway_reads::{SessionKey, Strategy, WaiterLimits};
use laneway_wire::{LaneId, Offset, PartitionKey, Status, UserId};

use super::{Owner, Todo};
use crate::core::ConsumerKey;
use crate::message::{Access, ShardId, WatchId, WatchTarget, WatchedState, WatchedTarget};

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
    limits: WaiterLimits,
    by_partition: BTreeMap<PartitionKey, BTreeSet<(ShardId, WatchId)>>,
    by_watch: BTreeMap<(ShardId, WatchId), Watch>,
    by_session: BTreeMap<SessionKey, usize>,
    by_user: BTreeMap<UserId, usize>,
}

#[derive(Debug)]
struct Watch {
    session: SessionKey,
    user: UserId,
    keys: Vec<PartitionKey>,
}

impl Watches {
    /// At most as many fetches as polls may be parked, of all sessions and of one.
    pub(super) fn new(limits: WaiterLimits) -> Self {
        Self {
            limits,
            by_partition: BTreeMap::new(),
            by_watch: BTreeMap::new(),
            by_session: BTreeMap::new(),
            by_user: BTreeMap::new(),
        }
    }

    fn is_full(&self, access: &Access) -> bool {
        let of_session = self.by_session.get(&access.session).copied().unwrap_or(0);
        let of_user = self.by_user.get(&access.user).copied().unwrap_or(0);
        self.by_watch.len() >= self.limits.shard_max
            || of_user >= self.limits.user_max
            || of_session >= self.limits.session_max
    }

    fn add(&mut self, watcher: (ShardId, WatchId), access: &Access, keys: Vec<PartitionKey>) {
        let (session, user) = (access.session, access.user);
        for key in &keys {
            self.by_partition.entry(*key).or_default().insert(watcher);
        }
        let replaced = self.by_watch.insert(watcher, Watch { session, user, keys });
        assert!(replaced.is_none(), "a fetch asks each owner once");
        *self.by_session.entry(session).or_default() += 1;
        *self.by_user.entry(user).or_default() += 1;
    }

    fn remove(&mut self, watcher: (ShardId, WatchId)) {
        let Some(watch) = self.by_watch.remove(&watcher) else { return };
        uncount(&mut self.by_session, watch.session);
        uncount(&mut self.by_user, watch.user);
        for key in watch.keys {
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

fn uncount<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

impl Owner {
    /// A fetch begins to follow partitions. Says where each of them stands now: a commit after this answer is pushed.
    pub fn handle_watch(
        &mut self,
        from: ShardId,
        watch: WatchId,
        waits: Option<Access>,
        consumer: &ConsumerKey,
        targets: &[WatchTarget],
    ) -> Vec<WatchedTarget> {
        let full = waits.is_some_and(|access| self.watches.is_full(&access));
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
            watched.push(WatchedTarget { key: target.key, state });
        }
        let keys: Vec<PartitionKey> =
            watched.iter().filter(|target| target.state.is_ok()).map(|target| target.key).collect();
        if let Some(access) = waits
            && !keys.is_empty()
        {
            self.watches.add((from, watch), &access, keys);
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
