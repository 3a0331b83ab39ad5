//! State transfer: a replica that its peers' logs cannot bring up to date fetches a whole checkpoint. Source: cluster
//! specification, 2.13.
//!
//! The session asks the members for offers, takes the best, fetches its artifacts in chunks, several at a time, checks
//! each against its hash, and hands the whole to the driver to install ([`install`] says in which order). Whatever was
//! verified stays, also when the peer dies or another checkpoint is chosen. [`serve`] is the side that gives.

pub mod install;
pub mod serve;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use laneway_wire::{Nanos, Op, ReplicaId};
use xxhash_rust::xxh3::Xxh3Default;

use crate::message::{Artifact, CheckpointOffer, Nonce, TransferMessage};
use crate::vote::CheckpointId;

/// Bytes of one chunk.
pub const CHUNK_BYTES: u64 = 1024 * 1024;

/// Chunks that may be on their way.
pub const CHUNKS_IN_FLIGHT_MAX: usize = 8;

/// Rounds without a byte after which a peer is left. Source: V94.
pub const STALL_ROUNDS_MAX: u32 = 5;

/// Length of a round.
const ROUND_US: u64 = 250_000;

/// Most artifacts of one offer: partitions of a lane times segments, with room.
pub const ARTIFACTS_MAX: usize = 1 << 20;

/// Longest artifact: a segment of the largest size with a whole batch behind its bound, with room.
pub const ARTIFACT_BYTES_MAX: u64 = 8 << 30;

/// First pause after a failure; doubles up to [`BACKOFF_US_MAX`].
const BACKOFF_US: u64 = 500_000;

/// Longest pause between two attempts.
pub const BACKOFF_US_MAX: u64 = 60_000_000;

/// What a replica holds when it asks for more. An offer that would take any of it back is refused (V93).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Applied here.
    pub commit_min: Op,
    /// Known to be committed.
    pub commit_max: Op,
    /// The lowest checkpoint that helps.
    pub at_least: Op,
}

/// Why an offer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// It is behind what is applied here.
    #[error("the checkpoint at op {offered} is behind op {applied}, which is applied here")]
    Behind {
        /// Its op.
        offered: Op,
        /// Ours.
        applied: Op,
    },
    /// It does not help.
    #[error("the checkpoint at op {offered} is below op {needed}, which is needed")]
    Useless {
        /// Its op.
        offered: Op,
        /// The lowest that helps.
        needed: Op,
    },
    /// Its sender knows less than we do.
    #[error("its sender knows {theirs} as committed, we know {ours}")]
    Stale {
        /// The sender's commit number.
        theirs: Op,
        /// Ours.
        ours: Op,
    },
    /// Its numbers are out of bounds or contradict each other.
    #[error("the offer is malformed")]
    Malformed,
}

/// Whether an offer may be taken by a replica that stands here.
pub fn check_offer(offer: &CheckpointOffer, standing: &Standing) -> Result<(), OfferError> {
    let offered = offer.checkpoint.op;
    let sane = offered > Op(0)
        && !offer.artifacts.is_empty()
        && offer.artifacts.len() <= ARTIFACTS_MAX
        && offer.artifacts.iter().all(|artifact| (1..=ARTIFACT_BYTES_MAX).contains(&artifact.bytes))
        && offered <= offer.commit_max;
    if !sane {
        return Err(OfferError::Malformed);
    }
    if offered < standing.commit_min {
        return Err(OfferError::Behind { offered, applied: standing.commit_min });
    }
    if offered < standing.at_least {
        return Err(OfferError::Useless { offered, needed: standing.at_least });
    }
    if offer.commit_max < standing.commit_max {
        return Err(OfferError::Stale { theirs: offer.commit_max, ours: standing.commit_max });
    }
    Ok(())
}

/// What the session asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferEffect {
    /// Send to a member, inside of [`crate::message::Message::Transfer`].
    Send {
        /// The member.
        to: ReplicaId,
        /// What.
        message: TransferMessage,
    },
    /// Put bytes into the staging file of an artifact. They come in the order of their offsets, from 0.
    Stage {
        /// Which artifact.
        artifact: Artifact,
        /// Where.
        offset: u64,
        /// What.
        bytes: Bytes,
    },
    /// The staged artifact is whole and matches its hash: keep it, whatever happens to this attempt.
    Keep(Artifact),
    /// The staged artifact does not match its hash: throw it away.
    Discard(Artifact),
    /// Every artifact is held: install the checkpoint. Answered by [`Transfer::handle_installed`] or
    /// [`Transfer::handle_install_failed`].
    Install(Box<CheckpointOffer>),
}

