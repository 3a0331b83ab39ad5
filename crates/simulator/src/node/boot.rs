//! The start and the end of a process.

use std::rc::Rc;

use laneway_vsr::recovery::{self, LastRun, Mend, RecoveredSlot};
use laneway_vsr::{
    BootId, CheckpointId, ClusterId, DurableState, Event, Identity, LogNumber, LogTrust, Replica,
    SuperblockNumber, View, superblock::Promise,
};
use laneway_wire::{LaneId, Op, ReplicaId};

use super::transfer::TransferDriver;
use super::{End, Lane, LogDriver, Node, SuperblockDriver, config_of};
use crate::coverage::Mark;
use crate::disk::Ending;
use crate::env::Env;
use crate::hold;
use crate::machine::Machine;
use crate::oracle::Violation;
use crate::queue::Time;
use crate::say;

/// The cluster of every run.
pub(super) const CLUSTER: ClusterId = ClusterId(0x6c61_6e65_7761_7921);

/// What the superblock of a lane says before anything happened.
fn first_record(lane: LaneId) -> DurableState {
    DurableState {
        view: View(0),
        log_view: View(0),
        commit_max: Op(0),
        checkpoint: CheckpointId { op: Op(0), identity: Identity::root(CLUSTER, lane) },
        promise: Promise::None,
        trust: LogTrust::Trusted,
        syncing: false,
    }
}

impl Node {
    /// Makes the directory as the creation of a cluster does: with the first record of each superblock.
    pub fn format(&mut self) {
        for (lane, storage) in self.storage.lanes.iter_mut().enumerate() {
            let state = first_record(LaneId(lane as u32));
            storage.rewrite_superblock(SuperblockNumber(1), self.machine_boot, &Rc::new(state));
        }
    }

