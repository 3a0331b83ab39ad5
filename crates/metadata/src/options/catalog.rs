//! The catalogue of option keys. This table is the protocol's: its order is the order of the enum and of DescribeOptions.
//! Source: resources, section 10.1; wire protocol, sections 3.7 and 9 (`replication_factor`).

use laneway_wire::ProtocolVersion;

use super::defaults::OptionDefaults;
use super::value::{self, OptionValue};

/// Longest key that a refusal echoes, in characters. A refused key is as long as its sender wanted it.
pub const REFUSED_KEY_CHARS_MAX: usize = 64;

pub use laneway_wire::request::OptionScope as Scope;

/// Where the value of a key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In a field of the resource with its own place in the create command.
    Column,
    /// In the resource's stored options.
    Map,
    /// Nowhere: worked out when the resource is read.
    Computed,
}

/// Who sees a key, and who may send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Accepted and returned.
    Public,
    /// Accepted, never returned.
    Secret,
    /// Returned, never accepted.
    ReadOnly,
    /// The broker's own: neither accepted nor returned nor described.
    Internal,
}

/// The value a resource gets when its creator names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// No default.
    None,
    /// A text.
    Text(&'static str),
    /// A 64-bit number.
    U64(u64),
    /// A 32-bit number.
    U32(u32),
    /// A yes or no.
    Bool(bool),
    /// What the server is set to: [`OptionDefaults`].
    Server,
}

/// One row of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// The key it describes.
    pub key: Key,
    /// The key as the wire spells it.
    pub name: &'static str,
    /// Resources that know the key.
    pub scopes: &'static [Scope],
    /// Wire code of the kind that the broker stores, whatever kind came in.
    pub kind: u8,
    /// Where the value lives.
    pub storage: Storage,
    /// Whether an update may set it.
    pub updatable: bool,
    /// Who sees it.
    pub visibility: Visibility,
    /// Whether a node that does not understand the key must not serve the resource.
    pub critical: bool,
    /// What a resource gets without it.
    pub default: DefaultValue,
    /// The oldest protocol whose DescribeOptions lists the key.
    pub protocol_min: ProtocolVersion,
    /// What the key means, for people.
    pub description: &'static str,
}

impl Descriptor {
    /// Whether an update may put the key back to its default: only stored keys that may change and have a default.
    pub fn is_resettable(&self) -> bool {
        self.updatable && self.storage == Storage::Map && self.default != DefaultValue::None
    }

    /// The flag byte of DescribeOptions: 1 updatable, 2 resettable, 4 secret, 8 read-only, 16 critical.
    pub fn flags(&self) -> u8 {
        u8::from(self.updatable)
            | u8::from(self.is_resettable()) << 1
            | u8::from(self.visibility == Visibility::Secret) << 2
            | u8::from(self.visibility == Visibility::ReadOnly) << 3
            | u8::from(self.critical) << 4
    }

    /// The default in the stored kind. `defaults` is what the server is set to.
    pub fn default_value(&self, defaults: &OptionDefaults) -> Option<OptionValue> {
        match self.default {
            DefaultValue::None => None,
            DefaultValue::Text(text) => Some(OptionValue::text(text)),
            DefaultValue::U64(number) => Some(OptionValue::u64(number)),
            DefaultValue::U32(number) => Some(OptionValue::u32(number)),
            DefaultValue::Bool(flag) => Some(OptionValue::bool(flag)),
            DefaultValue::Server => defaults.value(self.key),
        }
    }
}

/// Every option key, in catalogue order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the description of each key stands in its row")]
pub enum Key {
    Name,
    Username,
    Status,
    CompressionAlgorithm,
    MessageExpiry,
    MaxTopicSize,
    SegmentSize,
    Durability,
    ConsumerOffsetDurability,
    PartitionResizePolicy,
    MessagesRequiredToSave,
    SizeOfMessagesRequiredToSave,
    PreallocateSegments,
    ReplicationFactor,
    EncryptionKey,
    EncryptionKeyWrapped,
    EncryptionKeySource,
    EncryptionKeyFingerprint,
    EncryptionKekFingerprint,
    CriticalKeys,
}

impl Key {
    /// The row of the key.
    pub fn descriptor(self) -> &'static Descriptor {
        &CATALOG[self as usize]
    }

    /// The key as the wire spells it.
    pub fn name(self) -> &'static str {
        self.descriptor().name
    }

    /// Finds a key of the scope by its name.
    pub fn in_scope(scope: Scope, name: &str) -> Option<Self> {
        CATALOG.iter().find(|row| row.name == name && row.scopes.contains(&scope)).map(|row| row.key)
    }

    /// Finds a key by its name, whatever resource it belongs to.
    pub fn named(name: &str) -> Option<Self> {
        CATALOG.iter().find(|row| row.name == name).map(|row| row.key)
    }
}

