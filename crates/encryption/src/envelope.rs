//! A wrapped stream key, and the set of them that a stream stores.
//!
//! ```text
//!  0   1  version: 1
//!  1   1  origin of the key: 1 client, 2 server
//!  2   8  fingerprint of the key-encryption key
//! 10  12  nonce
//! 22  32  the stream key, encrypted
//! 54  16  tag
//! 70   8  fingerprint of the stream key
//! ```
//!
//! AES-256-GCM. The associated data is a label, then version, origin and both fingerprints. Source: resources, section
//! 16.2.

use std::fmt;

use crate::fingerprint::{FINGERPRINT_BYTES, Fingerprint};
use crate::{KEY_BYTES, NONCE_BYTES, Nonce, TAG_BYTES};

/// Bytes of an envelope.
pub const ENVELOPE_BYTES: usize = 78;
/// Most envelopes of one stream.
pub const ENVELOPES_MAX: usize = 3;

const VERSION: u8 = 1;
const KEK_AT: usize = 2;
const NONCE_AT: usize = KEK_AT + FINGERPRINT_BYTES;
const SEALED_AT: usize = NONCE_AT + NONCE_BYTES;
const KEY_AT: usize = SEALED_AT + KEY_BYTES + TAG_BYTES;

const _: () = assert!(KEY_AT + FINGERPRINT_BYTES == ENVELOPE_BYTES, "the fields fill the envelope");
const _: () = assert!(ENVELOPE_BYTES * ENVELOPES_MAX <= 255, "a set fits the value of one option");

const LABEL: &[u8] = b"iggy/stream-key/v1";

/// Who chose the key of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// The client sent it with the create.
    Client,
    /// The broker drew it.
    Server,
}

impl KeyOrigin {
    fn code(self) -> u8 {
        match self {
            KeyOrigin::Client => 1,
            KeyOrigin::Server => 2,
        }
    }

    /// The word of `encryption_key_source`.
    pub fn word(self) -> &'static str {
        match self {
            KeyOrigin::Client => "stream",
            KeyOrigin::Server => "server",
        }
    }
}

/// Why bytes are no envelopes that this build understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not one to three whole envelopes.
    #[error("{bytes} bytes are not one to three envelopes")]
    Length {
        /// How many there are.
        bytes: usize,
    },
    /// Another version.
    #[error("envelope version {found} is unknown")]
    Version {
        /// The byte.
        found: u8,
    },
    /// An origin that is none.
    #[error("envelope origin {found} is unknown")]
    Origin {
        /// The byte.
        found: u8,
    },
    /// Not sorted, one twice, or of several keys.
    #[error("the envelopes are not a sorted set of one key")]
    Set,
}

/// A stream key wrapped under one key-encryption key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    origin: KeyOrigin,
    bytes: [u8; ENVELOPE_BYTES],
}

impl Envelope {
    /// Puts an envelope together.
    pub(crate) fn new(
        origin: KeyOrigin,
        kek: Fingerprint,
        nonce: Nonce,
        sealed: [u8; KEY_BYTES],
        tag: [u8; TAG_BYTES],
        key: Fingerprint,
    ) -> Self {
        let mut bytes = [0; ENVELOPE_BYTES];
        bytes[0] = VERSION;
        bytes[1] = origin.code();
        bytes[KEK_AT..NONCE_AT].copy_from_slice(&kek.0);
        bytes[NONCE_AT..SEALED_AT].copy_from_slice(&nonce);
        bytes[SEALED_AT..SEALED_AT + KEY_BYTES].copy_from_slice(&sealed);
        bytes[SEALED_AT + KEY_BYTES..KEY_AT].copy_from_slice(&tag);
        bytes[KEY_AT..].copy_from_slice(&key.0);
        Self { origin, bytes }
    }

    fn parse(bytes: &[u8; ENVELOPE_BYTES]) -> Result<Self, EnvelopeError> {
        if bytes[0] != VERSION {
            return Err(EnvelopeError::Version { found: bytes[0] });
        }
        let origin = match bytes[1] {
            1 => KeyOrigin::Client,
            2 => KeyOrigin::Server,
            found => return Err(EnvelopeError::Origin { found }),
        };
        Ok(Self { origin, bytes: *bytes })
    }

