//! One option value: its kind and bytes, and the rule of each key for what comes in.
//!
//! Text is taken for every key; what is stored is always the kind of the catalogue. Source: resources, section 10.1.

use std::fmt;

use laneway_wire::Status;
use rkyv::{Archive, Deserialize, Serialize};

use super::catalog::Key;
use super::settings::{self, Compression, Durability, ResizePolicy};
use super::text;

/// Wire code of raw bytes.
pub const RAW: u8 = 1;
/// Wire code of text.
pub const STRING: u8 = 2;
/// Wire code of a yes or no.
pub const BOOL: u8 = 3;
/// Wire code of one byte.
pub const UINT8: u8 = 9;
/// Wire code of a 32-bit number.
pub const UINT32: u8 = 11;
/// Wire code of a 64-bit number.
pub const UINT64: u8 = 12;

/// Longest expiry that is given as text, in microseconds: u32::MAX seconds.
const EXPIRY_TEXT_US_MAX: u64 = u32::MAX as u64 * 1_000_000;

/// One stored value. The bytes are what the wire carries: little-endian numbers, UTF-8 text.
#[derive(Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct OptionValue {
    /// Wire code of the kind.
    pub kind: u8,
    /// The value, 1 to 255 bytes.
    pub bytes: Vec<u8>,
}

impl OptionValue {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self { kind: STRING, bytes: text.as_bytes().to_vec() }
    }

    /// A 64-bit number.
    pub fn u64(number: u64) -> Self {
        Self { kind: UINT64, bytes: number.to_le_bytes().to_vec() }
    }

    /// A 32-bit number.
    pub fn u32(number: u32) -> Self {
        Self { kind: UINT32, bytes: number.to_le_bytes().to_vec() }
    }

    /// A yes or no.
    pub fn bool(flag: bool) -> Self {
        Self { kind: BOOL, bytes: vec![u8::from(flag)] }
    }

    /// The value as answers carry it.
    pub fn to_wire(&self) -> laneway_wire::options::OptionValue {
        laneway_wire::options::OptionValue { kind: self.kind, bytes: self.bytes.as_slice().into() }
    }

    /// The number of a 64-bit value.
    pub fn as_u64(&self) -> Option<u64> {
        (self.kind == UINT64).then(|| self.bytes.as_slice().try_into().map(u64::from_le_bytes).ok())?
    }

    /// The number of a 32-bit value.
    pub fn as_u32(&self) -> Option<u32> {
        (self.kind == UINT32).then(|| self.bytes.as_slice().try_into().map(u32::from_le_bytes).ok())?
    }

    /// The flag of a yes or no.
    pub fn as_bool(&self) -> Option<bool> {
        match (self.kind, self.bytes.as_slice()) {
            (BOOL, [flag @ 0..=1]) => Some(*flag == 1),
            _ => None,
        }
    }

    /// The text of a text value.
    pub fn as_text(&self) -> Option<&str> {
        (self.kind == STRING).then(|| std::str::from_utf8(&self.bytes).ok())?
    }
}

impl fmt::Debug for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.as_text(), self.as_u64(), self.as_u32(), self.as_bool()) {
            (Some(text), ..) => write!(f, "{text:?}"),
            (_, Some(number), ..) => write!(f, "{number}"),
            (.., Some(number), _) => write!(f, "{number}"),
            (.., Some(flag)) => write!(f, "{flag}"),
            // Raw bytes may be a key.
            _ => write!(f, "<kind {}, {} bytes>", self.kind, self.bytes.len()),
        }
    }
}

/// What one value of a block means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Canonical {
    /// Store this value.
    Store(OptionValue),
    /// The sender asked for the server's default: as if the key had not been sent.
    ServerDefault,
    /// A well-formed stream key. Its bytes are not kept here: a key must never reach a log or an error.
    StreamKey,
}

