//! The lanes that a shard owns: requests of clients in, journal entries and answers out. Nothing here awaits; what has
//! to be done outside is collected and taken by the shard after each turn.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use laneway_metadata::Metadata;
use laneway_reads::{Nanos, WaiterId, WaiterLimits, Waiters};
use laneway_storage::{PartitionLog, Placing, SegmentFile};
use laneway_transport::OutFrame;
use laneway_vsr::{Effect, Entry, EntryBody, Header, Replica};
use laneway_wire::reply::{SendConfirmation, put_confirmations, put_rejection, put_success};
use laneway_wire::{LaneId, Micros, Offset, Op, Operation, PartitionKey, Status, StreamId, TopicId};

use crate::calls::CallId;
use crate::core::{Applied, LaneLimits, LaneOp, LaneState, Receipt, ReceiptKind};
use crate::message::{
    CacheCounts, PartitionRequest, PartitionUsage, PollTo, ReadPart, ReplyTo, ShardId, UsageScope, Work,
};

mod append;
mod checkpoints;
mod disk_state;
mod lifecycle;
mod memory;
mod offsets;
mod polls;
mod retention;
mod sealed;
mod watches;

pub use checkpoints::FlushPart;
pub use checkpoints::{LaneCheckpoint, LaneDraft};
pub use disk_state::DiskState;
pub use polls::{DiskRead, PollJob};
use retention::Retention;
pub use retention::RetentionSettings;
pub use sealed::ScrubPlace;
pub use watches::Push;
use watches::Watches;

/// What a turn of the owner wants done.
#[derive(Debug)]
pub enum Todo {
    /// Append an entry of a lane to the journal, and its batch where it is placed.
    Write(LaneId, Entry, Placing),
    /// Answer a client. No frame ends a cancelled read that gets no answer.
    Answer(ReplyTo, Option<OutFrame>),
    /// Answer a read of a grouped fetch.
    AnswerFetch(ShardId, CallId, Result<ReadPart, Status>),
    /// Tell a grouped fetch about a partition that it follows.
    Push(watches::Push),
    /// Read segments for a poll.
    Read(WaiterId),
    /// Everything that a metadata op asked of this shard has committed.
    LifecycleDone(Op),
    /// Files can go with the next checkpoint: make one soon.
    Reclaim,
}

/// A lane on its owner shard.
#[derive(Debug)]
pub struct OwnedLane {
    replica: Replica,
    state: LaneState,
    logs: BTreeMap<PartitionKey, PartitionLog>,
    /// Who waits for an op that is on its way.
    waiting: BTreeMap<Op, Vec<Pending>>,
    /// Partitions that were fenced since the last checkpoint: their files go with the next one.
    fenced: Vec<PartitionKey>,
    /// Files of segments that were removed since the last checkpoint: they go with the next one.
    removable: Vec<SegmentFile>,
    /// Where the reads of each partition that was read found their messages.
    reads: BTreeMap<PartitionKey, CacheCounts>,
}

/// Who waits for an op.
#[derive(Debug)]
enum Pending {
    /// A client.
    Client { reply_to: ReplyTo, stream: StreamId, topic: TopicId },
    /// The metadata lane.
    Lifecycle(Op),
}

/// A lane as recovery hands it over.
#[derive(Debug)]
pub struct RestoredLane {
    /// The state of its checkpoint.
    pub state: LaneState,
    /// The segments of its partitions, as the checkpoint names them.
    pub logs: BTreeMap<PartitionKey, PartitionLog>,
    /// The log above the checkpoint, in order.
    pub records: Vec<laneway_storage::RecoveredRecord>,
}

/// All lanes of one shard, and the reads that are parked on them.
#[derive(Debug)]
pub struct Owner {
    lanes: BTreeMap<LaneId, OwnedLane>,
    limits: LaneLimits,
    waiters: Waiters<PollJob>,
    watches: Watches,
    /// The newest metadata that this shard has applied.
    metadata: Arc<Metadata>,
    /// Most bytes of records in one reply.
    read_bytes_max: u32,
    /// Lifecycle ops that found their lane full.
    backlog: VecDeque<(LaneId, LaneOp, Op)>,
    /// Lifecycle ops of each metadata op that are not committed yet.
    lifecycles: BTreeMap<Op, usize>,
    retention: Retention,
    disk: DiskState,
    todo: VecDeque<Todo>,
    /// Bytes of entries that are on their way through the journal, of all lanes.
    in_flight_bytes: usize,
    memory: memory::Memory,
    stopping: bool,
}

