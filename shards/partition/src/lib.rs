//! Laneway: shard runtime, partition.
