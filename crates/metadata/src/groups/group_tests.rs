//! The worked examples of consumer groups, section 3.4, and the rules of hand-offs, one by one.

use laneway_wire::{ClientId, Incarnation, Micros, Op, OwnerGeneration, PartitionId, SessionEpoch};

use super::group::{Completion, Group, JoinOutcome};
use super::registry::{CreateGroupError, Groups};
use super::row::Identity;

const INCARNATION: Incarnation = Incarnation(9);

fn who(letter: char) -> Identity {
    Identity { client: ClientId(letter as u128), session: SessionEpoch(1) }
}

/// A group under test, with a metadata log that counts.
struct Bench {
    group: Group,
    op: u64,
}

impl Bench {
    fn new(partitions: usize) -> Self {
        Self { group: Group::new(0, Op(1), "g".into(), vec![INCARNATION; partitions]), op: 10 }
    }

    fn tick(&mut self) -> (Op, Micros) {
        self.op += 1;
        (Op(self.op), Micros(self.op * 1000))
    }

    fn join(&mut self, letter: char) -> JoinOutcome {
        let (op, now) = self.tick();
        self.group.join(who(letter), op, now)
    }

    fn leave(&mut self, letter: char) {
        let (op, now) = self.tick();
        assert!(self.group.leave(who(letter).client, None, op, now));
    }

    fn pending_of(&self, partition: u32) -> Completion {
        let row = self.group.row(PartitionId(partition)).unwrap();
        let pending = row.pending.unwrap();
        Completion {
            partition: PartitionId(partition),
            incarnation: INCARNATION,
            target: pending.target,
            op: pending.op,
        }
    }

    fn settle(&mut self) {
        let pending: Vec<Completion> =
            self.group.pending().collect::<Vec<_>>().iter().map(|id| self.pending_of(id.0)).collect();
        assert_eq!(self.group.complete(pending.clone()), pending.len());
    }

    fn owners(&self) -> String {
        let letter = |identity: Option<Identity>| {
            identity.map_or('-', |who| char::from_u32(who.client.0 as u32).unwrap())
        };
        self.group.rows().iter().map(|row| letter(row.owner.map(|owner| owner.identity))).collect()
    }

    /// Pending entries as `2>B`, with `!` for skip-drain.
    fn moves(&self) -> String {
        let text = |id: PartitionId| {
            let pending = self.group.row(id).unwrap().pending.unwrap();
            let target = pending.target.map_or('-', |who| char::from_u32(who.client.0 as u32).unwrap());
            format!("{id}>{target}{}", if pending.skip_drain { "!" } else { "" })
        };
        self.group.pending().map(text).collect::<Vec<_>>().join(" ")
    }
}

/// Section 3.4, first table: every hand-off completes between the steps. G29, G30.
#[test]
fn settled_steps_of_the_specification() {
    for (partitions, expected) in
        [(3, ["AAA", "AAB", "ACB", "ACB", "ACD"]), (5, ["AAAAA", "AAABB", "AACBB", "AACBD", "AACCD"])]
    {
        let mut bench = Bench::new(partitions);
        for (step, owners) in ['A', 'B', 'C', 'D', '-'].into_iter().zip(expected) {
            match step {
                '-' => bench.leave('B'),
                letter => assert_eq!(bench.join(letter), JoinOutcome::Joined),
            }
            bench.settle();
            assert_eq!(bench.owners(), owners, "{partitions} partitions after {step}");
        }
    }
}

/// Section 3.4, second table: nothing completes after the first step. G34.
#[test]
fn unsettled_steps_of_the_specification() {
    let cases = [
        (3, ["2>B", "1>C 2>B", "1>C 2>B"], "0>D! 1>C! 2>B!"),
        (5, ["3>B 4>B", "2>C 3>B 4>B", "2>C 3>B 4>D"], "0>B! 1>C! 2>C! 3>B! 4>D!"),
    ];
    for (partitions, steps, after_a_ended) in cases {
        let mut bench = Bench::new(partitions);
        bench.join('A');
        bench.settle();
        for (letter, moves) in ['B', 'C', 'D'].into_iter().zip(steps) {
            bench.join(letter);
            assert_eq!(bench.moves(), moves, "{partitions} partitions after {letter}");
        }
        bench.leave('A');
        assert_eq!(bench.moves(), after_a_ended);
    }
}