impl Owner {
    /// An owner without lanes.
    pub fn new(
        limits: LaneLimits,
        waiters: WaiterLimits,
        read_bytes_max: u32,
        retention: RetentionSettings,
    ) -> Self {
        Self {
            lanes: BTreeMap::new(),
            limits,
            watches: Watches::new(waiters),
            waiters: Waiters::new(waiters),
            metadata: Arc::default(),
            read_bytes_max,
            backlog: VecDeque::new(),
            lifecycles: BTreeMap::new(),
            retention: Retention::new(retention),
            disk: DiskState::Sound,
            todo: VecDeque::new(),
            in_flight_bytes: 0,
            memory: memory::Memory::default(),
            stopping: false,
        }
    }

    /// The next thing to do, if any.
    pub fn poll_todo(&mut self) -> Option<Todo> {
        self.todo.pop_front()
    }

    /// The shard has applied newer metadata.
    pub fn handle_metadata(&mut self, metadata: Arc<Metadata>) {
        assert!(metadata.applied() >= self.metadata.applied(), "metadata went back");
        self.metadata = metadata;
    }

    /// A request of a client.
    pub fn handle_request(&mut self, now: Nanos, wall: Micros, request: PartitionRequest) {
        if self.stopping {
            return self.refuse(request.reply_to, Status::TransientNotAccepted);
        }
        match request.work {
            Work::Append { identity, stream, topic, batch, messages, producer } => {
                let at = Target { lane: request.lane, key: request.key, reply_to: request.reply_to };
                self.append(wall, at, append::Append { identity, stream, topic, batch, messages, producer });
            }
            Work::Poll(work) => {
                let job = PollJob::new(
                    request.lane,
                    request.key,
                    request.metadata_op,
                    PollTo::Client(request.reply_to),
                    work,
                );
                self.poll(now, wall, job);
            }
            Work::StoreOffset { identity, consumer, offset } => {
                let at = Target { lane: request.lane, key: request.key, reply_to: request.reply_to };
                self.store_offset(wall, at, identity, consumer, offset);
            }
            Work::DeleteOffset { identity, consumer } => {
                let at = Target { lane: request.lane, key: request.key, reply_to: request.reply_to };
                self.delete_offset(now, wall, at, identity, consumer);
            }
            Work::DeleteSegments { identity, count } => {
                let at = Target { lane: request.lane, key: request.key, reply_to: request.reply_to };
                self.delete_segments(wall, at, identity, count);
            }
            Work::GetOffset { consumer } => {
                let at = Target { lane: request.lane, key: request.key, reply_to: request.reply_to };
                self.get_offset(at, &consumer);
            }
        }
    }

    /// Every write of a lane through `op` has finished.
    pub fn handle_written(&mut self, now: Nanos, wall: Micros, lane: LaneId, op: Op) {
        if let Some(owned) = self.lanes.get_mut(&lane) {
            owned.replica.handle_written(op);
            self.pump(now, wall, lane);
        }
    }

    /// A flush that covers every write of a lane through `op` has finished.
    pub fn handle_synced(&mut self, now: Nanos, wall: Micros, lane: LaneId, op: Op) {
        if let Some(owned) = self.lanes.get_mut(&lane) {
            owned.replica.handle_synced(op);
            self.pump(now, wall, lane);
        }
    }

