//! Laneway: laneway.

pub mod cli;
