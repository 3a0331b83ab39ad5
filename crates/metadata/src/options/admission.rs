//! Admission of an options block: the same checks in the same order for every transport, so that a request with several
//! mistakes is always refused for the same one. Source: resources, section 10.5.

use std::collections::BTreeSet;

use laneway_encryption::StreamKey;
use laneway_wire::Status;
use laneway_wire::options::Options;

use super::catalog::{Key, REFUSED_KEY_CHARS_MAX, Scope, Storage, Visibility};
use super::defaults::OptionDefaults;
use super::set::{OptionEntry, OptionSet};
use super::value::{self, Canonical, OptionValue, canonical};
use crate::limits;

/// One entry of a block as the request carries it.
#[derive(Clone, Copy)]
pub struct RawOption<'a> {
    /// The key.
    pub key: &'a str,
    /// Wire code of the value's kind.
    pub kind: u8,
    /// The value.
    pub value: &'a [u8],
}

impl<'a> RawOption<'a> {
    /// The entries of a block that the wire has validated.
    pub fn of_block(block: Options<'a>) -> Vec<Self> {
        block.iter().map(|(key, value)| RawOption { key, kind: value.kind, value: value.bytes }).collect()
    }
}

/// The key that the block of a create holds, once [`admit_create`] found it well formed.
pub fn stream_key(block: &[RawOption<'_>]) -> Option<StreamKey> {
    let entry = block.iter().find(|entry| entry.key == Key::EncryptionKey.name())?;
    match entry.kind {
        value::RAW => StreamKey::from_raw(entry.value),
        _ => StreamKey::from_base64(std::str::from_utf8(entry.value).ok()?),
    }
}

/// Why a request was refused before anything happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}")]
pub struct Refusal {
    /// The answer of the binary protocol.
    pub status: Status,
    /// The option that caused it, at most [`REFUSED_KEY_CHARS_MAX`] characters. Only HTTP shows it.
    pub key: Option<String>,
}

impl Refusal {
    /// A refusal that no single option caused.
    pub fn new(status: Status) -> Self {
        Self { status, key: None }
    }

    /// A refusal because of one option.
    pub fn of_key(status: Status, key: &str) -> Self {
        Self { status, key: Some(key.chars().take(REFUSED_KEY_CHARS_MAX).collect()) }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::new(status)
    }
}

/// What a create stores explicitly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmittedCreate {
    /// The keys to store, in the kind of the catalogue.
    pub explicit: Vec<(Key, OptionValue)>,
    /// Whether the block holds a well-formed stream key. The key itself stays with the request.
    pub stream_key: bool,
}

/// What an update changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmittedPatch {
    /// Columns to set: name, username or status, as text.
    pub columns: Vec<(Key, String)>,
    /// Stored keys to set.
    pub set: Vec<(Key, OptionValue)>,
    /// Stored keys to put back to their default.
    pub reset: Vec<Key>,
}

