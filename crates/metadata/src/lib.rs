//! Laneway: metadata.
