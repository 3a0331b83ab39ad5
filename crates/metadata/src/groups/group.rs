//! One consumer group: its members, its rows and its hand-offs.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_wire::{ClientId, Incarnation, Micros, Op, OwnerGeneration, PartitionId, SessionEpoch};

use super::assignment::balance;
use super::row::{Identity, Owner, Pending, Row};

/// One member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its place in the group, the lowest that was free when it joined. What clients see as the member's number.
    pub slot: u32,
    /// Who it is.
    pub identity: Identity,
}

/// What a join did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// This very session was a member already; nothing changed (G18).
    AlreadyMember,
    /// The client was a member under an older session, and now is under this one (G20).
    SessionRenewed,
    /// A new member.
    Joined,
}

/// A report of a partition's lane: this decision is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The partition.
    pub partition: PartitionId,
    /// The life of the partition in which it was installed.
    pub incarnation: Incarnation,
    /// Whom the lane installed.
    pub target: Option<Identity>,
    /// The metadata op that decided it.
    pub op: Op,
}

/// One consumer group of a topic. A changed group is a new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number in the topic; never given out again.
    pub id: u32,
    /// The op that created it.
    pub created_op: Op,
    /// Its name, unique in the topic.
    pub name: Arc<str>,
    /// Grows whenever a member's partitions change. Starts at 0.
    generation: u64,
    /// Members, by slot.
    members: BTreeMap<u32, Identity>,
    /// The slot of each client.
    slots: BTreeMap<ClientId, u32>,
    /// One row per partition of the topic, by number.
    rows: Vec<Row>,
    /// The op that began to delete it; its rows then only lead to nobody.
    deleting: Option<Op>,
}

impl Group {
    /// A group without members on a topic with these partitions.
    pub fn new(
        id: u32,
        created_op: Op,
        name: Arc<str>,
        partitions: impl IntoIterator<Item = Incarnation>,
    ) -> Self {
        Self {
            id,
            created_op,
            name,
            generation: 0,
            members: BTreeMap::new(),
            slots: BTreeMap::new(),
            rows: partitions.into_iter().map(Row::vacant).collect(),
            deleting: None,
        }
    }

