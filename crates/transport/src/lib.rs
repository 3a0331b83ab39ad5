//! Sockets on compio: listeners that every shard accepts from, frames in, frames out. Knows bytes and back-pressure;
//! knows nothing of sessions, commands or partitions.
//!
//! Reading order: [`listener`], [`reader`] (frames in), [`outbox`] (frames out), [`signal`] (how tasks of one shard
//! wake one another).
#![forbid(unsafe_code)]

pub mod listener;
pub mod outbox;
pub mod reader;
pub mod signal;

pub use listener::{BindError, Bound, Listener};
pub use outbox::{OutFrame, Outbox, write_frames};
pub use reader::{FrameReader, ReadError};
pub use signal::Signal;
