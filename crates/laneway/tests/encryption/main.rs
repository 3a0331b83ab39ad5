//! Encryption at rest, over sockets and against the files of a real process. Rules S93 to S98. Source: resources,
//! section 16.

#[path = "../protocol/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "../fetch/request.rs"]
#[allow(dead_code)]
mod fetches;
#[path = "../protocol/messages.rs"]
#[allow(dead_code)]
mod messages;
mod messages_stay_secret;
mod process;
mod rotation;
mod stream_keys;

/// Keys of the configuration, and the fingerprints of what they lead to. Source: another implementation.
pub const KEY_A: &str = "/rvT1xP4V8u1EAhk4xDdqzqM2UOPXyy9XYkl4uRShgE=";
pub const NAME_OF_A: &str = "39e4f0f95c3693c7";
pub const KEY_B: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
pub const NAME_OF_B: &str = "d55d479829bc2936";
