//! Where damage may fall, so that a run stays within what the protocol promises to survive.
//!
//! An entry that was acknowledged is on a replication quorum. While fewer members than that quorum lose the same range,
//! one of them still has it. The atlas picks, for each range of ops of each lane, which members may be damaged there.
//! A member that lost the end of its log, or its whole directory, cannot vote until it has learned what it lost; so those
//! members are picked once for the whole run, and the others are enough to elect.

use laneway_vsr::Quorums;

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
    /// Set when ends of logs or whole directories are lost: then the same members take all damage.
    victims: Option<Vec<usize>>,
    beyond_model: bool,
}

impl Atlas {
    /// An atlas for lanes of so many members. `whole`: ends of logs and directories as a whole are lost, too.
    /// `beyond_model`: everything may be damaged.
    pub fn new(members: usize, whole: bool, beyond_model: bool, random: &mut Random) -> Self {
        let quorums = Quorums::of(members).expect("a run has a number of nodes that has quorums");
        let losses_max = quorums.replication() - 1;
        let seed = random.bits();
        let whole_max = losses_max.min(members - quorums.view_change());
        let victims = whole.then(|| pick(members, whole_max, seed));
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

    /// Whether damage may reach the end of a log.
    pub fn reaches_the_end(&self) -> bool {
        self.beyond_model || self.victims.is_some()
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
        for (members, losses, whole_losses) in
            [(1, 0, 0), (2, 1, 0), (3, 1, 1), (4, 1, 1), (5, 2, 2), (6, 2, 2)]
        {
            for whole in [false, true] {
                let atlas = Atlas::new(members, whole, false, &mut Random::new(1, 2));
                let losses = if whole { whole_losses } else { losses };
                let mut hit = vec![false; members];
                for op in 0..2_000 {
                    let damaged: Vec<usize> = (0..members).filter(|m| atlas.may_damage(*m, 1, op)).collect();
                    assert_eq!(damaged.len(), losses);
                    damaged.iter().for_each(|member| hit[*member] = true);
                    if whole {
                        assert!(damaged.iter().all(|member| atlas.may_lose_all(*member)));
                    }
                }
                assert!(whole || losses == 0 || hit.iter().all(|hit| *hit));
            }
        }
    }
}
