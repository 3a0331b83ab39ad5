//! Parked reads: quotas, thresholds, deadlines, cancels, and the indexes against a model of all of it.

use std::collections::BTreeMap;

use laneway_reads::{
    Admission, ConnectionId, Deadlines, Expired, Nanos, ParkRefused, Requester, SessionKey, WaiterId,
    WaiterLimits, Waiters, WakeAt, invariants,
};
use laneway_wire::{
    ClientId, Incarnation, Offset, PartitionId, PartitionKey, RequestNumber, SessionEpoch, Status, UserId,
};
use proptest::prelude::*;

const LIMITS: WaiterLimits = WaiterLimits { shard_max: 8, user_max: 8, session_max: 3 };

fn partition(number: u32) -> PartitionKey {
    PartitionKey { incarnation: Incarnation(7), partition: PartitionId(number) }
}

fn requester(connection: u64, session: u64, request: u64) -> Requester {
    Requester {
        connection: ConnectionId(connection),
        session: SessionKey { client: ClientId(1), session: SessionEpoch(session) },
        request: RequestNumber(request),
    }
}

fn admission(number: u32, requester: Requester, wait: u64, request: u64) -> Admission<()> {
    Admission {
        partition: partition(number),
        requester,
        user: UserId(1),
        deadlines: Deadlines { wait: Nanos(wait), request: Nanos(request) },
        request: (),
    }
}

fn at_head(head: u64) -> WakeAt {
    WakeAt { head: Offset(head), bytes_total: None }
}

fn waiters() -> Waiters<()> {
    Waiters::new(LIMITS)
}

#[test]
fn session_quota_refuses_and_is_freed_by_a_cancel() {
    let mut waiters = waiters();
    for request in 1..=3 {
        waiters.admit(admission(0, requester(1, 9, request), 10, 20)).unwrap();
    }
    let (_, refused) = waiters.admit(admission(0, requester(2, 9, 4), 10, 20)).unwrap_err();
    assert_eq!(refused, ParkRefused::Session { max: 3 });
    assert_eq!(refused.status(), Status::DeferredPollCapacityExceeded);
    waiters.admit(admission(0, requester(2, 8, 1), 10, 20)).unwrap();
    assert!(waiters.cancel(requester(1, 9, 2)).is_some());
    waiters.admit(admission(0, requester(2, 9, 4), 10, 20)).unwrap();
}

#[test]
fn a_user_leaves_room_for_others_whatever_its_sessions() {
    let mut waiters: Waiters<()> = Waiters::new(WaiterLimits { user_max: 4, ..LIMITS });
    let of = |user, session, request| Admission {
        user: UserId(user),
        ..admission(0, requester(session, session, request), 10, 20)
    };
    for session in 1..=4 {
        waiters.admit(of(1, session, 1)).unwrap();
    }
    let (_, refused) = waiters.admit(of(1, 5, 1)).unwrap_err();
    assert_eq!(refused, ParkRefused::User { max: 4 });
    waiters.admit(of(2, 6, 1)).unwrap();
    assert!(waiters.cancel(requester(2, 2, 1)).is_some());
    waiters.admit(of(1, 5, 1)).unwrap();
    assert!(invariants::indexes_are_exact(&waiters) && invariants::within_limits(&waiters));
}

#[test]
fn shard_quota_refuses_the_next_one() {
    let mut waiters = waiters();
    for session in 0..8 {
        waiters.admit(admission(0, requester(1, session, 1), 10, 20)).unwrap();
    }
    let (_, refused) = waiters.admit(admission(0, requester(1, 99, 1), 10, 20)).unwrap_err();
    assert_eq!(refused, ParkRefused::Shard { max: 8 });
}

#[test]
fn commit_wakes_what_it_can_complete_and_nothing_else() {
    let mut waiters = waiters();
    let low = waiters.admit(admission(0, requester(1, 1, 1), 10, 20)).unwrap();
    let high = waiters.admit(admission(0, requester(1, 1, 2), 10, 20)).unwrap();
    let bytes = waiters.admit(admission(0, requester(1, 1, 3), 10, 20)).unwrap();
    let other = waiters.admit(admission(1, requester(1, 2, 4), 10, 20)).unwrap();
    waiters.park(low, at_head(5));
    waiters.park(high, at_head(9));
    waiters.park(bytes, WakeAt { head: Offset(100), bytes_total: Some(1_000) });
    waiters.park(other, at_head(0));
    assert_eq!(waiters.take_satisfied(partition(0), Offset(4), 999, 8), []);
    assert_eq!(waiters.take_satisfied(partition(0), Offset(5), 999, 8), [low]);
    assert_eq!(waiters.take_satisfied(partition(0), Offset(6), 1_000, 8), [bytes]);
    assert_eq!(waiters.take_satisfied(partition(0), Offset(9), 1_001, 8), [high]);
    assert_eq!(waiters.take_satisfied(partition(0), Offset(u64::MAX), u64::MAX, 8), []);
    assert_eq!(waiters.parked(partition(1)), 1);
}

