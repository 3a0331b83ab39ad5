//! A parked read must never sleep through the commit that completes it.

use laneway_reads::{
    MemoryTail, PartitionView, PollPlan, PollRequest, ReadLimits, Selection, Strategy as ReadStrategy,
    wake_at,
};
use laneway_wire::{Micros, Offset};
use proptest::prelude::*;

mod common;

use common::{Log, log};

/// The partition with the first `batches` of the log committed, all of it in memory.
fn view<'a>(log: &Log, batches: usize, retained: usize, tail: &'a mut MemoryTail) -> PartitionView<'a> {
    let retained = retained.min(batches);
    let committed = &log.batches[..batches];
    for batch in &committed[retained..] {
        tail.push(batch.clone());
    }
    let end =
        |count: usize| Offset(committed[..count].iter().map(|batch| u64::from(batch.message_count)).sum());
    PartitionView {
        head: end(batches).0.checked_sub(1).map(Offset),
        retained_start: end(retained),
        disk_end: end(retained),
        timestamp_last: committed.last().map_or(Micros(0), |batch| batch.base_timestamp),
        bytes_total: committed.iter().map(|batch| batch.bytes.len() as u64).sum(),
        tail,
    }
}

fn evaluate(
    view: &PartitionView<'_>,
    strategy: ReadStrategy,
    limits: ReadLimits,
) -> (PollRequest, Selection) {
    let start = strategy.resolve(limits.messages, view.head, None).unwrap();
    let request = PollRequest { start, limits };
    match PollPlan::build(view, &request) {
        PollPlan::Ready(selection) => (request, selection),
        PollPlan::Disk(_) => panic!("everything is in memory"),
    }
}

fn any_strategy() -> impl Strategy<Value = ReadStrategy> {
    prop_oneof![
        (0_u64..30).prop_map(|offset| ReadStrategy::Offset(Offset(offset))),
        (990_u64..1_040).prop_map(|timestamp| ReadStrategy::Timestamp(Micros(timestamp))),
        Just(ReadStrategy::First),
        Just(ReadStrategy::Last),
        Just(ReadStrategy::Next),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn first_commit_that_completes_a_read_wakes_it(
        shape in prop::collection::vec((prop::collection::vec(1_usize..400, 1..5), 0_u64..6), 1..8),
        strategy in any_strategy(),
        (min_count, more) in (1_u32..8, 0_u32..8),
        record_bytes in prop_oneof![304_u64..2_000, Just(16 << 20)],
        parked_at in any::<prop::sample::Index>(),
        retained in 0_usize..4,
    ) {
        let log = log(&shape);
        let limits = ReadLimits { messages: min_count + more, record_bytes };
        let parked_at = parked_at.index(log.batches.len());
        let mut tail = MemoryTail::default();
        let parked = view(&log, parked_at, retained, &mut tail);
        let retained = retained.min(parked_at);
        let (request, selection) = evaluate(&parked, strategy, limits);
        prop_assume!(!selection.satisfies(min_count));
        let wake = wake_at(&parked, strategy, &request, min_count, &selection);
        prop_assert!(parked.head.is_none_or(|head| wake.head > head), "it would spin");
        for batches in parked_at + 1..=log.batches.len() {
            let mut tail = MemoryTail::default();
            let now = view(&log, batches, retained, &mut tail);
            let woken = now.head.is_some_and(|head| head >= wake.head)
                || wake.bytes_total.is_some_and(|total| now.bytes_total >= total);
            if woken {
                break;
            }
            let (_, selection) = evaluate(&now, strategy, limits);
            prop_assert!(!selection.satisfies(min_count), "it slept through its data");
        }
    }
}

#[test]
fn selection_of_an_older_head_is_stale_and_wakes_with_the_next_commit() {
    let log = log(&[(vec![10], 1), (vec![10], 1), (vec![10], 1)]);
    let limits = ReadLimits { messages: 9, record_bytes: 16 << 20 };
    let strategy = ReadStrategy::First;
    let (mut before, mut after) = (MemoryTail::default(), MemoryTail::default());
    let (request, selection) = evaluate(&view(&log, 1, 0, &mut before), strategy, limits);
    let now = view(&log, 3, 0, &mut after);
    assert!(selection.is_stale(&now));
    assert_eq!(wake_at(&now, strategy, &request, 9, &selection).head, Offset(3));
    let (_, selection) = evaluate(&now, strategy, limits);
    assert!(!selection.is_stale(&now));
}
