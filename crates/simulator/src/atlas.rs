//! Where damage may fall, so that a run stays within what the protocol promises to survive.
//!
//! An entry that was acknowledged is on a replication quorum. While fewer members than that quorum lose the same range,
//! one of them still has it. The atlas picks, for each range of ops of each lane, which members may be damaged there;
//! an emptied or rolled-back directory loses every range of a node, so those nodes are picked once for the whole run.

use crate::random::Random;

/// Ops of one range.
const RANGE_OPS: u64 = 8;

/// Which members may lose what.
#[derive(Clone, Debug)]
pub struct Atlas {
    members: usize,
    /// Members that may lose the same range.
    losses_max: usize,
    seed: u64,
    /// Set when whole directories are lost: then the same members take all damage.
    victims: Option<Vec<usize>>,
    beyond_model: bool,
}

impl Atlas {
    /// An atlas for lanes of so many members, of which `replication` hold an acknowledged entry. `whole`: directories as
    /// a whole are lost, too. `beyond_model`: everything may be damaged.
    pub fn new(
        members: usize,
        replication: usize,
        whole: bool,
        beyond_model: bool,
        random: &mut Random,
    ) -> Self {
        let losses_max = replication - 1;
        let seed = random.bits();
        let victims = whole.then(|| pick(members, losses_max, seed));
        Self { members, losses_max, seed, victims, beyond_model }
    }

    /// Whether a member may lose an op of a lane.
    pub fn may_damage(&self, member: usize, lane: u32, op: u64) -> bool {
        if self.beyond_model {
            return true;
        }
        match &self.victims {
            Some(victims) => victims.contains(&member),
            None => {
                let range = (op / RANGE_OPS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let seed = self.seed ^ range ^ (u64::from(lane) << 32);
                pick(self.members, self.losses_max, seed).contains(&member)
            }
        }
    }

    /// Whether a member may lose its whole directory, or unflushed writes that were acknowledged as replicated.
    pub fn may_lose_all(&self, member: usize) -> bool {
        self.beyond_model || self.victims.as_ref().is_some_and(|victims| victims.contains(&member))
    }

    /// Whether damage is placed without regard to what the protocol can survive.
    pub fn is_beyond_model(&self) -> bool {
        self.beyond_model
    }
}

/// `count` of `members`, chosen by the seed.
fn pick(members: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed, 7);
    let mut all: Vec<usize> = (0..members).collect();
    for place in 0..count {
        let other = place + random.index(members - place);
        all.swap(place, other);
    }
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_range_is_lost_by_a_whole_quorum_and_each_member_is_hit_somewhere() {
        for (members, replication) in [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (6, 3)] {
            for whole in [false, true] {
                let atlas = Atlas::new(members, replication, whole, false, &mut Random::new(1, 2));
                let mut hit = vec![false; members];
                for op in 0..2_000 {
                    let damaged: Vec<usize> = (0..members).filter(|m| atlas.may_damage(*m, 1, op)).collect();
                    assert_eq!(damaged.len(), replication - 1);
                    damaged.iter().for_each(|member| hit[*member] = true);
                    if whole {
                        assert!(damaged.iter().all(|member| atlas.may_lose_all(*member)));
                    }
                }
                assert!(whole || replication == 1 || hit.iter().all(|hit| *hit));
            }
        }
    }
}