/// State transfer of one replica. Lives with the replica, not with an attempt: what was learned about failures and what
/// was fetched outlives both.
#[derive(Debug)]
pub struct Transfer {
    peers: Vec<ReplicaId>,
    standing: Standing,
    stage: Stage,
    /// Hashes of artifacts that are held whole: staged and verified, or part of our own state.
    held: BTreeSet<u128>,
    /// An artifact that is not whole yet; goes on with the next peer that has the same.
    partial: Option<Partial>,
    /// Attempts that failed since the last install.
    failures: u32,
    /// Nonces count up from the boot's own start, so that answers to an earlier boot match nothing.
    nonce_next: u64,
    effects: VecDeque<TransferEffect>,
}

#[derive(Debug)]
enum Stage {
    Idle,
    /// After a failure.
    Pausing {
        until: Nanos,
    },
    Asking {
        nonce: Nonce,
        until: Nanos,
        offers: BTreeMap<ReplicaId, CheckpointOffer>,
    },
    Fetching(Box<Fetching>),
    Installing(Box<CheckpointOffer>),
}

#[derive(Debug)]
struct Fetching {
    offer: CheckpointOffer,
    /// Members that offered this checkpoint; the first is being asked.
    peers: VecDeque<ReplicaId>,
    /// The artifact that is being fetched.
    artifact: usize,
    /// Chunks that were asked for: nonce to offset and length.
    asked: BTreeMap<Nonce, (u64, u64)>,
    /// Where the next chunk to ask for begins.
    next: u64,
    /// Chunks that came before the ones below them.
    early: BTreeMap<u64, Bytes>,
    round_ends: Nanos,
    progressed: bool,
    stalled: u32,
}

struct Partial {
    artifact: Artifact,
    staged: u64,
    hash: Xxh3Default,
}

impl std::fmt::Debug for Partial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes of {:?}", self.staged, self.artifact.bytes, self.artifact)
    }
}

impl Transfer {
    /// A replica that has nothing to fetch. `peers`: the other members. `held`: hashes of what the staging directory
    /// and the own state hold whole. `seed`: drawn anew at every start.
    pub fn new(peers: Vec<ReplicaId>, held: impl IntoIterator<Item = u128>, seed: u64) -> Transfer {
        Transfer {
            peers,
            standing: Standing::default(),
            stage: Stage::Idle,
            held: held.into_iter().collect(),
            partial: None,
            failures: 0,
            nonce_next: seed,
            effects: VecDeque::new(),
        }
    }

