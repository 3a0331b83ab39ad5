//! What is known of an entry without its body: its place, its parent and the hash that names it.
//!
//! The **identity** of an entry covers its body and its parent, so that one acknowledged identity stands for the whole
//! log below it. It does not cover the view and the commit number, because a new primary sends an inherited entry again
//! as it is: the entry keeps its name.

use laneway_wire::{LaneId, Micros, Op, ReplicaId};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use crate::entry::{Durability, EntryBody, View};

/// Bytes of an encoded [`Header`].
pub const HEADER_BYTES: usize = 96;

/// Identity of a cluster; the same on all of its nodes, and part of everything that they exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

/// Random identity of a data directory, drawn when it is made. Tells a replaced or emptied disk from the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u128);

/// Number of a member list of a lane, from 0. Grows with every change of membership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// Name of an entry: a hash over its place, its parent and its body. Never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub u128);

impl Identity {
    /// The parent of a lane's first entry. Every lane of every cluster has its own, so that two histories never join.
    pub fn root(cluster: ClusterId, lane: LaneId) -> Identity {
        let mut input = [0u8; 20];
        input[..16].copy_from_slice(&cluster.0.to_le_bytes());
        input[16..].copy_from_slice(&lane.0.to_le_bytes());
        Identity(never_zero(xxh3_128(&input)))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The first half is enough for a person, and the second is in the debug form.
        write!(f, "{:016x}", (self.0 >> 64) as u64)
    }
}

/// Prefixes up to this size are hashed in one call, which spares setting up the large streaming state.
const PREFIX_BYTES_GATHERED: usize = 240;

/// Hash of both parts of a body and of where they meet. The batch takes part with its length and the checksum that it
/// carries, which was verified over its bytes where it came in; hashing megabytes a second time would buy nothing.
pub fn hash_body(body: &EntryBody) -> u128 {
    let mut input = [0u8; 16 + PREFIX_BYTES_GATHERED];
    // Lengths are below 2^32, see Header::seal.
    put(&mut input, 0, (body.prefix.len() as u32).to_le_bytes());
    put(&mut input, 4, (body.batch.len() as u32).to_le_bytes());
    put(&mut input, 8, body.batch_checksum.to_le_bytes());
    match input[16..].get_mut(..body.prefix.len()) {
        Some(room) => {
            room.copy_from_slice(&body.prefix);
            xxh3_128(&input[..16 + body.prefix.len()])
        }
        None => {
            let mut hash = Xxh3Default::new();
            hash.update(&input[..16]);
            hash.update(&body.prefix);
            hash.digest128()
        }
    }
}

/// What the primary decides about an entry before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Its number.
    pub op: Op,
    /// The identity of the entry before it; [`Identity::root`] for op 1.
    pub parent: Identity,
    /// The view in which it is proposed.
    pub view: View,
    /// The commit number of the primary then.
    pub commit: Op,
    /// When the primary took it.
    pub timestamp: Micros,
    /// The member list under which it was proposed.
    pub epoch: Epoch,
    /// Who proposed it.
    pub primary: ReplicaId,
    /// What its acknowledgement promises.
    pub durability: Durability,
}

/// An entry without its body. Made by the primary ([`Header::seal`]) or read from a peer or a disk, which proves
/// nothing before [`Header::is_sound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name.
    pub identity: Identity,
    /// See [`Draft::parent`].
    pub parent: Identity,
    /// See [`hash_body`].
    pub body_hash: u128,
    /// See [`Draft::op`].
    pub op: Op,
    /// See [`Draft::timestamp`].
    pub timestamp: Micros,
    /// See [`Draft::commit`]. Not covered by the identity.
    pub commit: Op,
    /// See [`Draft::view`]. Not covered by the identity.
    pub view: View,
    /// See [`Draft::epoch`].
    pub epoch: Epoch,
    /// Bytes of both parts of the body.
    pub body_bytes: u32,
    /// Bytes of the first part.
    pub prefix_bytes: u32,
    /// See [`Draft::durability`].
    pub durability: Durability,
    /// See [`Draft::primary`].
    pub primary: ReplicaId,
}

