//! Laneway: laneway.

pub mod cli;
pub mod cpus;
pub mod descriptors;
pub mod logging;
pub mod passwords;
pub mod probe;
pub mod root_user;
pub mod signals;
