//! One node: its process with a replica and a state machine for each lane, and its disk. It does what a shard of the
//! product does: performs the effects of the cores, and tells them what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use laneway_metadata::PartitionPlace;
use laneway_reads::SessionKey;
use laneway_vsr::recovery::Remembered;
use laneway_vsr::superblock::Promise;
use laneway_vsr::{
    Barrier, Config, DurableState, Effect, Entry, Event, LogNumber, Message, ReadRequest, Replica,
    SuperblockNumber, View,
};
use laneway_wire::{ClientId, LaneId, Micros, Nanos, Op, PartitionKey, ReplicaId, RequestNumber};

use crate::clock::NodeClock;
use crate::contract::Answer;
use crate::coverage::Mark;
use crate::disk::Fate;
use crate::env::{Env, Happening, Io, Packet};
use crate::faults::FaultKind;
use crate::hold;
use crate::machine::{Done, Machine};
use crate::oracle::Violation;
use crate::queue::{SECOND, Time};
use crate::say;
use crate::storage::{
    Block, Gathered, LaneStorage, NodeStorage, Record, SUPERBLOCK_COPIES, Snapshot, SuperblockCopy,
    WitnessRecord,
};

mod boot;
mod requests;
mod transfer;

use transfer::TransferDriver;

/// Who waits for an op.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    client: usize,
    exchange: u64,
}

/// The way of a lane's log to the disk: one block is written at a time, and one flush runs at a time.
#[derive(Debug, Default)]
struct LogDriver {
    gathered: Gathered,
    /// The block that is being written, with the newest change in it.
    writing: Option<(Rc<[Record]>, LogNumber)>,
    is_flushing: bool,
    written: LogNumber,
    synced: LogNumber,
    next_flush: u64,
    /// Where each entry is.
    index: BTreeMap<Op, u64>,
    /// The newest change of each op since the start of the process.
    changes: BTreeMap<Op, LogNumber>,
    has_failed: bool,
}

/// The way of a lane's superblock to the disk.
#[derive(Debug, Default)]
struct SuperblockDriver {
    /// The newest record that nobody writes yet.
    next: Option<(SuperblockNumber, Rc<DurableState>)>,
    /// The record that is being written, and how many copies of it are done.
    writing: Option<(SuperblockNumber, Rc<DurableState>, u64)>,
    /// The record that is durable.
    durable: Option<(SuperblockNumber, Rc<DurableState>)>,
}

/// One lane of a running process.
#[derive(Debug)]
pub struct Lane {
    /// The replica.
    pub replica: Replica,
    /// Its state machine.
    pub machine: Machine,
    /// Whether the replica stopped for good.
    pub is_halted: bool,
    waiters: BTreeMap<Op, Vec<Waiter>>,
    in_flight: BTreeMap<(ClientId, RequestNumber), Op>,
    proposed: BTreeSet<(PartitionKey, bool)>,
    retiring: BTreeSet<SessionKey>,
    log: LogDriver,
    superblock: SuperblockDriver,
    checkpointing: bool,
    checkpointed: Op,
    /// What may go from the front of the log, and the record that has to be durable first.
    trim: Option<(SuperblockNumber, Op)>,
    transfer: TransferDriver,
    /// When its timer is planned.
    timer_at: Time,
}

impl Lane {
    fn lane_id(&self) -> LaneId {
        self.replica.lane()
    }

    /// When something is due.
    fn deadline(&self) -> Nanos {
        let transfer = self.transfer.session.poll_timeout().unwrap_or(Nanos::NEVER);
        self.replica.poll_timeout().min(transfer)
    }
}

/// Why a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The environment killed it between two effects.
    AtEffect,
    /// It must start again: a disk that was full.
    Restart,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Its number.
    pub id: usize,
    /// Its disk.
    pub storage: NodeStorage,
    /// An older copy of its disk.
    pub saved: Option<Box<NodeStorage>>,
    /// Starts of its process.
    pub boot: u32,
    /// Starts of its machine.
    pub machine_boot: u64,
    /// Its clocks.
    pub clock: NodeClock,
    /// Its lanes; none while the process is down.
    pub lanes: Vec<Lane>,
    /// It stands still until then.
    pub paused_until: Time,
    /// Its disk does nothing until then.
    pub disk_stuck_until: Time,
    /// How much slower each lane runs, and until when.
    pub slow: Option<(usize, Time)>,
    /// Each lane is busy until then.
    pub busy_until: Vec<Time>,
    /// Set when the process is to end as soon as it returns to the world.
    pub ending: Option<End>,
    /// Whether its directory was lost and it was not admitted since.
    pub is_amnesiac: bool,
    /// What the others have heard from it, by lane: the proof against an older copy of its directory.
    pub remembered: Vec<Remembered>,
    routes: BTreeMap<PartitionKey, PartitionPlace>,
    metadata_changed: bool,
}

