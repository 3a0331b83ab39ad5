//! The scanner against every crash and many damages of generated journals: what it gives is always a prefix of what was
//! written, holds everything that had arrived, and damage of what had arrived is never taken for a torn tail.

mod support;

use bytes::Bytes;
use laneway_storage::{
    GroupCommit, GroupLimits, JournalName, PartitionLog, Record, Route, SyncClass,
    blocks::BLOCK_BYTES,
    journal::{JournalPlace, LastRun, Scan, ScanEnd, ScannedRecord, scan::scan},
};
use laneway_wire::{LaneId, Micros, Op};
use proptest::prelude::*;
use support::{batch, partition, placed};

const TAG: u64 = 0x1122_3344_5566_7788;
const BLOCK: usize = BLOCK_BYTES as usize;
const BOOTS: [LastRun; 2] = [LastRun::SameBoot, LastRun::OtherBoot];

/// A generated journal: its bytes, its records, and where each group starts and whether it was flushed.
#[derive(Clone, Debug)]
struct Journal {
    file: Vec<u8>,
    records: Vec<ScannedRecord>,
    groups: Vec<(usize, bool)>,
    end: Bytes,
}

impl Journal {
    /// The file as it is when a record ends it.
    fn closed(&self) -> Vec<u8> {
        let mut file = self.file.clone();
        file.extend(&self.end);
        file
    }
}

fn journal(groups: &[Vec<(u32, bool, usize)>]) -> Journal {
    journal_of(groups, TAG)
}

fn journal_of(groups: &[Vec<(u32, bool, usize)>], tag: u64) -> Journal {
    let place = JournalPlace { name: JournalName { shard: 0, sequence: 1 }, tag };
    let mut planner = GroupCommit::new(place, GroupLimits::default());
    let mut file = vec![0; BLOCK];
    let mut next = [0u64; 4];
    let mut starts = Vec::new();
    let mut logs: Vec<_> = (0..4).map(|lane| PartitionLog::new(partition(lane), 1 << 30)).collect();
    for group in groups {
        for (lane, persisted, bytes) in group {
            next[*lane as usize] += 1;
            let op = next[*lane as usize];
            let record = Record {
                lane: LaneId(*lane),
                op: Op(op),
                view: 0,
                timestamp: Micros(op),
                class: if *persisted { SyncClass::Persisted } else { SyncClass::Replicated },
                prefix: Bytes::from(format!("op {op} of lane {lane}")),
                batch: batch(*lane, op - 1, 1_000, 1, *bytes),
                placing: Default::default(),
            };
            let route = if bytes % 5 == 0 { Route::Direct } else { Route::Later };
            let log = &mut logs[*lane as usize];
            planner.push(if bytes % 2 == 0 { record } else { placed(log, route, record) }).unwrap();
            if bytes % 2 == 0 {
                // The place is taken, whether or not the record says so.
                log.place(&batch(*lane, op - 1, 1_000, 1, *bytes), Route::Later).unwrap();
            }
        }
        while let Some(group) = planner.begin() {
            starts.push((file.len(), group.sync != laneway_storage::GroupSync::None));
            file.extend(&group.block);
            planner.complete(group);
        }
    }
    let Scan { records, end, .. } = scan(&Bytes::from(file.clone()), tag, LastRun::SameBoot);
    assert!(matches!(end, ScanEnd::Open { position, torn: false, .. } if position == file.len() as u64));
    assert_eq!(records.len(), groups.iter().map(Vec::len).sum::<usize>());
    Journal { file, records, groups: starts, end: planner.close().block }
}

fn any_journal() -> impl Strategy<Value = Journal> {
    let record = (0..4u32, any::<bool>(), 1..400usize);
    let group = prop::collection::vec(record, 1..25);
    prop::collection::vec(group, 1..6).prop_map(|groups| journal(&groups))
}

fn scan_bytes(file: &[u8], last_run: LastRun) -> Scan {
    scan(&Bytes::from(file.to_vec()), TAG, last_run)
}

/// Records of the groups before a position.
fn before(journal: &Journal, position: usize) -> usize {
    journal.records.iter().filter(|record| record.header.at.position < position as u64).count()
}

