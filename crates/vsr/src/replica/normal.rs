//! Normal operation: entries are proposed, replicated, acknowledged, committed and applied.

use laneway_wire::{LaneId, Micros, Op, ReplicaId};

use super::{Replica, Status};
use crate::config::WINDOW_BYTES_MAX;
use crate::entry::{Durability, Entry, EntryBody, View};
use crate::event::{Effect, ReadPurpose, ReadRequest};
use crate::header::{Draft, Header, Identity};
use crate::marks::mark;
use crate::message::{Message, Progress};
use crate::mutation::Mutation;
use crate::vote::WINDOW_OPS_MAX;

/// Bodies that are read from the log ahead of their apply.
const READ_AHEAD_MAX: u64 = 16;

/// Entries that are sent again to one backup at once.
const RESEND_MAX: u64 = 8;

/// Why a proposal was not taken. Nothing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Too much is in flight.
    #[error("lane {lane} has {ops} entries and {bytes} bytes in flight; retry when some have committed")]
    Full {
        /// The lane.
        lane: LaneId,
        /// Entries in flight.
        ops: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// Another replica orders the entries of this lane.
    #[error("lane {lane} is led by another replica")]
    NotPrimary {
        /// The lane.
        lane: LaneId,
    },
    /// No view has started, or what the view inherited is not applied yet.
    #[error("lane {lane} does not take entries yet")]
    NotReady {
        /// The lane.
        lane: LaneId,
    },
}

impl Replica {
    /// Entries that are in the log and not yet applied.
    pub fn in_flight(&self) -> usize {
        // A difference of two ops of one window.
        (self.slots.head().0 - self.commit_min.0) as usize
    }

    /// The op and timestamp that the next proposal at `wall` gets. Lets the caller stamp them into the body first.
    /// Timestamps strictly increase (V61).
    pub fn next(&self, wall: Micros) -> (Op, Micros) {
        (self.slots.head().next(), wall.max(Micros(self.timestamp_last.0.saturating_add(1))))
    }

    /// Whether a body of `bytes` would be taken now.
    pub fn admit(&self, bytes: usize) -> Result<(), ProposeError> {
        let lane = self.config.lane;
        if self.status == Status::Normal && !self.leads() {
            return Err(ProposeError::NotPrimary { lane });
        }
        if self.status != Status::Normal || self.storage.log_failed || self.commit_min < self.view_start {
            return Err(ProposeError::NotReady { lane });
        }
        let (ops, in_flight) = (self.in_flight(), self.slots.cached_bytes());
        let full_bytes = in_flight > 0 && in_flight + bytes > WINDOW_BYTES_MAX;
        if ops >= self.config.window_ops() || full_bytes {
            return Err(ProposeError::Full { lane, ops, bytes: in_flight });
        }
        Ok(())
    }

    /// Orders a new entry.
    pub fn propose(
        &mut self,
        wall: Micros,
        durability: Durability,
        body: EntryBody,
    ) -> Result<Op, ProposeError> {
        self.admit(body.bytes())?;
        let (op, timestamp) = self.next(wall);
        let parent = self.slots.identity(self.slots.head()).expect("a primary knows the name of its head");
        let draft = Draft {
            op,
            parent,
            view: self.view,
            commit: self.commit_min,
            timestamp,
            epoch: self.config.roster.epoch(),
            primary: self.config.replica,
            durability,
        };
        let header = Header::seal(self.config.cluster, self.config.lane, draft, &body);
        let entry = Entry { header, body };
        self.timestamp_last = timestamp;
        if self.is_alone() {
            self.write_head(entry);
        } else {
            self.write_head(entry.clone());
            let message = self.prepare(entry);
            self.broadcast(&message);
        }
        self.slots.verify(op);
        if self.mutations.has(Mutation::CountSelfBeforeDurable) {
            self.commit();
        }
        self.check();
        Ok(op)
    }

    fn prepare(&self, entry: Entry) -> Message {
        Message::Prepare { view: self.view, commit: self.commit_min, checkpoint: self.checkpoint.op, entry }
    }

