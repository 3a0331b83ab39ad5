//! One run: nodes, clients and the environment, from the start to the end.
//!
//! A run has two phases. While faults happen, nothing is asked of progress, only that no node and no client ever sees
//! something wrong. Then everything is healed, and what clients wait for must be answered and all replicas must hold the
//! same, within a bound.

use crate::client::Client;
use crate::clock::NodeClock;
use crate::coverage::Mark;
use crate::disk::Ending;
use crate::env::{Env, Happening};
use crate::faults::FaultKind;
use crate::hold;
use crate::network::{Cut, Network};
use crate::node::{End, Node};
use crate::options::{EVENT_KINDS, EventKind, Options, Plan};
use crate::oracle::{Oracle, Violation};
use crate::queue::{MILLISECOND, Queue, SECOND, Time};
use crate::random::Streams;
use crate::say;
use crate::storage::{NodeStorage, SUPERBLOCK_COPIES};
use crate::totals::Totals;
use crate::trace::Trace;

/// Most things that happen in one run: a run that does not end is a failure, too.
const STEPS_MAX: u64 = 20_000_000;

/// A run.
#[derive(Debug)]
pub struct World {
    env: Env,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    healed_at: Option<Time>,
    /// Nodes that stay down when faults end.
    left_dead: Vec<usize>,
    last_progress: Time,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong, if anything.
    pub violation: Option<Violation>,
    /// The number that stands for the whole trace.
    pub trace_hash: u64,
    /// Decisions for faults that were taken.
    pub decisions: u32,
    /// What was done.
    pub totals: Totals,
    /// The lines of the trace that were kept.
    pub lines: Vec<String>,
    /// What the run was.
    pub plan: Plan,
}

impl World {
    /// A run that has not started.
    pub fn new(options: &Options) -> Self {
        let plan = Plan::draw(options);
        let mut streams = Streams::new(options.seed);
        let atlas =
            crate::atlas::Atlas::new(plan.nodes, plan.lose_ends(), plan.beyond_model, &mut streams.storage);
        let mut env = Env {
            network: Network::new(plan.nodes, plan.network),
            queue: Queue::default(),
            faults: crate::faults::Faults::new(options.mask.clone()),
            atlas,
            oracle: Oracle::new(plan.lanes),
            trace: Trace::new(options.verbosity),
            coverage: Default::default(),
            totals: Totals::default(),
            is_stopped: false,
            mutation: options.mutation,
            plan,
            streams,
        };
        let nodes = (0..env.plan.nodes)
            .map(|id| {
                let disk = laneway_vsr::DiskId(env.streams.storage.bits_u128());
                let storage = NodeStorage::new(disk, env.plan.lanes);
                let clock = NodeClock::draw(&env.plan.clocks, &mut env.streams.clocks);
                let mut node = Node::new(id, storage, clock);
                node.format();
                node
            })
            .collect();
        let requests = env.plan.requests;
        let clients = (0..env.plan.clients).map(|number| Client::new(number, requests, &mut env)).collect();
        Self { env, nodes, clients, healed_at: None, left_dead: Vec::new(), last_progress: 0 }
    }

