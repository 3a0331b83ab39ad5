//! Who replicates a lane: its members in order, its learners, and the quorums of the list.

use laneway_wire::{LaneId, ReplicaId};

use crate::entry::View;
use crate::header::{Epoch, at, put};
use crate::quorum::{MEMBERS_MAX, QuorumError, Quorums};

/// Most nodes of a cluster, and so the first replica id that is none.
pub const NODES_MAX: usize = 32;

/// Bytes of an encoded [`Roster`].
pub const ROSTER_BYTES: usize = 40;

/// What a replica is to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It votes, acknowledges and may lead. The number is its place in the list.
    Member(usize),
    /// It receives the log and counts in no quorum.
    Learner,
    /// Not of this lane.
    Stranger,
}

/// The member list of a lane as of one epoch. Fixed between changes of membership, which are entries of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    epoch: Epoch,
    members: Vec<ReplicaId>,
    learners: Vec<ReplicaId>,
    quorums: Quorums,
}

/// Why a list of replicas is no roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// The number of members, or their quorums.
    #[error(transparent)]
    Quorums(#[from] QuorumError),
    /// A node number that no cluster has.
    #[error("replica {replica} is not below {NODES_MAX}")]
    Number {
        /// The replica.
        replica: ReplicaId,
    },
    /// A replica twice.
    #[error("replica {replica} is named twice")]
    Duplicate {
        /// The replica.
        replica: ReplicaId,
    },
    /// The encoded form is not one that this code writes.
    #[error("the member list is damaged")]
    Damaged,
    /// A change that is not exactly one member at the next epoch.
    #[error("a change of membership adds or removes one member and raises the epoch by one")]
    NotOneStep,
}

impl Roster {
    /// The first list of a lane: every node is a member, rotated by the lane so that the primaries of view 0 are spread
    /// evenly. Errors: no number of members has quorums, see [`Quorums::of`].
    pub fn initial(lane: LaneId, nodes: usize) -> Result<Roster, RosterError> {
        let quorums = Quorums::of(nodes)?;
        let first = lane.0 as usize % nodes;
        // Quorums::of bounds the number of nodes.
        let members = (0..nodes).map(|place| ReplicaId(((first + place) % nodes) as u8)).collect();
        Roster::new(Epoch(0), members, Vec::new(), quorums)
    }

    /// A list as it was decided.
    pub fn new(
        epoch: Epoch,
        members: Vec<ReplicaId>,
        learners: Vec<ReplicaId>,
        quorums: Quorums,
    ) -> Result<Roster, RosterError> {
        if members.len() != quorums.members() {
            return Err(QuorumError::Members { members: members.len() }.into());
        }
        let mut seen = 0u32;
        for replica in members.iter().chain(&learners) {
            let bit = 1u32.checked_shl(replica.0.into()).ok_or(RosterError::Number { replica: *replica })?;
            if seen & bit != 0 {
                return Err(RosterError::Duplicate { replica: *replica });
            }
            seen |= bit;
        }
        Ok(Roster { epoch, members, learners, quorums })
    }

    /// The number of this list.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The members in order.
    pub fn members(&self) -> &[ReplicaId] {
        &self.members
    }

    /// The replicas that receive the log and never vote.
    pub fn learners(&self) -> &[ReplicaId] {
        &self.learners
    }

    /// The quorums of the members.
    pub fn quorums(&self) -> Quorums {
        self.quorums
    }

    /// The member that orders entries in a view.
    pub fn primary(&self, view: View) -> ReplicaId {
        self.members[view.0 as usize % self.members.len()]
    }

    /// What a replica is to this lane.
    pub fn role(&self, replica: ReplicaId) -> Role {
        match self.members.iter().position(|member| *member == replica) {
            Some(place) => Role::Member(place),
            None if self.learners.contains(&replica) => Role::Learner,
            None => Role::Stranger,
        }
    }

    /// Whether a replica votes and acknowledges.
    pub fn is_member(&self, replica: ReplicaId) -> bool {
        matches!(self.role(replica), Role::Member(_))
    }

    /// Everybody that a message for all goes to: members and learners without `replica`.
    pub fn others(&self, replica: ReplicaId) -> impl Iterator<Item = ReplicaId> {
        self.members.iter().chain(&self.learners).copied().filter(move |other| *other != replica)
    }

    /// Checks that `next` is one step away: the next epoch, and exactly one member more or less. A new member was a
    /// learner before. Quorums of lists one member apart always meet, of lists further apart they may not. Source: V116.
    pub fn check_next(&self, next: &Roster) -> Result<(), RosterError> {
        let added: Vec<_> = next.members.iter().filter(|member| !self.members.contains(member)).collect();
        let removed = self.members.iter().filter(|member| !next.members.contains(member)).count();
        let was_learner = added.iter().all(|member| self.learners.contains(member));
        match next.epoch.0 == self.epoch.0 + 1 && added.len() + removed == 1 && was_learner {
            true => Ok(()),
            false => Err(RosterError::NotOneStep),
        }
    }

