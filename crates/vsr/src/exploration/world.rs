//! Replicas, their disks and the messages between them, as one value that can be copied, stepped and compared.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::rc::Rc;

use laneway_wire::{LaneId, Micros, Nanos, Op, ReplicaId};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use super::Scenario;
use crate::config::{Config, Timing};
use crate::durability::requirement;
use crate::entry::{Durability, Entry, EntryBody};
use crate::event::{DurableState, Effect, Event, LogNumber, ReadRequest, SuperblockNumber};
use crate::header::{ClusterId, Identity};
use crate::message::Message;
use crate::recovery::{Found, FoundKind, LogScan, Tail, Witness, classify};
use crate::replica::{Replica, Restored};
use crate::roster::Roster;
use crate::superblock::Promise;
use crate::vote::{CheckpointId, LogTrust};

const CLUSTER: ClusterId = ClusterId(7);
const LANE: LaneId = LaneId(0);

/// Times with everything that only repeats out of the way: what matters here is which timers run, not how long.
const TIMING: Timing = Timing {
    heartbeat_us: 1_000_000,
    suspect_us: 4_000_000,
    suspect_jitter_us: 0,
    lease_us: 3_200_000,
    resend_us: 100_000_000,
    resend_us_max: 100_000_000,
    vote_resend_us: 100_000_000,
    suspicion_window_us: 1_000_000_000,
    view_change_us: 800_000_000,
    view_change_us_max: 800_000_000,
    get_view_us: 100_000_000,
    get_view_us_max: 100_000_000,
    cold_start_us: 2_000_000,
    abdicate_us: 500_000,
    repair_us: 20_000,
    repair_wait_us: 100_000_000,
    repair_transfer_us: 300_000_000,
};

/// From one replica to another.
type Link = (u8, u8);

