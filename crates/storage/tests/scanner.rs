//! The scanner against every cut and many damages of generated journals: what it gives is always a prefix of what was
//! written, and damage of a file that no power loss touched is never taken for a torn tail.

use bytes::Bytes;
use laneway_storage::{
    GroupCommit, GroupLimits, JournalName, Record, SyncClass,
    journal::{JournalPlace, LastRun, Scan, ScanEnd, ScannedRecord, scan::scan},
};
use laneway_wire::{LaneId, Micros, Op};
use proptest::prelude::*;

const TAG: u64 = 0x1122_3344_5566_7788;
const HEADER: usize = 4096;

/// A generated journal: its bytes, its records, and how far it was flushed when its last byte was written.
#[derive(Clone, Debug)]
struct Journal {
    file: Vec<u8>,
    records: Vec<ScannedRecord>,
    ends: Vec<usize>,
}

fn journal(groups: &[Vec<(u32, bool, usize)>]) -> Journal {
    let place = JournalPlace { name: JournalName { shard: 0, sequence: 1 }, tag: TAG };
    let mut planner = GroupCommit::new(place, GroupLimits::default());
    let mut file = vec![0; HEADER];
    let mut next = [0u64; 4];
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
                batch: Bytes::from(vec![op as u8; *bytes]),
            };
            planner.push(record).unwrap();
        }
        while let Some(group) = planner.begin() {
            file.extend(group.buffers.concat());
            planner.complete(group);
        }
    }
    let Scan { records, end } = scan(&Bytes::from(file.clone()), TAG, LastRun::SameBoot);
    assert_eq!(end, ScanEnd::Clean { position: file.len() as u64 });
    let ends = records.iter().map(|record| (record.header.position + record.header.stored_bytes()) as usize);
    Journal { ends: ends.collect(), file, records }
}

fn any_journal() -> impl Strategy<Value = Journal> {
    let record = (0..4u32, any::<bool>(), 0..400usize);
    let group = prop::collection::vec(record, 1..5);
    prop::collection::vec(group, 1..6).prop_map(|groups| journal(&groups))
}

/// Records that end at or before a position.
fn whole_before(journal: &Journal, position: usize) -> usize {
    journal.ends.iter().filter(|end| **end <= position).count()
}

fn scan_bytes(file: &[u8], last_run: LastRun) -> Scan {
    scan(&Bytes::from(file.to_vec()), TAG, last_run)
}

#[test]
fn a_file_cut_at_any_length_keeps_every_whole_record() {
    let journal = journal(&[
        vec![(0, true, 10), (1, false, 300)],
        vec![(0, false, 0)],
        vec![(2, true, 1500), (0, true, 7)],
    ]);
    for length in HEADER..=journal.file.len() {
        for last_run in [LastRun::SameBoot, LastRun::OtherBoot] {
            let Scan { records, end } = scan_bytes(&journal.file[..length], last_run);
            let whole = whole_before(&journal, length);
            assert_eq!(records, journal.records[..whole], "length {length}");
            let position = if whole == 0 { HEADER } else { journal.ends[whole - 1] } as u64;
            let expected = match position == length as u64 {
                true => ScanEnd::Clean { position },
                false => ScanEnd::Torn { position },
            };
            assert_eq!(end, expected, "length {length}");
        }
    }
}

#[test]
fn garbage_behind_the_last_record_is_torn() {
    let journal = journal(&[vec![(0, true, 10), (1, true, 300)]]);
    for garbage in [vec![0xa5; 40], vec![0; 40], vec![0; 4096], vec![0xff; 1000], b"LANEWAY".to_vec()] {
        let mut file = journal.file.clone();
        file.extend(&garbage);
        let Scan { records, end } = scan_bytes(&file, LastRun::SameBoot);
        assert_eq!(records, journal.records);
        assert_eq!(end, ScanEnd::Torn { position: journal.file.len() as u64 });
    }
}

