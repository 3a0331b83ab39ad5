//! The client of the broker: what the command line, the quickstart and tests speak to it with.
//!
//! [`session`] is a sans-IO core: identity, numbers, frames, and what an answer or its absence proves. [`client`] is a
//! thin blocking driver over one TCP connection: deadlines, retries, and the way back after a lost connection.
//! [`producer`] and [`reader`] work on whole topics. There is no async runtime here: a command starts at once, and a
//! fault of the broker's runtime cannot hide in both ends.
#![forbid(unsafe_code)]

pub mod error;
pub mod handshake;
pub mod session;

pub mod client;
mod link;

pub mod messages;
pub mod partitioner;
pub mod resources;
pub mod system;
pub mod users;

pub mod producer;
pub mod reader;

pub use client::{Client, Settings, Ticket};
pub use error::{ClientError, PROTOCOL};
pub use handshake::{Credentials, Identity, SignedIn};
pub use partitioner::Partitioner;
pub use producer::{Acknowledged, BatchLimits, Producer};
pub use reader::{Polled, Reader, Received, Start, Until};
pub use resources::{
    Name, Options, PartitionDetails, StreamDetails, StreamSummary, TopicDetails, TopicSummary,
};
pub use session::{Answer, Call, Event, Session};
pub use users::{NewUser, TokenSummary, UserDetails, UserSummary};