/// One step of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The oldest message of a link arrives.
    Deliver(Link, &'static str),
    /// The oldest message of a link is lost.
    Lose(Link, &'static str),
    /// The second message of a link arrives before the oldest.
    Overtake(Link, &'static str),
    /// The oldest message of a link arrives, and will arrive again.
    Repeat(Link, &'static str),
    /// A replica's next timer fires.
    Timeout(usize),
    /// A client asks the primary for something.
    Propose(usize),
    /// What a replica writes is on stable storage.
    Finish(usize),
    /// A replica stops and starts again. So many of its unfinished writes have arrived.
    Crash(usize, usize),
}

#[derive(Clone, Debug)]
enum Pending {
    Change(LogNumber, Change),
    Superblock(SuperblockNumber, Box<DurableState>),
}

#[derive(Clone, Debug)]
enum Change {
    Write(Box<Entry>),
    Truncate(Op),
}

#[derive(Clone)]
struct Node {
    replica: Replica,
    clock: Nanos,
    /// What is on stable storage.
    state: DurableState,
    number: SuperblockNumber,
    log: BTreeMap<Op, Entry>,
    pending: Vec<Pending>,
    /// Applied since the last start.
    applied: Op,
    /// Digest of the above, so that only what changed is computed again.
    digest: Option<u128>,
}

/// A message with its digest.
#[derive(Clone)]
struct Letter {
    message: Rc<Message>,
    digest: u128,
}

/// Everything.
#[derive(Clone)]
pub(super) struct World {
    scenario: Scenario,
    nodes: Vec<Node>,
    /// Messages on their way. One that is there already is not sent again: that is what repetitions are for.
    links: BTreeMap<Link, VecDeque<Letter>>,
    /// What somebody applied, and so is committed for ever.
    committed: BTreeMap<Op, Identity>,
    /// The only vote of a member for a view.
    votes: BTreeMap<(usize, u32), u128>,
    seen: BTreeSet<&'static str>,
}

impl World {
    pub(super) fn new(scenario: Scenario) -> World {
        let nodes = (0..scenario.members).map(|place| Node::fresh(scenario, place)).collect();
        let mut world = World {
            scenario,
            nodes,
            links: BTreeMap::new(),
            committed: BTreeMap::new(),
            votes: BTreeMap::new(),
            seen: BTreeSet::new(),
        };
        for place in 0..world.nodes.len() {
            world.settle(place).expect("a start breaks nothing");
        }
        world
    }

    pub(super) fn take_seen(&mut self) -> BTreeSet<&'static str> {
        std::mem::take(&mut self.seen)
    }

    /// Two worlds with one digest go on alike.
    pub(super) fn digest(&mut self) -> u128 {
        let mut hash = Xxh3Default::new();
        for node in &mut self.nodes {
            let computed = node.digest.unwrap_or_else(|| node.compute_digest());
            node.digest = Some(computed);
            hash.update(&computed.to_le_bytes());
        }
        for ((from, to), letters) in &self.links {
            hash.update(&[*from, *to, letters.len() as u8]);
            for letter in letters {
                hash.update(&letter.digest.to_le_bytes());
            }
        }
        let Scenario { proposals, heartbeats, timeouts, crashes, losses, overtakings, repetitions, .. } =
            self.scenario;
        hash.update(&[proposals, heartbeats, timeouts, crashes, losses, overtakings, repetitions]);
        for (op, identity) in &self.committed {
            hash.update(&op.0.to_le_bytes());
            hash.update(&identity.0.to_le_bytes());
        }
        for ((place, view), vote) in &self.votes {
            hash.update(&[*place as u8]);
            hash.update(&view.to_le_bytes());
            hash.update(&vote.to_le_bytes());
        }
        hash.digest128()
    }

    /// Everything that may happen next.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (link, letters) in &self.links {
            let Some(oldest) = letters.front().map(|letter| letter.message.kind()) else { continue };
            actions.push(Action::Deliver(*link, oldest));
            if self.scenario.losses > 0 {
                actions.push(Action::Lose(*link, oldest));
            }
            if self.scenario.overtakings > 0
                && let Some(second) = letters.get(1)
            {
                actions.push(Action::Overtake(*link, second.message.kind()));
            }
            if self.scenario.repetitions > 0 {
                actions.push(Action::Repeat(*link, oldest));
            }
        }
        for (place, node) in self.nodes.iter().enumerate() {
            let budget =
                if node.replica.is_primary() { self.scenario.heartbeats } else { self.scenario.timeouts };
            if budget > 0 && node.replica.poll_timeout() != Nanos::NEVER {
                actions.push(Action::Timeout(place));
            }
            if self.scenario.proposals > 0 && node.replica.admit(1).is_ok() {
                actions.push(Action::Propose(place));
            }
            if !node.pending.is_empty() && self.scenario.slow_disk {
                actions.push(Action::Finish(place));
            }
            let only = self.scenario.crashes_only;
            if self.scenario.crashes > 0 && (only == place || only >= self.nodes.len()) {
                actions.extend((0..=node.pending.len()).map(|kept| Action::Crash(place, kept)));
            }
        }
        actions
    }

    /// Does it. What must not happen is an error.
    pub(super) fn perform(&mut self, action: &Action) -> Result<(), String> {
        // With a fast disk the writes of a step finish before the next one, unless that is a crash.
        if !self.scenario.slow_disk && !matches!(action, Action::Crash(..)) {
            for place in 0..self.nodes.len() {
                self.finish(place)?;
            }
        }
        match *action {
            Action::Deliver(link, _) => {
                let letter = self.link(link).pop_front();
                letter.map_or(Ok(()), |letter| self.deliver(link, &letter))
            }
            Action::Lose(link, _) => {
                self.scenario.losses -= 1;
                self.seen.insert("message lost");
                self.link(link).pop_front();
                Ok(())
            }
            Action::Overtake(link, _) => {
                self.scenario.overtakings -= 1;
                self.seen.insert("message overtaken");
                let letter = self.link(link).remove(1);
                letter.map_or(Ok(()), |letter| self.deliver(link, &letter))
            }
            Action::Repeat(link, _) => {
                self.scenario.repetitions -= 1;
                self.seen.insert("message repeated");
                let letter = self.link(link).front().cloned();
                letter.map_or(Ok(()), |letter| self.deliver(link, &letter))
            }
            Action::Timeout(place) => {
                let node = &mut self.nodes[place];
                match node.replica.is_primary() {
                    true => self.scenario.heartbeats = self.scenario.heartbeats.saturating_sub(1),
                    false => self.scenario.timeouts = self.scenario.timeouts.saturating_sub(1),
                }
                let due = node.replica.poll_timeout();
                if due == Nanos::NEVER {
                    return Ok(());
                }
                node.clock = node.clock.max(due);
                self.tell(place, Event::Timeout)
            }
            Action::Propose(place) => {
                self.scenario.proposals -= 1;
                let node = &mut self.nodes[place];
                let body = EntryBody::operation(vec![self.scenario.proposals, place as u8]);
                if node.replica.propose(Micros(1), Durability::Persisted, body).is_err() {
                    return Ok(());
                }
                self.settle(place)
            }
            Action::Finish(place) => self.finish(place),
            Action::Crash(place, kept) => {
                self.scenario.crashes -= 1;
                self.seen.insert("crash");
                if self.nodes[place].pending.len() > kept {
                    self.seen.insert("crash with unfinished writes");
                }
                self.nodes[place].restart(self.scenario, place, kept);
                self.settle(place)
            }
        }
    }

    fn link(&mut self, link: Link) -> &mut VecDeque<Letter> {
        self.links.entry(link).or_default()
    }

    fn deliver(&mut self, (from, to): Link, letter: &Letter) -> Result<(), String> {
        let message = (*letter.message).clone();
        self.tell(to.into(), Event::Message { from: ReplicaId(from), message })
    }

    fn tell(&mut self, place: usize, event: Event) -> Result<(), String> {
        let node = &mut self.nodes[place];
        node.replica.handle(node.clock, event);
        self.settle(place)
    }

    fn finish(&mut self, place: usize) -> Result<(), String> {
        while !self.nodes[place].pending.is_empty() {
            let pending = self.nodes[place].pending.remove(0);
            match self.nodes[place].arrive(pending) {
                Event::Written(number) => {
                    self.tell(place, Event::Written(number))?;
                    self.tell(place, Event::Synced(number))?;
                }
                event => self.tell(place, event)?,
            }
        }
        Ok(())
    }

    /// Carries out what a replica asks for.
    fn settle(&mut self, place: usize) -> Result<(), String> {
        while let Some(effect) = self.nodes[place].replica.poll_effect() {
            match effect {
                Effect::Write { number, entry } => {
                    let change = Change::Write(Box::new(entry));
                    self.nodes[place].pending.push(Pending::Change(number, change));
                }
                Effect::Truncate { number, above } => {
                    self.seen.insert("truncation");
                    self.nodes[place].pending.push(Pending::Change(number, Change::Truncate(above)));
                }
                Effect::Apply(entry) => self.apply(place, &entry)?,
                Effect::Send { to, message, .. } => self.send(place, to, message)?,
                Effect::WriteSuperblock { number, state } => self.save(place, number, state)?,
                Effect::Read(request) => self.read(place, request),
                Effect::ViewStarted { view, .. } => {
                    self.seen.insert(if view.0 == 0 { "first view" } else { "later view" });
                }
                Effect::Halt(halt) => return Err(format!("replica {place} halted: {halt}")),
                Effect::Trim { .. }
                | Effect::Stopped { .. }
                | Effect::ServeTransfer { .. }
                | Effect::DeliverTransfer { .. }
                | Effect::StartTransfer { .. }
                | Effect::CancelTransfer => {}
            }
        }
        self.nodes[place].digest = None;
        Ok(())
    }

    /// One history: whatever anybody applies at an op, everybody does, for ever.
    fn apply(&mut self, place: usize, entry: &Entry) -> Result<(), String> {
        let (op, identity) = (entry.header.op, entry.header.identity);
        let node = &mut self.nodes[place];
        if op != node.applied.next() {
            return Err(format!("replica {place} applies op {op} after op {}", node.applied));
        }
        node.applied = op;
        match self.committed.insert(op, identity) {
            Some(known) if known != identity => {
                return Err(format!(
                    "op {op} was committed as {known} and replica {place} applies {identity}"
                ));
            }
            Some(_) => {}
            None => {
                self.seen.insert("commit");
                // What counts as committed must be held by a quorum, whatever crashes now.
                self.check_quorum(op, identity)?;
            }
        }
        let node = &mut self.nodes[place];
        node.replica.handle(node.clock, Event::Applied(op));
        Ok(())
    }

    fn check_quorum(&self, op: Op, identity: Identity) -> Result<(), String> {
        let holds = |node: &&Node| node.log.get(&op).is_some_and(|entry| entry.header.identity == identity);
        let holders = self.nodes.iter().filter(holds).count();
        let quorum = config(self.scenario, 0).roster.quorums().replication();
        match holders >= quorum {
            true => Ok(()),
            false => Err(format!("op {op} commits with {holders} of {quorum} copies on stable storage")),
        }
    }

    fn send(&mut self, place: usize, to: ReplicaId, message: Message) -> Result<(), String> {
        self.nodes[place].check_durable(&message).map_err(|what| format!("replica {place}: {what}"))?;
        if let Message::DoViewChange(vote) = &message {
            self.seen.insert("vote");
            let name = digest_of(vote);
            if *self.votes.entry((place, vote.view.0)).or_insert(name) != name {
                return Err(format!("replica {place} votes twice for view {:?}", vote.view));
            }
        }
        if matches!(message, Message::RepairPrepare { .. }) {
            self.seen.insert("repair");
        }
        let letter = Letter { digest: digest_of(&message), message: Rc::new(message) };
        let link = self.link((place as u8, to.0));
        if link.iter().all(|other| other.digest != letter.digest) {
            link.push_back(letter);
        }
        Ok(())
    }

    fn save(
        &mut self,
        place: usize,
        number: SuperblockNumber,
        state: Box<DurableState>,
    ) -> Result<(), String> {
        let node = &mut self.nodes[place];
        let last = node.pending.iter().rev().find_map(|pending| match pending {
            Pending::Superblock(_, state) => Some(&**state),
            Pending::Change(..) => None,
        });
        let before = last.unwrap_or(&node.state);
        let forward = before.view <= state.view
            && before.log_view <= state.log_view
            && before.commit_max <= state.commit_max
            && before.checkpoint.op <= state.checkpoint.op
            && state.log_view <= state.view;
        if !forward {
            return Err(format!("replica {place} goes back from {before:?} to {state:?}"));
        }
        node.pending.push(Pending::Superblock(number, state));
        Ok(())
    }

    fn read(&mut self, place: usize, request: ReadRequest) {
        let node = &mut self.nodes[place];
        // What is on its way to the disk can be read already.
        let mut newest = node.log.clone();
        for pending in &node.pending {
            if let Pending::Change(_, change) = pending {
                change.apply(&mut newest);
            }
        }
        let named = |entry: &Entry| request.identity.0 == 0 || entry.header.identity == request.identity;
        let entry = newest.remove(&request.op).filter(named);
        node.replica.handle(node.clock, Event::Read { request, entry });
    }
}

