//! A new view: the vote of this replica, the votes of the others, the log that they decide, and its start.

use laneway_wire::{Nanos, Op, ReplicaId};

use super::slots::Body;
use super::{Replica, Status, Timer};
use crate::entry::View;
use crate::event::{Effect, Halt};
use crate::header::Header;
use crate::marks::mark;
use crate::merge::{Ballot, Merge, MergedLog, Refusal};
use crate::message::{Message, StartView};
use crate::mutation::Mutation;
use crate::quorum::MEMBERS_MAX;
use crate::superblock::Promise;
use crate::vote::{Held, LogTrust, Slot, VOTE_SLOTS_MAX, Vote};

/// What a view change is about.
#[derive(Clone, Debug)]
pub(super) struct Election {
    /// The view that each member wants next, and when it last said so. By place.
    pub suspicions: [Option<(View, Nanos)>; MEMBERS_MAX],
    /// The votes for the current view, by place. Only the primary of the view collects them.
    pub votes: Vec<Option<Vote>>,
    /// The log that they decided, while it is not complete here.
    pub merged: Option<MergedLog>,
    /// Why the last merge was refused.
    pub refusal: Option<Refusal>,
    /// How long this view change may take.
    pub wait_us: u64,
}

impl Election {
    pub fn new(members: usize, wait_us: u64) -> Election {
        Election {
            suspicions: [None; MEMBERS_MAX],
            votes: vec![None; members],
            merged: None,
            refusal: None,
            wait_us,
        }
    }

    /// The view to ask for: `next`, or a later one that somebody asks for already.
    pub fn target(&self, next: View, oldest: Nanos) -> View {
        let asked =
            self.suspicions.iter().flatten().filter(|(_, at)| *at >= oldest).map(|(target, _)| *target);
        asked.max().unwrap_or_default().max(next)
    }
}

impl Replica {
    /// Why the votes for the current view decided nothing, if so. Shown to operators.
    pub fn refusal(&self) -> Option<Refusal> {
        self.election.refusal
    }

    /// Leaves the current view for a later one, with a vote.
    pub(super) fn enter_view_change(&mut self, view: View) {
        assert!(view > self.view, "a view only goes up");
        let vote = self.make_vote(view);
        if self.status == Status::Normal {
            self.effects.push_back(Effect::Stopped { view });
        }
        self.status = Status::ViewChange;
        self.view = view;
        self.follower.observed = self.follower.observed.max(view);
        self.promise = Promise::Vote(vote);
        self.election.votes.fill(None);
        self.election.merged = None;
        self.election.refusal = None;
        for suspicion in &mut self.election.suspicions {
            *suspicion = suspicion.filter(|(target, _)| *target > view);
        }
        self.ahead.clear();
        self.repair.forget();
        self.timers.stop_all();
        self.timers.arm(Timer::ViewChange, self.now.after_us(self.election.wait_us));
        self.timers.arm(Timer::Vote, self.now.after_us(self.config.timing.vote_resend_us));
        self.save_view();
        if self.mutations.has(Mutation::SkipSuperblockBeforeVote) {
            self.on_vote_saved();
        }
    }

    /// The vote for a view. While the log of an older view is open, what was said about it is said again: only what can
    /// be read may have changed (V31 within a view, V41 across views).
    fn make_vote(&self, view: View) -> Vote {
        let (op_head, slots) = match &self.promise {
            Promise::Vote(before) => {
                let floor = self.commit_max.max(Op(1));
                let slots = before.iter().take_while(|(op, _)| *op >= floor);
                (before.op_head, slots.map(|(op, slot)| self.say_again(op, slot)).collect())
            }
            Promise::None | Promise::View { .. } => self.describe_log(),
        };
        let vote = Vote {
            view,
            log_view: self.log_view,
            op_head,
            commit_max: self.commit_max,
            checkpoint: self.checkpoint,
            trust: self.trust,
            syncing: self.syncing || self.transferring,
            slots,
        };
        assert!(vote.is_well_formed() || self.mutations.any(), "lane {}: {vote:?}", self.config.lane);
        vote
    }

