//! Removal of the oldest segments: by age, by size, and because a client asks.
//!
//! Where a log starts is an op of its lane like any other, so it survives a kill and is the same everywhere. A
//! partition is looked at when something happened to it that may let a segment go (one was sealed or expires, a
//! consumer caught up, the topic changed), at most once per interval. **No loop walks the partitions.**
//!
//! Source: resources specification, sections 8.2 and 8.3; cluster specification, section 3.9.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use laneway_metadata::Metadata;
use laneway_metadata::options::settings::{NEVER, UNLIMITED};
use laneway_reads::Nanos;
use laneway_vsr::{Durability, EntryBody};
use laneway_wire::{LaneId, Micros, Offset, Op, PartitionKey, Status, StreamId, TopicId};

use super::{DiskState, OwnedLane, Owner, Pending, Target, Todo};
use crate::core::{Admit, Identity, LaneOp, Partition, RetentionPolicy};

/// Bytes that the entry of a removal takes at most.
const ADVANCE_ENTRY_BYTES_MAX: usize = 128;

/// Partitions that one turn looks at, so that clients and commits get their turn in between.
const CLEANED_PER_TURN_MAX: usize = 64;

/// How the cleaner of a shard works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Least time between two passes, microseconds; none when nothing is removed by age or size.
    pub interval_us: Option<u64>,
    /// Bytes above the segment size that a size limit leaves every partition: the largest message.
    pub message_bytes_max: u64,
}

/// Which partitions the cleaner looks at, and when.
#[derive(Debug)]
pub(super) struct Retention {
    settings: RetentionSettings,
    /// Before this moment no pass begins.
    next_pass: Nanos,
    due: BTreeSet<(Nanos, LaneId, PartitionKey)>,
    at: BTreeMap<PartitionKey, (Nanos, LaneId)>,
    /// Partitions with a segment that would go if no consumer kept it.
    held: BTreeSet<PartitionKey>,
    /// Partitions whose topic was warned about.
    warned: BTreeSet<PartitionKey>,
}

impl Retention {
    pub(super) fn new(settings: RetentionSettings) -> Self {
        Self {
            settings,
            next_pass: Nanos(0),
            due: BTreeSet::new(),
            at: BTreeMap::new(),
            held: BTreeSet::new(),
            warned: BTreeSet::new(),
        }
    }

    /// Looks at the partition at `at`, or earlier if it was to be looked at earlier.
    pub(super) fn schedule(&mut self, at: Nanos, lane: LaneId, key: PartitionKey) {
        if self.settings.interval_us.is_none() {
            return;
        }
        let entry = self.at.entry(key).or_insert((at, lane));
        if entry.0 > at {
            self.due.remove(&(entry.0, lane, key));
            entry.0 = at;
        }
        self.due.insert((entry.0, lane, key));
    }

    pub(super) fn forget(&mut self, key: PartitionKey) {
        if let Some((at, lane)) = self.at.remove(&key) {
            self.due.remove(&(at, lane, key));
        }
        self.held.remove(&key);
        self.warned.remove(&key);
    }

    /// The earliest moment at which a pass has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.due.first().map(|(at, ..)| (*at).max(self.next_pass))
    }

    /// The partitions to look at now.
    fn take_due(&mut self, now: Nanos) -> Vec<(LaneId, PartitionKey)> {
        let Some(interval_us) = self.settings.interval_us else { return Vec::new() };
        if now < self.next_pass {
            return Vec::new();
        }
        let mut taken = Vec::new();
        while taken.len() < CLEANED_PER_TURN_MAX
            && let Some((at, lane, key)) = self.due.first().copied().filter(|(at, ..)| *at <= now)
        {
            self.due.remove(&(at, lane, key));
            self.at.remove(&key);
            taken.push((lane, key));
        }
        // The pass is over when nothing is left that was due.
        if !taken.is_empty() && self.due.first().is_none_or(|(at, ..)| *at > now) {
            self.next_pass = now.after_us(interval_us);
        }
        taken
    }

    /// What a topic's limits mean for one of its partitions, and whether its share of the size was too small and raised.
    fn policy(&self, metadata: &Metadata, partition: &Partition) -> Option<(RetentionPolicy, bool)> {
        let (_, topic) = metadata.topic(partition.stream().0, partition.topic().0).ok()?;
        let key = partition.key();
        if topic.partition(key.partition)?.incarnation != key.incarnation {
            return None;
        }
        let settings = topic.settings;
        let mut raised = false;
        let bytes_max = (settings.max_topic_size != UNLIMITED).then(|| {
            let share = settings.max_topic_size / u64::from(topic.partitions_count().max(1));
            let least = settings.segment_size.saturating_add(self.settings.message_bytes_max);
            raised = share < least;
            share.max(least)
        });
        let expiry_us = (settings.message_expiry != NEVER).then_some(settings.message_expiry);
        Some((RetentionPolicy { expiry_us, bytes_max }, raised))
    }
}

impl Owner {
    /// Looks at the partitions that are due.
    pub(super) fn clean(&mut self, now: Nanos, wall: Micros, metadata: &Metadata) {
        if self.stopping {
            return;
        }
        for (lane, key) in self.retention.take_due(now) {
            self.clean_partition(now, wall, metadata, lane, key);
        }
    }

