//! Laneway: transport.
