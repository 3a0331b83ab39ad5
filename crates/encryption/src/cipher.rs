//! Sealing the bodies of messages.
//!
//! The body of a message frame is its payload and, right behind it, its user headers. Sealed, it is
//!
//! ```text
//! 0         12  nonce
//! 12     p + h  payload and user headers, encrypted
//! 12+p+h    16  tag
//! ```
//!
//! AES-256-GCM-SIV under the stream key. One nonce and one tag serve both parts; the boundary between them and the id of
//! the message are bound as associated data, so that no sealed body can be moved into another frame.

use std::fmt;

use aes_gcm_siv::aead::AeadInOut;
use aes_gcm_siv::{Aes256GcmSiv, KeyInit};

use crate::secret::StreamKey;
use crate::{NONCE_BYTES, Nonce, SEAL_BYTES, TAG_BYTES};

const LABEL: &[u8; 16] = b"laneway/body/v1\0";

/// What stays clear in a frame and is bound to its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedContext {
    /// The id of the message.
    pub message_id: u128,
    /// Bytes of the payload in plain text.
    pub payload_bytes: u32,
    /// Bytes of the user headers.
    pub user_headers_bytes: u32,
}

impl SealedContext {
    fn associated_data(&self) -> [u8; 40] {
        let mut data = [0; 40];
        data[..16].copy_from_slice(LABEL);
        data[16..32].copy_from_slice(&self.message_id.to_le_bytes());
        data[32..36].copy_from_slice(&self.payload_bytes.to_le_bytes());
        data[36..].copy_from_slice(&self.user_headers_bytes.to_le_bytes());
        data
    }
}

/// A sealed body does not open: another key, another frame, or damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sealed body does not open under the stream's key")]
pub struct OpenError;

/// Seals and opens under the key of one stream.
#[derive(Clone)]
pub struct MessageCipher(Aes256GcmSiv);

impl MessageCipher {
    /// The cipher of a stream.
    pub fn new(key: &StreamKey) -> Self {
        Self(Aes256GcmSiv::new_from_slice(key.bytes()).expect("a stream key has 32 bytes"))
    }

    /// Seals a body in place. `body` holds [`NONCE_BYTES`] bytes of room, the plain text, and [`TAG_BYTES`] of room.
    ///
    /// # Panics
    /// When `body` has no room for nonce and tag.
    pub fn seal(&self, nonce: Nonce, context: &SealedContext, body: &mut [u8]) {
        assert!(body.len() >= SEAL_BYTES, "there is room for nonce and tag");
        let (head, rest) = body.split_at_mut(NONCE_BYTES);
        let (text, tail) = rest.split_at_mut(rest.len() - TAG_BYTES);
        let tag = self
            .0
            .encrypt_inout_detached(&nonce.into(), &context.associated_data(), text.into())
            .expect("a message is below what the cipher takes");
        head.copy_from_slice(&nonce);
        tail.copy_from_slice(&tag);
    }

    /// Opens a body in place and gives the range of it that is plain text now. What fails to open is left unusable.
    pub fn open<'a>(&self, context: &SealedContext, body: &'a mut [u8]) -> Result<&'a mut [u8], OpenError> {
        let (nonce, rest) = body.split_first_chunk_mut::<NONCE_BYTES>().ok_or(OpenError)?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG_BYTES>().ok_or(OpenError)?;
        self.0
            .decrypt_inout_detached(
                &(*nonce).into(),
                &context.associated_data(),
                (&mut *text).into(),
                &(*tag).into(),
            )
            .map_err(|_| OpenError)?;
        Ok(text)
    }
}

impl fmt::Debug for MessageCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageCipher(********)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(context: &SealedContext, text: &[u8]) -> Vec<u8> {
        let mut body = vec![0; NONCE_BYTES];
        body.extend_from_slice(text);
        body.resize(body.len() + TAG_BYTES, 0);
        cipher(7).seal([9; NONCE_BYTES], context, &mut body);
        body
    }

    fn cipher(byte: u8) -> MessageCipher {
        MessageCipher::new(&StreamKey::new([byte; 32]))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The expected bytes come from another implementation of AES-256-GCM-SIV, given the key, nonce, associated data and
    /// text that this page describes.
    #[test]
    fn a_sealed_body_has_the_known_bytes() {
        let context = SealedContext { message_id: 1, payload_bytes: 5, user_headers_bytes: 0 };
        assert_eq!(hex(&sealed(&context, b"hello")), KNOWN_BODY);
    }

    const KNOWN_BODY: &str = "09090909090909090909090914ad3b6e47721d41fe09f142c82f3c4f33f7249ac6";

    #[test]
    fn another_key_id_or_boundary_does_not_open() {
        let context = SealedContext { message_id: 1, payload_bytes: 5, user_headers_bytes: 3 };
        let body = sealed(&context, b"helloabc");
        assert_eq!(cipher(7).open(&context, &mut body.clone()).unwrap(), b"helloabc");
        assert_eq!(cipher(8).open(&context, &mut body.clone()), Err(OpenError));
        for wrong in [
            SealedContext { message_id: 2, ..context },
            SealedContext { payload_bytes: 4, user_headers_bytes: 4, ..context },
        ] {
            assert_eq!(cipher(7).open(&wrong, &mut body.clone()), Err(OpenError), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_no_changed_byte_does(
            text in prop::collection::vec(any::<u8>(), 0..300),
            id in any::<u128>(),
            at in any::<prop::sample::Index>(),
            flip in 1..=255_u8,
        ) {
            let context = SealedContext {
                message_id: id,
                payload_bytes: text.len() as u32,
                user_headers_bytes: 0,
            };
            let body = sealed(&context, &text);
            prop_assert_eq!(body.len(), text.len() + SEAL_BYTES);
            let mut opened = body.clone();
            prop_assert_eq!(&*cipher(7).open(&context, &mut opened).unwrap(), &text[..]);
            let mut damaged = body;
            let at = at.index(damaged.len());
            damaged[at] ^= flip;
            prop_assert_eq!(cipher(7).open(&context, &mut damaged), Err(OpenError));
        }

        #[test]
        fn any_bytes_are_opened_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let context = SealedContext { message_id: 0, payload_bytes: 0, user_headers_bytes: 0 };
            prop_assert_eq!(cipher(7).open(&context, &mut bytes), Err(OpenError));
        }
    }
}