impl Change {
    fn apply(&self, log: &mut BTreeMap<Op, Entry>) {
        match self {
            Change::Write(entry) => {
                log.insert(entry.header.op, (**entry).clone());
            }
            Change::Truncate(above) => {
                log.split_off(&above.next());
            }
        }
    }
}

fn config(scenario: Scenario, place: usize) -> Config {
    let roster = Roster::initial(LANE, scenario.members).expect("a scenario has members");
    Config { cluster: CLUSTER, lane: LANE, replica: ReplicaId(place as u8), roster, timing: TIMING, seed: 0 }
}

fn root() -> CheckpointId {
    CheckpointId { op: Op(0), identity: Identity::root(CLUSTER, LANE) }
}

impl Node {
    fn fresh(scenario: Scenario, place: usize) -> Node {
        let config = config(scenario, place);
        let state = DurableState {
            view: Default::default(),
            log_view: Default::default(),
            commit_max: Op(0),
            checkpoint: root(),
            promise: Promise::None,
            trust: LogTrust::Trusted,
            syncing: false,
        };
        let replica = Replica::fresh(config, Nanos(0));
        Node::start(scenario, replica, Nanos(0), state, SuperblockNumber(1), BTreeMap::new())
    }

    fn start(
        scenario: Scenario,
        mut replica: Replica,
        clock: Nanos,
        state: DurableState,
        number: SuperblockNumber,
        log: BTreeMap<Op, Entry>,
    ) -> Node {
        if let Some(mutation) = scenario.mutation {
            replica.mutate(mutation);
        }
        Node { replica, clock, state, number, log, pending: Vec::new(), applied: Op(0), digest: None }
    }

