//! The driver itself: how many operations it takes, what it keeps open, and what it does when the disk says no.

mod support;

use std::rc::Rc;

use bytes::Bytes;
use laneway_storage::{
    DataDirectory, GroupCommit, GroupLimits, JournalWriter, PartitionLog, StorageCounters, StorageError,
    SyncClass,
};
use laneway_wire::{LaneId, Offset, Op};
use support::{Shard, batch, partition, record, run};
use tempfile::TempDir;

#[test]
fn a_cycle_costs_one_write_and_one_flush_whatever_arrived() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let mut shard = Shard::start(&directory, 0).await;
        let before = shard.counters.get();
        let records =
            (1..=50).flat_map(|op| [record(1, op, Bytes::from(vec![7; 3_000])), record(2, op, Bytes::new())]);
        let progress = shard.write(records).await;
        assert_eq!(progress.synced, vec![(LaneId(1), Op(50)), (LaneId(2), Op(50))]);
        let after = shard.counters.get();
        assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (1, 1));

        let mut replicated = record(1, 51, Bytes::new());
        replicated.class = SyncClass::Replicated;
        let progress = shard.write([replicated]).await;
        assert_eq!((progress.written, progress.synced), (vec![(LaneId(1), Op(51))], vec![]));
        assert_eq!(shard.counters.get().flushes, after.flushes);
    });
}

#[test]
fn descriptors_stay_bounded_and_closed_files_are_found_again() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let shard = Shard::start(&directory, 0).await;
        let mut logs: Vec<_> = (0..40).map(|number| PartitionLog::new(partition(number), 1 << 20)).collect();
        for round in 0..3 {
            for (number, log) in (0..).zip(logs.iter_mut()) {
                shard.append(log, vec![batch(number, round * 2, 1_000 + round, 2, 10)]).await;
                assert!(shard.segments.open_files() <= 8);
            }
        }
        let before = shard.counters.get();
        shard.segments.flush().await.unwrap();
        let flushes = shard.counters.get().flushes - before.flushes;
        assert!((41..=40 + 64).contains(&flushes), "one for each file and each directory, {flushes}");
        shard.segments.flush().await.unwrap();
        assert_eq!(shard.counters.get().flushes - before.flushes, flushes, "nothing left to flush");
        for log in &mut logs {
            log.forget_indexes();
            let plan = log.plan_read(Offset(3), 1).unwrap();
            let file = plan.file;
            let chunk = shard.segments.read(plan).await.unwrap();
            assert_eq!(chunk.batches[0].header.base_offset, Offset(2));
            log.install_index(file, chunk.index.expect("it was forgotten"));
            let chunk = shard.segments.read(log.plan_read(Offset(3), 1).unwrap()).await.unwrap();
            assert!(chunk.index.is_none(), "the installed index is used");
        }
    });
}

#[test]
fn more_batches_than_one_vectored_write_takes_are_appended() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let shard = Shard::start(&directory, 0).await;
        let mut log = PartitionLog::new(partition(0), 1 << 30);
        let all: Vec<Bytes> = (0..2_500).map(|base| batch(0, base, 1_000, 1, 20)).collect();
        shard.append(&mut log, all.clone()).await;
        let chunk = shard.segments.read(log.plan_read(Offset(0), 1 << 20).unwrap()).await.unwrap();
        assert_eq!(chunk.batches.len(), 2_500);
        assert!(chunk.batches.iter().zip(&all).all(|(found, written)| found.bytes == written));
    });
}

#[test]
fn a_damaged_or_missing_segment_is_a_typed_error() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let shard = Shard::start(&directory, 0).await;
        let mut log = PartitionLog::new(partition(3), 1 << 30);
        shard.append(&mut log, vec![batch(3, 0, 1_000, 2, 40), batch(3, 2, 1_000, 2, 40)]).await;
        let file = log.files().next().unwrap();
        let path = file.path(home.path());
        let whole = std::fs::read(&path).unwrap();
        let mut broken = whole.clone();
        broken[whole.len() / 2 + 300] ^= 1;
        std::fs::write(&path, &broken).unwrap();
        let error = shard.segments.read(log.plan_read(Offset(2), 1).unwrap()).await.unwrap_err();
        let named = format!(
            "partition 9-3: segment {file} is damaged at byte {} (offset 2 or later)",
            whole.len() / 2
        );
        assert!(error.to_string().starts_with(&named), "{error}");
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let error = shard.segments.read(log.plan_read(Offset(2), 1).unwrap()).await.unwrap_err();
        assert!(matches!(error, StorageError::SegmentShort { .. }), "{error}");
        let plan = log.plan_read(Offset(2), 1).unwrap();
        shard.segments.remove([file]).await.unwrap();
        let error = shard.segments.read(plan).await.unwrap_err();
        assert!(matches!(error, StorageError::SegmentShort { found: 0, .. }), "{error}");
    });
}

#[test]
fn rotation_goes_on_in_a_new_file_and_both_recover() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let counters = Rc::new(StorageCounters::default());
        let mut journal = JournalWriter::create(directory.clone(), 2, counters).await.unwrap();
        let limits = GroupLimits { journal_bytes_max: 20_000, ..GroupLimits::default() };
        let mut planner = GroupCommit::new(journal.place(), limits);
        let mut rotations = 0;
        for op in 1..=20 {
            planner.push(record(1, op, Bytes::from(vec![1; 5_000]))).unwrap();
            let group = journal.write_group(planner.begin().unwrap()).await.unwrap();
            planner.complete(group);
            if planner.rotation_due() {
                planner.rotated(journal.rotate().await.unwrap());
                rotations += 1;
            }
        }
        assert_eq!(rotations, 5);
        planner.checkpointed(LaneId(1), Op(9));
        let deletable = planner.take_deletable();
        assert_eq!(deletable.len(), 2, "ops 1 to 8");
        journal.remove(&deletable).await.unwrap();
        Shard::start(&directory, 0).await.checkpoint(1, 9, vec![]).await;
    });
    let recovery = DataDirectory::open(home.path()).unwrap().recover().unwrap();
    let ops: Vec<u64> = recovery.lanes[&LaneId(1)].iter().map(|record| record.op.0).collect();
    assert_eq!(ops, (10..=20).collect::<Vec<_>>());
}