    fn say_again(&self, op: Op, slot: &Slot) -> Slot {
        let may_nack =
            op > self.commit_max && self.trust == LogTrust::Trusted && !self.syncing && !self.transferring;
        let Some(header) = slot.held.header().copied() else {
            return Slot { held: slot.held, nack: slot.nack && may_nack };
        };
        let readable = self.slots.identity(op) == Some(header.identity) && self.slots.is_durable(op);
        let held = match slot.held {
            _ if readable => Held::Present(header),
            // It was decided away in the meantime, or it is damaged now.
            Held::Present(_) if self.slots.identity(op) == Some(header.identity) => {
                Held::Faulty(Some(header))
            }
            Held::Present(_) => Held::HeaderOnly(header),
            other => other,
        };
        let nack = slot.nack && may_nack && matches!(held, Held::HeaderOnly(_) | Held::Blank);
        Slot { held, nack }
    }

    /// The log from its head down to the commit point.
    fn describe_log(&self) -> (Op, Vec<Slot>) {
        let adopted = match &self.promise {
            Promise::View { op_head, .. } => *op_head,
            _ => Op(0),
        };
        // Never below what an adopted view decided, whether or not it has arrived here.
        let op_head =
            self.slots.head().max(adopted).max(self.known.last_key_value().map_or(Op(0), |(op, _)| *op));
        let floor = self.commit_max.max(Op(1)).max(self.slots.base().op.next());
        let mut slots = Vec::new();
        let mut op = op_head;
        while op >= floor && slots.len() < VOTE_SLOTS_MAX {
            slots.push(self.describe(op));
            op = Op(op.0 - 1);
        }
        (op_head, slots)
    }

    fn describe(&self, op: Op) -> Slot {
        let Some(slot) = self.slots.get(op) else {
            // Known from the adopted log and not fetched yet. That proves nothing (V42).
            let held = self.known.get(&op).map_or(Held::Blank, |header| Held::HeaderOnly(*header));
            return Slot { held, nack: false };
        };
        let may_nack =
            op > self.commit_max && self.trust == LogTrust::Trusted && !self.syncing && !self.transferring;
        let held = match (slot.header, &slot.body) {
            (Some(header), Body::Cached(_) | Body::Stored) if self.slots.is_durable(op) => {
                Held::Present(header)
            }
            // On its way to the log for the first time, so never acknowledged.
            (Some(header), Body::Cached(_)) if slot.fresh && !slot.damaged => {
                mark!("unacknowledged entry denied");
                return Slot { held: Held::HeaderOnly(header), nack: may_nack };
            }
            (Some(header), _) if !slot.damaged => Held::HeaderOnly(header),
            (header, _) => {
                mark!("damaged entry in a vote");
                let header = header.or_else(|| self.known.get(&op).copied());
                Held::Faulty(header)
            }
        };
        let held = match (held, self.mutations.has(Mutation::NackFaulty)) {
            (Held::Faulty(_), true) => return Slot { held: Held::Blank, nack: may_nack },
            (held, _) => held,
        };
        if self.mutations.has(Mutation::NackHeld)
            && let Held::Present(header) = held
        {
            return Slot { held: Held::HeaderOnly(header), nack: may_nack };
        }
        Slot { held, nack: false }
    }

    /// The vote is durable: it may leave.
    pub(super) fn on_vote_saved(&mut self) {
        self.send_vote();
    }

    /// Sends the vote for the current view, as it is written, or asks again for the view while the vote may not leave.
    pub(super) fn send_vote(&mut self) {
        let saved = self.storage.is_view_saved() || self.mutations.has(Mutation::SkipSuperblockBeforeVote);
        let promised = self.now < self.follower.promise_until && !self.mutations.has(Mutation::IgnorePromise);
        let Promise::Vote(vote) = &self.promise else { return };
        if !saved || !self.counts() {
            return;
        }
        if promised {
            mark!("vote waits for the promise");
            return;
        }
        let vote = match self.mutations.has(Mutation::RecomputeVote) {
            true => Vote { commit_max: self.commit_max, ..self.make_fresh_vote() },
            false => vote.clone(),
        };
        self.broadcast_members(&Message::DoViewChange(Box::new(vote.clone())));
        if self.leads() {
            self.collect(self.place.expect("a member that counts has a place"), vote);
        }
    }

