//! A cluster of replicas on one thread: a network that delays and loses, disks that finish later and forget what was not
//! flushed, and checks of everything that must hold at every step.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use laneway_wire::{LaneId, Micros, Nanos, Op, ReplicaId};

use crate::config::{Config, Timing};
use crate::durability::requirement;
use crate::entry::{Durability, Entry, EntryBody, View};
use crate::event::{DurableState, Effect, Event, Halt, LogNumber, ReadPurpose, SuperblockNumber};
use crate::header::{ClusterId, Header, Identity};
use crate::message::Message;
use crate::mutation::Mutation;
use crate::random::Random;
use crate::recovery::{self, Found, FoundKind, LogScan, Tail, Witness};
use crate::replica::{Replica, Restored, Status};
use crate::roster::Roster;
use crate::superblock::Promise;
use crate::vote::{CheckpointId, LogTrust, Vote};

pub const LANE: LaneId = LaneId(0);
pub const CLUSTER: ClusterId = ClusterId(42);

#[derive(Clone, Debug)]
pub enum Change {
    Write(Entry),
    Truncate(Op),
}

/// What survives a crash, and what is on its way there.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Changes of all boots, in order. The last `volatile` ones are not flushed.
    pub changes: Vec<Change>,
    pub damaged: BTreeSet<Op>,
    pub volatile: usize,
    /// Number of the first change of this boot, minus one.
    pub before_boot: usize,
    pub superblock: Option<(SuperblockNumber, DurableState)>,
    pub superblock_under_way: BTreeMap<SuperblockNumber, DurableState>,
    pub superblock_seen: SuperblockNumber,
    /// The checkpoint: how much of the history is durable outside of the log.
    pub checkpoint: Vec<Header>,
    /// The highest op that is trimmed.
    pub trimmed: Op,
}

impl Disk {
    /// The log as the flushed changes, or all of them, make it.
    pub fn log(&self, flushed: bool) -> BTreeMap<Op, Entry> {
        let end = self.changes.len() - if flushed { self.volatile } else { 0 };
        let mut log = BTreeMap::new();
        for change in &self.changes[..end] {
            match change {
                Change::Write(entry) => {
                    log.insert(entry.op(), entry.clone());
                }
                Change::Truncate(above) => {
                    log.split_off(&above.next());
                }
            }
        }
        log
    }
}

pub struct Node {
    pub replica: Option<Replica>,
    pub disk: Disk,
    pub boot: u64,
    /// Everything applied, by op from 1.
    pub history: Vec<Header>,
    pub halted: Option<Halt>,
    pub transfer: bool,
    /// The votes that were sent, by view.
    votes: BTreeMap<View, Vote>,
    slow: bool,
}

#[derive(Clone, Debug)]
enum Queued {
    Event(Box<Event>),
    SuperblockDone(SuperblockNumber),
    LogWritten(LogNumber),
    LogSynced(LogNumber),
    Transfer,
}

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub now: Nanos,
    pub random: Random,
    queue: BTreeMap<(Nanos, u64), (usize, u64, Queued)>,
    sequence: u64,
    pub loss: u64,
    pub delay_us: u64,
    pub disk_us: u64,
    pub cut: BTreeSet<(usize, usize)>,
    /// What clients were told, by op.
    pub acknowledged: BTreeMap<Op, Identity>,
    pub committed: BTreeMap<Op, Identity>,
    pub mutation: Option<Mutation>,
    pub class: Option<Durability>,
    pub trace: bool,
    pub checkpoint_every: u64,
    pub keep_log: u64,
    pub dropped: BTreeMap<&'static str, bool>,
    pub sent: BTreeMap<&'static str, u64>,
    proposals: u64,
    members: usize,
}

pub fn roster(members: usize) -> Roster {
    Roster::initial(LANE, members).unwrap()
}