/// The rows that DescribeOptions lists for one scope, in catalogue order. `protocol` is the connection's.
pub fn describe(scope: Scope, protocol: ProtocolVersion) -> impl Iterator<Item = &'static Descriptor> {
    CATALOG.iter().filter(move |row| {
        row.scopes.contains(&scope) && row.visibility != Visibility::Internal && row.protocol_min <= protocol
    })
}

const STREAM_AND_TOPIC: &[Scope] = &[Scope::Stream, Scope::Topic];
const TOPIC: &[Scope] = &[Scope::Topic];
const STREAM: &[Scope] = &[Scope::Stream];
const USER: &[Scope] = &[Scope::User];
const ALL: &[Scope] = &[Scope::Topic, Scope::Stream, Scope::User];

const fn column(
    key: Key,
    name: &'static str,
    scopes: &'static [Scope],
    description: &'static str,
) -> Descriptor {
    Descriptor {
        key,
        name,
        scopes,
        kind: value::STRING,
        storage: Storage::Column,
        updatable: true,
        visibility: Visibility::Public,
        critical: false,
        default: DefaultValue::None,
        protocol_min: ProtocolVersion::V0_12_1,
        description,
    }
}

const fn topic(
    key: Key,
    name: &'static str,
    kind: u8,
    default: DefaultValue,
    description: &'static str,
) -> Descriptor {
    Descriptor {
        key,
        name,
        scopes: TOPIC,
        kind,
        storage: Storage::Map,
        updatable: false,
        visibility: Visibility::Public,
        critical: false,
        default,
        protocol_min: ProtocolVersion::V0_12_1,
        description,
    }
}

const fn stream(
    key: Key,
    name: &'static str,
    kind: u8,
    visibility: Visibility,
    description: &'static str,
) -> Descriptor {
    let computed = matches!(visibility, Visibility::ReadOnly);
    Descriptor {
        key,
        name,
        scopes: STREAM,
        kind,
        storage: if computed { Storage::Computed } else { Storage::Map },
        updatable: false,
        visibility,
        critical: !computed,
        default: DefaultValue::None,
        protocol_min: ProtocolVersion::V0_12_1,
        description,
    }
}