    /// The generation, as clients see it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The members, by slot.
    pub fn members(&self) -> impl ExactSizeIterator<Item = Member> + '_ {
        self.members.iter().map(|(slot, identity)| Member { slot: *slot, identity: *identity })
    }

    /// The member of a client, whatever its session.
    pub fn member(&self, client: ClientId) -> Option<Member> {
        let slot = *self.slots.get(&client)?;
        Some(Member { slot, identity: self.members[&slot] })
    }

    /// Whether this very session is a member.
    pub fn has(&self, identity: Identity) -> bool {
        self.member(identity.client).is_some_and(|member| member.identity == identity)
    }

    /// The rows, by partition number.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of one partition.
    pub fn row(&self, partition: PartitionId) -> Option<&Row> {
        self.rows.get(usize::try_from(partition.0).ok()?)
    }

    /// Partitions that `identity` owns, ascending, also those that are to move on.
    pub fn owned(&self, identity: Identity) -> impl Iterator<Item = PartitionId> + '_ {
        self.select(move |row| row.owned_by(identity))
    }

    /// Partitions that `identity` may poll, ascending.
    pub fn pollable(&self, identity: Identity) -> impl Iterator<Item = PartitionId> + '_ {
        self.select(move |row| row.pollable_by(identity))
    }

    /// Partitions with a hand-off on its way, ascending.
    pub fn pending(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.select(|row| row.pending.is_some())
    }

    /// The op that began to delete the group, if one did.
    pub fn deleting(&self) -> Option<Op> {
        self.deleting
    }

    /// Whether a begun delete has nothing left to wait for: no partition has an owner or could get one.
    pub fn deleted(&self) -> bool {
        self.deleting.is_some() && self.rows.iter().all(|row| row.pending.is_none() && row.owner.is_none())
    }

    /// Adds a member, or renews its session. The caller checked that the group is not being deleted.
    pub fn join(&mut self, identity: Identity, op: Op, now: Micros) -> JoinOutcome {
        assert!(self.deleting.is_none(), "a group that is being deleted takes no members");
        assert!(identity.client.0 != 0 && identity.session.0 != 0, "a member is a session");
        let outcome = match self.member(identity.client) {
            Some(member) if member.identity == identity => return JoinOutcome::AlreadyMember,
            Some(member) => {
                self.members.insert(member.slot, identity);
                JoinOutcome::SessionRenewed
            }
            None => {
                let slot = self.lowest_free_slot();
                self.members.insert(slot, identity);
                self.slots.insert(identity.client, slot);
                JoinOutcome::Joined
            }
        };
        self.rebalance(op, now);
        outcome
    }

    /// Removes the member of `client`; with a session given, only if the membership is not newer. False if there is none
    /// to remove: nothing changed then.
    pub fn leave(&mut self, client: ClientId, ended: Option<SessionEpoch>, op: Op, now: Micros) -> bool {
        let Some(member) = self.member(client) else { return false };
        if ended.is_some_and(|ended| member.identity.session > ended) {
            return false;
        }
        self.slots.remove(&client);
        self.members.remove(&member.slot);
        if self.deleting.is_none() {
            self.rebalance(op, now);
        }
        true
    }

    /// The topic now has these partitions. A row whose partition has another life begins anew.
    pub fn set_partitions(&mut self, partitions: impl IntoIterator<Item = Incarnation>, op: Op, now: Micros) {
        let mut rows: Vec<Row> = partitions.into_iter().map(Row::vacant).collect();
        let before = self.views();
        for (row, old) in rows.iter_mut().zip(&self.rows) {
            if row.incarnation == old.incarnation {
                *row = *old;
            }
        }
        self.rows = rows;
        if self.deleting.is_none() {
            self.aim(op, now);
        }
        self.bump_if_changed(&before);
    }

    /// Ends the hand-offs that these installs are the end of. One that does not match its row exactly changes nothing
    /// (G49, G50). Gives how many did.
    pub fn complete(&mut self, completions: impl IntoIterator<Item = Completion>) -> usize {
        let before = self.views();
        let mut completed = 0;
        for completion in completions {
            let row = usize::try_from(completion.partition.0).ok().and_then(|index| self.rows.get_mut(index));
            let Some(row) = row else { continue };
            let matches = row.incarnation == completion.incarnation
                && row.pending.is_some_and(|pending| {
                    pending.target == completion.target && pending.op == completion.op
                });
            if matches {
                let generation = OwnerGeneration(completion.op.0);
                row.owner = completion.target.map(|identity| Owner { identity, generation });
                row.pending = None;
                completed += 1;
            }
        }
        self.bump_if_changed(&before);
        completed
    }

    /// Begins to delete the group: every partition is to be owned by nobody, under a generation above every installed
    /// one, so that no commit under the group can come after (G12).
    pub fn begin_delete(&mut self, op: Op, now: Micros) {
        assert!(self.deleting.is_none(), "a delete begins once");
        let before = self.views();
        self.deleting = Some(op);
        for row in &mut self.rows {
            let created_at = row.pending.map_or(now, |pending| pending.created_at);
            row.pending = Some(Pending { target: None, op, created_at, skip_drain: true });
        }
        self.bump_if_changed(&before);
    }

    fn rebalance(&mut self, op: Op, now: Micros) {
        let before = self.views();
        self.aim(op, now);
        self.bump_if_changed(&before);
    }

    /// Computes the balance and sets the rows on their way to it.
    fn aim(&mut self, op: Op, now: Micros) {
        let members: Vec<Identity> = self.members.values().copied().collect();
        let places: BTreeMap<Identity, usize> = members.iter().copied().zip(0..).collect();
        let held: Vec<Option<usize>> =
            self.rows.iter().map(|row| row.candidate().and_then(|who| places.get(&who).copied())).collect();
        let targets = balance(&held, members.len());
        for (row, target) in self.rows.iter_mut().zip(targets) {
            row.aim(target.map(|place| members[place]), op, now, |who| places.contains_key(&who));
        }
    }

    fn lowest_free_slot(&self) -> u32 {
        (0..).zip(self.members.keys()).find(|(free, slot)| free != *slot).map_or_else(
            || u32::try_from(self.members.len()).expect("members are bounded by sessions"),
            |(free, _)| free,
        )
    }

    /// What each partition's members see: the owner, and whether it may poll.
    fn views(&self) -> Vec<(Option<Identity>, bool)> {
        self.rows.iter().map(|row| (row.owner.map(|owner| owner.identity), row.pending.is_none())).collect()
    }

    fn bump_if_changed(&mut self, before: &[(Option<Identity>, bool)]) {
        let seen = |view: &(Option<Identity>, bool)| (view.0, view.0.is_some() && view.1);
        let changed =
            self.rows.len() != before.len() || self.views().iter().map(seen).ne(before.iter().map(seen));
        if changed {
            self.generation += 1;
        }
    }

    fn select<'a>(&'a self, keep: impl Fn(&Row) -> bool + 'a) -> impl Iterator<Item = PartitionId> + 'a {
        (0..).zip(&self.rows).filter(move |(_, row)| keep(row)).map(|(id, _)| PartitionId(id))
    }
}
