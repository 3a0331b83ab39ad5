//! Laneway: client.
