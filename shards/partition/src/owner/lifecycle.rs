//! Partitions that begin and end, and sessions that end. The metadata lane decides; this makes it so in the lanes.

use bytes::Bytes;
use laneway_metadata::{Durability as TopicDurability, Metadata, PartitionPlace, SessionId};
use laneway_reads::{Nanos, SessionKey};
use laneway_storage::segment::SegmentMeta;
use laneway_storage::{Damage, DataDirectory, PartitionLog, Placing, RecoveredRecord, Route, StorageError};
use laneway_vsr::{Durability, EntryBody, Replica};
use laneway_wire::{LaneId, Micros, Offset, Op, PartitionKey, Status};

use super::{OwnedLane, Owner, Pending, RestoredLane};
use crate::core::{Applied, ApplyError, LaneOp, LaneState, PartitionSettings, Segment};

/// Bytes that a lifecycle entry takes at most.
const LIFECYCLE_ENTRY_BYTES_MAX: usize = 128;

/// Why a lane cannot be brought back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreLaneError {
    /// An op of its log cannot be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A batch that its log names cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// An op of its log names a place for its batch that cannot be.
    #[error("op {op}: the place of its batch in partition {key} is wrong: {damage}")]
    Place {
        /// The op.
        op: Op,
        /// The partition.
        key: PartitionKey,
        /// What is wrong.
        damage: Damage,
    },
}

/// Applies one op of a log, and notes where its batch is or will be.
fn replay(
    state: &mut LaneState,
    logs: &mut std::collections::BTreeMap<PartitionKey, PartitionLog>,
    record: RecoveredRecord,
    directory: &DataDirectory,
) -> Result<(), RestoreLaneError> {
    let RecoveredRecord { op, timestamp, prefix, mut batch, placing, .. } = record;
    let appends_to = LaneOp::appends_to(&prefix).filter(|_| !batch.is_empty());
    let log = appends_to.filter(|key| state.get(*key).is_some()).and_then(|key| logs.get_mut(&key));
    if let Some(log) = log {
        let key = log.partition();
        match placing {
            Placing::Unplaced => log.place(&batch, Route::Later).map(drop),
            Placing::Inline(place) => log.place_again(&batch, place, Route::Later),
            Placing::Direct(place) => log.place_again(&batch, place, Route::Direct),
        }
        .map_err(|damage| RestoreLaneError::Place { op, key, damage })?;
        if let Placing::Direct(place) = placing {
            let end = state.get(key).and_then(|partition| partition.head()).map_or(0, |head| head.0 + 1);
            // What a checkpoint has still to bring to its place lies in memory, and what follows it must, too.
            if log.note_direct(Offset(end)) < Offset(end) {
                batch = directory.read_direct(place, &batch)?;
            }
        }
    }
    if let Applied::Opened { key } = state.apply(op, timestamp, &prefix, batch, Nanos(0))? {
        let segment_bytes = state.get(key).expect("it was just opened").settings().segment_bytes;
        logs.entry(key).or_insert_with(|| PartitionLog::new(key, segment_bytes));
    }
    if let (Some(key), Placing::Direct(_)) = (appends_to, placing) {
        let end = state.get(key).and_then(|partition| partition.head()).map_or(0, |head| head.0 + 1);
        if let Some(log) = logs.get_mut(&key) {
            log.note_direct(Offset(end));
        }
    }
    Ok(())
}

/// What a partition needs to know of its topic.
pub fn settings_of(place: &PartitionPlace) -> PartitionSettings {
    PartitionSettings {
        durability: durability(place.settings.durability),
        offset_durability: durability(place.settings.consumer_offset_durability),
        segment_bytes: place.settings.segment_size,
    }
}

/// A stored segment as the lane counts it.
fn span(segment: &SegmentMeta) -> Segment {
    Segment {
        base: segment.base,
        end: segment.next,
        bytes: segment.batch_bytes,
        timestamp_last: segment.max_timestamp,
        sealed: segment.sealed,
    }
}

fn durability(durability: TopicDurability) -> Durability {
    match durability {
        TopicDurability::Replicated => Durability::Replicated,
        TopicDurability::Persisted => Durability::Persisted,
    }
}

