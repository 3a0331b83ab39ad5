//! Whole data directories: written, killed, damaged, opened again.

mod support;

use std::{fs, path::Path};

use bytes::Bytes;
use laneway_storage::{DataDirectory, JournalName, PartitionLog, Route, StorageError, driver::Recovery};
use laneway_wire::{LaneId, Op};
use support::{JOURNAL_BYTES, Shard, batch, partition, placed, record, run};
use tempfile::TempDir;

/// Writes ops 1 to `ops` of lanes 1 and 2 in one journal of shard 0, and lets the journal say that they arrived.
fn written(ops: u64) -> TempDir {
    write(ops, true)
}

fn write(ops: u64, attest: bool) -> TempDir {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let mut shard = Shard::start(&directory, 0).await;
        for op in 1..=ops {
            shard.write([record(1, op, batch_of(op)), record(2, op, Bytes::new())]).await;
        }
        if attest {
            shard.planner.request_attest();
            shard.write([]).await;
        }
    });
    home
}

fn batch_of(op: u64) -> Bytes {
    Bytes::from(vec![op as u8; 100 * op as usize])
}

fn recover(path: &Path) -> Result<Recovery, StorageError> {
    DataDirectory::open(path)?.recover()
}

fn ops(recovery: &Recovery, lane: u32) -> Vec<u64> {
    recovery
        .lanes
        .get(&LaneId(lane))
        .map_or(vec![], |records| records.iter().map(|record| record.op.0).collect())
}

fn journal_path(root: &Path) -> std::path::PathBuf {
    JournalName { shard: 0, sequence: 1 }.path(root)
}

/// Puts a changed form of the journal in its place, and recovers. Every call changes the journal as it was written.
struct Damager<'a> {
    home: &'a TempDir,
    whole: Vec<u8>,
}