impl Node {
    /// A node with an empty directory that is not started.
    pub fn new(id: usize, storage: NodeStorage, clock: NodeClock) -> Self {
        let lanes = storage.lanes.len();
        Self {
            id,
            storage,
            saved: None,
            boot: 0,
            machine_boot: 1,
            clock,
            lanes: Vec::new(),
            paused_until: 0,
            disk_stuck_until: 0,
            slow: None,
            busy_until: vec![0; lanes],
            ending: None,
            is_amnesiac: false,
            remembered: vec![Remembered::default(); lanes],
            routes: BTreeMap::new(),
            metadata_changed: false,
        }
    }

    /// Whether its process runs.
    pub fn is_up(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Whether a record of a lane's superblock is on its way to the disk.
    pub fn is_writing_superblock(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.superblock.writing.is_some())
    }

    /// The monotonic clock.
    fn monotonic(&self, env: &Env) -> Nanos {
        Nanos(self.clock.monotonic(env.now()))
    }

    fn wall(&self, env: &Env) -> Micros {
        Micros(self.clock.wall(env.now()))
    }

    /// Hands an event to the replica of a lane and does what follows.
    pub fn drive(&mut self, env: &mut Env, lane: usize, event: Event) -> Result<(), Violation> {
        let now = self.monotonic(env);
        self.lanes[lane].replica.handle(now, event);
        self.pump(env, lane)
    }

    /// Performs what the replica of a lane asks for.
    fn pump(&mut self, env: &mut Env, lane: usize) -> Result<(), Violation> {
        while self.ending.is_none()
            && let Some(effect) = self.lanes[lane].replica.poll_effect()
        {
            let crash = env.plan.faults.crash_at_effect;
            let crash = crash.0 > 0 && env.streams.faults.chance(crash);
            if env.fault(FaultKind::Crash, crash) {
                self.ending = Some(End::AtEffect);
                return Ok(());
            }
            self.perform(env, lane, effect)?;
        }
        if self.ending.is_none() {
            self.arm(env, lane);
            if self.metadata_changed {
                self.metadata_changed = false;
                for lane in 1..self.lanes.len() {
                    self.align(env, lane)?;
                }
            }
        }
        Ok(())
    }

    /// Plans the next timeout of a lane's replica.
    fn arm(&mut self, env: &mut Env, lane: usize) {
        let deadline = self.lanes[lane].deadline();
        if deadline == Nanos::NEVER || self.lanes[lane].is_halted {
            return;
        }
        let at = env.now() + self.clock.real_delay(env.now(), deadline.0);
        if at < self.lanes[lane].timer_at {
            self.lanes[lane].timer_at = at;
            env.plan_at(at, Happening::Timer { node: self.id, boot: self.boot, lane });
        }
    }

    /// A planned timeout is due, if nothing moved it.
    pub fn timer(&mut self, env: &mut Env, lane: usize) -> Result<(), Violation> {
        self.lanes[lane].timer_at = Time::MAX;
        let now = self.monotonic(env);
        if self.lanes[lane].transfer.session.poll_timeout().is_some_and(|at| at <= now) {
            self.transfer_timeout(env, lane)?;
        }
        if self.lanes[lane].replica.poll_timeout() <= now {
            self.drive(env, lane, Event::Timeout)?;
            if self.ending.is_none() {
                self.align(env, lane)?;
            }
        } else {
            self.arm(env, lane);
        }
        Ok(())
    }

    /// A message of a peer arrived.
    pub fn receive(&mut self, env: &mut Env, packet: Packet) -> Result<(), Violation> {
        let from = ReplicaId(packet.from as u8);
        if matches!(packet.message, Message::RepairPrepare { .. }) {
            env.totals.repairs += 1;
            env.mark(Mark::Repaired);
        }
        self.drive(env, packet.lane, Event::Message { from, message: packet.message })
    }

