//! One replica of one lane. This file holds what a replica is and hands each event to the part that answers it.
//!
//! Parts, in reading order: `slots` (the log as known), `storage` (what is durable), `normal` (propose, acknowledge,
//! commit, apply), `liveness` (heartbeats, lease, suspicion), `election` (votes and the merged log), `adoption` (a decided
//! log), `repair` (what is missing), `restart` (after a stop), `transfer` (checkpoints).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use laneway_wire::{LaneId, Micros, Nanos, Op, ReplicaId};

use crate::config::Config;
use crate::durability;
use crate::entry::{Entry, View};
use crate::event::{Effect, Event, Halt};
use crate::header::{DiskId, Header, Identity};
use crate::invariants;
use crate::marks::mark;
use crate::message::{Anchor, Message, Nonce};
use crate::mutation::Mutations;
use crate::random::Random;
use crate::roster::Role;
use crate::superblock::Promise;
use crate::vote::{CheckpointId, LogTrust};

mod adoption;
mod election;
mod liveness;
mod normal;
mod repair;
mod restart;
mod restore;
mod slots;
mod storage;
mod timers;
mod transfer;

use election::Election;
use liveness::{Follower, Leader, Peer};
pub use normal::ProposeError;
use repair::Repair;
pub use restore::Restored;
use slots::Slots;
use storage::Storage;
pub use timers::Timer;
use timers::Timers;

/// What a replica is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// A view has started: the primary orders entries, the others take them.
    Normal,
    /// A view was entered and its log is not decided, or not yet durable here.
    ViewChange,
    /// After a restart: looking for the current view.
    Recovering,
    /// As [`Status::Recovering`], with an end of the log that may have cost acknowledged entries: no vote.
    RecoveringHead,
    /// The directory was emptied: nothing this replica says counts.
    Amnesiac,
    /// Stopped for good.
    Halted,
}

/// How far a replica has come. Every field is the highest op for which the statement holds; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// In the log here, or on its way to it.
    pub op_head: Op,
    /// The write has finished, without a gap below: survives a killed process.
    pub written: Op,
    /// A flush after the write has finished, without a gap below: survives a power loss.
    pub synced: Op,
    /// Known to be committed. Above `written` on a replica that lags.
    pub commit_max: Op,
    /// Applied here.
    pub commit_min: Op,
}

/// One replica of one lane. Lives on the shard that owns the lane, from recovery until the shard ends.
#[derive(Clone, Debug)]
pub struct Replica {
    config: Config,
    mutations: Mutations,
    /// Place in the member list; `None` for a learner.
    place: Option<usize>,
    now: Nanos,
    random: Random,
    nonces: u64,

    status: Status,
    view: View,
    log_view: View,
    /// What backs the view: the vote for it, or the log that started it.
    promise: Promise,
    /// The head of the log that the current view started with.
    view_start: Op,

    slots: Slots,
    /// Headers of the current log whose bodies are not here, above the applied ones.
    known: BTreeMap<Op, Header>,
    /// Entries of the current log above a gap, not in the log yet.
    ahead: BTreeMap<Op, Entry>,
    commit_max: Op,
    commit_min: Op,
    /// Handed out to be applied, through here.
    applying: Op,
    /// Bodies on their way from the log to be applied.
    reading: BTreeSet<Op>,
    timestamp_last: Micros,
    /// The latest timestamp that the clocks of the cluster allow, as far as known.
    clock_bound: Option<Micros>,

    checkpoint: CheckpointId,
    trust: LogTrust,
    /// Once everything through here is held the log is trusted again.
    trusted_at: Option<Op>,
    syncing: bool,
    transferring: bool,

    storage: Storage,
    peers: Vec<Peer>,
    leader: Leader,
    follower: Follower,
    election: Election,
    repair: Repair,
    timers: Timers,
    effects: VecDeque<Effect>,
    /// The data directory, while it is not known to the others.
    disk: DiskId,
    /// Answers to an amnesiac member.
    recovery: Vec<restart::RecoveryAnswer>,
}

impl Replica {
    /// The lane of this replica.
    pub fn lane(&self) -> LaneId {
        self.config.lane
    }

    /// Who this replica is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The current view.
    pub fn view(&self) -> View {
        self.view
    }

    /// The last view whose log was adopted or decided here.
    pub fn log_view(&self) -> View {
        self.log_view
    }

    /// Who leads the current view.
    pub fn primary(&self) -> ReplicaId {
        self.config.roster.primary(self.view)
    }

    /// Whether this replica leads a view that has started.
    pub fn is_primary(&self) -> bool {
        self.status == Status::Normal && self.leads()
    }

    /// Whether this replica follows a view that has started: requests are sent on to its primary (89).
    pub fn is_settled_backup(&self) -> bool {
        self.status == Status::Normal && !self.leads() && !self.transferring
    }

    /// Whether a checkpoint is being fetched.
    pub fn is_transferring(&self) -> bool {
        self.transferring
    }

