//! Random histories of a lane against a simple model: what was committed is there, before and after a checkpoint.

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway_reads::{Nanos, PollPlan, PollRequest, ReadLimits, SessionKey, Start};
use laneway_vsr::Durability;
use laneway_wire::batch::{BatchBuilder, records, stamp};
use laneway_wire::{
    ClientId, Incarnation, LaneId, Micros, Offset, Op, PartitionId, PartitionKey, RequestNumber,
    SessionEpoch, Status, StreamId, TopicId,
};
use proptest::prelude::*;

use super::*;

const LIMITS: LaneLimits = LaneLimits { consumer_offsets_max: 3, sessions_max: 64, producers_max: 4 };
const MODEL_SESSIONS: u64 = 3;
/// A few batches of a few small messages.
const SEGMENT_BYTES: u64 = 1_000;

fn key(number: u32) -> PartitionKey {
    PartitionKey { incarnation: Incarnation(100), partition: PartitionId(number) }
}

fn identity(session: u64, request: u64) -> Identity {
    Identity { client: ClientId(1), session: SessionEpoch(session + 1), request: RequestNumber(request) }
}

fn open(number: u32) -> LaneOp {
    LaneOp::OpenPartition {
        key: key(number),
        stream: StreamId(1),
        topic: TopicId(2),
        settings: PartitionSettings {
            durability: Durability::Persisted,
            offset_durability: Durability::Replicated,
            segment_bytes: SEGMENT_BYTES,
        },
    }
}

/// A batch as its owner stamps it; payloads tell the op that appended them.
fn batch(op: u64, count: u32, partition: u32, at: BatchStamp) -> Bytes {
    let mut builder = BatchBuilder::new();
    for index in 0..count {
        let id = u128::from(op) << 32 | u128::from(index);
        builder.push(id, Micros(5), &op.to_le_bytes(), &[]).unwrap();
    }
    let mut bytes = builder.finish().unwrap();
    stamp(&mut bytes, PartitionId(partition), at.base_offset, at.timestamp).unwrap();
    bytes.freeze()
}

/// A journal entry.
#[derive(Clone)]
struct Entry {
    op: Op,
    timestamp: Micros,
    prefix: Vec<u8>,
    batch: Bytes,
}

/// What one partition must hold.
#[derive(Clone, Default)]
struct Model {
    /// The op that appended each message.
    messages: Vec<u64>,
    /// The first message that is retained.
    start: u64,
    /// Messages and bytes of each batch, from the first ever.
    batches: Vec<(u64, u64)>,
    offsets: BTreeMap<ConsumerKey, u64>,
    receipts: BTreeMap<Identity, Receipt>,
}

impl Model {
    /// Where each segment that was ever sealed ends, and the bytes up to there: each batch is added to the last segment,
    /// and the one that fills it is its last.
    fn sealed(&self) -> Vec<(u64, u64)> {
        let (mut ends, mut end, mut total, mut filled) = (Vec::new(), 0, 0, 0);
        for (messages, bytes) in &self.batches {
            (end, total, filled) = (end + messages, total + bytes, filled + bytes);
            if filled >= SEGMENT_BYTES {
                ends.push((end, total));
                filled = 0;
            }
        }
        ends
    }

    /// Where the log starts after a delete of the oldest `count` segments.
    fn start_after(&self, count: u32) -> Option<u64> {
        let barrier = self.offsets.values().min();
        let free = |end: &u64| *end > self.start && barrier.is_none_or(|barrier| barrier + 1 >= *end);
        let ends = self.sealed().into_iter().map(|(end, _)| end).filter(|end| *end > self.start);
        ends.take_while(free).take(count as usize).last()
    }

