//! Planning of segments against a model: a list of batches. Files are plain byte vectors here.

mod support;

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway_storage::{
    Damage, PartitionLog, ReadPlan, SegmentFile, StoredBatch,
    segment::{IndexScan, ReadCursor},
};
use laneway_wire::{Micros, Offset};
use proptest::prelude::*;
use support::{batch, partition};

const SEGMENT_SIZE: u64 = 4096;

/// Segment files in memory.
#[derive(Default)]
struct Files(BTreeMap<SegmentFile, Vec<u8>>);

impl Files {
    fn append(&mut self, log: &mut PartitionLog, batches: &[Bytes]) {
        let plan = log.plan_append(batches.iter().cloned()).unwrap();
        for step in &plan.steps {
            let file = self.0.entry(step.file).or_default();
            assert!(file.len() as u64 <= step.position);
            file.resize(step.position as usize, 0);
            file.extend(step.batches.concat());
        }
        log.appended(&plan);
    }

    /// Reads like the driver does.
    fn read(&self, plan: ReadPlan) -> Result<Vec<StoredBatch>, (u64, Offset, Damage)> {
        let file = Bytes::from(self.0[&plan.file].clone());
        let plan = match plan.start {
            Some(_) => plan,
            None => {
                let mut scan = IndexScan::new(plan.segment.base, plan.segment.bytes);
                while let Some((position, length)) = scan.request() {
                    let piece = file.slice(position as usize..position as usize + length);
                    scan.feed(&piece).map_err(|(position, damage)| (position, scan.expected(), damage))?;
                }
                let (next, index) = scan.finish();
                assert_eq!(next, plan.segment.next);
                plan.with_index(&index)
            }
        };
        let mut cursor = ReadCursor::new(&plan);
        while let Some((position, length)) = cursor.request() {
            cursor.feed(&file.slice(position as usize..position as usize + length))?;
        }
        Ok(cursor.finish())
    }
}

/// Batches of (messages, payload bytes, time step), contiguous from offset 0.
fn batches(shapes: &[(u32, usize, u64)]) -> Vec<Bytes> {
    let (mut base, mut timestamp) = (0, 1_000);
    let mut batches = Vec::new();
    for (messages, payload_bytes, step) in shapes {
        timestamp += step;
        batches.push(batch(0, base, timestamp, *messages, *payload_bytes));
        base += u64::from(*messages);
    }
    batches
}

fn base_of(batch: &Bytes) -> u64 {
    u64::from_le_bytes(batch[8..16].try_into().unwrap())
}

fn timestamp_of(batch: &Bytes) -> u64 {
    u64::from_le_bytes(batch[16..24].try_into().unwrap())
}

#[test]
fn a_segment_is_sealed_by_the_append_that_reaches_its_size() {
    let all = batches(&[(1, 1000, 0), (1, 1500, 0), (1, 1500, 0), (1, 10, 0)]);
    let (mut log, mut files) = (PartitionLog::new(partition(0), SEGMENT_SIZE), Files::default());
    files.append(&mut log, &all);
    let shape: Vec<_> = log.segments().iter().map(|s| (s.base.0, s.next.0, s.sealed)).collect();
    assert_eq!(shape, vec![(0, 3, true), (3, 4, false)]);
    assert!(log.segments()[0].bytes >= SEGMENT_SIZE);
    assert_eq!(log.next_offset(), Offset(4));
}

#[test]
fn a_batch_that_does_not_follow_is_not_planned() {
    let mut log = PartitionLog::new(partition(0), SEGMENT_SIZE);
    assert_eq!(log.plan_append([batch(0, 5, 1, 1, 10)]).unwrap_err(), Damage::Offsets);
    let cut = batch(0, 0, 1, 1, 10).slice(..280);
    assert_eq!(log.plan_append([cut]).unwrap_err(), Damage::Length);
    Files::default().append(&mut log, &batches(&[(3, 10, 0)]));
    assert_eq!(log.plan_append([batch(0, 2, 1, 1, 10)]).unwrap_err(), Damage::Offsets);
}

#[test]
fn retention_takes_sealed_segments_only() {
    let (mut log, mut files) = (PartitionLog::new(partition(0), SEGMENT_SIZE), Files::default());
    files.append(&mut log, &batches(&[(1, 5000, 0), (1, 5000, 0), (1, 100, 0)]));
    assert_eq!(log.advance_start(Offset(0)), vec![]);
    let gone = log.advance_start(Offset(3));
    assert_eq!(gone.iter().map(|file| file.base.0).collect::<Vec<_>>(), vec![0, 1]);
    assert_eq!((log.start_offset(), log.next_offset()), (Offset(2), Offset(3)));
    assert!(log.plan_read(Offset(1), 100).is_none());
}