impl Owner {
    /// Takes over a lane that recovery found, and replays its log. `directory`: where batches are that the journal only
    /// names. Blocking, where a batch has to be read.
    pub fn restore(
        &mut self,
        lane: LaneId,
        restored: RestoredLane,
        directory: &DataDirectory,
    ) -> Result<(), RestoreLaneError> {
        let RestoredLane { mut state, mut logs, records } = restored;
        for (key, log) in &logs {
            if let Some(partition) = state.get_mut(*key)
                && partition.spans().iter().next().is_none()
            {
                let adopted = partition.adopt_spans(log.segments().iter().map(span).collect());
                if !adopted {
                    return Err(ApplyError::Segments { key: *key }.into());
                }
            }
        }
        for record in records {
            replay(&mut state, &mut logs, record, directory)?;
        }
        let replica = Replica::alone_in(lane, state.applied(), state.timestamp_last());
        let mut owned = OwnedLane {
            replica,
            state,
            logs,
            waiting: std::collections::BTreeMap::new(),
            fenced: Vec::new(),
            removable: Vec::new(),
            reads: std::collections::BTreeMap::new(),
        };
        let gone: Vec<PartitionKey> =
            owned.logs.keys().filter(|key| owned.state.get(**key).is_none()).copied().collect();
        owned.fenced.extend(gone);
        let opened: Vec<(PartitionKey, u64)> = owned
            .state
            .iter()
            .filter(|partition| !owned.logs.contains_key(&partition.key()))
            .map(|partition| (partition.key(), partition.settings().segment_bytes))
            .collect();
        for (key, segment_bytes) in opened {
            owned.logs.insert(key, PartitionLog::new(key, segment_bytes));
        }
        let starts: Vec<_> = owned
            .state
            .iter()
            .map(|partition| (partition.key(), partition.retained_start(), partition.spans().count()))
            .collect();
        for (key, start, segments) in starts {
            owned.remove_below(key, start);
            if segments > 1 || key.partition.0 == 0 {
                self.retention.schedule(Nanos(0), lane, key);
            }
        }
        self.lanes.insert(lane, owned);
        Ok(())
    }

    /// Brings the lanes in line with the metadata after a restart: opens what a crash left unopened, fences what it
    /// left unfenced. `owned` says which lanes this shard owns.
    pub fn reconcile(&mut self, wall: Micros, metadata: &Metadata, owned: impl Fn(LaneId) -> bool) {
        let op = metadata.applied();
        let places: std::collections::BTreeMap<PartitionKey, PartitionPlace> =
            metadata.partitions().filter(|place| owned(place.lane)).map(|place| (place.key, place)).collect();
        let open: Vec<PartitionPlace> = places
            .values()
            .filter(|place| {
                self.lanes.get(&place.lane).is_none_or(|owned| owned.state.get(place.key).is_none())
            })
            .copied()
            .collect();
        let mut fence = Vec::new();
        for (lane, owned) in &self.lanes {
            let stale = owned.state.iter().filter(|partition| !places.contains_key(&partition.key()));
            fence.extend(stale.map(|partition| (*lane, partition.key())));
        }
        self.handle_lifecycle(wall, op, &open, &fence);
    }

    /// Opens and fences partitions as a metadata op decided. Answered by [`super::Todo::LifecycleDone`].
    pub fn handle_lifecycle(
        &mut self,
        wall: Micros,
        op: Op,
        open: &[PartitionPlace],
        fence: &[(LaneId, PartitionKey)],
    ) {
        let count = open.len() + fence.len();
        if count == 0 {
            return;
        }
        *self.lifecycles.entry(op).or_default() += count;
        for place in open {
            self.lane(place.lane);
            let lane_op = LaneOp::OpenPartition {
                key: place.key,
                stream: place.stream,
                topic: place.topic,
                settings: settings_of(place),
            };
            self.backlog.push_back((place.lane, lane_op, op));
        }
        for (lane, key) in fence {
            self.lane(*lane);
            // Readers learn it now: nothing can be read any more once the metadata says so.
            for waiter in self.waiters.remove_partition(*key) {
                self.refuse_poll(waiter.request.to, Status::HistoryUnavailable);
            }
            self.end_watches_of(*key, Status::HistoryUnavailable);
            self.backlog.push_back((*lane, LaneOp::FencePartition { key: *key }, op));
        }
        self.pump_backlog(wall);
    }