#[test]
fn wait_ends_once_and_the_request_timeout_ends_a_running_read() {
    let mut waiters = waiters();
    let parked = waiters.admit(admission(0, requester(1, 1, 1), 10, 30)).unwrap();
    let running = waiters.admit(admission(0, requester(1, 1, 2), 5, 20)).unwrap();
    waiters.park(parked, at_head(5));
    assert_eq!(waiters.poll_timeout(), Some(Nanos(10)));
    assert_eq!(waiters.take_expired(Nanos(9), 8), []);
    assert_eq!(waiters.take_expired(Nanos(10), 8), [Expired::Wait(parked)]);
    assert_eq!(waiters.poll_timeout(), Some(Nanos(20)), "a running read is not cut off by its wait");
    assert_eq!(waiters.take_expired(Nanos(20), 8), [Expired::Request(running)]);
    assert_eq!(waiters.take_expired(Nanos(20), 8), [], "a timeout is reported once");
    assert!(waiters.finish(running).is_some());
    assert!(waiters.finish(running).is_none(), "a late result finds nothing");
    assert_eq!(waiters.len(), 1);
}

#[test]
fn cancel_needs_connection_session_and_request() {
    let mut waiters = waiters();
    waiters.admit(admission(0, requester(1, 2, 3), 10, 20)).unwrap();
    for wrong in [requester(9, 2, 3), requester(1, 9, 3), requester(1, 2, 9)] {
        assert!(waiters.cancel(wrong).is_none());
    }
    assert!(waiters.cancel(requester(1, 2, 3)).is_some());
    assert!(waiters.is_empty());
}

#[test]
fn loss_of_connection_session_partition_and_shard_empties_it() {
    let fill = || {
        let mut waiters = waiters();
        for (number, connection, session) in [(0, 1, 1), (0, 2, 1), (1, 1, 2)] {
            let requester = requester(connection, session, u64::from(number) + 1);
            let id = waiters.admit(admission(number, requester, 10, 20)).unwrap();
            waiters.park(id, at_head(3));
        }
        waiters
    };
    assert_eq!(fill().remove_connection(ConnectionId(1)).len(), 2);
    assert_eq!(fill().remove_session(requester(0, 1, 0).session).len(), 2);
    assert_eq!(fill().remove_partition(partition(0)).len(), 2);
    let mut waiters = fill();
    assert_eq!(waiters.drain().len(), 3);
    assert_eq!((waiters.len(), waiters.poll_timeout()), (0, None));
}

#[derive(Clone, Debug)]
enum Step {
    Admit { partition: u32, connection: u64, session: u64, request: u64, wait: u64, timeout: u64 },
    Park { nth: usize, head: u64, bytes: Option<u64> },
    Commit { partition: u32, head: u64, bytes: u64, max: usize },
    Expire { after: u64, max: usize },
    Finish { nth: usize },
    Connection { connection: u64 },
    Session { session: u64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u32..2, 0_u64..3, 0_u64..3, 0_u64..4, 0_u64..50, 0_u64..50).prop_map(
            |(partition, connection, session, request, wait, timeout)| Step::Admit {
                partition, connection, session, request, wait, timeout,
            }
        ),
        4 => (0_usize..8, 0_u64..20, prop::option::of(0_u64..20))
            .prop_map(|(nth, head, bytes)| Step::Park { nth, head, bytes }),
        2 => (0_u32..2, 0_u64..20, 0_u64..20, 1_usize..4)
            .prop_map(|(partition, head, bytes, max)| Step::Commit { partition, head, bytes, max }),
        2 => (0_u64..10, 1_usize..4).prop_map(|(after, max)| Step::Expire { after, max }),
        1 => (0_usize..8).prop_map(|nth| Step::Finish { nth }),
        1 => (0_u64..3).prop_map(|connection| Step::Connection { connection }),
        1 => (0_u64..3).prop_map(|session| Step::Session { session }),
    ]
}