    fn make_fresh_vote(&self) -> Vote {
        let (op_head, slots) = self.describe_log();
        let Promise::Vote(vote) = &self.promise else { unreachable!("only votes are sent") };
        Vote { op_head, slots, ..vote.clone() }
    }

    /// The vote of another member. It proves that a quorum suspected the view before (2.8, 4).
    pub(super) fn on_vote(&mut self, from: ReplicaId, vote: Vote) {
        let Some(place) = self.counting_place(from) else { return };
        if !vote.is_well_formed() {
            mark!("malformed vote");
            return;
        }
        if vote.view > self.view {
            let votes = matches!(self.status, Status::Normal | Status::ViewChange | Status::Recovering);
            match votes && self.counts() {
                true => self.enter_view_change(vote.view),
                false => return self.observe_view(from, vote.view),
            }
        }
        if vote.view < self.view || self.is_primary() {
            // Whoever votes for a view that is over, or that has started, missed its start.
            if self.is_primary() {
                self.send_start_view(from, None);
            }
            return;
        }
        if self.status == Status::ViewChange && self.leads() {
            self.collect(place, vote);
        }
    }

    /// The first vote of a member for a view stays.
    fn collect(&mut self, place: usize, vote: Vote) {
        let stored = &mut self.election.votes[place];
        if stored.is_some() {
            return;
        }
        *stored = Some(vote);
        self.try_merge();
    }

    fn try_merge(&mut self) {
        // Its own vote comes first: it can finish only what it is part of.
        let own = self.place.is_some_and(|place| self.election.votes[place].is_some());
        if !own || self.election.merged.is_some() || !matches!(self.promise, Promise::Vote(_)) {
            return;
        }
        let (votes, quorums) = (&self.election.votes, self.config.roster.quorums());
        let ballot = Ballot { votes, quorums, mutations: self.mutations };
        match ballot.merge() {
            Merge::Waiting(_) => {}
            Merge::Refused(refusal) => self.election.refusal = Some(refusal),
            Merge::Ready(_) if self.transferring => {
                mark!("elected while transferring");
                self.give_up_view();
            }
            Merge::Ready(merged) => self.accept_merge(merged),
        }
    }

    /// The log of the view is decided. Everything of it that is not here is fetched before the view starts.
    fn accept_merge(&mut self, merged: MergedLog) {
        mark!("merged");
        self.election.refusal = None;
        if merged.data_loss_possible {
            mark!("merged untrusted logs");
        }
        if merged.op_head < self.commit_min {
            let (op, ours) = (self.commit_min, self.slots.identity(self.commit_min).unwrap_or_default());
            return self.halt(Halt::Diverged { op, view: self.view, ours, theirs: ours });
        }
        self.commit_max = self.commit_max.max(merged.commit_max);
        let (head, checkpoint) = (merged.op_head, merged.checkpoint);
        self.slots.doubt(self.commit_min);
        self.known = merged.headers.iter().map(|header| (header.op, *header)).collect();
        self.election.merged = Some(merged);
        if self.slots.head() > head {
            self.cut(head);
        }
        self.forget_applied_headers();
        if self.reconcile() {
            self.link_checkpoint(checkpoint);
            self.truncate_disk();
            if self.known.is_empty() && self.slots.head() < head {
                mark!("primary-elect lacks a checkpoint");
                return self.give_up_view();
            }
            if self.mutations.has(Mutation::EarlyLogView) {
                return self.decide_view();
            }
            self.finish_merge();
        }
    }

    /// Decides the view once the whole log of it is here and durable (V49).
    pub(super) fn finish_merge(&mut self) {
        let Some(merged) = &self.election.merged else { return };
        let head = merged.op_head;
        if !matches!(self.promise, Promise::Vote(_))
            || self.slots.held() < head
            || self.slots.verified() < head
        {
            return;
        }
        let mut op = self.commit_min;
        while op < head {
            op = op.next();
            if !self.slots.is_durable(op) {
                return;
            }
        }
        self.decide_view();
    }