#[test]
fn a_log_keeps_its_end_when_nothing_is_left() {
    let (mut log, mut files) = (PartitionLog::new(partition(0), 100), Files::default());
    files.append(&mut log, &batches(&[(7, 50, 0)]));
    log.advance_start(Offset(7));
    assert!(log.segments().is_empty());
    let mut payload = Vec::new();
    log.encode(&mut payload);
    let (log, rest) = PartitionLog::decode(partition(0), 100, &payload).unwrap();
    assert!(rest.is_empty());
    assert_eq!((log.start_offset(), log.next_offset()), (Offset(7), Offset(7)));
}

#[test]
fn the_first_batch_comes_whatever_its_length() {
    let (mut log, mut files) = (PartitionLog::new(partition(0), 1 << 30), Files::default());
    let all = batches(&[(1, 200_000, 0), (1, 10, 0), (1, 300_000, 0)]);
    files.append(&mut log, &all);
    for (offset, expected) in [(0, &all[..1]), (1, &all[1..2]), (2, &all[2..])] {
        let found = files.read(log.plan_read(Offset(offset), 1).unwrap()).unwrap();
        assert_eq!(
            found.iter().map(|batch| &batch.bytes).collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn damage_is_an_error_of_the_read_that_starts_there() {
    let (mut log, mut files) = (PartitionLog::new(partition(0), 1 << 30), Files::default());
    let all = batches(&[(2, 50, 0), (2, 50, 0), (2, 50, 0)]);
    files.append(&mut log, &all);
    let file = log.files().next().unwrap();
    let second = all[0].len();
    for (at, offset) in [(second + 300, 2), (second + 9, 2), (second + 200, 2), (second + 33, 2)] {
        let mut broken = Files(files.0.clone());
        broken.0.get_mut(&file).unwrap()[at] ^= 4;
        let before = broken.read(log.plan_read(Offset(0), 10_000).unwrap()).unwrap();
        assert_eq!(before.len(), 1, "what is sound before the damage is served");
        let (position, affected, _) =
            broken.read(log.plan_read(Offset(offset), 10_000).unwrap()).unwrap_err();
        assert_eq!((position, affected), (second as u64, Offset(2)));
    }
}

#[test]
fn a_batch_of_another_partition_is_damage() {
    let (mut log, mut files) = (PartitionLog::new(partition(1), 1 << 30), Files::default());
    files.append(&mut log, &[batch(1, 0, 1, 1, 10)]);
    *files.0.values_mut().next().unwrap() = batch(2, 0, 1, 1, 10).to_vec();
    let (_, _, damage) = files.read(log.plan_read(Offset(0), 100).unwrap()).unwrap_err();
    assert_eq!(damage, Damage::Misplaced);
}

fn any_shapes() -> impl Strategy<Value = Vec<(u32, usize, u64)>> {
    let payload = prop_oneof![4 => 1..600usize, 1 => 600..90_000usize];
    prop::collection::vec((1..5u32, payload, 0..3u64), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_offset_and_timestamp_is_found(
        shapes in any_shapes(),
        split in any::<prop::sample::Index>(),
        segment_size in prop_oneof![Just(1_000u64), Just(50_000), Just(1 << 30)],
        bytes_max in prop_oneof![Just(1u64), Just(2_000), Just(1 << 20)],
        keep_index in any::<bool>(),
    ) {
        let all = batches(&shapes);
        let (mut log, mut files) = (PartitionLog::new(partition(0), segment_size), Files::default());
        let split = split.index(all.len());
        files.append(&mut log, &all[..split]);
        files.append(&mut log, &all[split..]);
        let mut payload = Vec::new();
        log.encode(&mut payload);
        let log = match keep_index {
            true => log,
            false => PartitionLog::decode(partition(0), segment_size, &payload).unwrap().0,
        };
        let end = log.next_offset().0;
        prop_assert!(log.plan_read(Offset(end), bytes_max).is_none());
        for offset in 0..end {
            let found = files.read(log.plan_read(Offset(offset), bytes_max).unwrap()).unwrap();
            let first = all.partition_point(|batch| base_of(batch) <= offset) - 1;
            prop_assert!(!found.is_empty());
            for (batch, expected) in found.iter().zip(&all[first..]) {
                prop_assert_eq!(&batch.bytes, expected);
            }
            let but_last: usize = found[..found.len() - 1].iter().map(|batch| batch.bytes.len()).sum();
            prop_assert!((but_last as u64) < bytes_max);
        }
        let newest = timestamp_of(all.last().unwrap());
        prop_assert!(log.plan_read_timestamp(Micros(newest + 1), bytes_max).is_none());
        for timestamp in 999..=newest {
            let found = files.read(log.plan_read_timestamp(Micros(timestamp), bytes_max).unwrap()).unwrap();
            let first = all.partition_point(|batch| timestamp_of(batch) < timestamp);
            prop_assert_eq!(&found[0].bytes, &all[first]);
        }
    }
}