    /// The head of the log that the current view started with.
    pub fn view_start(&self) -> Op {
        self.view_start
    }

    /// The durable state.
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// How far this replica has come.
    pub fn frontier(&self) -> Frontier {
        Frontier {
            op_head: self.slots.head(),
            written: self.slots.written(),
            synced: self.slots.synced(),
            commit_max: self.commit_max,
            commit_min: self.commit_min,
        }
    }

    /// The name of the entry at an op, where it is known: from the anchor of the kept headers to the head.
    pub fn identity(&self, op: Op) -> Option<Identity> {
        self.slots.identity(op)
    }

    /// Whether a body is missing here that should not be.
    pub fn is_repairing(&self) -> bool {
        self.wants_repair()
    }

    /// Plants bugs.
    #[cfg(any(test, feature = "mutations"))]
    pub fn mutate(&mut self, mutation: crate::mutation::Mutation) {
        self.mutations = Mutations::only(mutation);
    }

    /// The next thing to do, if any.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Event::Timeout`] is due; [`Nanos::NEVER`] when no timer runs.
    pub fn poll_timeout(&self) -> Nanos {
        self.timers.next()
    }

    /// Something happened.
    pub fn handle(&mut self, now: Nanos, event: Event) {
        if self.status == Status::Halted {
            return;
        }
        self.advance_clock(now);
        match event {
            Event::Message { from, message } => self.on_message(from, message),
            Event::Timeout => self.on_timeout(),
            Event::Written(number) => self.on_written(number),
            Event::Synced(number) => self.on_synced(number),
            Event::LogFailed => self.on_log_failed(),
            Event::Applied(op) => self.on_applied(op),
            Event::SuperblockWritten(number) => self.on_superblock_written(number),
            Event::Read { request, entry } => self.on_read(request, entry),
            Event::Checkpointed(checkpoint) => self.on_checkpointed(checkpoint),
            Event::CheckpointInstalled { checkpoint, timestamp } => {
                self.on_checkpoint_installed(checkpoint, timestamp);
            }
            Event::TransferFailed => self.on_transfer_failed(),
            Event::Admission { replica, admitted } => self.on_admission(replica, admitted),
            Event::ClockBound(bound) => self.clock_bound = Some(bound),
        }
        self.finish();
    }

    fn on_message(&mut self, from: ReplicaId, message: Message) {
        let role = self.config.roster.role(from);
        if role == Role::Stranger || from == self.config.replica {
            return;
        }
        match message {
            Message::Prepare { view, commit, checkpoint, entry } => {
                self.on_prepare(from, view, commit, checkpoint, entry);
            }
            Message::PrepareOk { view, progress } => self.on_progress(from, view, &progress),
            Message::Heartbeat { .. } => self.on_heartbeat(from, message),
            Message::HeartbeatAck { view, sequence: _, sent_at, progress } => {
                self.on_heartbeat_ack(from, view, sent_at, &progress);
            }
            Message::StartViewChange { view: _, target, commit_max: _ } => self.on_suspicion(from, target),
            Message::DoViewChange(vote) => self.on_vote(from, *vote),
            Message::StartView(start) => self.on_start_view(from, *start),
            Message::GetView { view, nonce, op_head: _, recovering } => {
                self.on_get_view(from, view, nonce, recovering);
            }
            Message::GetHeaders { view: _, nonce, first, last } => {
                self.on_get_headers(from, nonce, first, last)
            }
            Message::Headers { view, nonce: _, headers } => self.on_headers(from, view, &headers),
            Message::GetPrepare { view: _, nonce, wanted } => self.on_get_prepare(from, nonce, &wanted),
            Message::RepairPrepare { view, nonce: _, settled, entry } => {
                self.on_repair_prepare(from, view, settled, entry);
            }
            Message::RangeEvicted { view: _, nonce, oldest, checkpoint: _ } => {
                self.on_range_evicted(from, nonce, oldest);
            }
            Message::Transfer { view: _, message } => self.on_transfer_message(from, message),
            Message::Recovery { view: _, nonce, disk: _ } => self.on_recovery(from, nonce),
            Message::RecoveryReply { .. } => self.on_recovery_reply(from, message),
            // Clocks are a matter of nodes, not of lanes.
            Message::Ping { .. } | Message::Pong { .. } => {}
        }
    }

    fn on_timeout(&mut self) {
        for timer in Timer::ALL {
            let Some(due) = self.timers.take_due(timer, self.now) else { continue };
            self.note_delay(due);
            match timer {
                Timer::Heartbeat => self.on_heartbeat_timer(),
                Timer::Suspect => self.on_suspect_timer(),
                Timer::Resend => self.on_resend_timer(),
                Timer::Vote => self.on_vote_timer(),
                Timer::ViewChange => self.on_view_change_timer(),
                Timer::GetView => self.on_get_view_timer(),
                Timer::ColdStart => self.on_cold_start_timer(),
                Timer::Abdicate => self.on_abdicate_timer(),
                Timer::Repair => self.on_repair_timer(),
            }
        }
    }

