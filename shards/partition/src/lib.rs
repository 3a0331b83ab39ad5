//! Laneway: shard runtime, partition.
pub mod core;