#[test]
fn a_crash_after_any_group_keeps_the_groups_before_whatever_the_blocks_held() {
    let groups = [
        vec![(0, true, 10), (1, false, 301)],
        vec![(0, false, 1)],
        vec![(2, true, 9_001), (0, true, 7)],
        vec![(3, true, 5)],
    ];
    let journal = journal(&groups);
    // The file held another journal before, longer than this one.
    let stale = journal_of(&[&groups[..], &groups[2..3]].concat(), TAG + 1).file;
    for (start, _) in journal.groups.iter().copied().chain([(journal.file.len(), true)]) {
        let mut file = stale.clone();
        file[..start].copy_from_slice(&journal.file[..start]);
        for last_run in BOOTS {
            let Scan { records, end, .. } = scan_bytes(&file, last_run);
            assert_eq!(records, journal.records[..before(&journal, start)]);
            let position = start as u64;
            assert!(
                matches!(end, ScanEnd::Open { position: at, torn: false, .. } if at == position),
                "{end:?}"
            );
        }
    }
}

#[test]
fn a_group_that_was_written_in_part_is_torn() {
    let journal = journal(&[vec![(0, true, 10)], vec![(0, true, 9_001), (1, true, 3_001), (1, true, 501)]]);
    let start = journal.groups[1].0;
    for missing in 0..(journal.file.len() - start) / BLOCK {
        let mut file = journal.file.clone();
        file[start + missing * BLOCK..][..BLOCK].fill(0);
        for last_run in BOOTS {
            let Scan { records, end, .. } = scan_bytes(&file, last_run);
            assert!(!records.is_empty() && records.len() < journal.records.len());
            assert_eq!(records, journal.records[..records.len()]);
            assert!(matches!(end, ScanEnd::Open { .. }), "block {missing}: {end:?}");
        }
    }
}

#[test]
fn garbage_behind_the_last_record_is_not_read() {
    let journal = journal(&[vec![(0, true, 10), (1, true, 301)]]);
    for garbage in [vec![0xa5; 40], vec![0; 40], vec![0; 4096], vec![0xff; 1000], b"LANEWAY".to_vec()] {
        for file in [journal.file.clone(), journal.closed()] {
            let mut file = file;
            file.extend(&garbage);
            for last_run in BOOTS {
                let Scan { records, end, .. } = scan_bytes(&file, last_run);
                assert_eq!(records, journal.records);
                assert!(!matches!(end, ScanEnd::Damaged { .. }), "{end:?}");
            }
        }
    }
}

#[test]
fn a_hole_is_torn_only_where_nothing_had_arrived() {
    // The third group says that the second was written, not that it was flushed.
    let unflushed = journal(&[vec![(0, true, 64)], vec![(0, false, 64)], vec![(0, false, 64)]]);
    let hole = unflushed.groups[1].0;
    let mut file = unflushed.file.clone();
    file[hole..hole + BLOCK].fill(0);
    let Scan { records, end, .. } = scan_bytes(&file, LastRun::OtherBoot);
    assert_eq!(records.len(), 1);
    assert!(matches!(end, ScanEnd::Open { position, torn: true, .. } if position == hole as u64), "{end:?}");
    assert!(matches!(scan_bytes(&file, LastRun::SameBoot).end, ScanEnd::Damaged { .. }));

    // Here the third group was written after a flush that covered the second.
    let flushed = journal(&[vec![(0, true, 64)], vec![(0, true, 64)], vec![(0, false, 64)]]);
    let mut file = flushed.file.clone();
    file[hole..hole + BLOCK].fill(0);
    for last_run in BOOTS {
        let end = scan_bytes(&file, last_run).end;
        assert!(matches!(end, ScanEnd::Damaged { position, .. } if position == hole as u64), "{end:?}");
    }
}

