//! Who is alive: heartbeats, the lease of the primary and the promises behind it, abdication, and suspicion.

use laneway_wire::{Nanos, Op, ReplicaId};

use super::{Replica, Status, Timer};
use crate::config::Timing;
use crate::entry::View;
use crate::marks::mark;
use crate::message::{Message, Nonce, Progress};
use crate::mutation::Mutation;

/// What is known of a member, by its place. Ops are the ones that it acknowledged in the current view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// It counts in quorums.
    pub admitted: bool,
    pub received: Op,
    pub persisted: Op,
    pub checkpoint: Op,
    /// When it last acknowledged anything in this view.
    pub heard_at: Nanos,
    /// When the newest heartbeat that it acknowledged was sent, by our clock; `None` before the first.
    pub granted_at: Option<Nanos>,
}

impl Peer {
    pub fn new() -> Peer {
        Peer {
            admitted: true,
            received: Op(0),
            persisted: Op(0),
            checkpoint: Op(0),
            heard_at: Nanos(0),
            granted_at: None,
        }
    }
}

/// What a primary remembers.
#[derive(Clone, Debug, Default)]
pub(super) struct Leader {
    pub heartbeat_sequence: u64,
    /// It fell silent because it cannot hear a quorum, or because its log is stuck.
    pub abdicated: bool,
    pub resend_wait_us: u64,
}

/// What a backup remembers.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    /// The newest heartbeat of the current view.
    pub heartbeat_seen: u64,
    /// No suspicion and no vote leaves before this moment: the primary may be serving reads by our word (V34).
    pub promise_until: Nanos,
    /// Nobody is suspected before this moment: our own timers were late (V64).
    pub stalled_until: Nanos,
    /// The primary's timestamps cannot be right: nothing of it is taken any more, heartbeats included, so that the promise
    /// to it ends and another one is elected.
    pub refuses: bool,
    /// What was acknowledged last.
    pub acknowledged: Progress,
    /// The newest view that anybody spoke of.
    pub observed: View,
    /// The question for the current view that is out.
    pub probe: Option<Nonce>,
    pub probe_wait_us: u64,
    /// The question with which the primary itself asked for the current view.
    pub lost_primary: Option<Nonce>,
}

impl Follower {
    pub fn new(promise_until: Nanos, timing: &Timing) -> Follower {
        Follower {
            heartbeat_seen: 0,
            promise_until,
            stalled_until: Nanos(0),
            refuses: false,
            acknowledged: Progress::default(),
            observed: View(0),
            probe: None,
            probe_wait_us: timing.get_view_us,
            lost_primary: None,
        }
    }
}

impl Replica {
    // ---- The primary.

    pub(super) fn on_heartbeat_timer(&mut self) {
        if self.is_log_stuck() {
            return self.abdicate();
        }
        self.leader.heartbeat_sequence += 1;
        let message = Message::Heartbeat {
            view: self.view,
            sequence: self.leader.heartbeat_sequence,
            sent_at: self.now,
            commit: self.commit_min,
            op_head: self.slots.head(),
            checkpoint: self.checkpoint.op,
            checkpoint_quorum: self.checkpoint_quorum(),
        };
        self.broadcast(&message);
        self.timers.arm(Timer::Heartbeat, self.now.after_us(self.config.timing.heartbeat_us));
    }

    /// The checkpoint that a replication quorum has reached.
    fn checkpoint_quorum(&self) -> Op {
        let own = self.place;
        let mut reached: Vec<Op> = self
            .peers
            .iter()
            .enumerate()
            .map(|(place, peer)| if Some(place) == own { self.checkpoint.op } else { peer.checkpoint })
            .collect();
        reached.sort_unstable_by(|a, b| b.cmp(a));
        reached[self.config.roster.quorums().replication() - 1]
    }

    pub(super) fn on_heartbeat_ack(
        &mut self,
        from: ReplicaId,
        view: View,
        sent_at: Nanos,
        progress: &Progress,
    ) {
        if view == self.view
            && self.is_primary()
            && let Some(place) = self.counting_place(from)
            // A grant from the future is none of ours.
            && sent_at <= self.now
        {
            let peer = &mut self.peers[place];
            peer.granted_at = peer.granted_at.max(Some(sent_at));
        }
        self.on_progress(from, view, progress);
    }

    /// When the lease ends: until then no other primary can have been elected.
    pub fn lease_until(&self) -> Nanos {
        if self.is_alone() {
            return Nanos::NEVER;
        }
        if !self.is_primary() {
            return Nanos(0);
        }
        let Some(last_needed) = self.config.roster.quorums().replication().checked_sub(2) else {
            return Nanos::NEVER;
        };
        let mut grants: Vec<Nanos> = self
            .peers
            .iter()
            .enumerate()
            .filter(|(place, peer)| Some(*place) != self.place && peer.admitted)
            .filter_map(|(_, peer)| peer.granted_at)
            .collect();
        grants.sort_unstable_by(|a, b| b.cmp(a));
        // A hundredth for clocks that do not run at one pace.
        let lease_us = self.config.timing.lease_us - self.config.timing.lease_us / 100;
        grants.get(last_needed).map_or(Nanos(0), |granted| granted.after_us(lease_us))
    }