/// Section 3.4, "More". G45, G47.
#[test]
fn targets_that_leave_give_back() {
    let mut bench = Bench::new(5);
    bench.join('A');
    bench.settle();
    bench.join('B');
    bench.join('C');
    let first = bench.group.row(PartitionId(4)).unwrap().pending.unwrap();
    bench.leave('B');
    assert_eq!(bench.moves(), "2>C 3>C 4>A");
    let again = bench.group.row(PartitionId(4)).unwrap().pending.unwrap();
    assert!(again.op > first.op, "returning to the owner is a decision of its own");
    bench.leave('C');
    assert_eq!(bench.moves(), "2>A 3>A 4>A", "A never left, so it drains");
    bench.settle();
    let owner = bench.group.row(PartitionId(4)).unwrap().owner.unwrap();
    assert_eq!(owner.generation, OwnerGeneration(again.op.0), "a re-install raises the owner generation");
}

/// G31: partitions that are added move none that is owned. G32: removing drops the tail.
#[test]
fn partitions_come_and_go() {
    let mut bench = Bench::new(3);
    bench.join('A');
    bench.join('B');
    bench.settle();
    let (op, now) = bench.tick();
    bench.group.set_partitions(vec![INCARNATION; 5], op, now);
    assert_eq!(bench.moves(), "3>B! 4>A!");
    bench.settle();
    let (op, now) = bench.tick();
    bench.group.set_partitions(vec![INCARNATION; 4], op, now);
    assert_eq!((bench.owners().as_str(), bench.moves().as_str()), ("AABB", ""));
    // Another life of the last partition begins without an owner.
    let (op, now) = bench.tick();
    bench.group.set_partitions([INCARNATION, INCARNATION, INCARNATION, Incarnation(50)], op, now);
    assert_eq!((bench.owners().as_str(), bench.moves().as_str()), ("AAB-", "3>B!"));
}

/// G29: one join into a balanced group moves floor(P / (M + 1)), all to the newcomer; its leave moves them back.
#[test]
fn a_fourth_member_takes_three_of_twelve() {
    let mut bench = Bench::new(12);
    for letter in ['A', 'B', 'C'] {
        bench.join(letter);
        bench.settle();
    }
    bench.join('D');
    assert_eq!(bench.group.pending().count(), 3);
    assert!(bench.group.pending().all(|id| bench.pending_of(id.0).target == Some(who('D'))));
    bench.settle();
    bench.leave('D');
    assert_eq!(bench.group.pending().count(), 3);
}

/// G33: members that join at once end balanced, whatever the order.
#[test]
fn many_members_at_once_end_balanced() {
    for (partitions, members, expected) in
        [(16, 16, vec![1; 16]), (12, 4, vec![3; 4]), (10, 4, vec![3, 3, 2, 2]), (16, 8, vec![2; 8])]
    {
        for order in [false, true] {
            let mut bench = Bench::new(partitions);
            let mut letters: Vec<char> = ('A'..).take(members).collect();
            if order {
                letters.reverse();
            }
            letters.iter().for_each(|letter| assert_eq!(bench.join(*letter), JoinOutcome::Joined));
            bench.settle();
            let mut sizes: Vec<usize> =
                bench.group.members().map(|member| bench.group.owned(member.identity).count()).collect();
            sizes.sort_by_key(|size| std::cmp::Reverse(*size));
            assert_eq!(sizes, expected, "{members} members on {partitions} partitions");
        }
    }
}

/// G16, G40: pending away is owned and not pollable; G24: sync lists are disjoint.
#[test]
fn pending_partitions_are_owned_and_not_polled() {
    let mut bench = Bench::new(3);
    bench.join('A');
    bench.settle();
    bench.join('B');
    let ids = |ids: &mut dyn Iterator<Item = PartitionId>| ids.map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(ids(&mut bench.group.owned(who('A'))), [0, 1, 2]);
    assert_eq!(ids(&mut bench.group.pollable(who('A'))), [0, 1]);
    assert_eq!(ids(&mut bench.group.owned(who('B'))), [] as [u32; 0]);
}

/// G18, G21: a second join changes nothing; a stranger cannot leave; the last to leave leaves an empty group.
#[test]
fn joins_and_leaves_are_idempotent() {
    let mut bench = Bench::new(2);
    bench.join('A');
    bench.settle();
    let before = bench.group.clone();
    assert_eq!(bench.join('A'), JoinOutcome::AlreadyMember);
    assert_eq!(bench.group, before);
    let (op, now) = bench.tick();
    assert!(!bench.group.leave(who('Z').client, None, op, now));
    assert_eq!(bench.group, before);
    bench.leave('A');
    assert_eq!((bench.group.members().len(), bench.moves().as_str()), (0, "0>-! 1>-!"));
    bench.settle();
    assert_eq!(bench.owners(), "--");
}