/// A waiter of the model: what it was admitted with, where it is parked, whether its timeout was reported.
struct Model {
    admission: Admission<()>,
    parked: Option<WakeAt>,
    reported: bool,
}

impl Model {
    fn deadline(&self) -> Option<u64> {
        let deadlines = self.admission.deadlines;
        match self.parked {
            Some(_) => Some(deadlines.wait.0.min(deadlines.request.0)),
            None => (!self.reported).then_some(deadlines.request.0),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_indexes_quotas_and_deadlines(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut waiters = waiters();
        let mut model: BTreeMap<WaiterId, Model> = BTreeMap::new();
        let mut clock = 0;
        for step in steps {
            match step {
                Step::Admit { partition, connection, session, request, wait, timeout } => {
                    let admission =
                        admission(partition, requester(connection, session, request), wait, timeout);
                    let of_session = model
                        .values()
                        .filter(|other| other.admission.requester.session == admission.requester.session)
                        .count();
                    let fits = model.len() < LIMITS.shard_max && of_session < LIMITS.session_max;
                    let admitted = waiters.admit(admission.clone());
                    prop_assert_eq!(admitted.is_ok(), fits);
                    if let Ok(id) = admitted {
                        model.insert(id, Model { admission, parked: None, reported: false });
                    }
                }
                Step::Park { nth, head, bytes } => {
                    if let Some((id, waiter)) = model.iter_mut().nth(nth) {
                        let wake = WakeAt { head: Offset(head), bytes_total: bytes };
                        prop_assert_eq!(waiters.park(*id, wake), !waiter.reported);
                        waiter.parked = (!waiter.reported).then_some(wake);
                    }
                }
                Step::Commit { partition: number, head, bytes, max } => {
                    let woken = waiters.take_satisfied(partition(number), Offset(head), bytes, max);
                    let could: Vec<WaiterId> = model
                        .iter()
                        .filter(|(_, waiter)| waiter.admission.partition == partition(number))
                        .filter(|(_, waiter)| waiter.parked.is_some_and(|wake| {
                            wake.head.0 <= head || wake.bytes_total.is_some_and(|total| total <= bytes)
                        }))
                        .map(|(id, _)| *id)
                        .collect();
                    prop_assert_eq!(woken.len(), could.len().min(max));
                    for id in woken {
                        prop_assert!(could.contains(&id));
                        model.get_mut(&id).unwrap().parked = None;
                    }
                }
                Step::Expire { after, max } => {
                    clock += after;
                    let now = clock;
                    let due = model.values().filter(|waiter| waiter.deadline().is_some_and(|at| at <= now)).count();
                    let expired = waiters.take_expired(Nanos(now), max);
                    // A parked read whose wait and timeout are both over is reported once, as a timeout.
                    prop_assert!(expired.len() >= due.min(max) && expired.len() <= max);
                    for expired in expired {
                        let (Expired::Wait(id) | Expired::Request(id)) = expired;
                        let waiter = model.get_mut(&id).unwrap();
                        prop_assert!(waiter.deadline().is_some_and(|at| at <= now));
                        let timeout = waiter.admission.deadlines.request.0 <= now;
                        prop_assert_eq!(matches!(expired, Expired::Request(_)), timeout);
                        waiter.parked = None;
                        waiter.reported |= timeout;
                    }
                }
                Step::Finish { nth } => {
                    if let Some(id) = model.keys().nth(nth).copied() {
                        prop_assert!(waiters.finish(id).is_some());
                        model.remove(&id);
                    }
                }
                Step::Connection { connection } => {
                    let removed = waiters.remove_connection(ConnectionId(connection)).len();
                    let before = model.len();
                    model.retain(|_, waiter| waiter.admission.requester.connection.0 != connection);
                    prop_assert_eq!(removed, before - model.len());
                }
                Step::Session { session } => {
                    let removed = waiters.remove_session(requester(0, session, 0).session).len();
                    let before = model.len();
                    model.retain(|_, waiter| waiter.admission.requester.session.session.0 != session);
                    prop_assert_eq!(removed, before - model.len());
                }
            }
            prop_assert_eq!(waiters.len(), model.len());
            prop_assert!(invariants::indexes_are_exact(&waiters));
            prop_assert!(invariants::within_limits(&waiters));
            let earliest = model.values().filter_map(Model::deadline).min().map(Nanos);
            prop_assert_eq!(waiters.poll_timeout(), earliest);
        }
    }
}
