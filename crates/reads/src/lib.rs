//! Laneway: reads.
