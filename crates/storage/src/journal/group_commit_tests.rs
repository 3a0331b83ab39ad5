use laneway_wire::{Incarnation, Micros, Offset, PartitionId, PartitionKey};

use super::*;
use crate::blocks::is_aligned;
use crate::journal::{LastRun, ScanEnd, scan::scan};
use crate::layout::SegmentFile;

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
        placing: Placing::Unplaced,
    }
}

fn written(lane: u32, op: u64) -> (LaneId, Op) {
    (LaneId(lane), Op(op))
}

/// A batch that says what a record must know of it, and no more.
fn direct(lane: u32, op: u64, bytes: usize) -> Record {
    let partition = PartitionKey { incarnation: Incarnation(1), partition: PartitionId(lane) };
    let file = SegmentFile { partition, base: Offset(0) };
    let place = BatchPlace { file, position: op * (1 << 20) };
    Record { placing: Placing::Direct(place), ..record(lane, op, SyncClass::Persisted, bytes) }
}

#[test]
fn what_arrives_during_a_write_shares_the_next_group() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Persisted, 10)).unwrap();
    let first = planner.begin().unwrap();
    assert_eq!((first.records, first.sync, first.position), (1, GroupSync::WithWrite, JOURNAL_HEADER_BYTES));
    assert!(is_aligned(&first.block) && first.block.len() as u64 == BLOCK_BYTES);
    planner.push(record(1, 2, SyncClass::Persisted, 10)).unwrap();
    planner.push(record(2, 1, SyncClass::Persisted, 10)).unwrap();
    assert!(planner.begin().is_none(), "little waits for the group in flight");
    let progress = planner.complete(first);
    assert_eq!(progress, Progress { written: vec![written(1, 1)], synced: vec![written(1, 1)] });
    let second = planner.begin().unwrap();
    assert_eq!((second.records, second.position), (2, JOURNAL_HEADER_BYTES + BLOCK_BYTES));
    let progress = planner.complete(second);
    assert_eq!(progress.synced, vec![written(1, 2), written(2, 1)]);
    assert!(planner.begin().is_none() && planner.is_idle());
}

#[test]
fn much_is_written_beside_groups_in_flight_and_counts_in_order() {
    let mut planner = planner(GroupLimits::default());
    let mut groups = Vec::new();
    for op in 1..=8 {
        planner.push(record(1, op, SyncClass::Persisted, OVERLAP_BYTES_MIN as usize)).unwrap();
        groups.extend(planner.begin());
    }
    assert_eq!(groups.len(), IN_FLIGHT_MAX);
    let last = groups.pop().unwrap();
    assert_eq!(planner.complete(last), Progress::default(), "the groups before it may be lost");
    let second = groups.remove(1);
    assert_eq!(planner.complete(second), Progress::default());
    let first = groups.remove(0);
    assert_eq!(planner.complete(first).synced, vec![written(1, 2)]);
    let third = groups.remove(0);
    assert_eq!(planner.complete(third).synced, vec![written(1, 4)]);
    let rest = planner.begin().unwrap();
    assert_eq!(rest.records, 4);
    assert_eq!(planner.complete(rest).synced, vec![written(1, 8)]);
}

#[test]
fn only_persisted_ops_flush_and_a_flush_covers_everything_before() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Replicated, 10)).unwrap();
    let group = planner.begin().unwrap();
    assert_eq!(group.sync, GroupSync::None);
    assert_eq!(planner.complete(group), Progress { written: vec![written(1, 1)], synced: vec![] });
    assert!(planner.has_unsynced());
    planner.push(record(2, 1, SyncClass::Persisted, 10)).unwrap();
    let group = planner.begin().unwrap();
    assert_eq!(group.sync, GroupSync::Flush, "the write alone would not cover the first op");
    planner.push(record(1, 2, SyncClass::Persisted, OVERLAP_BYTES_MIN as usize)).unwrap();
    assert!(planner.begin().is_none(), "a flush has the file for itself");
    let progress = planner.complete(group);
    assert_eq!(progress.written, vec![written(2, 1)]);
    assert_eq!(progress.synced, vec![written(1, 1), written(2, 1)]);
    assert!(!planner.has_unsynced());
}

#[test]
fn a_flush_waits_for_unflushed_groups_in_flight() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Replicated, 10)).unwrap();
    let first = planner.begin().unwrap();
    planner.push(record(1, 2, SyncClass::Persisted, OVERLAP_BYTES_MIN as usize)).unwrap();
    assert!(planner.begin().is_none(), "its flush would not cover a write that has not finished");
    planner.complete(first);
    let second = planner.begin().unwrap();
    assert_eq!(second.sync, GroupSync::Flush);
    assert_eq!(planner.complete(second).synced, vec![written(1, 2)]);
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
    assert_eq!((group.records, group.block.len(), group.sync), (0, 0, GroupSync::Flush));
    assert_eq!(planner.complete(group), Progress { written: vec![], synced: vec![written(1, 1)] });
    assert!(planner.begin().is_none());
}

