//! The partitions of one data lane on the shard that owns it, as a state machine without I/O: committed ops go in,
//! what to answer comes out. What is proposed and not yet committed is kept beside the committed state, because
//! admission must see both. The crate names no runtime and reads no clock.
//!
//! Reading order: [`lane_op`] (what a lane's log holds), [`offsets`], [`receipts`] and [`producers`] (what a partition
//! remembers beside its messages), [`segments`] (what retention removes), [`partition`] (one partition), [`lane`] (all
//! of a lane), [`checkpoint`] (the lane as bytes), [`invariants`].
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod codec;
pub mod consumer;
pub mod identity;
pub mod invariants;
pub mod lane;
pub mod lane_op;
pub mod offsets;
pub mod partition;
pub mod producers;
pub mod receipts;
pub mod segments;
mod staged;

#[cfg(test)]
mod model_tests;

pub use checkpoint::{CheckpointDraft, CheckpointError};
pub use codec::DecodeError;
pub use consumer::{ConsumerId, ConsumerKey, ConsumerKind};
pub use identity::{Admit, Identity, Receipt, ReceiptKind};
pub use lane::{Applied, ApplyError, LaneLimits, LaneState};
pub use lane_op::{LaneOp, PartitionSettings, StoreMode};
pub use offsets::{AutoCommit, FenceToken};
pub use partition::{BatchStamp, Partition};
pub use segments::{RetentionPlan, RetentionPolicy, Segment, Segments};
