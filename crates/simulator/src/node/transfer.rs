//! Giving checkpoints away and fetching them.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use laneway_vsr::message::{Artifact, CheckpointOffer};
use laneway_vsr::transfer::serve::{self, Serving};
use laneway_vsr::transfer::{Standing, Transfer, TransferEffect};
use laneway_vsr::{Event, Message, TransferMessage};
use laneway_wire::{Nanos, Op, ReplicaId};
use xxhash_rust::xxh3::xxh3_128;

use super::Node;
use crate::coverage::Mark;
use crate::disk::{Fate, WriteId};
use crate::env::{Env, Io};
use crate::machine::{Image, Machine};
use crate::oracle::Violation;
use crate::say;
use crate::storage::Snapshot;

/// Bytes of one part of a checkpoint: small, so that a transfer has several.
const PART_BYTES: usize = 700;

/// How long a replica waits for the first byte of a checkpoint before it goes back to the log, microseconds.
const PATIENCE_US: u64 = 3_000_000;

/// State transfer of one lane.
#[derive(Debug)]
pub(super) struct TransferDriver {
    pub(super) session: Transfer,
    /// What was fetched, by its hash.
    parts: BTreeMap<u128, BytesMut>,
    /// When the replica asked for a checkpoint.
    started_at: Nanos,
    /// What is being put in place.
    installing: Option<(Box<CheckpointOffer>, Box<Machine>)>,
}

impl TransferDriver {
    /// Nothing is fetched. `members`: how many, this one included.
    pub(super) fn new(node: usize, members: usize, seed: u64) -> Self {
        let peers = (0..members).filter(|peer| *peer != node).map(|peer| ReplicaId(peer as u8)).collect();
        Self {
            session: Transfer::new(peers, [], seed),
            parts: BTreeMap::new(),
            started_at: Nanos(0),
            installing: None,
        }
    }
}

impl Node {
    /// The log cannot bring a lane up to date.
    pub(super) fn start_transfer(
        &mut self,
        env: &mut Env,
        lane: usize,
        at_least: Op,
    ) -> Result<(), Violation> {
        let now = self.monotonic(env);
        let current = &mut self.lanes[lane];
        let frontier = current.replica.frontier();
        let standing =
            Standing { commit_min: frontier.commit_min, commit_max: frontier.commit_max, at_least };
        say!(
            env.trace,
            env.queue.now(),
            "node {} lane {lane}: fetches a checkpoint at or above {at_least}",
            self.id
        );
        current.transfer.started_at = now;
        current.transfer.session.start(now, standing);
        self.pump_transfer(env, lane)
    }

    /// State transfer is no longer needed.
    pub(super) fn cancel_transfer(&mut self, lane: usize) {
        self.lanes[lane].transfer.session.cancel();
    }

    /// A peer answered.
    pub(super) fn deliver_transfer(
        &mut self,
        env: &mut Env,
        lane: usize,
        from: ReplicaId,
        message: TransferMessage,
    ) -> Result<(), Violation> {
        let now = self.monotonic(env);
        self.lanes[lane].transfer.session.handle(now, from, message);
        self.pump_transfer(env, lane)
    }

    /// Time passed.
    pub(super) fn transfer_timeout(&mut self, env: &mut Env, lane: usize) -> Result<(), Violation> {
        let now = self.monotonic(env);
        let transfer = &mut self.lanes[lane].transfer;
        if transfer.parts.is_empty() && now.us_since(transfer.started_at) > PATIENCE_US {
            // Nobody has a checkpoint: the log is still the way, and the replica has to look for it again.
            transfer.session.cancel();
            return self.drive(env, lane, Event::TransferFailed);
        }
        transfer.session.handle_timeout(now);
        self.pump_transfer(env, lane)
    }

    fn pump_transfer(&mut self, env: &mut Env, lane: usize) -> Result<(), Violation> {
        while let Some(effect) = self.lanes[lane].transfer.session.poll_effect() {
            match effect {
                TransferEffect::Send { to, message } => self.send_transfer(env, lane, to, message),
                TransferEffect::Stage { artifact, offset, bytes } => {
                    let part = self.lanes[lane].transfer.parts.entry(artifact.hash).or_default();
                    part.truncate(offset as usize);
                    part.extend_from_slice(&bytes);
                }
                TransferEffect::Keep(_) => {}
                TransferEffect::Discard(artifact) => {
                    self.lanes[lane].transfer.parts.remove(&artifact.hash);
                }
                TransferEffect::Install(offer) => self.install(env, lane, offer),
            }
        }
        Ok(())
    }

