//! What a poll returns, against a model that walks messages one by one.

use bytes::Bytes;
use laneway_reads::{
    ChunkEnd, MemoryTail, PartitionView, PollPlan, PollRequest, ReadLimits, SelectError, Selection, Selector,
    Start, invariants,
};
use laneway_wire::batch::{BATCH_HEADER_BYTES, Batch, records};
use laneway_wire::{Micros, Offset, Status};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

mod common;

use common::{Log, log};

const FRAME_BYTES: u64 = 48;

/// The offsets that a read returns, and whether bytes ended it.
fn model(
    log: &Log,
    head: Option<Offset>,
    retained: u64,
    start: Start,
    limits: ReadLimits,
) -> (Vec<u64>, bool) {
    let Some(Offset(head)) = head else { return (Vec::new(), false) };
    let (mut taken, mut bytes, mut open) = (Vec::new(), 0, None);
    for message in log.messages.iter().filter(|message| (retained..=head).contains(&message.offset)) {
        let before = match start {
            Start::Offset(offset) => message.offset < offset.0,
            Start::Timestamp(timestamp) => message.timestamp < timestamp.0,
        };
        if before {
            continue;
        }
        if taken.len() == limits.messages as usize {
            break;
        }
        let header = if open == Some(message.batch) { 0 } else { BATCH_HEADER_BYTES as u64 };
        let cost = header + FRAME_BYTES + message.payload;
        if taken.is_empty() && cost > limits.record_bytes {
            return (vec![message.offset], true);
        }
        if bytes + cost > limits.record_bytes {
            return (taken, true);
        }
        bytes += cost;
        open = Some(message.batch);
        taken.push(message.offset);
    }
    let full = !taken.is_empty() && bytes == limits.record_bytes;
    (taken, full)
}

/// Bytes of segments that hold the batches `from..to`.
fn disk(log: &Log, from: usize, to: usize) -> Bytes {
    log.batches[from..to].iter().flat_map(|batch| batch.bytes.to_vec()).collect::<Vec<_>>().into()
}

/// Feeds a disk read in chunks of about `chunk_bytes`, then the tail.
fn read_disk(
    mut selector: Selector,
    disk: &Bytes,
    chunk_bytes: usize,
    tail: &MemoryTail,
) -> Result<Selection, SelectError> {
    let mut position = 0;
    let mut need = 0;
    while position < disk.len() {
        let end = (position + chunk_bytes.max(need)).min(disk.len());
        match selector.push_chunk(&disk.slice(position..end)) {
            ChunkEnd::Done => break,
            ChunkEnd::More { advance, need: next } => {
                assert!(advance > 0 || next as usize > end - position, "a chunk made no progress");
                position += advance as usize;
                need = next as usize;
            }
        }
    }
    selector.push_tail(tail, Offset(0));
    selector.finish()
}

/// Offsets of the records as a client decodes them, with every checksum recomputed here.
fn decode(selection: &Selection) -> Vec<u64> {
    let body: Vec<u8> = selection.parts.iter().flatten().copied().collect();
    let mut offsets = Vec::new();
    for record in records(&body) {
        let record = record.expect("the parts are whole records");
        assert_eq!(record.header.batch_checksum, checksum(&record));
        let mut messages = 0;
        for message in record.messages() {
            let message = message.expect("frames fill their record");
            let offset = record.offset_of(&message).unwrap().0;
            assert_eq!(message.checksum, xxh3_64(&message.bytes[8..]));
            assert_eq!(message.id, u128::from(offset) + 1);
            assert!(message.payload.iter().all(|byte| *byte == message.id as u8));
            offsets.push(offset);
            messages += 1;
        }
        assert_eq!(record.header.message_count, messages);
    }
    offsets
}

fn checksum(record: &Batch<'_>) -> u64 {
    let mut hashed = record.bytes[..40].to_vec();
    hashed.extend_from_slice(&record.bytes[48..52]);
    for message in record.messages() {
        hashed.extend_from_slice(&message.unwrap().checksum.to_le_bytes());
    }
    xxh3_64(&hashed)
}

