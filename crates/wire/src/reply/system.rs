//! Sign-in, roster, counters and connections. Source: wire protocol, sections 2.4 and 5.1.

use bytes::{BufMut, BytesMut};

use super::{Record, count32, read_counted, records};
use crate::field::Field;
use crate::ids::{Micros, ReplicaId, SessionEpoch, StreamId, TopicId, UserId};
use crate::primitive::{DecodeError, EncodeError, Reader, put_bytes32, put_str8, put_str32};
use crate::protocol::ProtocolVersion;

impl Field<'_> for ProtocolVersion {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        reader.u32(field).map(ProtocolVersion)
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u32_le(self.0);
        Ok(())
    }
}

records! {
    /// Answer to a login (behind a result section) and to a bind (raw).
    Registered<'a> {
        /// The user that signed in.
        user_id: UserId,
        /// Epoch of the session, never 0.
        session: SessionEpoch,
        /// The version that the server speaks.
        protocol: ProtocolVersion,
        /// Build version of the server, 1 to 255 bytes.
        server_version: &'a str,
    }
    /// A node of the roster.
    ClusterNode<'a> {
        /// Number of the node, as routes name it.
        replica_id: ReplicaId,
        /// Its name.
        name: &'a str = Text32,
        /// IP address or host name.
        ip: &'a str = Text32,
        /// Port for TCP, 0 for none.
        tcp: u16,
        /// Port for QUIC, 0 for none.
        quic: u16,
        /// Port for HTTP, 0 for none.
        http: u16,
        /// Port for WebSocket, 0 for none.
        websocket: u16,
        /// Whether it leads.
        role: NodeRole,
        /// How it is.
        status: NodeStatus,
    }
    /// A consumer group that a connection belongs to.
    ClientGroup {
        /// The stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The group.
        group: u32,
    }
    /// A connection.
    ClientHeader<'a> {
        /// Number of the connection on this server.
        client_id: u32,
        /// The user, none before login.
        user_id: Option<UserId>,
        /// How it is connected.
        transport: Transport,
        /// Where it comes from.
        address: &'a str = Text32,
        /// How many groups follow in the details.
        groups_count: u32,
    }
    /// Cache counters of one partition.
    CacheMetrics {
        /// The stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
        /// The partition.
        partition: u32,
        /// Reads from the cache.
        hits: u64,
        /// Reads past the cache.
        misses: u64,
        /// Part of the reads that hit, 0 to 1.
        hit_ratio: f32,
    }
}

/// "No user" is `u32::MAX`.
impl Field<'_> for Option<UserId> {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        Ok(Some(reader.u32(field)?).filter(|id| *id != u32::MAX).map(UserId))
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u32_le(self.map_or(u32::MAX, |user| user.0));
        Ok(())
    }
}

macro_rules! byte_enum {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $byte:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $byte,)*
        }

        impl Field<'_> for $name {
            fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
                match reader.u8(field)? {
                    $($byte => Ok($name::$variant),)*
                    kind => Err(DecodeError::Kind { field, kind: kind.into() }),
                }
            }

            fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
                out.put_u8(*self as u8);
                Ok(())
            }
        }
    )*};
}

byte_enum! {
    /// Whether a node leads the metadata.
    NodeRole {
        /// It orders metadata.
        Leader = 0,
        /// It follows.
        Follower = 1,
    }
    /// How a node is.
    NodeStatus {
        /// It serves.
        Healthy = 0,
        /// It starts.
        Starting = 1,
        /// It stops.
        Stopping = 2,
        /// Nobody hears from it.
        Unreachable = 3,
        /// It is being worked on.
        Maintenance = 4,
    }
    /// How a client is connected.
    Transport {
        /// TCP, with or without TLS.
        Tcp = 1,
        /// QUIC.
        Quic = 2,
        /// HTTP.
        Http = 3,
        /// WebSocket.
        WebSocket = 4,
    }
}

/// The roster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterMetadata<'a> {
    /// Name of the cluster.
    pub name: &'a str,
    /// Its nodes.
    pub nodes: Vec<ClusterNode<'a>>,
}

