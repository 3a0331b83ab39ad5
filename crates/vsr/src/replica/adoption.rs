//! A decided log: how a backup makes it its own.

use laneway_wire::{Op, ReplicaId};

use super::{Replica, Status, Timer};
use crate::entry::View;
use crate::event::{Effect, Halt};
use crate::marks::mark;
use crate::message::{Message, Nonce, StartView};
use crate::mutation::Mutation;
use crate::superblock::Promise;
use crate::vote::{CheckpointId, LogTrust, VOTE_SLOTS_MAX};

impl Replica {
    /// The log of a view, from its primary.
    pub(super) fn on_start_view(&mut self, from: ReplicaId, start: StartView) {
        if self.config.roster.primary(start.view) != from || !is_well_formed(&start) {
            return;
        }
        if start.view < self.view {
            if self.is_primary() {
                mark!("start of an older view answered");
                self.send_start_view(from, None);
            }
            return;
        }
        if self.status == Status::Amnesiac || !self.is_addressed_by(&start) {
            mark!("start of a view for somebody else");
            return;
        }
        if start.view > self.view {
            return self.adopt(start);
        }
        match self.status {
            Status::Normal | Status::Halted | Status::Amnesiac => {}
            // Adopted, and on its way to the disk.
            Status::ViewChange if self.log_view == self.view => {}
            Status::ViewChange => self.adopt(start),
            // Equal views are adopted again as long as nothing applied is given up (V53).
            Status::Recovering | Status::RecoveringHead if start.op_head >= self.commit_min => {
                mark!("equal view adopted after a restart");
                self.adopt(start);
            }
            Status::Recovering | Status::RecoveringHead => mark!("start of a view below what is applied"),
        }
    }

    /// Whether an answer is one to our question. The broadcast of a newer view needs none (V54).
    fn is_addressed_by(&self, start: &StartView) -> bool {
        if self.mutations.has(Mutation::AcceptForeignNonce) {
            return true;
        }
        let restarted = matches!(self.status, Status::Recovering | Status::RecoveringHead);
        match start.nonce {
            Some(nonce) => self.follower.probe == Some(nonce),
            None => !restarted || start.view > self.view,
        }
    }

    /// Makes the log of a view the one of this replica. Nothing is sent in the view before the superblock names it, and
    /// nothing is written to the log before.
    pub(super) fn adopt(&mut self, start: StartView) {
        if let Some(halt) = self.divergence(&start) {
            mark!("divergence found");
            return self.halt(halt);
        }
        if self.status == Status::Normal {
            self.effects.push_back(Effect::Stopped { view: start.view });
        }
        mark!("view adopted");
        self.status = Status::ViewChange;
        (self.view, self.log_view) = (start.view, start.view);
        self.follower.observed = self.follower.observed.max(start.view);
        self.view_start = start.op_head;
        self.commit_max = self.commit_max.max(start.commit_max);
        self.slots.doubt(self.commit_min);
        self.ahead.clear();
        self.known = start.headers.iter().map(|header| (header.op, *header)).collect();
        self.forget_applied_headers();
        if self.slots.head() > start.op_head && !self.mutations.has(Mutation::KeepRelics) {
            mark!("relics above the announced head");
            self.cut(start.op_head);
        }
        if self.mutations.has(Mutation::TruncateAtCommit) && self.slots.head() > self.commit_min {
            self.slots.cut(Op(self.slots.head().0 - 1));
        }
        if !self.reconcile() {
            return;
        }
        self.link_checkpoint(start.checkpoint);
        if self.trust == LogTrust::Untrusted {
            self.trusted_at = Some(start.commit_max);
        }
        self.promise = Promise::View { op_head: start.op_head, headers: start.headers };
        self.timers.stop_all();
        self.timers.arm(Timer::ViewChange, self.now.after_us(self.election.wait_us));
        self.election.votes.fill(None);
        self.election.merged = None;
        self.repair.forget();
        self.save_view();
        if self.mutations.has(Mutation::SkipSuperblockBeforeAck) {
            self.follow_view();
        }
    }

    /// What is applied here and not part of the decided log (V52).
    fn divergence(&self, start: &StartView) -> Option<Halt> {
        let view = start.view;
        let ours = |op| self.slots.identity(op).unwrap_or_default();
        if start.op_head < self.commit_min {
            let op = self.commit_min;
            return Some(Halt::Diverged { op, view, ours: ours(op), theirs: Default::default() });
        }
        let header = start.headers.iter().find(|header| {
            header.op <= self.commit_min
                && self.slots.identity(header.op).is_some_and(|identity| identity != header.identity)
        })?;
        Some(Halt::Diverged { op: header.op, view, ours: ours(header.op), theirs: header.identity })
    }

    /// The view is adopted and durable here: follows it.
    pub(super) fn follow_view(&mut self) {
        self.status = Status::Normal;
        self.truncate_disk();
        self.settle_into_view();
        self.timers.stop_all();
        self.await_primary();
        let (view, primary) = (self.view, self.primary());
        self.effects.push_back(Effect::ViewStarted { view, primary });
        self.drain_ahead();
        self.acknowledge();
        self.apply_ready();
    }

    /// Drops what is in the log above an op. It is not applied; whether it is still on disk is settled before the next
    /// write.
    pub(super) fn cut(&mut self, to: Op) {
        assert!(to >= self.commit_min, "lane {}: what is applied stays", self.config.lane);
        self.slots.cut(to);
        self.reading.retain(|op| *op <= to);
    }

