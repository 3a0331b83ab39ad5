//! The file `VERSION`: which format the directory has, and which disk this is.

use laneway_wire::Micros;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::Damage,
    fields::{put, u32_at, u64_at, u128_at},
};

/// Format of the whole data directory that this code writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// Bytes of the file.
pub const VERSION_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"LANEWAY\0";

/// Random identity of a data directory, drawn when it is made. Tells a replaced disk from an emptied one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u128);

/// Contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Format of the data directory.
    pub format: u32,
    /// When it was made.
    pub created: Micros,
    /// Its identity.
    pub disk: DiskId,
}

impl Version {
    /// The bytes of the file. Source: `docs/storage.md`, VERSION.
    pub fn encode(&self) -> [u8; VERSION_BYTES] {
        let mut block = [0u8; VERSION_BYTES];
        put(&mut block, 8, MAGIC);
        put(&mut block, 16, self.format.to_le_bytes());
        put(&mut block, 24, self.created.0.to_le_bytes());
        put(&mut block, 32, self.disk.0.to_le_bytes());
        let checksum = xxh3_64(&block[8..]);
        put(&mut block, 0, checksum.to_le_bytes());
        block
    }

    /// Reads the file. The format number is given back as found: the caller compares it, because the rest of a newer
    /// file is not ours to judge. Only the magic is checked when the number is newer.
    pub fn parse(bytes: &[u8]) -> Result<Version, Damage> {
        let format = u32_at(bytes, 16).ok_or(Damage::Short)?;
        if bytes.get(8..16) != Some(&MAGIC[..]) {
            return Err(Damage::Magic);
        }
        if format > FORMAT {
            return Ok(Version { format, created: Micros(0), disk: DiskId(0) });
        }
        let block = bytes.get(..VERSION_BYTES).ok_or(Damage::Short)?;
        if u64_at(block, 0) != Some(xxh3_64(&block[8..])) {
            return Err(Damage::HeaderChecksum);
        }
        if bytes.len() != VERSION_BYTES {
            return Err(Damage::Length);
        }
        let created = Micros(u64_at(block, 24).ok_or(Damage::Short)?);
        let disk = DiskId(u128_at(block, 32).ok_or(Damage::Short)?);
        Ok(Version { format, created, disk })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_seen() {
        let version = Version { format: FORMAT, created: Micros(7), disk: DiskId(u128::MAX / 3) };
        let bytes = version.encode();
        assert_eq!(Version::parse(&bytes), Ok(version));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let parsed = Version::parse(&flipped);
            assert!(parsed.is_err() || parsed.is_ok_and(|v| v.format > FORMAT), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_reported_not_judged() {
        let bytes = Version { format: 9, created: Micros(7), disk: DiskId(1) }.encode();
        assert_eq!(Version::parse(&bytes[..40]).map(|v| v.format), Ok(9));
    }
}
