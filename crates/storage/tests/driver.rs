//! The driver itself: how many operations it takes, what it keeps open, and what it does when the disk says no.

mod support;

use bytes::{Bytes, BytesMut};
use laneway_storage::{
    DataDirectory, PartitionLog, Placing, Route, StorageError, SyncClass, driver::BlockWrites,
};
use laneway_wire::{LaneId, Offset, Op};
use support::{JOURNAL_BYTES, Shard, batch, partition, placed, record, run};
use tempfile::TempDir;

#[test]
fn a_cycle_costs_one_durable_write_whatever_arrived() {
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
        assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (1, 0));
        assert_eq!(after.durable_writes - before.durable_writes, 1);

        let replicated = |op| {
            let mut record = record(1, op, Bytes::new());
            record.class = SyncClass::Replicated;
            record
        };
        let progress = shard.write([replicated(51)]).await;
        assert_eq!((progress.written, progress.synced), (vec![(LaneId(1), Op(51))], vec![]));
        let unflushed = shard.counters.get();
        assert_eq!((unflushed.flushes, unflushed.durable_writes), (after.flushes, after.durable_writes));

        let progress = shard.write([record(2, 51, Bytes::new())]).await;
        assert_eq!(progress.synced, vec![(LaneId(1), Op(51)), (LaneId(2), Op(51))]);
        assert_eq!(shard.counters.get().flushes, after.flushes + 1, "one flush for both");
    });
}

/// The batch in memory that starts a block, as a connection receives it.
fn aligned(batch: &Bytes) -> Bytes {
    let mut buffer: BytesMut = laneway_storage::blocks::aligned_buffer(batch.len());
    buffer.extend_from_slice(batch);
    buffer.freeze()
}

#[test]
fn large_batches_are_written_once_to_their_places_without_a_copy() {
    for writes in [BlockWrites::Direct, BlockWrites::Buffered] {
        let home = TempDir::new().unwrap();
        run(async {
            let directory = DataDirectory::open_with(home.path(), writes).unwrap();
            let mut shard = Shard::start(&directory, 0).await;
            let mut log = PartitionLog::new(partition(1), 1 << 30);
            let batches: Vec<Bytes> =
                (0..6).map(|n| aligned(&batch(1, n, 1_000, 1, 100_000 + n as usize * 777))).collect();
            let records: Vec<_> = (1..)
                .zip(&batches)
                .map(|(op, batch)| placed(&mut log, Route::Direct, record(1, op, batch.clone())))
                .collect();
            let before = shard.counters.get();
            let progress = shard.write(records.clone()).await;
            assert_eq!(progress.synced, vec![(LaneId(1), Op(6))]);
            let after = shard.counters.get();
            assert_eq!(after.writes - before.writes, 2, "one for the journal, one for the segment");
            assert_eq!(after.moved_bytes, 0);
            let bytes: usize = batches.iter().map(Bytes::len).sum();
            let written = (after.written_bytes - before.written_bytes) as usize;
            assert!(written < bytes + 8 * 4096, "{written} bytes for {bytes}");

            assert_eq!(log.note_direct(Offset(4)), Offset(4), "what is committed");
            assert_eq!(log.note_direct(Offset(6)), Offset(6));
            let chunk = shard.segments.read(log.plan_read(Offset(0), 10 << 20).unwrap()).await.unwrap();
            assert!(chunk.batches.iter().map(|batch| &batch.bytes).eq(&batches));
            log.forget_indexes();
            let chunk = shard.segments.read(log.plan_read(Offset(3), 1).unwrap()).await.unwrap();
            assert_eq!(chunk.batches[0].bytes, batches[3]);
            for record in &records {
                let Placing::Direct(place) = record.placing else { panic!("placed above") };
                assert_eq!(place.position % 4096, 0);
                assert_eq!(directory.read_direct(place, &record.batch[..256]).unwrap(), record.batch);
            }
        });
    }
}

#[test]
fn a_batch_that_is_not_aligned_moves_and_arrives() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let mut shard = Shard::start(&directory, 0).await;
        let mut log = PartitionLog::new(partition(1), 1 << 30);
        let mut bytes = BytesMut::from(&aligned(&batch(1, 0, 1_000, 1, 70_000))[..]);
        bytes.extend_from_slice(b"x");
        let moved = aligned(&Bytes::from([b"x", &bytes[..bytes.len() - 1]].concat())).slice(1..);
        let record = placed(&mut log, Route::Direct, record(1, 1, moved.clone()));
        shard.write([record]).await;
        assert_eq!(shard.counters.get().moved_bytes, moved.len() as u64);
        log.note_direct(Offset(1));
        let chunk = shard.segments.read(log.plan_read(Offset(0), 1).unwrap()).await.unwrap();
        assert_eq!(chunk.batches[0].bytes, moved);
    });
}

