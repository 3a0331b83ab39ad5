//! How a replica begins: for the first time, after a restart, and after its directory was lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use laneway_wire::{LaneId, Micros, Nanos, Op, ReplicaId};

use super::liveness::Peer;
use super::slots::Slots;
use super::{Election, Follower, Leader, Repair, Replica, Restored, Status, Storage, Timer, Timers};
use crate::config::Config;
use crate::entry::View;
use crate::event::SuperblockNumber;
use crate::header::{ClusterId, DiskId, Identity};
use crate::marks::mark;
use crate::message::{Message, Nonce, StartView};
use crate::mutation::Mutations;
use crate::quorum;
use crate::random::Random;
use crate::recovery::{Head, RecoveredSlot};
use crate::superblock::Promise;
use crate::vote::{CheckpointId, LogTrust};

impl Replica {
    /// The only member of a lane. It has applied everything through `applied`, whose entry carries `timestamp_last`.
    pub fn alone(config: Config, applied: CheckpointId, timestamp_last: Micros) -> Replica {
        assert!(config.roster.members().len() == 1, "a lone member has no peers");
        let mut replica = Replica::blank(config, Nanos(0), applied, SuperblockNumber(0));
        replica.timestamp_last = timestamp_last;
        replica.status = Status::Normal;
        replica
    }

    /// The only member of a lane whose log does not keep names: the chain of names starts anew at every boot.
    pub fn alone_in(lane: LaneId, applied: Op, timestamp_last: Micros) -> Replica {
        let config = Config::alone(ClusterId::default(), lane);
        let identity = Identity::root(config.cluster, lane);
        Replica::alone(config, CheckpointId { op: applied, identity }, timestamp_last)
    }

    /// The first start of a lane that was just created, at view 0 with an empty log. Superblock record 1 says so and is
    /// durable. Never for a directory that was emptied (V87).
    pub fn fresh(config: Config, now: Nanos) -> Replica {
        let root = CheckpointId { op: Op(0), identity: Identity::root(config.cluster, config.lane) };
        let mut replica = Replica::blank(config, now, root, SuperblockNumber(1));
        replica.status = Status::Normal;
        if replica.is_alone() {
            return replica;
        }
        match replica.leads() {
            true => replica.start_leading_timers(),
            false => replica.await_primary(),
        }
        replica
    }

    /// A replica after a restart. With peers it looks for the current view and never leads the one that it was in; alone
    /// it goes on at once, and everything in its log is committed (V66).
    pub fn restore(config: Config, now: Nanos, restored: Restored) -> Replica {
        let Restored { superblock, state, log, applied, timestamp_last } = restored;
        let mut replica = Replica::blank(config, now, applied, superblock);
        replica.timestamp_last = timestamp_last;
        (replica.view, replica.log_view) = (state.view, state.log_view);
        replica.storage = Storage::new(now, superblock, state.view, state.log_view, log.op_head);
        replica.follower.observed = state.view;
        replica.checkpoint = state.checkpoint;
        replica.trust = state.trust;
        replica.syncing = state.syncing;
        for (_, slot) in log.slots.range(applied.op.next()..) {
            match slot {
                RecoveredSlot::Present { header, .. } => {
                    replica.slots.push_found(Some(header.identity), Some(*header), true);
                    replica.timestamp_last = replica.timestamp_last.max(header.timestamp);
                }
                RecoveredSlot::Faulty { identity, .. } | RecoveredSlot::Missing { identity } => {
                    mark!("damaged entry after a restart");
                    replica.slots.push_found(*identity, None, false);
                }
            }
        }
        replica.commit_max = log.commit_max(state.commit_max).max(applied.op);
        replica.promise = state.promise;
        if replica.is_alone() {
            replica.status = Status::Normal;
            replica.slots.verify(replica.slots.head());
            replica.commit_max = replica.slots.head();
            // Nothing is served or ordered before all of it is applied, as after the start of any view (V35).
            replica.view_start = replica.slots.head();
            replica.apply_ready();
            return replica;
        }
        replica.drop_leftovers();
        replica.follower.promise_until = now.after_us(replica.config.timing.suspect_us);
        if log.head == Head::Unknown {
            mark!("restart with a damaged head");
            replica.status = Status::RecoveringHead;
            replica.trust = LogTrust::Untrusted;
        } else if matches!(replica.promise, Promise::Vote(_)) {
            // It voted, and the view has not started as far as it knows. The vote still holds, and without it the others
            // may never learn why this replica follows no older view.
            mark!("restart in a view change");
            replica.status = Status::ViewChange;
            let timing = replica.config.timing;
            replica.timers.arm(Timer::ViewChange, now.after_us(timing.view_change_us));
            replica.timers.arm(Timer::Vote, now.after_us(timing.vote_resend_us));
        } else {
            replica.status = Status::Recovering;
            let wait = replica.config.timing.cold_start_us
                + replica.random.below(replica.config.timing.suspect_jitter_us);
            replica.timers.arm(Timer::ColdStart, now.after_us(wait));
        }
        replica.probe_view();
        replica
    }

