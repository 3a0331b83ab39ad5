//! The configuration as the broker uses it: typed, nested, checked.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::ConfigError;
use crate::keys;
use crate::resolve::Values;
use crate::secret::Secret;
use crate::source::Source;
use crate::units::format_bytes;
use crate::value::{self, Value};

/// Everything that can be set. `Config::default()` holds the defaults of the table; whoever embeds the broker may change
/// fields and calls [`Config::validate`]. Created once, before any thread starts; never changes afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Directory of all data.
    pub data_dir: PathBuf,
    pub tcp: Tcp,
    pub http: Http,
    /// Number of shards; `None`: one for each available core.
    pub shards: Option<u16>,
    /// Pin each shard to its core.
    pub pin_cores: bool,
    /// Data lanes of each shard, at least 1. Fixed by the first start of a data directory.
    pub lanes_per_shard: u16,
    pub engine: Engine,
    pub log: Log,
    pub root: Root,
    pub sessions: Sessions,
    pub tokens: Tokens,
    pub metadata: MetadataLimits,
    pub connections: Connections,
    pub limits: Limits,
    pub partition: PartitionLimits,
    pub reads: Reads,
    pub storage: Storage,
    pub encryption: Encryption,
    pub topic: TopicDefaults,
    pub data_maintenance: DataMaintenance,
    pub shutdown: Shutdown,
}

/// The TCP listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tcp {
    /// `None`: off. Port 0 picks a free one.
    pub address: Option<SocketAddr>,
    /// What clients are told, where it differs from the bound address.
    pub advertised_address: Option<AdvertisedAddress>,
}

/// Host and port as a client reaches them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertisedAddress {
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    /// `None`: the bound port.
    pub port: Option<u16>,
}

/// The HTTP listener, which is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    pub address: Option<SocketAddr>,
}

/// What does the I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// io_uring where the kernel allows it, else polling.
    Auto,
    /// io_uring or no start.
    IoUring,
    /// Readiness (epoll), even where io_uring would work.
    Polling,
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// A level or a filter of targets; checked when logging starts.
    pub filter: String,
}

/// Credentials of the root user, read only when it is created. Rules: resources, section 11.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// Use the well-known iggy/iggy for what is not given.
    pub dev: bool,
}

/// What the broker does to data by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataMaintenance {
    /// Whether segments are removed by age and size.
    pub cleaner_enabled: bool,
    /// Least time between two passes of the cleaner.
    pub cleaner_interval: Duration,
    /// Time from one verification of sealed segments to the next.
    pub scrub_interval: Duration,
    /// Bytes that one shard verifies in a second; `None`: it verifies nothing.
    pub scrub_bytes_per_second: Option<u64>,
}

/// Sessions of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    /// Life of a session without a connection.
    pub timeout: Duration,
    /// Fixed by the first start of a data directory.
    pub max: u32,
}

/// Personal access tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    pub per_user_max: u32,
}

/// Bounds of the metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataLimits {
    /// Partitions of the server; `None`: no limit.
    pub partitions_max: Option<u32>,
    /// Records of the change log of each class. Fixed by the first start of a data directory.
    pub change_records_max: u32,
}

/// Client connections of all shards together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    /// `None`: half of the soft descriptor limit.
    pub max: Option<u32>,
}

/// Bounds of admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest frame of a client, header included.
    pub frame_bytes_max: u32,
    pub requests_per_connection_max: u32,
    /// Bytes of open requests and of the answers that they ask for.
    pub inflight_bytes_per_connection_max: u64,
    /// On one shard.
    pub requests_per_user_max: u32,
    /// Bytes of the frames of open requests on one shard.
    pub inflight_bytes_per_user_max: u64,
    /// On the node; `None`: unlimited.
    pub connections_per_user_max: Option<u32>,
    /// Requests that wait for one shard.
    pub mailbox_capacity: u32,
}

/// Bounds of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionLimits {
    pub dedup_sessions_max: u32,
    /// For each kind of consumer.
    pub consumer_offsets_max: u32,
}

/// Bounds of reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reads {
    pub wait_max: Duration,
    pub pending_per_shard_max: u32,
    /// `None`: three quarters of `pending_per_shard_max`, at least what a session may have.
    pub pending_per_user_max: Option<u32>,
    pub pending_per_session_max: u32,
    /// Bytes of one answer.
    pub read_bytes_max: u32,
    /// Bytes of one shard for reads of segments: so many run at once as answers of `read_bytes_max` fit in.
    pub inflight_bytes_max: u64,
}

