//! What every shard runs: the connections that it accepted and the lanes that it owns.
//!
//! A request comes in on the *origin* shard, which checks the frame, the session and the permission, finds the
//! partition in its copy of the metadata, and sends the request to the *owner* shard of the partition's lane. The owner
//! orders it, its journal makes it durable, and the answer goes back into the connection's outbox.
//!
//! Reading order: [`core`] (the partitions of a lane, a crate of its own), [`owner`] (the lanes of this shard, no runtime),
//! [`message`] (what crosses between shards), [`shard`] (the runtime: one turn after another), [`journal`] and
//! [`checkpoint`] (what reaches the disk), [`disk`] (reads of segments), [`connections`] and [`origin`] (clients), [`passwords`] and
//! [`damping`] (who signs in).
#![forbid(unsafe_code)]

pub mod budgets;
pub mod calls;
pub mod checkpoint;
pub mod clock;
pub mod connections;
pub mod damping;
pub mod disk;
pub mod journal;
pub mod message;
pub mod origin;
pub mod owner;
pub mod passwords;
pub mod process;
pub mod progress;
pub mod reclaim;
pub mod reply;
pub mod rotation;
pub mod scrub;
pub mod secret;
pub mod shard;
pub mod snapshots;
pub mod stream_keys;
pub mod trouble;

pub use laneway_partition as core;
pub use message::{Inbox, Post, ShardId};
pub use owner::{Owner, RestoredLane, RetentionSettings};
pub use scrub::ScrubSettings;
pub use shard::{Shard, ShardSettings};
