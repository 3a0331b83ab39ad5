//! The first block of a journal file.

use laneway_wire::Micros;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::Damage,
    fields::{put, u16_at, u32_at, u64_at, u128_at},
    layout::JournalName,
    version::DiskId,
};

/// Bytes of the header block: one block, so that records are written without touching it. The first record follows.
pub const JOURNAL_HEADER_BYTES: u64 = 4096;

/// Version of the header and of the records behind it.
pub const JOURNAL_FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"LANEJRNL";

/// Identity of one run of the operating system. A journal of this run was never touched by a power loss: whatever its
/// writer handed to the kernel is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub u128);

/// What the header block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// Shard and sequence, equal to the file's name.
    pub name: JournalName,
    /// The data directory that the file belongs to.
    pub disk: DiskId,
    /// The run of the operating system that wrote the file.
    pub boot: BootId,
    /// When the file was made.
    pub created: Micros,
    /// Bytes of the file when it was made. A shorter one was cut by somebody else.
    pub file_bytes: u64,
}

impl JournalHeader {
    /// Mark that every record of this file repeats, so that bytes of another file never read as a record of this one.
    pub fn tag(&self) -> u64 {
        let mut identity = [0u8; 26];
        put(&mut identity, 0, self.disk.0.to_le_bytes());
        put(&mut identity, 16, self.name.sequence.to_le_bytes());
        put(&mut identity, 24, self.name.shard.to_le_bytes());
        xxh3_64(&identity)
    }

    /// The header block. Source: `docs/storage.md`, journal header.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0u8; JOURNAL_HEADER_BYTES as usize];
        put(&mut block, 8, MAGIC);
        put(&mut block, 16, JOURNAL_FORMAT.to_le_bytes());
        put(&mut block, 20, self.name.shard.to_le_bytes());
        put(&mut block, 24, self.name.sequence.to_le_bytes());
        put(&mut block, 32, self.disk.0.to_le_bytes());
        put(&mut block, 48, self.boot.0.to_le_bytes());
        put(&mut block, 64, self.created.0.to_le_bytes());
        put(&mut block, 72, self.file_bytes.to_le_bytes());
        let checksum = xxh3_64(&block[8..]);
        put(&mut block, 0, checksum.to_le_bytes());
        block
    }

    /// Reads the header block at the start of a file.
    pub fn parse(file: &[u8]) -> Result<JournalHeader, Damage> {
        let block = file.get(..JOURNAL_HEADER_BYTES as usize).ok_or(Damage::Short)?;
        if block.get(8..16) != Some(&MAGIC[..]) {
            return Err(Damage::Magic);
        }
        if u64_at(block, 0) != Some(xxh3_64(&block[8..])) {
            return Err(Damage::HeaderChecksum);
        }
        if u32_at(block, 16) != Some(JOURNAL_FORMAT) || u16_at(block, 22) != Some(0) {
            return Err(Damage::Reserved);
        }
        let shard = u16_at(block, 20).ok_or(Damage::Short)?;
        let sequence = u64_at(block, 24).ok_or(Damage::Short)?;
        Ok(JournalHeader {
            name: JournalName { shard, sequence },
            disk: DiskId(u128_at(block, 32).ok_or(Damage::Short)?),
            boot: BootId(u128_at(block, 48).ok_or(Damage::Short)?),
            created: Micros(u64_at(block, 64).ok_or(Damage::Short)?),
            file_bytes: u64_at(block, 72).ok_or(Damage::Short)?,
        })
    }
}
