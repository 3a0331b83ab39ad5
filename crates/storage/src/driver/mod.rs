//! Performs what the rest of the crate plans. The only module that opens files at run time and names the runtime.
//!
//! [`DataDirectory`] is opened once per process with plain blocking calls, recovered, and shared by the shards.
//! [`JournalWriter`] and [`SegmentStore`] belong to one shard each and live on its thread. Dropping one of their
//! futures does not stop the write behind it: await them to the end.

mod counters;
mod descriptors;
mod directory;
pub mod faults;
mod files;
mod journal_writer;
mod reconcile;
mod recovery;
mod segment_store;
mod superblock;

pub use counters::{StorageCounters, StorageCounts};
pub use directory::{BlockWrites, DataDirectory};
pub use journal_writer::{JournalWriter, WriteFailure};
pub use reconcile::ReconcileReport;
pub use recovery::{Recovery, TornTail};
pub use segment_store::{DESCRIPTORS_MAX, SegmentStore};
pub use superblock::SuperblockFile;
