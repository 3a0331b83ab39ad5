//! A checkpoint is many steps: rotate, append to segments, flush, write checkpoints, delete journals, unlink segments.
//! A crash after any of them must lead to exactly the messages that were acknowledged, each once.

mod support;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use laneway_storage::{DataDirectory, PartitionLog, Placing, Route, SegmentStore, StorageCounters};
use laneway_wire::{LaneId, Offset};
use support::{Shard, batch, copy_directory, partition, placed, record, run};
use tempfile::TempDir;

const SEGMENT_SIZE: u64 = 9_000;

/// Batch `op` of the partition that the lane of the same number holds.
fn batch_of(lane: u32, op: u64) -> Bytes {
    batch(lane, (op - 1) * 2, 1_000 + op, 2, if route_of(op) == Route::Direct { 3_000 } else { 500 })
}

/// Every third batch goes straight to its place.
fn route_of(op: u64) -> Route {
    if op.is_multiple_of(3) { Route::Direct } else { Route::Later }
}

/// Opens a copied directory as the broker does at boot and gives, per lane, all batches in order.
async fn boot(path: &Path) -> Vec<Vec<Bytes>> {
    let directory = DataDirectory::open(path).unwrap();
    let recovery = directory.recover().unwrap();
    let mut logs =
        vec![PartitionLog::new(partition(1), SEGMENT_SIZE), PartitionLog::new(partition(2), SEGMENT_SIZE)];
    for checkpoint in &recovery.checkpoints {
        let lane = checkpoint.lane.0;
        let (log, rest) = PartitionLog::decode(partition(lane), SEGMENT_SIZE, &checkpoint.payload).unwrap();
        assert!(rest.is_empty());
        assert_eq!(log.next_offset().0, checkpoint.op.0 * 2, "the payload is of the op in the header");
        logs[lane as usize - 1] = log;
    }
    directory.reconcile(&logs, recovery.direct_batches()).unwrap();
    let store = SegmentStore::new(directory.clone(), StorageCounters::default().into(), 4);
    let mut lanes = Vec::new();
    for (lane, log) in (1..).zip(&mut logs) {
        let mut batches = stored(&store, log).await;
        let mut waiting = Vec::new();
        for record in recovery.lanes.get(&LaneId(lane)).into_iter().flatten() {
            let (batch, route) = match record.placing {
                Placing::Direct(place) => {
                    (directory.read_direct(place, &record.batch).unwrap(), Route::Direct)
                }
                _ => (record.batch.clone(), Route::Later),
            };
            log.place_again(&record.batch, record.placing.place().unwrap(), route).unwrap();
            waiting.push(batch);
        }
        // The first checkpoint after the start brings everything to its place.
        let plan = log.plan_append(waiting.iter().cloned()).unwrap();
        store.append(&plan).await.unwrap();
        log.appended(&plan);
        batches.extend(waiting);
        assert_eq!(stored(&store, log).await, batches);
        lanes.push(batches);
    }
    lanes
}

async fn stored(store: &SegmentStore, log: &PartitionLog) -> Vec<Bytes> {
    let mut batches = Vec::new();
    let mut offset = log.start_offset();
    while let Some(plan) = log.plan_read(offset, 1_000) {
        let chunk = store.read(plan).await.unwrap();
        let last = chunk.batches.last().expect("a planned read finds its batch");
        offset = Offset(last.header.base_offset.0 + u64::from(last.header.message_count));
        batches.extend(chunk.batches.into_iter().map(|batch| batch.bytes));
    }
    assert_eq!(offset, log.next_offset());
    batches
}

