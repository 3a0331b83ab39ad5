//! Whole data directories: written, killed, damaged, opened again.

mod support;

use std::{fs, path::Path};

use bytes::Bytes;
use laneway_storage::{DataDirectory, JournalName, StorageError, driver::Recovery};
use laneway_wire::{LaneId, Op};
use support::{Shard, record, run};
use tempfile::TempDir;

/// Writes ops 1 to `ops` of lanes 1 and 2 in one journal of shard 0.
fn written(ops: u64) -> TempDir {
    let home = TempDir::new().unwrap();
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        let mut shard = Shard::start(&directory, 0).await;
        for op in 1..=ops {
            shard.write([record(1, op, batch_of(op)), record(2, op, Bytes::new())]).await;
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
    let recovery = recover(home.path()).unwrap();
    let mut bounds: Vec<u64> = recovery.lanes.values().flatten().map(|record| record.position).collect();
    bounds.sort();
    bounds.push(fs::metadata(journal_path(home.path())).unwrap().len());
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
fn a_tail_torn_at_any_length_is_cut_once() {
    let home = written(3);
    let bounds = bounds(&home);
    let [last, end] = bounds[bounds.len() - 2..] else { unreachable!("six records") };
    let damager = Damager::new(&home);
    for length in last..end {
        let recovery = damager.recover(|bytes| bytes.truncate(length as usize)).unwrap();
        assert_eq!((ops(&recovery, 1), ops(&recovery, 2)), (vec![1, 2, 3], vec![1, 2]), "length {length}");
        assert_eq!(recovery.torn.len(), usize::from(length > last));
        assert_eq!(fs::metadata(journal_path(home.path())).unwrap().len(), last);
        let again = recover(home.path()).unwrap();
        assert!(again.torn.is_empty());
        assert_eq!(ops(&again, 2), vec![1, 2]);
    }
}

#[test]
fn garbage_behind_the_last_record_boots_twice() {
    let home = written(2);
    let recovery = Damager::new(&home).recover(|bytes| bytes.extend([0x5a; 40])).unwrap();
    assert_eq!(ops(&recovery, 1), vec![1, 2]);
    assert_eq!(recovery.torn[0].bytes, 40);
    let again = recover(home.path()).unwrap();
    assert!(again.torn.is_empty());
    assert_eq!(ops(&again, 2), vec![1, 2]);
}

#[test]
fn a_flipped_bit_is_refused_with_file_and_position() {
    let home = written(3);
    let bounds = bounds(&home);
    let damager = Damager::new(&home);
    for (record, pair) in bounds.windows(2).enumerate() {
        // Every byte of the header, then the body in steps; the last bytes may be padding.
        let body = (pair[0] + 80..pair[1] - 8).step_by(13);
        for at in (pair[0]..pair[0] + 80).chain(body) {
            let recovered = damager.recover(|bytes| bytes[at as usize] ^= 0x10);
            let error = recovered.expect_err("damage is never guessed over");
            let StorageError::Damaged { path, position, .. } = &error else { panic!("{error}") };
            assert_eq!((path, *position), (&journal_path(home.path()), pair[0]), "record {record} at {at}");
            assert!(error.to_string().contains("00000-000000000001.journal is damaged at byte"), "{error}");
        }
    }
}

#[test]
fn a_damaged_body_names_its_lane_and_op() {
    let home = written(2);
    let first = bounds(&home)[0];
    let recovered = Damager::new(&home).recover(|bytes| bytes[first as usize + 90] ^= 1);
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
fn a_file_followed_by_another_of_its_shard_cannot_be_torn() {
    let home = written(2);
    run(async {
        let directory = DataDirectory::open(home.path()).unwrap();
        directory.recover().unwrap();
        Shard::start(&directory, 0).await.write([record(1, 3, Bytes::new())]).await;
    });
    let recovered = Damager::new(&home).recover(|bytes| bytes.truncate(bytes.len() - 20));
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
