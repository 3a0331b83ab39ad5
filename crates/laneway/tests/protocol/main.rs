//! The rules of the wire protocol, the reads and the resources, one test for each, over sockets against a broker.
//!
//! Every frame that comes back passes the checks of `client::Reply::check`, whatever the test is about.

mod changes;
mod client;
mod disk;
#[path = "../../../../conformance/harness/src/lib.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
mod messages;
mod metadata;
mod node;
mod offsets;
mod parking;
mod polls;
mod producers;
mod resources;
mod retention;
mod retries;
mod segments;
mod sends;
mod sessions;
mod statistics;
mod unbound;
mod updates;