    /// What every step ends with.
    fn finish(&mut self) {
        self.regain_trust();
        self.schedule_repair();
        self.check();
    }

    fn advance_clock(&mut self, now: Nanos) {
        let slept = now.us_since(self.now) > self.config.timing.lease_us;
        self.now = self.now.max(now);
        if slept && self.is_primary() && !self.is_alone() {
            // A process that was stopped for longer than a lease may have been replaced. The lease itself is counted
            // from heartbeats sent before, and so is over.
            mark!("primary woke up");
            self.probe_view();
        }
    }

    // ---- What the parts share.

    fn is_alone(&self) -> bool {
        self.config.roster.members().len() == 1 && self.config.roster.learners().is_empty()
    }

    fn leads(&self) -> bool {
        self.primary() == self.config.replica
    }

    fn place_of(&self, replica: ReplicaId) -> Option<usize> {
        match self.config.roster.role(replica) {
            Role::Member(place) => Some(place),
            Role::Learner | Role::Stranger => None,
        }
    }

    /// The place of a member that counts in quorums.
    fn counting_place(&self, replica: ReplicaId) -> Option<usize> {
        self.place_of(replica).filter(|place| self.peers[*place].admitted)
    }

    /// Whether this replica counts in quorums.
    fn counts(&self) -> bool {
        self.place.is_some_and(|place| self.peers[place].admitted)
    }

    fn next_nonce(&mut self) -> Nonce {
        self.nonces = self.nonces.wrapping_add(1);
        Nonce(self.nonces)
    }

    fn send(&mut self, to: ReplicaId, message: Message) {
        if !self.mutations.any() {
            let required = durability::requirement(&message);
            assert!(
                self.is_satisfied(&required),
                "lane {}: {message:?} is ahead of the disk",
                self.config.lane
            );
        }
        self.effects.push_back(Effect::Send { to, message, after: self.storage.barrier(&self.slots) });
    }

    fn broadcast(&mut self, message: &Message) {
        let others: Vec<ReplicaId> = self.config.roster.others(self.config.replica).collect();
        for to in others {
            self.send(to, message.clone());
        }
    }

    fn broadcast_members(&mut self, message: &Message) {
        for place in 0..self.config.roster.members().len() {
            let to = self.config.roster.members()[place];
            if to != self.config.replica {
                self.send(to, message.clone());
            }
        }
    }

    fn halt(&mut self, halt: Halt) {
        mark!("replica halted");
        self.effects.push_back(Effect::Stopped { view: self.view });
        self.effects.push_back(Effect::Halt(halt));
        self.status = Status::Halted;
        self.timers.stop_all();
    }

    fn anchor_of(checkpoint: CheckpointId) -> Anchor {
        Anchor { op: checkpoint.op, identity: checkpoint.identity }
    }

    fn check(&self) {
        if self.status == Status::Halted || self.mutations.any() {
            return;
        }
        let lane = self.config.lane;
        let frontier = self.frontier();
        assert!(invariants::frontiers_ordered(&frontier), "lane {lane}: {frontier:?}");
        assert!(self.applying >= self.commit_min && self.applying <= self.commit_max);
        if self.is_alone() {
            return;
        }
        assert!(
            invariants::views_ordered(self.status, self.view, self.log_view, &self.promise),
            "lane {lane}: {:?} in view {:?} with the log of {:?}",
            self.status,
            self.view,
            self.log_view
        );
        assert!(self.checkpoint.op <= self.commit_min, "lane {lane}: a checkpoint of what is not applied");
        assert!(self.timers_fit(), "lane {lane}: {:?} with {:?}", self.status, self.timers);
        if self.is_primary() {
            let open = frontier.op_head.0 - frontier.commit_max.0;
            assert!(open <= self.config.window_ops() as u64, "lane {lane}: {open} entries are open");
        }
    }

    /// Every status has exactly its timers (V60).
    fn timers_fit(&self) -> bool {
        let runs = |timer| self.timers.runs(timer);
        match self.status {
            Status::Normal if self.leads() => {
                let leading = !self.leader.abdicated;
                runs(Timer::Heartbeat) == leading
                    && runs(Timer::Abdicate) == leading
                    && runs(Timer::Resend)
                    && !runs(Timer::Suspect)
                    && !runs(Timer::ViewChange)
            }
            Status::Normal => (runs(Timer::Suspect) || runs(Timer::Vote)) && !runs(Timer::Heartbeat),
            Status::ViewChange => runs(Timer::ViewChange) && !runs(Timer::Heartbeat) && !runs(Timer::Suspect),
            Status::Recovering => runs(Timer::GetView) && (runs(Timer::ColdStart) || runs(Timer::Vote)),
            Status::RecoveringHead | Status::Amnesiac => runs(Timer::GetView),
            Status::Halted => true,
        }
    }
}

#[cfg(test)]
mod tests;