/// Brings the value of a stored key into the kind of the catalogue.
///
/// Errors: [`Status::InvalidOptionValue`] for a wrong kind or a value out of range; [`Status::InvalidReplicationFactor`]
/// and [`Status::InvalidEncryptionKey`] for the two keys with numbers of their own.
pub fn canonical(key: Key, kind: u8, bytes: &[u8]) -> Result<Canonical, Status> {
    let invalid = Status::InvalidOptionValue;
    let value = match key {
        Key::CompressionAlgorithm => {
            let compression = match (kind, bytes) {
                (UINT8, [code]) => Compression::from_code(*code),
                (STRING, _) => word(bytes).and_then(Compression::from_text),
                _ => None,
            };
            OptionValue::text(compression.ok_or(invalid)?.text())
        }
        Key::MessageExpiry => return sized(kind, bytes, expiry),
        Key::MaxTopicSize => return sized(kind, bytes, topic_size),
        Key::SegmentSize => {
            let value = sized(kind, bytes, text::bytes)?;
            match &value {
                Canonical::Store(size) if !size.as_u64().is_some_and(settings::is_segment_size) => {
                    return Err(invalid);
                }
                _ => return Ok(value),
            }
        }
        Key::SizeOfMessagesRequiredToSave => {
            let value = sized(kind, bytes, text::bytes)?;
            match &value {
                Canonical::Store(size) if size.as_u64() > Some(settings::SAVE_BYTES_MAX) => {
                    return Err(invalid);
                }
                _ => return Ok(value),
            }
        }
        Key::Durability | Key::ConsumerOffsetDurability => {
            OptionValue::text(choice(kind, bytes).and_then(Durability::from_text).ok_or(invalid)?.text())
        }
        Key::PartitionResizePolicy => {
            OptionValue::text(choice(kind, bytes).and_then(ResizePolicy::from_text).ok_or(invalid)?.text())
        }
        Key::MessagesRequiredToSave => {
            let count = number(kind, bytes).ok_or(invalid)?;
            if !(1..=settings::SAVE_MESSAGES_MAX).contains(&count) {
                return Err(invalid);
            }
            OptionValue::u32(count)
        }
        Key::ReplicationFactor => {
            let factor = number(kind, bytes).ok_or(invalid)?;
            if !(1..=settings::REPLICATION_FACTOR_MAX).contains(&factor) {
                return Err(Status::InvalidReplicationFactor);
            }
            OptionValue::u32(factor)
        }
        Key::PreallocateSegments => {
            let flag = match (kind, bytes) {
                (BOOL, [flag @ 0..=1]) => *flag == 1,
                (STRING, b"true") => true,
                (STRING, b"false") => false,
                _ => return Err(invalid),
            };
            OptionValue::bool(flag)
        }
        Key::EncryptionKey => {
            let well_formed = match kind {
                RAW => bytes.len() == 32,
                STRING => word(bytes).is_some_and(text::is_base64_of_32_bytes),
                _ => false,
            };
            return well_formed.then_some(Canonical::StreamKey).ok_or(Status::InvalidEncryptionKey);
        }
        Key::Name
        | Key::Username
        | Key::Status
        | Key::EncryptionKeyWrapped
        | Key::EncryptionKeySource
        | Key::EncryptionKeyFingerprint
        | Key::EncryptionKekFingerprint
        | Key::CriticalKeys => return Err(invalid),
    };
    Ok(Canonical::Store(value))
}

fn word(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn choice(kind: u8, bytes: &[u8]) -> Option<&str> {
    (kind == STRING).then(|| word(bytes))?
}

fn number(kind: u8, bytes: &[u8]) -> Option<u32> {
    match kind {
        UINT32 => bytes.try_into().ok().map(u32::from_le_bytes),
        STRING => word(bytes)?.parse().ok(),
        _ => None,
    }
}

/// A 64-bit key: the number, its decimal digits, or words. Zero asks for the server's default.
fn sized(kind: u8, bytes: &[u8], from_words: fn(&str) -> Option<u64>) -> Result<Canonical, Status> {
    let number = match kind {
        UINT64 => bytes.try_into().ok().map(u64::from_le_bytes),
        // Digits come first: a sender that cannot write 64-bit numbers can still name any.
        STRING => word(bytes).and_then(|text| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse().ok(),
            false => from_words(text),
        }),
        _ => None,
    };
    match number.ok_or(Status::InvalidOptionValue)? {
        0 => Ok(Canonical::ServerDefault),
        number => Ok(Canonical::Store(OptionValue::u64(number))),
    }
}

fn expiry(text: &str) -> Option<u64> {
    match text.to_ascii_lowercase().as_str() {
        "none" | "unlimited" | "never_expire" => Some(settings::NEVER),
        "default" | "server_default" => Some(0),
        text => text::duration_us(text).filter(|us| *us <= EXPIRY_TEXT_US_MAX),
    }
}

