//! Reading messages, as data: where a read starts, which batches it takes and where it cuts them, which reads are
//! parked and what wakes them, and the arithmetic of their deadlines. No file, no clock, no runtime: the caller brings
//! the time and the bytes.
//!
//! Reading order: [`deadlines`] (when a read ends), [`start`] (where it begins), [`tail`] (what is in memory), [`plan`]
//! (memory or disk), [`selection`] (which bytes go out), [`waiters`] (reads that wait for a commit), [`allotment`] (how
//! a grouped fetch spends its limits).
#![forbid(unsafe_code)]

pub mod allotment;
pub mod deadlines;
pub mod invariants;
pub mod plan;
mod record;
pub mod selection;
pub mod start;
pub mod tail;
pub mod waiters;

pub use allotment::{ReadyTarget, Share, allot, even_share};
pub use deadlines::{Deadlines, DeferredTimes};
pub use laneway_wire::Nanos;
pub use plan::{DiskRead, PartitionView, PollPlan, PollRequest, wake_at};
pub use selection::{ChunkEnd, ReadLimits, SelectError, Selection, Selector};
pub use start::{Start, StartError, Strategy};
pub use tail::{MemoryTail, StoredBatch};
pub use waiters::{
    Admission, ConnectionId, Expired, ParkRefused, Requester, SessionKey, Waiter, WaiterId, WaiterLimits,
    Waiters, WakeAt,
};