    /// What came of the run.
    pub fn into_outcome(mut self, violation: Option<Violation>) -> Outcome {
        if let Some(violation) = &violation {
            say!(self.env.trace, self.env.queue.now(), "FAILED: {violation}");
        }
        self.env.totals.ran(self.env.queue.now());
        self.env.totals.by_nodes[self.env.plan.nodes] += 1;
        self.env.totals.beyond_model += u64::from(self.env.plan.beyond_model);
        self.env.totals.steps = self.env.trace.steps();
        let counts = self.env.faults.counts();
        self.env.totals.faults.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(*count));
        self.env.totals.coverage = self.env.coverage;
        Outcome {
            violation,
            trace_hash: self.env.trace.hash(),
            decisions: self.env.faults.decisions(),
            totals: self.env.totals,
            lines: self.env.trace.take_lines(),
            plan: self.env.plan,
        }
    }

    /// Runs to the end.
    ///
    /// Errors: the first thing that was wrong.
    pub fn run_to_end(&mut self) -> Result<(), Violation> {
        self.begin()?;
        while let Some((at, happening)) = self.env.queue.pop() {
            hold!(self.env.trace.steps() < STEPS_MAX, "the run does not end");
            self.env.trace.step(at, fingerprint(&happening));
            self.happen(happening)?;
            if self.env.is_stopped {
                return Ok(());
            }
            if let Some(healed_at) = self.healed_at {
                if self.is_settled() {
                    return self.check_end();
                }
                if at > healed_at + self.env.plan.heal_within {
                    return self.give_up();
                }
            }
        }
        hold!(self.healed_at.is_some() && self.is_settled(), "nothing happens any more");
        self.check_end()
    }

    fn begin(&mut self) -> Result<(), Violation> {
        for node in 0..self.nodes.len() {
            let at = self.env.streams.scheduling.below(20 * MILLISECOND);
            self.env.plan_at(at, Happening::Start { node });
        }
        for client in 0..self.clients.len() {
            for _ in 0..2 {
                let at = self.env.streams.workload.below(50 * MILLISECOND);
                self.env.plan_at(at, Happening::Think { client });
            }
        }
        let fault_end = self.env.plan.fault_end;
        self.env.plan_at(fault_end, Happening::Heal);
        self.plan_fault();
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        let Some(happening) = self.hold_back(happening) else { return Ok(()) };
        match happening {
            Happening::Message(packet) => {
                let (from, to, lane) = (packet.from, packet.to, packet.lane);
                let arrives = self.env.network.arrives(from, to, packet.connection);
                if !arrives || packet.garbled || !self.nodes[to].is_up() {
                    return Ok(());
                }
                let _ = lane;
                self.nodes[to].receive(&mut self.env, *packet)?;
                self.after(to)
            }
            Happening::Io { node, boot, lane, io } => {
                if self.nodes[node].boot != boot || !self.nodes[node].is_up() {
                    return Ok(());
                }
                self.nodes[node].io_done(&mut self.env, lane, *io)?;
                self.after(node)
            }
            Happening::Timer { node, boot, lane } => {
                if self.nodes[node].boot != boot || !self.nodes[node].is_up() {
                    return Ok(());
                }
                self.nodes[node].timer(&mut self.env, lane)?;
                self.after(node)?;
                self.admit_disks(node)
            }
            Happening::Request { node, request } => {
                if !self.nodes[node].is_up() {
                    return Ok(());
                }
                self.nodes[node].request(&mut self.env, *request)?;
                self.after(node)
            }
            Happening::Answer { client, exchange, node, answer } => {
                say!(
                    self.env.trace,
                    self.env.queue.now(),
                    "client {client} is answered by node {node}: {} {} (exchange {exchange})",
                    answer.kind(),
                    if let crate::contract::Answer::Refused(status) = &*answer { status.number() } else { 0 }
                );
                self.last_progress = self.env.queue.now();
                self.clients[client].answered(&mut self.env, exchange, node, *answer)
            }
            Happening::Resend { client, exchange, attempt } => {
                self.clients[client].resend(&mut self.env, exchange, attempt);
                Ok(())
            }
            Happening::Think { client } => {
                self.clients[client].think(&mut self.env);
                Ok(())
            }
            Happening::Fault => {
                self.fault()?;
                self.plan_fault();
                Ok(())
            }
            Happening::Start { node } => self.start(node),
            Happening::Heal => self.heal(),
        }
    }

    /// Puts off what a node cannot do now, because it stands still or because one of its shards is slow.
    fn hold_back(&mut self, happening: Happening) -> Option<Happening> {
        let (node, lane) = match &happening {
            Happening::Message(packet) => (packet.to, Some(packet.lane)),
            Happening::Io { node, lane, .. } | Happening::Timer { node, lane, .. } => (*node, Some(*lane)),
            Happening::Request { node, request } => (*node, Some(request.ask.lane().0 as usize)),
            _ => return Some(happening),
        };
        let now = self.env.now();
        let node = &mut self.nodes[node];
        if !node.is_up() {
            return Some(happening);
        }
        let mut until = node.paused_until;
        if let (Some(lane), Some((slow, slow_until))) = (lane, node.slow)
            && lane == slow
            && now < slow_until
        {
            until = until.max(node.busy_until[lane]);
            if until <= now {
                // Each turn of a slow shard takes this long.
                node.busy_until[lane] = now + 2 * MILLISECOND;
            }
        }
        if until <= now {
            return Some(happening);
        }
        // Everything that is put off keeps its order: it is planned in the order in which it is looked at.
        self.env.queue.push(until, u32::MAX, happening);
        None
    }

    /// A process may have come to its end while it did something.
    fn after(&mut self, node: usize) -> Result<(), Violation> {
        match self.nodes[node].take_ending() {
            None => Ok(()),
            Some(End::AtEffect) => {
                self.crash(node, Ending::Killed);
                Ok(())
            }
            Some(End::Restart) => self.start(node),
        }
    }

    fn crash(&mut self, node: usize, ending: Ending) {
        if !self.nodes[node].is_up() {
            return;
        }
        self.nodes[node].stop(&mut self.env, ending);
        if self.nodes.iter().all(|node| !node.is_up()) {
            self.env.mark(Mark::AllCrashed);
        }
        let down = match self.env.streams.faults.below(4) {
            0 => self.env.streams.faults.below(20 * MILLISECOND),
            1 | 2 => self.env.streams.faults.below(SECOND),
            _ => self.env.streams.faults.below(4 * SECOND),
        };
        let at = self.env.now() + down;
        self.env.plan_at(at, Happening::Start { node });
    }

    fn start(&mut self, node: usize) -> Result<(), Violation> {
        if self.left_dead.contains(&node) {
            return Ok(());
        }
        if self.nodes[node].is_up() {
            // Only a disk that was full asks for it.
            self.nodes[node].stop(&mut self.env, Ending::Killed);
        }
        self.nodes[node].start(&mut self.env)?;
        self.tell_admissions(node)?;
        self.after(node)
    }

    /// A node that starts learns which disks count, and the others learn about its own.
    fn tell_admissions(&mut self, node: usize) -> Result<(), Violation> {
        let amnesiacs: Vec<usize> =
            self.nodes.iter().filter(|node| node.is_amnesiac).map(|node| node.id).collect();
        for member in amnesiacs {
            self.nodes[node].admit(&mut self.env, member, false)?;
            if member == node {
                for other in (0..self.nodes.len()).filter(|other| *other != node) {
                    if self.nodes[other].is_up() {
                        self.nodes[other].admit(&mut self.env, member, false)?;
                        self.after(other)?;
                    }
                }
            }
        }
        Ok(())
    }

    // The environment.

    fn plan_fault(&mut self) {
        if self.env.plan.faults.weights.iter().all(|weight| *weight == 0) {
            return;
        }
        let every = self.env.plan.faults.every;
        let at = self.env.now() + self.env.streams.faults.exponential(every);
        if at < self.env.plan.fault_end {
            self.env.plan_at(at, Happening::Fault);
        }
    }

    fn fault(&mut self) -> Result<(), Violation> {
        let weights = self.env.plan.faults.weights;
        let sum: u32 = weights.iter().sum();
        let mut draw = self.env.streams.faults.below(u64::from(sum)) as u32;
        let mut kind = EventKind::ALL[EVENT_KINDS - 1];
        for candidate in EventKind::ALL {
            let weight = weights[candidate as usize];
            if draw < weight {
                kind = candidate;
                break;
            }
            draw -= weight;
        }
        let node = self.env.streams.faults.index(self.nodes.len());
        let detail = self.env.streams.faults.bits();
        self.event(kind, node, detail)
    }

    fn event(&mut self, kind: EventKind, node: usize, detail: u64) -> Result<(), Violation> {
        let now = self.env.now();
        let nodes = self.nodes.len();
        say!(self.env.trace, now, "event: {kind:?} at node {node}");
        let mut random = crate::random::Random::new(detail, 8);
        match kind {
            EventKind::Crash => {
                if self.env.fault(FaultKind::Crash, true) {
                    self.crash(node, Ending::Killed);
                }
            }
            EventKind::CrashAll => {
                if self.env.fault(FaultKind::Crash, true) {
                    (0..nodes).for_each(|node| self.crash(node, Ending::Killed));
                }
            }
            EventKind::PowerLoss => {
                let may = self.env.atlas.may_lose_all(node);
                if self.env.fault(FaultKind::PowerLoss, may) {
                    self.crash(node, Ending::PowerLost);
                    // A flush that lied takes its proof with it. Only what the others remember shows it.
                    if self.env.plan.faults.lost_sync.0 > 0 && self.nodes[node].is_rolled_back() {
                        self.env.mark(Mark::RolledBackFound);
                        say!(self.env.trace, now, "node {node}: it has lost what it had promised");
                        self.lose_directory(node, &mut random);
                    }
                }
            }
            EventKind::Cut => {
                if self.env.fault(FaultKind::Partition, nodes > 1) {
                    let cut = *random.pick(&Cut::ALL);
                    say!(self.env.trace, now, "cut: {cut:?}");
                    self.env.network.cut(cut, &mut random);
                    self.env.mark(Mark::Partitioned);
                }
            }
            EventKind::Join => self.env.network.join(),
            EventKind::Clog => {
                let other = (node + 1 + random.index(nodes.max(2) - 1)) % nodes;
                let until = now + random.below(3 * SECOND);
                if other != node && self.env.fault(FaultKind::Clog, true) {
                    self.env.network.clog(node, other, until);
                }
            }
            EventKind::Pause => {
                let until = now + random.exponential(SECOND / 2);
                if self.env.fault(FaultKind::Pause, true) {
                    self.nodes[node].paused_until = until;
                    self.env.mark(Mark::Paused);
                }
            }
            EventKind::Slow => {
                let lane = random.index(self.env.plan.lanes);
                let until = now + random.below(2 * SECOND);
                if self.env.fault(FaultKind::SlowShard, true) {
                    self.nodes[node].slow = Some((lane, until));
                    self.env.mark(Mark::SlowShard);
                }
            }
            EventKind::Corrupt => self.corrupt(node, &mut random),
            EventKind::CorruptSuperblock => {
                let lane = random.index(self.env.plan.lanes);
                let copy = random.below(SUPERBLOCK_COPIES);
                let cells = &mut self.nodes[node].storage.lanes[lane].superblock;
                let others_are_good = (0..SUPERBLOCK_COPIES)
                    .filter(|other| *other != copy)
                    .all(|other| cells.read(other).is_some_and(|cell| cell.good().is_some()));
                // One damaged copy and a crash in the middle of a write are survived, damage in the middle of a write is not.
                let is_idle = !self.nodes[node].is_writing_superblock(lane);
                let cells = &mut self.nodes[node].storage.lanes[lane].superblock;
                if self.env.fault(FaultKind::Corrupt, others_are_good && is_idle) {
                    cells.corrupt(copy);
                }
            }
            EventKind::Stuck => {
                let until = now + random.below(5 * SECOND);
                if self.env.fault(FaultKind::StuckDisk, true) {
                    self.nodes[node].disk_stuck_until = until;
                }
            }
            EventKind::ClockStep => {
                let by = random.between(0, 20_000_000) as i64 - 10_000_000;
                if self.env.fault(FaultKind::ClockStep, true) {
                    self.nodes[node].clock.step(by);
                    self.env.mark(Mark::ClockStepped);
                }
            }
            EventKind::Wipe => {
                let may = self.may_lose_directory(node);
                if self.env.fault(FaultKind::Wipe, may) {
                    self.crash(node, Ending::Killed);
                    self.lose_directory(node, &mut random);
                }
            }
            EventKind::Rollback => {
                let may = self.may_lose_directory(node);
                if !self.env.fault(FaultKind::Rollback, may) {
                    return Ok(());
                }
                match self.nodes[node].saved.take() {
                    // A copy is made first, and put back by a later event.
                    None => self.nodes[node].saved = Some(Box::new(self.nodes[node].storage.clone())),
                    Some(copy) => {
                        self.crash(node, Ending::PowerLost);
                        self.nodes[node].storage = *copy;
                        for lane in &mut self.nodes[node].storage.lanes {
                            lane.end(Ending::PowerLost, &mut random);
                        }
                        if self.nodes[node].is_rolled_back() {
                            // The first exchange with a peer shows it: from then on it is a lost directory.
                            self.env.mark(Mark::RolledBackFound);
                            say!(self.env.trace, now, "node {node}: an older copy of its directory");
                            self.lose_directory(node, &mut random);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a node may lose its directory now: the others must be enough without it.
    fn may_lose_directory(&self, node: usize) -> bool {
        self.nodes.len() > 2 && self.env.atlas.may_lose_all(node) && !self.env.plan.beyond_model
    }

    fn lose_directory(&mut self, node: usize, random: &mut crate::random::Random) {
        let lost = &mut self.nodes[node];
        let lanes = lost.storage.lanes.len();
        lost.storage = NodeStorage::new(laneway_vsr::DiskId(random.bits_u128()), lanes);
        lost.saved = None;
        lost.is_amnesiac = true;
        lost.remembered.fill(Default::default());
    }

    /// Nodes whose directory was lost count again once the metadata lane has admitted their disk, which it does as soon
    /// as they have caught up.
    fn admit_disks(&mut self, node: usize) -> Result<(), Violation> {
        if !self.nodes[node].is_amnesiac || !self.nodes[node].has_caught_up() {
            return Ok(());
        }
        say!(self.env.trace, self.env.queue.now(), "the disk of node {node} is admitted");
        self.env.mark(Mark::Readmitted);
        self.nodes[node].is_amnesiac = false;
        for other in 0..self.nodes.len() {
            if self.nodes[other].is_up() {
                self.nodes[other].admit(&mut self.env, node, true)?;
                self.after(other)?;
            }
        }
        Ok(())
    }

    /// Damages one record of one log at rest.
    fn corrupt(&mut self, node: usize, random: &mut crate::random::Random) {
        let lane = random.index(self.env.plan.lanes);
        let storage = &mut self.nodes[node].storage.lanes[lane];
        let last = storage.last_flush();
        if last == 0 {
            return;
        }
        let flush = 1 + random.below(last);
        let Some((low, high)) = storage.ops_of(flush) else { return };
        let interior = storage.is_interior(flush) || self.env.atlas.reaches_the_end();
        let allowed = interior && (low.0..=high.0).all(|op| self.env.atlas.may_damage(node, lane as u32, op));
        let body_only = random.flip();
        if self.env.faults.decide(FaultKind::Corrupt, allowed) {
            storage.corrupt(flush, low, body_only);
            say!(
                self.env.trace,
                self.env.queue.now(),
                "node {node} lane {lane}: ops {low} to {high} are damaged"
            );
        }
    }

    // The end.

    fn heal(&mut self) -> Result<(), Violation> {
        let now = self.env.now();
        say!(self.env.trace, now, "faults are over");
        self.env.faults.heal();
        self.env.network.heal(now);
        self.healed_at = Some(now);
        let dead = self.env.plan.left_dead;
        for _ in 0..dead {
            let node = self.env.streams.faults.index(self.nodes.len());
            if !self.left_dead.contains(&node) {
                self.left_dead.push(node);
                if self.nodes[node].is_up() {
                    self.nodes[node].stop(&mut self.env, Ending::Killed);
                }
            }
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].paused_until = now;
            self.nodes[node].slow = None;
            self.nodes[node].disk_stuck_until = now;
            self.nodes[node].clock.set_right();
            if !self.nodes[node].is_up() {
                self.start(node)?;
            }
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.clients.iter().all(Client::is_done) && self.live().all(|node| self.has_all(node))
    }

    fn live(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !self.left_dead.contains(&node.id))
    }

    /// Whether a node has applied everything, on every lane.
    fn has_all(&self, node: &Node) -> bool {
        node.is_up()
            && node
                .lanes
                .iter()
                .enumerate()
                .all(|(lane, held)| held.machine.applied() == self.env.oracle.head(lane))
    }

    fn check_end(&mut self) -> Result<(), Violation> {
        for lane in 0..self.env.plan.lanes {
            let mut images: Vec<(usize, u64)> = Vec::new();
            for node in self.nodes.iter_mut().filter(|node| node.is_up()) {
                let id = node.id;
                images.push((id, node.lanes[lane].machine.image().hash()));
            }
            let same = images.windows(2).all(|pair| pair[0].1 == pair[1].1);
            hold!(same, "the replicas of lane {lane} hold different states at the end: {images:x?}");
            let (head, acknowledged) = (self.env.oracle.head(lane), self.env.oracle.acknowledged(lane));
            hold!(
                head >= acknowledged,
                "op {acknowledged} of lane {lane} was acknowledged, the log ends at {head}"
            );
        }
        Ok(())
    }

    /// Faults have been over for long, and something is still not done.
    fn give_up(&mut self) -> Result<(), Violation> {
        if self.env.plan.beyond_model {
            return Ok(());
        }
        let waiting: Vec<String> =
            self.clients.iter().filter(|client| !client.is_done()).map(Client::describe).collect();
        let mut behind = Vec::new();
        for node in self.live() {
            for (lane, held) in node.lanes.iter().enumerate() {
                let head = self.env.oracle.head(lane);
                if held.machine.applied() != head {
                    behind.push(format!(
                        "node {} lane {lane} applied {} of {head} ({:?}, view {})",
                        node.id,
                        held.machine.applied(),
                        held.replica.status(),
                        held.replica.view().0
                    ));
                }
            }
        }
        Err(Violation(format!(
            "no progress after the last fault: {}{}{}",
            waiting.join("; "),
            if waiting.is_empty() || behind.is_empty() { "" } else { "; " },
            behind.join("; ")
        )))
    }
}

/// A happening as a few numbers, for the hash of the trace.
fn fingerprint(happening: &Happening) -> [u64; 4] {
    match happening {
        Happening::Message(packet) => [1, packet.from as u64, packet.to as u64, packet.lane as u64],
        Happening::Io { node, lane, boot, .. } => [2, *node as u64, *lane as u64, u64::from(*boot)],
        Happening::Timer { node, lane, boot } => [3, *node as u64, *lane as u64, u64::from(*boot)],
        Happening::Request { node, request } => [4, *node as u64, request.client as u64, request.exchange],
        Happening::Answer { client, exchange, node, .. } => [5, *client as u64, *exchange, *node as u64],
        Happening::Resend { client, exchange, attempt } => {
            [6, *client as u64, *exchange, u64::from(*attempt)]
        }
        Happening::Think { client } => [7, *client as u64, 0, 0],
        Happening::Fault => [8, 0, 0, 0],
        Happening::Start { node } => [9, *node as u64, 0, 0],
        Happening::Heal => [10, 0, 0, 0],
    }
}
