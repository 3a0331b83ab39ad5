//! The segments of a partition: what is stored (batches back to back, the bytes of the wire), where the next batch
//! goes, and where an offset or a timestamp is found again.

pub mod catalogue;
pub mod index;
pub mod log;
pub mod read;

pub use catalogue::SegmentMeta;
pub use index::{IndexEntry, IndexScan, SegmentIndex};
pub use log::{AppendPlan, AppendStep, PartitionLog, Route};
pub use read::{ReadChunk, ReadCursor, ReadPlan, ReadTarget, StoredBatch};
