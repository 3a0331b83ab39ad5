use std::collections::BTreeMap;

use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use super::serve::{Serving, plan};
use super::*;
use crate::header::Identity;
use crate::vote::CheckpointId;

const STANDING: Standing = Standing { commit_min: Op(10), commit_max: Op(40), at_least: Op(30) };

/// The bytes of an artifact: short pieces that are all different, put together fast.
fn bytes_of(name: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![name as u8 ^ 0x5a; length];
    for (number, piece) in bytes.chunks_mut(64 * 1024).enumerate() {
        piece[0] = number as u8;
    }
    bytes
}

fn artifact(name: u64, length: usize) -> Artifact {
    Artifact { kind: 1, name, bytes: length as u64, hash: xxh3_128(&bytes_of(name, length)) }
}

fn offer(op: u64, lengths: &[usize]) -> CheckpointOffer {
    CheckpointOffer {
        checkpoint: CheckpointId { op: Op(op), identity: Identity(op.into()) },
        commit_max: Op(op + 10),
        artifacts: lengths.iter().enumerate().map(|(name, length)| artifact(name as u64, *length)).collect(),
    }
}

/// How a peer behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Good,
    /// Offers, then never answers again.
    Dead,
    /// Gives other bytes than it promised.
    Lying,
    /// Has no checkpoint to give.
    Busy,
}

/// A session, its peers and its staging directory. Messages are delivered at once unless dropped.
struct World {
    transfer: Transfer,
    peers: BTreeMap<ReplicaId, (Peer, CheckpointOffer)>,
    staged: BTreeMap<u64, Vec<u8>>,
    kept: Vec<u64>,
    asked: BTreeMap<ReplicaId, usize>,
    installed: Option<CheckpointOffer>,
    now: Nanos,
    /// So many of a hundred messages are lost.
    lost_percent: u64,
    dice: u64,
}

impl World {
    fn new(peers: &[(u8, Peer, CheckpointOffer)]) -> World {
        let peers: BTreeMap<_, _> =
            peers.iter().map(|(id, peer, offer)| (ReplicaId(*id), (*peer, offer.clone()))).collect();
        World {
            transfer: Transfer::new(peers.keys().copied().collect(), [], 1 << 40),
            peers,
            staged: BTreeMap::new(),
            kept: Vec::new(),
            asked: BTreeMap::new(),
            installed: None,
            now: Nanos(1_000),
            lost_percent: 0,
            dice: 1,
        }
    }

    /// Runs until an install, or for so long.
    fn run(&mut self, for_us: u64) {
        let end = self.now.after_us(for_us);
        loop {
            while let Some(effect) = self.transfer.poll_effect() {
                self.perform(effect);
            }
            match self.transfer.poll_timeout() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.transfer.handle_timeout(self.now);
                }
                _ => return,
            }
        }
    }

    fn perform(&mut self, effect: TransferEffect) {
        match effect {
            TransferEffect::Send { to, message } => self.send(to, message),
            TransferEffect::Stage { artifact, offset, bytes } => {
                let file = self.staged.entry(artifact.name).or_default();
                file.truncate(offset as usize);
                assert_eq!(file.len() as u64, offset, "bytes come in order");
                file.extend_from_slice(&bytes);
            }
            TransferEffect::Keep(artifact) => {
                assert_eq!(self.staged[&artifact.name], bytes_of(artifact.name, artifact.bytes as usize));
                self.kept.push(artifact.name);
            }
            TransferEffect::Discard(artifact) => {
                self.staged.remove(&artifact.name);
            }
            TransferEffect::Install(offer) => {
                for artifact in &offer.artifacts {
                    assert_eq!(xxh3_128(&self.staged[&artifact.name]), artifact.hash);
                }
                self.installed = Some(*offer);
                self.transfer.handle_installed();
            }
        }
    }

    fn send(&mut self, to: ReplicaId, message: TransferMessage) {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (self.dice >> 33) % 100 < self.lost_percent {
            return;
        }
        let (peer, offer) = self.peers[&to].clone();
        let is_offer = matches!(message, TransferMessage::GetCheckpoint { .. });
        let held = (peer != Peer::Busy).then_some(&offer);
        if !is_offer {
            *self.asked.entry(to).or_default() += 1;
        }
        let answer = match plan(held, &message) {
            Serving::Answer(answer) => answer,
            Serving::Read { nonce, artifact, offset, bytes } => {
                let TransferMessage::GetChunk { checkpoint, .. } = message else {
                    panic!("reads answer chunks")
                };
                let described = offer.artifacts[artifact as usize];
                let mut file = bytes_of(described.name, described.bytes as usize);
                if peer == Peer::Lying {
                    file[offset as usize] ^= 1;
                }
                let bytes = Bytes::copy_from_slice(&file[offset as usize..offset as usize + bytes as usize]);
                TransferMessage::Chunk { nonce, checkpoint, artifact, offset, bytes }
            }
            Serving::Nothing => panic!("asked for what was not offered"),
        };
        if peer == Peer::Dead && !is_offer {
            return;
        }
        self.transfer.handle(self.now, to, answer);
    }
}

