//! The shared suite against the published SDK of protocol 0.12.1; see `tests/`.
