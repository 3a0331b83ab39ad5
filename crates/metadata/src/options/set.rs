//! What a resource stores: each key once, with its value and whether the client chose it.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_wire::options::{Block, OptionMap};
use rkyv::{Archive, Deserialize, Serialize};

use super::catalog::{CATALOG, Key, Scope, Storage, Visibility};
use super::defaults::OptionDefaults;
use super::encryption::{self, StreamEncryption};
use super::value::OptionValue;

/// Most entries of a block. Source: resources, section 3.
pub const BLOCK_ENTRIES_MAX: usize = 1024;
/// Most bytes of an encoded block. Source: resources, section 3.
pub const BLOCK_BYTES_MAX: usize = 100_000;
/// Bytes of one encoded entry beside its key and value: kind and length of both.
const ENTRY_FRAMING_BYTES: usize = 10;

/// One stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionEntry {
    /// The value, in the kind of the catalogue.
    pub value: OptionValue,
    /// Whether the client set it; otherwise the broker filled it in.
    pub explicit: bool,
}

/// The stored options of one resource, by key in byte order. Keys that this build does not know are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionSet {
    entries: BTreeMap<Arc<str>, OptionEntry>,
}

impl OptionSet {
    /// The options of a new resource: what the client set, and the default of every other stored key of the scope.
    pub fn created(
        scope: Scope,
        explicit: impl IntoIterator<Item = (Key, OptionValue)>,
        defaults: &OptionDefaults,
    ) -> Self {
        let mut set = Self::default();
        for row in CATALOG.iter().filter(|row| row.storage == Storage::Map && row.scopes.contains(&scope)) {
            if let Some(value) = row.default_value(defaults) {
                set.insert(row.key.name(), OptionEntry { value, explicit: false });
            }
        }
        for (key, value) in explicit {
            set.insert(key.name(), OptionEntry { value, explicit: true });
        }
        set
    }

    /// The stored value of a key, whoever chose it.
    pub fn value(&self, key: Key) -> Option<&OptionValue> {
        self.entry(key.name()).map(|entry| &entry.value)
    }

    /// The entry of a key.
    pub fn entry(&self, key: &str) -> Option<&OptionEntry> {
        self.entries.get(key)
    }

    /// Sets one key.
    pub fn insert(&mut self, key: &str, entry: OptionEntry) {
        self.entries.insert(key.into(), entry);
    }

    /// Takes over every entry of `changes`.
    pub fn merge(&mut self, changes: &OptionSet) {
        for (key, entry) in changes.iter() {
            self.insert(key, entry.clone());
        }
    }

    /// Every stored entry, by key in byte order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &OptionEntry)> {
        self.entries.iter().map(|(key, entry)| (key.as_ref(), entry))
    }

    /// The entries that reads return as explicit or as derived: never a secret, never a key of the broker's own.
    pub fn public(&self, explicit: bool) -> impl Iterator<Item = (&str, &OptionValue)> {
        self.iter()
            .filter(move |(key, entry)| entry.explicit == explicit && is_returned(key))
            .map(|(key, entry)| (key, &entry.value))
    }

    /// Whether a block of these entries stays within the protocol's limits.
    pub fn fits_a_block(&self) -> bool {
        let bytes: usize =
            self.iter().map(|(key, entry)| ENTRY_FRAMING_BYTES + key.len() + entry.value.bytes.len()).sum();
        self.entries.len() <= BLOCK_ENTRIES_MAX && bytes <= BLOCK_BYTES_MAX
    }

    pub(crate) fn to_records(&self) -> Vec<OptionRecord> {
        self.iter()
            .map(|(key, entry)| OptionRecord {
                key: key.to_owned(),
                value: entry.value.clone(),
                explicit: entry.explicit,
            })
            .collect()
    }

    /// Rebuilds a set from its records; none when they break the rules of a block.
    pub(crate) fn from_records(records: Vec<OptionRecord>) -> Option<Self> {
        let mut set = Self::default();
        let count = records.len();
        for record in records {
            let sizes = [record.key.len(), record.value.bytes.len()];
            if sizes.iter().any(|bytes| !(1..=255).contains(bytes)) || record.value.kind == 0 {
                return None;
            }
            set.entries
                .insert(record.key.into(), OptionEntry { value: record.value, explicit: record.explicit });
        }
        (set.entries.len() == count && set.fits_a_block()).then_some(set)
    }
}

