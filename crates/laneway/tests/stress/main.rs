//! The broker as a process under stress: kills in the middle of checkpoints, a full disk, few descriptors, deletes under
//! load, a stop under load. What was acknowledged is there afterwards, once, at its offset.

#[path = "../protocol/client.rs"]
#[allow(dead_code)]
mod client;
mod load;
#[path = "../protocol/messages.rs"]
#[allow(dead_code)]
mod messages;
mod races;
mod retention;
mod scrub;
mod serve;
mod storage;
