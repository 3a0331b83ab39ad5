//! What shard 0 runs beside its partitions: the metadata lane. Requests are ordered by the consensus core, applied to
//! the metadata state machine, published to every shard, and answered once the shards that own the affected partitions
//! have done their part.
//!
//! Like the cores below it, the runtime performs nothing itself: the shard feeds it events and carries out its effects.
//!
//! Reading order: [`runtime`] (the life of one request), [`settling`] (what is applied and not yet answered),
//! [`lifetimes`] (sessions that nobody is attached to).
#![forbid(unsafe_code)]

pub mod lifetimes;
pub mod runtime;
pub mod settling;

pub use lifetimes::Lifetimes;
pub use runtime::{Effect, MetadataLane, RecoverError, Verdict};
pub use settling::{ShardPart, ShardWork};
