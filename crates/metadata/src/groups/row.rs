//! One partition of one group.

use laneway_wire::{ClientId, Incarnation, Micros, Op, OwnerGeneration, SessionEpoch};

/// One session of one client: what owns partitions. A client that registers anew is another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The client; never 0.
    pub client: ClientId,
    /// The life of its session; never 0.
    pub session: SessionEpoch,
}

/// Who may read and commit, as installed in the partition's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The member.
    pub identity: Identity,
    /// The metadata op that decided it; never 0. Grows with every install of this group and partition.
    pub generation: OwnerGeneration,
}

/// A decision that the partition's lane has not reported as installed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The next owner; none takes the ownership away and leaves only the generation as a fence.
    pub target: Option<Identity>,
    /// The metadata op that decided it, and the generation that the install will carry.
    pub op: Op,
    /// When the first decision of this hand-off was taken. A later one of the same hand-off keeps it, so that members
    /// who come and go cannot push the deadline out (G36).
    pub created_at: Micros,
    /// Nobody is left who could commit what the old owner read: do not wait for it.
    pub skip_drain: bool,
}

/// One partition of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The life of the partition for which this row holds.
    pub incarnation: Incarnation,
    /// The installed owner.
    pub owner: Option<Owner>,
    /// The hand-off on its way.
    pub pending: Option<Pending>,
}

impl Row {
    /// The row of a partition that nobody owns and nobody is to own.
    pub fn vacant(incarnation: Incarnation) -> Self {
        Self { incarnation, owner: None, pending: None }
    }

    /// Whom the balance counts as the holder: the next owner if there is one, else the owner.
    pub fn candidate(&self) -> Option<Identity> {
        match self.pending {
            Some(pending) => pending.target,
            None => self.owner.map(|owner| owner.identity),
        }
    }

    /// Whether `identity` may poll the partition: it is the owner, and nothing is to take the partition away.
    pub fn pollable_by(&self, identity: Identity) -> bool {
        self.pending.is_none() && self.owned_by(identity)
    }

    /// Whether `identity` is the installed owner: it may commit, also while the partition is to move on.
    pub fn owned_by(&self, identity: Identity) -> bool {
        self.owner.is_some_and(|owner| owner.identity == identity)
    }

    /// Sets where the partition shall go, as of metadata op `op`. `is_member` knows the current members.
    pub(super) fn aim(
        &mut self,
        target: Option<Identity>,
        op: Op,
        now: Micros,
        is_member: impl Fn(Identity) -> bool,
    ) {
        let owner_left = self.owner.is_none_or(|owner| !is_member(owner.identity));
        if let Some(pending) = &mut self.pending {
            // Whoever once left has given up what it had read, also if it is back (G48).
            pending.skip_drain |= owner_left;
            if pending.target != target {
                // Also if the target is the owner again: the superseded install may be in the partition's lane already,
                // and only a newer one is sure to end above it (G47).
                pending.target = target;
                pending.op = op;
            }
            return;
        }
        if self.owner.map(|owner| owner.identity) != target {
            self.pending = Some(Pending { target, op, created_at: now, skip_drain: owner_left });
        }
    }
}