    /// A replica whose directory was emptied or replaced. Nothing that it says counts until it is admitted again
    /// (V87, V115).
    pub fn amnesiac(config: Config, now: Nanos, disk: DiskId) -> Replica {
        let root = CheckpointId { op: Op(0), identity: Identity::root(config.cluster, config.lane) };
        let mut replica = Replica::blank(config, now, root, SuperblockNumber(1));
        replica.status = Status::Amnesiac;
        replica.disk = disk;
        if let Some(place) = replica.place {
            replica.peers[place].admitted = false;
        }
        replica.ask_to_recover();
        replica
    }

    fn blank(config: Config, now: Nanos, applied: CheckpointId, superblock: SuperblockNumber) -> Replica {
        assert!(quorum::table_holds(), "the quorums of every number of members meet");
        assert!(config.check().is_ok(), "{:?}", config.check());
        let members = config.roster.members().len();
        let mut random = Random::new(config.seed);
        let base = Replica::anchor_of(applied);
        Replica {
            place: config.roster.members().iter().position(|member| *member == config.replica),
            mutations: Mutations::NONE,
            now,
            nonces: random.next() << 32,
            random,
            status: Status::Recovering,
            view: View(0),
            log_view: View(0),
            promise: Promise::View { op_head: Op(0), headers: Vec::new() },
            view_start: Op(0),
            slots: Slots::new(base),
            known: BTreeMap::new(),
            ahead: BTreeMap::new(),
            commit_max: applied.op,
            commit_min: applied.op,
            applying: applied.op,
            reading: BTreeSet::new(),
            timestamp_last: Micros(0),
            clock_bound: None,
            checkpoint: applied,
            trust: LogTrust::Trusted,
            trusted_at: None,
            syncing: false,
            transferring: false,
            storage: Storage::new(now, superblock, View(0), View(0), applied.op),
            peers: (0..members).map(|_| Peer { heard_at: now, ..Peer::new() }).collect(),
            leader: Leader { resend_wait_us: config.timing.resend_us, ..Leader::default() },
            follower: Follower::new(Nanos(0), &config.timing),
            election: Election::new(members, config.timing.view_change_us),
            repair: Repair::new(now),
            timers: Timers::new(),
            effects: VecDeque::new(),
            disk: DiskId::default(),
            recovery: Vec::new(),
            config,
        }
    }

    /// Takes out of the picture what an adopted view had dropped already, when the stop came before the log was cut.
    fn drop_leftovers(&mut self) {
        let promised = match &self.promise {
            Promise::None => None,
            Promise::Vote(vote) => Some(vote.op_head),
            Promise::View { op_head, headers } => {
                self.known = headers.iter().map(|header| (header.op, *header)).collect();
                Some(*op_head)
            }
        };
        self.forget_applied_headers();
        if let Some(promised) = promised {
            let mut op = self.commit_min.max(promised).next();
            while op <= self.slots.head() {
                if self.slots.header(op).is_some_and(|header| header.view < self.log_view) {
                    mark!("leftover found after a restart");
                    self.cut(Op(op.0 - 1));
                }
                op = op.next();
            }
        }
        let mut keep = self.slots.head();
        for (op, header) in &self.known {
            if *op <= keep && self.slots.identity(*op).is_some_and(|identity| identity != header.identity) {
                mark!("replaced entry found after a restart");
                keep = Op(op.0 - 1);
            }
        }
        self.cut(keep.max(self.commit_min));
    }

