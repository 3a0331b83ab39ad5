//! The bytes of one copy of the record.

use laneway_wire::{LaneId, Op, ReplicaId};
use xxhash_rust::xxh3::xxh3_128;

use super::{BootId, CheckpointRef, CleanStop, Identification, Promise, Superblock, SyncRange};
use crate::entry::View;
use crate::header::{ClusterId, DiskId, HEADER_BYTES, Header, Identity, at, put};
use crate::roster::{ROSTER_BYTES, Roster};
use crate::vote::{CheckpointId, LogTrust, VOTE_FIXED_BYTES, VOTE_SLOTS_MAX, Vote};

/// Copies of the record in one file.
pub const COPIES: usize = 4;

/// Bytes of one copy.
pub const RECORD_BYTES: usize = 32 * 1024;

/// Bytes from the start of one copy to the next: neighbours do not share what a disk loses at once.
pub const COPY_SPACING: u64 = 64 * 1024;

/// Format of the record that this code writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"LANESUPR";

/// Where the checksummed part begins. Before it: the checksum and the number of the copy.
const COVERED: usize = 32;
const COPY: usize = 16;
const PROMISE: usize = 384;
const PROMISE_BYTES: usize = VOTE_FIXED_BYTES + VOTE_SLOTS_MAX * HEADER_BYTES;

const _: () = assert!(PROMISE + PROMISE_BYTES <= RECORD_BYTES, "a full window fits into a record");
const _: () = assert!(RECORD_BYTES as u64 <= COPY_SPACING, "copies do not overlap");

/// What a record says about its own place in the row of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the record, from 1.
    pub sequence: u64,
    /// Checksum of the record before it; 0 for the first.
    pub parent: u128,
}

/// Why bytes are not a copy of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Bytes are missing, or are not what was written.
    #[error("the copy is damaged")]
    Damaged,
    /// A whole copy that was written to, or read from, another place.
    #[error("the copy carries number {found} and was read at place {place}")]
    Misplaced {
        /// Where it was read.
        place: u8,
        /// What it says.
        found: u32,
    },
    /// Whole, and of a format that this release does not know.
    #[error("the record has format {found}, this release reads up to {FORMAT}")]
    Newer {
        /// What it says.
        found: u32,
    },
}

/// A whole copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The content.
    pub superblock: Superblock,
    /// Its place in the row.
    pub stamp: Stamp,
    /// Its checksum: two copies with the same one are equal.
    pub checksum: u128,
}

/// The bytes of a record as its copy 0. The other copies differ by [`set_copy`] only.
///
/// # Panics
/// When the content contradicts itself: nothing that a restart would have to refuse is written.
pub fn encode(superblock: &Superblock, stamp: Stamp) -> Vec<u8> {
    assert!(superblock.is_consistent(), "{superblock:?}");
    let mut block = vec![0u8; RECORD_BYTES];
    put(&mut block, 32, MAGIC);
    put(&mut block, 40, FORMAT.to_le_bytes());
    put(&mut block, 48, stamp.sequence.to_le_bytes());
    put(&mut block, 56, stamp.parent.to_le_bytes());
    put(&mut block, 72, superblock.who.cluster.0.to_le_bytes());
    put(&mut block, 88, superblock.who.disk.0.to_le_bytes());
    put(&mut block, 104, superblock.boot.0.to_le_bytes());
    put(&mut block, 120, superblock.who.lane.0.to_le_bytes());
    block[124] = superblock.who.replica.0;
    block[125] = superblock.who.nodes;
    block[126] = u8::from(superblock.trust == LogTrust::Untrusted);
    block[127] = superblock.syncing.into();
    put(&mut block, 128, superblock.view.0.to_le_bytes());
    put(&mut block, 132, superblock.log_view.0.to_le_bytes());
    put(&mut block, 136, superblock.commit_max.0.to_le_bytes());
    let checkpoint = superblock.checkpoint;
    put(&mut block, 144, checkpoint.id.op.0.to_le_bytes());
    put(&mut block, 152, checkpoint.id.identity.0.to_le_bytes());
    put(&mut block, 168, checkpoint.snapshot.to_le_bytes());
    put(&mut block, 176, checkpoint.snapshot_hash.to_le_bytes());
    if let Some(range) = superblock.sync {
        block[192] = 1;
        put(&mut block, 200, range.first.0.to_le_bytes());
        put(&mut block, 208, range.last.0.to_le_bytes());
    }
    if let Some(clean) = superblock.clean {
        block[216] = 1;
        put(&mut block, 224, clean.op_head.0.to_le_bytes());
        put(&mut block, 232, clean.identity.0.to_le_bytes());
    }
    put::<ROSTER_BYTES>(&mut block, 248, superblock.roster.encode());
    encode_promise(&superblock.promise, &mut block);
    let checksum = xxh3_128(&block[COVERED..]);
    put(&mut block, 0, checksum.to_le_bytes());
    block
}

