//! A broker in this process, with a data directory of its own.

use std::net::SocketAddr;
use std::path::Path;

use laneway::{Broker, Config};
use tempfile::TempDir;

use crate::client::Client;

/// Shards of the tests that place partitions: alone, and with owners that are not the origin.
pub const SHARDS: [u16; 3] = [1, 2, 3];

pub struct Node {
    // Before the directory, so that it is gone when the directory is removed.
    broker: Option<Broker>,
    config: Config,
    _directory: TempDir,
}

impl Node {
    pub fn start(shards: u16) -> Self {
        Self::start_with(shards, |_| {})
    }

    /// A broker whose configuration differs from the default one.
    pub fn start_with(shards: u16, change: impl FnOnce(&mut Config)) -> Self {
        let directory = TempDir::new().expect("a directory for the data");
        let mut config = Config { data_dir: directory.path().join("data"), ..Config::default() };
        config.tcp.address = Some(([127, 0, 0, 1], 0).into());
        config.shards = Some(shards);
        config.pin_cores = false;
        config.root.dev = true;
        change(&mut config);
        let broker = Broker::start(config.clone()).expect("the broker starts");
        // A restart listens where the first start did, as an operator's does.
        config.tcp.address = broker.tcp_addr();
        Self { broker: Some(broker), config, _directory: directory }
    }

    pub fn address(&self) -> SocketAddr {
        self.config.tcp.address.expect("the broker listens")
    }

    pub fn data_dir(&self) -> &Path {
        &self.config.data_dir
    }

    /// A new session of the root user.
    pub fn client(&self) -> Client {
        Client::sign_in(self.address())
    }

    /// Stops cleanly and starts again on the same directory and address.
    pub fn restart(&mut self) {
        self.stop();
        self.broker = Some(Broker::start(self.config.clone()).expect("the broker starts again"));
    }

    pub fn stop(&mut self) {
        self.broker.take().expect("the broker runs").shutdown().expect("the broker stops cleanly");
    }
}
