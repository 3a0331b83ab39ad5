//! The bytes of the protocol: frames, codes, requests, replies and message batches. Bytes in, types out: no I/O, no
//! runtime, no allocation on the hot path.
#![forbid(unsafe_code)]

pub mod ids;
pub mod status;

pub use ids::*;
pub use status::Status;
