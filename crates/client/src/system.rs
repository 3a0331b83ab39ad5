//! Calls about the broker and the connection itself. Source: wire protocol, section 5.1.

use bytes::Bytes;
use laneway_wire::reply::{ClientDetails, ClusterMetadata, NodeRole, NodeStatus, Record};
use laneway_wire::{Reader, ReplicaId, UserId, reply, request};

use crate::client::Client;
use crate::error::ClientError;
use crate::session::Call;

/// One node as the roster names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub replica: ReplicaId,
    pub name: String,
    /// Address literal or host name.
    pub ip: String,
    /// Port of the binary protocol over TCP; 0 when it is off.
    pub tcp: u16,
    /// Metadata changes go to the leader.
    pub role: NodeRole,
    pub status: NodeStatus,
}

/// The roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub name: String,
    pub nodes: Vec<Node>,
}

/// What the broker counts; the part of its statistics that people ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    pub process_id: u32,
    /// Percent of one core.
    pub cpu_usage: f32,
    /// Bytes.
    pub memory_usage: u64,
    /// Microseconds since the start.
    pub run_time_us: u64,
    pub messages_size_bytes: u64,
    pub streams: u32,
    pub topics: u32,
    pub partitions: u32,
    pub segments: u32,
    pub messages: u64,
    pub clients: u32,
    pub groups: u32,
    pub hostname: String,
    pub server_version: String,
}

/// This connection as the broker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// Number of the connection on the broker; not the session's id.
    pub client: u32,
    /// None before a login.
    pub user: Option<UserId>,
    pub address: String,
}

impl Client {
    /// A round trip.
    pub fn ping(&mut self) -> Result<(), ClientError> {
        self.call(Call::of(&request::Ping {})?).map(drop)
    }

    /// The roster of nodes.
    pub fn cluster(&mut self) -> Result<Cluster, ClientError> {
        let answer = self.call(Call::of(&request::GetClusterMetadata {})?)?;
        let cluster = ClusterMetadata::read(&mut Reader::new(&answer.payload))?;
        let nodes = cluster.nodes.iter().map(|node| Node {
            replica: node.replica_id,
            name: node.name.to_owned(),
            ip: node.ip.to_owned(),
            tcp: node.tcp,
            role: node.role,
            status: node.status,
        });
        Ok(Cluster { name: cluster.name.to_owned(), nodes: nodes.collect() })
    }

    /// Statistics of the broker.
    pub fn stats(&mut self) -> Result<Stats, ClientError> {
        let answer = self.call(Call::of(&request::GetStats {})?)?;
        let stats = reply::Stats::read(&mut Reader::new(&answer.payload))?;
        Ok(Stats {
            process_id: stats.process_id,
            cpu_usage: stats.cpu_usage,
            memory_usage: stats.memory_usage,
            run_time_us: stats.run_time_us,
            messages_size_bytes: stats.messages_size_bytes,
            streams: stats.streams_count,
            topics: stats.topics_count,
            partitions: stats.partitions_count,
            segments: stats.segments_count,
            messages: stats.messages_count,
            clients: stats.clients_count,
            groups: stats.consumer_groups_count,
            hostname: stats.hostname.to_owned(),
            server_version: stats.server_version.to_owned(),
        })
    }

    /// A page of the metadata change log, as [`reply::ChangesPage`] reads it.
    pub fn changes(&mut self, request: &request::GetMetadataChanges<'_>) -> Result<Bytes, ClientError> {
        Ok(self.call(Call::of(request)?)?.payload)
    }

    /// This connection.
    pub fn me(&mut self) -> Result<Me, ClientError> {
        let answer = self.call(Call::of(&request::GetMe {})?)?;
        let ClientDetails { header, .. } = ClientDetails::read(&mut Reader::new(&answer.payload))?;
        Ok(Me { client: header.client_id, user: header.user_id, address: header.address.to_owned() })
    }

    /// Ends the session on the broker. The client is of no further use.
    pub fn logout(mut self) -> Result<(), ClientError> {
        self.call(Call::of(&request::Logout {})?).map(drop)
    }
}