/// Copies of the directory, one after each step.
struct Crashes {
    home: TempDir,
    copies: TempDir,
    taken: Vec<(&'static str, PathBuf)>,
}

impl Crashes {
    fn after(&mut self, step: &'static str) {
        let copy = self.copies.path().join(self.taken.len().to_string());
        copy_directory(self.home.path(), &copy);
        self.taken.push((step, copy));
    }
}

#[test]
fn a_crash_between_any_two_steps_of_a_checkpoint_loses_and_repeats_nothing() {
    let mut crashes =
        Crashes { home: TempDir::new().unwrap(), copies: TempDir::new().unwrap(), taken: Vec::new() };
    run(async {
        let directory = DataDirectory::open(crashes.home.path()).unwrap();
        let mut shard = Shard::start(&directory, 0).await;
        let mut logs = vec![
            PartitionLog::new(partition(1), SEGMENT_SIZE),
            PartitionLog::new(partition(2), SEGMENT_SIZE),
        ];
        let mut acknowledged = 0;
        for round in 1..=3u64 {
            for op in acknowledged + 1..=acknowledged + 4 {
                let records: Vec<_> = (1..)
                    .zip(logs.iter_mut())
                    .map(|(lane, log)| placed(log, route_of(op), record(lane, op, batch_of(lane, op))))
                    .collect();
                shard.write(records).await;
                if round == 1 {
                    crashes.after("a write");
                    let copy = crashes.taken.pop().unwrap().1;
                    let expected: Vec<Vec<Bytes>> =
                        [1, 2].map(|lane| (1..=op).map(|op| batch_of(lane, op)).collect()).into();
                    assert_eq!(boot(&copy).await, expected, "crash after op {op}");
                }
            }
            acknowledged += 4;
            let expected: Vec<Vec<Bytes>> =
                [1, 2].map(|lane| (1..=acknowledged).map(|op| batch_of(lane, op)).collect()).into();
            crashes.taken.clear();
            checkpoint(&mut shard, &mut logs, &mut crashes, round, acknowledged).await;
            for (step, copy) in &crashes.taken {
                assert_eq!(boot(copy).await, expected, "round {round}, crash after {step}");
                assert_eq!(boot(copy).await, expected, "round {round}, second boot after {step}");
            }
        }
    });
}

async fn checkpoint(
    shard: &mut Shard,
    logs: &mut [PartitionLog],
    crashes: &mut Crashes,
    round: u64,
    acknowledged: u64,
) {
    crashes.after("the last write");
    let place = shard.journal.rotate(|| shard.planner.close()).await.unwrap();
    shard.planner.rotated(place);
    crashes.after("rotation");
    let frozen: Vec<Vec<u8>> = logs
        .iter()
        .map(|log| {
            let mut list = Vec::new();
            log.encode_at(Offset(acknowledged * 2), &mut list);
            list
        })
        .collect();
    for (lane, log) in (1..).zip(logs.iter_mut()) {
        let tail: Vec<Bytes> =
            (log.next_offset().0 / 2 + 1..=acknowledged).map(|op| batch_of(lane, op)).collect();
        let plan = log.plan_append(tail).unwrap();
        for step in &plan.steps {
            let mut one = plan.clone();
            one.steps = vec![step.clone()];
            shard.segments.append(&one).await.unwrap();
            crashes.after("one segment write");
        }
        log.appended(&plan);
    }
    shard.segments.flush().await.unwrap();
    crashes.after("the flush of segments");
    for (lane, payload) in (1..).zip(frozen) {
        // A checkpoint that was being written when the crash came.
        let beside = crashes.home.path().join(format!("lanes/{lane}.checkpoint.tmp"));
        std::fs::write(&beside, &payload[..10]).unwrap();
        crashes.after("half of a checkpoint");
        shard.checkpoint(lane, acknowledged, payload).await;
        crashes.after("a checkpoint");
        shard.planner.checkpointed(LaneId(lane), laneway_wire::Op(acknowledged));
    }
    let deletable = shard.planner.take_deletable();
    assert_eq!(deletable.len(), 1, "round {round}: the rotated file");
    shard.journal.recycle(&deletable).await.unwrap();
    crashes.after("the removal of the journal");
}

#[test]
fn retention_gives_space_back_and_a_crash_before_the_unlink_does_too() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let shard = Shard::start(&directory, 0).await;
        let mut log = PartitionLog::new(partition(1), SEGMENT_SIZE);
        shard.append(&mut log, (1..=9).map(|op| batch_of(1, op)).collect()).await;
        shard.segments.flush().await.unwrap();
        let files = log.segments().len();
        assert!(files >= 3);
        let gone = log.advance_start(log.segments()[1].next);
        assert_eq!(gone.len(), 2);
        // The crash comes after the checkpoint without them and before the unlink.
        let report = directory.reconcile([&log], []).unwrap();
        assert_eq!((report.removed, report.cut), (2, 0));
        shard.segments.remove(gone).await.unwrap();
        let rest: Vec<_> = log.files().collect();
        shard.segments.remove(rest).await.unwrap();
        let report = directory.reconcile([], []).unwrap();
        assert_eq!(report.removed, 0, "nothing was left of the partition");
    });
}

#[test]
fn a_segment_longer_than_recorded_is_cut_and_a_shorter_one_refused() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let shard = Shard::start(&directory, 0).await;
        let mut log = PartitionLog::new(partition(1), 1 << 30);
        shard.append(&mut log, vec![batch_of(1, 1)]).await;
        let recorded = log.clone();
        shard.append(&mut log, (2..=4).map(|op| batch_of(1, op)).collect()).await;
        let report = directory.reconcile([&recorded], []).unwrap();
        assert_eq!((report.cut, report.cut_bytes), (1, 12_288 - batch_of(1, 1).len() as u64));
        let error = directory.reconcile([&log], []).unwrap_err().to_string();
        assert!(error.contains("partition 9-1: segment 9-1-00000000000000000000.segment has"), "{error}");
        std::fs::remove_file(log.files().next().unwrap().path(home.path())).unwrap();
        assert!(directory.reconcile([&recorded], []).is_err());
    });
}