impl Header {
    /// Names an entry.
    ///
    /// # Panics
    /// When a part of the body is longer than a u32 can say; proposals are bounded far below.
    pub fn seal(cluster: ClusterId, lane: LaneId, draft: Draft, body: &EntryBody) -> Header {
        let bytes = |length: usize| u32::try_from(length).expect("the size of a proposal is bounded");
        let mut header = Header {
            identity: Identity::default(),
            parent: draft.parent,
            body_hash: hash_body(body),
            op: draft.op,
            timestamp: draft.timestamp,
            commit: draft.commit,
            view: draft.view,
            epoch: draft.epoch,
            body_bytes: bytes(body.bytes()),
            prefix_bytes: bytes(body.prefix.len()),
            durability: draft.durability,
            primary: draft.primary,
        };
        header.identity = header.name(cluster, lane);
        header
    }

    /// Whether the name is the one of these fields in this lane of this cluster.
    pub fn is_sound(&self, cluster: ClusterId, lane: LaneId) -> bool {
        self.op > Op(0) && self.prefix_bytes <= self.body_bytes && self.identity == self.name(cluster, lane)
    }

    /// Whether a body is the one that the header names.
    pub fn names(&self, body: &EntryBody) -> bool {
        self.body_bytes as usize == body.bytes()
            && self.prefix_bytes as usize == body.prefix.len()
            && self.body_hash == hash_body(body)
    }

    /// Whether this is the entry after `before`.
    pub fn follows(&self, before: &Header) -> bool {
        self.op.0 == before.op.0 + 1 && self.parent == before.identity
    }

    /// The bytes of the header. Source: `docs/consensus.md`, entry header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut block = [0u8; HEADER_BYTES];
        put(&mut block, 0, self.identity.0.to_le_bytes());
        put(&mut block, 16, self.parent.0.to_le_bytes());
        put(&mut block, 32, self.body_hash.to_le_bytes());
        put(&mut block, 48, self.op.0.to_le_bytes());
        put(&mut block, 56, self.timestamp.0.to_le_bytes());
        put(&mut block, 64, self.commit.0.to_le_bytes());
        put(&mut block, 72, self.view.0.to_le_bytes());
        put(&mut block, 76, self.epoch.0.to_le_bytes());
        put(&mut block, 80, self.body_bytes.to_le_bytes());
        put(&mut block, 84, self.prefix_bytes.to_le_bytes());
        block[88] = durability_code(self.durability);
        block[89] = self.primary.0;
        block
    }

    /// Reads a header. `None` when bytes are missing, a reserved byte is not zero or the class is unknown; whether the
    /// name is right is asked separately.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let block: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        if block[90..].iter().any(|byte| *byte != 0) {
            return None;
        }
        Some(Header {
            identity: Identity(u128::from_le_bytes(at(block, 0)?)),
            parent: Identity(u128::from_le_bytes(at(block, 16)?)),
            body_hash: u128::from_le_bytes(at(block, 32)?),
            op: Op(u64::from_le_bytes(at(block, 48)?)),
            timestamp: Micros(u64::from_le_bytes(at(block, 56)?)),
            commit: Op(u64::from_le_bytes(at(block, 64)?)),
            view: View(u32::from_le_bytes(at(block, 72)?)),
            epoch: Epoch(u32::from_le_bytes(at(block, 76)?)),
            body_bytes: u32::from_le_bytes(at(block, 80)?),
            prefix_bytes: u32::from_le_bytes(at(block, 84)?),
            durability: match block[88] {
                1 => Durability::Replicated,
                2 => Durability::Persisted,
                _ => return None,
            },
            primary: ReplicaId(block[89]),
        })
    }

    /// The hash over everything that never changes about the entry, wherever and whenever it is sent again.
    fn name(&self, cluster: ClusterId, lane: LaneId) -> Identity {
        let mut input = [0u8; HEADER_BYTES];
        put(&mut input, 0, cluster.0.to_le_bytes());
        put(&mut input, 16, self.parent.0.to_le_bytes());
        put(&mut input, 32, self.body_hash.to_le_bytes());
        put(&mut input, 48, self.op.0.to_le_bytes());
        put(&mut input, 56, self.timestamp.0.to_le_bytes());
        put(&mut input, 64, lane.0.to_le_bytes());
        put(&mut input, 68, self.epoch.0.to_le_bytes());
        put(&mut input, 72, self.body_bytes.to_le_bytes());
        put(&mut input, 76, self.prefix_bytes.to_le_bytes());
        input[80] = durability_code(self.durability);
        input[81] = self.primary.0;
        Identity(never_zero(xxh3_128(&input)))
    }
}

