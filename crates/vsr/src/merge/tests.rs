use laneway_wire::{LaneId, Micros, ReplicaId};
use proptest::prelude::*;

use super::*;
use crate::entry::{Durability, EntryBody, View};
use crate::header::{ClusterId, Draft, Epoch};
use crate::vote::{CheckpointId, Slot};

const CLUSTER: ClusterId = ClusterId(1);
const LANE: LaneId = LaneId(2);

fn root() -> Identity {
    Identity::root(CLUSTER, LANE)
}

/// Headers of ops 1 to `count`; from op `fork` on those of another history.
fn chain(count: u64, fork: u64) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::new();
    for op in 1..=count {
        let parent = headers.last().map_or(root(), |header: &Header| header.identity);
        let draft = Draft {
            op: Op(op),
            parent,
            view: View(if op >= fork { 2 } else { 1 }),
            commit: Op(0),
            timestamp: Micros(op),
            epoch: Epoch(0),
            primary: ReplicaId(0),
            durability: Durability::Persisted,
        };
        let body = EntryBody::operation(vec![u8::from(op >= fork)]);
        headers.push(Header::seal(CLUSTER, LANE, draft, &body));
    }
    headers
}

/// A vote of a log that is whole from 1 to the end of `headers`.
fn vote(log_view: u32, commit: u64, headers: &[Header]) -> Vote {
    let slots = headers
        .iter()
        .rev()
        .filter(|header| header.op.0 >= commit.max(1))
        .map(|header| Slot { held: Held::Present(*header), nack: false })
        .collect();
    Vote {
        view: View(9),
        log_view: View(log_view),
        op_head: headers.last().map_or(Op(0), |header| header.op),
        commit_max: Op(commit),
        checkpoint: CheckpointId { op: Op(0), identity: root() },
        trust: LogTrust::Trusted,
        syncing: false,
        slots,
    }
}

fn with(mut vote: Vote, op: u64, change: impl Fn(Header) -> Slot) -> Vote {
    let index = (vote.op_head.0 - op) as usize;
    let header = *vote.slots[index].held.header().unwrap();
    vote.slots[index] = change(header);
    assert!(vote.is_well_formed());
    vote
}

fn faulty(header: Header) -> Slot {
    Slot { held: Held::Faulty(Some(header)), nack: false }
}

fn merge(votes: &[Option<Vote>]) -> Merge {
    let quorums = Quorums::of(votes.len()).unwrap();
    Ballot { votes, quorums, mutations: Mutations::NONE }.merge()
}

fn head(merge: &Merge) -> Option<u64> {
    match merge {
        Merge::Ready(merged) => Some(merged.op_head.0),
        _ => None,
    }
}

#[test]
fn v43_truncation_needs_nack_quorum() {
    let (long, short) = (chain(9, 99), chain(8, 99));
    // The dead primary alone had op 9: two members deny it, and it goes.
    let decided = merge(&[None, Some(vote(1, 8, &short)), Some(vote(1, 8, &short))]);
    assert_eq!(head(&decided), Some(8));
    // One of three denies it and one holds it: it stays.
    let decided = merge(&[Some(vote(1, 8, &long)), Some(vote(1, 8, &short)), None]);
    assert_eq!(head(&decided), Some(9));
    // One denies it, one lost it: neither stays nor goes before the third has spoken.
    let lost = with(vote(1, 8, &long), 9, faulty);
    assert_eq!(merge(&[Some(lost.clone()), Some(vote(1, 8, &short)), None]), Merge::Waiting(Some(Op(9))));
    let decided = merge(&[Some(lost.clone()), Some(vote(1, 8, &short)), Some(vote(1, 8, &short))]);
    assert_eq!(head(&decided), Some(8));
    let decided = merge(&[Some(lost), Some(vote(1, 8, &short)), Some(vote(1, 8, &long))]);
    assert_eq!(head(&decided), Some(9));
}

#[test]
fn v43_nothing_at_or_below_the_commit_point_is_truncated() {
    let (long, short) = (chain(9, 99), chain(7, 99));
    let decided = merge(&[Some(vote(1, 9, &long)), Some(vote(1, 6, &short)), None]);
    assert_eq!(head(&decided), Some(9), "the commit point of one vote holds for all");
}

