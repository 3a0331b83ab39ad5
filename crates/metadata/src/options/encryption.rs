//! What a stream stores about its key. The key itself is never here: only envelopes, which the keys of a node open.
//! Source: resources, section 16.2.

use laneway_encryption::WrapSet;
use laneway_wire::options::OptionMap;

use super::catalog::Key;
use super::set::{OptionEntry, OptionSet};
use super::value::{OptionValue, RAW};

/// How the messages of a stream lie on disk. Decided when it is created, for its life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StreamEncryption {
    /// As they were sent.
    #[default]
    Plain,
    /// Sealed under the key in these envelopes.
    Sealed(WrapSet),
    /// In a way that this build does not understand: the stream must not be served.
    Unreadable,
}

impl StreamEncryption {
    /// What the stored options say.
    pub fn of(set: &OptionSet) -> Self {
        match (critical(set), set.value(Key::EncryptionKeyWrapped)) {
            (Critical::None, None) => Self::Plain,
            // An envelope is understood whether or not somebody marked it.
            (Critical::None | Critical::Envelopes, Some(wrapped)) => {
                WrapSet::parse(&wrapped.bytes).map_or(Self::Unreadable, Self::Sealed)
            }
            (Critical::Envelopes, None) | (Critical::Unknown, _) => Self::Unreadable,
        }
    }

    /// Adds what reads show of the key.
    pub(super) fn describe(&self, derived: &mut OptionMap) {
        match self {
            Self::Plain => derived.set(Key::EncryptionKeySource.name(), "none"),
            Self::Sealed(set) => {
                derived.set(Key::EncryptionKeySource.name(), set.origin().word());
                derived.set(Key::EncryptionKeyFingerprint.name(), set.key().to_string().as_str());
                derived.set(Key::EncryptionKekFingerprint.name(), set.kek_list().as_str());
            }
            Self::Unreadable => {}
        }
    }
}

/// Puts envelopes into what a stream stores.
pub(crate) fn store(set: &mut OptionSet, envelopes: &WrapSet) {
    let derived = |value| OptionEntry { value, explicit: false };
    let wrapped = OptionValue { kind: RAW, bytes: envelopes.to_bytes() };
    set.insert(Key::EncryptionKeyWrapped.name(), derived(wrapped));
    set.insert(Key::CriticalKeys.name(), derived(OptionValue::text(Key::EncryptionKeyWrapped.name())));
}

/// Whether a resource that is no stream stores keys that a node must understand, and this build does not.
pub(super) fn has_unknown_critical(set: &OptionSet) -> bool {
    critical(set) != Critical::None
}

/// The critical keys that are stored.
#[derive(PartialEq, Eq)]
enum Critical {
    None,
    Envelopes,
    Unknown,
}

fn critical(set: &OptionSet) -> Critical {
    match set.value(Key::CriticalKeys) {
        None => Critical::None,
        Some(keys) if keys.as_text() == Some(Key::EncryptionKeyWrapped.name()) => Critical::Envelopes,
        Some(_) => Critical::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use laneway_encryption::{KeyOrigin, KeyRing, RingConfig, StreamKey};

    use super::*;

    fn envelopes() -> WrapSet {
        let key = Some("/rvT1xP4V8u1EAhk4xDdqzqM2UOPXyy9XYkl4uRShgE=");
        let ring = KeyRing::new(RingConfig { key, ..RingConfig::default() }).unwrap();
        ring.wrap(&StreamKey::new([7; 32]), KeyOrigin::Client, &[[1; 12]; 3]).unwrap()
    }

    #[test]
    fn stored_envelopes_read_back_and_show_names_only() {
        let mut set = OptionSet::default();
        assert_eq!(StreamEncryption::of(&set), StreamEncryption::Plain);
        store(&mut set, &envelopes());
        let encryption = StreamEncryption::of(&set);
        assert_eq!(encryption, StreamEncryption::Sealed(envelopes()));
        let mut derived = OptionMap::new();
        encryption.describe(&mut derived);
        let text = |key: &str| derived.0.get(key).and_then(|value| std::str::from_utf8(&value.bytes).ok());
        assert_eq!(text("encryption_key_source"), Some("stream"));
        assert_eq!(text("encryption_key_fingerprint"), Some("f3e9d699ac366350"));
        assert_eq!(text("encryption_kek_fingerprint"), Some("39e4f0f95c3693c7"));
        assert_eq!(set.public(true).chain(set.public(false)).count(), 0);
    }

    #[test]
    fn what_is_not_understood_is_unreadable() {
        let check = |change: fn(&mut OptionSet)| {
            let mut set = OptionSet::default();
            store(&mut set, &envelopes());
            change(&mut set);
            assert_eq!(StreamEncryption::of(&set), StreamEncryption::Unreadable);
        };
        check(|set| {
            let value = OptionValue::text("encryption_key_wrapped,from_the_future");
            set.insert("critical_keys", OptionEntry { value, explicit: false });
        });
        check(|set| {
            let value = OptionValue { kind: RAW, bytes: vec![9; 78] };
            set.insert("encryption_key_wrapped", OptionEntry { value, explicit: false });
        });
        check(|set| {
            let critical = set.entry("critical_keys").unwrap().clone();
            *set = OptionSet::default();
            set.insert("critical_keys", critical);
        });
    }
}