    /// Who chose the key.
    pub fn origin(&self) -> KeyOrigin {
        self.origin
    }

    /// The key-encryption key that opens it.
    pub fn kek(&self) -> Fingerprint {
        Fingerprint(self.field(KEK_AT))
    }

    /// The stream key inside.
    pub fn key(&self) -> Fingerprint {
        Fingerprint(self.field(KEY_AT))
    }

    pub(crate) fn nonce(&self) -> Nonce {
        self.field(NONCE_AT)
    }

    pub(crate) fn sealed(&self) -> [u8; KEY_BYTES] {
        self.field(SEALED_AT)
    }

    pub(crate) fn tag(&self) -> [u8; TAG_BYTES] {
        self.field(SEALED_AT + KEY_BYTES)
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[at..at + N]);
        field
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envelope({:?} key {} under {})", self.origin, self.key(), self.kek())
    }
}

/// What an envelope binds beside the key.
pub(crate) fn associated_data(
    origin: KeyOrigin,
    kek: Fingerprint,
    key: Fingerprint,
) -> [u8; LABEL.len() + 2 + 2 * FINGERPRINT_BYTES] {
    let mut data = [0; LABEL.len() + 2 + 2 * FINGERPRINT_BYTES];
    let (label, rest) = data.split_at_mut(LABEL.len());
    label.copy_from_slice(LABEL);
    rest[0] = VERSION;
    rest[1] = origin.code();
    rest[2..2 + FINGERPRINT_BYTES].copy_from_slice(&kek.0);
    rest[2 + FINGERPRINT_BYTES..].copy_from_slice(&key.0);
    data
}

/// All envelopes of one stream: the same key from the same origin under 1 to 3 key-encryption keys, sorted by the
/// fingerprints of those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrapSet {
    envelopes: Vec<Envelope>,
}

impl WrapSet {
    /// Puts a set together. Errors: [`EnvelopeError::Length`], [`EnvelopeError::Set`].
    pub fn new(mut envelopes: Vec<Envelope>) -> Result<Self, EnvelopeError> {
        envelopes.sort_by_key(Envelope::kek);
        Self::checked(envelopes)
    }

    /// Reads what a stream stores. Nothing is decrypted.
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let (whole, rest) = bytes.as_chunks::<ENVELOPE_BYTES>();
        if !rest.is_empty() {
            return Err(EnvelopeError::Length { bytes: bytes.len() });
        }
        Self::checked(whole.iter().map(Envelope::parse).collect::<Result<_, _>>()?)
    }

    fn checked(envelopes: Vec<Envelope>) -> Result<Self, EnvelopeError> {
        if !(1..=ENVELOPES_MAX).contains(&envelopes.len()) {
            return Err(EnvelopeError::Length { bytes: envelopes.len() * ENVELOPE_BYTES });
        }
        let first = envelopes[0];
        let same = |envelope: &Envelope| (envelope.origin(), envelope.key()) == (first.origin(), first.key());
        let sorted = envelopes.is_sorted_by(|left, right| left.kek() < right.kek());
        if !sorted || !envelopes.iter().all(same) {
            return Err(EnvelopeError::Set);
        }
        Ok(Self { envelopes })
    }

    /// What a stream stores.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.envelopes.iter().flat_map(|envelope| envelope.bytes).collect()
    }

    /// The envelopes, by the fingerprint of their key-encryption key.
    pub fn envelopes(&self) -> &[Envelope] {
        &self.envelopes
    }

    /// Who chose the key.
    pub fn origin(&self) -> KeyOrigin {
        self.envelopes[0].origin()
    }

    /// The stream key.
    pub fn key(&self) -> Fingerprint {
        self.envelopes[0].key()
    }

    /// The key-encryption keys, as `encryption_kek_fingerprint` lists them.
    pub fn kek_list(&self) -> String {
        let keks: Vec<String> = self.envelopes.iter().map(|envelope| envelope.kek().to_string()).collect();
        keks.join(",")
    }
}