impl<'a> Damager<'a> {
    fn new(home: &'a TempDir) -> Damager<'a> {
        Damager { home, whole: fs::read(journal_path(home.path())).unwrap() }
    }

    fn recover(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<Recovery, StorageError> {
        let path = journal_path(self.home.path());
        let mut bytes = self.whole.clone();
        change(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        let recovered = recover(self.home.path());
        if recovered.is_err() {
            assert_eq!(fs::read(&path).unwrap(), bytes, "a refusal changes nothing");
        }
        recovered
    }
}

/// Where records start, and where the last one ends.
fn bounds(home: &TempDir) -> Vec<u64> {
    let path = journal_path(home.path());
    let whole = fs::read(&path).unwrap();
    let recovery = recover(home.path()).unwrap();
    // Recovery has ended the file, which is not what the tests are about.
    fs::write(&path, &whole).unwrap();
    let mut bounds: Vec<u64> = recovery.lanes.values().flatten().map(|record| record.position).collect();
    bounds.sort();
    let last = recovery.lanes.values().flatten().max_by_key(|record| record.position).unwrap();
    bounds.push(bounds[bounds.len() - 1] + 160 + (last.prefix.len() + last.batch.len()) as u64);
    bounds
}

#[test]
fn everything_acknowledged_is_there_after_a_kill() {
    let home = written(3);
    let recovery = recover(home.path()).unwrap();
    assert_eq!((ops(&recovery, 1), ops(&recovery, 2)), (vec![1, 2, 3], vec![1, 2, 3]));
    let record = &recovery.lanes[&LaneId(1)][1];
    assert_eq!((record.view, record.timestamp.0), (1, 1_002));
    assert_eq!((&record.prefix[..], &record.batch), (&b"op 2 of lane 1"[..], &batch_of(2)));
    assert!(recovery.torn.is_empty() && recovery.checkpoints.is_empty());
    assert_eq!(recovery.journals[0].highest.get(&LaneId(2)), Some(&Op(3)));
}

#[test]
fn a_tail_of_which_any_sector_is_missing_is_cut_once() {
    let home = write(3, false);
    let bounds = bounds(&home);
    let (start, end) = (bounds[4], bounds[6]);
    let damager = Damager::new(&home);
    for sector in (start..end).step_by(512) {
        let recovery =
            damager.recover(|bytes| bytes[sector as usize..sector as usize + 512].fill(0)).unwrap();
        let found = (ops(&recovery, 1), ops(&recovery, 2));
        let expected = if sector <= bounds[5] - 512 { vec![1, 2] } else { found.0.clone() };
        assert_eq!((&found.0, &found.1), (&expected, &vec![1, 2]), "sector {sector}");
        assert!(recovery.torn.len() <= 1, "sector {sector}");
        let again = recover(home.path()).unwrap();
        assert!(again.torn.is_empty());
        assert_eq!((ops(&again, 1), ops(&again, 2)), found);
    }
}

#[test]
fn a_file_that_somebody_cut_is_refused() {
    let home = written(3);
    let damager = Damager::new(&home);
    for length in [JOURNAL_BYTES as usize - 1, bounds(&home)[5] as usize, 8192, 4096] {
        let error = damager.recover(|bytes| bytes.truncate(length)).unwrap_err();
        assert!(
            matches!(error, StorageError::Damaged { position, .. } if position == length as u64),
            "{error}"
        );
    }
}

#[test]
fn garbage_behind_the_last_record_boots_twice() {
    for (home, attested) in [(write(2, false), false), (written(2), true)] {
        let last = *bounds(&home).last().unwrap();
        // In the padding of the last block, at the next one, and behind the file.
        let padding = if attested { last.next_multiple_of(4096) + 160 } else { last.next_multiple_of(8) };
        for at in [padding, last.next_multiple_of(4096) + 4096, JOURNAL_BYTES] {
            let damager = Damager::new(&home);
            let recovery = damager
                .recover(|bytes| {
                    bytes.resize(bytes.len().max(at as usize + 40), 0);
                    bytes[at as usize..at as usize + 40].fill(0x5a);
                })
                .unwrap();
            assert_eq!(ops(&recovery, 1), vec![1, 2]);
            let again = recover(home.path()).unwrap();
            assert!(again.torn.is_empty());
            assert_eq!(ops(&again, 2), vec![1, 2]);
            fs::write(journal_path(home.path()), damager.whole).unwrap();
        }
    }
}

#[test]
fn a_flipped_bit_is_refused_with_file_and_position() {
    let home = written(3);
    let bounds = bounds(&home);
    let damager = Damager::new(&home);
    for (record, start) in bounds[..6].iter().enumerate() {
        // Every byte of the header, then the body in steps; the last bytes may be padding.
        let batch = if record % 2 == 0 { batch_of(record as u64 / 2 + 1).len() as u64 } else { 0 };
        let body = (start + 160..start + 160 + 14 + batch).step_by(13);
        for at in (*start..start + 160).chain(body) {
            let recovered = damager.recover(|bytes| bytes[at as usize] ^= 0x10);
            let error = recovered.expect_err("damage is never guessed over");
            let StorageError::Damaged { path, position, .. } = &error else { panic!("{error}") };
            assert_eq!((path, position), (&journal_path(home.path()), start), "record {record} at {at}");
            assert!(error.to_string().contains("00000-000000000001.journal is damaged at byte"), "{error}");
        }
    }
}

#[test]
fn a_batch_that_did_not_reach_its_place_ends_the_log_and_one_that_did_is_trusted() {
    let home = TempDir::new().unwrap();
    let mut places = Vec::new();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let mut shard = Shard::start(&directory, 0).await;
        let mut log = PartitionLog::new(partition(1), 1 << 30);
        for op in 1..=3 {
            let record = placed(&mut log, Route::Direct, record(1, op, batch(1, op - 1, 1_000, 1, 9_000)));
            places.extend(record.placing.place());
            shard.write([record, self::record(2, op, Bytes::new())]).await;
        }
    });
    let segment = places[0].file.path(home.path());
    let whole = fs::read(&segment).unwrap();
    let damager = Damager::new(&home);
    for (op, expected) in [(3, Some(2)), (2, None)] {
        let mut bytes = whole.clone();
        bytes[places[op - 1].position as usize + 5_000] ^= 1;
        fs::write(&segment, &bytes).unwrap();
        let recovery = damager.recover(|_| {}).unwrap();
        // The journal says of all but the last that they had arrived: their damage is found when they are read.
        let last = expected.unwrap_or(3);
        assert_eq!((ops(&recovery, 1), ops(&recovery, 2)), ((1..=last).collect(), (1..=last).collect()));
        assert_eq!(recovery.torn.len(), usize::from(expected.is_some()));
        let directory = DataDirectory::open(home.path()).unwrap();
        let found = directory.read_direct(places[op - 1], &batch(1, op as u64 - 1, 1_000, 1, 9_000)[..256]);
        assert!(matches!(found, Err(StorageError::BatchDamaged { .. })));
    }
    fs::remove_file(&segment).unwrap();
    let recovery = damager.recover(|_| {}).unwrap();
    assert_eq!(ops(&recovery, 1), vec![1, 2]);
    let error =
        DataDirectory::open(home.path()).unwrap().reconcile([], recovery.direct_batches()).unwrap_err();
    assert!(matches!(error, StorageError::SegmentShort { found: 0, .. }), "{error}");
}

#[test]
fn a_damaged_body_names_its_lane_and_op() {
    let home = written(2);
    let first = bounds(&home)[0];
    let recovered = Damager::new(&home).recover(|bytes| bytes[first as usize + 170] ^= 1);
    let message = recovered.unwrap_err().to_string();
    assert!(message.contains("body checksum mismatch (lane 1, op 1)"), "{message}");
}

#[test]
fn an_empty_file_or_a_missing_header_is_refused() {
    let home = written(1);
    let damager = Damager::new(&home);
    for length in [0, 1, 4095] {
        let recovered = damager.recover(|bytes| bytes.truncate(length));
        assert!(matches!(recovered, Err(StorageError::Damaged { position: 0, .. })), "length {length}");
    }
    let recovered = damager.recover(|bytes| bytes[..4096].fill(0));
    assert!(matches!(recovered, Err(StorageError::Damaged { position: 0, .. })));
    let recovered = damager.recover(|bytes| bytes[100] ^= 1);
    assert!(matches!(recovered, Err(StorageError::Damaged { position: 0, .. })), "reserved bytes count too");
}

#[test]
fn a_journal_under_another_name_or_of_another_disk_is_refused() {
    let home = written(1);
    let other = TempDir::new().unwrap();
    run(async { drop(DataDirectory::open(other.path()).unwrap()) });
    fs::copy(journal_path(home.path()), journal_path(other.path())).unwrap();
    assert!(matches!(recover(other.path()), Err(StorageError::ForeignFile { .. })));
    let renamed = JournalName { shard: 4, sequence: 1 }.path(home.path());
    fs::rename(journal_path(home.path()), renamed).unwrap();
    assert!(matches!(recover(home.path()), Err(StorageError::Damaged { position: 0, .. })));
}

#[test]
fn a_file_followed_by_another_of_its_shard_cannot_be_open() {
    let home = write(2, false);
    let whole = fs::read(journal_path(home.path())).unwrap();
    let last = bounds(&home)[2] as usize;
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        directory.recover().unwrap();
        Shard::start(&directory, 0).await.write([record(1, 3, Bytes::new())]).await;
    });
    let recovered = Damager::new(&home).recover(|bytes| bytes.clone_from(&whole));
    assert!(matches!(recovered, Err(StorageError::Damaged { .. })), "its end was lost");
    let recovered = Damager::new(&home).recover(|bytes| bytes[last..last + 4096].fill(0));
    assert!(matches!(recovered, Err(StorageError::Damaged { .. })));
}