    pub(super) fn forget_applied_headers(&mut self) {
        let commit_min = self.commit_min;
        self.known.retain(|op, _| *op > commit_min);
    }

    /// Compares the log with the known headers of the view, drops what is not of it, and notes how far it is proven.
    /// `false` when the replica had to halt.
    pub(super) fn reconcile(&mut self) -> bool {
        let mut keep = self.slots.head();
        let mut lowest = None;
        for (op, header) in &self.known {
            let below = Op(op.0 - 1);
            lowest.get_or_insert(below);
            let parent = self.slots.identity(below);
            if parent.is_some_and(|identity| identity != header.parent) && below <= keep {
                keep = Op(below.0.saturating_sub(1));
                break;
            }
            if self.slots.identity(*op).is_some_and(|identity| identity != header.identity) {
                keep = below;
                break;
            }
        }
        if keep < self.commit_min {
            mark!("divergence found below the decided headers");
            let op = self.commit_min;
            let ours = self.slots.identity(op).unwrap_or_default();
            let theirs = self.known.get(&op.next()).map(|header| header.parent).unwrap_or_default();
            self.halt(Halt::Diverged { op, view: self.view, ours, theirs });
            return false;
        }
        if keep < self.slots.head() {
            mark!("log disagrees with the view");
            self.cut(keep);
        }
        for header in self.known.values() {
            self.slots.name_below(header.op, header.parent);
        }
        if lowest.is_some_and(|below| below <= self.slots.head()) {
            self.slots.verify(self.slots.head());
        }
        // Without a header above it, an applied head is all there is.
        if self.slots.head() == self.commit_min {
            self.slots.verify(self.commit_min);
        }
        true
    }

    /// What a durable checkpoint names is committed: it proves the log through its op, or refutes the entry there. Matters
    /// where the headers that a view gives do not reach down to the log.
    pub(super) fn link_checkpoint(&mut self, checkpoint: CheckpointId) {
        let op = checkpoint.op;
        let Some(identity) = self.slots.identity(op).filter(|_| op > self.commit_min) else { return };
        match identity == checkpoint.identity {
            true => self.slots.verify(op),
            false => {
                mark!("log disagrees with a checkpoint");
                self.cut(Op(op.0 - 1));
            }
        }
    }

    /// Somebody spoke of a newer view: asks for it.
    pub(super) fn observe_view(&mut self, from: ReplicaId, view: View) {
        if view <= self.follower.observed.max(self.view) && self.follower.probe.is_some() {
            return;
        }
        mark!("newer view observed");
        self.follower.observed = self.follower.observed.max(view);
        let message = self.make_probe();
        self.send(from, message);
        self.timers.arm_idle(Timer::GetView, self.now.after_us(self.follower.probe_wait_us));
    }

    /// Asks everybody for the current view.
    pub(super) fn probe_view(&mut self) {
        let message = self.make_probe();
        self.broadcast(&message);
        self.timers.arm_idle(Timer::GetView, self.now.after_us(self.follower.probe_wait_us));
    }

    fn make_probe(&mut self) -> Message {
        let nonce = match self.follower.probe {
            Some(nonce) => nonce,
            None => self.next_nonce(),
        };
        self.follower.probe = Some(nonce);
        let recovering = matches!(self.status, Status::Recovering | Status::RecoveringHead);
        Message::GetView { view: self.view, nonce, op_head: self.slots.head(), recovering }
    }

    pub(super) fn on_get_view_timer(&mut self) {
        let restarted = matches!(self.status, Status::Recovering | Status::RecoveringHead | Status::Amnesiac);
        let behind = self.follower.observed > self.view || self.status == Status::ViewChange;
        if !restarted && !behind {
            self.follower.probe = None;
            self.follower.probe_wait_us = self.config.timing.get_view_us;
            return;
        }
        let wait_us_max = self.config.timing.get_view_us_max;
        if self.is_primary() && self.follower.probe_wait_us >= wait_us_max && !self.leader.abdicated {
            // Somebody is bound to a newer view that nobody leads, and cannot come back to this one.
            mark!("primary yields to a view without a primary");
            self.abdicate();
        }
        self.follower.probe_wait_us = (self.follower.probe_wait_us * 2).min(wait_us_max);
        match self.status {
            Status::Amnesiac => self.ask_to_recover(),
            _ => self.probe_view(),
        }
    }

    /// Somebody asks for the current view.
    pub(super) fn on_get_view(&mut self, from: ReplicaId, view: View, nonce: Nonce, recovering: bool) {
        if view > self.view {
            return self.observe_view(from, view);
        }
        if self.is_primary() {
            return self.send_start_view(from, Some(nonce));
        }
        // A primary that asks twice who leads its own view has restarted and does not lead.
        let lost = recovering && view == self.view && from == self.primary() && self.status == Status::Normal;
        if lost {
            match self.follower.lost_primary {
                Some(before) if before == nonce => {
                    mark!("primary asked for its own view");
                    let at = self.now.max(self.follower.promise_until);
                    if self.timers.runs(Timer::Suspect) {
                        self.timers.arm(Timer::Suspect, at);
                    }
                }
                _ => self.follower.lost_primary = Some(nonce),
            }
        }
    }
}

/// Whether the headers of a view are a chain that ends at its head.
fn is_well_formed(start: &StartView) -> bool {
    start.headers.len() <= VOTE_SLOTS_MAX
        && start.op_head >= start.commit_max
        && start.headers.first().is_none_or(|header| header.op == start.op_head)
        && start.headers.windows(2).all(|pair| pair[0].follows(&pair[1]))
}