/// G20, G85: a newer session keeps the membership and gets its partitions anew; an end of the older one changes nothing.
#[test]
fn newer_session_takes_over() {
    let mut bench = Bench::new(2);
    bench.join('A');
    bench.settle();
    let generation = bench.group.row(PartitionId(0)).unwrap().owner.unwrap().generation;
    let newer = Identity { session: SessionEpoch(7), ..who('A') };
    let (op, now) = bench.tick();
    assert_eq!(bench.group.join(newer, op, now), JoinOutcome::SessionRenewed);
    assert_eq!(bench.moves(), "0>A! 1>A!");
    bench.settle();
    assert!(bench.group.row(PartitionId(0)).unwrap().owner.unwrap().generation > generation);
    let (op, now) = bench.tick();
    assert!(!bench.group.leave(newer.client, Some(SessionEpoch(1)), op, now));
    assert!(bench.group.has(newer));
}

/// G36: a retarget keeps the time of the first decision. G48: who left and is back is not waited for.
#[test]
fn churn_extends_no_deadline() {
    let mut bench = Bench::new(4);
    bench.join('A');
    bench.settle();
    bench.join('B');
    let first = bench.group.row(PartitionId(3)).unwrap().pending.unwrap();
    for _ in 0..5 {
        bench.leave('B');
        bench.join('B');
    }
    let last = bench.group.row(PartitionId(3)).unwrap().pending.unwrap();
    assert_eq!(last.created_at, first.created_at);
    assert!(!last.skip_drain, "A stayed, so it drains");
    bench.leave('A');
    bench.join('A');
    assert!(bench.group.pending().count() >= 2);
    assert!(bench.group.rows().iter().all(|row| row.pending.is_none_or(|pending| pending.skip_drain)));
}

/// G49, G50: a completion that differs from the row in anything, or comes twice, has no effect.
#[test]
fn stale_completions_have_no_effect() {
    let mut bench = Bench::new(2);
    bench.join('A');
    let right = bench.pending_of(1);
    let before = bench.group.clone();
    let wrong = [
        Completion { incarnation: Incarnation(8), ..right },
        Completion { target: Some(who('B')), ..right },
        Completion { target: None, ..right },
        Completion { op: Op(right.op.0 + 1), ..right },
        Completion { partition: PartitionId(2), ..right },
        Completion { partition: PartitionId(u32::MAX), ..right },
    ];
    assert_eq!(bench.group.complete(wrong), 0);
    assert_eq!(bench.group, before);
    assert_eq!(bench.group.complete([right, right]), 1);
    assert_eq!(bench.group.generation(), before.generation() + 1);
}

/// G6: slots are the lowest free numbers. G7: who takes a slot inherits nothing of it.
#[test]
fn slots_are_reused_and_name_nobody() {
    let mut bench = Bench::new(3);
    for letter in ['A', 'B', 'C'] {
        bench.join(letter);
    }
    bench.leave('B');
    bench.join('D');
    let slots: Vec<_> = bench.group.members().map(|member| (member.slot, member.identity)).collect();
    assert_eq!(slots, [(0, who('A')), (1, who('D')), (2, who('C'))]);
    assert!(bench.group.rows().iter().all(|row| row.candidate() != Some(who('B'))));
}

/// G12, G14: a delete leads every partition to nobody, and is over when all have reported.
#[test]
fn delete_ends_with_the_last_fence() {
    let mut bench = Bench::new(2);
    bench.join('A');
    bench.settle();
    let (op, now) = bench.tick();
    bench.group.begin_delete(op, now);
    assert_eq!((bench.moves().as_str(), bench.group.deleted()), ("0>-! 1>-!", false));
    bench.settle();
    assert!(bench.group.deleted());

    let mut empty = Group::new(0, Op(1), "g".into(), []);
    empty.begin_delete(Op(2), Micros(2));
    assert!(empty.deleted(), "a topic without partitions has nothing to wait for");
}

/// G1, G2, G4, G8: numbers only grow, names are unique, and a name of digits is a name.
#[test]
fn registry_never_reuses_a_number() {
    let mut groups = Groups::default();
    for round in 0..3 {
        let group = groups.create("7", Op(round + 1), [INCARNATION]).unwrap();
        assert_eq!(u64::from(group.id), round);
        assert_eq!(groups.create("7", Op(9), []).unwrap_err(), CreateGroupError::NameTaken);
        assert!(groups.find("7").is_some());
        groups.remove(group.id).unwrap();
    }
    assert!(groups.find("7").is_none());
    let restored = Groups::restore(vec![], groups.next_id()).unwrap();
    assert_eq!(restored.next_id(), 3);
    let mut full = Groups::restore(vec![], 1 << 32).unwrap();
    assert_eq!(full.create("x", Op(1), []).unwrap_err(), CreateGroupError::TooMany);
}
