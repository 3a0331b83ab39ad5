use bytes::Bytes;
use proptest::prelude::*;

use super::super::*;
use crate::config::{WINDOW_BYTES_MAX, WINDOW_OPS_ALONE_MAX};
use crate::entry::{Durability, EntryBody};
use crate::header::ClusterId;
use laneway_wire::Micros;
use std::collections::VecDeque;

fn body(bytes: usize) -> EntryBody {
    EntryBody { prefix: Bytes::from_static(b"op"), batch: Bytes::from(vec![7; bytes]), batch_checksum: 7 }
}

fn replica() -> Replica {
    let config = Config::alone(ClusterId(1), LaneId(3));
    let identity = Identity::root(config.cluster, config.lane);
    Replica::alone(config, CheckpointId { op: Op(10), identity }, Micros(500))
}

fn effects(replica: &mut Replica) -> Vec<(bool, Op)> {
    std::iter::from_fn(|| replica.poll_effect())
        .map(|effect| match effect {
            Effect::Write { entry, .. } => (true, entry.op()),
            Effect::Apply(entry) => (false, entry.op()),
            other => panic!("a lone member needs nothing else: {other:?}"),
        })
        .collect()
}

#[test]
fn persisted_entry_commits_at_its_flush_not_at_its_write() {
    let mut replica = replica();
    let op = replica.propose(Micros(600), Durability::Persisted, body(1)).unwrap();
    assert_eq!(effects(&mut replica), [(true, Op(11))]);
    replica.handle_written(op);
    assert_eq!(effects(&mut replica), []);
    replica.handle_synced(op);
    assert_eq!(effects(&mut replica), [(false, Op(11))]);
    replica.handle_applied(op);
    assert_eq!(replica.in_flight(), 0);
}

#[test]
fn replicated_entry_commits_at_its_write() {
    let mut replica = replica();
    let op = replica.propose(Micros(600), Durability::Replicated, body(1)).unwrap();
    replica.handle_written(op);
    assert_eq!(effects(&mut replica), [(true, op), (false, op)]);
}

#[test]
fn replicated_entry_waits_for_the_persisted_one_before_it() {
    let mut replica = replica();
    let first = replica.propose(Micros(600), Durability::Persisted, body(1)).unwrap();
    let second = replica.propose(Micros(600), Durability::Replicated, body(1)).unwrap();
    replica.handle_written(second);
    assert_eq!(effects(&mut replica), [(true, first), (true, second)]);
    replica.handle_synced(first);
    assert_eq!(effects(&mut replica), [(false, first), (false, second)]);
}

/// V61.
#[test]
fn timestamp_always_goes_forward() {
    let mut replica = replica();
    assert_eq!(replica.next(Micros(400)), (Op(11), Micros(501)));
    replica.propose(Micros(900), Durability::Persisted, body(1)).unwrap();
    assert_eq!(replica.next(Micros(100)), (Op(12), Micros(901)));
}

#[test]
fn full_pipeline_refuses_and_takes_again_after_apply() {
    let mut replica = replica();
    for _ in 0..WINDOW_OPS_ALONE_MAX {
        replica.propose(Micros(600), Durability::Replicated, body(1)).unwrap();
    }
    let refused = replica.propose(Micros(600), Durability::Replicated, body(1));
    assert!(matches!(refused, Err(ProposeError::Full { ops: WINDOW_OPS_ALONE_MAX, .. })), "{refused:?}");
    replica.handle_written(Op(11));
    replica.handle_applied(Op(11));
    assert_eq!(
        replica.propose(Micros(600), Durability::Replicated, body(1)),
        Ok(Op(11 + WINDOW_OPS_ALONE_MAX as u64))
    );
}

#[test]
fn entry_above_the_byte_limit_travels_alone() {
    let mut replica = replica();
    replica.propose(Micros(600), Durability::Replicated, body(WINDOW_BYTES_MAX + 1)).unwrap();
    assert!(replica.propose(Micros(600), Durability::Replicated, body(1)).is_err());
}

#[test]
#[should_panic(expected = "flushed before it was written")]
fn flush_of_an_unwritten_entry_stops_the_process() {
    let mut replica = replica();
    let op = replica.propose(Micros(600), Durability::Persisted, body(1)).unwrap();
    replica.handle_synced(op);
}

#[test]
#[should_panic(expected = "applied out of order")]
fn apply_over_a_gap_stops_the_process() {
    let mut replica = replica();
    let op = replica.propose(Micros(600), Durability::Replicated, body(1)).unwrap();
    replica.handle_written(op);
    replica.handle_applied(op.next());
}

#[derive(Clone, Debug)]
enum Step {
    Propose(bool),
    Written(u64),
    Synced(u64),
    Apply,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(Step::Propose),
        (0..4u64).prop_map(Step::Written),
        (0..4u64).prop_map(Step::Synced),
        Just(Step::Apply),
    ]
}

proptest! {
    #[test]
    fn applies_every_entry_once_in_order_and_never_before_it_is_durable(steps in prop::collection::vec(step(), 0..200)) {
        let mut replica = replica();
        let mut to_apply = VecDeque::new();
        let mut next_applied = Op(11);
        for step in steps {
            let before = replica.frontier();
            match step {
                Step::Propose(persisted) => {
                    let durability = if persisted { Durability::Persisted } else { Durability::Replicated };
                    replica.propose(Micros(1), durability, body(3)).unwrap();
                }
                Step::Written(more) => replica.handle_written(Op(before.op_head.0.min(before.written.0 + more))),
                Step::Synced(more) => replica.handle_synced(Op(before.written.0.min(before.synced.0 + more))),
                Step::Apply => {
                    if let Some(op) = to_apply.pop_front() {
                        replica.handle_applied(op);
                    }
                }
            }
            while let Some(effect) = replica.poll_effect() {
                if let Effect::Apply(entry) = effect {
                    prop_assert_eq!(entry.op(), next_applied);
                    next_applied = next_applied.next();
                    let durable = match entry.header.durability {
                        Durability::Persisted => replica.frontier().synced,
                        Durability::Replicated => replica.frontier().written,
                    };
                    prop_assert!(entry.op() <= durable);
                    to_apply.push_back(entry.op());
                }
            }
            prop_assert!(invariants::frontiers_ordered(&replica.frontier()));
            prop_assert!(invariants::frontiers_grow(&before, &replica.frontier()));
        }
    }
}