impl<'a> Record<'a> for ClusterMetadata<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let name = reader.str32("cluster name")?;
        let count = reader.u32("nodes")?;
        Ok(ClusterMetadata { name, nodes: read_counted(reader, count)? })
    }

    fn put(&self, out: &mut BytesMut) {
        put_str32(out, self.name);
        out.put_u32_le(count32(self.nodes.len()));
        self.nodes.iter().for_each(|node| node.put(out));
    }
}

/// A connection and its consumer groups. `header.groups_count` is written from the list.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientDetails<'a> {
    /// The connection.
    pub header: ClientHeader<'a>,
    /// Its groups.
    pub groups: Vec<ClientGroup>,
}

impl<'a> Record<'a> for ClientDetails<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let header = ClientHeader::read(reader)?;
        Ok(ClientDetails { header, groups: read_counted(reader, header.groups_count)? })
    }

    fn put(&self, out: &mut BytesMut) {
        ClientHeader { groups_count: count32(self.groups.len()), ..self.header }.put(out);
        self.groups.iter().for_each(|group| group.put(out));
    }
}

/// One option that a scope accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDescriptor<'a> {
    /// The key.
    pub key: &'a str,
    /// The canonical kind of its values.
    pub kind: u8,
    /// Bit 0 updatable, 1 resettable, 2 secret, 3 read-only, 4 critical.
    pub flags: u8,
    /// The default in its canonical encoding; empty means none.
    pub default: &'a [u8],
    /// What it does.
    pub description: &'a str,
}

impl<'a> Record<'a> for OptionDescriptor<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(OptionDescriptor {
            key: reader.str8("key")?,
            kind: reader.u8("kind")?,
            flags: reader.u8("flags")?,
            default: reader.bytes32("default")?,
            description: reader.str32("description")?,
        })
    }

    fn put(&self, out: &mut BytesMut) {
        put_str8(out, self.key);
        out.put_u8(self.kind);
        out.put_u8(self.flags);
        put_bytes32(out, self.default);
        put_str32(out, self.description);
    }
}

/// Appends the answer to DescribeOptions.
pub fn put_option_descriptors(out: &mut BytesMut, descriptors: &[OptionDescriptor<'_>]) {
    out.put_u32_le(count32(descriptors.len()));
    descriptors.iter().for_each(|descriptor| descriptor.put(out));
}

/// Reads the answer to DescribeOptions.
pub fn parse_option_descriptors(body: &[u8]) -> Result<Vec<OptionDescriptor<'_>>, DecodeError> {
    let mut reader = Reader::new(body);
    let count = reader.u32("descriptors")?;
    read_counted(&mut reader, count)
}

/// Counters of a node. Source: wire protocol, section 5.1.1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats<'a> {
    /// Process number.
    pub process_id: u32,
    /// CPU use of the process, percent of one core.
    pub cpu_usage: f32,
    /// CPU use of the machine, percent.
    pub total_cpu_usage: f32,
    /// Resident bytes.
    pub memory_usage: u64,
    /// Bytes of memory of the machine.
    pub total_memory: u64,
    /// Bytes of memory available.
    pub available_memory: u64,
    /// Microseconds since the start.
    pub run_time_us: u64,
    /// When the process started.
    pub start_time: Micros,
    /// Bytes read from disk.
    pub read_bytes: u64,
    /// Bytes written to disk.
    pub written_bytes: u64,
    /// Bytes of all messages.
    pub messages_size_bytes: u64,
    /// Streams.
    pub streams_count: u32,
    /// Topics.
    pub topics_count: u32,
    /// Partitions.
    pub partitions_count: u32,
    /// Segments.
    pub segments_count: u32,
    /// Messages.
    pub messages_count: u64,
    /// Connections.
    pub clients_count: u32,
    /// Consumer groups.
    pub consumer_groups_count: u32,
    /// Name of the machine.
    pub hostname: &'a str,
    /// Name of the operating system.
    pub os_name: &'a str,
    /// Version of the operating system.
    pub os_version: &'a str,
    /// Version of the kernel.
    pub kernel_version: &'a str,
    /// Version of the server.
    pub server_version: &'a str,
    /// The same, packed as a protocol version; 0 for none.
    pub server_semver: u32,
    /// Caches by partition.
    pub caches: Vec<CacheMetrics>,
    /// Threads of the process.
    pub threads_count: u32,
    /// Free bytes on the disk of the data.
    pub free_disk_space: u64,
    /// Bytes of that disk.
    pub total_disk_space: u64,
    /// Open files and their limit; left out when not known.
    pub open_files: Option<(u64, u64)>,
}

