//! The shared suite against the published SDK of protocol 0.12.2, and what only this release can ask for.

mod idempotence;
#[path = "../../../suite/mod.rs"]
mod suite;
