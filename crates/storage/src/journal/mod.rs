//! The journal: one append-only file per shard at a time, shared by every lane of the shard. A record carries one op;
//! its body is opaque here. [`GroupCommit`] plans the writes, [`scan`] reads a file back, [`merge`] turns the records
//! of any number of files into each lane's log.

pub mod group_commit;
pub mod header;
pub mod merge;
pub mod record;
pub mod scan;

pub use group_commit::{GroupCommit, GroupLimits, JournalPlace, Poisoned, Progress, WriteGroup};
pub use header::JournalHeader;
pub use merge::{JournalMarks, RecoveredRecord};
pub use record::{Record, RecordHeader, RecordKind, SyncClass};
pub use scan::{LastRun, Scan, ScanEnd, ScannedRecord};
