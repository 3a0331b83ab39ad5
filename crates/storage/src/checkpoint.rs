//! The file `lanes/<lane>.checkpoint`: everything that a lane's ops up to one op have built, in bytes that only the
//! lane's owner understands.

use bytes::Bytes;
use laneway_wire::{LaneId, Op};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::Damage,
    fields::{put, u32_at, u64_at, u128_at},
    version::DiskId,
};

/// Bytes before the payload.
pub const CHECKPOINT_HEADER_BYTES: usize = 64;

/// Version of the header. The payload carries its own.
pub const CHECKPOINT_FORMAT: u32 = 1;

const MAGIC: u32 = u32::from_le_bytes(*b"LCKP");

/// A lane's checkpoint, read back and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The lane.
    pub lane: LaneId,
    /// The highest op whose effects the payload holds. Records at or below it are not replayed.
    pub op: Op,
    /// Bytes given by the owner of the lane.
    pub payload: Bytes,
}

/// The header of a checkpoint file. Source: `docs/storage.md`, lane checkpoint.
pub fn encode_header(disk: DiskId, lane: LaneId, op: Op, payload: &[u8]) -> [u8; CHECKPOINT_HEADER_BYTES] {
    let mut block = [0u8; CHECKPOINT_HEADER_BYTES];
    put(&mut block, 8, MAGIC.to_le_bytes());
    put(&mut block, 12, CHECKPOINT_FORMAT.to_le_bytes());
    put(&mut block, 16, lane.0.to_le_bytes());
    put(&mut block, 24, op.0.to_le_bytes());
    put(&mut block, 32, (payload.len() as u64).to_le_bytes());
    put(&mut block, 40, xxh3_64(payload).to_le_bytes());
    put(&mut block, 48, disk.0.to_le_bytes());
    let checksum = xxh3_64(&block[8..]);
    put(&mut block, 0, checksum.to_le_bytes());
    block
}

/// Reads a whole checkpoint file. The disk id is given back for the caller to compare.
pub fn parse(file: &Bytes) -> Result<(DiskId, Checkpoint), Damage> {
    let block = file.get(..CHECKPOINT_HEADER_BYTES).ok_or(Damage::Short)?;
    if u32_at(block, 8) != Some(MAGIC) {
        return Err(Damage::Magic);
    }
    if u64_at(block, 0) != Some(xxh3_64(&block[8..])) {
        return Err(Damage::HeaderChecksum);
    }
    if u32_at(block, 12) != Some(CHECKPOINT_FORMAT) || u32_at(block, 20) != Some(0) {
        return Err(Damage::Reserved);
    }
    let lane = LaneId(u32_at(block, 16).ok_or(Damage::Short)?);
    let op = Op(u64_at(block, 24).ok_or(Damage::Short)?);
    let disk = DiskId(u128_at(block, 48).ok_or(Damage::Short)?);
    let payload = file.slice(CHECKPOINT_HEADER_BYTES..);
    if u64_at(block, 32) != Some(payload.len() as u64) {
        return Err(Damage::Length);
    }
    if u64_at(block, 40) != Some(xxh3_64(&payload)) {
        return Err(Damage::BodyChecksum);
    }
    Ok((disk, Checkpoint { lane, op, payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(payload: &[u8]) -> Vec<u8> {
        let mut file = encode_header(DiskId(5), LaneId(3), Op(17), payload).to_vec();
        file.extend_from_slice(payload);
        file
    }

    #[test]
    fn round_trips() {
        for payload in [&b""[..], b"state of a lane"] {
            let (disk, checkpoint) = parse(&Bytes::from(file(payload))).unwrap();
            assert_eq!((disk, checkpoint.lane, checkpoint.op), (DiskId(5), LaneId(3), Op(17)));
            assert_eq!(checkpoint.payload, payload);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let whole = file(b"state of a lane");
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&Bytes::from(flipped)).is_err(), "bit {bit}");
        }
        for length in 0..whole.len() {
            assert!(parse(&Bytes::from(whole[..length].to_vec())).is_err(), "length {length}");
        }
    }
}
