use laneway_wire::Micros;

use super::*;
use crate::journal::{LastRun, ScanEnd, scan::scan};

const TAG: u64 = 0x7a67;

fn place(sequence: u64) -> JournalPlace {
    JournalPlace { name: JournalName { shard: 0, sequence }, tag: TAG }
}

fn planner(limits: GroupLimits) -> GroupCommit {
    GroupCommit::new(place(1), limits)
}

fn record(lane: u32, op: u64, class: SyncClass, batch_bytes: usize) -> Record {
    Record {
        lane: LaneId(lane),
        op: Op(op),
        view: 2,
        timestamp: Micros(op),
        class,
        prefix: Bytes::from(format!("op {op}")),
        batch: Bytes::from(vec![op as u8; batch_bytes]),
    }
}

fn written(lane: u32, op: u64) -> (LaneId, Op) {
    (LaneId(lane), Op(op))
}

#[test]
fn what_arrives_during_a_write_shares_the_next_group() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Persisted, 10)).unwrap();
    let first = planner.begin().unwrap();
    assert_eq!((first.records, first.flush, first.position), (1, true, JOURNAL_HEADER_BYTES));
    planner.push(record(1, 2, SyncClass::Persisted, 10)).unwrap();
    planner.push(record(2, 1, SyncClass::Persisted, 10)).unwrap();
    assert!(planner.begin().is_none(), "one group at a time");
    let end = first.position + first.bytes;
    let progress = planner.complete(first);
    assert_eq!(progress, Progress { written: vec![written(1, 1)], synced: vec![written(1, 1)] });
    let second = planner.begin().unwrap();
    assert_eq!((second.records, second.position), (2, end));
    let progress = planner.complete(second);
    assert_eq!(progress.synced, vec![written(1, 2), written(2, 1)]);
    assert!(planner.begin().is_none() && planner.is_idle());
}

#[test]
fn only_persisted_ops_flush_and_a_flush_covers_everything_before() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Replicated, 10)).unwrap();
    let group = planner.begin().unwrap();
    assert!(!group.flush);
    assert_eq!(planner.complete(group), Progress { written: vec![written(1, 1)], synced: vec![] });
    assert!(planner.has_unsynced());
    planner.push(record(2, 1, SyncClass::Persisted, 10)).unwrap();
    let group = planner.begin().unwrap();
    assert!(group.flush);
    let progress = planner.complete(group);
    assert_eq!(progress.written, vec![written(2, 1)]);
    assert_eq!(progress.synced, vec![written(1, 1), written(2, 1)]);
    assert!(!planner.has_unsynced());
}

#[test]
fn a_requested_flush_needs_no_record() {
    let mut planner = planner(GroupLimits::default());
    planner.request_flush();
    assert!(planner.begin().is_none(), "nothing to flush");
    planner.push(record(1, 1, SyncClass::Replicated, 10)).unwrap();
    let group = planner.begin().unwrap();
    planner.complete(group);
    planner.request_flush();
    let group = planner.begin().unwrap();
    assert_eq!((group.records, group.bytes, group.flush), (0, 0, true));
    assert_eq!(planner.complete(group), Progress { written: vec![], synced: vec![written(1, 1)] });
    assert!(planner.begin().is_none());
}

#[test]
fn a_group_is_closed_at_its_bounds() {
    let limits = GroupLimits { group_bytes_max: 10_000, ..GroupLimits::default() };
    let mut by_bytes = planner(limits);
    for op in 1..=4 {
        by_bytes.push(record(1, op, SyncClass::Persisted, 4_000)).unwrap();
    }
    by_bytes.push(record(1, 5, SyncClass::Persisted, 50_000)).unwrap();
    let mut groups = Vec::new();
    while let Some(group) = by_bytes.begin() {
        groups.push(group.records);
        by_bytes.complete(group);
    }
    assert_eq!(groups, vec![2, 2, 1], "one record may exceed the bound alone");

    let mut by_buffers = planner(GroupLimits::default());
    for op in 1..=2_000 {
        by_buffers.push(record(1, op, SyncClass::Persisted, COPY_BYTES_MAX + 1)).unwrap();
    }
    let group = by_buffers.begin().unwrap();
    assert!(group.buffers.len() <= BUFFERS_MAX && group.records > 500, "{} buffers", group.buffers.len());
}

#[test]
fn admission_ends_when_too_much_waits() {
    let limits = GroupLimits { pending_bytes_max: 10_000, ..GroupLimits::default() };
    let mut planner = planner(limits);
    assert!(planner.has_room(9_000) && !planner.has_room(10_001));
    planner.push(record(1, 1, SyncClass::Persisted, 9_000)).unwrap();
    assert!(!planner.has_room(1_000));
    let group = planner.begin().unwrap();
    assert!(planner.has_room(9_000), "what is in flight no longer waits");
    planner.complete(group);
}