#[test]
fn leftover_temporary_files_count_for_nothing() {
    let home = written(2);
    for name in ["journal/00000-000000000002.journal.tmp", "lanes/1.checkpoint.tmp", "VERSION.tmp"] {
        fs::write(home.path().join(name), b"half").unwrap();
    }
    assert_eq!(ops(&recover(home.path()).unwrap(), 1), vec![1, 2]);
    assert!(!home.path().join("lanes/1.checkpoint.tmp").exists());
}

#[test]
fn ops_below_the_checkpoint_are_skipped_and_a_newer_checkpoint_needs_none() {
    for (op, expected) in [(1, vec![2, 3]), (3, vec![]), (9, vec![])] {
        let home = written(3);
        run(async {
            let directory = DataDirectory::open(home.path()).unwrap();
            Shard::start(&directory, 0).await.checkpoint(1, op, b"state".to_vec()).await;
        });
        let recovery = recover(home.path()).unwrap();
        assert_eq!(ops(&recovery, 1), expected, "checkpoint {op}");
        assert_eq!(ops(&recovery, 2), vec![1, 2, 3]);
        assert_eq!(
            (recovery.checkpoints[0].op, &recovery.checkpoints[0].payload[..]),
            (Op(op), &b"state"[..])
        );
    }
}

