//! The broker under test: in this process, on a free port, in a temporary directory.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use laneway_config::{Config, Http, Secret, Tcp};
use tempfile::TempDir;

use super::QuickstartError;
use crate::broker::Broker;

/// A running broker and the directory that goes away with it.
pub struct Host {
    broker: Broker,
    directory: TempDir,
    address: SocketAddr,
}

/// Name and password of the root user.
#[derive(Clone, Debug)]
pub struct Root {
    pub username: String,
    pub password: String,
}

impl Host {
    /// Starts a broker for this run alone. `shards`: one per available core if none is given.
    pub fn start(root: &Root, shards: Option<u16>) -> Result<Self, QuickstartError> {
        let directory = tempfile::Builder::new()
            .prefix("laneway-quickstart-")
            .tempdir()
            .map_err(|source| QuickstartError::Directory { source })?;
        // Not what flags, environment or a file say: the quickstart must not depend on what is set around it.
        let config = Config {
            data_dir: directory.path().join("data"),
            tcp: Tcp { address: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), advertised_address: None },
            http: Http { address: None },
            shards,
            root: laneway_config::Root {
                username: Some(root.username.clone()),
                password: Some(Secret::new(root.password.clone())),
                dev: false,
            },
            ..Config::default()
        };
        let broker =
            Broker::start(config).map_err(|error| QuickstartError::Broker { what: error.to_string() })?;
        let address = broker
            .tcp_addr()
            .ok_or_else(|| QuickstartError::Broker { what: "it does not listen".to_owned() })?;
        Ok(Self { broker, directory, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its data lies.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Stops it and removes its directory.
    pub fn shutdown(self) -> Result<(), QuickstartError> {
        let stopped = self.broker.shutdown();
        // The directory goes when `self.directory` is dropped, after the broker has let go of it.
        stopped.map_err(|error| QuickstartError::Stop { what: error.to_string() })
    }
}
