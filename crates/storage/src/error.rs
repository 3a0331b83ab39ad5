//! What can go wrong with files, by name. Refusals at boot name the file and the byte position; errors at run time
//! tell a full disk from a broken one, because the first passes and the second does not.

use std::{io, path::PathBuf};

use laneway_wire::{LaneId, Offset, Op, PartitionKey};

use crate::layout::{JournalName, SegmentFile};

/// Every failure of the storage engine.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another process holds the data directory. Nothing was touched.
    #[error("data directory {path} is in use by another broker (process {})", holder.as_deref().unwrap_or("unknown"))]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// Process number that the holder wrote into its lock file, when it could be read.
        holder: Option<String>,
    },
    /// The directory holds something, but no data directory of this broker.
    #[error(
        "{path} is not empty and holds no VERSION file: not a data directory; set data_dir (--data-dir) to an empty directory, or to a new name"
    )]
    NotADataDirectory {
        /// The directory that was opened.
        path: PathBuf,
    },
    /// A later release wrote this file.
    #[error("{path} has format version {found}, this broker reads up to {supported}")]
    NewerFormat {
        /// The file that names the version.
        path: PathBuf,
        /// The version it names.
        found: u32,
        /// The newest version this code reads.
        supported: u32,
    },
    /// A file carries the identity of another disk.
    #[error("{path} belongs to another data directory")]
    ForeignFile {
        /// The foreign file.
        path: PathBuf,
    },
    /// The bytes of a file are not what was written. Nothing is served from it and nothing is guessed.
    #[error("{path} is damaged at byte {position}: {damage}{}", lane.map(|(lane, op)| format!(" (lane {lane}, op {op})")).unwrap_or_default())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Where the damage starts.
        position: u64,
        /// What is wrong there.
        damage: Damage,
        /// Lane and op of the damaged record, when its header can still be read.
        lane: Option<(LaneId, Op)>,
    },
    /// A lane's ops are not gap-free over its checkpoint and all journals.
    #[error("lane {lane}: op {expected} is missing, {journal} continues with op {found} at byte {position}")]
    Gap {
        /// The lane.
        lane: LaneId,
        /// The op that should come next.
        expected: Op,
        /// The op that was found.
        found: Op,
        /// The journal that holds the found op.
        journal: JournalName,
        /// Where its record starts.
        position: u64,
    },
    /// Two journals hold different records for one op.
    #[error("lane {lane}: op {op} has two different records, the second in {journal} at byte {position}")]
    Conflict {
        /// The lane.
        lane: LaneId,
        /// The op written twice.
        op: Op,
        /// The journal of the second record.
        journal: JournalName,
        /// Where the second record starts.
        position: u64,
    },
    /// A segment that a checkpoint names is missing or shorter than the checkpoint says.
    #[error("partition {partition}: segment {file} has {found} bytes, its checkpoint names {recorded}")]
    SegmentShort {
        /// The partition.
        partition: PartitionKey,
        /// The segment.
        file: SegmentFile,
        /// Bytes that the checkpoint recorded.
        recorded: u64,
        /// Bytes on disk; 0 when the file is missing.
        found: u64,
    },
    /// A batch in a segment is not the one that was written there.
    #[error(
        "partition {partition}: segment {file} is damaged at byte {position} (offset {offset} or later): {damage}"
    )]
    BatchDamaged {
        /// The partition.
        partition: PartitionKey,
        /// The segment.
        file: SegmentFile,
        /// Where the damaged batch starts.
        position: u64,
        /// The lowest offset that may be affected.
        offset: Offset,
        /// What is wrong there.
        damage: Damage,
    },
    /// No copy of a lane's superblock can be believed, or it belongs to somebody else.
    #[error("{path}: {source}")]
    Superblock {
        /// The file.
        path: PathBuf,
        /// Why.
        source: laneway_vsr::superblock::OpenError,
    },
    /// A superblock does not hold what was written to it, or could not be written for too long. A replica that cannot
    /// write down what it promises must not go on.
    #[error("{path} cannot be written")]
    Unwritable {
        /// The file.
        path: PathBuf,
    },
    /// The file system has no room. Nothing of this write counts as done; it may be tried again.
    #[error("cannot {operation} {path}: no space left")]
    OutOfSpace {
        /// What was attempted.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
    },
    /// The operating system refused an operation.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// What was attempted.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An earlier flush failed. The kernel may have dropped the pages, so no later flush of them proves anything:
    /// only a restart, which reads what is really there, goes on.
    #[error("an earlier flush failed, nothing more is written ({path})")]
    Poisoned {
        /// The file or directory whose flush failed.
        path: PathBuf,
    },
}

impl StorageError {
    /// Whether space or descriptors were wanting: it may work later, and what was there is untouched.
    pub fn is_exhausted(&self) -> bool {
        match self {
            StorageError::OutOfSpace { .. } => true,
            StorageError::Io { operation: "open", source, .. } => {
                matches!(source.raw_os_error(), Some(EMFILE | ENFILE))
            }
            _ => false,
        }
    }

    /// Gives an I/O error its operation and file, and tells a full disk from every other cause.
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> StorageError {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StorageError::OutOfSpace { operation, path }
            }
            _ => StorageError::Io { operation, path, source },
        }
    }
}

/// No descriptor left in the process. The numbers are the same on every Linux platform.
const EMFILE: i32 = 24;
/// No descriptor left in the system.
const ENFILE: i32 = 23;

/// What is wrong with a piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file or the piece ends before its fixed part does.
    #[error("shorter than its header")]
    Short,
    /// The first bytes are not those of this format.
    #[error("unknown magic")]
    Magic,
    /// The header is not the one that was written.
    #[error("header checksum mismatch")]
    HeaderChecksum,
    /// The body is not the one that was written.
    #[error("body checksum mismatch")]
    BodyChecksum,
    /// A length field is impossible, or the file ends inside of the body.
    #[error("impossible length")]
    Length,
    /// A whole header that belongs to another file or another place.
    #[error("record of another file or place")]
    Misplaced,
    /// A record that does not follow the one before it.
    #[error("the record before it is missing")]
    Chain,
    /// A journal that goes on in another file and does not end.
    #[error("the file goes on elsewhere and does not say where it ends")]
    Unfinished,
    /// A kind that this version does not know.
    #[error("unknown record kind {0}")]
    Kind(u8),
    /// A field contradicts the name of the file.
    #[error("contradicts the name of its file")]
    Name,
    /// A reserved byte is not zero, or a flag is unknown.
    #[error("reserved bytes in use")]
    Reserved,
    /// A batch starts at another offset than the one before it ended.
    #[error("offsets are not contiguous")]
    Offsets,
    /// A segment list contradicts itself.
    #[error("segment list contradicts itself")]
    Catalogue,
}
