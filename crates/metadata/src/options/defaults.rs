//! What a new topic gets for a key that its creator left out, where the server decides it.

use super::catalog::Key;
use super::settings::{self, Durability};
use super::value::OptionValue;

/// Defaults that a node is set to; all others stand in the catalogue. A create writes them into the command, so nodes may
/// differ, and a later setting changes no topic that exists. `Default` holds the values of the protocol.
/// Source: resources, section 10.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDefaults {
    /// Age in microseconds; [`settings::NEVER`].
    pub message_expiry: u64,
    /// Bytes, at least `segment_size`; [`settings::UNLIMITED`].
    pub max_topic_size: u64,
    /// Bytes, as [`settings::is_segment_size`] allows them.
    pub segment_size: u64,
    /// What an acknowledged message survives.
    pub durability: Durability,
    /// What an acknowledged offset survives.
    pub consumer_offset_durability: Durability,
    /// Nodes that hold each partition, 1 to [`settings::REPLICATION_FACTOR_MAX`].
    pub replication_factor: u32,
}

impl Default for OptionDefaults {
    fn default() -> Self {
        Self {
            message_expiry: settings::NEVER,
            max_topic_size: settings::UNLIMITED,
            segment_size: settings::SEGMENT_SIZE_MAX,
            durability: Durability::Persisted,
            consumer_offset_durability: Durability::Persisted,
            replication_factor: 1,
        }
    }
}

impl OptionDefaults {
    /// The default of one key in the stored kind; none for a key that the server does not decide.
    pub fn value(&self, key: Key) -> Option<OptionValue> {
        match key {
            Key::MessageExpiry => Some(OptionValue::u64(self.message_expiry)),
            Key::MaxTopicSize => Some(OptionValue::u64(self.max_topic_size)),
            Key::SegmentSize => Some(OptionValue::u64(self.segment_size)),
            Key::Durability => Some(OptionValue::text(self.durability.text())),
            Key::ConsumerOffsetDurability => Some(OptionValue::text(self.consumer_offset_durability.text())),
            Key::ReplicationFactor => Some(OptionValue::u32(self.replication_factor)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::catalog::{CATALOG, DefaultValue};

    #[test]
    fn the_server_decides_what_the_catalogue_leaves_to_it() {
        for row in &CATALOG {
            let value = OptionDefaults::default().value(row.key);
            assert_eq!(value.is_some(), row.default == DefaultValue::Server, "{}", row.name);
        }
    }
}