    fn perform(&mut self, env: &mut Env, lane: usize, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::Write { number, entry } => {
                self.note_change(lane, entry.op(), number);
                self.gather(env, lane, number, Record::Entry(entry));
            }
            Effect::Truncate { number, above } => {
                say!(env.trace, env.queue.now(), "node {} lane {lane}: truncates above {above}", self.id);
                env.mark(Mark::Truncated);
                hold!(
                    above >= self.lanes[lane].machine.applied(),
                    "node {} truncates lane {lane} above op {above}, below what it applied",
                    self.id
                );
                self.gather(env, lane, number, Record::Truncate(above));
            }
            Effect::Apply(entry) => self.apply(env, lane, &entry)?,
            Effect::Send { to, message, after } => self.send(env, lane, to, message, after)?,
            Effect::WriteSuperblock { number, state } => self.write_superblock(env, lane, number, *state)?,
            Effect::Read(request) => self.read(env, lane, request),
            Effect::Trim { below, after } => {
                self.lanes[lane].trim = Some((after, below));
                self.trim(lane);
            }
            Effect::ViewStarted { view, primary } => self.view_started(env, lane, view, primary)?,
            Effect::Stopped { view } => {
                say!(env.trace, env.queue.now(), "node {} lane {lane}: stopped for view {}", self.id, view.0);
                self.release_waiters(env, lane);
            }
            Effect::Halt(why) => {
                say!(env.trace, env.queue.now(), "node {} lane {lane}: halts: {why}", self.id);
                self.lanes[lane].is_halted = true;
                self.release_waiters(env, lane);
                env.mark(Mark::Refused);
                hold!(env.plan.beyond_model, "node {} gave up lane {lane} within the model: {why}", self.id);
            }
            Effect::ServeTransfer { to, message } => self.serve_transfer(env, lane, to, &message),
            Effect::DeliverTransfer { from, message } => self.deliver_transfer(env, lane, from, message)?,
            Effect::StartTransfer { at_least } => self.start_transfer(env, lane, at_least)?,
            Effect::CancelTransfer => self.cancel_transfer(lane),
        }
        Ok(())
    }

    fn view_started(
        &mut self,
        env: &mut Env,
        lane: usize,
        view: View,
        primary: ReplicaId,
    ) -> Result<(), Violation> {
        say!(
            env.trace,
            env.queue.now(),
            "node {} lane {lane}: view {} starts, primary {primary}, {:?}",
            self.id,
            view.0,
            self.lanes[lane].replica.frontier()
        );
        if usize::from(primary.0) == self.id && view.0 > 0 {
            env.totals.view_changes += 1;
            env.mark(Mark::ViewChanged);
        }
        env.oracle.leads(lane, view, primary.0.into())?;
        self.release_waiters(env, lane);
        Ok(())
    }

    /// Everybody who waits for an op of an older view is told that nobody knows how it ends.
    fn release_waiters(&mut self, env: &mut Env, lane: usize) {
        let lane = &mut self.lanes[lane];
        for waiter in std::mem::take(&mut lane.waiters).into_values().flatten() {
            let answer = Answer::Refused(laneway_wire::Status::TransientNotCommitted);
            env.answer(self.id, waiter.client, waiter.exchange, answer);
        }
        lane.in_flight.clear();
        lane.proposed.clear();
        lane.retiring.clear();
        lane.machine.discard_staged();
    }

    // Messages.

    fn send(
        &mut self,
        env: &mut Env,
        lane: usize,
        to: ReplicaId,
        message: Message,
        after: Barrier,
    ) -> Result<(), Violation> {
        self.check_durable(lane, &message, after)?;
        if let Message::DoViewChange(vote) = &message {
            let digest = xxhash_rust::xxh3::xxh3_64(format!("{vote:?}").as_bytes());
            env.oracle.voted(lane, vote.view, self.id, digest)?;
        }
        self.remember(lane, &message);
        env.trace.step(env.queue.now(), [10, self.id as u64, u64::from(to.0), u64::from(message.view().0)]);
        say!(env.trace, env.queue.now(), "node {} lane {lane}: -> {to}: {}", self.id, describe(&message));
        let to = usize::from(to.0);
        if to == self.id {
            // A replica that writes to itself would be its own peer.
            return Err(Violation(format!("node {} sends itself a {}", self.id, message.kind())));
        }
        env.send(self.id, to, lane, message);
        Ok(())
    }

    /// What a message promises is remembered by those who hear it.
    fn remember(&mut self, lane: usize, message: &Message) {
        let remembered = &mut self.remembered[lane];
        let acknowledged = match message {
            Message::PrepareOk { progress, .. } | Message::HeartbeatAck { progress, .. } => {
                progress.received.op.max(progress.persisted.op)
            }
            Message::DoViewChange(_) | Message::StartView(_) | Message::Prepare { .. } => Op(0),
            _ => return,
        };
        remembered.view = remembered.view.max(message.view().0);
        remembered.persisted_committed = remembered.persisted_committed.max(acknowledged);
    }

    /// Drops the front of the log once the record that names its checkpoint is durable.
    fn trim(&mut self, lane: usize) {
        let current = &mut self.lanes[lane];
        let Some((after, below)) = current.trim else { return };
        if current.superblock.durable.as_ref().is_some_and(|(number, _)| *number >= after) {
            current.trim = None;
            self.storage.lanes[lane].trim(below);
            current.log.index = current.log.index.split_off(&below);
            current.log.changes = current.log.changes.split_off(&below);
        }
    }

    /// What an effect was promised is durable already.
    fn check_barrier(&self, lane: usize, kind: &str, after: Barrier) -> Result<(), Violation> {
        let Lane { log, superblock, .. } = &self.lanes[lane];
        let node = self.id;
        let number = superblock.durable.as_ref().map_or(SuperblockNumber(0), |(number, _)| *number);
        hold!(after.superblock <= number, "node {node} lane {lane}: a {kind} left before its superblock");
        hold!(
            after.written <= log.written,
            "node {node} lane {lane}: a {kind} left before its log was written"
        );
        hold!(
            after.synced <= log.synced,
            "node {node} lane {lane}: a {kind} left before its log was flushed"
        );
        Ok(())
    }

    /// What the table of durability asks for is what the disk has reported.
    fn check_durable(&self, lane: usize, message: &Message, after: Barrier) -> Result<(), Violation> {
        let kind = message.kind();
        self.check_barrier(lane, kind, after)?;
        let Lane { log, superblock, .. } = &self.lanes[lane];
        let node = self.id;
        let durable = superblock.durable.as_ref();
        let required = laneway_vsr::durability::requirement(message);
        let view = durable.map_or(View(0), |(_, state)| state.view);
        let log_view = durable.map_or(View(0), |(_, state)| state.log_view);
        hold!(
            required.view.is_none_or(|required| view >= required),
            "node {node} lane {lane}: a {kind} of view {:?} left while the superblock says view {}",
            required.view,
            view.0
        );
        hold!(
            required.log_view.is_none_or(|required| log_view >= required),
            "node {node} lane {lane}: a {kind} left while the superblock says log view {}",
            log_view.0
        );
        // What is applied was acknowledged before, and may be written again where it was damaged.
        let applied = self.lanes[lane].machine.applied();
        let change = |op: Op| match op > applied {
            true => log.changes.get(&op).copied().unwrap_or_default(),
            false => LogNumber(0),
        };
        hold!(
            change(required.written) <= log.written,
            "node {node} lane {lane}: a {kind} acknowledges op {} before it was written",
            required.written
        );
        hold!(
            change(required.synced) <= log.synced,
            "node {node} lane {lane}: a {kind} acknowledges op {} before it was flushed",
            required.synced
        );
        if let (true, Message::DoViewChange(vote)) = (required.vote, message) {
            let same = durable.is_some_and(|(_, state)| state.promise == Promise::Vote((**vote).clone()));
            hold!(
                same,
                "node {node} lane {lane}: a vote for view {} left that the superblock does not hold",
                vote.view.0
            );
        }
        Ok(())
    }

    // The log.

    fn note_change(&mut self, lane: usize, op: Op, number: LogNumber) {
        self.lanes[lane].log.changes.insert(op, number);
    }

    fn gather(&mut self, env: &mut Env, lane: usize, number: LogNumber, record: Record) {
        let log = &mut self.lanes[lane].log;
        log.gathered.records.push(record);
        log.gathered.number = number;
        self.write_block(env, lane);
    }

    fn disk_delay(&self, env: &Env, latency: Time) -> Time {
        (env.now() + latency).max(self.disk_stuck_until)
    }

    fn plan_io(&self, env: &mut Env, lane: usize, at: Time, io: Io) {
        env.plan_at(at, Happening::Io { node: self.id, boot: self.boot, lane, io: Box::new(io) });
    }

    fn write_block(&mut self, env: &mut Env, lane: usize) {
        let log = &mut self.lanes[lane].log;
        if log.writing.is_some() || log.gathered.records.is_empty() || log.has_failed {
            return;
        }
        let Gathered { records, number } = std::mem::take(&mut log.gathered);
        let records: Rc<[Record]> = records.into();
        let flush = log.next_flush;
        log.next_flush += 1;
        for record in records.iter() {
            match record {
                Record::Entry(entry) => {
                    log.index.insert(entry.op(), flush);
                }
                Record::Truncate(above) => {
                    log.index.split_off(&above.next());
                }
                Record::BodyDamaged(_) => {}
            }
        }
        log.writing = Some((Rc::clone(&records), number));
        let storage = &mut self.storage.lanes[lane];
        let block = storage.blocks.submit(flush, Block { flush, records });
        let latency = env.write_latency();
        let at = self.disk_delay(env, latency);
        self.plan_io(env, lane, at, Io::Block { block, flush });
    }

    /// The disk has done something.
    pub fn io_done(&mut self, env: &mut Env, lane: usize, io: Io) -> Result<(), Violation> {
        match io {
            Io::Block { block, flush } => self.block_written(env, lane, block, flush),
            Io::LogFlush { marks, number } => self.log_flushed(env, lane, marks, number),
            Io::Superblock { copies, number } => {
                for id in copies {
                    self.storage.lanes[lane].superblock.finish(id, Fate::Done);
                }
                let mark = self.storage.lanes[lane].superblock.begin_flush();
                let latency = env.flush_latency();
                let at = self.disk_delay(env, latency);
                self.plan_io(env, lane, at, Io::SuperblockFlush { mark, number });
                Ok(())
            }
            Io::SuperblockFlush { mark, number } => {
                self.storage.lanes[lane].superblock.finish_flush(mark, false);
                self.superblock_flushed(env, lane, number)
            }
            Io::Read { request, entry } => self.drive(env, lane, Event::Read { request, entry }),
            Io::Snapshot { id, op } => self.snapshot_written(env, lane, id, op),
            Io::Install { id } => self.installed(env, lane, id),
        }
    }

    fn block_written(
        &mut self,
        env: &mut Env,
        lane: usize,
        block: crate::disk::WriteId,
        flush: u64,
    ) -> Result<(), Violation> {
        let settings = env.plan.faults;
        let full = settings.full_disk.0 > 0 && env.streams.storage.chance(settings.full_disk);
        if env.fault(FaultKind::FullDisk, full) {
            say!(env.trace, env.queue.now(), "node {} lane {lane}: the disk is full", self.id);
            env.mark(Mark::DiskFull);
            self.storage.lanes[lane].blocks.refuse(block);
            self.lanes[lane].log.has_failed = true;
            let at = env.now() + SECOND / 2 + env.streams.storage.exponential(SECOND);
            env.plan_at(at, Happening::Start { node: self.id });
            return self.drive(env, lane, Event::LogFailed);
        }
        let (records, number) = self.lanes[lane].log.writing.take().expect("a block was being written");
        let fate = self.fate_of(env, lane, &records);
        let storage = &mut self.storage.lanes[lane];
        storage.blocks.finish(block, fate);
        // Only after its block: a witness that is there before would turn an unfinished block of a crash into a lost end.
        storage.witness.put(LaneStorage::witness_place(flush), WitnessRecord { flush });
        self.lanes[lane].log.written = number;
        self.flush_log(env, lane);
        self.drive(env, lane, Event::Written(number))?;
        if self.ending.is_none() {
            self.write_block(env, lane);
        }
        Ok(())
    }

    /// Whether a write really happens, where the atlas lets it go wrong.
    fn fate_of(&mut self, env: &mut Env, lane: usize, records: &[Record]) -> Fate {
        let settings = env.plan.faults;
        if settings.lost_write.0 == 0 && settings.misdirect.0 == 0 {
            return Fate::Done;
        }
        let lost = env.streams.storage.chance(settings.lost_write);
        let misdirected = env.streams.storage.chance(settings.misdirect);
        let allowed = records.iter().all(|record| match record {
            Record::Entry(entry) => env.atlas.may_damage(self.id, lane as u32, entry.op().0),
            // A lost cut would let entries come back that a view dropped.
            Record::Truncate(_) | Record::BodyDamaged(_) => false,
        });
        if env.fault(FaultKind::LostWrite, lost && allowed) {
            return Fate::Lost;
        }
        let last = self.lanes[lane].log.next_flush - 1;
        if misdirected && allowed && last > 1 {
            // It must not land on entries that this member has to keep.
            let place = 1 + env.streams.storage.below(last - 1);
            let victim = self.storage.lanes[lane].ops_of(place);
            let spared = victim.is_some_and(|(low, high)| {
                (low.0..=high.0).all(|op| env.atlas.may_damage(self.id, lane as u32, op))
            });
            if env.fault(FaultKind::Misdirect, spared) {
                return Fate::Misdirected(place);
            }
        }
        Fate::Done
    }

    fn flush_log(&mut self, env: &mut Env, lane: usize) {
        let log = &mut self.lanes[lane].log;
        if log.is_flushing || log.synced == log.written {
            return;
        }
        log.is_flushing = true;
        let number = log.written;
        let storage = &self.storage.lanes[lane];
        let marks = (storage.blocks.begin_flush(), storage.witness.begin_flush());
        let latency = env.flush_latency();
        let at = self.disk_delay(env, latency);
        self.plan_io(env, lane, at, Io::LogFlush { marks, number });
    }

    fn log_flushed(
        &mut self,
        env: &mut Env,
        lane: usize,
        marks: (crate::disk::FlushMark, crate::disk::FlushMark),
        number: LogNumber,
    ) -> Result<(), Violation> {
        let lost = env.plan.faults.lost_sync;
        let lost = lost.0 > 0 && env.streams.storage.chance(lost) && env.atlas.may_lose_all(self.id);
        let lies = env.fault(FaultKind::LostSync, lost);
        let storage = &mut self.storage.lanes[lane];
        storage.blocks.finish_flush(marks.0, lies);
        storage.witness.finish_flush(marks.1, lies);
        let log = &mut self.lanes[lane].log;
        log.is_flushing = false;
        log.synced = number;
        self.flush_log(env, lane);
        self.drive(env, lane, Event::Synced(number))
    }

    fn read(&mut self, env: &mut Env, lane: usize, request: ReadRequest) {
        let entry = self.find(lane, request.op).filter(|entry| {
            request.identity == laneway_vsr::Identity::default() || entry.header.identity == request.identity
        });
        let latency = env.read_latency();
        let at = self.disk_delay(env, latency);
        self.plan_io(env, lane, at, Io::Read { request, entry });
    }

    /// The newest entry of an op: on its way to the disk, or there.
    fn find(&self, lane: usize, op: Op) -> Option<Entry> {
        let log = &self.lanes[lane].log;
        let in_memory = |records: &[Record]| {
            records.iter().rev().find_map(|record| match record {
                Record::Entry(entry) if entry.op() == op => Some(entry.clone()),
                _ => None,
            })
        };
        in_memory(&log.gathered.records)
            .or_else(|| in_memory(&log.writing.as_ref()?.0))
            .or_else(|| self.storage.lanes[lane].read(*log.index.get(&op)?, op).cloned())
    }

    // The superblock.

    fn write_superblock(
        &mut self,
        env: &mut Env,
        lane: usize,
        number: SuperblockNumber,
        state: DurableState,
    ) -> Result<(), Violation> {
        let driver = &mut self.lanes[lane].superblock;
        let newest = driver.next.as_ref().or(driver.durable.as_ref());
        if let Some((before, old)) = newest {
            hold!(*before < number, "node {} lane {lane}: superblock {number:?} after {before:?}", self.id);
            let grows = old.view <= state.view
                && old.log_view <= state.log_view
                && old.commit_max <= state.commit_max
                && state.log_view <= state.view;
            hold!(grows, "node {} lane {lane}: the superblock goes back from {old:?} to {state:?}", self.id);
        }
        driver.next = Some((number, Rc::new(state)));
        self.start_superblock(env, lane);
        Ok(())
    }

    fn start_superblock(&mut self, env: &mut Env, lane: usize) {
        let driver = &mut self.lanes[lane].superblock;
        if driver.writing.is_none()
            && let Some((number, state)) = driver.next.take()
        {
            driver.writing = Some((number, state, 0));
            self.write_copies(env, lane);
        }
    }

    fn write_copies(&mut self, env: &mut Env, lane: usize) {
        let writing = self.lanes[lane].superblock.writing.as_ref();
        let (number, state, done) = writing.expect("a record is being written");
        let boot = self.machine_boot;
        let cells = &mut self.storage.lanes[lane].superblock;
        let copies = [*done, done + 1].map(|copy| {
            let state = Rc::clone(state);
            cells.submit(copy, SuperblockCopy { number: *number, copy, boot, state })
        });
        let io = Io::Superblock { copies, number: *number };
        let latency = env.write_latency();
        let at = self.disk_delay(env, latency);
        self.plan_io(env, lane, at, io);
    }

    fn superblock_flushed(
        &mut self,
        env: &mut Env,
        lane: usize,
        number: SuperblockNumber,
    ) -> Result<(), Violation> {
        let driver = &mut self.lanes[lane].superblock;
        let (writing, state, done) = driver.writing.take().expect("a record was being written");
        assert!(writing == number, "records are written one after the other");
        if done + 2 < SUPERBLOCK_COPIES {
            driver.writing = Some((number, state, done + 2));
            self.write_copies(env, lane);
            return Ok(());
        }
        self.storage.lanes[lane].drop_snapshots_below(state.checkpoint.op);
        driver.durable = Some((number, state));
        self.trim(lane);
        self.start_superblock(env, lane);
        self.drive(env, lane, Event::SuperblockWritten(number))
    }

    // Applying.

    fn apply(&mut self, env: &mut Env, lane: usize, entry: &Entry) -> Result<(), Violation> {
        let now = self.monotonic(env);
        let op = entry.op();
        let current = &mut self.lanes[lane];
        hold!(
            op == current.machine.applied().next(),
            "node {} lane {lane}: op {op} is to be applied after op {}",
            self.id,
            current.machine.applied()
        );
        let done = current.machine.apply(entry, now);
        let done = done.map_err(|error| Violation(format!("node {} lane {lane}: {error}", self.id)))?;
        env.trace.step(env.queue.now(), [11, self.id as u64, lane as u64, op.0]);
        say!(
            env.trace,
            env.queue.now(),
            "node {} lane {lane}: applies {op} {}",
            self.id,
            entry.header.identity
        );
        let is_first = op > env.oracle.head(lane);
        let metadata = match &current.machine {
            Machine::Metadata(metadata) => Some(metadata.as_ref()),
            Machine::Data(_) => None,
        };
        env.oracle.applied(self.id, lane, entry, &done, metadata)?;
        if is_first {
            env.totals.committed += 1;
            env.mark(Mark::Committed);
            if entry.header.view < current.replica.view() {
                env.mark(Mark::Inherited);
            }
        }
        self.settle(env, lane, entry, done, is_first)?;
        let now = self.monotonic(env);
        self.lanes[lane].replica.handle(now, Event::Applied(op));
        self.maybe_checkpoint(env, lane);
        Ok(())
    }

    /// Answers those who waited for an op, and remembers what follows from it.
    fn settle(
        &mut self,
        env: &mut Env,
        lane: usize,
        entry: &Entry,
        done: Done,
        is_first: bool,
    ) -> Result<(), Violation> {
        let op = entry.op();
        let answer = requests::answer_of(env, op, &done, &entry.body.prefix, is_first)?;
        let current = &mut self.lanes[lane];
        for waiter in current.waiters.remove(&op).unwrap_or_default() {
            env.answer(self.id, waiter.client, waiter.exchange, answer.clone());
        }
        match done {
            Done::Metadata(outcome) => {
                current.in_flight.retain(|_, waiting| *waiting != op);
                if !outcome.effects.is_empty() || self.routes.is_empty() {
                    self.refresh_routes();
                }
            }
            Done::Data(applied) => {
                if let laneway_partition::Applied::Opened { key } = applied {
                    current.proposed.remove(&(key, true));
                } else if let laneway_partition::Applied::Fenced { key, .. } = applied {
                    current.proposed.remove(&(key, false));
                    env.mark(Mark::PartitionFenced);
                } else if let laneway_partition::Applied::Retired { session } = applied {
                    current.retiring.remove(&session);
                }
            }
        }
        Ok(())
    }

    fn refresh_routes(&mut self) {
        if let Machine::Metadata(metadata) = &self.lanes[0].machine {
            self.routes = metadata.partitions().map(|place| (place.key, place)).collect();
            self.metadata_changed = true;
        }
    }

    // Checkpoints.

    fn maybe_checkpoint(&mut self, env: &mut Env, lane: usize) {
        let current = &mut self.lanes[lane];
        let applied = current.machine.applied();
        let due = current.checkpointed.0 + env.plan.checkpoint_ops;
        // At ops that are the same on every node, so that checkpoints can be compared.
        if current.checkpointing || applied.0 < due || !applied.0.is_multiple_of(env.plan.checkpoint_ops) {
            return;
        }
        let Some(header) = env.oracle.header(lane, applied) else { return };
        let anchor = laneway_vsr::CheckpointId { op: applied, identity: header.identity };
        current.checkpointing = true;
        let image = Rc::new(current.machine.image());
        let snapshot = Snapshot { anchor, timestamp: current.machine.timestamp(), image };
        let id = self.storage.lanes[lane].snapshots.submit(applied.0, snapshot);
        let latency = env.write_latency() + env.flush_latency();
        let at = self.disk_delay(env, latency);
        self.plan_io(env, lane, at, Io::Snapshot { id, op: applied });
    }

    fn snapshot_written(
        &mut self,
        env: &mut Env,
        lane: usize,
        id: crate::disk::WriteId,
        op: Op,
    ) -> Result<(), Violation> {
        let snapshots = &mut self.storage.lanes[lane].snapshots;
        snapshots.finish(id, Fate::Done);
        let mark = snapshots.begin_flush();
        snapshots.finish_flush(mark, false);
        let snapshot = snapshots.read(op.0).and_then(|cell| cell.good()).expect("it was just written");
        let (hash, checkpoint) = (snapshot.image.hash(), snapshot.anchor);
        let current = &mut self.lanes[lane];
        current.checkpointing = false;
        current.checkpointed = op;
        env.totals.checkpoints += 1;
        env.mark(Mark::Checkpointed);
        say!(env.trace, env.queue.now(), "node {} lane {lane}: checkpoint at {op}", self.id);
        if env.oracle.checkpoint(self.id, lane, op, hash)? {
            env.mark(Mark::CheckpointCompared);
        }
        self.drive(env, lane, Event::Checkpointed(checkpoint))
    }
}