    /// Whether a read may be answered from what is applied here: this replica leads, nobody else can (V35), and everything
    /// that its view inherited is applied.
    pub fn may_serve_reads(&self, now: Nanos) -> bool {
        let leased = now < self.lease_until() || self.mutations.has(Mutation::ReadWithoutLease);
        self.is_primary() && self.commit_min >= self.view_start && leased
    }

    /// When enough members last acknowledged anything that this one leads a quorum.
    fn quorum_heard_at(&self) -> Nanos {
        let needed = self.config.roster.quorums().replication() - 1;
        let mut heard: Vec<Nanos> = self
            .peers
            .iter()
            .enumerate()
            .filter(|(place, peer)| Some(*place) != self.place && peer.admitted)
            .map(|(_, peer)| peer.heard_at)
            .collect();
        heard.sort_unstable_by(|a, b| b.cmp(a));
        needed.checked_sub(1).map_or(self.now, |index| heard.get(index).copied().unwrap_or(Nanos(0)))
    }

    pub(super) fn on_abdicate_timer(&mut self) {
        let until = self.quorum_heard_at().after_us(self.config.timing.abdicate_us);
        if self.now >= until || self.is_log_stuck() {
            return self.abdicate();
        }
        self.timers.arm(Timer::Abdicate, until);
    }

    /// Falls silent, so that the others elect a primary that hears them. The log is kept.
    pub(super) fn abdicate(&mut self) {
        mark!("primary abdicated");
        self.leader.abdicated = true;
        self.timers.stop(Timer::Heartbeat);
        self.timers.stop(Timer::Abdicate);
    }

    /// An abdicated primary that hears a quorum again before anybody took its place goes on.
    pub(super) fn resume_leading(&mut self) {
        let silent_us = self.now.us_since(self.quorum_heard_at());
        // Somebody is bound to a view that is not this one, and the others have to find out which one is next.
        let yields = self.follower.observed > self.view;
        let hears = silent_us < self.config.timing.abdicate_us;
        if self.leader.abdicated && !yields && hears && !self.is_log_stuck() {
            mark!("primary resumed");
            self.leader.abdicated = false;
            self.forget_suspicions_of_self();
            self.start_leading_timers();
        }
    }

    pub(super) fn start_leading_timers(&mut self) {
        let timing = &self.config.timing;
        self.timers.arm(Timer::Heartbeat, self.now);
        self.timers.arm(Timer::Abdicate, self.now.after_us(timing.abdicate_us));
        self.timers.arm(Timer::Resend, self.now.after_us(timing.resend_us));
    }

    // ---- The backup.

    pub(super) fn on_heartbeat(&mut self, from: ReplicaId, message: Message) {
        let Message::Heartbeat { view, sequence, sent_at, commit, op_head, checkpoint: _, checkpoint_quorum } =
            message
        else {
            return;
        };
        if !self.is_current_primary(from, view) || self.status != Status::Normal || self.leads() {
            return;
        }
        if self.follower.refuses {
            return;
        }
        if sequence <= self.follower.heartbeat_seen {
            mark!("heartbeat repeated or late");
            return;
        }
        self.follower.heartbeat_seen = sequence;
        self.follower.promise_until = self.now.after_us(self.config.timing.suspect_us);
        self.follower.lost_primary = None;
        self.forget_suspicions_of_self();
        self.await_primary();
        self.repair.primary_head = self.repair.primary_head.max(op_head);
        if self.syncing && !self.transferring && checkpoint_quorum >= self.checkpoint.op {
            mark!("checkpoint is on a quorum");
            self.syncing = false;
            self.save();
        }
        self.note_commit(commit);
        if self.counts() && !self.transferring {
            let progress = self.progress();
            if self.may_acknowledge() {
                let message = Message::HeartbeatAck { view, sequence, sent_at, progress };
                self.send(from, message);
            }
        }
    }

    /// Waits for the primary from now on.
    pub(super) fn await_primary(&mut self) {
        let timing = self.config.timing;
        let wait = timing.suspect_us + self.random.below(timing.suspect_jitter_us);
        self.timers.stop(Timer::Vote);
        self.timers.arm(Timer::Suspect, self.now.after_us(wait));
    }

    pub(super) fn note_delay(&mut self, due: Nanos) {
        if self.now.us_since(due) > self.config.timing.suspect_us / 4 {
            mark!("own timers were late");
            self.follower.stalled_until = self.now.after_us(self.config.timing.suspect_us);
        }
    }

    pub(super) fn on_suspect_timer(&mut self) {
        let must_wait = self.follower.stalled_until.max(self.follower.promise_until);
        if self.now < must_wait {
            return self.timers.arm(Timer::Suspect, must_wait);
        }
        if !self.counts() {
            // It has no say. It may have missed the next view.
            self.probe_view();
            return self.await_primary();
        }
        self.suspect_now();
    }