impl Cluster {
    pub fn new(members: usize, seed: u64) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            now: Nanos(1_000_000_000),
            random: Random::new(seed),
            queue: BTreeMap::new(),
            sequence: 0,
            loss: 0,
            delay_us: 500,
            disk_us: 300,
            cut: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            committed: BTreeMap::new(),
            mutation: None,
            class: None,
            trace: false,
            checkpoint_every: u64::MAX,
            keep_log: u64::MAX,
            dropped: BTreeMap::new(),
            sent: BTreeMap::new(),
            proposals: 0,
            members,
        };
        for node in 0..members {
            let config = cluster.config(node);
            let root = Identity::root(CLUSTER, LANE);
            let state = DurableState {
                view: View(0),
                log_view: View(0),
                commit_max: Op(0),
                checkpoint: CheckpointId { op: Op(0), identity: root },
                promise: Promise::None,
                trust: LogTrust::Trusted,
                syncing: false,
            };
            let disk = Disk {
                superblock: Some((SuperblockNumber(1), state)),
                superblock_seen: SuperblockNumber(1),
                ..Disk::default()
            };
            cluster.nodes.push(Node {
                replica: Some(Replica::fresh(config, cluster.now)),
                disk,
                boot: 1,
                history: Vec::new(),
                halted: None,
                transfer: false,
                votes: BTreeMap::new(),
                slow: false,
            });
        }
        for node in 0..members {
            cluster.carry_out(node);
        }
        cluster
    }

    pub fn mutate(&mut self, mutation: Mutation) {
        self.mutation = Some(mutation);
        for node in &mut self.nodes {
            if let Some(replica) = &mut node.replica {
                replica.mutate(mutation);
            }
        }
    }

    fn config(&mut self, node: usize) -> Config {
        Config {
            cluster: CLUSTER,
            lane: LANE,
            replica: ReplicaId(node as u8),
            roster: roster(self.members),
            timing: Timing::DEFAULT,
            seed: self.random.next(),
        }
    }

    pub fn replica(&self, node: usize) -> &Replica {
        self.nodes[node].replica.as_ref().unwrap()
    }

    pub fn live(&self) -> impl Iterator<Item = (usize, &Replica)> {
        self.nodes.iter().enumerate().filter_map(|(node, n)| Some((node, n.replica.as_ref()?)))
    }

    pub fn primary(&self) -> Option<usize> {
        self.live()
            .filter(|(_, replica)| replica.is_primary())
            .max_by_key(|(_, r)| r.view())
            .map(|(node, _)| node)
    }

    fn push(&mut self, node: usize, after_us: u64, queued: Queued) {
        self.sequence += 1;
        let boot = self.nodes[node].boot;
        self.queue.insert((self.now.after_us(after_us), self.sequence), (node, boot, queued));
    }

    pub fn propose(&mut self, node: usize) -> Option<Op> {
        self.proposals += 1;
        let body = EntryBody::operation(Bytes::from(self.proposals.to_le_bytes().to_vec()));
        let durability = self.class.unwrap_or(match self.random.below(2) {
            0 => Durability::Replicated,
            _ => Durability::Persisted,
        });
        let wall = Micros(self.now.0 / 1000);
        let replica = self.nodes[node].replica.as_mut()?;
        let op = replica.propose(wall, durability, body).ok();
        self.carry_out(node);
        op
    }

    /// Runs until nothing is due before `until`.
    pub fn run(&mut self, us: u64) {
        let until = self.now.after_us(us);
        while self.step(until) {}
        self.now = until;
    }

    fn step(&mut self, until: Nanos) -> bool {
        let timer = self
            .live()
            .map(|(node, replica)| (replica.poll_timeout(), node))
            .min()
            .filter(|(at, _)| *at <= until);
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= until);
        match (timer, queued) {
            (None, None) => return false,
            (Some((at, node)), queued) if queued.is_none_or(|queued| at < queued) => {
                self.now = self.now.max(at);
                self.event(node, Event::Timeout);
            }
            _ => {
                let ((at, _), (node, boot, queued)) = self.queue.pop_first().unwrap();
                self.now = self.now.max(at);
                if self.nodes[node].boot == boot && self.nodes[node].replica.is_some() {
                    self.deliver(node, queued);
                } else if let Queued::Event(event) = queued
                    && matches!(*event, Event::Message { .. })
                    && self.nodes[node].replica.is_some()
                {
                    // Messages outlive a restart of the receiver.
                    self.event(node, *event);
                }
            }
        }
        true
    }

    fn deliver(&mut self, node: usize, queued: Queued) {
        let event = match queued {
            Queued::Event(event) => *event,
            Queued::LogWritten(number) => Event::Written(number),
            Queued::LogSynced(number) => {
                let disk = &mut self.nodes[node].disk;
                let issued = disk.changes.len() - disk.before_boot;
                disk.volatile = disk.volatile.min(issued - number.0 as usize);
                Event::Synced(number)
            }
            Queued::SuperblockDone(number) => {
                let disk = &mut self.nodes[node].disk;
                if let Some(state) = disk.superblock_under_way.remove(&number) {
                    disk.superblock = Some((number, state));
                }
                disk.superblock_under_way = disk.superblock_under_way.split_off(&number);
                Event::SuperblockWritten(number)
            }
            Queued::Transfer => return self.finish_transfer(node),
        };
        self.event(node, event);
    }

    pub fn event(&mut self, node: usize, event: Event) {
        if self.trace {
            let r = self.replica(node);
            println!("{} n{node} {:?} v{} {event:?}", self.now.0 / 1000, r.status(), r.view().0);
        }
        let now = self.now;
        self.nodes[node].replica.as_mut().unwrap().handle(now, event);
        self.carry_out(node);
    }

    fn carry_out(&mut self, node: usize) {
        loop {
            let Some(effect) = self.nodes[node].replica.as_mut().and_then(Replica::poll_effect) else {
                break;
            };
            self.effect(node, effect);
        }
        self.check_lease();
    }

    /// At no time do two replicas serve reads, unless the newer one's view is served by the older one's lease: never.
    fn check_lease(&mut self) {
        let now = self.now;
        let serving: Vec<View> =
            self.live().filter(|(_, r)| r.may_serve_reads(now)).map(|(_, r)| r.view()).collect();
        assert!(serving.len() <= 1, "two primaries serve reads: {serving:?}");
    }

    fn effect(&mut self, node: usize, effect: Effect) {
        if self.trace && !matches!(effect, Effect::Apply(_)) {
            println!("    n{node} -> {effect:?}");
        }
        let slow = if self.nodes[node].slow { 50 } else { 1 };
        let latency = (1 + self.random.below(self.disk_us)) * slow;
        match effect {
            Effect::Write { number, entry } => {
                self.nodes[node].disk.changes.push(Change::Write(entry));
                self.log_change(node, number, latency);
            }
            Effect::Truncate { number, above } => {
                self.nodes[node].disk.changes.push(Change::Truncate(above));
                self.log_change(node, number, latency);
            }
            Effect::WriteSuperblock { number, state } => {
                let disk = &mut self.nodes[node].disk;
                disk.superblock_seen = disk.superblock_seen.max(number);
                if let Some((_, before)) = &disk.superblock {
                    assert!(before.view <= state.view && before.log_view <= state.log_view, "V29");
                    assert!(before.commit_max <= state.commit_max, "V29");
                }
                disk.superblock_under_way.insert(number, *state);
                self.push(node, latency * 2, Queued::SuperblockDone(number));
            }
            Effect::Apply(entry) => self.apply(node, entry),
            Effect::Send { to, message, .. } => self.message(node, to, message),
            Effect::Read(request) => {
                let readable = !self.nodes[node].disk.damaged.contains(&request.op)
                    && request.op > self.nodes[node].disk.trimmed;
                let entry = self.nodes[node].disk.log(false).remove(&request.op).filter(|entry| {
                    readable
                        && (request.identity == Identity::default()
                            || request.identity == entry.header.identity)
                });
                if matches!(request.purpose, ReadPurpose::Repair { .. }) {
                    self.push(node, latency, Queued::Event(Box::new(Event::Read { request, entry })));
                } else {
                    self.push(node, latency / 2, Queued::Event(Box::new(Event::Read { request, entry })));
                }
            }
            Effect::Trim { below, .. } => {
                let disk = &mut self.nodes[node].disk;
                let keep = Op(disk.checkpoint.len() as u64).0.saturating_sub(self.keep_log);
                disk.trimmed = disk.trimmed.max(Op(keep.min(below.0.saturating_sub(1)).max(keep)));
            }
            Effect::ViewStarted { .. } | Effect::Stopped { .. } => {}
            Effect::ServeTransfer { .. } | Effect::DeliverTransfer { .. } => {}
            Effect::StartTransfer { .. } => {
                self.nodes[node].transfer = true;
                self.push(node, 20_000, Queued::Transfer);
            }
            Effect::CancelTransfer => self.nodes[node].transfer = false,
            Effect::Halt(halt) => {
                assert!(self.mutation.is_some(), "n{node} halted: {halt}");
                self.nodes[node].halted = Some(halt);
            }
        }
    }

    fn log_change(&mut self, node: usize, number: LogNumber, latency: u64) {
        let disk = &mut self.nodes[node].disk;
        disk.volatile += 1;
        if let Some(Change::Write(entry)) = disk.changes.last() {
            disk.damaged.remove(&entry.op());
        }
        assert_eq!((disk.changes.len() - disk.before_boot) as u64, number.0, "changes are numbered in order");
        self.push(node, latency, Queued::LogWritten(number));
        let later = self.random.below(self.disk_us * 3);
        self.push(node, latency + later, Queued::LogSynced(number));
    }

    fn apply(&mut self, node: usize, entry: Entry) {
        let op = entry.op();
        let identity = entry.header.identity;
        assert_eq!(self.nodes[node].history.len() as u64 + 1, op.0, "n{node}: applied out of order");
        let parent = self.nodes[node].history.last().map_or(Identity::root(CLUSTER, LANE), |h| h.identity);
        assert_eq!(entry.header.parent, parent, "n{node}: the history is a chain");
        if let Some(last) = self.nodes[node].history.last() {
            assert!(last.timestamp < entry.header.timestamp, "V61");
        }
        let agreed = *self.committed.entry(op).or_insert(identity);
        assert_eq!(agreed, identity, "n{node}: two histories at op {op}");
        if self.replica(node).is_primary() {
            self.acknowledged.insert(op, identity);
        }
        self.nodes[node].history.push(entry.header);
        let now = self.now;
        self.nodes[node].replica.as_mut().unwrap().handle(now, Event::Applied(op));
        if op.0.is_multiple_of(self.checkpoint_every) {
            let node_ = &mut self.nodes[node];
            node_.disk.checkpoint = node_.history.clone();
            let checkpoint = CheckpointId { op, identity };
            node_.replica.as_mut().unwrap().handle(now, Event::Checkpointed(checkpoint));
        }
    }

    /// The table of what must be durable before which message, asked of the disk itself.
    fn check_durable(&self, node: usize, message: &Message) {
        let required = requirement(message);
        let disk = &self.nodes[node].disk;
        let (_, state) = disk.superblock.as_ref().unwrap();
        assert!(required.view.is_none_or(|view| state.view >= view), "V30: {message:?}");
        assert!(required.log_view.is_none_or(|view| state.log_view >= view), "V30: {message:?}");
        if let Message::DoViewChange(vote) = message {
            assert_eq!(Promise::Vote((**vote).clone()), state.promise, "V31");
        }
        let checkpoint = Op(disk.checkpoint.len() as u64);
        let (all, flushed) = (disk.log(false), disk.log(true));
        assert!(required.written <= checkpoint || all.contains_key(&required.written), "{message:?}");
        assert!(required.synced <= checkpoint || flushed.contains_key(&required.synced), "{message:?}");
    }

    fn message(&mut self, from: usize, to: ReplicaId, message: Message) {
        self.check_durable(from, &message);
        *self.sent.entry(message.kind()).or_default() += 1;
        if let Message::DoViewChange(vote) = &message {
            let before = self.nodes[from].votes.entry(vote.view).or_insert_with(|| (**vote).clone());
            assert_eq!(*before, **vote, "V31: one content per view");
        }
        let to = to.0 as usize;
        let lost = self.random.below(1000) < self.loss
            || self.cut.contains(&(from, to))
            || self.dropped.get(message.kind()).copied().unwrap_or(false);
        let copies = if lost { 0 } else { 1 + u64::from(self.random.below(1000) < self.loss / 4) };
        for _ in 0..copies {
            let delay = 50 + self.random.below(self.delay_us);
            let event = Event::Message { from: ReplicaId(from as u8), message: message.clone() };
            self.push(to, delay, Queued::Event(Box::new(event)));
        }
    }

    /// State transfer in one step: the longest checkpoint of anybody.
    fn finish_transfer(&mut self, node: usize) {
        let best = (0..self.members)
            .filter(|other| *other != node && self.nodes[*other].replica.is_some())
            .filter(|other| !self.cut.contains(&(*other, node)))
            .max_by_key(|other| self.nodes[*other].disk.checkpoint.len());
        self.nodes[node].transfer = false;
        let history = best.map(|other| self.nodes[other].disk.checkpoint.clone()).unwrap_or_default();
        if history.len() <= self.nodes[node].history.len() {
            return self.event(node, Event::TransferFailed);
        }
        let last = *history.last().unwrap();
        self.nodes[node].disk.checkpoint = history.clone();
        self.nodes[node].history = history;
        let checkpoint = CheckpointId { op: last.op, identity: last.identity };
        self.event(node, Event::CheckpointInstalled { checkpoint, timestamp: last.timestamp });
    }

    pub fn crash(&mut self, node: usize) {
        self.nodes[node].replica = None;
        self.nodes[node].boot += 1;
        self.nodes[node].transfer = false;
        let lost = self.random.below(self.nodes[node].disk.volatile as u64 + 1) as usize;
        let disk = &mut self.nodes[node].disk;
        // The kernel keeps what was written when only the process dies; here the machine does, unless acknowledged
        // replicated entries would go: then only the process.
        let keep = disk.changes.len() - if self.class == Some(Durability::Persisted) { lost } else { 0 };
        disk.changes.truncate(keep);
        disk.volatile = 0;
        if self.random.below(2) == 0
            && let Some((number, state)) = disk.superblock_under_way.first_key_value()
        {
            disk.superblock = Some((*number, state.clone()));
        }
        disk.superblock_under_way.clear();
    }

    /// One committed entry of a stopped replica rots, one that is whole everywhere else. An entry that is not committed may
    /// have one copy only; when that rots, no view is allowed to decide anything.
    pub fn damage(&mut self, node: usize) {
        let disk = &self.nodes[node].disk;
        let floor = Op(disk.checkpoint.len() as u64).max(disk.trimmed);
        let decided = |op: &Op| self.committed.contains_key(op);
        let rotten = |op: &Op| self.nodes.iter().any(|node| node.disk.damaged.contains(op));
        let ops: Vec<Op> =
            disk.log(false).into_keys().filter(|op| *op > floor && decided(op) && !rotten(op)).collect();
        if !ops.is_empty() {
            let op = ops[self.random.below(ops.len() as u64) as usize];
            self.nodes[node].disk.damaged.insert(op);
        }
    }

    pub fn restart(&mut self, node: usize) {
        let config = self.config(node);
        let disk = &mut self.nodes[node].disk;
        disk.before_boot = disk.changes.len();
        let history = disk.checkpoint.clone();
        let found = disk
            .changes
            .iter()
            .enumerate()
            .map(|(at, change)| Found {
                flush: at as u64 + 1,
                at: at as u64,
                kind: match change {
                    Change::Write(entry) if disk.damaged.contains(&entry.op()) => {
                        FoundKind::BodyDamaged(entry.header)
                    }
                    Change::Write(entry) => FoundKind::Entry(entry.header),
                    Change::Truncate(above) => FoundKind::Truncated { above: *above },
                },
            })
            .filter(|found| match found.kind {
                FoundKind::Entry(header) | FoundKind::BodyDamaged(header) => header.op > disk.trimmed,
                _ => true,
            })
            .collect();
        let (number, state) = disk.superblock.clone().unwrap();
        let applied = CheckpointId {
            op: Op(history.len() as u64),
            identity: history.last().map_or(Identity::root(CLUSTER, LANE), |header| header.identity),
        };
        let flush = disk.changes.len() as u64;
        let scan = LogScan { found, tail: Tail::Whole { flush }, witness: Witness::NotKept };
        let log = recovery::classify(&scan, applied);
        let timestamp_last = history.last().map_or(Micros(0), |header| header.timestamp);
        let state =
            DurableState { checkpoint: applied, commit_max: state.commit_max.max(applied.op), ..state };
        let superblock = disk.superblock_seen.max(number);
        let restored = Restored { superblock, state, log, applied, timestamp_last };
        self.nodes[node].history = history;
        let mut replica = Replica::restore(config, self.now, restored);
        if let Some(mutation) = self.mutation {
            replica.mutate(mutation);
        }
        self.nodes[node].replica = Some(replica);
        self.carry_out(node);
    }

    /// Everything heals: everybody comes up and agrees on everything that anybody was told.
    pub fn heal(&mut self) {
        self.loss = 0;
        self.cut.clear();
        self.dropped.clear();
        for node in 0..self.members {
            self.nodes[node].slow = false;
            if self.nodes[node].replica.is_none() {
                self.restart(node);
            }
        }
        for _ in 0..600 {
            self.run(100_000);
            if self.agrees() {
                break;
            }
        }
        if !self.agrees() {
            for (node, replica) in self.live() {
                println!(
                    "n{node} {:?} {:?} {:?} refusal {:?}",
                    replica.status(),
                    replica.view(),
                    replica.frontier(),
                    replica.refusal()
                );
            }
            panic!("no agreement after everything healed");
        }
        for (op, identity) in &self.acknowledged {
            for node in &self.nodes {
                assert_eq!(node.history[op.0 as usize - 1].identity, *identity, "op {op} was acknowledged");
            }
        }
    }

    fn agrees(&self) -> bool {
        let Some(primary) = self.primary() else { return false };
        let frontier = self.replica(primary).frontier();
        self.live().count() == self.members
            && self.live().all(|(_, replica)| {
                replica.status() == Status::Normal
                    && replica.view() == self.replica(primary).view()
                    && replica.frontier().commit_min == frontier.op_head
                    && !replica.is_repairing()
                    && !replica.is_transferring()
            })
    }

    pub fn slow(&mut self, node: usize, slow: bool) {
        self.nodes[node].slow = slow;
    }
}
