//! Short names of keys: what reads show and envelopes carry.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// Label of the fingerprint of a stream key. Source: resources, section 16.2.
pub(crate) const STREAM_KEY_LABEL: &[u8] = b"iggy/stream-key-fingerprint/v1";
/// Label of the fingerprint of a key-encryption key. Source: resources, section 16.2.
pub(crate) const KEK_LABEL: &[u8] = b"iggy/stream-kek-fingerprint/v1";

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 8;

/// First 8 bytes of SHA-256 over a label and a key. Shown as 16 lowercase hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    pub(crate) fn of(label: &[u8], key: &[u8]) -> Self {
        let digest = Sha256::new().chain_update(label).chain_update(key).finalize();
        let mut first = [0; FINGERPRINT_BYTES];
        first.copy_from_slice(&digest[..FINGERPRINT_BYTES]);
        Self(first)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 16 lowercase hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 16 lowercase hexadecimal digits")]
pub struct NotAFingerprint;

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let lowercase = text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if text.len() != 2 * FINGERPRINT_BYTES || !lowercase {
            return Err(NotAFingerprint);
        }
        let number = u64::from_str_radix(text, 16).map_err(|_| NotAFingerprint)?;
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back_as_itself() {
        let fingerprint = Fingerprint([0x39, 0xe4, 0xf0, 0xf9, 0x5c, 0x36, 0x93, 0xc7]);
        assert_eq!(fingerprint.to_string(), "39e4f0f95c3693c7");
        assert_eq!("39e4f0f95c3693c7".parse(), Ok(fingerprint));
        for wrong in ["39E4F0F95C3693C7", "39e4f0f95c3693c", "39e4f0f95c3693c7a", "+9e4f0f95c3693c7", ""] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(NotAFingerprint), "{wrong}");
        }
    }
}
