//! The shared suite against the published SDK of protocol 0.12.2.

#[path = "../../suite/mod.rs"]
mod suite;
