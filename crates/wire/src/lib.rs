//! The bytes of the protocol: frames, codes, requests, replies and message batches. Bytes in, types out: no I/O, no
//! runtime, no allocation on the hot path.
//!
//! Both directions live here, because the broker, its client and the tests share them. Requests are parsed from and
//! replies are encoded for protocols 0.12.1 and 0.12.2; only partition records differ between the two, and take the
//! version as an argument.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod ids;
pub mod status;
pub mod time;

pub mod code;
pub mod operation;
pub mod protocol;

pub mod frame;
pub mod header;

mod field;
pub mod key;
pub mod options;
pub mod permissions;
pub mod primitive;

pub mod batch;
pub mod reply;
pub mod request;

pub use code::Code;
pub use frame::{Frame, FrameDecoder, FrameError, ServerFrame};
pub use header::{Eviction, EvictionReason, FRAME_BYTES_MAX, HEADER_BYTES, ReplyHeader, RequestHeader};
pub use ids::*;
pub use operation::Operation;
pub use primitive::{
    Consumer, ConsumerKind, DecodeError, EncodeError, Identifier, PartitionContext, Partitioning, Reader,
    Strategy,
};
pub use protocol::{ProtocolVersion, ProtocolWindow};
pub use status::Status;
pub use time::Nanos;
