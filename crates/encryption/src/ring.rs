//! The keys of a node: the one that new envelopes are made with, those of a rotation that still open old ones, and the
//! names of those whose envelopes go. Source: resources, sections 16.1 and 16.2.

use std::fmt;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::envelope::{ENVELOPES_MAX, Envelope, KeyOrigin, WrapSet, associated_data};
use crate::fingerprint::{Fingerprint, KEK_LABEL};
use crate::secret::{StreamKey, decode_key};
use crate::{KEY_BYTES, Nonce};

/// Keys of an earlier configuration that may stay for a rotation. Source: resources, section 16.1.
pub const PREVIOUS_KEYS_MAX: usize = ENVELOPES_MAX - 1;

/// Use of the derived key, for the derivation. Source: resources, section 16.2.
const WRAP_INFO: &[u8] = b"iggy/stream-key-wrap/v1";

/// What the operator set.
#[derive(Clone, Copy, Default)]
pub struct RingConfig<'a> {
    /// `encryption.enabled`: a new stream without a key of its own gets one.
    pub enabled: bool,
    /// `encryption.key`: 32 bytes of base64.
    pub key: Option<&'a str>,
    /// `encryption.previous_keys`: still open envelopes; make none but those of new streams.
    pub previous: &'a [&'a str],
    /// `encryption.retired_keys`: fingerprints of key-encryption keys whose envelopes are dropped.
    pub retired: &'a [&'a str],
}

/// Why the settings make no ring. Never repeats a key. Status of the protocol: InvalidEncryptionKey (70).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Encryption without a key.
    #[error(
        "encryption.enabled is true and encryption.key is not set; set LANEWAY_ENCRYPTION_KEY to 32 random bytes in base64 (`head -c 32 /dev/urandom | base64`)"
    )]
    NoKey,
    /// Not a key.
    #[error("{what} is not 32 bytes in standard base64 with padding (44 characters)")]
    Key {
        /// Which.
        what: &'static str,
    },
    /// A key twice.
    #[error("a key is given twice in encryption.key and encryption.previous_keys")]
    Twice,
    /// Too many keys.
    #[error("encryption.previous_keys holds {found} keys, at most {PREVIOUS_KEYS_MAX} are allowed")]
    TooMany {
        /// How many.
        found: usize,
    },
    /// A rotation without a key to rotate to.
    #[error("encryption.previous_keys and encryption.retired_keys need encryption.key")]
    RotationWithoutKey,
    /// A retired name that is none.
    #[error("encryption.retired_keys: {text:?} is not 16 lowercase hexadecimal digits")]
    Retired {
        /// The entry.
        text: String,
    },
    /// A retired name twice.
    #[error("encryption.retired_keys names {0} twice")]
    RetiredTwice(Fingerprint),
    /// A retired key is still configured.
    #[error("encryption.retired_keys names {0}, which is still configured")]
    RetiredInUse(Fingerprint),
}

/// Why the envelopes of a stream cannot follow a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewrapError {
    /// No key of this node opens them.
    #[error("no configured key opens the stream's key")]
    Locked,
    /// No room for one more.
    #[error(
        "the stream holds {ENVELOPES_MAX} envelopes and none is retired; name one in encryption.retired_keys"
    )]
    Full,
}

/// The keys of a node. Made once at start; a node without a key has an empty one.
#[derive(Clone, Default)]
pub struct KeyRing {
    /// The current key first.
    keks: Vec<Kek>,
    retired: Vec<Fingerprint>,
    generates: bool,
}

#[derive(Clone)]
struct Kek {
    cipher: Aes256Gcm,
    fingerprint: Fingerprint,
}

impl KeyRing {
    /// Derives the keys and checks the settings against each other.
    pub fn new(config: RingConfig<'_>) -> Result<Self, RingError> {
        let Some(key) = config.key else {
            return match (config.enabled, config.previous.is_empty() && config.retired.is_empty()) {
                (true, _) => Err(RingError::NoKey),
                (false, false) => Err(RingError::RotationWithoutKey),
                (false, true) => Ok(Self::default()),
            };
        };
        if config.previous.len() > PREVIOUS_KEYS_MAX {
            return Err(RingError::TooMany { found: config.previous.len() });
        }
        let mut keks = vec![Kek::derive(key).ok_or(RingError::Key { what: "encryption.key" })?];
        for previous in config.previous {
            let kek = Kek::derive(previous)
                .ok_or(RingError::Key { what: "an entry of encryption.previous_keys" })?;
            if keks.iter().any(|known| known.fingerprint == kek.fingerprint) {
                return Err(RingError::Twice);
            }
            keks.push(kek);
        }
        let mut retired = Vec::with_capacity(config.retired.len());
        for text in config.retired {
            let name: Fingerprint =
                text.parse().map_err(|_| RingError::Retired { text: (*text).to_owned() })?;
            if retired.contains(&name) {
                return Err(RingError::RetiredTwice(name));
            }
            if keks.iter().any(|kek| kek.fingerprint == name) {
                return Err(RingError::RetiredInUse(name));
            }
            retired.push(name);
        }
        Ok(Self { keks, retired, generates: config.enabled })
    }

