//! All partitions of one data lane.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use laneway_reads::{Nanos, SessionKey};
use laneway_wire::{LaneId, Micros, Offset, Op, PartitionKey};

use super::codec::DecodeError;
use super::identity::{Identity, Receipt};
use super::lane_op::{LaneOp, StoreMode};
use super::offsets::CONSUMER_OFFSETS_MAX;
use super::partition::{Clock, Partition};
use super::producers::PRODUCERS_MAX;
use super::receipts::SESSIONS_MAX;

/// Bounds of what one partition remembers beside its messages. The same on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLimits {
    /// Offset keys of each kind.
    pub consumer_offsets_max: usize,
    /// Sessions with receipts.
    pub sessions_max: usize,
    /// Idempotent producers.
    pub producers_max: usize,
}

impl Default for LaneLimits {
    fn default() -> Self {
        Self {
            consumer_offsets_max: CONSUMER_OFFSETS_MAX,
            sessions_max: SESSIONS_MAX,
            producers_max: PRODUCERS_MAX,
        }
    }
}

/// Why a committed op cannot be applied: the log or the state is damaged, or we are wrong. The lane must stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The prefix does not decode.
    #[error("op {op} does not decode")]
    Decode {
        /// The op.
        op: Op,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// An append without a well-formed batch, or a batch behind an op that appends none.
    #[error("op {op} of partition {key} carries no batch that fits it")]
    Batch {
        /// The op.
        op: Op,
        /// The partition.
        key: PartitionKey,
    },
    /// A batch that does not begin where the log ends.
    #[error("op {op} appends to partition {key} at offset {found}, but the log ends at {expected}")]
    Gap {
        /// The op.
        op: Op,
        /// The partition.
        key: PartitionKey,
        /// Where the log ends.
        expected: Offset,
        /// Where the batch begins.
        found: Offset,
    },
    /// The segments that a checkpoint names are not what its partition holds.
    #[error("the segments of partition {key} do not hold what its checkpoint says")]
    Segments {
        /// The partition.
        key: PartitionKey,
    },
    /// A batch with an append time before that of the batch before it.
    #[error("op {op} appends to partition {key} with a time before the last one")]
    TimeWentBack {
        /// The op.
        op: Op,
        /// The partition.
        key: PartitionKey,
    },
}

/// What an applied op did.
#[derive(Clone, Debug)]
pub enum Applied {
    /// A partition exists now, or did already.
    Opened {
        /// The partition.
        key: PartitionKey,
    },
    /// The head advanced: wake readers, answer the sender.
    Appended {
        /// The partition.
        key: PartitionKey,
        /// Who asked.
        identity: Option<Identity>,
        /// The answer.
        receipt: Receipt,
        /// The head after it.
        head: Offset,
        /// The running total of committed bytes after it.
        bytes_total: u64,
        /// The batch sealed its segment.
        sealed: bool,
    },
    /// A consumer's offset was stored.
    OffsetStored {
        /// The partition.
        key: PartitionKey,
        /// Who asked; nobody for a read.
        identity: Option<Identity>,
        /// The answer.
        receipt: Receipt,
    },
    /// A consumer's offset was deleted, or was not there.
    OffsetDeleted {
        /// The partition.
        key: PartitionKey,
        /// Who asked.
        identity: Option<Identity>,
        /// The answer.
        receipt: Receipt,
    },
    /// The partition ended. Its waiters are owed 87, its files can go.
    Fenced {
        /// What it was; `None` when it had ended before.
        partition: Option<Box<Partition>>,
        /// The partition.
        key: PartitionKey,
    },
    /// The partition had ended before the op committed: its sender is owed 87. Also for an open that comes again after
    /// the end, from a primary whose metadata lags.
    Missing {
        /// The partition.
        key: PartitionKey,
        /// Who asked.
        identity: Option<Identity>,
    },
    /// The oldest segments are gone, or nothing was left to remove.
    StartAdvanced {
        /// The partition.
        key: PartitionKey,
        /// Who asked; nobody for retention.
        identity: Option<Identity>,
        /// The answer.
        receipt: Receipt,
        /// Where the log starts now.
        start: Offset,
    },
    /// The receipts of a session are gone.
    Retired {
        /// The session.
        session: SessionKey,
    },
    /// The checkpoint covers the op: nothing was done.
    Skipped,
}

