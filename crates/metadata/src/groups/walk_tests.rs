//! A long random walk over one group and the lanes of its partitions, which install, drain and report at their own pace.

use std::collections::BTreeMap;

use laneway_wire::{ClientId, Incarnation, Micros, Op, PartitionId, SessionEpoch};

use super::group::{Completion, Group};
use super::row::Identity;

const STEPS: usize = 100_000;
const CLIENTS: u64 = 9;

/// Xorshift: the walk is the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What the lane of one partition has installed, and reports of it that are under way.
#[derive(Default)]
struct Lane {
    incarnation: u64,
    installed: Option<(u64, Option<Identity>)>,
    /// Decisions that were seen and not installed yet; they may arrive late and in any order.
    seen: Vec<Completion>,
}

struct World {
    group: Group,
    lanes: Vec<Lane>,
    reports: Vec<Completion>,
    sessions: BTreeMap<u64, u64>,
    op: u64,
    incarnations: u64,
}

impl World {
    fn identity(&self, client: u64) -> Identity {
        Identity { client: ClientId(u128::from(client)), session: SessionEpoch(self.sessions[&client]) }
    }

    fn next(&mut self) -> (Op, Micros) {
        self.op += 1;
        (Op(self.op), Micros(self.op))
    }

    fn set_partitions(&mut self, count: usize) {
        while self.lanes.len() < count {
            self.incarnations += 1;
            self.lanes.push(Lane { incarnation: self.incarnations, ..Lane::default() });
        }
        self.lanes.truncate(count);
        let (op, now) = self.next();
        let incarnations: Vec<_> = self.lanes.iter().map(|lane| Incarnation(lane.incarnation)).collect();
        self.group.set_partitions(incarnations, op, now);
    }

    /// The lane of a partition learns what metadata decided.
    fn observe(&mut self, partition: usize) {
        let row = self.group.rows()[partition];
        if let Some(pending) = row.pending {
            let decision = Completion {
                partition: PartitionId(partition as u32),
                incarnation: row.incarnation,
                target: pending.target,
                op: pending.op,
            };
            if !self.lanes[partition].seen.contains(&decision) {
                self.lanes[partition].seen.push(decision);
            }
        }
    }

    /// The lane installs one decision that it learned of, unless a newer one is installed, and reports it.
    fn install(&mut self, partition: usize, dice: &mut Dice) {
        let lane = &mut self.lanes[partition];
        if lane.seen.is_empty() {
            return;
        }
        let decision = lane.seen.swap_remove(dice.below(lane.seen.len() as u64) as usize);
        if decision.incarnation.0 == lane.incarnation
            && lane.installed.is_none_or(|(generation, _)| generation < decision.op.0)
        {
            lane.installed = Some((decision.op.0, decision.target));
            self.reports.push(decision);
        }
    }

    /// G24, G26: at most one member polls a partition, and only one that the lane has installed, too, may commit.
    fn check(&self) {
        for (partition, row) in self.group.rows().iter().enumerate() {
            let pollers = self.group.members().filter(|member| row.pollable_by(member.identity)).count();
            assert!(pollers <= 1, "partition {partition} has {pollers} pollers");
            let Some(owner) = row.owner else { continue };
            let (generation, _) = self.lanes[partition].installed.expect("an owner was installed once");
            assert!(generation >= owner.generation.0, "the lane is never behind a completed install");
            if row.pending.is_none() {
                let installed = self.lanes[partition].installed;
                assert_eq!(installed, Some((owner.generation.0, Some(owner.identity))), "{partition}");
            }
        }
    }

    fn settle(&mut self) {
        for partition in 0..self.lanes.len() {
            self.observe(partition);
            self.lanes[partition].seen.sort_by_key(|decision| decision.op);
            while !self.lanes[partition].seen.is_empty() {
                self.install(partition, &mut Dice(1));
            }
        }
        let reports = std::mem::take(&mut self.reports);
        self.group.complete(reports);
        assert_eq!(self.group.pending().count(), 0, "every hand-off ends by its reports");
        let sizes: Vec<usize> =
            self.group.members().map(|member| self.group.pollable(member.identity).count()).collect();
        if let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) {
            assert!(most - least <= 1, "{sizes:?}");
            assert_eq!(sizes.iter().sum::<usize>(), self.lanes.len(), "no partition is left unowned");
        }
    }
}

/// G24 to G28, G33 to G35, G45, G46, G49, G50, G95.
#[test]
fn members_come_and_go_while_hand_offs_are_under_way() {
    let mut dice = Dice(0x5eed_1234_abcd_0001);
    let group = Group::new(0, Op(1), "g".into(), []);
    let sessions = (1..=CLIENTS).map(|client| (client, 1)).collect();
    let mut world = World { group, lanes: vec![], reports: vec![], sessions, op: 1, incarnations: 0 };
    let (mut moves, mut settled, mut generation) = (0, 0, 0);
    for _ in 0..STEPS {
        let client = 1 + dice.below(CLIENTS);
        let partitions = world.lanes.len() as u64;
        match dice.below(100) {
            0..8 => {
                let identity = world.identity(client);
                let (op, now) = world.next();
                world.group.join(identity, op, now);
            }
            8..14 => {
                let (op, now) = world.next();
                world.group.leave(ClientId(u128::from(client)), None, op, now);
            }
            14..16 => {
                *world.sessions.get_mut(&client).unwrap() += 1;
                let identity = world.identity(client);
                let (op, now) = world.next();
                world.group.join(identity, op, now);
            }
            16 => world.set_partitions(dice.below(14) as usize),
            17..45 if partitions > 0 => world.observe(dice.below(partitions) as usize),
            45..72 if partitions > 0 => world.install(dice.below(partitions) as usize, &mut dice),
            72..96 if !world.reports.is_empty() => {
                let report = world.reports.swap_remove(dice.below(world.reports.len() as u64) as usize);
                moves += world.group.complete([report]);
                // Once more: a duplicate has no effect.
                assert_eq!(world.group.complete([report]), 0);
            }
            99 => {
                world.settle();
                settled += 1;
            }
            _ => {}
        }
        assert!(world.group.generation() >= generation, "generations only grow (G25)");
        generation = world.group.generation();
        world.check();
    }
    assert!(moves > 1000 && settled > 500, "the walk did what it is for: {moves} moves, settled {settled}");
}
