//! A file system without room. Needs one to fill: give a small, empty one (8 MiB or so) in `LANEWAY_TEST_SMALL_DISK`.

mod support;

use bytes::Bytes;
use laneway_storage::{DataDirectory, StorageError};
use laneway_wire::LaneId;
use support::{Shard, record, run};

#[test]
#[ignore = "needs a small file system of its own in LANEWAY_TEST_SMALL_DISK"]
fn a_full_disk_is_a_typed_error_and_writing_goes_on_once_there_is_room() {
    let home =
        std::env::var_os("LANEWAY_TEST_SMALL_DISK").expect("LANEWAY_TEST_SMALL_DISK names a directory");
    let home = std::path::PathBuf::from(home).join("data");
    let body = |op: u64| Bytes::from(vec![op as u8; 100_000]);
    let acknowledged = run(async {
        let directory = DataDirectory::open(&home).unwrap();
        let mut shard = Shard::start(&directory, 0).await;
        let filler = home.with_file_name("filler");
        std::fs::write(&filler, vec![0; 2 << 20]).unwrap();
        let mut op = 0;
        let failure = loop {
            op += 1;
            assert!(op < 10_000, "the file system is not small");
            shard.planner.push(record(1, op, body(op))).unwrap();
            match shard.journal.write_group(shard.planner.begin().unwrap()).await {
                Ok(group) => drop(shard.planner.complete(group)),
                Err(failure) => break failure,
            }
        };
        assert!(matches!(failure.error, StorageError::OutOfSpace { operation: "write", .. }), "{failure:?}");
        assert!(failure.may_retry());
        shard.planner.retry(failure.group);
        let refused = shard.journal.write_group(shard.planner.begin().unwrap()).await.unwrap_err();
        shard.planner.retry(refused.group);
        let payload = Bytes::from(vec![1; 1 << 20]);
        let checkpoint =
            directory.write_checkpoint(LaneId(9), laneway_wire::Op(1), payload, &shard.counters).await;
        assert!(matches!(checkpoint, Err(StorageError::OutOfSpace { .. })), "{checkpoint:?}");
        assert_eq!(std::fs::read_dir(home.join("lanes")).unwrap().count(), 0, "nothing half-written stays");
        std::fs::remove_file(filler).unwrap();
        for more in op + 1..op + 5 {
            shard.planner.push(record(1, more, body(more))).unwrap();
        }
        let progress = shard.write([]).await;
        assert_eq!(progress.synced, vec![(LaneId(1), laneway_wire::Op(op + 4))]);
        op + 4
    });
    let recovery = DataDirectory::open(&home).unwrap().recover().unwrap();
    let records = &recovery.lanes[&LaneId(1)];
    assert_eq!(records.last().map(|record| record.op.0), Some(acknowledged));
    assert!(records.iter().all(|record| record.batch == body(record.op.0)));
}