    /// Nobody leads: starts to vote (V65).
    pub(super) fn on_cold_start_timer(&mut self) {
        if self.status != Status::Recovering {
            return;
        }
        let must_wait = self.follower.promise_until.max(self.follower.stalled_until);
        if self.now < must_wait || !self.counts() {
            let again = self.now.after_us(self.config.timing.cold_start_us);
            return self.timers.arm(Timer::ColdStart, if self.counts() { must_wait } else { again });
        }
        mark!("cold start");
        self.suspect_now();
    }

    // ---- Recovery of an amnesiac member.

    pub(super) fn ask_to_recover(&mut self) {
        let nonce = match self.follower.probe {
            Some(nonce) => nonce,
            None => self.next_nonce(),
        };
        self.follower.probe = Some(nonce);
        let message = Message::Recovery { view: self.view, nonce, disk: self.disk };
        self.broadcast_members(&message);
        self.timers.arm_idle(Timer::GetView, self.now.after_us(self.follower.probe_wait_us));
    }

    /// A member lost everything and asks what it may have promised.
    pub(super) fn on_recovery(&mut self, from: ReplicaId, nonce: Nonce) {
        if !matches!(self.status, Status::Normal | Status::ViewChange) || !self.counts() {
            return;
        }
        let start_view = self.is_primary().then(|| Box::new(self.describe_view(Some(nonce))));
        let (view, log_view) = (self.view, self.log_view);
        let (op_head, commit_max) = (self.slots.head(), self.commit_max);
        self.send(from, Message::RecoveryReply { view, nonce, log_view, op_head, commit_max, start_view });
    }

    pub(super) fn on_recovery_reply(&mut self, from: ReplicaId, message: Message) {
        let Message::RecoveryReply { view, nonce, start_view, .. } = message else { return };
        let Some(place) = self.counting_place(from) else { return };
        if self.status != Status::Amnesiac || self.follower.probe != Some(nonce) {
            return;
        }
        self.recovery.retain(|(other, _, _)| *other != place);
        self.recovery.push((place, view, start_view.map(|start| *start)));
        let members = self.config.roster.members().len();
        let needed = self.config.roster.quorums().view_change().min(members - 1);
        if self.recovery.len() < needed {
            return;
        }
        let latest = self.recovery.iter().map(|(_, view, _)| *view).max().expect("at least one reply");
        let start = self.recovery.iter().find_map(|(place, _, start)| {
            let start = start.as_ref().filter(|start| start.view == latest)?;
            (self.config.roster.primary(latest) == self.config.roster.members()[*place])
                .then(|| start.clone())
        });
        if let Some(start) = start {
            mark!("amnesiac recovered");
            self.recovery.clear();
            self.adopt(start);
        }
    }

    /// The metadata lane has decided whether a member counts.
    pub(super) fn on_admission(&mut self, replica: ReplicaId, admitted: bool) {
        let Some(place) = self.place_of(replica) else { return };
        self.peers[place].admitted = admitted;
        if !admitted {
            mark!("member does not count");
            let heard_at = self.peers[place].heard_at;
            self.peers[place] = Peer { admitted, heard_at, ..Peer::new() };
            self.election.suspicions[place] = None;
            self.election.votes[place] = None;
            if Some(place) == self.place && self.status == Status::Normal {
                match self.leads() {
                    true => self.abdicate(),
                    false => self.await_primary(),
                }
            }
        }
        if self.is_primary() && !self.is_alone() {
            self.commit();
        }
    }
}

/// A member's answer to an amnesiac one: its place, its view, and the log of the view if it leads it.
pub(super) type RecoveryAnswer = (usize, View, Option<StartView>);