/// Files and memory of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    pub journal_bytes_max: u64,
    /// Bytes of batches that stay in memory after they reached their segments.
    pub cache_bytes_max: u64,
    /// Free disk space below which messages are refused; `None`: two journals for each shard, at most a quarter of the
    /// disk.
    pub free_bytes_min: Option<u64>,
}

/// Encryption at rest. What the keys must look like is checked by whoever derives from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encryption {
    /// Encrypt every new stream that brings no key.
    pub enabled: bool,
    /// 32 bytes in base64.
    pub key: Option<Secret>,
    /// Separated by commas.
    pub previous_keys: Option<Secret>,
    /// Fingerprints, separated by commas.
    pub retired_keys: Option<String>,
}

/// Options of a new topic whose creator named none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDefaults {
    pub durability: Durability,
    pub consumer_offset_durability: Durability,
    /// Bytes; a multiple of 512.
    pub segment_size: u64,
    /// `None`: never.
    pub message_expiry: Option<Duration>,
    /// Bytes, at least `segment_size`; `None`: unlimited.
    pub max_topic_size: Option<u64>,
}

/// What an acknowledgement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage of a quorum.
    Persisted,
    /// In the kernel of a quorum.
    Replicated,
}

/// Stopping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// Longest wait for requests in progress.
    pub drain_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self::from_values(&Values::defaults())
    }
}

impl Config {
    pub(crate) fn from_values(values: &Values) -> Self {
        let read = Reader(values);
        Self {
            data_dir: read.path("data_dir"),
            tcp: Tcp {
                address: read.address("tcp.address"),
                advertised_address: read.host("tcp.advertised_address"),
            },
            http: Http { address: read.address("http.address") },
            shards: read.count("shards"),
            pin_cores: read.bool("pin_cores"),
            lanes_per_shard: read.number("lanes_per_shard"),
            engine: match read.choice("engine") {
                "io_uring" => Engine::IoUring,
                "polling" => Engine::Polling,
                _ => Engine::Auto,
            },
            log: Log { filter: read.text("log.filter").unwrap_or_default() },
            root: Root {
                username: read.text("root.username"),
                password: read.secret("root.password"),
                dev: read.bool("dev"),
            },
            sessions: Sessions { timeout: read.time("sessions.timeout"), max: read.number("sessions.max") },
            tokens: Tokens { per_user_max: read.number("tokens.per_user_max") },
            metadata: MetadataLimits {
                partitions_max: read.count("metadata.partitions_max"),
                change_records_max: read.number("metadata.change_records_max"),
            },
            connections: Connections { max: read.count("connections.max") },
            limits: Limits {
                frame_bytes_max: read.number("limits.frame_bytes_max"),
                requests_per_connection_max: read.number("limits.requests_per_connection_max"),
                inflight_bytes_per_connection_max: read.number("limits.inflight_bytes_per_connection_max"),
                requests_per_user_max: read.number("limits.requests_per_user_max"),
                inflight_bytes_per_user_max: read.number("limits.inflight_bytes_per_user_max"),
                connections_per_user_max: read.count("limits.connections_per_user_max"),
                mailbox_capacity: read.number("limits.mailbox_capacity"),
            },
            partition: PartitionLimits {
                dedup_sessions_max: read.number("partition.dedup_sessions_max"),
                consumer_offsets_max: read.number("partition.consumer_offsets_max"),
            },
            reads: Reads {
                wait_max: read.time("reads.wait_max"),
                pending_per_shard_max: read.number("reads.pending_per_shard_max"),
                pending_per_user_max: read.count("reads.pending_per_user_max"),
                pending_per_session_max: read.number("reads.pending_per_session_max"),
                read_bytes_max: read.number("reads.read_bytes_max"),
                inflight_bytes_max: read.number("reads.inflight_bytes_max"),
            },
            storage: Storage {
                journal_bytes_max: read.number("storage.journal_bytes_max"),
                cache_bytes_max: read.number("storage.cache_bytes_max"),
                free_bytes_min: read.count("storage.free_bytes_min"),
            },
            encryption: Encryption {
                enabled: read.bool("encryption.enabled"),
                key: read.secret("encryption.key"),
                previous_keys: read.secret("encryption.previous_keys"),
                retired_keys: read.text("encryption.retired_keys"),
            },
            topic: TopicDefaults {
                durability: read.durability("topic.durability"),
                consumer_offset_durability: read.durability("topic.consumer_offset_durability"),
                segment_size: read.number("topic.segment_size"),
                message_expiry: read.duration("topic.message_expiry"),
                max_topic_size: read.count("topic.max_topic_size"),
            },
            data_maintenance: DataMaintenance {
                cleaner_enabled: read.bool("data_maintenance.messages.cleaner_enabled"),
                cleaner_interval: read.time("data_maintenance.messages.interval"),
                scrub_interval: read.time("data_maintenance.scrub.interval"),
                scrub_bytes_per_second: read.count("data_maintenance.scrub.bytes_per_second"),
            },
            shutdown: Shutdown { drain_timeout: read.time("shutdown.drain_timeout") },
        }
    }

