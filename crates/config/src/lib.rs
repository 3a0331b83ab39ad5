//! Laneway: config.
