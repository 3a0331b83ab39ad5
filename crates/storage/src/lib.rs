//! What a node keeps on disk: the journal of every shard, the segments of every partition, the checkpoint of every
//! lane. Formats and planning come first and do no I/O; [`driver`] performs the plans and is the only module that
//! names the runtime. The bytes are drawn in `docs/storage.md`.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod checkpoint;
pub mod error;
pub mod layout;
pub mod version;

pub mod journal;
pub mod segment;

pub mod driver;

mod fields;

pub use driver::{DataDirectory, JournalWriter, SegmentStore, StorageCounters, SuperblockFile};
pub use error::{Damage, StorageError};
pub use journal::{
    BatchPlace, GroupCommit, GroupLimits, GroupSync, Placing, Progress, Record, RecoveredRecord, SyncClass,
    WriteGroup,
};
pub use layout::{JournalName, SegmentFile};
pub use segment::{AppendPlan, PartitionLog, ReadChunk, ReadPlan, Route, SegmentIndex, StoredBatch};
