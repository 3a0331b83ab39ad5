//! Laneway: laneway.