    /// An entry from the primary.
    pub(super) fn on_prepare(
        &mut self,
        from: ReplicaId,
        view: View,
        commit: Op,
        _checkpoint: Op,
        entry: Entry,
    ) {
        if !self.is_current_primary(from, view) {
            return;
        }
        let op = entry.header.op;
        if self.status == Status::ViewChange && self.log_view == view {
            // The view is adopted and not yet durable here. What comes meanwhile is kept.
            self.stash(entry);
            return;
        }
        if self.status != Status::Normal || self.leads() || self.transferring {
            return;
        }
        if self.clock_bound.is_some_and(|bound| entry.header.timestamp > bound) {
            mark!("timestamp refused");
            self.follower.refuses = true;
            return self.suspect_now();
        }
        self.note_commit(commit);
        if op <= self.commit_min {
            return self.acknowledge();
        }
        if op <= self.slots.head() {
            return self.on_prepare_again(entry);
        }
        if op > self.slots.head().next() {
            mark!("prepare above a gap");
        }
        self.stash(entry);
        self.drain_ahead();
    }

    /// An entry at an op that is taken already.
    fn on_prepare_again(&mut self, entry: Entry) {
        let op = entry.header.op;
        let slot = self.slots.get(op).expect("the op is in the log");
        let known = slot.identity;
        if known.is_none_or(|identity| identity == entry.header.identity) {
            if slot.is_held() {
                mark!("prepare again");
                return self.acknowledge();
            }
            self.write_hole(entry);
            return self.apply_ready();
        }
        // The primary's entry is the one of this view. If ours was never tied to the view, it is a leftover; if it was,
        // one of the two is damaged, and nothing is overwritten (V40).
        if op > self.slots.verified() {
            mark!("leftover found by a prepare");
            self.cut(Op(op.0 - 1));
            self.stash(entry);
            return self.drain_ahead();
        }
        mark!("two names at one op in one view");
        if self.mutations.has(Mutation::OverwriteOtherIdentity) {
            self.slots.cut(Op(op.0 - 1));
            self.write_head(entry);
        }
    }

    /// Whether a message of a view comes from its primary and concerns the current view. A newer view is looked for.
    pub(super) fn is_current_primary(&mut self, from: ReplicaId, view: View) -> bool {
        if self.config.roster.primary(view) != from {
            return false;
        }
        if view > self.view {
            self.observe_view(from, view);
        }
        view == self.view
    }

    /// How far the log is here, of the log of the current view.
    pub(super) fn progress(&self) -> Progress {
        let cap = match self.syncing {
            // A checkpoint that only this replica may hold must not be buried under a new log (V95).
            true => Op(self.checkpoint.op.0 + WINDOW_OPS_MAX as u64),
            false => Op(u64::MAX),
        };
        let limit = self.slots.verified().min(cap);
        let (mut written, mut synced) = (self.slots.written().min(limit), self.slots.synced().min(limit));
        if self.mutations.has(Mutation::AckBeforeDurable) {
            (written, synced) = (self.slots.held().min(limit), self.slots.held().min(limit));
        }
        if self.mutations.has(Mutation::AckOverGap)
            && let Some((op, _)) = self.ahead.last_key_value()
        {
            let identity = self.ahead[op].header.identity;
            let anchor = crate::message::Anchor { op: *op, identity };
            return Progress {
                received: anchor,
                persisted: anchor,
                held: *op,
                checkpoint: self.checkpoint.op,
            };
        }
        Progress {
            received: self.slots.anchor_or_unnamed(written),
            persisted: self.slots.anchor_or_unnamed(synced),
            held: self.slots.held(),
            checkpoint: self.checkpoint.op,
        }
    }

    /// Whether this replica may acknowledge anything.
    pub(super) fn may_acknowledge(&self) -> bool {
        self.status == Status::Normal
            && !self.leads()
            && self.counts()
            && !self.transferring
            && !self.storage.log_failed
            && self.storage.superblock_done >= self.storage.acknowledge_after
    }

    /// Acknowledges what there is.
    pub(super) fn acknowledge(&mut self) {
        if self.may_acknowledge() {
            let progress = self.progress();
            self.follower.acknowledged = progress;
            let message = Message::PrepareOk { view: self.view, progress };
            self.send(self.primary(), message);
        }
    }