/// Where the log is cut: retention, segments and memory, as numbers of batches.
struct Cuts {
    retained: usize,
    tail: usize,
    disk: usize,
}

fn view_of<'a>(log: &Log, cuts: &Cuts, tail: &'a mut MemoryTail) -> PartitionView<'a> {
    for batch in &log.batches[cuts.tail..] {
        tail.push(batch.clone());
    }
    let base = |index: usize| {
        log.batches
            .get(index)
            .map_or(log.head.map_or(Offset(0), |head| Offset(head.0 + 1)), |batch| batch.base_offset)
    };
    PartitionView {
        head: log.head,
        retained_start: base(cuts.retained),
        disk_end: base(cuts.disk),
        timestamp_last: log.messages.last().map_or(Micros(0), |message| Micros(message.timestamp)),
        bytes_total: log.batches.iter().map(|batch| batch.bytes.len() as u64).sum(),
        tail,
    }
}

fn check(log: &Log, cuts: &Cuts, start: Start, limits: ReadLimits, chunk_bytes: usize) {
    let mut tail = MemoryTail::default();
    let view = view_of(log, cuts, &mut tail);
    let (expected, byte_limited) = model(log, view.head, view.retained_start.0, start, limits);
    let selection = match PollPlan::build(&view, &PollRequest { start, limits }) {
        PollPlan::Ready(selection) => selection,
        PollPlan::Disk(read) => {
            assert!(cuts.tail > cuts.retained, "everything retained was in memory");
            let disk = disk(log, cuts.retained, cuts.disk);
            read_disk(read.selector, &disk, chunk_bytes, view.tail).unwrap()
        }
    };
    assert_eq!(decode(&selection), expected);
    assert_eq!(selection.byte_limited, byte_limited);
    assert!(!selection.truncated);
    assert!(invariants::selection(&selection, limits));
}

fn any_start() -> impl Strategy<Value = Start> {
    prop_oneof![
        (0_u64..60).prop_map(|offset| Start::Offset(Offset(offset))),
        (998_u64..1_020).prop_map(|timestamp| Start::Timestamp(Micros(timestamp))),
    ]
}