/// Checks the block of a create. `column` is the name or the user name that the command carries on its own.
///
/// Errors: [`Refusal`], first by the order of section 10.5, steps 1 to 6 and 8.
pub fn admit_create(scope: Scope, column: &str, block: &[RawOption<'_>]) -> Result<AdmittedCreate, Refusal> {
    distinct(block.iter().map(|entry| entry.key))?;
    let keys = known(scope, block.iter().map(|entry| entry.key))?;
    refuse_read_only(&keys)?;
    if let Some(key) = keys.iter().find(|key| key.descriptor().storage == Storage::Column) {
        return Err(Refusal::of_key(Status::InvalidOptionValue, key.name()));
    }
    check_name(scope, column)?;

    let mut admitted = AdmittedCreate::default();
    let mut resulting = OptionSet::default();
    for (key, entry) in keys.into_iter().zip(block) {
        match canonical(key, entry.kind, entry.value).map_err(|status| Refusal::of_key(status, key.name()))? {
            Canonical::Store(value) => {
                resulting.insert(key.name(), OptionEntry { value: value.clone(), explicit: true });
                admitted.explicit.push((key, value));
            }
            Canonical::ServerDefault => {}
            Canonical::StreamKey => admitted.stream_key = true,
        }
    }
    fits(&resulting)?;
    Ok(admitted)
}

/// Checks the block and the reset list of an update. `current` holds what the resource stores now, `defaults` what a key
/// that is reset gets.
///
/// Errors: [`Refusal`], first by the order of section 10.5, steps 1 to 8.
pub fn admit_update(
    scope: Scope,
    block: &[RawOption<'_>],
    reset: &[&str],
    current: &OptionSet,
    defaults: &OptionDefaults,
) -> Result<AdmittedPatch, Refusal> {
    if block.is_empty() && reset.is_empty() {
        return Err(Status::InvalidCommand.into());
    }
    distinct(block.iter().map(|entry| entry.key).chain(reset.iter().copied()))?;
    let set_keys = known(scope, block.iter().map(|entry| entry.key))?;
    let reset_keys = known(scope, reset.iter().copied())?;
    let all = || set_keys.iter().chain(&reset_keys);
    refuse_read_only(all())?;
    if let Some(key) = all().find(|key| !key.descriptor().updatable) {
        return Err(Refusal::of_key(Status::OptionNotUpdatable, key.name()));
    }
    if let Some(key) = reset_keys.iter().find(|key| !key.descriptor().is_resettable()) {
        return Err(Refusal::of_key(Status::OptionNotResettable, key.name()));
    }

    let mut patch = AdmittedPatch::default();
    for (key, entry) in set_keys.into_iter().zip(block) {
        if key.descriptor().storage == Storage::Column {
            patch.columns.push((key, column_text(scope, key, entry)?));
            continue;
        }
        match canonical(key, entry.kind, entry.value).map_err(|status| Refusal::of_key(status, key.name()))? {
            Canonical::Store(value) => patch.set.push((key, value)),
            Canonical::ServerDefault => {}
            // Only a create may carry a key; the check above refused it.
            Canonical::StreamKey => return Err(Refusal::of_key(Status::OptionNotUpdatable, key.name())),
        }
    }
    patch.reset = reset_keys;
    if patch == AdmittedPatch::default() {
        return Err(Status::InvalidCommand.into());
    }
    fits(&patch.applied_to(current, defaults))?;
    Ok(patch)
}

impl AdmittedPatch {
    /// The new name of a stream or topic.
    pub fn name(&self) -> Option<&str> {
        self.columns.iter().find(|(key, _)| *key == Key::Name).map(|(_, name)| name.as_str())
    }

    /// The stored options after the update. Columns are not part of them.
    pub fn applied_to(&self, current: &OptionSet, defaults: &OptionDefaults) -> OptionSet {
        let mut set = current.clone();
        set.merge(&self.entries(defaults));
        set
    }

    /// The entries that change: what is set, and the default of what is reset.
    pub fn entries(&self, defaults: &OptionDefaults) -> OptionSet {
        let mut set = OptionSet::default();
        for key in &self.reset {
            if let Some(value) = key.descriptor().default_value(defaults) {
                set.insert(key.name(), OptionEntry { value, explicit: false });
            }
        }
        for (key, value) in &self.set {
            set.insert(key.name(), OptionEntry { value: value.clone(), explicit: true });
        }
        set
    }
}

/// Checks the name of a stream, topic or user against its length rule. Source: resources, section 2.2.
pub fn check_name(scope: Scope, name: &str) -> Result<(), Status> {
    let (allowed, status) = match scope {
        Scope::Stream => (limits::NAME_BYTES, Status::InvalidStreamName),
        Scope::Topic => (limits::NAME_BYTES, Status::InvalidTopicName),
        Scope::User => (limits::USERNAME_BYTES, Status::InvalidUsername),
    };
    if allowed.contains(&name.len()) { Ok(()) } else { Err(status) }
}

fn column_text(scope: Scope, key: Key, entry: &RawOption<'_>) -> Result<String, Refusal> {
    let text = (entry.kind == value::STRING).then(|| std::str::from_utf8(entry.value).ok()).flatten();
    let status = match (key, text) {
        (Key::Status, Some("active" | "inactive")) => Ok(()),
        (Key::Status, _) => Err(Status::InvalidUserStatus),
        (_, text) => check_name(scope, text.unwrap_or_default()),
    };
    status.map_err(|status| Refusal::of_key(status, key.name()))?;
    Ok(text.unwrap_or_default().to_owned())
}

fn distinct<'a>(keys: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if !seen.insert(key) {
            return Err(Refusal::of_key(Status::InvalidCommand, key));
        }
    }
    Ok(())
}

fn known<'a>(scope: Scope, keys: impl Iterator<Item = &'a str>) -> Result<Vec<Key>, Refusal> {
    keys.map(|key| {
        Key::in_scope(scope, key).ok_or_else(|| Refusal::of_key(Status::UnsupportedOptionKey, key))
    })
    .collect()
}

fn refuse_read_only<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Result<(), Refusal> {
    let refused =
        |key: &&Key| matches!(key.descriptor().visibility, Visibility::Internal | Visibility::ReadOnly);
    match keys.into_iter().find(refused) {
        Some(key) => Err(Refusal::of_key(Status::ReadOnlyOption, key.name())),
        None => Ok(()),
    }
}

