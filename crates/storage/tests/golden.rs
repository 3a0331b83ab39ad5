//! Format version 1 as it was first written: the fixture is a data directory that every later release must open. The
//! encoders must still write the same bytes; a change of them needs a new format version and a new fixture beside
//! this one.

mod support;

use std::{fs, path::Path};

use bytes::Bytes;
use laneway_storage::{
    DataDirectory, GroupCommit, GroupLimits, JournalName, PartitionLog, Placing, Route, SegmentStore,
    StorageCounters, SyncClass, checkpoint,
    journal::{JournalHeader, JournalPlace, header::BootId},
    layout,
    version::{DiskId, Version},
};
use laneway_wire::{LaneId, Micros, Offset, Op};
use support::{batch, copy_directory, partition, placed, record, run};
use tempfile::TempDir;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1");
const DISK: DiskId = DiskId(0x000102030405060708090a0b0c0d0e0f);
const CREATED: Micros = Micros(1_800_000_000_000_000);

/// Every file of the fixture, as the code writes it today.
fn files() -> Vec<(String, Vec<u8>)> {
    let version = Version { format: 1, created: CREATED, disk: DISK };
    let name = JournalName { shard: 3, sequence: 7 };
    let header = JournalHeader { name, disk: DISK, boot: BootId(0x77), created: CREATED, file_bytes: 32_768 };
    let mut journal = header.encode();
    let mut log = PartitionLog::new(partition(1), 1 << 20);
    let plan = log.plan_append([batch(1, 0, 1_800, 2, 30)]).unwrap();
    log.appended(&plan);
    let mut payload = Vec::new();
    log.encode(&mut payload);
    let mut segment = plan.steps[0].batches.concat();
    let mut planner = GroupCommit::new(JournalPlace { name, tag: header.tag() }, GroupLimits::default());
    let mut replicated = placed(&mut log, Route::Later, record(5, 2, batch(1, 2, 1_900, 2, 30)));
    replicated.class = SyncClass::Replicated;
    let direct = placed(&mut log, Route::Direct, record(5, 3, batch(1, 4, 2_000, 2, 1_500)));
    segment.resize(direct.placing.place().unwrap().position as usize, 0);
    segment.extend(&direct.batch);
    segment.resize(segment.len().next_multiple_of(4096), 0);
    for record in [replicated, record(6, 1, Bytes::new()), direct] {
        planner.push(record).unwrap();
        let group = planner.begin().unwrap();
        journal.extend(&group.block);
        planner.complete(group);
    }
    planner.request_attest();
    let group = planner.begin().unwrap();
    journal.extend(&group.block);
    planner.complete(group);
    journal.extend(&planner.close().block);
    journal.resize(32_768, 0);
    let mut lane = checkpoint::encode_header(DISK, LaneId(5), Op(1), &payload).to_vec();
    lane.extend(payload);
    let file = plan.steps[0].file;
    let root = Path::new("");
    vec![
        (layout::VERSION.to_owned(), version.encode().to_vec()),
        (name.path(root).display().to_string(), journal),
        (layout::checkpoint_path(root, LaneId(5)).display().to_string(), lane),
        (file.path(root).display().to_string(), segment),
    ]
}

#[test]
fn version_1_is_still_written_byte_for_byte() {
    for (name, bytes) in files() {
        let golden = fs::read(Path::new(FIXTURE).join(&name)).unwrap();
        let differs = golden.iter().zip(&bytes).position(|(old, new)| old != new);
        assert_eq!((differs, golden.len()), (None, bytes.len()), "{name}");
    }
}

#[test]
fn version_1_opens() {
    let home = TempDir::new().unwrap();
    copy_directory(Path::new(FIXTURE), home.path());
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        assert_eq!((directory.disk(), directory.first_sequence()), (DISK, 8));
        let recovery = directory.recover().unwrap();
        let ops = |lane| recovery.lanes[&LaneId(lane)].iter().map(|record| record.op.0).collect::<Vec<_>>();
        assert_eq!((ops(5), ops(6)), (vec![2, 3], vec![1]));
        let last = &recovery.lanes[&LaneId(5)][1];
        assert_eq!((last.class, last.view, last.timestamp), (SyncClass::Persisted, 1, Micros(1_003)));
        let Placing::Direct(place) = last.placing else { panic!("{:?}", last.placing) };
        assert_eq!(directory.read_direct(place, &last.batch).unwrap(), batch(1, 4, 2_000, 2, 1_500));
        assert_eq!(recovery.lanes[&LaneId(5)][0].class, SyncClass::Replicated);
        let checkpoint = &recovery.checkpoints[0];
        assert_eq!((checkpoint.lane, checkpoint.op), (LaneId(5), Op(1)));
        let (log, _) = PartitionLog::decode(partition(1), 1 << 20, &checkpoint.payload).unwrap();
        let report = directory.reconcile([&log], recovery.direct_batches()).unwrap();
        assert_eq!((report.cut, report.removed), (0, 0));
        let store = SegmentStore::new(directory.clone(), StorageCounters::default().into(), 4);
        let chunk = store.read(log.plan_read(Offset(1), 1).unwrap()).await.unwrap();
        assert_eq!(chunk.batches[0].bytes, batch(1, 0, 1_800, 2, 30));
    });
}

/// Writes a fixture that does not exist yet. Never run over one that was released.
#[test]
#[ignore = "makes the fixture of a new format version"]
fn make_the_fixture() {
    for (name, bytes) in files() {
        let path = Path::new(FIXTURE).join(name);
        assert!(!path.exists(), "golden bytes are never rewritten");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}