    fn clean_partition(
        &mut self,
        now: Nanos,
        wall: Micros,
        metadata: &Metadata,
        lane: LaneId,
        key: PartitionKey,
    ) {
        let Some(owned) = self.lanes.get(&lane) else { return };
        let Some(partition) = owned.state.get(key) else { return };
        let Some((policy, raised)) = self.retention.policy(metadata, partition) else { return };
        if raised && key.partition.0 == 0 && self.retention.warned.insert(key) {
            tracing::warn!(
                stream = partition.stream().0,
                topic = partition.topic().0,
                bytes_per_partition = policy.bytes_max,
                "max_topic_size leaves a partition less than a segment and a message: each keeps that much"
            );
        }
        let plan = partition.plan_retention(policy, wall);
        if let Some(start) = plan.start {
            let full = owned.replica.admit(ADVANCE_ENTRY_BYTES_MAX).is_err();
            match full {
                true => self.retention.schedule(now.after_us(1), lane, key),
                false => drop(self.propose_start(wall, lane, key, None, start)),
            }
        }
        if plan.held {
            self.retention.held.insert(key);
        }
        if let Some(due) = plan.due {
            let in_us = due.0.saturating_sub(wall.0);
            self.retention.schedule(now.after_us(in_us), lane, key);
        }
    }

    fn propose_start(
        &mut self,
        wall: Micros,
        lane: LaneId,
        key: PartitionKey,
        identity: Option<Identity>,
        start: Offset,
    ) -> Op {
        let lane_op = LaneOp::AdvanceStart { key, identity, start };
        // Persisted whatever the topic says: files go on the strength of it.
        self.propose(wall, lane, Durability::Persisted, EntryBody::operation(Bytes::from(lane_op.encode())))
    }

    /// The limits or the number of partitions of a topic changed. `owned` says which lanes this shard owns.
    pub fn handle_topic_changed(
        &mut self,
        now: Nanos,
        metadata: &Metadata,
        (stream, topic): (StreamId, TopicId),
        owned: impl Fn(LaneId) -> bool,
    ) {
        let Ok((_, topic)) = metadata.topic(stream.0, topic.0) else { return };
        for (key, partition) in topic.partitions().filter(|(_, partition)| owned(partition.lane)) {
            self.retention.schedule(now, partition.lane, key);
        }
    }

    /// Something happened to a partition that may let a segment go.
    pub(super) fn may_clean(&mut self, now: Nanos, lane: LaneId, key: PartitionKey) {
        self.retention.held.remove(&key);
        self.retention.schedule(now, lane, key);
    }

    /// A consumer's offset changed.
    pub(super) fn offset_moved(&mut self, now: Nanos, lane: LaneId, key: PartitionKey) {
        if self.retention.held.contains(&key) {
            self.may_clean(now, lane, key);
        }
    }

    /// A client deletes the oldest sealed segments. The count becomes an offset here, where it is ordered, so that a
    /// repeated request removes nothing more.
    pub(super) fn delete_segments(&mut self, wall: Micros, at: Target, identity: Identity, count: u32) {
        // Only the confirmation of a send names stream and topic.
        let (stream, topic) = (StreamId(0), TopicId(0));
        let client = Pending::Client { reply_to: at.reply_to, stream, topic };
        let Some(partition) = self.lanes.get(&at.lane).and_then(|owned| owned.state.get(at.key)) else {
            let status = match self.missing(at.lane, at.key) {
                Status::HistoryUnavailable => Status::PartitionHistoryChanged,
                status => status,
            };
            return self.refuse(at.reply_to, status);
        };
        let start = match partition.admit_delete_segments(&identity, wall) {
            Admit::New => partition.plan_delete_segments(count),
            Admit::Replay(receipt) => {
                return self.answer_receipt(at.reply_to, stream, topic, at.key, &receipt);
            }
            Admit::InFlight(_) if self.disk == DiskState::Broken => {
                return self.refuse(at.reply_to, Status::TransientNotCommitted);
            }
            Admit::InFlight(op) => {
                let owned = self.lanes.get_mut(&at.lane).expect("the lane was just there");
                owned.waiting.entry(op).or_default().push(client);
                return;
            }
            Admit::Refuse(status) => return self.refuse(at.reply_to, status),
        };
        let Some(start) = start else {
            let frame = at.reply_to.echo.committed(self.metadata.applied(), wall, |_| {});
            return self.todo.push_back(Todo::Answer(at.reply_to, Some(frame)));
        };
        if let Some(status) = self.disk.refuses_changes() {
            return self.refuse(at.reply_to, status);
        }
        let owned = self.lanes.get_mut(&at.lane).expect("the lane was just there");
        if owned.replica.admit(ADVANCE_ENTRY_BYTES_MAX).is_err() {
            return self.refuse(at.reply_to, Status::TransientNotAccepted);
        }
        let (op, _) = owned.replica.next(wall);
        let partition = owned.state.get_mut(at.key).expect("the partition was just there");
        partition.stage_delete_segments(op, identity);
        owned.waiting.entry(op).or_default().push(client);
        let proposed = self.propose_start(wall, at.lane, at.key, Some(identity), start);
        assert!(proposed == op, "the op that was staged is the op that was proposed");
    }

    /// The log of a partition starts later now: its files below go with the next checkpoint.
    pub(super) fn start_advanced(&mut self, lane: LaneId, key: PartitionKey, start: Offset) {
        let owned = self.lanes.get_mut(&lane).expect("the caller found the lane in this turn");
        if owned.remove_below(key, start) > 0 {
            self.todo.push_back(Todo::Reclaim);
        }
        tracing::debug!(partition = %key, start = start.0, "the oldest segments are removed");
    }
}

impl OwnedLane {
    /// Takes the segments below `start` out of a log, and gives how many there were.
    pub(super) fn remove_below(&mut self, key: PartitionKey, start: Offset) -> usize {
        let Some(log) = self.logs.get_mut(&key) else { return 0 };
        let files = log.advance_start(start);
        let count = files.len();
        self.removable.extend(files);
        count
    }
}