/// A message in a few words.
fn describe(message: &Message) -> String {
    let view = message.view().0;
    match message {
        Message::Prepare { entry, commit, .. } => {
            format!("prepare {} of view {view}, commit {commit}", entry.op())
        }
        Message::PrepareOk { progress, .. } => format!(
            "prepare_ok of view {view}: written {}, flushed {}",
            progress.received.op, progress.persisted.op
        ),
        Message::Heartbeat { commit, op_head, .. } => {
            format!("heartbeat of view {view}: commit {commit}, head {op_head}")
        }
        Message::StartViewChange { target, .. } => format!("start_view_change {} from view {view}", target.0),
        Message::DoViewChange(vote) => format!(
            "do_view_change {view}: log view {}, head {}, commit {}, {:?}, syncing {}",
            vote.log_view.0, vote.op_head, vote.commit_max, vote.trust, vote.syncing
        ),
        Message::StartView(start) => {
            format!("start_view {view}: head {}, commit {}", start.op_head, start.commit_max)
        }
        other => format!("{} of view {view}", other.kind()),
    }
}

/// What a replica is made with.
fn config_of(env: &Env, node: usize, lane: usize, boot: u32) -> Config {
    let lane_id = LaneId(lane as u32);
    let roster = laneway_vsr::Roster::initial(lane_id, env.plan.nodes).expect("a run has 1 to 6 nodes");
    Config {
        cluster: boot::CLUSTER,
        lane: lane_id,
        replica: ReplicaId(node as u8),
        roster,
        timing: laneway_vsr::Timing::DEFAULT,
        seed: env.plan.seed
            ^ (u64::from(boot) << 32 | (node as u64) << 16 | lane as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}
