//! Keys that are never shown and leave nothing behind in memory.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::KEY_BYTES;
use crate::fingerprint::{Fingerprint, STREAM_KEY_LABEL};

/// The key of one stream. Not printed, not compared in varying time, wiped when dropped.
#[derive(Clone)]
pub struct StreamKey([u8; KEY_BYTES]);

impl StreamKey {
    /// A key from its bytes. The caller drew them at random.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// A key as a create carries it: 32 raw bytes. None for any other length.
    pub fn from_raw(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// A key as text: standard base64 with padding, in the one canonical form.
    pub fn from_base64(text: &str) -> Option<Self> {
        decode_key(text).map(|key| Self(*key))
    }

    /// What identifies the key without showing it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(STREAM_KEY_LABEL, &self.0)
    }

    /// The bytes, for a cipher.
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl Drop for StreamKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl PartialEq for StreamKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for StreamKey {}

impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamKey(********)")
    }
}

/// 32 bytes of standard base64 with padding.
pub(crate) fn decode_key(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let decoded = Zeroizing::new(STANDARD.decode(text).ok()?);
    decoded.as_slice().try_into().ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_32_bytes_raw_or_in_canonical_base64() {
        let key = StreamKey::new([7; 32]);
        assert_eq!(StreamKey::from_raw(&[7; 32]), Some(key.clone()));
        assert_eq!(StreamKey::from_base64("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="), Some(key));
        assert_eq!(StreamKey::from_raw(&[7; 31]), None);
        assert_eq!(StreamKey::from_base64("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"), None);
        // The bits behind the last byte are not zero.
        assert_eq!(StreamKey::from_base64("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwd="), None);
        assert_eq!(StreamKey::from_base64("c2hvcnQ="), None);
    }

    #[test]
    fn debug_shows_no_byte_of_a_key() {
        assert_eq!(format!("{:?}", StreamKey::new([0x41; 32])), "StreamKey(********)");
    }
}