    /// Checks ranges, and what concerns several keys, for a configuration that was put together in code.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_ranges(|_| Source::Code)?;
        self.check(|_| Source::Code)
    }

    /// Checks what concerns several keys. `source` tells where a key was set, for the message.
    pub(crate) fn check(&self, source: impl Fn(&str) -> Source) -> Result<(), ConfigError> {
        if self.http.address.is_some() {
            return Err(ConfigError::NoHttp { at: source("http.address") });
        }
        if self.tcp.address.is_none() {
            return Err(ConfigError::NoListener);
        }
        let reads = &self.reads;
        ordered(
            ("reads.pending_per_session_max", reads.pending_per_session_max),
            ("reads.pending_per_shard_max", reads.pending_per_shard_max),
            u32::to_string,
        )?;
        ordered(
            ("reads.read_bytes_max", u64::from(reads.read_bytes_max)),
            ("reads.inflight_bytes_max", reads.inflight_bytes_max),
            |bytes| format_bytes(*bytes),
        )?;
        // Source: resources, section 5: a finite topic size below one segment could never hold.
        ordered(
            ("topic.segment_size", self.topic.segment_size),
            ("topic.max_topic_size", self.topic.max_topic_size.unwrap_or(u64::MAX)),
            |bytes| format_bytes(*bytes),
        )
    }

    /// Checks each number against the range of its key: a configuration that was put together in code did not come
    /// through the parser.
    fn check_ranges(&self, source: impl Fn(&str) -> Source) -> Result<(), ConfigError> {
        let count = |number: u32| number.to_string();
        let bytes = |number: u64| format!("{number} B");
        let time = |duration: Duration| format!("{} us", duration.as_micros());
        let (reads, storage, topic) = (&self.reads, &self.storage, &self.topic);
        let numbers = [
            ("shards", self.shards.map(|shards| count(shards.into()))),
            ("lanes_per_shard", Some(count(self.lanes_per_shard.into()))),
            ("sessions.timeout", Some(time(self.sessions.timeout))),
            ("sessions.max", Some(count(self.sessions.max))),
            ("metadata.partitions_max", self.metadata.partitions_max.map(count)),
            ("metadata.change_records_max", Some(count(self.metadata.change_records_max))),
            ("connections.max", self.connections.max.map(count)),
            ("limits.frame_bytes_max", Some(bytes(self.limits.frame_bytes_max.into()))),
            ("limits.requests_per_connection_max", Some(count(self.limits.requests_per_connection_max))),
            (
                "limits.inflight_bytes_per_connection_max",
                Some(bytes(self.limits.inflight_bytes_per_connection_max)),
            ),
            ("limits.requests_per_user_max", Some(count(self.limits.requests_per_user_max))),
            ("limits.inflight_bytes_per_user_max", Some(bytes(self.limits.inflight_bytes_per_user_max))),
            ("limits.connections_per_user_max", self.limits.connections_per_user_max.map(count)),
            ("reads.pending_per_user_max", reads.pending_per_user_max.map(count)),
            ("limits.mailbox_capacity", Some(count(self.limits.mailbox_capacity))),
            ("partition.dedup_sessions_max", Some(count(self.partition.dedup_sessions_max))),
            ("partition.consumer_offsets_max", Some(count(self.partition.consumer_offsets_max))),
            ("reads.wait_max", Some(time(reads.wait_max))),
            ("reads.pending_per_shard_max", Some(count(reads.pending_per_shard_max))),
            ("reads.pending_per_session_max", Some(count(reads.pending_per_session_max))),
            ("reads.read_bytes_max", Some(bytes(reads.read_bytes_max.into()))),
            ("reads.inflight_bytes_max", Some(bytes(reads.inflight_bytes_max))),
            ("storage.journal_bytes_max", Some(bytes(storage.journal_bytes_max))),
            ("storage.cache_bytes_max", Some(bytes(storage.cache_bytes_max))),
            ("storage.free_bytes_min", storage.free_bytes_min.map(bytes)),
            ("data_maintenance.messages.interval", Some(time(self.data_maintenance.cleaner_interval))),
            ("data_maintenance.scrub.interval", Some(time(self.data_maintenance.scrub_interval))),
            (
                "data_maintenance.scrub.bytes_per_second",
                self.data_maintenance.scrub_bytes_per_second.map(bytes),
            ),
            ("topic.segment_size", Some(bytes(topic.segment_size))),
            ("topic.message_expiry", topic.message_expiry.map(time)),
            ("topic.max_topic_size", topic.max_topic_size.map(bytes)),
            ("shutdown.drain_timeout", Some(time(self.shutdown.drain_timeout))),
        ];
        for (name, number) in numbers {
            let Some(number) = number else { continue };
            let key = keys::key(name).expect("the names are those of the table");
            value::parse(key, &number).map_err(|reason| ConfigError::Value {
                at: source(name),
                key: key.name,
                reason,
            })?;
        }
        Ok(())
    }
}

