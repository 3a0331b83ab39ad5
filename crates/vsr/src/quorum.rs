//! How many replicas it takes to commit, to elect, and to prove that an entry was never acknowledged.

/// Most members of one lane. More make elections slower and no failure likelier to be survived; larger clusters add
/// learners.
pub const MEMBERS_MAX: usize = 9;

/// Most replicas that a commit waits for by default: beyond three, more copies cost latency and buy little.
const REPLICATION_MAX: usize = 3;

/// The quorums of a member list. Any replication quorum meets any view change quorum, and any nack quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorums {
    members: u8,
    replication: u8,
    view_change: u8,
    nack: u8,
}

/// Why quorums cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuorumError {
    /// No lane has so many members.
    #[error("a lane has 1 to {MEMBERS_MAX} members, not {members}")]
    Members {
        /// Members asked for.
        members: usize,
    },
    /// A quorum of none, or of more than there are.
    #[error("a quorum of {quorum} out of {members} members")]
    Range {
        /// The quorum asked for.
        quorum: usize,
        /// Members.
        members: usize,
    },
    /// A commit could be missed by an election.
    #[error(
        "{replication} replicas that commit and {view_change} that elect need not meet among {members}: \
         their sum must be above {members}"
    )]
    Disjoint {
        /// Replicas that commit.
        replication: usize,
        /// Replicas that elect.
        view_change: usize,
        /// Members.
        members: usize,
    },
    /// One of two members could elect itself while the other one works.
    #[error("two members must both take part: {replication} committing, {view_change} electing")]
    Pair {
        /// Replicas that commit.
        replication: usize,
        /// Replicas that elect.
        view_change: usize,
    },
}

impl Quorums {
    /// The default quorums of `members` replicas. Source: cluster specification, 2.5.
    ///
    /// Errors: [`QuorumError::Members`].
    pub fn of(members: usize) -> Result<Quorums, QuorumError> {
        let replication = match members {
            2 => 2,
            _ => members.div_ceil(2).min(REPLICATION_MAX),
        };
        let view_change = match members {
            2 => 2,
            _ => members.saturating_sub(replication).saturating_add(1),
        };
        Quorums::flexible(members, replication, view_change)
    }

    /// Chosen quorums. The nack quorum follows from the replication quorum and is never loosened.
    ///
    /// Errors: the first relation that does not hold.
    pub fn flexible(members: usize, replication: usize, view_change: usize) -> Result<Quorums, QuorumError> {
        if !(1..=MEMBERS_MAX).contains(&members) {
            return Err(QuorumError::Members { members });
        }
        for quorum in [replication, view_change] {
            if !(1..=members).contains(&quorum) {
                return Err(QuorumError::Range { quorum, members });
            }
        }
        if replication + view_change <= members {
            return Err(QuorumError::Disjoint { replication, view_change, members });
        }
        if members == 2 && (replication != 2 || view_change != 2) {
            return Err(QuorumError::Pair { replication, view_change });
        }
        // Everything is at most MEMBERS_MAX here.
        let small = |count: usize| count as u8;
        let quorums = Quorums {
            members: small(members),
            replication: small(replication),
            view_change: small(view_change),
            nack: small(members - replication + 1),
        };
        assert!(quorums.intersect(), "{quorums:?}");
        Ok(quorums)
    }

    /// Members that the quorums are of.
    pub fn members(&self) -> usize {
        self.members.into()
    }

    /// Replicas that hold an entry when it commits, the primary included.
    pub fn replication(&self) -> usize {
        self.replication.into()
    }

    /// Replicas that suspect a primary, and that vote for the next one.
    pub fn view_change(&self) -> usize {
        self.view_change.into()
    }

    /// Replicas whose word that they never acknowledged an entry proves that it did not commit.
    pub fn nack(&self) -> usize {
        self.nack.into()
    }

    /// Whether the quorums that must share a member do. Source: V63.
    pub fn intersect(&self) -> bool {
        self.replication + self.view_change > self.members && self.replication + self.nack > self.members
    }
}

/// Checks the whole table of default quorums. Every replica asserts it when it starts. Source: V63.
pub fn table_holds() -> bool {
    (1..=MEMBERS_MAX).all(|members| Quorums::of(members).is_ok_and(|quorums| quorums.intersect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V63. Source: cluster specification, 2.5.
    #[test]
    fn the_table_is_the_specified_one() {
        let table = [
            (1, 1, 1, 1),
            (2, 2, 2, 1),
            (3, 2, 2, 2),
            (4, 2, 3, 3),
            (5, 3, 3, 3),
            (6, 3, 4, 4),
            (7, 3, 5, 5),
            (8, 3, 6, 6),
            (9, 3, 7, 7),
        ];
        for (members, replication, view_change, nack) in table {
            let quorums = Quorums::of(members).unwrap();
            assert_eq!(
                (quorums.replication(), quorums.view_change(), quorums.nack()),
                (replication, view_change, nack),
                "{members} members"
            );
        }
        assert!(table_holds());
    }

    #[test]
    fn other_numbers_of_members_are_refused() {
        for members in [0, MEMBERS_MAX + 1, usize::MAX] {
            assert_eq!(Quorums::of(members), Err(QuorumError::Members { members }));
        }
    }

    /// Every accepted choice is tried against every pair of sets that it lets decide.
    #[test]
    fn accepted_quorums_share_a_member_whoever_they_are() {
        let mut accepted = 0;
        for members in 1..=MEMBERS_MAX {
            for replication in 0..=members + 1 {
                for view_change in 0..=members + 1 {
                    let Ok(quorums) = Quorums::flexible(members, replication, view_change) else { continue };
                    accepted += 1;
                    for other in [quorums.view_change(), quorums.nack()] {
                        assert!(always_meet(members, replication, other), "{quorums:?}");
                    }
                    assert!(!always_meet(members, replication, quorums.nack() - 1));
                }
            }
        }
        assert!(accepted > 100, "{accepted}");
    }

    fn always_meet(members: usize, one: usize, other: usize) -> bool {
        let sets = || 0u32..1 << members;
        sets().filter(|set| set.count_ones() as usize == one).all(|first| {
            sets().filter(|set| set.count_ones() as usize == other).all(|second| first & second != 0)
        })
    }

    #[test]
    fn quorums_that_may_miss_each_other_are_refused_by_name() {
        let refused = Quorums::flexible(5, 2, 3).unwrap_err();
        assert_eq!(refused, QuorumError::Disjoint { replication: 2, view_change: 3, members: 5 });
        assert_eq!(Quorums::flexible(3, 0, 3), Err(QuorumError::Range { quorum: 0, members: 3 }));
        assert_eq!(Quorums::flexible(3, 2, 4), Err(QuorumError::Range { quorum: 4, members: 3 }));
        assert_eq!(Quorums::flexible(2, 1, 2), Err(QuorumError::Pair { replication: 1, view_change: 2 }));
    }
}
