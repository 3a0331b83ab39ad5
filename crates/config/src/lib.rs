//! Configuration: what can be set, where a value came from, and what is wrong with it.
//!
//! One table ([`keys::KEYS`]) names every key with its type, default, range, environment name and flag. The file parser,
//! the environment reader, the listing of `laneway config` and `docs/configuration.md` are all derived from it, so they
//! cannot disagree. The crate is pure: the only function that touches a file is [`load`].

#![forbid(unsafe_code)]

mod config;
mod document;
mod effective;
mod error;
mod file;
pub mod keys;
mod resolve;
mod secret;
mod source;
pub mod units;
mod value;
mod written;

pub use config::{
    AdvertisedAddress, Config, Connections, DataMaintenance, Durability, Encryption, Engine, Http, Limits,
    Log, PartitionLimits, Reads, Root, Sessions, Shutdown, Storage, Tcp, TopicDefaults,
};
pub use document::{configuration_markdown, key_list};
pub use effective::{Effective, Entry};
pub use error::{ConfigError, Suggestion};
pub use resolve::{FlagValue, Resolved, load, resolve};
pub use secret::Secret;
pub use source::Source;
pub use value::{Value, ValueError};