#[test]
fn the_last_group_is_attested_once_nothing_follows_it() {
    let mut planner = planner(GroupLimits::default());
    assert!(!planner.needs_attest());
    for op in 1..=2 {
        planner.push(record(1, op, SyncClass::Persisted, 10)).unwrap();
        let group = planner.begin().unwrap();
        assert!(!planner.needs_attest(), "something is in flight");
        planner.complete(group);
        assert!(planner.needs_attest());
    }
    planner.request_attest();
    let group = planner.begin().unwrap();
    assert_eq!((group.records, group.sync), (1, GroupSync::WithWrite));
    let header = RecordHeader::parse(&group.block, TAG, group.position).unwrap();
    assert_eq!(
        (header.kind, header.at.flushed, header.at.written),
        (RecordKind::Attest, group.position, group.position)
    );
    assert_eq!(planner.complete(group), Progress::default());
    assert!(!planner.needs_attest());
    planner.request_attest();
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

    let mut by_bodies = planner(GroupLimits::default());
    for op in 1..=2 * BODIES_MAX as u64 {
        by_bodies.push(direct(1, op, 5_000)).unwrap();
    }
    assert_eq!(by_bodies.begin().unwrap().bodies.len(), BODIES_MAX);
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
fn a_body_with_a_place_is_not_copied_and_its_header_is() {
    let mut planner = planner(GroupLimits::default());
    let record = direct(1, 1, 100_000);
    let (batch, place) = (record.batch.clone(), record.placing.place().unwrap());
    planner.push(record).unwrap();
    let group = planner.begin().unwrap();
    assert_eq!(group.block.len() as u64, BLOCK_BYTES);
    assert_eq!(group.bodies.len(), 1);
    assert_eq!((group.bodies[0].0, group.bodies[0].1.as_ptr()), (place, batch.as_ptr()));
    let header = RecordHeader::parse(&group.block, TAG, group.position).unwrap();
    assert_eq!((header.placing, header.body_bytes), (Placing::Direct(place), 4 + 256));
}

#[test]
fn a_group_without_space_is_written_again_as_it_was() {
    let mut planner = planner(GroupLimits::default());
    planner.push(record(1, 1, SyncClass::Persisted, 10)).unwrap();
    let group = planner.begin().unwrap();
    let (position, bytes) = (group.position, group.block.clone());
    planner.push(record(1, 2, SyncClass::Persisted, 10)).unwrap();
    planner.retry(group);
    assert!(!planner.is_idle() && !planner.rotation_due());
    let again = planner.begin().unwrap();
    assert_eq!((again.position, &again.block), (position, &bytes));
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
    let limits = GroupLimits { journal_bytes_max: 5 * BLOCK_BYTES, ..GroupLimits::default() };
    let mut planner = planner(limits);
    planner.push(record(1, 1, SyncClass::Replicated, 3_000)).unwrap();
    planner.push(record(2, 1, SyncClass::Replicated, 3_000)).unwrap();
    let group = planner.begin().unwrap();
    planner.complete(group);
    assert!(!planner.rotation_due());
    planner.push(record(1, 2, SyncClass::Replicated, 4_000)).unwrap();
    assert!(planner.rotation_due(), "the next record and the end of the file do not fit any more");
    let end = planner.close();
    assert_eq!((end.records, end.sync), (1, GroupSync::Flush));
    let progress = planner.rotated(place(2));
    assert_eq!(progress.synced, vec![written(1, 1), written(2, 1)], "rotation flushes");
    assert!(!planner.rotation_due());
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
    let open = scan(&Bytes::from(file.clone()), TAG, LastRun::SameBoot);
    let position = file.len() as u64;
    assert!(matches!(open.end, ScanEnd::Open { position: at, torn: false, .. } if at == position));
    file.extend(&planner.close().block);
    let closed = scan(&Bytes::from(file), TAG, LastRun::SameBoot);
    assert_eq!((closed.end, closed.arrived), (ScanEnd::Closed { position }, position));
    let back: Vec<Record> = closed
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
            placing: scanned.header.placing,
        })
        .collect();
    assert_eq!(back, pushed);
}

fn write_all(planner: &mut GroupCommit, file: &mut Vec<u8>) {
    while let Some(group) = planner.begin() {
        assert_eq!(group.position, file.len() as u64);
        file.extend(&group.block);
        planner.complete(group);
    }
}