/// The partitions of one lane, as of the last op that was applied.
#[derive(Clone, Debug)]
pub struct LaneState {
    pub(crate) lane: LaneId,
    pub(crate) limits: LaneLimits,
    pub(crate) applied: Op,
    /// Time of the newest op.
    pub(crate) timestamp_last: Micros,
    pub(crate) partitions: BTreeMap<PartitionKey, Partition>,
    /// The highest key that was ever opened. Keys are opened in their order, so one at or below that is not here has
    /// ended, and is never opened again: its offsets would begin anew.
    pub(crate) opened_max: Option<PartitionKey>,
    /// Where each session left receipts, so that its end costs only those.
    pub(crate) sessions: BTreeMap<SessionKey, BTreeSet<PartitionKey>>,
}

impl LaneState {
    /// A lane without partitions, before its first op.
    pub fn new(lane: LaneId, limits: LaneLimits) -> Self {
        Self {
            lane,
            limits,
            applied: Op(0),
            timestamp_last: Micros(0),
            partitions: BTreeMap::new(),
            opened_max: None,
            sessions: BTreeMap::new(),
        }
    }

    /// The lane.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// The last op that was applied.
    pub fn applied(&self) -> Op {
        self.applied
    }

    /// Time of the newest op that was applied.
    pub fn timestamp_last(&self) -> Micros {
        self.timestamp_last
    }

    /// A partition.
    pub fn get(&self, key: PartitionKey) -> Option<&Partition> {
        self.partitions.get(&key)
    }

    /// A partition, to stage into or to tell about its segments.
    pub fn get_mut(&mut self, key: PartitionKey) -> Option<&mut Partition> {
        self.partitions.get_mut(&key)
    }