    /// Acknowledges when that would tell the primary something that a commit may wait for.
    pub(super) fn acknowledge_if_new(&mut self) {
        if !self.may_acknowledge() {
            return;
        }
        let (last, now) = (self.follower.acknowledged, self.progress());
        let class = |op: Op| self.slots.header(op).map(|header| header.durability);
        let mut news = now.persisted.op > last.persisted.op;
        let mut op = last.received.op.max(self.slots.base().op);
        while !news && op < now.received.op {
            op = op.next();
            news = class(op) == Some(Durability::Replicated);
        }
        if news {
            self.acknowledge();
        }
    }

    /// An acknowledgement. Counts once a member, only in its view, only under the name that is here (V36).
    pub(super) fn on_progress(&mut self, from: ReplicaId, view: View, progress: &Progress) {
        let current = view == self.view || self.mutations.has(Mutation::CountOldViewAcks);
        if view > self.view {
            self.observe_view(from, view);
        }
        let Some(place) = self.counting_place(from).filter(|_| current && self.is_primary()) else { return };
        let names = |anchor: &crate::message::Anchor| {
            anchor.op <= self.slots.head()
                && (anchor.op < self.slots.base().op
                    || self.slots.identity(anchor.op) == Some(anchor.identity)
                    || self.mutations.has(Mutation::IgnoreAckIdentity))
        };
        let (received, persisted) = (names(&progress.received), names(&progress.persisted));
        if !received || !persisted {
            mark!("acknowledgement under another name");
        }
        let peer = &mut self.peers[place];
        if received {
            peer.received = peer.received.max(progress.received.op);
        }
        if persisted {
            peer.persisted = peer.persisted.max(progress.persisted.op);
            peer.received = peer.received.max(peer.persisted);
        }
        peer.checkpoint = progress.checkpoint;
        peer.heard_at = self.now;
        self.resume_leading();
        self.commit();
    }

    /// Advances the commit point over every entry that a quorum holds as durably as its class asks. Commits are in
    /// order, so an entry that waits for flushes holds back what comes after it.
    pub(super) fn commit(&mut self) {
        let mut quorum = self.config.roster.quorums().replication();
        if self.mutations.has(Mutation::SmallCommitQuorum) {
            quorum = (quorum - 1).max(1);
        }
        loop {
            let op = self.commit_max.next();
            let Some(header) = self.slots.header(op) else { break };
            if self.holders(op, header.durability) < quorum {
                break;
            }
            self.commit_max = op;
            self.leader.resend_wait_us = self.config.timing.resend_us;
        }
        self.apply_ready();
    }

    /// Members that hold everything through an op, this one by the same rule as the others (V37).
    fn holders(&self, op: Op, durability: Durability) -> usize {
        let own = match durability {
            _ if self.mutations.has(Mutation::CountSelfBeforeDurable) => self.slots.held(),
            Durability::Replicated => self.slots.written(),
            Durability::Persisted => self.slots.synced(),
        };
        let others = self.peers.iter().enumerate().filter(|(place, peer)| {
            let reached = match durability {
                Durability::Replicated => peer.received,
                Durability::Persisted => peer.persisted,
            };
            Some(*place) != self.place && peer.admitted && reached >= op
        });
        others.count() + usize::from(self.counts() && own >= op)
    }

    /// The primary says that everything through `commit` is committed.
    pub(super) fn note_commit(&mut self, commit: Op) {
        if commit > self.commit_max {
            self.commit_max = commit;
            self.apply_ready();
        }
    }

    /// Hands out what is committed, held, and known to be of the decided log. Stops at any gap (V38).
    pub(super) fn apply_ready(&mut self) {
        if self.status != Status::Normal || self.transferring {
            return;
        }
        let limit = self.commit_max.min(self.slots.written()).min(self.slots.verified());
        while self.applying < limit {
            let op = self.applying.next();
            let Some(entry) = self.slots.entry(op) else {
                self.read_ahead(op, limit);
                break;
            };
            self.applying = op;
            self.effects.push_back(Effect::Apply(entry));
        }
        if self.mutations.has(Mutation::ApplyOverGap) {
            self.apply_over_gap();
        }
    }

    fn apply_over_gap(&mut self) {
        let Some((&op, entry)) = self.ahead.first_key_value() else { return };
        if op <= self.commit_max && op > self.applying {
            self.effects.push_back(Effect::Apply(entry.clone()));
            self.applying = op;
        }
    }