#[test]
fn small_batches_between_large_ones_are_filled_in_later() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let mut shard = Shard::start(&directory, 0).await;
        let mut log = PartitionLog::new(partition(1), 150_000);
        let mut all = Vec::new();
        let mut stored = 0;
        for round in 0..4 {
            let mut records = Vec::new();
            for step in 0..20 {
                let n = round * 20 + step;
                let route = if n % 7 == 3 { Route::Direct } else { Route::Later };
                let bytes = if route == Route::Direct { 40_000 } else { 1 + n as usize * 31 };
                let batch = batch(1, n, 1_000 + n, 1, bytes);
                records.push(placed(&mut log, route, record(1, n + 1, batch.clone())));
                all.push(batch);
            }
            shard.write(records).await;
            let end = all.len() as u64;
            log.note_direct(Offset(end));
            let mut ahead = Vec::new();
            log.encode_at(Offset(end), &mut ahead);
            let plan =
                log.plan_append(all[stored..].iter().skip(log.next_offset().0 as usize - stored).cloned());
            let plan = plan.unwrap();
            shard.segments.append(&plan).await.unwrap();
            log.appended(&plan);
            stored = log.next_offset().0 as usize;
            assert_eq!(stored, all.len());
            let mut now = Vec::new();
            log.encode(&mut now);
            assert_eq!(ahead, now, "a checkpoint names what will be there");
        }
        assert!(log.segments().len() > 2);
        log.forget_indexes();
        let mut offset = Offset(0);
        while let Some(plan) = log.plan_read(offset, 100_000) {
            for found in shard.segments.read(plan).await.unwrap().batches {
                assert_eq!(found.bytes, all[found.header.base_offset.0 as usize]);
                offset = Offset(found.header.base_offset.0 + 1);
            }
        }
        assert_eq!(offset, Offset(80));
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
        assert!((1..=64).contains(&flushes), "one for each directory, {flushes}");
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
fn many_small_batches_are_appended_in_few_writes() {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let shard = Shard::start(&directory, 0).await;
        let mut log = PartitionLog::new(partition(0), 1 << 30);
        let all: Vec<Bytes> = (0..2_500).map(|base| batch(0, base, 1_000, 1, 20)).collect();
        let before = shard.counters.get();
        shard.append(&mut log, all.clone()).await;
        assert!(shard.counters.get().writes - before.writes <= 2);
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
        let batches = 2 * batch(3, 0, 1_000, 2, 40).len();
        broken[batches / 2 + 300] ^= 1;
        std::fs::write(&path, &broken).unwrap();
        let error = shard.segments.read(log.plan_read(Offset(2), 1).unwrap()).await.unwrap_err();
        let named =
            format!("partition 9-3: segment {file} is damaged at byte {} (offset 2 or later)", batches / 2);
        assert!(error.to_string().starts_with(&named), "{error}");
        std::fs::write(&path, &whole[..batches - 1]).unwrap();
        let error = shard.segments.read(log.plan_read(Offset(2), 1).unwrap()).await.unwrap_err();
        assert!(matches!(error, StorageError::SegmentShort { .. }), "{error}");
        let plan = log.plan_read(Offset(2), 1).unwrap();
        shard.segments.remove([file]).await.unwrap();
        let error = shard.segments.read(plan).await.unwrap_err();
        assert!(matches!(error, StorageError::SegmentShort { found: 0, .. }), "{error}");
    });
}

#[test]
fn rotation_goes_on_in_the_files_that_nobody_needs_and_all_recover() {
    let home = TempDir::new().unwrap();
    let names = || {
        let entries = std::fs::read_dir(home.path().join("journal")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let mut shard = Shard::start(&directory, 2).await;
        let (mut rotations, mut used_again) = (0, 0);
        for op in 1..=200 {
            shard.planner.push(record(1, op, Bytes::from(vec![1; 5_000]))).unwrap();
            if shard.planner.rotation_due() {
                let place = shard.journal.rotate(|| shard.planner.close()).await.unwrap();
                shard.planner.rotated(place);
                rotations += 1;
                // A checkpoint covers everything but the last ten ops.
                shard.checkpoint(1, op - 10, vec![]).await;
                shard.planner.checkpointed(LaneId(1), Op(op - 10));
                let free = shard.planner.take_deletable();
                let opens = shard.counters.get().opens;
                shard.journal.recycle(&free).await.unwrap();
                assert!(names().len() <= 3, "in use, needed, and next: {:?}", names());
                used_again += u32::from(shard.counters.get().opens > opens);
            }
            shard.write([]).await;
        }
        assert!(rotations > 2 && used_again > 0, "{rotations} rotations, {used_again} files used again");
        let lengths = names()
            .into_iter()
            .map(|name| std::fs::metadata(home.path().join("journal").join(name)).unwrap().len());
        assert!(lengths.into_iter().all(|bytes| bytes == JOURNAL_BYTES));
    });
    let directory = DataDirectory::open(home.path()).unwrap();
    let recovery = directory.recover().unwrap();
    let ops: Vec<u64> = recovery.lanes[&LaneId(1)].iter().map(|record| record.op.0).collect();
    let first = recovery.checkpoints[0].op.0 + 1;
    assert_eq!(ops, (first..=200).collect::<Vec<_>>());
}