const MINUTE_US: u64 = 60_000_000;
const MB: usize = CHUNK_BYTES as usize;

#[test]
fn the_newest_checkpoint_is_fetched_and_installed() {
    let mut world = World::new(&[
        (1, Peer::Good, offer(35, &[100])),
        (2, Peer::Good, offer(50, &[100, 20 * MB + 5, 3])),
        (3, Peer::Busy, offer(90, &[1])),
    ]);
    world.transfer.start(world.now, STANDING);
    world.run(MINUTE_US);
    assert_eq!(world.installed.map(|offer| offer.checkpoint.op), Some(Op(50)));
    assert_eq!(world.kept, [0, 1, 2]);
    assert_eq!(world.asked.get(&ReplicaId(1)), None);
    assert!(!world.transfer.is_active());
}

#[test]
fn no_more_chunks_are_asked_for_than_may_be_on_their_way() {
    let mut world = World::new(&[(1, Peer::Dead, offer(50, &[100 * MB]))]);
    world.transfer.start(world.now, STANDING);
    while let Some(effect) = world.transfer.poll_effect() {
        world.perform(effect);
    }
    assert_eq!(world.asked[&ReplicaId(1)], CHUNKS_IN_FLIGHT_MAX);
}

/// V93: an offer that would take something back, or of a peer that knows less, is refused and changes nothing.
#[test]
fn offers_that_take_something_back_are_refused() {
    let check = |change: &dyn Fn(&mut CheckpointOffer)| {
        let mut offer = offer(50, &[7]);
        change(&mut offer);
        check_offer(&offer, &STANDING)
    };
    assert_eq!(check(&|_| {}), Ok(()));
    let behind = OfferError::Behind { offered: Op(9), applied: Op(10) };
    assert_eq!(check(&|offer| offer.checkpoint.op = Op(9)), Err(behind));
    let useless = OfferError::Useless { offered: Op(29), needed: Op(30) };
    assert_eq!(check(&|offer| offer.checkpoint.op = Op(29)), Err(useless));
    let stale = OfferError::Stale { theirs: Op(39), ours: Op(40) };
    assert_eq!(check(&|offer| (offer.checkpoint.op, offer.commit_max) = (Op(35), Op(39))), Err(stale));
    assert_eq!(check(&|offer| offer.commit_max = Op(49)), Err(OfferError::Malformed));
    assert_eq!(check(&|offer| offer.checkpoint.op = Op(0)), Err(OfferError::Malformed), "the empty state");
    assert_eq!(check(&|offer| offer.artifacts.clear()), Err(OfferError::Malformed));
    assert_eq!(check(&|offer| offer.artifacts[0].bytes = 0), Err(OfferError::Malformed));
    let huge = ARTIFACT_BYTES_MAX + 1;
    assert_eq!(check(&|offer| offer.artifacts[0].bytes = huge), Err(OfferError::Malformed));
    let mut world = World::new(&[(1, Peer::Good, offer(20, &[7]))]);
    world.transfer.start(world.now, STANDING);
    world.run(MINUTE_US);
    assert!(world.installed.is_none() && world.staged.is_empty() && world.asked.is_empty());
}

/// V94: the dead peer is left within five rounds, and what was verified is not fetched again.
#[test]
fn a_dead_peer_is_left_and_what_was_verified_stays() {
    let lengths = [3 * MB, 2 * MB, 5];
    let mut world = World::new(&[(1, Peer::Good, offer(50, &lengths)), (2, Peer::Good, offer(50, &lengths))]);
    world.transfer.start(world.now, STANDING);
    // The first artifact and part of the second come from peer 1, then it dies.
    while world.kept.is_empty() {
        let effect = world.transfer.poll_effect().expect("the first artifact is on its way");
        world.perform(effect);
    }
    world.peers.get_mut(&ReplicaId(1)).unwrap().0 = Peer::Dead;
    let died = world.now;
    let before = world.asked[&ReplicaId(1)];
    world.run(MINUTE_US);
    assert_eq!(world.installed.as_ref().map(|offer| offer.checkpoint.op), Some(Op(50)));
    assert_eq!(world.kept, [0, 1, 2], "each artifact is kept once");
    assert!(world.now.us_since(died) <= u64::from(STALL_ROUNDS_MAX + 1) * 250_000);
    assert!(before >= 3 && world.asked[&ReplicaId(2)] <= 4, "{:?}", world.asked);
}