#[test]
fn large_bodies_are_not_copied() {
    let mut planner = planner(GroupLimits::default());
    let record = record(1, 1, SyncClass::Persisted, 100_000);
    let batch = record.batch.clone();
    planner.push(record).unwrap();
    let group = planner.begin().unwrap();
    assert!(group.buffers.iter().any(|buffer| buffer.as_ptr() == batch.as_ptr()));
}

#[test]
fn a_group_without_space_is_written_again_as_it_was() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Persisted, 10)).unwrap();
    let group = planner.begin().unwrap();
    let (position, bytes) = (group.position, group.buffers.concat());
    planner.push(record(1, 2, SyncClass::Persisted, 10)).unwrap();
    planner.retry(group);
    assert!(!planner.is_idle() && !planner.rotation_due());
    let again = planner.begin().unwrap();
    assert_eq!((again.position, again.buffers.concat()), (position, bytes));
    planner.complete(again);
    assert_eq!(planner.begin().unwrap().records, 1);
}

#[test]
fn a_poisoned_planner_takes_and_gives_nothing() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Persisted, 10)).unwrap();
    planner.begin().unwrap();
    planner.push(record(1, 2, SyncClass::Persisted, 10)).unwrap();
    planner.poison();
    assert!(planner.begin().is_none());
    assert_eq!(planner.push(record(1, 3, SyncClass::Persisted, 10)), Err(Poisoned));
    assert!(!planner.has_room(0));
}

#[test]
#[should_panic(expected = "ops must follow each other")]
fn a_gap_in_a_lane_is_our_own_mistake() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Persisted, 10)).unwrap();
    let _ = planner.push(record(1, 3, SyncClass::Persisted, 10));
}

#[test]
fn a_rotated_file_is_deletable_once_every_lane_in_it_is_covered() {
    let limits = GroupLimits { journal_bytes_max: 6_000, ..GroupLimits::default() };
    let mut planner = planner(limits);
    planner.push(record(1, 1, SyncClass::Replicated, 3_000)).unwrap();
    planner.push(record(2, 1, SyncClass::Replicated, 10)).unwrap();
    let group = planner.begin().unwrap();
    assert!(!planner.rotation_due(), "not while a group is in flight");
    planner.complete(group);
    assert!(planner.rotation_due());
    let progress = planner.rotated(place(2));
    assert_eq!(progress.synced, vec![written(1, 1), written(2, 1)], "rotation flushes");
    assert!(!planner.rotation_due());
    planner.push(record(1, 2, SyncClass::Persisted, 10)).unwrap();
    let group = planner.begin().unwrap();
    assert_eq!((group.journal, group.position), (place(2).name, JOURNAL_HEADER_BYTES));
    planner.complete(group);
    planner.checkpointed(LaneId(1), Op(2));
    assert!(planner.take_deletable().is_empty(), "lane 2 is not covered");
    planner.checkpointed(LaneId(2), Op(1));
    assert_eq!(planner.take_deletable(), vec![place(1).name]);
    assert!(planner.take_deletable().is_empty());
}

#[test]
fn groups_scan_back_as_they_were_pushed() {
    let mut planner = planner(GroupLimits { group_bytes_max: 8_000, ..GroupLimits::default() });
    let mut file = vec![0u8; JOURNAL_HEADER_BYTES as usize];
    let mut pushed = Vec::new();
    for op in 1..=40u64 {
        let class = if op % 3 == 0 { SyncClass::Persisted } else { SyncClass::Replicated };
        let record = record(op as u32 % 2, op.div_ceil(2), class, (op * 97 % 3_000) as usize);
        pushed.push(record.clone());
        planner.push(record).unwrap();
        if op % 7 == 0 {
            write_all(&mut planner, &mut file);
        }
    }
    write_all(&mut planner, &mut file);
    let scan = scan(&Bytes::from(file.clone()), TAG, LastRun::SameBoot);
    assert_eq!(scan.end, ScanEnd::Clean { position: file.len() as u64 });
    let back: Vec<Record> = scan
        .records
        .into_iter()
        .map(|scanned| Record {
            lane: scanned.header.lane,
            op: scanned.header.op,
            view: scanned.header.view,
            timestamp: scanned.header.timestamp,
            class: scanned.header.class,
            prefix: scanned.prefix,
            batch: scanned.batch,
        })
        .collect();
    assert_eq!(back, pushed);
}

fn write_all(planner: &mut GroupCommit, file: &mut Vec<u8>) {
    while let Some(group) = planner.begin() {
        assert_eq!(group.position, file.len() as u64);
        file.extend(group.buffers.concat());
        planner.complete(group);
    }
}