    fn send_transfer(&self, env: &mut Env, lane: usize, to: ReplicaId, message: TransferMessage) {
        let view = self.lanes[lane].replica.view();
        env.send(self.id, usize::from(to.0), lane, Message::Transfer { view, message });
    }

    /// Puts a fetched checkpoint on the disk.
    fn install(&mut self, env: &mut Env, lane: usize, offer: Box<CheckpointOffer>) {
        let now = self.monotonic(env);
        let current = &mut self.lanes[lane];
        let mut bytes = BytesMut::new();
        for artifact in &offer.artifacts {
            bytes.extend_from_slice(&current.transfer.parts[&artifact.hash]);
        }
        let image = Image(bytes.freeze());
        let machine = Machine::restore(current.lane_id(), &image);
        let Some(machine) = machine.filter(|machine| machine.applied() == offer.checkpoint.op) else {
            current.transfer.session.handle_install_failed(now);
            return;
        };
        let op = offer.checkpoint.op;
        let snapshot =
            Snapshot { anchor: offer.checkpoint, timestamp: machine.timestamp(), image: Rc::new(image) };
        current.transfer.installing = Some((offer, Box::new(machine)));
        let id = self.storage.lanes[lane].snapshots.submit(op.0, snapshot);
        let latency = env.write_latency() + env.flush_latency();
        let at = self.disk_delay(env, latency);
        self.plan_io(env, lane, at, Io::Install { id });
    }

    /// A fetched checkpoint is on the disk: it takes the place of the state.
    pub(super) fn installed(&mut self, env: &mut Env, lane: usize, id: WriteId) -> Result<(), Violation> {
        let snapshots = &mut self.storage.lanes[lane].snapshots;
        snapshots.finish(id, Fate::Done);
        let mark = snapshots.begin_flush();
        snapshots.finish_flush(mark, false);
        let now = self.monotonic(env);
        let current = &mut self.lanes[lane];
        let (offer, machine) = current.transfer.installing.take().expect("an install was under way");
        if machine.applied() < current.machine.applied() {
            // The log was faster after all.
            current.transfer.session.handle_install_failed(now);
            return self.drive(env, lane, Event::TransferFailed);
        }
        current.transfer.session.handle_installed();
        current.transfer.parts.clear();
        let timestamp = machine.timestamp();
        say!(
            env.trace,
            env.queue.now(),
            "node {} lane {lane}: installs the checkpoint at {}",
            self.id,
            offer.checkpoint.op
        );
        self.release_waiters(env, lane);
        let current = &mut self.lanes[lane];
        current.machine = *machine;
        current.checkpointed = offer.checkpoint.op;
        env.totals.transfers += 1;
        env.mark(Mark::Transferred);
        if lane == 0 {
            self.refresh_routes();
        }
        let event = Event::CheckpointInstalled { checkpoint: offer.checkpoint, timestamp };
        self.drive(env, lane, event)
    }

    /// A peer asks for a checkpoint or for bytes of one.
    pub(super) fn serve_transfer(
        &mut self,
        env: &mut Env,
        lane: usize,
        to: ReplicaId,
        question: &TransferMessage,
    ) {
        let held = self.held_checkpoint(lane);
        match serve::plan(held.as_ref().map(|(offer, _)| offer), question) {
            Serving::Answer(answer) => self.send_transfer(env, lane, to, answer),
            Serving::Read { nonce, artifact, offset, bytes } => {
                let Some((offer, image)) = held else { return };
                let from = artifact as usize * PART_BYTES + offset as usize;
                let bytes = image.slice(from..from + bytes as usize);
                let checkpoint = offer.checkpoint;
                let chunk = TransferMessage::Chunk { nonce, checkpoint, artifact, offset, bytes };
                self.send_transfer(env, lane, to, chunk);
            }
            Serving::Nothing => {}
        }
    }

    /// The durable checkpoint that the superblock names, in parts.
    fn held_checkpoint(&self, lane: usize) -> Option<(CheckpointOffer, Bytes)> {
        let current = &self.lanes[lane];
        let (_, state) = current.superblock.durable.as_ref()?;
        let snapshot = self.storage.lanes[lane].snapshots.read(state.checkpoint.op.0)?.good()?;
        let image = snapshot.image.0.clone();
        let artifacts = image
            .chunks(PART_BYTES)
            .enumerate()
            .map(|(number, part)| Artifact {
                kind: 1,
                name: number as u64,
                bytes: part.len() as u64,
                hash: xxh3_128(part),
            })
            .collect();
        let commit_max = current.replica.frontier().commit_max;
        let offer = CheckpointOffer { checkpoint: snapshot.anchor, commit_max, artifacts };
        Some((offer, image))
    }
}
