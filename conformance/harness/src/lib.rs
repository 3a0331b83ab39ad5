//! Runs the real `laneway` binary as its own process, for tests that speak the wire to it.
//!
//! Plain standard library, so every package that starts a broker can use it, whatever else that package depends
//! on. [`Broker`] owns one process and its directory: it starts, stops, kills and restarts it by process id, and
//! ends it when it is dropped. A test that fails prints what the broker logged.

mod binary;
mod process;
mod scratch;

pub use binary::laneway_binary;
pub use process::{Broker, ProcessUse, Settings};
pub use scratch::ScratchDir;
