//! The journal: one file per shard at a time, shared by every lane of the shard, written in whole blocks from its front
//! to its end and then used again under another number. A record carries one op. [`GroupCommit`] plans the writes, [`scan`] reads a file back, [`merge`] turns the records
//! of any number of files into each lane's log.

pub mod group_commit;
pub mod header;
pub mod merge;
pub mod record;
pub mod scan;

pub use group_commit::{GroupCommit, GroupLimits, GroupSync, JournalPlace, Poisoned, Progress, WriteGroup};
pub use header::JournalHeader;
pub use merge::{JournalMarks, RecoveredRecord};
pub use record::{BatchPlace, Placing, Record, RecordHeader, RecordKind, RecordPlace, SyncClass};
pub use scan::{LastRun, Scan, ScanEnd, ScannedRecord};