    /// What the partitions of a scope hold, by key.
    pub fn usage(&self, scope: UsageScope) -> Vec<PartitionUsage> {
        let mut rows = Vec::new();
        for owned in self.lanes.values() {
            for partition in owned.state.iter() {
                let in_scope = match scope {
                    UsageScope::Node => true,
                    UsageScope::Stream(stream) => partition.stream() == stream,
                    UsageScope::Topic(stream, topic) => {
                        partition.stream() == stream && partition.topic() == topic
                    }
                };
                if in_scope {
                    rows.push(PartitionUsage {
                        stream: partition.stream(),
                        topic: partition.topic(),
                        key: partition.key(),
                        segments: u32::try_from(partition.spans().count()).unwrap_or(u32::MAX),
                        head: partition.head(),
                        bytes: partition.size_bytes(),
                        messages: partition.messages(),
                        cache: owned.reads.get(&partition.key()).copied().unwrap_or_default(),
                    });
                }
            }
        }
        rows
    }

    /// Refuses what is parked and everything that comes from now on. What is on its way still commits.
    pub fn stop(&mut self) {
        self.stopping = true;
        for waiter in self.waiters.drain() {
            self.refuse_poll(waiter.request.to, Status::TransientNotAccepted);
        }
        self.end_watches(Status::TransientNotAccepted);
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.backlog.is_empty() && self.lanes.values().all(|owned| owned.replica.in_flight() == 0)
    }

    /// Whether the journal takes `bytes` more.
    fn has_room(&self, bytes: usize) -> bool {
        self.in_flight_bytes == 0 || self.in_flight_bytes + bytes <= IN_FLIGHT_BYTES_MAX
    }

    /// What a partition that is not here is answered with: gone for good, or not opened yet.
    fn missing(&self, lane: LaneId, key: PartitionKey) -> Status {
        match self.lanes.get(&lane).is_some_and(|owned| owned.fenced.contains(&key)) {
            true => Status::HistoryUnavailable,
            false => Status::TransientNotAccepted,
        }
    }

    fn refuse(&mut self, reply_to: ReplyTo, status: Status) {
        let frame = reply_to.echo.refusal(status);
        self.todo.push_back(Todo::Answer(reply_to, Some(frame)));
    }

    /// Orders an op. The lane exists and has room; both were checked in this turn.
    fn propose(
        &mut self,
        wall: Micros,
        lane: LaneId,
        durability: laneway_vsr::Durability,
        body: EntryBody,
    ) -> Op {
        self.in_flight_bytes += body.bytes();
        let owned = self.lanes.get_mut(&lane).expect("the caller found the lane in this turn");
        let op = owned.replica.propose(wall, durability, body).expect("room was checked in this turn");
        while let Some(effect) = owned.replica.poll_effect() {
            match effect {
                Effect::Write { entry, .. } => {
                    let placing = owned.place(lane, &entry);
                    self.todo.push_back(Todo::Write(lane, entry, placing));
                }
                other => unreachable!("a proposal of a lone member does nothing but write: {other:?}"),
            }
        }
        op
    }

    fn pump(&mut self, now: Nanos, wall: Micros, lane: LaneId) {
        let mut advanced = Vec::new();
        loop {
            let Some(owned) = self.lanes.get_mut(&lane) else { return };
            let Some(effect) = owned.replica.poll_effect() else { break };
            match effect {
                Effect::Write { entry, .. } => {
                    let placing = owned.place(lane, &entry);
                    self.todo.push_back(Todo::Write(lane, entry, placing));
                }
                Effect::Apply(entry) => {
                    if let Some(key) = self.apply(now, lane, entry) {
                        advanced.push(key);
                    }
                }
                other => unreachable!("a lone member needs nothing else: {other:?}"),
            }
        }
        self.trim_memory();
        // Readers wake once for everything that this flush committed.
        advanced.sort_unstable();
        advanced.dedup();
        for key in advanced {
            self.wake(now, wall, lane, key);
        }
        self.pump_backlog(wall);
    }