/// The options of a resource together with the two blocks that every answer about it carries. The blocks are made once,
/// when the options change: lists of many resources are read far more often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredOptions {
    set: OptionSet,
    explicit: OptionMap,
    derived: OptionMap,
    encryption: StreamEncryption,
}

impl StoredOptions {
    /// Options of a resource of this scope.
    pub fn new(scope: Scope, set: OptionSet) -> Self {
        let block = |explicit| {
            let mut map = OptionMap::new();
            for (key, value) in set.public(explicit) {
                map.0.insert(key.to_owned(), value.to_wire());
            }
            map
        };
        let (explicit, mut derived) = (block(true), block(false));
        let encryption = match scope {
            Scope::Stream => StreamEncryption::of(&set),
            _ if encryption::has_unknown_critical(&set) => StreamEncryption::Unreadable,
            _ => StreamEncryption::Plain,
        };
        if scope == Scope::Stream {
            encryption.describe(&mut derived);
        }
        Self { set, explicit, derived, encryption }
    }

    /// What is stored.
    pub fn set(&self) -> &OptionSet {
        &self.set
    }

    /// How the messages of a stream lie on disk. [`StreamEncryption::Unreadable`] also for a topic or user with options
    /// that a node must understand and this build does not.
    pub fn encryption(&self) -> &StreamEncryption {
        &self.encryption
    }

    /// What the client set, as answers carry it.
    pub fn explicit(&self) -> Block<'_> {
        Block::Map(&self.explicit)
    }

    /// What the broker filled in, as answers carry it.
    pub fn derived(&self) -> Block<'_> {
        Block::Map(&self.derived)
    }

    pub(crate) fn to_records(&self) -> Vec<OptionRecord> {
        self.set.to_records()
    }

    pub(crate) fn from_records(scope: Scope, records: Vec<OptionRecord>) -> Option<Self> {
        OptionSet::from_records(records).map(|set| Self::new(scope, set))
    }
}

fn is_returned(key: &str) -> bool {
    Key::named(key).is_none_or(|key| {
        let row = key.descriptor();
        row.visibility == Visibility::Public && row.storage == Storage::Map
    })
}

/// A stored entry as logs and snapshots hold it.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct OptionRecord {
    /// The key, 1 to 255 bytes.
    pub key: String,
    /// The value.
    pub value: OptionValue,
    /// Whether the client set it.
    pub explicit: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_topic_stores_a_default_for_every_key_it_was_not_given() {
        let defaults = OptionDefaults { replication_factor: 3, ..OptionDefaults::default() };
        let explicit = [(Key::SegmentSize, OptionValue::u64(1 << 20))];
        let set = OptionSet::created(Scope::Topic, explicit, &defaults);
        let explicit: Vec<_> = set.public(true).map(|(key, _)| key).collect();
        assert_eq!(explicit, ["segment_size"]);
        assert_eq!(set.public(false).count(), 10);
        assert_eq!(set.value(Key::ReplicationFactor), Some(&OptionValue::u32(3)));
        assert_eq!(set.value(Key::Durability), Some(&OptionValue::text("persisted")));
    }

    #[test]
    fn secrets_and_own_keys_are_not_returned_and_unknown_keys_are() {
        let mut set = OptionSet::default();
        for key in ["encryption_key", "encryption_key_wrapped", "critical_keys", "name", "from_the_future"] {
            set.insert(key, OptionEntry { value: OptionValue::text("x"), explicit: true });
        }
        assert_eq!(set.public(true).map(|(key, _)| key).collect::<Vec<_>>(), ["from_the_future"]);
    }

    #[test]
    fn streams_say_that_nobody_chose_a_key() {
        let stored = StoredOptions::new(Scope::Stream, OptionSet::default());
        let source = stored.derived().get("encryption_key_source").and_then(|value| value.as_text());
        assert_eq!(source, Some("none"));
        assert_eq!(stored.explicit().iter().count(), 0);
        assert_eq!(StoredOptions::new(Scope::User, OptionSet::default()).derived().iter().count(), 0);
    }

    #[test]
    fn records_restore_the_set_and_bad_records_do_not() {
        let set = OptionSet::created(Scope::Topic, [], &OptionDefaults::default());
        assert_eq!(OptionSet::from_records(set.to_records()), Some(set.clone()));
        let mut twice = set.to_records();
        twice.push(twice[0].clone());
        assert_eq!(OptionSet::from_records(twice), None);
        let mut empty = set.to_records();
        empty[0].value.bytes.clear();
        assert_eq!(OptionSet::from_records(empty), None);
    }
}
