//! Lanes of the data plane: which exist, of which class, and how many partitions each carries.
//!
//! Numbers are fixed by arithmetic, so that every node agrees on them without asking: lane 0 orders the metadata, and
//! class `c` has the lanes `1 + c * lanes_per_class ..` of that many. A lane exists from the first partition it is
//! given, and stays when its last partition goes, because its log does.

use std::collections::BTreeSet;

use imbl::OrdMap;
use laneway_wire::LaneId;

use crate::options::Durability;

/// Most lanes a class may have. Keeps lane numbers small enough for one heartbeat and one flush list per lane.
pub const LANES_PER_CLASS_MAX: u32 = 4096;

/// What the partitions of one lane have in common: what an acknowledgement of it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneClass {
    /// When an entry of the lane counts as acknowledged.
    pub durability: Durability,
}

impl LaneClass {
    const ALL: [LaneClass; 2] =
        [LaneClass { durability: Durability::Replicated }, LaneClass { durability: Durability::Persisted }];

    /// Position of the class among the classes; part of every lane number, so it never changes.
    fn index(self) -> u32 {
        match self.durability {
            Durability::Replicated => 0,
            Durability::Persisted => 1,
        }
    }
}

/// One lane of the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// What its partitions have in common.
    pub class: LaneClass,
    /// Live partitions it carries.
    pub partitions_count: u32,
}

/// All lanes that were ever used.
#[derive(Clone, Debug)]
pub struct Lanes {
    per_class: u32,
    by_id: OrdMap<LaneId, Lane>,
}

impl Lanes {
    /// No lane is used yet. `per_class`: 1 to [`LANES_PER_CLASS_MAX`].
    pub fn new(per_class: u32) -> Self {
        assert!((1..=LANES_PER_CLASS_MAX).contains(&per_class), "checked where the number came in");
        Self { per_class, by_id: OrdMap::new() }
    }

    /// How many lanes each class may have.
    pub fn per_class(&self) -> u32 {
        self.per_class
    }

    /// The class that a lane number belongs to; none for lane 0 and for numbers beyond the last class.
    pub fn class_of(&self, lane: LaneId) -> Option<LaneClass> {
        let index = lane.0.checked_sub(1)? / self.per_class;
        LaneClass::ALL.get(index as usize).copied()
    }

    /// The lanes used so far, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (LaneId, Lane)> + '_ {
        self.by_id.iter().map(|(id, lane)| (*id, *lane))
    }

    /// One lane, if it was ever used.
    pub fn lane(&self, lane: LaneId) -> Option<Lane> {
        self.by_id.get(&lane).copied()
    }

    /// A lane for each of `count` new partitions: the one with fewest partitions, then with the lowest number, counting
    /// those just placed.
    pub fn plan(&self, class: LaneClass, count: u32) -> Vec<LaneId> {
        let mut order: BTreeSet<(u32, LaneId)> = self
            .numbers(class)
            .map(|lane| (self.lane(lane).map_or(0, |lane| lane.partitions_count), lane))
            .collect();
        let mut planned = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (load, lane) = order.pop_first().expect("a class has at least one lane");
            planned.push(lane);
            order.insert((load + 1, lane));
        }
        planned
    }

    /// Takes a plan as it is when every lane in it is of the class, and makes a new one otherwise. A plan is made before
    /// the op is ordered; an op in between may have replaced the topic by one of another class.
    pub fn confirm(&self, class: LaneClass, planned: &[LaneId]) -> Vec<LaneId> {
        match planned.iter().all(|lane| self.class_of(*lane) == Some(class)) {
            true => planned.to_vec(),
            false => self.plan(
                class,
                u32::try_from(planned.len()).expect("a plan is bounded by the partitions of a request"),
            ),
        }
    }

    /// Counts one more partition on the lane and makes the lane on first use.
    pub(crate) fn add_partition(&mut self, lane: LaneId) {
        let class = self.class_of(lane).expect("partitions are placed on data lanes only");
        let mut entry = self.lane(lane).unwrap_or(Lane { class, partitions_count: 0 });
        entry.partitions_count += 1;
        self.by_id.insert(lane, entry);
    }

    /// Counts one partition less on the lane.
    pub(crate) fn remove_partition(&mut self, lane: LaneId) {
        let mut entry = self.lane(lane).expect("a partition's lane exists");
        entry.partitions_count =
            entry.partitions_count.checked_sub(1).expect("the lane carried the partition");
        self.by_id.insert(lane, entry);
    }

    /// Marks a lane as used without a partition, as a snapshot found it.
    pub(crate) fn restore(&mut self, lane: LaneId) -> Option<()> {
        let class = self.class_of(lane)?;
        self.by_id.entry(lane).or_insert(Lane { class, partitions_count: 0 });
        Some(())
    }

    fn numbers(&self, class: LaneClass) -> impl Iterator<Item = LaneId> + use<> {
        let first = 1 + class.index() * self.per_class;
        (first..first + self.per_class).map(LaneId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICATED: LaneClass = LaneClass { durability: Durability::Replicated };
    const PERSISTED: LaneClass = LaneClass { durability: Durability::Persisted };

    #[test]
    fn new_partitions_spread_over_the_lanes_of_their_class() {
        let mut lanes = Lanes::new(3);
        assert_eq!(lanes.plan(REPLICATED, 4), [1, 2, 3, 1].map(LaneId));
        assert_eq!(lanes.plan(PERSISTED, 2), [4, 5].map(LaneId));
        lanes.add_partition(LaneId(4));
        lanes.add_partition(LaneId(4));
        lanes.add_partition(LaneId(5));
        assert_eq!(lanes.plan(PERSISTED, 3), [6, 5, 6].map(LaneId));
        lanes.remove_partition(LaneId(4));
        lanes.remove_partition(LaneId(4));
        assert_eq!(lanes.plan(PERSISTED, 2), [4, 6].map(LaneId));
    }

    #[test]
    fn a_plan_of_another_class_is_replaced() {
        let lanes = Lanes::new(2);
        assert_eq!(lanes.confirm(PERSISTED, &[LaneId(4)]), [LaneId(4)]);
        assert_eq!(lanes.confirm(PERSISTED, &[LaneId(1), LaneId(4)]), [LaneId(3), LaneId(4)]);
        assert_eq!(lanes.confirm(PERSISTED, &[LaneId(0)]), [LaneId(3)]);
        assert_eq!(lanes.confirm(PERSISTED, &[LaneId(5)]), [LaneId(3)]);
    }
}
