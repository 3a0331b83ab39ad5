//! Laneway: storage.