    /// Every partition in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.values()
    }

    /// Every partition, to change it.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.partitions.values_mut()
    }

    /// Number of partitions.
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Whether no partition is here.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Whether a session left receipts here.
    pub fn knows_session(&self, session: SessionKey) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Applies a committed entry: its op, its time, its prefix and its batch. `now` stamps client stores for the fences
    /// of parked reads; recovery passes 0. Entries come in the order of their ops; one at or below the last applied is
    /// skipped.
    pub fn apply(
        &mut self,
        op: Op,
        timestamp: Micros,
        prefix: &[u8],
        batch: Bytes,
        now: Nanos,
    ) -> Result<Applied, ApplyError> {
        if op <= self.applied {
            return Ok(Applied::Skipped);
        }
        let lane_op = LaneOp::decode(prefix).map_err(|source| ApplyError::Decode { op, source })?;
        let appends = matches!(lane_op, LaneOp::AppendBatch { .. });
        if let Some(key) = lane_op.key()
            && !appends
            && !batch.is_empty()
        {
            return Err(ApplyError::Batch { op, key });
        }
        let applied = self.dispatch(op, lane_op, batch, Clock { timestamp, monotonic: now })?;
        self.applied = op;
        self.timestamp_last = self.timestamp_last.max(timestamp);
        Ok(applied)
    }

    /// An entry without a partition op was applied, for example one that only marks a view.
    pub fn note_applied(&mut self, op: Op, timestamp: Micros) {
        self.applied = self.applied.max(op);
        self.timestamp_last = self.timestamp_last.max(timestamp);
    }

    /// Forgets everything that was proposed and never committed.
    pub fn discard_staged(&mut self) {
        for partition in self.partitions.values_mut() {
            partition.discard_staged();
        }
    }

    fn dispatch(
        &mut self,
        op: Op,
        lane_op: LaneOp,
        batch: Bytes,
        clock: Clock,
    ) -> Result<Applied, ApplyError> {
        match lane_op {
            LaneOp::OpenPartition { key, stream, topic, settings } => {
                if self.opened_max >= Some(key) && !self.partitions.contains_key(&key) {
                    return Ok(Applied::Missing { key, identity: None });
                }
                self.opened_max = self.opened_max.max(Some(key));
                let limits = &self.limits;
                self.partitions
                    .entry(key)
                    .or_insert_with(|| Partition::new(key, stream, topic, settings, limits));
                Ok(Applied::Opened { key })
            }
            LaneOp::AppendBatch { key, identity, base_offset, producer } => {
                let Some(partition) = self.partitions.get_mut(&key) else {
                    return Ok(Applied::Missing { key, identity });
                };
                let (receipt, sealed) = partition.apply_append(op, identity, base_offset, producer, batch)?;
                let head = partition.head().expect("an append leaves a head");
                let bytes_total = partition.bytes_total();
                self.record(key, identity, receipt);
                Ok(Applied::Appended { key, identity, receipt, head, bytes_total, sealed })
            }
            LaneOp::StoreOffset { key, identity, consumer, offset, mode } => {
                let Some(partition) = self.partitions.get_mut(&key) else {
                    return Ok(Applied::Missing { key, identity });
                };
                let receipt = partition.apply_store_offset(op, identity, &consumer, offset, mode, clock);
                self.record(key, identity, receipt);
                Ok(Applied::OffsetStored { key, identity, receipt })
            }
            LaneOp::DeleteOffset { key, identity, consumer } => {
                let Some(partition) = self.partitions.get_mut(&key) else {
                    return Ok(Applied::Missing { key, identity });
                };
                let receipt = partition.apply_delete_offset(op, identity, &consumer, clock);
                self.record(key, identity, receipt);
                Ok(Applied::OffsetDeleted { key, identity, receipt })
            }
            LaneOp::AdvanceStart { key, identity, start } => {
                let Some(partition) = self.partitions.get_mut(&key) else {
                    return Ok(Applied::Missing { key, identity });
                };
                let receipt = partition.apply_advance_start(op, identity, start, clock);
                self.record(key, identity, receipt);
                Ok(Applied::StartAdvanced { key, identity, receipt, start: receipt.base_offset })
            }
            LaneOp::FencePartition { key } => Ok(self.fence(key)),
            LaneOp::RetireSession { session } => {
                self.retire(session);
                Ok(Applied::Retired { session })
            }
        }
    }

    fn fence(&mut self, key: PartitionKey) -> Applied {
        let partition = self.partitions.remove(&key).map(Box::new);
        if let Some(partition) = &partition {
            for session in partition.receipts().sessions() {
                self.forget(session, key);
            }
        }
        Applied::Fenced { partition, key }
    }

    fn retire(&mut self, session: SessionKey) {
        for key in self.sessions.remove(&session).unwrap_or_default() {
            if let Some(partition) = self.partitions.get_mut(&key) {
                partition.receipts.retire(session);
            }
        }
    }

    fn record(&mut self, key: PartitionKey, identity: Option<Identity>, receipt: Receipt) {
        let Some(identity) = identity else { return };
        let session = identity.session_key();
        if let Some(partition) = self.partitions.get_mut(&key) {
            // An evicted session stays in the index: its floor lives until it retires.
            partition.receipts.record(session, receipt);
            self.sessions.entry(session).or_default().insert(key);
        }
    }

    fn forget(&mut self, session: SessionKey, key: PartitionKey) {
        if let Some(keys) = self.sessions.get_mut(&session) {
            keys.remove(&key);
            if keys.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }

    /// Rebuilds the index of sessions after partitions were decoded.
    pub(crate) fn index_sessions(&mut self) {
        self.sessions.clear();
        for (key, partition) in &self.partitions {
            for session in partition.receipts().sessions() {
                self.sessions.entry(session).or_default().insert(*key);
            }
        }
    }
}

/// The op that stores what a read committed.
pub fn auto_commit_op(key: PartitionKey, consumer: super::ConsumerKey, offset: Offset) -> LaneOp {
    LaneOp::StoreOffset { key, identity: None, consumer, offset, mode: StoreMode::Auto }
}
