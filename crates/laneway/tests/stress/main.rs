//! The broker as a process under stress: kills in the middle of checkpoints, a full disk, few descriptors, deletes under
//! load, a stop under load. What was acknowledged is there afterwards, once, at its offset.

#[path = "../protocol/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "../../../../conformance/harness/src/lib.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
mod kills;
mod load;
#[path = "../protocol/messages.rs"]
#[allow(dead_code)]
mod messages;
mod names;
mod races;
mod retention;
mod scrub;
mod serve;
mod storage;
