//! Encryption at rest: keys, the envelopes they lie in, and the sealing of message bodies. Source: resources, section 16.
//!
//! A stream has one key for its life. It lies in the metadata only in *envelopes*: wrapped under a key-encryption key
//! that is derived from a key of the configuration. Bodies of messages are sealed one by one under the stream key;
//! everything that the broker works with (offsets, ids, times, lengths) stays clear.
//!
//! Bytes in, bytes out: no clock, no randomness, no I/O. Whoever calls draws keys and nonces, before an op is ordered.
//!
//! Reading order: [`secret`], [`fingerprint`], [`envelope`], [`ring`] (the keys of a node), [`cipher`].
#![forbid(unsafe_code)]

pub mod cipher;
pub mod envelope;
pub mod fingerprint;
pub mod ring;
pub mod secret;

pub use cipher::{MessageCipher, OpenError, SealedContext};
pub use envelope::{Envelope, EnvelopeError, KeyOrigin, WrapSet};
pub use fingerprint::Fingerprint;
pub use ring::{KeyRing, RewrapError, RingConfig, RingError};
pub use secret::StreamKey;

/// Bytes of every key.
pub const KEY_BYTES: usize = 32;
/// Bytes of every nonce.
pub const NONCE_BYTES: usize = 12;
/// Bytes of every authentication tag.
pub const TAG_BYTES: usize = 16;
/// What sealing adds to the body of a message: nonce and tag.
pub const SEAL_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// A nonce. Drawn at random by the caller, for one use.
pub type Nonce = [u8; NONCE_BYTES];