/// Zero stands for "unknown" in messages, so no name is zero.
fn never_zero(hash: u128) -> u128 {
    hash.max(1)
}

fn durability_code(durability: Durability) -> u8 {
    match durability {
        Durability::Replicated => 1,
        Durability::Persisted => 2,
    }
}

/// Writes `field` at a place that the caller's layout guarantees to exist.
pub(crate) fn put<const N: usize>(block: &mut [u8], at: usize, field: [u8; N]) {
    block[at..at + N].copy_from_slice(&field);
}

/// The field at a place; `None` past the end.
pub(crate) fn at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLUSTER: ClusterId = ClusterId(7);
    const LANE: LaneId = LaneId(3);

    fn draft() -> impl Strategy<Value = Draft> {
        (
            1u64..,
            any::<u128>(),
            any::<u32>(),
            any::<u64>(),
            any::<u64>(),
            any::<u32>(),
            any::<u8>(),
            any::<bool>(),
        )
            .prop_map(|(op, parent, view, commit, timestamp, epoch, primary, persisted)| Draft {
                op: Op(op),
                parent: Identity(parent),
                view: View(view),
                commit: Op(commit),
                timestamp: Micros(timestamp),
                epoch: Epoch(epoch),
                primary: ReplicaId(primary),
                durability: if persisted { Durability::Persisted } else { Durability::Replicated },
            })
    }

    fn body() -> impl Strategy<Value = EntryBody> {
        let part = || proptest::collection::vec(any::<u8>(), 0..40);
        (part(), part(), any::<u64>()).prop_map(|(prefix, batch, checksum)| EntryBody {
            prefix: prefix.into(),
            batch: batch.into(),
            batch_checksum: checksum,
        })
    }

    proptest! {
        #[test]
        fn round_trips(draft in draft(), body in body()) {
            let header = Header::seal(CLUSTER, LANE, draft, &body);
            prop_assert_eq!(Header::parse(&header.encode()), Some(header));
            prop_assert!(header.is_sound(CLUSTER, LANE) && header.names(&body));
            prop_assert!(!header.is_sound(ClusterId(8), LANE) && !header.is_sound(CLUSTER, LaneId(4)));
        }

        #[test]
        fn a_name_covers_everything_but_view_and_commit(draft in draft(), body in body(), bit in 0..HEADER_BYTES * 8) {
            let header = Header::seal(CLUSTER, LANE, draft, &body);
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let changed = Header::parse(&bytes).is_some_and(|header| header.is_sound(CLUSTER, LANE));
            prop_assert_eq!(changed, (64..76).contains(&(bit / 8)));
        }

        #[test]
        fn another_body_is_not_named(draft in draft(), body in body(), other in body()) {
            let header = Header::seal(CLUSTER, LANE, draft, &body);
            prop_assert_eq!(header.names(&other), body == other);
        }

        #[test]
        fn every_byte_of_a_prefix_of_any_size_counts(length in 1usize..600, place in any::<prop::sample::Index>()) {
            let mut prefix = vec![7u8; length];
            let hash = hash_body(&EntryBody::operation(prefix.clone()));
            prefix[place.index(length)] ^= 1;
            prop_assert_ne!(hash_body(&EntryBody::operation(prefix)), hash);
        }
    }

    #[test]
    fn the_place_where_the_parts_meet_is_part_of_the_body() {
        let joined = EntryBody { prefix: "ab".into(), batch: "c".into(), batch_checksum: 0 };
        let moved = EntryBody { prefix: "a".into(), batch: "bc".into(), batch_checksum: 0 };
        assert_ne!(hash_body(&joined), hash_body(&moved));
    }

    #[test]
    fn every_lane_has_its_own_root() {
        let roots = [(1, 0), (1, 1), (2, 0)].map(|(c, l)| Identity::root(ClusterId(c), LaneId(l)));
        assert!(roots[0] != roots[1] && roots[0] != roots[2] && roots[1] != roots[2]);
    }
}