    /// The bytes of the list. Source: `docs/consensus.md`, member list.
    pub fn encode(&self) -> [u8; ROSTER_BYTES] {
        let mut block = [0u8; ROSTER_BYTES];
        put(&mut block, 0, self.epoch.0.to_le_bytes());
        block[4] = self.members.len() as u8;
        block[5] = self.learners.len() as u8;
        block[6] = self.quorums.replication() as u8;
        block[7] = self.quorums.view_change() as u8;
        for (place, replica) in self.members.iter().chain(&self.learners).enumerate() {
            block[8 + place] = replica.0;
        }
        block
    }

    /// Reads a list; every byte is checked.
    pub fn parse(bytes: &[u8]) -> Result<Roster, RosterError> {
        let block = bytes.get(..ROSTER_BYTES).ok_or(RosterError::Damaged)?;
        let epoch = at(block, 0).map(u32::from_le_bytes).ok_or(RosterError::Damaged)?;
        let [members, learners, replication, view_change] =
            at(block, 4).ok_or(RosterError::Damaged)?.map(usize::from);
        if members > MEMBERS_MAX || members + learners > NODES_MAX {
            return Err(RosterError::Damaged);
        }
        let (ids, rest) = block[8..].split_at(members + learners);
        if rest.iter().any(|byte| *byte != 0) {
            return Err(RosterError::Damaged);
        }
        let (members_ids, learner_ids) = ids.split_at(members);
        let list = |ids: &[u8]| ids.iter().copied().map(ReplicaId).collect();
        let quorums = Quorums::flexible(members, replication, view_change)?;
        Roster::new(Epoch(epoch), list(members_ids), list(learner_ids), quorums)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn roster(epoch: u32, members: &[u8], learners: &[u8]) -> Result<Roster, RosterError> {
        let list = |ids: &[u8]| ids.iter().copied().map(ReplicaId).collect();
        Roster::new(Epoch(epoch), list(members), list(learners), Quorums::of(members.len())?)
    }

    #[test]
    fn first_primaries_are_spread_over_the_nodes() {
        for nodes in 1..=MEMBERS_MAX {
            let primaries: BTreeSet<_> = (0..nodes as u32)
                .map(|lane| Roster::initial(LaneId(lane), nodes).unwrap().primary(View(0)))
                .collect();
            assert_eq!(primaries.len(), nodes);
        }
    }

    #[test]
    fn every_member_leads_in_turn_and_a_learner_never() {
        let roster = roster(0, &[4, 1, 2], &[3]).unwrap();
        let leaders: Vec<_> = (0..6).map(|view| roster.primary(View(view)).0).collect();
        assert_eq!(leaders, [4, 1, 2, 4, 1, 2]);
        assert_eq!(roster.role(ReplicaId(2)), Role::Member(2));
        assert_eq!(roster.role(ReplicaId(3)), Role::Learner);
        assert_eq!(roster.role(ReplicaId(0)), Role::Stranger);
        assert!(!roster.is_member(ReplicaId(3)));
        assert_eq!(roster.others(ReplicaId(1)).map(|id| id.0).collect::<Vec<_>>(), [4, 2, 3]);
    }

    #[test]
    fn lists_that_are_none_are_refused_by_name() {
        assert_eq!(roster(0, &[1, 2, 1], &[]), Err(RosterError::Duplicate { replica: ReplicaId(1) }));
        assert_eq!(roster(0, &[1, 2, 3], &[2]), Err(RosterError::Duplicate { replica: ReplicaId(2) }));
        assert_eq!(roster(0, &[1, 2, 32], &[]), Err(RosterError::Number { replica: ReplicaId(32) }));
        assert_eq!(roster(0, &[], &[]), Err(QuorumError::Members { members: 0 }.into()));
    }

    /// V116: one change at a time, of one member, who was a learner first.
    #[test]
    fn only_one_member_changes_at_a_time() {
        let before = roster(4, &[0, 1, 2], &[3, 4]).unwrap();
        let check = |epoch, members: &[u8], learners: &[u8]| {
            before.check_next(&roster(epoch, members, learners).unwrap())
        };
        assert_eq!(check(5, &[0, 1, 2, 3], &[4]), Ok(()));
        assert_eq!(check(5, &[0, 2], &[3, 4]), Ok(()));
        assert_eq!(check(5, &[0, 1, 2, 3, 4], &[]), Err(RosterError::NotOneStep), "two at once");
        assert_eq!(check(5, &[0, 1, 3], &[4]), Err(RosterError::NotOneStep), "an exchange is two changes");
        assert_eq!(check(5, &[0, 1, 2, 7], &[3, 4]), Err(RosterError::NotOneStep), "was no learner");
        assert_eq!(check(6, &[0, 1], &[3, 4]), Err(RosterError::NotOneStep), "skips an epoch");
        assert_eq!(check(5, &[0, 1, 2], &[3, 4]), Err(RosterError::NotOneStep), "changes nothing");
    }

    proptest! {
        #[test]
        fn round_trips(
            epoch: u32,
            ids in proptest::sample::subsequence((0..32u8).collect::<Vec<_>>(), 1..32).prop_shuffle(),
            members in 1..=MEMBERS_MAX,
        ) {
            let (members, learners) = ids.split_at(members.min(ids.len()));
            let roster = roster(epoch, members, learners).unwrap();
            prop_assert_eq!(Roster::parse(&roster.encode()), Ok(roster));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            if let Ok(roster) = Roster::parse(&bytes) {
                prop_assert_eq!(&roster.encode()[..], &bytes[..ROSTER_BYTES]);
            }
        }
    }
}