    /// Whether a transfer is under way.
    pub fn is_active(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<TransferEffect> {
        self.effects.pop_front()
    }

    /// When [`Transfer::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        match &self.stage {
            Stage::Idle | Stage::Installing(_) => None,
            Stage::Pausing { until } | Stage::Asking { until, .. } => Some(*until),
            Stage::Fetching(fetching) => Some(fetching.round_ends),
        }
    }

    /// Begins, or raises what an attempt under way has to reach. An attempt that already reaches it goes on.
    pub fn start(&mut self, now: Nanos, standing: Standing) {
        self.standing = standing;
        match &self.stage {
            Stage::Idle => self.ask(now),
            Stage::Fetching(fetching) if check_offer(&fetching.offer, &standing).is_err() => self.ask(now),
            Stage::Pausing { .. } | Stage::Asking { .. } | Stage::Fetching(_) | Stage::Installing(_) => {}
        }
    }

    /// The log can do it after all. An install that has begun goes on: its files are half in place.
    pub fn cancel(&mut self) {
        if !matches!(self.stage, Stage::Installing(_)) {
            self.stage = Stage::Idle;
        }
    }

    /// The checkpoint is in place, durably.
    pub fn handle_installed(&mut self) {
        assert!(matches!(self.stage, Stage::Installing(_)), "nothing is being installed");
        self.stage = Stage::Idle;
        self.failures = 0;
        self.partial = None;
    }

    /// The contents were refused: they do not parse, or would take back offsets that are held here.
    pub fn handle_install_failed(&mut self, now: Nanos) {
        let Stage::Installing(offer) = std::mem::replace(&mut self.stage, Stage::Idle) else {
            panic!("nothing is being installed");
        };
        // What was refused once is not fetched from the same bytes again.
        for artifact in &offer.artifacts {
            self.held.remove(&artifact.hash);
        }
        self.fail(now);
    }

    /// A member answered.
    pub fn handle(&mut self, now: Nanos, from: ReplicaId, message: TransferMessage) {
        match message {
            TransferMessage::Checkpoint { nonce, offer } => self.handle_offer(now, from, nonce, offer),
            TransferMessage::Chunk { nonce, checkpoint, artifact, offset, bytes } => {
                self.handle_chunk(now, from, nonce, (checkpoint, artifact, offset), bytes);
            }
            // Questions are for the side that gives.
            TransferMessage::GetCheckpoint { .. } | TransferMessage::GetChunk { .. } => {}
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        match &mut self.stage {
            Stage::Idle | Stage::Installing(_) => {}
            Stage::Pausing { .. } => self.ask(now),
            Stage::Asking { .. } => self.choose(now),
            Stage::Fetching(fetching) => {
                fetching.round_ends = now.after_us(ROUND_US);
                fetching.stalled = if fetching.progressed { 0 } else { fetching.stalled + 1 };
                let progressed = std::mem::take(&mut fetching.progressed);
                if fetching.stalled >= STALL_ROUNDS_MAX {
                    self.leave_peer(now);
                } else if !progressed {
                    // A question or its answer was lost.
                    fetching.forget_questions(self.partial.as_ref().map_or(0, |partial| partial.staged));
                    self.ask_for_chunks();
                }
            }
        }
    }

    fn ask(&mut self, now: Nanos) {
        let nonce = self.nonce();
        self.stage = Stage::Asking { nonce, until: now.after_us(ROUND_US), offers: BTreeMap::new() };
        for to in self.peers.clone() {
            let message = TransferMessage::GetCheckpoint { nonce, commit_min: self.standing.commit_min };
            self.effects.push_back(TransferEffect::Send { to, message });
        }
    }

    fn handle_offer(
        &mut self,
        now: Nanos,
        from: ReplicaId,
        asked: Nonce,
        offer: Option<Box<CheckpointOffer>>,
    ) {
        let Stage::Asking { nonce, offers, .. } = &mut self.stage else { return };
        if asked != *nonce || !self.peers.contains(&from) {
            return;
        }
        // A busy peer, or one without a checkpoint, is no failure: the end of the round finds what there is.
        let Some(offer) = offer else { return };
        if check_offer(&offer, &self.standing).is_ok() {
            offers.insert(from, *offer);
        }
        if offers.len() == self.peers.len() {
            self.choose(now);
        }
    }

    /// Takes the newest checkpoint, from all who have it.
    fn choose(&mut self, now: Nanos) {
        let Stage::Asking { offers, .. } = &mut self.stage else { return };
        let offers = std::mem::take(offers);
        let best = offers.values().max_by_key(|offer| offer.checkpoint.op).cloned();
        let Some(offer) = best else {
            // Nobody has one now. Asking costs little, and a busy peer is free soon.
            self.stage = Stage::Pausing { until: now.after_us(BACKOFF_US) };
            return;
        };
        let same = |(peer, other): (&ReplicaId, &CheckpointOffer)| {
            (other.checkpoint == offer.checkpoint && other.artifacts == offer.artifacts).then_some(*peer)
        };
        let peers = offers.iter().filter_map(same).collect();
        self.stage = Stage::Fetching(Box::new(Fetching {
            offer,
            peers,
            artifact: 0,
            asked: BTreeMap::new(),
            next: 0,
            early: BTreeMap::new(),
            round_ends: now.after_us(ROUND_US),
            progressed: false,
            stalled: 0,
        }));
        self.next_artifact();
    }

    /// Goes to the first artifact that is not held; installs when there is none.
    fn next_artifact(&mut self) {
        let Stage::Fetching(fetching) = &mut self.stage else { return };
        while let Some(artifact) = fetching.offer.artifacts.get(fetching.artifact).copied() {
            if self.held.contains(&artifact.hash) {
                fetching.artifact += 1;
                continue;
            }
            if self.partial.as_ref().is_none_or(|partial| partial.artifact != artifact) {
                self.partial = Some(Partial { artifact, staged: 0, hash: Xxh3Default::new() });
            }
            let partial = self.partial.as_ref().expect("it was just set");
            fetching.forget_questions(partial.staged);
            self.ask_for_chunks();
            return;
        }
        let Stage::Fetching(fetching) = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        let offer = Box::new(fetching.offer);
        self.stage = Stage::Installing(offer.clone());
        self.effects.push_back(TransferEffect::Install(offer));
    }

    fn ask_for_chunks(&mut self) {
        let nonces = self.nonce_next;
        let Stage::Fetching(fetching) = &mut self.stage else { return };
        let artifact = fetching.offer.artifacts[fetching.artifact];
        let to = *fetching.peers.front().expect("a fetch has a peer");
        let mut used = 0;
        while fetching.asked.len() + fetching.early.len() < CHUNKS_IN_FLIGHT_MAX
            && fetching.next < artifact.bytes
        {
            let offset = fetching.next;
            let bytes = CHUNK_BYTES.min(artifact.bytes - offset);
            let nonce = Nonce(nonces.wrapping_add(used));
            used += 1;
            fetching.asked.insert(nonce, (offset, bytes));
            fetching.next += bytes;
            let message = TransferMessage::GetChunk {
                nonce,
                checkpoint: fetching.offer.checkpoint,
                artifact: fetching.artifact as u32,
                offset,
                bytes: bytes as u32,
            };
            self.effects.push_back(TransferEffect::Send { to, message });
        }
        self.nonce_next = nonces.wrapping_add(used);
    }

    fn handle_chunk(
        &mut self,
        now: Nanos,
        from: ReplicaId,
        nonce: Nonce,
        place: (CheckpointId, u32, u64),
        bytes: Bytes,
    ) {
        let Stage::Fetching(fetching) = &mut self.stage else { return };
        let Some((offset, length)) = fetching.asked.get(&nonce).copied() else { return };
        let expected = (fetching.offer.checkpoint, fetching.artifact as u32, offset);
        if fetching.peers.front() != Some(&from) || place != expected || bytes.len() as u64 != length {
            // Not what was asked for. An empty one is no progress either: the stall counts.
            return;
        }
        fetching.asked.remove(&nonce);
        fetching.progressed = true;
        fetching.early.insert(offset, bytes);
        self.stage_in_order();
        let whole = self.partial.as_ref().is_some_and(|partial| partial.staged == partial.artifact.bytes);
        match whole {
            true => self.finish_artifact(now),
            false => self.ask_for_chunks(),
        }
    }

    fn stage_in_order(&mut self) {
        let Stage::Fetching(fetching) = &mut self.stage else { return };
        let partial = self.partial.as_mut().expect("a fetch has an artifact");
        while let Some(bytes) = fetching.early.remove(&partial.staged) {
            partial.hash.update(&bytes);
            let offset = partial.staged;
            partial.staged += bytes.len() as u64;
            self.effects.push_back(TransferEffect::Stage { artifact: partial.artifact, offset, bytes });
        }
    }

    fn finish_artifact(&mut self, now: Nanos) {
        let partial = self.partial.take().expect("a fetch has an artifact");
        if partial.hash.digest128() == partial.artifact.hash {
            self.held.insert(partial.artifact.hash);
            self.effects.push_back(TransferEffect::Keep(partial.artifact));
            self.next_artifact();
            return;
        }
        self.effects.push_back(TransferEffect::Discard(partial.artifact));
        // Its peer gave bytes that it did not promise: the next one is asked, from the start of the artifact.
        self.leave_peer(now);
    }

    /// Goes on with the next member that has the same checkpoint. What was fetched stays.
    fn leave_peer(&mut self, now: Nanos) {
        let Stage::Fetching(fetching) = &mut self.stage else { return };
        fetching.peers.pop_front();
        fetching.stalled = 0;
        match fetching.peers.is_empty() {
            true => self.fail(now),
            false => self.next_artifact(),
        }
    }

    fn fail(&mut self, now: Nanos) {
        let doublings = self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let pause = (BACKOFF_US << doublings).min(BACKOFF_US_MAX);
        self.stage = Stage::Pausing { until: now.after_us(pause) };
    }

    fn nonce(&mut self) -> Nonce {
        let nonce = Nonce(self.nonce_next);
        self.nonce_next = self.nonce_next.wrapping_add(1);
        nonce
    }
}

impl Fetching {
    /// Asks again for everything that is not here in order.
    fn forget_questions(&mut self, staged: u64) {
        self.asked.clear();
        self.early.clear();
        self.next = staged;
    }
}

#[cfg(test)]
mod tests;
