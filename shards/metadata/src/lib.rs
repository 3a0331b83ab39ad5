//! Laneway: shard runtime, metadata.