    /// Sessions ended: their parked reads are refused, and their receipts go.
    pub fn handle_sessions_ended(&mut self, wall: Micros, sessions: &[SessionId]) {
        for session in sessions {
            let key = SessionKey { client: session.client, session: session.epoch };
            for waiter in self.waiters.remove_session(key) {
                self.refuse_poll(waiter.request.to, Status::StaleClient);
            }
            let lanes: Vec<LaneId> = self
                .lanes
                .iter()
                .filter(|(_, owned)| owned.state.knows_session(key))
                .map(|(lane, _)| *lane)
                .collect();
            for lane in lanes {
                let body = EntryBody::operation(Bytes::from(LaneOp::RetireSession { session: key }.encode()));
                let full = self.lanes[&lane].replica.admit(body.bytes()).is_err();
                // Receipts that stay cost memory until their session is evicted, nothing else.
                if !full {
                    self.propose(wall, lane, Durability::Replicated, body);
                }
            }
        }
    }

    /// Proposes what waits for room in its lane.
    pub(super) fn pump_backlog(&mut self, wall: Micros) {
        while let Some((lane, _, _)) = self.backlog.front() {
            let owned = self.lanes.get_mut(lane).expect("lifecycle ops make their lane");
            if owned.replica.admit(LIFECYCLE_ENTRY_BYTES_MAX).is_err() {
                return;
            }
            let (lane, lane_op, metadata_op) =
                self.backlog.pop_front().expect("the front was just looked at");
            let body = EntryBody::operation(Bytes::from(lane_op.encode()));
            let op = self.propose(wall, lane, Durability::Persisted, body);
            let owned = self.lanes.get_mut(&lane).expect("lifecycle ops make their lane");
            owned.waiting.entry(op).or_default().push(Pending::Lifecycle(metadata_op));
        }
    }

    pub(super) fn lifecycle_committed(&mut self, op: Op) {
        let left = self.lifecycles.get_mut(&op).expect("a lifecycle op is counted when it is proposed");
        *left -= 1;
        if *left == 0 {
            self.lifecycles.remove(&op);
            self.todo.push_back(super::Todo::LifecycleDone(op));
        }
    }

    pub(super) fn opened(&mut self, now: Nanos, lane: LaneId, key: PartitionKey) {
        let owned = self.lanes.get_mut(&lane).expect("the caller found the lane in this turn");
        let segment_bytes = owned.state.get(key).expect("it was just opened").settings().segment_bytes;
        owned.logs.entry(key).or_insert_with(|| PartitionLog::new(key, segment_bytes));
        if key.partition.0 == 0 {
            // Nothing can go yet, but a limit that is too small is worth a word.
            self.retention.schedule(now, lane, key);
        }
    }

    pub(super) fn fenced(&mut self, lane: LaneId, key: PartitionKey) {
        for waiter in self.waiters.remove_partition(key) {
            self.refuse_poll(waiter.request.to, Status::HistoryUnavailable);
        }
        // A fetch may have come after the fence was ordered and before it committed.
        self.end_watches_of(key, Status::HistoryUnavailable);
        self.retention.forget(key);
        let owned = self.lanes.get_mut(&lane).expect("the caller found the lane in this turn");
        owned.fenced.push(key);
        owned.reads.remove(&key);
        if owned.logs.get(&key).is_some_and(|log| !log.segments().is_empty()) {
            self.todo.push_back(super::Todo::Reclaim);
        }
    }

    fn lane(&mut self, lane: LaneId) {
        let limits = self.limits;
        self.lanes.entry(lane).or_insert_with(|| OwnedLane {
            replica: Replica::alone_in(lane, Op(0), Micros(0)),
            state: LaneState::new(lane, limits),
            logs: std::collections::BTreeMap::new(),
            waiting: std::collections::BTreeMap::new(),
            fenced: Vec::new(),
            removable: Vec::new(),
            reads: std::collections::BTreeMap::new(),
        });
    }
}