    fn decide_view(&mut self) {
        let merged = self.election.merged.as_ref().expect("the log is decided");
        mark!("view decided");
        self.promise = Promise::View { op_head: merged.op_head, headers: merged.headers.clone() };
        self.view_start = merged.op_head;
        self.log_view = self.view;
        self.election.merged = None;
        self.save_view();
        if self.mutations.has(Mutation::EarlyLogView) {
            self.start_view();
        }
    }

    /// The decided log is here, and so is the record that says so: leads (2.8, 9).
    pub(super) fn start_view(&mut self) {
        mark!("view started");
        self.status = Status::Normal;
        self.settle_into_view();
        self.leader.heartbeat_sequence = 0;
        self.leader.abdicated = false;
        self.leader.resend_wait_us = self.config.timing.resend_us;
        for peer in &mut self.peers {
            (peer.received, peer.persisted) = (Op(0), Op(0));
            peer.granted_at = None;
            peer.heard_at = self.now;
        }
        if let Some(header) = self.slots.header(self.slots.head()) {
            self.timestamp_last = self.timestamp_last.max(header.timestamp);
        }
        self.timers.stop_all();
        self.start_leading_timers();
        let (view, primary) = (self.view, self.config.replica);
        self.effects.push_back(Effect::ViewStarted { view, primary });
        let start = Box::new(self.describe_view(None));
        self.broadcast(&Message::StartView(start));
        self.commit();
    }

    /// What both sides of a started view begin with.
    pub(super) fn settle_into_view(&mut self) {
        self.election.votes.fill(None);
        self.election.merged = None;
        self.election.wait_us = self.config.timing.view_change_us;
        let view = self.view;
        for suspicion in &mut self.election.suspicions {
            *suspicion = suspicion.filter(|(target, _)| *target > view);
        }
        self.forget_suspicions_of_self();
        self.follower.probe = None;
        self.follower.probe_wait_us = self.config.timing.get_view_us;
        self.follower.lost_primary = None;
        self.follower.refuses = false;
        self.follower.acknowledged = Default::default();
        if !self.mutations.has(Mutation::KeepHeartbeatCounter) {
            self.follower.heartbeat_seen = 0;
        }
        self.repair.forget();
        self.repair.primary_head = Op(0);
        self.repair.progress_at = self.now;
    }

    /// The decided log as it is now.
    pub(super) fn describe_view(&self, nonce: Option<crate::Nonce>) -> StartView {
        let mut headers: Vec<Header> = Vec::new();
        let op_head = self.slots.head();
        let mut op = op_head;
        while op >= self.commit_max.max(Op(1))
            && headers.len() < VOTE_SLOTS_MAX
            && let Some(header) = self.slots.header(op)
        {
            headers.push(*header);
            op = Op(op.0 - 1);
        }
        let (view, commit_max, checkpoint) = (self.view, self.commit_max, self.checkpoint);
        StartView { view, op_head, commit_max, checkpoint, headers, nonce }
    }

    pub(super) fn send_start_view(&mut self, to: ReplicaId, nonce: Option<crate::Nonce>) {
        let start = Box::new(self.describe_view(nonce));
        self.send(to, Message::StartView(start));
    }

    /// The view does not come about: asks for the next one, and keeps asking.
    pub(super) fn on_view_change_timer(&mut self) {
        mark!("view change took too long");
        self.election.wait_us = (self.election.wait_us * 2).min(self.config.timing.view_change_us_max);
        self.timers.arm(Timer::ViewChange, self.now.after_us(self.election.wait_us));
        self.suspect_now();
        if self.status == Status::ViewChange {
            self.probe_view();
        }
    }

    /// A primary-elect that cannot get what it needs lets the next member try (2.8, 12).
    pub(super) fn give_up_view(&mut self) {
        mark!("primary-elect gave up");
        self.suspect_now();
    }
}