    /// Bytes that are retained.
    fn bytes(&self) -> u64 {
        let total: u64 = self.batches.iter().map(|(_, bytes)| bytes).sum();
        let removed = self.sealed().into_iter().filter(|(end, _)| *end <= self.start).map(|(_, bytes)| bytes);
        total - removed.max().unwrap_or(0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append { partition: u32, session: u64, again: bool, count: u32, clock_back: bool },
    Store { partition: u32, session: u64, consumer: u64, offset: u64 },
    Delete { partition: u32, session: u64, consumer: u64 },
    Read { partition: u32, consumer: u64, count: u32 },
    DeleteSegments { partition: u32, session: u64, count: u32 },
    Commit { ops: usize },
    Flush { partition: u32, keep: u64 },
    Restart { finish_checkpoint: bool },
    LoseProposals,
}

/// The lane, its journal and its model.
struct World {
    lane: LaneState,
    checkpoint: Option<Vec<u8>>,
    journal: Vec<Entry>,
    applied: usize,
    op_next: u64,
    clock: u64,
    requests: BTreeMap<u64, u64>,
    model: BTreeMap<u32, Model>,
}

impl World {
    fn new() -> Self {
        let mut world = World {
            lane: LaneState::new(LaneId(1), LIMITS),
            checkpoint: None,
            journal: Vec::new(),
            applied: 0,
            op_next: 1,
            clock: 1_000,
            requests: BTreeMap::new(),
            model: BTreeMap::new(),
        };
        for number in 0..2 {
            world.propose(&open(number), Bytes::new());
            world.model.insert(number, Model::default());
        }
        world.commit(2);
        world
    }

    fn op(&self) -> Op {
        Op(self.op_next)
    }

    fn propose(&mut self, op: &LaneOp, batch: Bytes) {
        let entry = Entry { op: self.op(), timestamp: Micros(self.clock), prefix: op.encode(), batch };
        self.journal.push(entry);
        self.op_next += 1;
    }

    fn partition(&mut self, number: u32) -> &mut Partition {
        self.lane.get_mut(key(number)).unwrap()
    }

    fn request(&mut self, session: u64, again: bool) -> Identity {
        let last = self.requests.entry(session).or_insert(0);
        if !again || *last == 0 {
            *last += 1;
        }
        identity(session, *last)
    }

    fn append(&mut self, number: u32, session: u64, again: bool, count: u32, clock_back: bool) {
        let identity = self.request(session, again);
        let (op, clock) = (self.op(), self.clock);
        let expected = self.model[&number].receipts.get(&identity).copied();
        let in_flight = self.in_flight(number, &identity);
        match self.partition(number).admit_append(Some(&identity), count, None, Micros(clock)) {
            Admit::New => {
                assert!(expected.is_none() && in_flight.is_none(), "a request was taken twice");
                let timestamp = Micros(if clock_back { 0 } else { clock });
                let at = self.partition(number).stage_append(op, Some(identity), count, None, timestamp);
                let lane_op = LaneOp::AppendBatch {
                    key: key(number),
                    identity: Some(identity),
                    base_offset: at.base_offset,
                    producer: None,
                };
                self.propose(&lane_op, batch(op.0, count, number, at));
            }
            Admit::Replay(receipt) => assert_eq!(Some(receipt), expected),
            Admit::InFlight(op) => assert_eq!(Some(op), in_flight),
            Admit::Refuse(Status::RequestTooOld | Status::InvalidCommand) => {
                assert!(again, "a new request was refused");
            }
            Admit::Refuse(status) => panic!("refused with {status}"),
        }
    }

    fn in_flight(&self, number: u32, identity: &Identity) -> Option<Op> {
        self.journal[self.applied..].iter().find_map(|entry| match LaneOp::decode(&entry.prefix) {
            Ok(
                LaneOp::AppendBatch { key: other, identity: Some(who), .. }
                | LaneOp::StoreOffset { key: other, identity: Some(who), .. }
                | LaneOp::DeleteOffset { key: other, identity: Some(who), .. }
                | LaneOp::AdvanceStart { key: other, identity: Some(who), .. },
            ) if other == key(number) && who == *identity => Some(entry.op),
            _ => None,
        })
    }

    fn store(&mut self, number: u32, session: u64, consumer: u64, offset: u64) {
        let identity = self.request(session, false);
        let consumer = ConsumerKey::number(ConsumerKind::Consumer, consumer);
        let (op, clock) = (self.op(), Micros(self.clock));
        let offset = Offset(offset);
        let partition = self.partition(number);
        match partition.admit_store_offset(Some(&identity), &consumer, offset, clock) {
            Admit::New => {
                assert!(partition.head() >= Some(offset));
                partition.stage_store_offset(op, Some(identity), &consumer);
                let mode = StoreMode::Explicit;
                let (key, identity) = (key(number), Some(identity));
                self.propose(&LaneOp::StoreOffset { key, identity, consumer, offset, mode }, Bytes::new());
            }
            Admit::Refuse(Status::InvalidOffset) => assert!(partition.head() < Some(offset)),
            Admit::Refuse(Status::TooManyConsumerOffsets) => {
                assert_eq!(partition.offsets().keys(ConsumerKind::Consumer), LIMITS.consumer_offsets_max);
            }
            other => panic!("a store got {other:?}"),
        }
    }

    fn delete(&mut self, number: u32, session: u64, consumer: u64) {
        let identity = self.request(session, false);
        let consumer = ConsumerKey::number(ConsumerKind::Consumer, consumer);
        let (op, clock) = (self.op(), Micros(self.clock));
        let partition = self.partition(number);
        match partition.admit_delete_offset(Some(&identity), &consumer, clock, Nanos(clock.0)) {
            Admit::New => {
                partition.stage_delete_offset(op, Some(identity), &consumer);
                let (key, identity) = (key(number), Some(identity));
                self.propose(&LaneOp::DeleteOffset { key, identity, consumer }, Bytes::new());
            }
            Admit::Refuse(Status::ConsumerOffsetNotFound) => {
                assert_eq!(partition.stored_offset(&consumer), None);
            }
            other => panic!("a delete got {other:?}"),
        }
    }

    /// A committing `Next` read from memory.
    fn read(&mut self, number: u32, consumer: u64, count: u32) {
        let consumer = ConsumerKey::number(ConsumerKind::Consumer, consumer);
        let (op, clock) = (self.op(), Nanos(self.clock));
        let (messages, retained) = (self.model[&number].messages.clone(), self.model[&number].start);
        let partition = self.partition(number);
        let token = partition.fence_token(&consumer, clock).unwrap();
        let limits = ReadLimits { messages: count, record_bytes: u64::MAX };
        let request = PollRequest { start: Start::Offset(token.start), limits };
        let PollPlan::Ready(selection) = PollPlan::build(&partition.view(), &request) else { return };
        let body: Vec<u8> = selection.parts.iter().flatten().copied().collect();
        let got: Vec<u64> = records(&body)
            .flat_map(|record| {
                record.unwrap().messages().map(|message| message.unwrap().id).collect::<Vec<_>>()
            })
            .map(|id| (id >> 32) as u64)
            .collect();
        let start = (token.start.0.max(retained) as usize).min(messages.len());
        let end = (start + count as usize).min(messages.len());
        assert_eq!(got, messages[start..end]);
        let Some(last) = selection.last else { return };
        if !partition.fence_holds(&consumer, token, true) {
            return;
        }
        match partition.auto_commit(&consumer, last, op) {
            Ok(AutoCommit::Submit) => {
                assert_eq!(partition.stored_offset(&consumer), Some(last), "a next read goes on behind it");
                self.propose(&lane::auto_commit_op(key(number), consumer, last), Bytes::new());
            }
            Ok(AutoCommit::Covered) => panic!("a next read returned what was stored"),
            Err(status) => assert_eq!(status, Status::TooManyConsumerOffsets),
        }
    }

    fn delete_segments(&mut self, number: u32, session: u64, count: u32) {
        let identity = self.request(session, false);
        let op = self.op();
        let clock = Micros(self.clock);
        let expected = self.model[&number].start_after(count);
        let partition = self.partition(number);
        assert_eq!(partition.admit_delete_segments(&identity, clock), Admit::New);
        let start = partition.plan_delete_segments(count);
        assert_eq!(start.map(|start| start.0), expected);
        let Some(start) = start else { return };
        partition.stage_delete_segments(op, identity);
        let (key, identity) = (key(number), Some(identity));
        self.propose(&LaneOp::AdvanceStart { key, identity, start }, Bytes::new());
    }

    fn commit(&mut self, ops: usize) {
        for _ in 0..ops {
            let Some(entry) = self.journal.get(self.applied).cloned() else { break };
            self.applied += 1;
            let now = Nanos(self.clock);
            let applied =
                self.lane.apply(entry.op, entry.timestamp, &entry.prefix, entry.batch, now).unwrap();
            self.learn(applied);
        }
    }

    /// Puts into the model what an applied op says it did.
    fn learn(&mut self, applied: Applied) {
        let (key, identity, receipt) = match applied {
            Applied::Appended { key, identity, receipt, head, .. } => {
                let model = self.model.get_mut(&key.partition.0).unwrap();
                assert_eq!(receipt.base_offset.0, model.messages.len() as u64);
                model.messages.extend((0..receipt.message_count).map(|_| receipt.op.0));
                assert_eq!(head.0 + 1, model.messages.len() as u64);
                let bytes = self.journal[self.applied - 1].batch.len() as u64;
                model.batches.push((u64::from(receipt.message_count), bytes));
                (key, identity, receipt)
            }
            Applied::StartAdvanced { key, identity, receipt, start } => {
                let model = self.model.get_mut(&key.partition.0).unwrap();
                assert!(start.0 >= model.start, "the start went back");
                model.start = start.0;
                (key, identity, receipt)
            }
            Applied::OffsetStored { key, identity, receipt } => (key, identity, receipt),
            Applied::OffsetDeleted { key, identity, receipt } => (key, identity, receipt),
            _ => return,
        };
        let model = self.model.get_mut(&key.partition.0).unwrap();
        let entry = &self.journal[self.applied - 1];
        match LaneOp::decode(&entry.prefix).unwrap() {
            LaneOp::StoreOffset { consumer, offset, mode, .. } => {
                let stored = model.offsets.entry(consumer).or_insert(offset.0);
                *stored = match mode {
                    StoreMode::Explicit => offset.0,
                    StoreMode::Auto => offset.0.max(*stored),
                };
            }
            LaneOp::DeleteOffset { consumer, .. } => {
                let there = model.offsets.remove(&consumer).is_some();
                assert_eq!(receipt.status.is_ok(), there);
            }
            _ => {}
        }
        if let Some(identity) = identity {
            model.receipts.insert(identity, receipt);
        }
    }

    fn flush(&mut self, number: u32, keep: u64) {
        let partition = self.partition(number);
        if let Some(head) = partition.head() {
            let bytes: usize = partition.tail_for_flush(head).iter().map(|batch| batch.bytes.len()).sum();
            assert_eq!(bytes as u64, partition.unflushed_bytes());
            partition.flushed(head);
            partition.release_memory(keep);
            assert!(partition.memory_bytes() <= keep, "everything is in segments");
        }
    }

    /// A checkpoint, more ops, a kill, and a recovery from the newest checkpoint and the journal.
    fn restart(&mut self, finish_checkpoint: bool) {
        let mut draft = self.lane.draft_checkpoint();
        let flushed: Vec<_> = draft.to_flush().map(|(key, head, _)| (key, head)).collect();
        for (key, head) in &flushed {
            draft.set_segments(*key, Bytes::copy_from_slice(&head.0.to_le_bytes()));
            // One before, one after more ops: those may remove what was on its way to its segment.
            if finish_checkpoint && key.partition.0 == 0 {
                self.lane.get_mut(*key).unwrap().flushed(*head);
            }
        }
        self.commit(2);
        if finish_checkpoint {
            for (key, head) in &flushed {
                self.lane.get_mut(*key).unwrap().flushed(*head);
            }
            self.checkpoint = Some(draft.finish());
        }
        // Proposals that were not committed are lost with the process.
        self.journal.truncate(self.applied);
        self.op_next = self.journal.last().map_or(1, |entry| entry.op.0 + 1);
        self.recover();
    }

    fn recover(&mut self) {
        let mut lane = match &self.checkpoint {
            Some(bytes) => LaneState::from_checkpoint(bytes, LIMITS).unwrap(),
            None => LaneState::new(LaneId(1), LIMITS),
        };
        let covered = lane.applied();
        for entry in &self.journal {
            let applied =
                lane.apply(entry.op, entry.timestamp, &entry.prefix, entry.batch.clone(), Nanos(0)).unwrap();
            assert_eq!(matches!(applied, Applied::Skipped), entry.op <= covered, "an op twice or never");
        }
        self.lane = lane;
    }

    fn lose_proposals(&mut self) {
        self.journal.truncate(self.applied);
        self.op_next = self.journal.last().map_or(1, |entry| entry.op.0 + 1);
        self.lane.discard_staged();
    }

    fn check(&mut self) {
        assert!(invariants::lane(&self.lane));
        for (number, model) in &self.model {
            let partition = self.lane.get(key(*number)).unwrap();
            assert_eq!(partition.messages(), model.messages.len() as u64 - model.start);
            assert_eq!(partition.retained_start().0, model.start);
            assert_eq!(partition.size_bytes(), model.bytes());
            let sealed = model.sealed().into_iter().filter(|(end, _)| *end > model.start).count();
            assert_eq!(partition.spans().count(), sealed + 1);
            assert_eq!(partition.head().map(|head| head.0), (model.messages.len() as u64).checked_sub(1));
            let committed: BTreeMap<ConsumerKey, u64> = partition
                .offsets()
                .iter_committed()
                .map(|(consumer, offset)| (consumer.clone(), offset.0))
                .collect();
            assert_eq!(committed, model.offsets);
        }
    }

    /// The newest receipts of every session are answered again.
    fn check_receipts(&self) {
        for (number, model) in &self.model {
            let partition = self.lane.get(key(*number)).unwrap();
            for session in 0..MODEL_SESSIONS {
                let of_session = model.receipts.iter().filter(|(who, _)| who.session.0 == session + 1);
                for (who, receipt) in of_session.rev().take(receipts::RECEIPTS_PER_SESSION) {
                    let admit = partition.receipts().admit(who, receipt.kind, Micros(0), 0);
                    assert_eq!(admit, Admit::Replay(*receipt));
                }
            }
        }
    }

    fn step(&mut self, step: Step) {
        self.clock += 7;
        match step {
            Step::Append { partition, session, again, count, clock_back } => {
                self.append(partition, session, again, count, clock_back);
            }
            Step::Store { partition, session, consumer, offset } => {
                self.store(partition, session, consumer, offset);
            }
            Step::Delete { partition, session, consumer } => self.delete(partition, session, consumer),
            Step::Read { partition, consumer, count } => self.read(partition, consumer, count),
            Step::DeleteSegments { partition, session, count } => {
                self.delete_segments(partition, session, count);
            }
            Step::Commit { ops } => self.commit(ops),
            Step::Flush { partition, keep } => self.flush(partition, keep),
            Step::Restart { finish_checkpoint } => self.restart(finish_checkpoint),
            Step::LoseProposals => self.lose_proposals(),
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let partition = 0_u32..2;
    let session = 0..MODEL_SESSIONS;
    prop_oneof![
        6 => (partition.clone(), session.clone(), any::<bool>(), 1_u32..5, any::<bool>()).prop_map(
            |(partition, session, again, count, clock_back)| Step::Append {
                partition, session, again, count, clock_back,
            }
        ),
        3 => (partition.clone(), session.clone(), 0_u64..5, 0_u64..12)
            .prop_map(|(partition, session, consumer, offset)| Step::Store {
                partition, session, consumer, offset,
            }),
        1 => (partition.clone(), session.clone(), 1_u32..3)
            .prop_map(|(partition, session, count)| Step::DeleteSegments { partition, session, count }),
        1 => (partition.clone(), session, 0_u64..5)
            .prop_map(|(partition, session, consumer)| Step::Delete { partition, session, consumer }),
        4 => (partition.clone(), 0_u64..5, 1_u32..6)
            .prop_map(|(partition, consumer, count)| Step::Read { partition, consumer, count }),
        5 => (1_usize..5).prop_map(|ops| Step::Commit { ops }),
        1 => (partition, 0_u64..2_000).prop_map(|(partition, keep)| Step::Flush { partition, keep }),
        1 => any::<bool>().prop_map(|finish_checkpoint| Step::Restart { finish_checkpoint }),
        1 => Just(Step::LoseProposals),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_equals_the_model(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        world.commit(usize::MAX);
        world.check();
        world.check_receipts();
        world.restart(true);
        world.check();
        world.check_receipts();
    }

    #[test]
    fn damaged_checkpoint_is_refused(
        steps in prop::collection::vec(any_step(), 1..20),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
        cut in any::<bool>(),
    ) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.commit(usize::MAX);
        let mut bytes = world.lane.draft_checkpoint().finish();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        prop_assert!(LaneState::from_checkpoint(&bytes, LIMITS).is_err());
    }

    #[test]
    fn any_body_with_a_good_checksum_decodes_or_is_refused(
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = b"LWLC\x03\x00".to_vec();
        bytes.extend_from_slice(&body);
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        let _ = LaneState::from_checkpoint(&bytes, LIMITS);
    }
}

/// An open that comes again after the end, from a primary that had not heard of the end, makes no second life with the
/// same offsets; also not after a checkpoint.
#[test]
fn a_partition_that_ended_is_never_opened_again() {
    let mut lane = LaneState::new(LaneId(1), LIMITS);
    let apply = |lane: &mut LaneState, op: u64, lane_op: &LaneOp| {
        lane.apply(Op(op), Micros(op), &lane_op.encode(), Bytes::new(), Nanos(0)).unwrap()
    };
    assert!(matches!(apply(&mut lane, 1, &open(0)), Applied::Opened { .. }));
    assert!(matches!(apply(&mut lane, 2, &open(0)), Applied::Opened { .. }), "once more changes nothing");
    apply(&mut lane, 3, &LaneOp::FencePartition { key: key(0) });
    assert!(matches!(apply(&mut lane, 4, &open(0)), Applied::Missing { .. }));
    let mut lane = LaneState::from_checkpoint(&lane.to_checkpoint().unwrap(), LIMITS).unwrap();
    assert!(matches!(apply(&mut lane, 5, &open(0)), Applied::Missing { .. }));
    assert!(matches!(apply(&mut lane, 6, &open(1)), Applied::Opened { .. }));
}

#[test]
fn checkpoint_with_batches_in_memory_is_refused() {
    let mut world = World::new();
    world.append(0, 0, false, 3, false);
    world.commit(1);
    let error = world.lane.to_checkpoint().unwrap_err();
    assert!(matches!(error, CheckpointError::Unflushed { key: unflushed, .. } if unflushed == key(0)));
    world.flush(0, 0);
    let lane = {
        let bytes = world.lane.to_checkpoint().unwrap();
        LaneState::from_checkpoint(&bytes, LIMITS).unwrap()
    };
    assert_eq!(lane.get(key(0)).unwrap().disk_end(), Offset(3));
}

#[test]
fn ops_behind_a_fence_find_no_partition() {
    let mut world = World::new();
    world.append(0, 0, false, 3, false);
    world.propose(&LaneOp::FencePartition { key: key(0) }, Bytes::new());
    let late = world.journal[2].clone();
    world.journal.push(Entry { op: Op(world.op_next), ..late });
    world.commit(1);
    let mut applied = Vec::new();
    for entry in &world.journal[world.applied..] {
        let batch = entry.batch.clone();
        applied.push(world.lane.apply(entry.op, entry.timestamp, &entry.prefix, batch, Nanos(0)).unwrap());
    }
    assert!(matches!(&applied[0], Applied::Fenced { partition: Some(ended), .. } if ended.messages() == 3));
    assert!(matches!(applied[1], Applied::Missing { identity: Some(_), .. }));
    assert_eq!(world.lane.len(), 1);
    assert!(invariants::lane(&world.lane));
}

#[test]
fn retired_session_leaves_no_receipts() {
    let mut world = World::new();
    world.append(0, 0, false, 1, false);
    world.append(1, 0, false, 1, false);
    let session = SessionKey { client: ClientId(1), session: SessionEpoch(1) };
    world.propose(&LaneOp::RetireSession { session }, Bytes::new());
    world.commit(3);
    assert!(world.lane.iter().all(|partition| partition.receipts().is_empty()));
    assert!(invariants::lane(&world.lane));
}

#[test]
fn append_with_a_gap_or_an_earlier_time_stops_the_lane() {
    let mut world = World::new();
    world.append(0, 0, false, 3, false);
    world.commit(1);
    let mut apply = |base_offset: u64, timestamp: u64| {
        let at = BatchStamp { base_offset: Offset(base_offset), timestamp: Micros(timestamp) };
        let lane_op =
            LaneOp::AppendBatch { key: key(0), identity: None, base_offset: at.base_offset, producer: None };
        let batch = batch(9, 2, 0, at);
        world.lane.apply(Op(9), Micros(timestamp), &lane_op.encode(), batch, Nanos(0)).unwrap_err()
    };
    assert!(matches!(apply(4, 9_000), ApplyError::Gap { .. }));
    assert!(matches!(apply(2, 9_000), ApplyError::Gap { .. }));
    assert!(matches!(apply(3, 1), ApplyError::TimeWentBack { .. }));
}

#[test]
fn batch_that_a_segment_holds_is_not_appended_again() {
    let mut world = World::new();
    world.append(0, 0, false, 3, false);
    world.commit(1);
    let entry = world.journal[2].clone();
    // The same batch under an op that the checkpoint does not cover.
    let applied = world.lane.apply(Op(50), entry.timestamp, &entry.prefix, entry.batch, Nanos(0)).unwrap();
    assert!(matches!(applied, Applied::Appended { head: Offset(2), .. }));
    assert_eq!(world.lane.get(key(0)).unwrap().messages(), 3);
}