fn encode_promise(promise: &Promise, block: &mut [u8]) {
    match promise {
        Promise::None => {}
        Promise::Vote(vote) => {
            block[288] = 1;
            let bytes = vote.encode();
            block[PROMISE..PROMISE + bytes.len()].copy_from_slice(&bytes);
        }
        Promise::View { op_head, headers } => {
            block[288] = 2;
            put(block, 292, (headers.len() as u32).to_le_bytes());
            put(block, 296, op_head.0.to_le_bytes());
            for (header, place) in headers.iter().zip(block[PROMISE..].chunks_exact_mut(HEADER_BYTES)) {
                place.copy_from_slice(&header.encode());
            }
        }
    }
}

/// Turns the bytes of a record into those of another copy. The number is not covered by the checksum, so that the
/// copies of one record can be compared by it.
pub fn set_copy(block: &mut [u8], copy: u8) {
    put(block, COPY, u32::from(copy).to_le_bytes());
}

/// The checksum that a record's bytes carry.
pub(crate) fn checksum_of(block: &[u8]) -> u128 {
    at(block, 0).map(u128::from_le_bytes).unwrap_or_default()
}

/// Reads the copy at a place. Never panics, whatever the bytes are.
pub fn parse(bytes: &[u8], place: u8) -> Result<Parsed, RecordError> {
    let block = bytes.get(..RECORD_BYTES).ok_or(RecordError::Damaged)?;
    let checksum = checksum_of(block);
    if checksum != xxh3_128(&block[COVERED..]) || block[COPY + 4..COVERED].iter().any(|byte| *byte != 0) {
        return Err(RecordError::Damaged);
    }
    if at(block, 32) != Some(MAGIC) {
        return Err(RecordError::Damaged);
    }
    let found = at(block, COPY).map(u32::from_le_bytes).ok_or(RecordError::Damaged)?;
    if found != u32::from(place) {
        return Err(RecordError::Misplaced { place, found });
    }
    // The checksum and these two places keep their meaning in every later format.
    let format = at(block, 40).map(u32::from_le_bytes).ok_or(RecordError::Damaged)?;
    if format > FORMAT {
        return Err(RecordError::Newer { found: format });
    }
    let (superblock, stamp) = parse_fields(block).ok_or(RecordError::Damaged)?;
    match superblock.is_consistent() {
        true => Ok(Parsed { superblock, stamp, checksum }),
        false => Err(RecordError::Damaged),
    }
}

fn parse_fields(block: &[u8]) -> Option<(Superblock, Stamp)> {
    let u32_at = |place| at(block, place).map(u32::from_le_bytes);
    let u64_at = |place| at(block, place).map(u64::from_le_bytes);
    let u128_at = |place| at(block, place).map(u128::from_le_bytes);
    let flag = |place: usize| match block.get(place)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let superblock = Superblock {
        who: Identification {
            cluster: ClusterId(u128_at(72)?),
            disk: DiskId(u128_at(88)?),
            lane: LaneId(u32_at(120)?),
            replica: ReplicaId(*block.get(124)?),
            nodes: *block.get(125)?,
        },
        boot: BootId(u128_at(104)?),
        trust: if flag(126)? { LogTrust::Untrusted } else { LogTrust::Trusted },
        syncing: flag(127)?,
        view: View(u32_at(128)?),
        log_view: View(u32_at(132)?),
        commit_max: Op(u64_at(136)?),
        checkpoint: CheckpointRef {
            id: CheckpointId { op: Op(u64_at(144)?), identity: Identity(u128_at(152)?) },
            snapshot: u64_at(168)?,
            snapshot_hash: u128_at(176)?,
        },
        sync: match flag(192)? {
            true => Some(SyncRange { first: Op(u64_at(200)?), last: Op(u64_at(208)?) }),
            false => None,
        },
        clean: match flag(216)? {
            true => Some(CleanStop { op_head: Op(u64_at(224)?), identity: Identity(u128_at(232)?) }),
            false => None,
        },
        roster: Roster::parse(block.get(248..248 + ROSTER_BYTES)?).ok()?,
        promise: parse_promise(block)?,
    };
    Some((superblock, Stamp { sequence: u64_at(48)?, parent: u128_at(56)? }))
}

fn parse_promise(block: &[u8]) -> Option<Promise> {
    let bytes = block.get(PROMISE..)?;
    match block.get(288)? {
        0 => Some(Promise::None),
        1 => Vote::parse(bytes).map(Promise::Vote),
        2 => {
            let count = at(block, 292).map(u32::from_le_bytes)? as usize;
            if count > VOTE_SLOTS_MAX {
                return None;
            }
            let headers = bytes.chunks_exact(HEADER_BYTES).take(count).map(Header::parse);
            let headers = headers.collect::<Option<Vec<_>>>()?;
            Some(Promise::View { op_head: at(block, 296).map(u64::from_le_bytes).map(Op)?, headers })
        }
        _ => None,
    }
}