    /// The process is gone, and starts again with what the disk has.
    fn restart(&mut self, scenario: Scenario, place: usize, kept: usize) {
        for pending in std::mem::take(&mut self.pending).into_iter().take(kept) {
            self.arrive(pending);
        }
        let found = self.log.values().enumerate().map(|(flush, entry)| Found {
            flush: flush as u64 + 1,
            at: entry.header.op.0,
            kind: FoundKind::Entry(entry.header),
        });
        let flush = self.log.len() as u64;
        let scan = LogScan {
            found: found.collect(),
            tail: Tail::Whole { flush },
            witness: Witness::Attests { flush },
        };
        let restored = Restored {
            superblock: self.number,
            state: self.state.clone(),
            log: classify(&scan, root()),
            applied: root(),
            timestamp_last: Micros(0),
        };
        let replica = Replica::restore(config(scenario, place), self.clock, restored);
        let log = std::mem::take(&mut self.log);
        *self = Node::start(scenario, replica, self.clock, self.state.clone(), self.number, log);
    }

    fn arrive(&mut self, pending: Pending) -> Event {
        match pending {
            Pending::Change(number, change) => {
                change.apply(&mut self.log);
                Event::Written(number)
            }
            Pending::Superblock(number, state) => {
                self.state = *state;
                self.number = number;
                Event::SuperblockWritten(number)
            }
        }
    }