    /// Applies one committed entry and answers who waits for it. Gives the partition whose head advanced.
    fn apply(&mut self, now: Nanos, lane: LaneId, entry: Entry) -> Option<PartitionKey> {
        let Entry { header: Header { op, timestamp, .. }, body } = entry;
        self.in_flight_bytes -= body.bytes();
        let batch_bytes = body.batch.len() as u64;
        let owned = self.lanes.get_mut(&lane).expect("the caller found the lane in this turn");
        let applied = match owned.state.apply(op, timestamp, &body.prefix, body.batch, now) {
            Ok(applied) => applied,
            // This process made the entry: it cannot be wrong unless we are.
            Err(error) => panic!("lane {lane}: {error}"),
        };
        owned.replica.handle_applied(op);
        let waiting = owned.waiting.remove(&op).unwrap_or_default();
        match applied {
            Applied::Appended { key, receipt, sealed, .. } => {
                owned.note_direct(key);
                self.memory.grow(batch_bytes);
                if sealed {
                    self.may_clean(now, lane, key);
                }
                self.answer(waiting, key, receipt);
                Some(key)
            }
            Applied::OffsetStored { key, receipt, .. } | Applied::OffsetDeleted { key, receipt, .. } => {
                self.offset_moved(now, lane, key);
                self.answer(waiting, key, receipt);
                None
            }
            Applied::StartAdvanced { key, receipt, start, .. } => {
                self.start_advanced(lane, key, start);
                self.answer(waiting, key, receipt);
                None
            }
            Applied::Opened { key } => {
                self.opened(now, lane, key);
                self.settle(waiting);
                None
            }
            Applied::Fenced { key, .. } => {
                self.fenced(lane, key);
                self.settle(waiting);
                None
            }
            Applied::Missing { .. } => {
                for pending in waiting {
                    match pending {
                        Pending::Client { reply_to, .. } => {
                            let deletes =
                                reply_to.echo.header().operation() == Some(Operation::DeleteSegments);
                            let status = match deletes {
                                true => Status::PartitionHistoryChanged,
                                false => Status::HistoryUnavailable,
                            };
                            self.refuse(reply_to, status);
                        }
                        Pending::Lifecycle(op) => self.lifecycle_committed(op),
                    }
                }
                None
            }
            Applied::Retired { .. } | Applied::Skipped => {
                self.settle(waiting);
                None
            }
        }
    }

    fn answer(&mut self, waiting: Vec<Pending>, key: PartitionKey, receipt: Receipt) {
        for pending in waiting {
            match pending {
                Pending::Client { reply_to, stream, topic } => {
                    self.answer_receipt(reply_to, stream, topic, key, &receipt);
                }
                Pending::Lifecycle(op) => self.lifecycle_committed(op),
            }
        }
    }

    fn answer_receipt(
        &mut self,
        reply_to: ReplyTo,
        stream: StreamId,
        topic: TopicId,
        key: PartitionKey,
        receipt: &Receipt,
    ) {
        let op = match receipt.kind {
            // Clients take the op of this answer for one of the metadata lane.
            ReceiptKind::DeleteSegments => self.metadata.applied(),
            _ => receipt.op,
        };
        let frame = reply_to.echo.committed(op, receipt.timestamp, |out| match receipt.kind {
            ReceiptKind::DeleteSegments => {}
            ReceiptKind::Append => {
                let partition = key.partition;
                let base_offset = receipt.base_offset;
                put_confirmations(out, &[SendConfirmation { stream, topic, partition, base_offset }]);
            }
            ReceiptKind::StoreOffset | ReceiptKind::DeleteOffset if receipt.status.is_ok() => {
                put_success(out)
            }
            ReceiptKind::StoreOffset | ReceiptKind::DeleteOffset => put_rejection(out, receipt.status),
        });
        self.todo.push_back(Todo::Answer(reply_to, Some(frame)));
    }

    fn settle(&mut self, waiting: Vec<Pending>) {
        for pending in waiting {
            match pending {
                Pending::Lifecycle(op) => self.lifecycle_committed(op),
                Pending::Client { .. } => unreachable!("clients do not wait for lifecycle ops"),
            }
        }
    }
}

/// Bytes of entries that may be on their way through the journal of one shard. One larger entry is taken when nothing
/// else is.
const IN_FLIGHT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Where a request is served, and where its answer goes.
#[derive(Clone, Copy, Debug)]
struct Target {
    lane: LaneId,
    key: PartitionKey,
    reply_to: ReplyTo,
}

/// The head as the wire shows it: 0 before the first message.
fn current_offset(head: Option<Offset>) -> Offset {
    head.unwrap_or(Offset(0))
}
