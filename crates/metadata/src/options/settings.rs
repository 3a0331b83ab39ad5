//! The settings of a topic that shards act on, read out of its stored options.

use super::catalog::Key;
use super::set::OptionSet;

/// `message_expiry` of a topic whose messages never expire.
pub const NEVER: u64 = u64::MAX;
/// `max_topic_size` of a topic without a limit.
pub const UNLIMITED: u64 = u64::MAX;
/// Smallest segment, in bytes.
pub const SEGMENT_SIZE_MIN: u64 = 1 << 20;
/// Largest segment, in bytes; also the default.
pub const SEGMENT_SIZE_MAX: u64 = 1 << 30;
/// Segment sizes are multiples of this many bytes.
pub const SEGMENT_SIZE_STEP: u64 = 512;
/// Largest `messages_required_to_save`.
pub const SAVE_MESSAGES_MAX: u32 = 16 << 20;
/// Largest `size_of_messages_required_to_save`, in bytes.
pub const SAVE_BYTES_MAX: u64 = 1 << 30;
/// Most bytes that one create may reserve on disk with `preallocate_segments`.
pub const PREALLOCATED_BYTES_MAX: u64 = 64 << 30;
/// Largest `replication_factor`.
pub const REPLICATION_FACTOR_MAX: u32 = 32;

/// Whether a segment may have this size in bytes.
pub fn is_segment_size(bytes: u64) -> bool {
    (SEGMENT_SIZE_MIN..=SEGMENT_SIZE_MAX).contains(&bytes) && bytes.is_multiple_of(SEGMENT_SIZE_STEP)
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// The word of the wire.
            pub fn text(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// Reads the word; letter case does not count.
            pub fn from_text(text: &str) -> Option<Self> {
                [$($name::$variant,)*].into_iter().find(|value| text.eq_ignore_ascii_case(value.text()))
            }
        }
    )*};
}

words! {
    /// What an acknowledged write survives.
    Durability {
        /// The loss of the process, not of power on a majority of nodes.
        Replicated = "replicated",
        /// The loss of power.
        Persisted = "persisted",
    }
    /// Whether partitions may be added and deleted.
    ResizePolicy {
        /// They may.
        Mutable = "mutable",
        /// They may not.
        Fixed = "fixed",
    }
    /// How clients compress; the broker only keeps the word.
    Compression {
        /// Not at all.
        None = "none",
        /// With gzip.
        Gzip = "gzip",
    }
}

impl Compression {
    /// Decodes the one-byte form: 1 none, 2 gzip.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Compression::None),
            2 => Some(Compression::Gzip),
            _ => None,
        }
    }
}

/// The options of one topic, as the broker acts on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Age in microseconds at which sealed segments may go; [`NEVER`].
    pub message_expiry: u64,
    /// Bytes the topic may keep; [`UNLIMITED`].
    pub max_topic_size: u64,
    /// Bytes at which a segment is sealed.
    pub segment_size: u64,
    /// What an acknowledged message survives; decides the class of the lanes.
    pub durability: Durability,
    /// What an acknowledged offset survives.
    pub consumer_offset_durability: Durability,
    /// Whether partitions may be added and deleted.
    pub resize_policy: ResizePolicy,
    /// Messages after which an ordinary write is started.
    pub messages_required_to_save: u32,
    /// Bytes after which an ordinary write is started.
    pub size_of_messages_required_to_save: u64,
    /// Whether segments reserve their bytes when they open.
    pub preallocate_segments: bool,
    /// Nodes that hold each partition.
    pub replication_factor: u32,
}

impl TopicSettings {
    /// Reads the settings of stored options. A key that is absent, or that this build cannot read, counts as its default:
    /// every topic of ours stores all of them, and unknown keys that matter are refused as critical elsewhere.
    pub fn of(options: &OptionSet) -> Self {
        let number =
            |key: Key, default| options.value(key).and_then(|value| value.as_u64()).unwrap_or(default);
        let word = |key: Key| options.value(key).and_then(|value| value.as_text()).unwrap_or("");
        Self {
            message_expiry: number(Key::MessageExpiry, NEVER),
            max_topic_size: number(Key::MaxTopicSize, UNLIMITED),
            segment_size: number(Key::SegmentSize, SEGMENT_SIZE_MAX),
            durability: Durability::from_text(word(Key::Durability)).unwrap_or(Durability::Persisted),
            consumer_offset_durability: Durability::from_text(word(Key::ConsumerOffsetDurability))
                .unwrap_or(Durability::Persisted),
            resize_policy: ResizePolicy::from_text(word(Key::PartitionResizePolicy))
                .unwrap_or(ResizePolicy::Mutable),
            messages_required_to_save: options
                .value(Key::MessagesRequiredToSave)
                .and_then(|value| value.as_u32())
                .unwrap_or(1024),
            size_of_messages_required_to_save: number(Key::SizeOfMessagesRequiredToSave, 1 << 20),
            preallocate_segments: options
                .value(Key::PreallocateSegments)
                .and_then(|value| value.as_bool())
                .unwrap_or(false),
            replication_factor: options
                .value(Key::ReplicationFactor)
                .and_then(|value| value.as_u32())
                .unwrap_or(1),
        }
    }

    /// Whether the limit of the topic holds at least one segment.
    pub fn fits_one_segment(&self) -> bool {
        self.max_topic_size >= self.segment_size
    }

    /// Whether so many partitions may reserve their segments.
    pub fn may_preallocate(&self, partitions_count: u32) -> bool {
        !self.preallocate_segments
            || self.segment_size.saturating_mul(u64::from(partitions_count)) <= PREALLOCATED_BYTES_MAX
    }
}