    /// What the table asks of a message, against the disk.
    fn check_durable(&self, message: &Message) -> Result<(), String> {
        let asked = requirement(message);
        let vote_is_kept = match (message, &self.state.promise) {
            (Message::DoViewChange(vote), Promise::Vote(kept)) => **vote == *kept,
            _ => false,
        };
        let held = |op: Op| self.log.contains_key(&op) || op <= self.state.checkpoint.op;
        let logged = |through: Op| (1..=through.0).all(|op| held(Op(op)));
        let satisfied = asked.view.is_none_or(|view| self.state.view >= view)
            && asked.log_view.is_none_or(|view| self.state.log_view >= view)
            && (!asked.vote || vote_is_kept)
            && logged(asked.written)
            && logged(asked.synced);
        match satisfied {
            true => Ok(()),
            false => {
                Err(format!("{} leaves before what it promises is durable: {message:?}", message.kind()))
            }
        }
    }

    fn compute_digest(&self) -> u128 {
        digest_of(&(&self.replica, self.clock, &self.state, &self.log, &self.pending, self.applied))
    }
}

/// Digest of everything that the debug form shows, which is everything.
fn digest_of(value: &impl std::fmt::Debug) -> u128 {
    thread_local! {
        static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
    }
    TEXT.with_borrow_mut(|text| {
        text.clear();
        write!(text, "{value:?}").expect("a string takes any text");
        xxh3_128(text.as_bytes())
    })
}