impl<'a> Record<'a> for Stats<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut stats = Stats {
            process_id: reader.u32("process_id")?,
            cpu_usage: reader.f32("cpu_usage")?,
            total_cpu_usage: reader.f32("total_cpu_usage")?,
            memory_usage: reader.u64("memory_usage")?,
            total_memory: reader.u64("total_memory")?,
            available_memory: reader.u64("available_memory")?,
            run_time_us: reader.u64("run_time")?,
            start_time: Micros(reader.u64("start_time")?),
            read_bytes: reader.u64("read_bytes")?,
            written_bytes: reader.u64("written_bytes")?,
            messages_size_bytes: reader.u64("messages_size_bytes")?,
            streams_count: reader.u32("streams_count")?,
            topics_count: reader.u32("topics_count")?,
            partitions_count: reader.u32("partitions_count")?,
            segments_count: reader.u32("segments_count")?,
            messages_count: reader.u64("messages_count")?,
            clients_count: reader.u32("clients_count")?,
            consumer_groups_count: reader.u32("consumer_groups_count")?,
            hostname: reader.str32("hostname")?,
            os_name: reader.str32("os_name")?,
            os_version: reader.str32("os_version")?,
            kernel_version: reader.str32("kernel_version")?,
            server_version: reader.str32("server_version")?,
            server_semver: reader.u32("server_semver")?,
            ..Stats::default()
        };
        let caches = reader.u32("caches")?;
        stats.caches = read_counted(reader, caches)?;
        stats.threads_count = reader.u32("threads_count")?;
        stats.free_disk_space = reader.u64("free_disk_space")?;
        stats.total_disk_space = reader.u64("total_disk_space")?;
        if !reader.is_empty() {
            stats.open_files = Some((reader.u64("open_files")?, reader.u64("open_files_limit")?));
        }
        Ok(stats)
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u32_le(self.process_id);
        out.put_f32_le(self.cpu_usage);
        out.put_f32_le(self.total_cpu_usage);
        out.put_u64_le(self.memory_usage);
        out.put_u64_le(self.total_memory);
        out.put_u64_le(self.available_memory);
        out.put_u64_le(self.run_time_us);
        out.put_u64_le(self.start_time.0);
        out.put_u64_le(self.read_bytes);
        out.put_u64_le(self.written_bytes);
        out.put_u64_le(self.messages_size_bytes);
        out.put_u32_le(self.streams_count);
        out.put_u32_le(self.topics_count);
        out.put_u32_le(self.partitions_count);
        out.put_u32_le(self.segments_count);
        out.put_u64_le(self.messages_count);
        out.put_u32_le(self.clients_count);
        out.put_u32_le(self.consumer_groups_count);
        put_str32(out, self.hostname);
        put_str32(out, self.os_name);
        put_str32(out, self.os_version);
        put_str32(out, self.kernel_version);
        put_str32(out, self.server_version);
        out.put_u32_le(self.server_semver);
        out.put_u32_le(count32(self.caches.len()));
        self.caches.iter().for_each(|cache| cache.put(out));
        out.put_u32_le(self.threads_count);
        out.put_u64_le(self.free_disk_space);
        out.put_u64_le(self.total_disk_space);
        if let Some((open, limit)) = self.open_files {
            out.put_u64_le(open);
            out.put_u64_le(limit);
        }
    }
}