    fn read_ahead(&mut self, first: Op, limit: Op) {
        let last = limit.min(Op(first.0 + READ_AHEAD_MAX - 1));
        let mut op = first;
        while op <= last {
            if self.slots.entry(op).is_none() && self.reading.insert(op) {
                let identity = self.slots.identity(op).expect("a held entry has a name");
                let request = ReadRequest { op, identity, purpose: ReadPurpose::Apply };
                self.effects.push_back(Effect::Read(request));
            }
            op = op.next();
        }
    }

    /// A body that was read to be applied.
    pub(super) fn on_read_to_apply(&mut self, op: Op, identity: Identity, entry: Option<Entry>) {
        self.reading.remove(&op);
        if op <= self.applying || self.slots.identity(op) != Some(identity) {
            return;
        }
        match entry.filter(|entry| entry.header.identity == identity) {
            Some(entry) => self.slots.cache(op, entry.body),
            None => {
                mark!("entry to apply is damaged");
                self.slots.damage(op, self.commit_min);
                if self.config.roster.members().len() == 1 {
                    return self.halt(crate::event::Halt::DamagedAlone { op });
                }
            }
        }
        self.apply_ready();
    }

    /// The oldest entry that was handed out is applied.
    pub(super) fn on_applied(&mut self, op: Op) {
        if op <= self.commit_min {
            // A checkpoint was put over it.
            return;
        }
        let lane = self.config.lane;
        let skips = self.mutations.has(Mutation::ApplyOverGap);
        assert!(skips || op == self.commit_min.next(), "lane {lane}: op {op} applied out of order");
        assert!(op <= self.applying, "lane {lane}: op {op} applied before its commit");
        if let Some(header) = self.slots.header(op) {
            self.timestamp_last = self.timestamp_last.max(header.timestamp);
        }
        self.commit_min = op;
        let keep = if self.is_alone() { 0 } else { WINDOW_OPS_MAX as u64 };
        self.slots.applied(op, keep);
        while self.known.first_key_value().is_some_and(|(known, _)| *known <= op) {
            self.known.pop_first();
        }
        while self.ahead.first_key_value().is_some_and(|(ahead, _)| *ahead <= op) {
            self.ahead.pop_first();
        }
    }

    /// Sends the oldest entries that a backup lacks again, to every backup that is behind, whether or not a quorum has
    /// them (V57). What is no longer in memory a backup fetches itself.
    pub(super) fn on_resend_timer(&mut self) {
        let head = self.slots.head();
        let others: Vec<ReplicaId> = self.config.roster.others(self.config.replica).collect();
        for to in others {
            let reached = self.place_of(to).map_or(self.commit_min, |place| self.peers[place].received);
            let first = reached.max(self.commit_min).next();
            let last = head.min(Op(first.0 + RESEND_MAX - 1));
            let mut op = first;
            while op <= last {
                if let Some(entry) = self.slots.entry(op) {
                    mark!("prepare resent");
                    let message = self.prepare(entry);
                    self.send(to, message);
                }
                op = op.next();
            }
        }
        let wait = self.leader.resend_wait_us;
        let jitter = self.random.below(wait / 2);
        self.leader.resend_wait_us = (wait * 2).min(self.config.timing.resend_us_max);
        self.timers.arm(super::Timer::Resend, self.now.after_us(wait + jitter));
    }

    // ---- Shorthands for a lane with one member, whose writes finish in the order of their ops.

    /// Every write through `op` has finished.
    pub fn handle_written(&mut self, op: Op) {
        assert!(op <= self.slots.head(), "lane {}: op {op} written but never proposed", self.config.lane);
        if let Some(slot) = self.slots.get(op) {
            self.on_written(slot.number);
        }
        self.check();
    }

    /// A flush that covers every write through `op` has finished.
    pub fn handle_synced(&mut self, op: Op) {
        assert!(
            op <= self.slots.written(),
            "lane {}: op {op} flushed before it was written",
            self.config.lane
        );
        match self.slots.get(op) {
            Some(slot) => self.on_synced(slot.number),
            None => self.slots.sync_applied(),
        }
        self.check();
    }

    /// The entry at `op`, the oldest one in flight, has been applied.
    pub fn handle_applied(&mut self, op: Op) {
        assert!(op == self.commit_min.next(), "lane {}: op {op} applied out of order", self.config.lane);
        self.on_applied(op);
        self.check();
    }
}