#[test]
fn a_record_of_another_file_or_place_is_not_taken() {
    let journal = journal(&[vec![(0, true, 64)], vec![(0, true, 64)], vec![(0, true, 64)]]);
    let starts: Vec<usize> = journal.groups.iter().map(|group| group.0).collect();
    let mut swapped = journal.closed();
    swapped.copy_within(starts[2]..starts[2] + BLOCK, starts[1]);
    let end = scan_bytes(&swapped, LastRun::SameBoot).end;
    assert!(matches!(end, ScanEnd::Damaged { position, .. } if position == starts[1] as u64));
    let other = scan(&Bytes::from(journal.closed()), TAG + 1, LastRun::SameBoot);
    assert!(other.records.is_empty() && matches!(other.end, ScanEnd::Open { torn: false, .. }));
}

/// Damage of a file that says where it ends is found, or has changed nothing.
fn check_damaged(journal: &Journal, file: &[u8]) -> Result<(), TestCaseError> {
    for last_run in BOOTS {
        let Scan { records, end, .. } = scan_bytes(file, last_run);
        match end {
            ScanEnd::Damaged { .. } => {
                prop_assert_eq!(&records[..], &journal.records[..records.len()]);
            }
            ScanEnd::Closed { .. } | ScanEnd::Open { .. } => prop_assert_eq!(&records, &journal.records),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn flipped_bits_are_found(journal in any_journal(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        // Everything was flushed before the file was closed.
        let journal = persisted(&journal);
        let mut file = journal.closed();
        let at = BLOCK + at.index(file.len() - BLOCK);
        file[at] ^= 1 << bit;
        check_damaged(&journal, &file)?;
    }

    #[test]
    fn lost_swapped_and_repeated_blocks_are_found(
        journal in any_journal(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        kind in 0..3,
    ) {
        let journal = persisted(&journal);
        let mut file = journal.closed();
        let blocks = file.len() / BLOCK - 1;
        let [from, to] = [from, to].map(|index| BLOCK + index.index(blocks) * BLOCK);
        let (first, second) = (file[from..from + BLOCK].to_vec(), file[to..to + BLOCK].to_vec());
        match kind {
            0 => file[to..to + BLOCK].fill(0),
            1 => file[to..to + BLOCK].copy_from_slice(&first),
            _ => {
                file[to..to + BLOCK].copy_from_slice(&first);
                file[from..from + BLOCK].copy_from_slice(&second);
            }
        }
        check_damaged(&journal, &file)?;
    }

    #[test]
    fn after_a_power_loss_flushed_groups_are_there_and_others_may_be(
        journal in any_journal(),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        // A flush covers everything before it; behind the last flush any block may be missing.
        let last = journal.groups.iter().rposition(|group| group.1);
        let flushed = last.map_or(BLOCK, |at| journal.groups.get(at + 1).map_or(journal.file.len(), |next| next.0));
        let mut file = journal.file.clone();
        let blocks = (file.len() - flushed) / BLOCK;
        if blocks > 0 {
            for at in lost {
                let at = flushed + at.index(blocks) * BLOCK;
                file[at..at + BLOCK].fill(0);
            }
        }
        let Scan { records, end, .. } = scan_bytes(&file, LastRun::OtherBoot);
        prop_assert!(!matches!(end, ScanEnd::Damaged { .. }), "{end:?}");
        prop_assert_eq!(&records[..], &journal.records[..records.len()], "a prefix, never something else");
        prop_assert!(records.len() >= before(&journal, flushed));
    }

    #[test]
    fn any_bytes_scan_without_panic(file in prop::collection::vec(any::<u8>(), 0..9000)) {
        let mut whole = vec![0; BLOCK];
        whole.extend(file);
        for last_run in BOOTS {
            prop_assert!(scan_bytes(&whole, last_run).records.is_empty());
        }
    }
}

/// The same records, all of them durable.
fn persisted(journal: &Journal) -> Journal {
    let mut groups: Vec<Vec<(u32, bool, usize)>> = vec![Vec::new(); journal.groups.len()];
    for record in &journal.records {
        let position = record.header.at.position as usize;
        let group = journal.groups.iter().rposition(|(start, _)| *start <= position).unwrap();
        let payload = record.header.stored_bytes() as usize % 300 + 1;
        groups[group].push((record.header.lane.0, true, payload));
    }
    self::journal(&groups)
}
