//! Laneway: a persistent message broker that speaks the Iggy binary protocol. One thread per core, one log per shard.
//!
//! The binary is a thin shell around this library. To run a broker inside another program, for example in its tests:
//!
//! ```no_run
//! let mut config = laneway::Config::default();
//! config.data_dir = "somewhere/of/its/own".into();
//! config.tcp.address = Some(([127, 0, 0, 1], 0).into());
//! config.root.dev = true;
//! let broker = laneway::Broker::start(config)?;
//! println!("iggy:iggy@{}", broker.tcp_addr().expect("TCP is on"));
//! broker.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod allocator;
pub mod broker;
pub mod cli;
pub mod commands;
pub mod cpus;
pub mod descriptors;
pub mod doctor;
mod keys;
pub mod logging;
pub mod passwords;
pub mod probe;
mod restore;
pub mod root_user;
pub mod serve;
mod shard_thread;
pub mod signals;
pub mod snapshot;
pub mod systemd;

pub use broker::{Broker, StartError, StopError};
pub use laneway_config::Config;
