//! The contract between a replica and the storage of its log. The journal of a shard and the simulator's disk both keep
//! it; the core sees neither.
//!
//! Everything is asked first and completed later, so that an asynchronous driver can implement it as well as a test.
//! What an implementation promises:
//!
//! 1. The changes of a lane (appends and truncations) carry numbers from 1 without a gap, and take effect in that order.
//!    After a crash the log is as if the first so many changes had happened and no other, except that changes behind the
//!    last completed one may have left torn bytes, which recovery tells apart.
//! 2. [`LogCompletion::Written`] with number n: changes 1 to n survive a killed process. [`LogCompletion::Synced`]: they
//!    survive a power loss, and so does the proof that they were complete (the witness). Both only grow, and synced never
//!    passes written.
//! 3. A later append of the same op replaces the earlier one. A truncation is itself durable before any append behind it
//!    is, so that nothing above it comes back.
//! 4. A read gives the newest entry of its op, checked against its header and, when one was named, its identity, or
//!    nothing. It never gives damaged or replaced bytes.
//! 5. After [`LogCompletion::Failed`] no change completes any more. What was readable stays readable.
//! 6. What [`Log::trim`] did not give up can be read.
//!
//! [`LogChecker`] watches an implementation keep 1, 2, 3, 4, 5 and 6; [`MemoryLog`] is the smallest one that does.

mod checker;
mod memory;

use laneway_wire::{LaneId, Op};

use crate::entry::Entry;
use crate::event::{Event, LogNumber, ReadRequest};

pub use checker::LogChecker;
pub use memory::MemoryLog;

/// The logs of the lanes of one shard.
pub trait Log {
    /// Puts an entry at its op.
    fn append(&mut self, lane: LaneId, number: LogNumber, entry: Entry);

    /// Drops everything above an op.
    fn truncate(&mut self, lane: LaneId, number: LogNumber, above: Op);

    /// Makes what was appended durable soon, whatever its entries ask for themselves.
    fn request_sync(&mut self);

    /// Reads an entry back.
    fn read(&mut self, lane: LaneId, request: ReadRequest);

    /// Everything below this op is in a durable checkpoint and may go. May keep more.
    fn trim(&mut self, lane: LaneId, below: Op);

    /// What has finished.
    fn poll_completion(&mut self) -> Option<(LaneId, LogCompletion)>;
}

/// What a log has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogCompletion {
    /// Every change through this one survives a killed process.
    Written(LogNumber),
    /// Every change through this one survives a power loss.
    Synced(LogNumber),
    /// The answer to [`Log::read`].
    Read {
        /// The question.
        request: ReadRequest,
        /// The entry; `None` when it is not there, damaged, or another one than was named.
        entry: Option<Box<Entry>>,
    },
    /// No change is taken any more.
    Failed,
}

impl LogCompletion {
    /// What the replica of the lane is told.
    pub fn into_event(self) -> Event {
        match self {
            LogCompletion::Written(number) => Event::Written(number),
            LogCompletion::Synced(number) => Event::Synced(number),
            LogCompletion::Read { request, entry } => {
                Event::Read { request, entry: entry.map(|entry| *entry) }
            }
            LogCompletion::Failed => Event::LogFailed,
        }
    }
}