impl Reads {
    /// Polls of one user that may wait on one shard.
    pub fn pending_per_user(&self) -> u32 {
        let auto = (self.pending_per_shard_max / 4 * 3).max(self.pending_per_session_max);
        self.pending_per_user_max.unwrap_or(auto)
    }
}

impl fmt::Display for AdvertisedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

fn ordered<T: PartialOrd>(
    small: (&'static str, T),
    large: (&'static str, T),
    show: impl Fn(&T) -> String,
) -> Result<(), ConfigError> {
    if small.1 <= large.1 {
        return Ok(());
    }
    Err(ConfigError::Order {
        small: small.0,
        small_value: show(&small.1),
        large: large.0,
        large_value: show(&large.1),
    })
}

/// Typed access to the values. A wrong kind is a mistake of this file against the table, found by building the default.
struct Reader<'a>(&'a Values);

impl Reader<'_> {
    fn count<T: TryFrom<u64>>(&self, name: &str) -> Option<T> {
        match self.0.get(name) {
            Value::Absent => None,
            Value::Count(number) | Value::Bytes(number) => {
                Some(T::try_from(*number).ok().expect("the key's range fits the field"))
            }
            other => mismatch(name, other),
        }
    }

    fn number<T: TryFrom<u64>>(&self, name: &str) -> T {
        self.count(name).expect("a key without a word always has a value")
    }

    fn duration(&self, name: &str) -> Option<Duration> {
        match self.0.get(name) {
            Value::Absent => None,
            Value::Duration(duration) => Some(*duration),
            other => mismatch(name, other),
        }
    }

    fn time(&self, name: &str) -> Duration {
        self.duration(name).expect("a key without a word always has a value")
    }

    fn bool(&self, name: &str) -> bool {
        match self.0.get(name) {
            Value::Bool(value) => *value,
            other => mismatch(name, other),
        }
    }

    fn choice(&self, name: &str) -> &'static str {
        match self.0.get(name) {
            Value::Choice(word) => word,
            other => mismatch(name, other),
        }
    }

    fn durability(&self, name: &str) -> Durability {
        match self.choice(name) {
            "replicated" => Durability::Replicated,
            _ => Durability::Persisted,
        }
    }

    fn address(&self, name: &str) -> Option<SocketAddr> {
        match self.0.get(name) {
            Value::Absent => None,
            Value::Address(address) => Some(*address),
            other => mismatch(name, other),
        }
    }

    fn host(&self, name: &str) -> Option<AdvertisedAddress> {
        match self.0.get(name) {
            Value::Absent => None,
            Value::Host(host) => Some(host.clone()),
            other => mismatch(name, other),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        match self.0.get(name) {
            Value::Path(path) => path.clone(),
            other => mismatch(name, other),
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name) {
            Value::Absent => None,
            Value::Text(text) => Some(text.clone()),
            other => mismatch(name, other),
        }
    }

    fn secret(&self, name: &str) -> Option<Secret> {
        match self.0.get(name) {
            Value::Absent => None,
            Value::Secret(secret) => Some(secret.clone()),
            other => mismatch(name, other),
        }
    }
}

fn mismatch(name: &str, value: &Value) -> ! {
    panic!("the table and Config disagree about {name}: {value:?}")
}
