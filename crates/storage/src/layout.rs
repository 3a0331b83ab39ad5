//! Names and places of files in the data directory. A name is parsed back strictly: what does not print the same
//! again is not ours.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use laneway_wire::{Incarnation, LaneId, Offset, PartitionId, PartitionKey};
use xxhash_rust::xxh3::xxh3_64;

/// Directories under `segments/`. Spreads the files of many partitions so that no directory grows without bound; all
/// segments of one partition share one. Fixed by format version 1.
pub const FANOUT: u32 = 64;

/// Name of the lock file.
pub const LOCK: &str = "LOCK";
/// Name of the file with the format version and the disk's identity.
pub const VERSION: &str = "VERSION";
/// Directory of the journals.
pub const JOURNAL: &str = "journal";
/// Directory of the checkpoints.
pub const LANES: &str = "lanes";
/// Directory of the segments.
pub const SEGMENTS: &str = "segments";
/// Ending of a file that is being written and counts for nothing until it is renamed.
pub const TEMPORARY: &str = ".tmp";

/// Identity of a journal file. Sequences grow over the life of a data directory and are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalName {
    /// The shard that wrote it.
    pub shard: u16,
    /// Its number.
    pub sequence: u64,
}

impl JournalName {
    /// Reads a file name; `None` when it is not one of ours.
    pub fn parse(name: &str) -> Option<JournalName> {
        let (shard, sequence) = name.strip_suffix(".journal")?.split_once('-')?;
        let parsed = JournalName { shard: shard.parse().ok()?, sequence: sequence.parse().ok()? };
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Its path in the data directory.
    pub fn path(&self, root: &Path) -> PathBuf {
        root.join(JOURNAL).join(self.to_string())
    }
}

impl fmt::Display for JournalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05}-{:012}.journal", self.shard, self.sequence)
    }
}

/// Identity of a segment file: the partition and the offset of its first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentFile {
    /// The partition.
    pub partition: PartitionKey,
    /// Offset of the first message.
    pub base: Offset,
}

impl SegmentFile {
    /// Reads a file name; `None` when it is not one of ours.
    pub fn parse(name: &str) -> Option<SegmentFile> {
        let mut parts = name.strip_suffix(".segment")?.splitn(3, '-');
        let incarnation = Incarnation(parts.next()?.parse().ok()?);
        let partition = PartitionId(parts.next()?.parse().ok()?);
        let base = Offset(parts.next()?.parse().ok()?);
        let parsed = SegmentFile { partition: PartitionKey { incarnation, partition }, base };
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Number of its directory under `segments/`.
    pub fn fan_out(&self) -> u32 {
        let mut key = [0u8; 12];
        crate::fields::put(&mut key, 0, self.partition.incarnation.0.to_le_bytes());
        crate::fields::put(&mut key, 8, self.partition.partition.0.to_le_bytes());
        (xxh3_64(&key) % u64::from(FANOUT)) as u32
    }

    /// Its directory.
    pub fn directory(&self, root: &Path) -> PathBuf {
        fan_out_directory(root, self.fan_out())
    }

    /// Its path in the data directory.
    pub fn path(&self, root: &Path) -> PathBuf {
        self.directory(root).join(self.to_string())
    }
}

impl fmt::Display for SegmentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{}-{:020}.segment",
            self.partition.incarnation.0, self.partition.partition.0, self.base.0
        )
    }
}

/// One directory of segments.
pub fn fan_out_directory(root: &Path, fan_out: u32) -> PathBuf {
    root.join(SEGMENTS).join(format!("{fan_out:02x}"))
}

/// Path of a lane's checkpoint.
pub fn checkpoint_path(root: &Path, lane: LaneId) -> PathBuf {
    root.join(LANES).join(format!("{}.checkpoint", lane.0))
}

/// Path of a lane's superblock.
pub fn superblock_path(root: &Path, lane: LaneId) -> PathBuf {
    root.join(LANES).join(format!("{}.superblock", lane.0))
}

/// A file of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneFile {
    /// Its state as of one op.
    Checkpoint(LaneId),
    /// Its view, its votes and what else it must remember.
    Superblock(LaneId),
}

impl LaneFile {
    /// Reads a file name; `None` when it is not one of ours.
    pub fn parse(name: &str) -> Option<LaneFile> {
        let (lane, kind) = name.split_once('.')?;
        let lane = LaneId(lane.parse().ok()?);
        let file = match kind {
            "checkpoint" => LaneFile::Checkpoint(lane),
            "superblock" => LaneFile::Superblock(lane),
            _ => return None,
        };
        (format!("{}.{kind}", lane.0) == name).then_some(file)
    }
}

/// The path under which a file is written before it is renamed to its own.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_print_what_they_parse() {
        let journal = JournalName { shard: 3, sequence: 41 };
        assert_eq!(journal.to_string(), "00003-000000000041.journal");
        assert_eq!(JournalName::parse("00003-000000000041.journal"), Some(journal));
        let partition = PartitionKey { incarnation: Incarnation(7), partition: PartitionId(2) };
        let segment = SegmentFile { partition, base: Offset(100) };
        assert_eq!(segment.to_string(), "7-2-00000000000000000100.segment");
        assert_eq!(SegmentFile::parse(&segment.to_string()), Some(segment));
        assert_eq!(LaneFile::parse("12.checkpoint"), Some(LaneFile::Checkpoint(LaneId(12))));
        assert_eq!(LaneFile::parse("12.superblock"), Some(LaneFile::Superblock(LaneId(12))));
    }

    #[test]
    fn names_that_print_differently_are_refused() {
        for name in ["3-41.journal", "00003-000000000041.journal.tmp", "+0003-000000000041.journal", "x"] {
            assert_eq!(JournalName::parse(name), None, "{name}");
        }
        for name in ["07-2-00000000000000000100.segment", "7-2-100.segment", "7-2.segment"] {
            assert_eq!(SegmentFile::parse(name), None, "{name}");
        }
        assert_eq!(LaneFile::parse("012.checkpoint"), None);
        assert_eq!(LaneFile::parse("1.checkpoint.tmp"), None);
    }
}