#[test]
fn v44_nack_quorum_at_commit_refuses_the_view() {
    let short = chain(8, 99);
    let mut knows = vote(1, 8, &short);
    (knows.commit_max, knows.slots) = (Op(9), Vec::new());
    let refused = merge(&[Some(knows), Some(vote(1, 8, &short)), Some(vote(1, 8, &short))]);
    assert_eq!(refused, Merge::Refused(Refusal::CommittedEntryDenied { op: Op(9), nacks: 3 }));
}

#[test]
fn v45_a_disagreement_in_one_log_view_is_no_nack() {
    let (one, other) = (chain(9, 99), chain(9, 9));
    let both = [Some(vote(1, 8, &one)), Some(vote(1, 8, &other)), None];
    assert_eq!(merge(&both), Merge::Waiting(Some(Op(9))));
    let all = [both[0].clone(), both[1].clone(), Some(vote(1, 8, &chain(9, 99)))];
    assert_eq!(merge(&all), Merge::Refused(Refusal::Conflict { op: Op(9) }));
}

#[test]
fn v45_an_older_log_view_gives_way() {
    let (stale, new) = (chain(9, 99), chain(9, 9));
    let decided = merge(&[Some(vote(1, 8, &stale)), Some(vote(2, 8, &new)), None]);
    let Merge::Ready(merged) = decided else { panic!("{decided:?}") };
    assert_eq!(merged.op_head, Op(9));
    assert_eq!(merged.headers[0], new[8]);
    assert_eq!(merged.holders[0], 0b10, "only who holds the entry of the latest view can give it away");
}

#[test]
fn v46_a_silent_vote_abstains() {
    let (long, short) = (chain(9, 99), chain(8, 99));
    let mut silent = vote(1, 8, &long);
    silent.slots.clear();
    assert_eq!(merge(&[Some(silent), Some(vote(1, 8, &short)), None]), Merge::Waiting(Some(Op(9))));
}

#[test]
fn v42_faulty_untrusted_and_syncing_votes_deny_nothing() {
    let (long, short) = (chain(9, 99), chain(8, 99));
    let header_only = |header| Slot { held: Held::HeaderOnly(header), nack: false };
    let unfinished = with(vote(1, 8, &long), 9, header_only);
    assert_eq!(merge(&[Some(unfinished), Some(vote(1, 8, &short)), None]), Merge::Waiting(Some(Op(9))));
    let syncing = Vote { syncing: true, ..vote(1, 8, &short) };
    let lost = with(vote(1, 8, &long), 9, faulty);
    let votes = [Some(lost.clone()), Some(syncing), Some(vote(1, 8, &short))];
    assert_eq!(merge(&votes), Merge::Refused(Refusal::Lost { op: Op(9) }));
    let untrusted = Vote { trust: LogTrust::Untrusted, ..vote(1, 8, &short) };
    let votes = [Some(lost), Some(untrusted.clone()), Some(vote(1, 8, &short))];
    assert_eq!(merge(&votes), Merge::Refused(Refusal::Lost { op: Op(9) }));
    // With one trusted vote only, everybody has to speak, and then everybody is believed, with an alarm.
    let waiting = [Some(untrusted.clone()), Some(vote(1, 8, &short)), None];
    assert_eq!(merge(&waiting), Merge::Waiting(None));
    let all = [Some(untrusted.clone()), Some(vote(1, 8, &short)), Some(untrusted)];
    let Merge::Ready(merged) = merge(&all) else { panic!() };
    assert!(merged.data_loss_possible && merged.op_head == Op(8));
}

#[test]
fn v47_the_floor_of_a_vote_is_not_committed() {
    // Nobody knows of a commit, and the list of the long vote starts at op 3.
    let (long, short) = (chain(5, 99), chain(2, 99));
    let mut clamped = vote(1, 0, &long);
    clamped.slots.truncate(3);
    let votes = [None, Some(vote(1, 0, &short)), Some(vote(1, 0, &short))];
    assert_eq!(head(&merge(&votes)), Some(2));
    let Merge::Ready(merged) = merge(&[Some(vote(1, 0, &long)), Some(vote(1, 0, &short)), None]) else {
        panic!()
    };
    assert_eq!((merged.commit_max, merged.op_head), (Op(0), Op(5)));
    assert_eq!(merge(&[Some(clamped), Some(vote(1, 0, &[])), None]), Merge::Waiting(Some(Op(1))));
}