fn topic_size(text: &str) -> Option<u64> {
    match text {
        "unlimited" => Some(settings::UNLIMITED),
        "server_default" => Some(0),
        text => text::bytes(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: Key, kind: u8, bytes: &[u8], expected: Result<OptionValue, u32>) {
        let got = canonical(key, kind, bytes).map_err(Status::number);
        assert_eq!(got, expected.map(Canonical::Store), "{key:?} {kind} {bytes:?}");
    }

    fn check_text(key: Key, text: &str, expected: Result<OptionValue, u32>) {
        check(key, STRING, text.as_bytes(), expected);
    }

    #[test]
    fn text_is_stored_in_the_kind_of_the_key() {
        check_text(Key::SegmentSize, "128MiB", Ok(OptionValue::u64(134_217_728)));
        check_text(Key::MessageExpiry, "5s", Ok(OptionValue::u64(5_000_000)));
        check_text(Key::MessageExpiry, "5000000", Ok(OptionValue::u64(5_000_000)));
        check_text(Key::MessageExpiry, "never_expire", Ok(OptionValue::u64(u64::MAX)));
        check_text(Key::MaxTopicSize, "2 GiB", Ok(OptionValue::u64(2 << 30)));
        check_text(Key::MaxTopicSize, "unlimited", Ok(OptionValue::u64(u64::MAX)));
        check_text(Key::Durability, "Replicated", Ok(OptionValue::text("replicated")));
        check_text(Key::PartitionResizePolicy, "fixed", Ok(OptionValue::text("fixed")));
        check_text(Key::MessagesRequiredToSave, "64", Ok(OptionValue::u32(64)));
        check_text(Key::PreallocateSegments, "true", Ok(OptionValue::bool(true)));
        check_text(Key::CompressionAlgorithm, "gzip", Ok(OptionValue::text("gzip")));
        check(Key::CompressionAlgorithm, UINT8, &[2], Ok(OptionValue::text("gzip")));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for size in [1000, 512 * 1024, 2 << 30, (1 << 20) + 1] {
            check(Key::SegmentSize, UINT64, &u64::to_le_bytes(size), Err(4042));
        }
        check(Key::MessagesRequiredToSave, UINT32, &[0; 4], Err(4042));
        check(Key::MessagesRequiredToSave, UINT32, &u32::to_le_bytes((16 << 20) + 1), Err(4042));
        check(Key::SizeOfMessagesRequiredToSave, UINT64, &u64::to_le_bytes((1 << 30) + 1), Err(4042));
        check(Key::ReplicationFactor, UINT32, &[0; 4], Err(2018));
        check(Key::ReplicationFactor, UINT32, &u32::to_le_bytes(33), Err(2018));
        check(Key::PreallocateSegments, BOOL, &[2], Err(4042));
        check(Key::CompressionAlgorithm, UINT8, &[9], Err(4042));
        check_text(Key::ReplicationFactor, "many", Err(4042));
        check_text(Key::MessageExpiry, "200 years", Err(4042));
        check_text(Key::MessageExpiry, "", Err(4042));
    }

    #[test]
    fn a_wrong_kind_or_width_is_refused() {
        check(Key::SegmentSize, UINT32, &u32::to_le_bytes(1 << 20), Err(4042));
        check(Key::SegmentSize, UINT64, &[0; 7], Err(4042));
        check(Key::Durability, RAW, b"persisted", Err(4042));
        check(Key::Durability, STRING, &[0xff], Err(4042));
        check(Key::Name, STRING, b"orders", Err(4042));
    }

    #[test]
    fn zero_asks_for_the_server_default() {
        for key in
            [Key::MessageExpiry, Key::MaxTopicSize, Key::SegmentSize, Key::SizeOfMessagesRequiredToSave]
        {
            assert_eq!(canonical(key, UINT64, &[0; 8]), Ok(Canonical::ServerDefault), "{key:?}");
            assert_eq!(canonical(key, STRING, b"0"), Ok(Canonical::ServerDefault), "{key:?}");
        }
    }

    #[test]
    fn a_stream_key_is_32_bytes_raw_or_in_base64() {
        assert_eq!(canonical(Key::EncryptionKey, RAW, &[7; 32]), Ok(Canonical::StreamKey));
        assert_eq!(canonical(Key::EncryptionKey, RAW, &[7; 31]), Err(Status::InvalidEncryptionKey));
        let text = b"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        assert_eq!(canonical(Key::EncryptionKey, STRING, text), Ok(Canonical::StreamKey));
        assert_eq!(canonical(Key::EncryptionKey, STRING, &text[..43]), Err(Status::InvalidEncryptionKey));
        assert_eq!(canonical(Key::EncryptionKey, UINT64, &[7; 8]), Err(Status::InvalidEncryptionKey));
    }

    #[test]
    fn debug_never_shows_raw_bytes() {
        let value = OptionValue { kind: RAW, bytes: vec![0x41; 32] };
        assert_eq!(format!("{value:?}"), "<kind 1, 32 bytes>");
    }
}
