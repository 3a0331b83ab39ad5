//! What a client of the published SDK must see, whatever release of the SDK it is.
//!
//! Each package beside this folder pins one release and runs these modules against the real binary. Every test
//! starts a broker of its own, so a failure prints the log of exactly that broker.

mod connect;
mod limits;
mod messages;
mod methods;
mod offsets;
mod polls;
mod proxy;
mod readers;
mod resources;
mod restarts;
pub mod support;
mod throughput;