#[test]
fn v48_the_window_is_a_constant_of_the_merge() {
    // The commit point follows from the head and the constant, not from anything local.
    let long = chain(WINDOW_OPS_MAX as u64 + 5, 9999);
    let vote = |_: usize| {
        let mut vote = vote(1, 0, &long);
        vote.slots.truncate(crate::vote::VOTE_SLOTS_MAX);
        Some(vote)
    };
    let Merge::Ready(merged) = merge(&[vote(0), vote(1), None]) else { panic!() };
    assert_eq!(merged.commit_max, Op(5));
    assert_eq!(merged.headers.len(), WINDOW_OPS_MAX + 1);
}

#[test]
fn v92_votes_that_all_checkpointed_at_one_op_decide() {
    let headers = chain(8, 99);
    let identity = headers[7].identity;
    let trimmed =
        Vote { checkpoint: CheckpointId { op: Op(8), identity }, slots: Vec::new(), ..vote(1, 8, &headers) };
    let Merge::Ready(merged) = merge(&[Some(trimmed.clone()), Some(trimmed), None]) else { panic!() };
    assert_eq!((merged.op_head, merged.commit_max, merged.headers.len()), (Op(8), Op(8), 0));
}

/// V44, V46. Found by random schedules: the one denied a committed entry because the checkpoint of the other had taken
/// its place, and two members never elected again.
#[test]
fn a_checkpoint_of_the_latest_view_is_not_denied_by_older_entries() {
    let headers = chain(8, 99);
    let identity = headers[7].identity;
    let checkpoint = CheckpointId { op: Op(8), identity };
    let trimmed = Vote { checkpoint, slots: Vec::new(), ..vote(2, 8, &headers) };
    let decided = merge(&[Some(trimmed), Some(vote(1, 7, &headers))]);
    let Merge::Ready(merged) = decided else { panic!("{decided:?}") };
    assert_eq!((merged.op_head, merged.commit_max), (Op(8), Op(8)));
}

#[test]
fn an_empty_lane_decides_an_empty_log() {
    assert_eq!(head(&merge(&[Some(vote(0, 0, &[])), Some(vote(0, 0, &[])), None])), Some(0));
}

#[test]
fn a_lost_name_in_the_latest_view_is_not_denied_by_older_views() {
    // The entry of older votes may be the very one whose name is lost.
    let headers = chain(9, 99);
    let nameless = with(vote(2, 8, &headers), 9, |_| Slot { held: Held::Faulty(None), nack: false });
    let old = || Some(vote(1, 8, &headers));
    let votes = [Some(nameless), old(), old(), old(), None];
    assert_eq!(merge(&votes), Merge::Waiting(Some(Op(9))));
}

#[test]
fn a_broken_chain_is_refused() {
    let (mut headers, other) = (chain(9, 99), chain(9, 8));
    headers[8] = other[8];
    let votes = [Some(vote(1, 7, &headers)), Some(vote(1, 7, &headers)), None];
    assert_eq!(merge(&votes), Merge::Refused(Refusal::Broken { op: Op(9) }));
}

proptest! {
    /// Whatever subset of votes is present: an entry that a replication quorum acknowledged survives, or nothing is
    /// decided.
    #[test]
    fn what_a_quorum_acknowledged_is_never_dropped(
        members in 1usize..=9,
        heads in prop::collection::vec(0u64..12, 9),
        damage in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.15), 12), 9),
        here in prop::collection::vec(any::<bool>(), 9),
    ) {
        let all = chain(12, 99);
        let quorums = Quorums::of(members).unwrap();
        let votes: Vec<Option<Vote>> = (0..members)
            .map(|member| {
                let mut vote = vote(1, 0, &all[..heads[member] as usize]);
                for op in 1..=heads[member] {
                    if damage[member][op as usize - 1] {
                        vote = with(vote, op, faulty);
                    }
                }
                here[member].then_some(vote)
            })
            .collect();
        let acknowledged = |op: u64| (0..members).filter(|member| heads[*member] >= op).count();
        let committed = (1..=12).filter(|op| acknowledged(*op) >= quorums.replication()).max().unwrap_or(0);
        match merge(&votes) {
            Merge::Ready(merged) => {
                prop_assert!(merged.op_head.0 >= committed, "{} < {committed}", merged.op_head);
                for (header, holders) in merged.headers.iter().zip(&merged.holders) {
                    prop_assert!(*holders != 0, "op {} is held by nobody", header.op);
                }
            }
            Merge::Waiting(_) => prop_assert!(votes.iter().any(Option::is_none)),
            Merge::Refused(_) => {}
        }
    }
}