    /// Starts the process.
    pub fn start(&mut self, env: &mut Env) -> Result<(), Violation> {
        assert!(!self.is_up(), "a process starts once");
        self.boot += 1;
        self.ending = None;
        say!(env.trace, env.queue.now(), "node {} starts (boot {})", self.id, self.boot);
        for lane in 0..self.storage.lanes.len() {
            let started = self.start_lane(env, lane)?;
            self.lanes.push(started);
        }
        self.refresh_routes();
        for lane in 0..self.lanes.len() {
            self.pump(env, lane)?;
            if self.ending.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn start_lane(&mut self, env: &mut Env, lane: usize) -> Result<Lane, Violation> {
        let config = config_of(env, self.id, lane, self.boot);
        let now = self.monotonic(env);
        let lane_id = config.lane;
        let storage = &mut self.storage.lanes[lane];
        let Some((record, newest, copies)) = storage.open_superblock() else {
            hold!(self.is_amnesiac, "node {} lane {lane}: no superblock can be read", self.id);
            let replica = Replica::amnesiac(config, now, self.storage.disk);
            let durable = Some((SuperblockNumber(1), Rc::new(first_record(lane_id))));
            return Ok(self.lane_of(env, lane, replica, Machine::new(lane_id), durable));
        };
        if copies < 4 {
            env.mark(Mark::SuperblockHealed);
            env.totals.corruptions += 1;
        }
        if newest > record.number {
            say!(env.trace, env.queue.now(), "node {} lane {lane}: an unfinished superblock", self.id);
        }
        if self.boot == 1 && record.number == SuperblockNumber(1) && !self.is_amnesiac {
            let durable = Some((record.number, record.state));
            let replica = Replica::fresh(config, now);
            return Ok(self.lane_of(env, lane, replica, Machine::new(lane_id), durable));
        }
        let mut state = (*record.state).clone();
        let (machine, timestamp) = self.load_checkpoint(lane, state.checkpoint)?;
        let storage = &mut self.storage.lanes[lane];
        let mut log = recovery::classify(&storage.scan(), state.checkpoint);
        if let Mend::Cut { at } = log.mend {
            storage.cut_from(at);
            env.mark(Mark::TornTail);
        }
        let faulty = log.slots.values().filter(|slot| matches!(slot, RecoveredSlot::Faulty { .. })).count();
        if faulty > 0 {
            env.totals.corruptions += faulty as u64;
            env.mark(Mark::CorruptFound);
        }
        if env.plan.nodes == 1
            && let Err(error) = log.check_alone()
        {
            hold!(env.plan.beyond_model, "node {} refuses to start within the model: {error}", self.id);
            env.mark(Mark::Refused);
            env.is_stopped = true;
        }
        let head = log.slots.get(&log.op_head).and_then(|slot| match slot {
            RecoveredSlot::Present { header, .. } => Some(header.identity),
            _ => None,
        });
        let run = LastRun { trust: state.trust, clean: None, boot: BootId(record.boot.into()) };
        state.trust = recovery::trust(&log, head, &run, BootId(self.machine_boot.into()));
        log.mend = Mend::Nothing;
        storage.rewrite_superblock(record.number, self.machine_boot, &Rc::new(state.clone()));
        say!(
            env.trace,
            env.queue.now(),
            "node {} lane {lane}: found view {} (log view {}), commit {}, checkpoint {}, head {} ({:?}, {faulty} damaged), {:?}",
            self.id,
            state.view.0,
            state.log_view.0,
            state.commit_max,
            state.checkpoint.op,
            log.op_head,
            log.head,
            state.trust
        );
        let index = log
            .slots
            .iter()
            .filter_map(|(op, slot)| match slot {
                RecoveredSlot::Present { at, .. } => Some((*op, *at)),
                _ => None,
            })
            .collect();
        // The next record is above everything that was ever seen.
        let durable = Some((newest, Rc::new(state.clone())));
        let applied = state.checkpoint;
        let restored =
            laneway_vsr::Restored { superblock: newest, state, log, applied, timestamp_last: timestamp };
        let replica = Replica::restore(config, now, restored);
        let mut started = self.lane_of(env, lane, replica, machine, durable);
        started.log.index = index;
        env.mark(Mark::Recovered);
        Ok(started)
    }

    fn lane_of(
        &self,
        env: &Env,
        lane: usize,
        mut replica: Replica,
        machine: Machine,
        durable: Option<(SuperblockNumber, Rc<DurableState>)>,
    ) -> Lane {
        if let Some(mutation) = env.mutation {
            crate::mutations::plant(&mut replica, mutation);
        }
        let checkpointed = machine.applied();
        let next_flush = self.storage.lanes[lane].last_flush() + 1;
        Lane {
            replica,
            machine,
            is_halted: false,
            waiters: Default::default(),
            in_flight: Default::default(),
            proposed: Default::default(),
            retiring: Default::default(),
            log: LogDriver {
                next_flush,
                written: LogNumber(0),
                synced: LogNumber(0),
                ..LogDriver::default()
            },
            superblock: SuperblockDriver { durable, ..SuperblockDriver::default() },
            checkpointing: false,
            checkpointed,
            trim: None,
            transfer: TransferDriver::new(
                self.id,
                env.plan.nodes,
                env.plan.seed ^ (u64::from(self.boot) << 20 | lane as u64) << 20,
            ),
            timer_at: Time::MAX,
        }
    }

    fn load_checkpoint(
        &self,
        lane: usize,
        checkpoint: CheckpointId,
    ) -> Result<(Machine, laneway_wire::Micros), Violation> {
        let lane_id = LaneId(lane as u32);
        if checkpoint.op == Op(0) {
            return Ok((Machine::new(lane_id), laneway_wire::Micros(0)));
        }
        let cell = self.storage.lanes[lane].snapshots.read(checkpoint.op.0);
        let snapshot = cell.and_then(|cell| cell.good());
        let restored = snapshot.and_then(|snapshot| {
            let machine = Machine::restore(lane_id, &snapshot.image)?;
            (snapshot.anchor == checkpoint).then_some((machine, snapshot.timestamp))
        });
        let missing = || {
            Violation(format!(
                "node {} lane {lane}: the checkpoint at op {} that the superblock names is not there",
                self.id, checkpoint.op
            ))
        };
        restored.ok_or_else(missing)
    }

    /// The process ends.
    pub fn stop(&mut self, env: &mut Env, ending: Ending) {
        say!(env.trace, env.queue.now(), "node {} ends: {ending:?}", self.id);
        env.totals.crashes += 1;
        let leads = self.lanes.iter().any(|lane| lane.replica.is_primary());
        env.mark(if leads { Mark::PrimaryCrashed } else { Mark::BackupCrashed });
        self.lanes.clear();
        self.routes.clear();
        self.ending = None;
        self.busy_until.fill(0);
        if ending == Ending::PowerLost {
            self.machine_boot += 1;
        }
        for lane in &mut self.storage.lanes {
            lane.end(ending, &mut env.streams.storage);
        }
        env.network.disconnect(self.id);
    }

    /// Whether the directory knows less than the node has promised.
    pub fn is_rolled_back(&self) -> bool {
        self.storage.lanes.iter().zip(&self.remembered).any(|(storage, remembered)| {
            let Some((record, ..)) = storage.open_superblock() else { return true };
            let log = recovery::classify(&storage.scan(), record.state.checkpoint);
            recovery::is_rolled_back(remembered, record.state.view.0, log.op_head)
        })
    }

    /// Whether a node that lost its directory holds what the others hold, on every lane.
    pub fn has_caught_up(&self) -> bool {
        self.is_up() && self.lanes.iter().all(|lane| lane.replica.status() != laneway_vsr::Status::Amnesiac)
    }

    /// Whether the process wants to end.
    pub fn take_ending(&mut self) -> Option<End> {
        self.ending.take()
    }

    /// A member's disk counts, or does not.
    pub fn admit(&mut self, env: &mut Env, member: usize, admitted: bool) -> Result<(), Violation> {
        for lane in 0..self.lanes.len() {
            if self.ending.is_none() {
                let replica = ReplicaId(member as u8);
                self.drive(env, lane, Event::Admission { replica, admitted })?;
            }
        }
        Ok(())
    }
}