    /// Whether there is a key to wrap stream keys with.
    pub fn has_key(&self) -> bool {
        !self.keks.is_empty()
    }

    /// Whether a new stream without a key of its own gets one.
    pub fn generates(&self) -> bool {
        self.generates
    }

    /// The configured key-encryption keys, the current one first.
    pub fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> + '_ {
        self.keks.iter().map(|kek| kek.fingerprint)
    }

    /// Wraps the key of a new stream under every configured key. `nonces` are drawn for this call; one for each key is
    /// used. None without a key.
    pub fn wrap(
        &self,
        key: &StreamKey,
        origin: KeyOrigin,
        nonces: &[Nonce; ENVELOPES_MAX],
    ) -> Option<WrapSet> {
        if self.keks.is_empty() {
            return None;
        }
        let envelopes = self.keks.iter().zip(nonces).map(|(kek, nonce)| kek.wrap(key, origin, *nonce));
        Some(WrapSet::new(envelopes.collect()).expect("distinct keys make a set"))
    }

    /// The stream key, if one of the configured keys opens it.
    pub fn unwrap(&self, set: &WrapSet) -> Option<StreamKey> {
        set.envelopes().iter().find_map(|envelope| {
            self.keks.iter().find(|kek| kek.fingerprint == envelope.kek())?.unwrap(envelope)
        })
    }

    /// Whether a rotation has nothing to do for these envelopes. Reads names only.
    pub fn is_settled(&self, set: &WrapSet) -> bool {
        let Some(current) = self.keks.first() else { return true };
        let names = || set.envelopes().iter().map(Envelope::kek);
        names().any(|name| name == current.fingerprint) && !names().any(|name| self.retired.contains(&name))
    }

    /// What the envelopes become by a rotation: one under the current key is added, those under retired keys go.
    ///
    /// Errors: [`RewrapError`]. A set that is settled comes back as it is.
    pub fn rewrap(&self, set: &WrapSet, nonce: Nonce) -> Result<WrapSet, RewrapError> {
        let current = self.keks.first().ok_or(RewrapError::Locked)?;
        if self.is_settled(set) {
            return Ok(set.clone());
        }
        let key = self.unwrap(set).ok_or(RewrapError::Locked)?;
        let kept = set.envelopes().iter().filter(|envelope| !self.retired.contains(&envelope.kek()));
        let mut envelopes: Vec<Envelope> = kept.copied().collect();
        if !envelopes.iter().any(|envelope| envelope.kek() == current.fingerprint) {
            envelopes.push(current.wrap(&key, set.origin(), nonce));
        }
        WrapSet::new(envelopes).map_err(|_| RewrapError::Full)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing")
            .field("keys", &self.fingerprints().collect::<Vec<_>>())
            .field("retired", &self.retired)
            .field("generates", &self.generates)
            .finish()
    }
}

impl Kek {
    /// From a key of the configuration. None when it is not 32 bytes of base64.
    fn derive(text: &str) -> Option<Self> {
        let config_key = decode_key(text)?;
        let mut kek = Zeroizing::new([0; KEY_BYTES]);
        Hkdf::<Sha256>::new(None, config_key.as_slice())
            .expand(WRAP_INFO, kek.as_mut_slice())
            .expect("32 bytes are within what the derivation gives");
        Some(Self {
            cipher: Aes256Gcm::new_from_slice(kek.as_slice()).expect("the key has 32 bytes"),
            fingerprint: Fingerprint::of(KEK_LABEL, kek.as_slice()),
        })
    }

    fn wrap(&self, key: &StreamKey, origin: KeyOrigin, nonce: Nonce) -> Envelope {
        let name = key.fingerprint();
        let mut sealed = Zeroizing::new(*key.bytes());
        let data = associated_data(origin, self.fingerprint, name);
        let tag = self
            .cipher
            .encrypt_inout_detached(&nonce.into(), &data, sealed.as_mut_slice().into())
            .expect("32 bytes are within what the cipher takes");
        Envelope::new(origin, self.fingerprint, nonce, *sealed, tag.into(), name)
    }

    fn unwrap(&self, envelope: &Envelope) -> Option<StreamKey> {
        let data = associated_data(envelope.origin(), envelope.kek(), envelope.key());
        let mut key = Zeroizing::new(envelope.sealed());
        self.cipher
            .decrypt_inout_detached(
                &envelope.nonce().into(),
                &data,
                key.as_mut_slice().into(),
                &envelope.tag().into(),
            )
            .ok()?;
        let key = StreamKey::new(*key);
        (key.fingerprint() == envelope.key()).then_some(key)
    }
}
