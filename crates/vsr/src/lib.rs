//! Laneway: vsr.