fn fits(resulting: &OptionSet) -> Result<(), Refusal> {
    if resulting.fits_a_block() { Ok(()) } else { Err(Status::OptionsBlockTooLarge.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'a>(key: &'a str, value: &'a str) -> RawOption<'a> {
        RawOption { key, kind: value::STRING, value: value.as_bytes() }
    }

    fn create(scope: Scope, block: &[RawOption<'_>]) -> Result<AdmittedCreate, u32> {
        admit_create(scope, "name", block).map_err(|refusal| refusal.status.number())
    }

    fn update(scope: Scope, block: &[RawOption<'_>], reset: &[&str]) -> Result<AdmittedPatch, u32> {
        admit_update(scope, block, reset, &OptionSet::default(), &OptionDefaults::default())
            .map_err(|refusal| refusal.status.number())
    }

    #[test]
    fn a_create_stores_what_it_was_given() {
        let admitted =
            create(Scope::Topic, &[text("segment_size", "1 MiB"), text("message_expiry", "0")]).unwrap();
        assert_eq!(admitted.explicit, [(Key::SegmentSize, OptionValue::u64(1 << 20))]);
    }

    #[test]
    fn checks_of_a_create_come_in_order() {
        // Each block has every later mistake as well.
        let bad_value = text("segment_size", "1");
        let column = text("name", "other");
        let read_only = text("critical_keys", "x");
        let unknown = text("flavour", "x");
        assert_eq!(create(Scope::Topic, &[bad_value, column, read_only, unknown, unknown]), Err(3));
        assert_eq!(create(Scope::Topic, &[bad_value, column, read_only, unknown]), Err(4041));
        assert_eq!(create(Scope::Topic, &[bad_value, column, read_only]), Err(4105));
        assert_eq!(create(Scope::Topic, &[bad_value, column]), Err(4042));
        assert_eq!(create(Scope::Topic, &[bad_value]), Err(4042));
        assert_eq!(admit_create(Scope::Topic, "", &[bad_value]).unwrap_err().status.number(), 2014);
        assert_eq!(admit_create(Scope::Stream, &"n".repeat(256), &[]).unwrap_err().status.number(), 1013);
        assert_eq!(admit_create(Scope::User, "ab", &[]).unwrap_err().status.number(), 43);
    }

    #[test]
    fn a_key_of_another_scope_is_unknown() {
        assert_eq!(create(Scope::Stream, &[text("segment_size", "1 MiB")]), Err(4041));
        assert_eq!(create(Scope::Stream, &[text("encryption_key_source", "none")]), Err(4105));
        assert_eq!(create(Scope::Stream, &[text("encryption_key", "short")]), Err(70));
        let key = RawOption { key: "encryption_key", kind: value::RAW, value: &[1; 32] };
        let admitted = create(Scope::Stream, &[key]).unwrap();
        assert!(admitted.stream_key && admitted.explicit.is_empty());
    }

    #[test]
    fn checks_of_an_update_come_in_order() {
        let bad_value = text("message_expiry", "soon");
        assert_eq!(update(Scope::Topic, &[], &[]), Err(3));
        assert_eq!(update(Scope::Topic, &[bad_value], &["message_expiry"]), Err(3));
        assert_eq!(update(Scope::Topic, &[bad_value, text("flavour", "x")], &["name"]), Err(4041));
        assert_eq!(update(Scope::Topic, &[bad_value, text("critical_keys", "x")], &["name"]), Err(4105));
        assert_eq!(update(Scope::Topic, &[bad_value, text("segment_size", "1 MiB")], &["name"]), Err(4103));
        assert_eq!(update(Scope::Topic, &[bad_value], &["segment_size"]), Err(4103));
        assert_eq!(update(Scope::Topic, &[bad_value], &["name"]), Err(4104));
        assert_eq!(update(Scope::Topic, &[bad_value], &["max_topic_size"]), Err(4042));
        assert_eq!(update(Scope::Topic, &[text("message_expiry", "0")], &[]), Err(3));
        assert_eq!(update(Scope::User, &[text("status", "asleep")], &[]), Err(45));
        assert_eq!(update(Scope::User, &[text("username", "ab")], &[]), Err(43));
    }

    #[test]
    fn a_patch_moves_keys_between_explicit_and_derived() {
        let explicit = [(Key::MaxTopicSize, OptionValue::u64(5 << 30))];
        let current = OptionSet::created(Scope::Topic, explicit, &OptionDefaults::default());
        let defaults = OptionDefaults { max_topic_size: 7 << 30, ..OptionDefaults::default() };
        let block = [text("message_expiry", "5s"), text("name", "renamed")];
        let patch = admit_update(Scope::Topic, &block, &["max_topic_size"], &current, &defaults).unwrap();
        assert_eq!(patch.columns, [(Key::Name, "renamed".to_owned())]);
        let after = patch.applied_to(&current, &defaults);
        let expiry = after.entry("message_expiry").unwrap();
        assert_eq!((expiry.explicit, expiry.value.as_u64()), (true, Some(5_000_000)));
        let size = after.entry("max_topic_size").unwrap();
        assert_eq!((size.explicit, size.value.as_u64()), (false, Some(7 << 30)));
    }

    #[test]
    fn refusals_echo_64_characters_of_a_key_and_no_value() {
        let long = "k".repeat(200);
        let refusal = admit_create(Scope::Topic, "name", &[text(&long, "v")]).unwrap_err();
        assert_eq!(refusal.key.unwrap().len(), 64);
    }

    #[test]
    fn a_result_over_the_block_limit_is_refused() {
        let mut current = OptionSet::default();
        for index in 0..1024 {
            current.insert(
                &format!("future_{index}"),
                OptionEntry { value: OptionValue::bool(true), explicit: true },
            );
        }
        let refusal = admit_update(
            Scope::Topic,
            &[text("message_expiry", "5s")],
            &[],
            &current,
            &OptionDefaults::default(),
        )
        .unwrap_err();
        assert_eq!(refusal.status, Status::OptionsBlockTooLarge);
    }
}