#[test]
fn a_damaged_checkpoint_is_refused_by_name() {
    let home = written(1);
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        Shard::start(&directory, 0).await.checkpoint(1, 1, b"state".to_vec()).await;
    });
    let path = home.path().join("lanes/1.checkpoint");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 2;
        fs::write(&path, flipped).unwrap();
        let error = recover(home.path()).unwrap_err();
        assert!(error.to_string().contains("1.checkpoint"), "{error}");
    }
    fs::write(&path, &whole).unwrap();
    fs::rename(&path, home.path().join("lanes/2.checkpoint")).unwrap();
    assert!(matches!(recover(home.path()), Err(StorageError::Damaged { .. })), "name and contents differ");
}

#[test]
fn journals_of_several_runs_and_shards_are_joined() {
    let home = TempDir::new().unwrap();
    // Lane 1 moves from shard 1 of three to shard 0 of one and on to shard 1 of two.
    run(async {
        for (shard, ops) in [(1, 1..=2), (0, 3..=3), (1, 4..=6)] {
            let directory = DataDirectory::open(home.path()).unwrap();
            directory.recover().unwrap();
            let mut shard = Shard::start(&directory, shard).await;
            for op in ops {
                shard.write([record(1, op, batch_of(op))]).await;
            }
        }
    });
    let recovery = recover(home.path()).unwrap();
    assert_eq!(ops(&recovery, 1), vec![1, 2, 3, 4, 5, 6]);
    assert_eq!(recovery.journals.len(), 3);
    fs::remove_file(JournalName { shard: 0, sequence: 2 }.path(home.path())).unwrap();
    let error = recover(home.path()).unwrap_err();
    assert!(matches!(error, StorageError::Gap { expected: Op(3), found: Op(4), .. }), "{error}");
}

#[test]
fn a_second_broker_is_refused_and_told_who_has_the_directory() {
    let home = TempDir::new().unwrap();
    let first = DataDirectory::open(home.path()).unwrap();
    let error = DataDirectory::open(home.path()).unwrap_err();
    let process = std::process::id();
    assert!(error.to_string().ends_with(&format!("in use by another broker (process {process})")), "{error}");
    drop(first);
    DataDirectory::open(home.path()).unwrap();
}

#[test]
fn a_newer_format_and_a_strange_directory_are_refused_untouched() {
    let home = written(1);
    let path = home.path().join("VERSION");
    let mut version = fs::read(&path).unwrap();
    version[16] = 2;
    fs::write(&path, &version).unwrap();
    let error = DataDirectory::open(home.path()).unwrap_err();
    assert!(
        error.to_string().ends_with("VERSION has format version 2, this broker reads up to 1"),
        "{error}"
    );

    let strange = TempDir::new().unwrap();
    fs::write(strange.path().join("letters.txt"), b"mine").unwrap();
    assert!(matches!(DataDirectory::open(strange.path()), Err(StorageError::NotADataDirectory { .. })));
    assert_eq!(fs::read_dir(strange.path()).unwrap().count(), 1);

    fs::remove_file(&path).unwrap();
    let error = DataDirectory::open(home.path()).unwrap_err();
    assert!(matches!(error, StorageError::NotADataDirectory { .. }), "journals without VERSION: {error}");
}

#[test]
fn an_interrupted_first_start_is_finished() {
    let home = TempDir::new().unwrap();
    fs::create_dir_all(home.path().join("segments/00")).unwrap();
    fs::create_dir_all(home.path().join("journal")).unwrap();
    fs::write(home.path().join("VERSION.tmp"), b"half").unwrap();
    let directory = DataDirectory::open(home.path()).unwrap();
    assert!(directory.recover().unwrap().lanes.is_empty());
    assert_eq!(directory.first_sequence(), 1);
}
