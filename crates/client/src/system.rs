//! Calls about the broker and the connection itself. Source: wire protocol, section 5.1.

use laneway_wire::{Code, Reader, ReplicaId, UserId};

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
    /// Whether metadata changes go to this node.
    pub is_leader: bool,
    /// 0 healthy, 1 starting, 2 stopping, 3 unreachable, 4 in maintenance.
    pub status: u8,
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
        self.call(Call::new(Code::Ping, 0)).map(drop)
    }

    /// The roster of nodes.
    pub fn cluster(&mut self) -> Result<Cluster, ClientError> {
        let answer = self.call(Call::new(Code::GetClusterMetadata, 0))?;
        let mut reader = Reader::new(&answer.payload);
        let name = reader.str32("name")?.to_owned();
        let count = reader.u32("nodes_count")?;
        let mut nodes = Vec::new();
        for _ in 0..count {
            let replica = ReplicaId(reader.u8("replica_id")?);
            let name = reader.str32("node_name")?.to_owned();
            let ip = reader.str32("ip")?.to_owned();
            let tcp = reader.u16("tcp")?;
            for transport in ["quic", "http", "websocket"] {
                reader.u16(transport)?;
            }
            let is_leader = reader.u8("role")? == 0;
            nodes.push(Node { replica, name, ip, tcp, is_leader, status: reader.u8("status")? });
        }
        Ok(Cluster { name, nodes })
    }

    /// Statistics of the broker.
    pub fn stats(&mut self) -> Result<Stats, ClientError> {
        let answer = self.call(Call::new(Code::GetStats, 0))?;
        let mut reader = Reader::new(&answer.payload);
        let process_id = reader.u32("process_id")?;
        let cpu_usage = reader.f32("cpu_usage")?;
        reader.f32("total_cpu_usage")?;
        let memory_usage = reader.u64("memory_usage")?;
        reader.take(16, "memory")?;
        let run_time_us = reader.u64("run_time")?;
        reader.take(24, "start_time")?;
        let messages_size_bytes = reader.u64("messages_size_bytes")?;
        let streams = reader.u32("streams")?;
        let topics = reader.u32("topics")?;
        let partitions = reader.u32("partitions")?;
        let segments = reader.u32("segments")?;
        let messages = reader.u64("messages")?;
        let clients = reader.u32("clients")?;
        let groups = reader.u32("groups")?;
        let hostname = reader.str32("hostname")?.to_owned();
        for field in ["os_name", "os_version", "kernel_version"] {
            reader.str32(field)?;
        }
        let server_version = reader.str32("server_version")?.to_owned();
        Ok(Stats {
            process_id,
            cpu_usage,
            memory_usage,
            run_time_us,
            messages_size_bytes,
            streams,
            topics,
            partitions,
            segments,
            messages,
            clients,
            groups,
            hostname,
            server_version,
        })
    }

    /// This connection.
    pub fn me(&mut self) -> Result<Me, ClientError> {
        let answer = self.call(Call::new(Code::GetMe, 0))?;
        let mut reader = Reader::new(&answer.payload);
        let client = reader.u32("client_id")?;
        let user = Some(reader.u32("user_id")?).filter(|user| *user != u32::MAX).map(UserId);
        reader.u8("transport")?;
        let address = reader.str32("address")?.to_owned();
        Ok(Me { client, user, address })
    }

    /// Ends the session on the broker. The client is of no further use.
    pub fn logout(mut self) -> Result<(), ClientError> {
        self.call(Call::new(Code::Logout, 0)).map(drop)
    }
}