#[test]
fn a_peer_that_gives_other_bytes_than_promised_is_left() {
    let mut world =
        World::new(&[(1, Peer::Lying, offer(50, &[10, MB])), (2, Peer::Good, offer(50, &[10, MB]))]);
    world.transfer.start(world.now, STANDING);
    world.run(MINUTE_US);
    assert!(world.installed.is_some());
    assert_eq!(world.kept, [0, 1]);
    assert_eq!(world.asked[&ReplicaId(1)], 1);
}

#[test]
fn failures_are_tried_again_with_growing_pauses() {
    let mut world = World::new(&[(1, Peer::Lying, offer(50, &[10]))]);
    world.transfer.start(world.now, STANDING);
    world.run(10 * MINUTE_US);
    assert!((10..25).contains(&world.asked[&ReplicaId(1)]), "{:?}", world.asked);
    world.peers.get_mut(&ReplicaId(1)).unwrap().0 = Peer::Good;
    world.run(MINUTE_US + BACKOFF_US_MAX);
    assert!(world.installed.is_some());
}

#[test]
fn a_busy_peer_is_asked_again_soon() {
    let mut world = World::new(&[(1, Peer::Busy, offer(50, &[10]))]);
    world.transfer.start(world.now, STANDING);
    world.run(MINUTE_US);
    world.peers.get_mut(&ReplicaId(1)).unwrap().0 = Peer::Good;
    let free = world.now;
    world.run(MINUTE_US);
    assert!(world.installed.is_some());
    assert!(world.now.us_since(free) <= 2_000_000);
}

#[test]
fn what_is_held_already_is_not_fetched() {
    let offered = offer(50, &[10, 20]);
    let mut world = World::new(&[(1, Peer::Good, offered.clone())]);
    world.transfer = Transfer::new(vec![ReplicaId(1)], [offered.artifacts[0].hash], 3);
    world.staged.insert(0, bytes_of(0, 10));
    world.transfer.start(world.now, STANDING);
    world.run(MINUTE_US);
    assert!(world.installed.is_some());
    assert_eq!((world.kept, world.asked[&ReplicaId(1)]), (vec![1], 1));
}

#[test]
fn a_refused_install_fetches_again_and_a_raised_need_asks_again() {
    let mut world = World::new(&[(1, Peer::Good, offer(50, &[10]))]);
    world.transfer.start(world.now, STANDING);
    while let Some(effect) = world.transfer.poll_effect() {
        match effect {
            TransferEffect::Install(_) => world.transfer.handle_install_failed(world.now),
            effect => world.perform(effect),
        }
    }
    assert_eq!(world.asked[&ReplicaId(1)], 1);
    world.transfer.start(world.now, Standing { at_least: Op(51), ..STANDING });
    world.run(MINUTE_US);
    assert!(world.installed.is_none(), "the only offer is below what is needed now");
    world.transfer.cancel();
    assert!(!world.transfer.is_active() && world.transfer.poll_timeout().is_none());
}

#[test]
fn answers_to_an_earlier_boot_are_dropped() {
    let mut world = World::new(&[(1, Peer::Good, offer(50, &[10]))]);
    world.transfer.start(world.now, STANDING);
    while world.transfer.poll_effect().is_some() {}
    let stray = TransferMessage::Checkpoint { nonce: Nonce(5), offer: Some(Box::new(offer(50, &[10]))) };
    world.transfer.handle(world.now, ReplicaId(1), stray);
    let stranger =
        TransferMessage::Checkpoint { nonce: Nonce(1 << 40), offer: Some(Box::new(offer(50, &[10]))) };
    world.transfer.handle(world.now, ReplicaId(7), stranger);
    assert_eq!(world.transfer.poll_effect(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever is lost and however the peers behave: with one good peer the checkpoint is installed, and its bytes are
    /// the promised ones.
    #[test]
    fn one_good_peer_is_enough(
        lengths in proptest::collection::vec(1usize..3 * MB, 1..5),
        behaviour in proptest::collection::vec(0u8..4, 3),
        good in 0usize..3,
        lost_percent in 0u64..60,
        dice: u64,
    ) {
        let peers: Vec<_> = behaviour
            .iter()
            .enumerate()
            .map(|(place, kind)| {
                let peer = match (place == good, kind) {
                    (true, _) | (_, 0) => Peer::Good,
                    (_, 1) => Peer::Dead,
                    (_, 2) => Peer::Lying,
                    _ => Peer::Busy,
                };
                (place as u8 + 1, peer, offer(50, &lengths))
            })
            .collect();
        let mut world = World::new(&peers);
        (world.lost_percent, world.dice) = (lost_percent, dice);
        world.transfer.start(world.now, STANDING);
        world.run(20 * MINUTE_US);
        prop_assert!(world.installed.is_some());
    }
}