    /// Suspects the primary: asks the others whether they do, too.
    pub(super) fn suspect_now(&mut self) {
        let votes = matches!(self.status, Status::Normal | Status::ViewChange | Status::Recovering);
        let promised = self.now < self.follower.promise_until;
        if !votes || !self.counts() || promised && !self.mutations.has(Mutation::IgnorePromise) {
            return;
        }
        let next = View(self.view.0 + 1).max(self.follower.observed);
        let target = self.election.target(next, self.suspicion_oldest());
        let place = self.place.expect("a member that counts has a place");
        self.election.suspicions[place] = Some((target, self.now));
        self.timers.stop(Timer::ColdStart);
        if !(self.status == Status::Normal && self.leads()) {
            self.timers.stop(Timer::Suspect);
        }
        self.timers.arm(Timer::Vote, self.now.after_us(self.config.timing.vote_resend_us));
        self.send_suspicion();
        self.count_suspicions();
    }

    pub(super) fn send_suspicion(&mut self) {
        let Some((target, _)) = self.place.and_then(|place| self.election.suspicions[place]) else { return };
        let message = Message::StartViewChange { view: self.view, target, commit_max: self.commit_max };
        self.broadcast_members(&message);
    }

    pub(super) fn forget_suspicions_of_self(&mut self) {
        if let Some(place) = self.place {
            self.election.suspicions[place] = None;
        }
        if self.status == Status::Normal && self.leads() {
            self.timers.stop(Timer::Vote);
        }
    }

    /// A suspicion made before this moment no longer counts.
    pub(super) fn suspicion_oldest(&self) -> Nanos {
        self.now.before_us(self.config.timing.suspicion_window_us)
    }

    /// Another member suspects the primary.
    pub(super) fn on_suspicion(&mut self, from: ReplicaId, target: View) {
        let Some(place) = self.counting_place(from) else { return };
        if target <= self.view {
            // It missed the view that it asks for.
            if self.is_primary() {
                self.send_start_view(from, None);
            }
            return;
        }
        self.election.suspicions[place] = Some((target, self.now));
        let own = self.place.and_then(|place| self.election.suspicions[place]);
        let joins = match (self.status, own) {
            // One that suspects already goes along with a later target.
            (_, Some((own, _))) => own < target,
            // Whoever cannot lead, and knows, does not stand in the way.
            (Status::Normal, None) => self.leads() && self.leader.abdicated,
            (Status::Recovering, None) => self.now >= self.follower.promise_until,
            // The one that should finish this view gives up.
            (Status::ViewChange, None) => from == self.primary(),
            _ => false,
        };
        match joins {
            true => self.suspect_now(),
            false => self.count_suspicions(),
        }
    }

    fn is_suspecting(&self) -> bool {
        self.place.is_some_and(|place| self.election.suspicions[place].is_some())
    }

    /// Raises the view once a quorum suspects, this replica included (V32).
    pub(super) fn count_suspicions(&mut self) {
        let promised = self.now < self.follower.promise_until;
        if !self.is_suspecting() || promised && !self.mutations.has(Mutation::IgnorePromise) {
            return;
        }
        let mut quorum = self.config.roster.quorums().view_change();
        if self.mutations.has(Mutation::LoneSuspicion) {
            quorum = 1;
        }
        let oldest = self.suspicion_oldest();
        let mut targets: Vec<View> = self
            .election
            .suspicions
            .iter()
            .zip(&self.peers)
            .filter_map(|(suspicion, peer)| suspicion.filter(|(_, at)| peer.admitted && *at >= oldest))
            .map(|(target, _)| target)
            .collect();
        targets.sort_unstable_by(|a, b| b.cmp(a));
        // Whoever suspects a later view's primary suspects the earlier ones, too.
        if let Some(target) = targets.get(quorum - 1).copied()
            && target > self.view
        {
            mark!("suspicion quorum");
            self.enter_view_change(target);
        }
    }

    /// The next try of a suspicion or a vote.
    pub(super) fn on_vote_timer(&mut self) {
        let again = self.now.after_us(self.config.timing.vote_resend_us);
        if let Some(place) = self.place
            && let Some((target, at)) = &mut self.election.suspicions[place]
        {
            if *target > self.view {
                *at = self.now;
                self.send_suspicion();
                self.count_suspicions();
            } else {
                self.election.suspicions[place] = None;
            }
        }
        match self.status {
            Status::ViewChange => {
                self.send_vote();
                self.timers.arm(Timer::Vote, again);
            }
            Status::Normal if self.leads() => {
                if self.is_suspecting() && self.leader.abdicated {
                    self.timers.arm(Timer::Vote, again);
                }
            }
            Status::Normal if !self.is_suspecting() => self.await_primary(),
            Status::Normal | Status::Recovering => self.timers.arm(Timer::Vote, again),
            Status::RecoveringHead | Status::Amnesiac | Status::Halted => {}
        }
    }
}