fn any_shape() -> impl Strategy<Value = Vec<(Vec<usize>, u64)>> {
    let batch = (prop::collection::vec(1_usize..400, 1..7), 0_u64..3);
    prop::collection::vec(batch, 0..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn poll_equals_the_model(
        shape in any_shape(),
        start in any_start(),
        count in prop_oneof![0_u32..12, Just(u32::MAX)],
        record_bytes in prop_oneof![304_u64..2_000, Just(16 << 20)],
        chunk_bytes in 1_usize..3_000,
        (retained, tail, disk) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let log = log(&shape);
        let disk = disk.index(shape.len() + 1);
        let cuts = Cuts { retained: retained.index(disk + 1), tail: tail.index(disk + 1), disk };
        let cuts = Cuts { tail: cuts.tail.max(cuts.retained), ..cuts };
        check(&log, &cuts, start, ReadLimits { messages: count, record_bytes }, chunk_bytes);
    }

    #[test]
    fn head_of_the_plan_caps_a_read_that_outlives_it(
        shape in any_shape(),
        head in any::<prop::sample::Index>(),
        start in 0_u64..40,
        chunk_bytes in 1_usize..3_000,
        disk_batches in any::<prop::sample::Index>(),
    ) {
        let log = log(&shape);
        prop_assume!(log.head.is_some());
        let head = head.index(log.messages.len()) as u64;
        let limits = ReadLimits { messages: u32::MAX, record_bytes: u64::MAX };
        let split = disk_batches.index(shape.len() + 1);
        let mut tail = MemoryTail::default();
        for batch in &log.batches[split..] {
            tail.push(batch.clone());
        }
        let start = Start::Offset(Offset(start));
        let selector = Selector::new(start, Offset(head), limits);
        let selection = read_disk(selector, &disk(&log, 0, split), chunk_bytes, &tail).unwrap();
        let (expected, _) = model(&log, Some(Offset(head)), 0, start, limits);
        prop_assert_eq!(decode(&selection), expected);
    }

    #[test]
    fn damage_on_disk_ends_the_read_before_it(
        shape in any_shape(),
        chunk_bytes in 1_usize..3_000,
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
        by_time in any::<bool>(),
    ) {
        let log = log(&shape);
        let mut damaged = disk(&log, 0, log.batches.len()).to_vec();
        prop_assume!(!damaged.is_empty());
        let at = at.index(damaged.len());
        damaged[at] ^= 1 << bit;
        let mut end = 0;
        let broken = log.batches.iter().take_while(|batch| {
            end += batch.bytes.len();
            end <= at
        }).count();
        let good: u64 = log.batches[..broken].iter().map(|batch| u64::from(batch.message_count)).sum();
        let limits = ReadLimits { messages: u32::MAX, record_bytes: u64::MAX };
        let start = if by_time { Start::Timestamp(Micros(1_000)) } else { Start::Offset(Offset(0)) };
        let mut selector = Selector::new(start, log.head.unwrap(), limits);
        let (mut position, mut need) = (0, 0);
        let damaged = Bytes::from(damaged);
        loop {
            let end = (position + chunk_bytes.max(need)).min(damaged.len());
            match selector.push_chunk(&damaged.slice(position..end)) {
                ChunkEnd::Done => break,
                // A damaged length can ask for more than there is: the caller knows where its file ends.
                ChunkEnd::More { advance, need: next } if position + advance as usize + next as usize > damaged.len() => {
                    selector.fail();
                    break;
                }
                ChunkEnd::More { advance, need: next } => {
                    position += advance as usize;
                    need = next as usize;
                }
            }
        }
        match selector.finish() {
            Ok(selection) => {
                prop_assert!(broken > 0, "damage in the first batch was served");
                prop_assert_eq!(decode(&selection), (0..good).collect::<Vec<_>>());
                prop_assert!(selection.truncated, "a reader would wait for what it cannot get");
            }
            Err(error) => {
                prop_assert_eq!(broken, 0);
                prop_assert_eq!(error.status(), Status::CannotReadMessage);
            }
        }
    }
}

#[test]
fn whole_batch_goes_out_as_it_is_stored() {
    let log = log(&[(vec![10, 20], 1), (vec![30], 1)]);
    let mut tail = MemoryTail::default();
    let view = view_of(&log, &Cuts { retained: 0, tail: 0, disk: 0 }, &mut tail);
    let limits = ReadLimits::poll(1_000, None, 1 << 20);
    let PollPlan::Ready(selection) =
        PollPlan::build(&view, &PollRequest { start: Start::Offset(Offset(0)), limits })
    else {
        panic!("everything is in memory");
    };
    assert_eq!(selection.parts.len(), 2);
    for (part, batch) in selection.parts.iter().zip(&log.batches) {
        assert_eq!(part.as_ptr(), batch.bytes.as_ptr(), "the batch was copied");
    }
}

#[test]
fn sliced_batch_copies_its_header_only() {
    let log = log(&[(vec![10, 20, 30], 1)]);
    let mut tail = MemoryTail::default();
    let view = view_of(&log, &Cuts { retained: 0, tail: 0, disk: 0 }, &mut tail);
    let limits = ReadLimits::poll(1, None, 1 << 20);
    let PollPlan::Ready(selection) =
        PollPlan::build(&view, &PollRequest { start: Start::Offset(Offset(1)), limits })
    else {
        panic!("everything is in memory");
    };
    assert_eq!(selection.parts[0].len(), BATCH_HEADER_BYTES);
    let frames = log.batches[0].bytes.as_ptr_range();
    assert!(frames.contains(&selection.parts[1].as_ptr()), "the frames were copied");
    assert_eq!((selection.first, selection.last), (Some(Offset(1)), Some(Offset(1))));
}

#[test]
fn oversized_first_message_comes_alone_and_ends_the_wait() {
    let log = log(&[(vec![5_000, 1], 1)]);
    let mut tail = MemoryTail::default();
    let view = view_of(&log, &Cuts { retained: 0, tail: 0, disk: 0 }, &mut tail);
    let limits = ReadLimits::poll(10, Some(344), 16 << 20);
    let request = PollRequest { start: Start::Offset(Offset(0)), limits };
    let PollPlan::Ready(selection) = PollPlan::build(&view, &request) else { panic!("it is in memory") };
    assert_eq!((selection.messages, selection.byte_limited), (1, true));
    assert!(selection.satisfies(2));
}

#[test]
fn missing_batch_is_never_jumped_over() {
    let log = log(&[(vec![10], 1), (vec![10], 1), (vec![10], 1)]);
    let disk: Bytes = [&log.batches[0].bytes[..], &log.batches[2].bytes[..]].concat().into();
    let limits = ReadLimits::poll(10, None, 1 << 20);
    let mut selector = Selector::new(Start::Offset(Offset(0)), Offset(2), limits);
    assert_eq!(selector.push_chunk(&disk), ChunkEnd::Done);
    let selection = selector.finish().unwrap();
    assert_eq!((selection.last, selection.truncated), (Some(Offset(0)), true));
}

#[test]
fn missing_batch_is_not_jumped_over_by_time_either() {
    let log = log(&[(vec![10], 1), (vec![10], 1), (vec![10], 1)]);
    let disk: Bytes = [&log.batches[0].bytes[..], &log.batches[2].bytes[..]].concat().into();
    let limits = ReadLimits::poll(10, None, 1 << 20);
    let mut selector = Selector::new(Start::Timestamp(Micros(1_002)), Offset(2), limits);
    assert_eq!(selector.push_chunk(&disk), ChunkEnd::Done);
    assert_eq!(selector.finish(), Err(SelectError::Unreadable { offset: Offset(1) }));
}

#[test]
fn selection_that_fills_its_bytes_exactly_ends_the_wait() {
    let log = log(&[(vec![10], 1)]);
    let size = log.batches[0].bytes.len() as u64;
    for (record_bytes, full) in [(size, true), (size + 1, false)] {
        let limits = ReadLimits { messages: 10, record_bytes };
        let mut selector = Selector::new(Start::Offset(Offset(0)), Offset(0), limits);
        selector.push_batch(&log.batches[0]);
        assert_eq!(selector.finish().unwrap().byte_limited, full);
    }
}

#[test]
fn batches_that_storage_read_are_taken_like_a_chunk() {
    let log = log(&[(vec![10, 20], 1), (vec![200_000], 1), (vec![30], 1)]);
    let limits = ReadLimits::poll(1, None, 1 << 20);
    let mut selector = Selector::new(Start::Offset(Offset(1)), Offset(3), limits);
    assert_eq!(selector.bytes_left(), limits.record_bytes);
    selector.push_read(log.batches.clone(), 200_000);
    let selection = selector.finish().unwrap();
    assert_eq!(decode(&selection), [1]);
    assert_eq!(selection.parts.len(), 1, "it is copied out of the large buffer");
}

#[test]
fn small_part_of_a_large_buffer_is_copied_out() {
    let log = log(&[(vec![100], 1), (vec![200_000], 1)]);
    let disk = disk(&log, 0, 2);
    let limits = ReadLimits::poll(1, None, 1 << 20);
    let mut selector = Selector::new(Start::Offset(Offset(0)), Offset(1), limits);
    assert_eq!(selector.push_chunk(&disk), ChunkEnd::Done);
    let selection = selector.finish().unwrap();
    assert!(!disk.as_ptr_range().contains(&selection.parts[0].as_ptr()), "it keeps 200 kB alive");
    assert_eq!(decode(&selection), [0]);
}