/// Every row, at the position of its key.
pub static CATALOG: [Descriptor; 20] = [
    column(Key::Name, "name", STREAM_AND_TOPIC, "Name: 1 to 255 bytes, unique within its parent."),
    column(Key::Username, "username", USER, "User name: 3 to 50 bytes, unique."),
    column(Key::Status, "status", USER, "active or inactive; making a user inactive ends its sessions."),
    topic(
        Key::CompressionAlgorithm,
        "compression_algorithm",
        value::STRING,
        DefaultValue::Text("none"),
        "none or gzip. Stored for the clients; the broker never compresses.",
    ),
    Descriptor {
        updatable: true,
        ..topic(
            Key::MessageExpiry,
            "message_expiry",
            value::UINT64,
            DefaultValue::Server,
            "Age in microseconds at which sealed segments may be deleted, or a duration such as 7 days, or none.",
        )
    },
    Descriptor {
        updatable: true,
        ..topic(
            Key::MaxTopicSize,
            "max_topic_size",
            value::UINT64,
            DefaultValue::Server,
            "Bytes the topic may keep, shared equally by its partitions, or a size such as 10 GiB, or unlimited. \
             At least segment_size.",
        )
    },
    topic(
        Key::SegmentSize,
        "segment_size",
        value::UINT64,
        DefaultValue::Server,
        "Bytes at which a segment is sealed, or a size such as 128 MiB: a multiple of 512, from 1 MiB to 1 GiB.",
    ),
    topic(
        Key::Durability,
        "durability",
        value::STRING,
        DefaultValue::Server,
        "What an acknowledged message survives. persisted: the loss of power. replicated: the loss of the process.",
    ),
    topic(
        Key::ConsumerOffsetDurability,
        "consumer_offset_durability",
        value::STRING,
        DefaultValue::Server,
        "What an acknowledged consumer offset survives: persisted or replicated, as for durability.",
    ),
    topic(
        Key::PartitionResizePolicy,
        "partition_resize_policy",
        value::STRING,
        DefaultValue::Text("mutable"),
        "mutable, or fixed to refuse adding and deleting partitions.",
    ),
    topic(
        Key::MessagesRequiredToSave,
        "messages_required_to_save",
        value::UINT32,
        DefaultValue::U32(1024),
        "Messages after which an ordinary write is started, 1 to 16777216. Not a promise of durability.",
    ),
    topic(
        Key::SizeOfMessagesRequiredToSave,
        "size_of_messages_required_to_save",
        value::UINT64,
        DefaultValue::U64(1024 * 1024),
        "Bytes after which an ordinary write is started, or a size such as 4 MiB, at most 1 GiB. Not a promise of \
         durability.",
    ),
    topic(
        Key::PreallocateSegments,
        "preallocate_segments",
        value::BOOL,
        DefaultValue::Bool(false),
        "Reserve segment_size bytes when a segment opens. segment_size times partitions may be 64 GiB at most.",
    ),
    Descriptor {
        protocol_min: ProtocolVersion::V0_12_2,
        ..topic(
            Key::ReplicationFactor,
            "replication_factor",
            value::UINT32,
            DefaultValue::Server,
            "Nodes that hold each partition, 1 to 32 and at most the number of nodes.",
        )
    },
    stream(
        Key::EncryptionKey,
        "encryption_key",
        value::RAW,
        Visibility::Secret,
        "The stream's own key: 32 bytes, raw or in base64. Set at create, never returned. Needs a server key.",
    ),
    stream(
        Key::EncryptionKeyWrapped,
        "encryption_key_wrapped",
        value::RAW,
        Visibility::Internal,
        "The stream's key under the server's keys.",
    ),
    stream(
        Key::EncryptionKeySource,
        "encryption_key_source",
        value::STRING,
        Visibility::ReadOnly,
        "Who chose the stream's key: stream, server, or none for a stream in plain text.",
    ),
    stream(
        Key::EncryptionKeyFingerprint,
        "encryption_key_fingerprint",
        value::STRING,
        Visibility::ReadOnly,
        "Fingerprint of the stream's key: 16 hex digits. Absent without a key.",
    ),
    stream(
        Key::EncryptionKekFingerprint,
        "encryption_kek_fingerprint",
        value::STRING,
        Visibility::ReadOnly,
        "Fingerprints of the server keys that wrap the stream's key, separated by commas. Absent without a key.",
    ),
    Descriptor {
        key: Key::CriticalKeys,
        name: "critical_keys",
        scopes: ALL,
        kind: value::STRING,
        storage: Storage::Map,
        updatable: false,
        visibility: Visibility::Internal,
        critical: false,
        default: DefaultValue::None,
        protocol_min: ProtocolVersion::V0_12_1,
        description: "Stored keys that a node must understand to serve the resource.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_the_position_of_its_key() {
        for (index, row) in CATALOG.iter().enumerate() {
            assert_eq!(row.key as usize, index, "{}", row.name);
            assert_eq!(Key::named(row.name), Some(row.key));
            assert!(row.name.len() <= 255 && row.description.len() <= 255);
            if let Some(default) = row.default_value(&OptionDefaults::default()) {
                assert_eq!(default.kind, row.kind, "{}", row.name);
            }
        }
    }

    #[test]
    fn topics_describe_their_public_keys_in_order() {
        let names = |protocol| describe(Scope::Topic, protocol).map(|row| row.name).collect::<Vec<_>>();
        let newest = [
            "name",
            "compression_algorithm",
            "message_expiry",
            "max_topic_size",
            "segment_size",
            "durability",
            "consumer_offset_durability",
            "partition_resize_policy",
            "messages_required_to_save",
            "size_of_messages_required_to_save",
            "preallocate_segments",
            "replication_factor",
        ];
        assert_eq!(names(ProtocolVersion::V0_12_2), newest);
        assert_eq!(names(ProtocolVersion::V0_12_1), newest[..11]);
    }

    #[test]
    fn streams_and_users_describe_no_internal_key() {
        let names = |scope| describe(scope, ProtocolVersion::V0_12_2).map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(
            names(Scope::Stream),
            [
                "name",
                "encryption_key",
                "encryption_key_source",
                "encryption_key_fingerprint",
                "encryption_kek_fingerprint"
            ]
        );
        assert_eq!(names(Scope::User), ["username", "status"]);
    }

    #[test]
    fn flags_are_those_of_the_protocol() {
        let flags = |key: Key| key.descriptor().flags();
        assert_eq!([flags(Key::Name), flags(Key::Status)], [1, 1]);
        assert_eq!([flags(Key::MessageExpiry), flags(Key::MaxTopicSize)], [3, 3]);
        assert_eq!([flags(Key::SegmentSize), flags(Key::ReplicationFactor)], [0, 0]);
        assert_eq!([flags(Key::EncryptionKey), flags(Key::EncryptionKeyWrapped)], [20, 16]);
        assert_eq!([flags(Key::EncryptionKeySource), flags(Key::CriticalKeys)], [8, 0]);
    }
}