#[test]
fn a_hole_of_a_power_loss_is_torn_only_where_nothing_was_flushed() {
    // The second group was never flushed, the third attests nothing about it.
    let unflushed = journal(&[vec![(0, true, 64)], vec![(0, false, 64)], vec![(0, false, 64)]]);
    let hole = unflushed.ends[0];
    let mut file = unflushed.file.clone();
    file[hole..unflushed.ends[1]].fill(0);
    let Scan { records, end } = scan_bytes(&file, LastRun::OtherBoot);
    assert_eq!((records.len(), end), (1, ScanEnd::Torn { position: hole as u64 }));
    assert!(matches!(scan_bytes(&file, LastRun::SameBoot).end, ScanEnd::Damaged { .. }));

    // Here the third group was written after a flush that covered the second.
    let flushed = journal(&[vec![(0, true, 64)], vec![(0, true, 64)], vec![(0, false, 64)]]);
    let mut file = flushed.file.clone();
    file[hole..flushed.ends[1]].fill(0);
    let end = scan_bytes(&file, LastRun::OtherBoot).end;
    assert!(matches!(end, ScanEnd::Damaged { position, .. } if position == hole as u64), "{end:?}");
}

#[test]
fn a_record_of_another_file_or_place_is_not_taken() {
    let journal = journal(&[vec![(0, true, 64), (0, true, 64), (0, true, 64)]]);
    let stored = journal.ends[1] - journal.ends[0];
    let mut swapped = journal.file.clone();
    swapped.copy_within(journal.ends[1]..journal.ends[2], journal.ends[0]);
    assert_eq!(stored, journal.ends[2] - journal.ends[1], "same size, so only the position differs");
    let end = scan_bytes(&swapped, LastRun::SameBoot).end;
    assert!(matches!(end, ScanEnd::Damaged { position, .. } if position == journal.ends[0] as u64));
    let other = scan(&Bytes::from(journal.file.clone()), TAG + 1, LastRun::SameBoot);
    assert!(other.records.is_empty() && matches!(other.end, ScanEnd::Damaged { .. }));
}

proptest! {
    #[test]
    fn flipped_bits_are_never_taken_for_a_torn_tail(
        journal in any_journal(),
        at in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        let mut file = journal.file.clone();
        let at = HEADER + at.index(file.len() - HEADER);
        file[at] ^= 1 << bit;
        let Scan { records, end } = scan_bytes(&file, LastRun::SameBoot);
        let before = whole_before(&journal, at);
        match end {
            // Padding carries no meaning: everything is there.
            ScanEnd::Clean { .. } => prop_assert_eq!(records, journal.records),
            ScanEnd::Damaged { position, .. } => {
                prop_assert_eq!(records, &journal.records[..before]);
                prop_assert!(position as usize <= at);
            }
            ScanEnd::Torn { position } => prop_assert!(false, "torn at {position}, flipped at {at}"),
        }
    }

    #[test]
    fn after_a_power_loss_flushed_records_are_kept_or_refused(
        journal in any_journal(),
        holes in prop::collection::vec((any::<prop::sample::Index>(), 1..200usize), 1..4),
    ) {
        let mut file = journal.file.clone();
        for (at, length) in holes {
            let at = HEADER + at.index(file.len() - HEADER);
            let end = file.len().min(at + length);
            file[at..end].fill(0);
        }
        let Scan { records, end } = scan_bytes(&file, LastRun::OtherBoot);
        prop_assert_eq!(&records[..], &journal.records[..records.len()], "a prefix, never something else");
        if let ScanEnd::Torn { position } = end {
            // Whatever a later, readable record attests as flushed was not cut.
            let attested = journal.records.iter().filter(|record| {
                let at = record.header.position as usize;
                file[at..at + 80] == journal.file[at..at + 80]
            });
            let attested = attested.map(|record| record.header.flushed).max().unwrap_or(0);
            prop_assert!(position >= attested.min(journal.file.len() as u64));
        }
    }

    #[test]
    fn any_bytes_scan_without_panic(file in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut whole = vec![0; HEADER];
        whole.extend(file);
        for last_run in [LastRun::SameBoot, LastRun::OtherBoot] {
            prop_assert!(scan_bytes(&whole, last_run).records.is_empty());
        }
    }
}
