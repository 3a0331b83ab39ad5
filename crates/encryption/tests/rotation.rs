//! The keys of a node through a rotation, and envelopes against known bytes. Rules S95, S96, S97.

use laneway_encryption::envelope::{ENVELOPE_BYTES, ENVELOPES_MAX};
use laneway_encryption::{
    EnvelopeError, KeyOrigin, KeyRing, Nonce, RewrapError, RingConfig, RingError, StreamKey, WrapSet,
};
use proptest::prelude::*;

const A: &str = "/rvT1xP4V8u1EAhk4xDdqzqM2UOPXyy9XYkl4uRShgE=";
const B: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const C: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
const D: &str = "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";

/// Names of the keys that A and B lead to. Source: other implementations of HKDF-SHA256 and SHA-256.
const NAME_OF_A: &str = "39e4f0f95c3693c7";
const NAME_OF_B: &str = "d55d479829bc2936";

const NONCES: [Nonce; ENVELOPES_MAX] = [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [2; 12], [3; 12]];

fn ring(key: &str, previous: &[&str], retired: &[&str]) -> KeyRing {
    KeyRing::new(RingConfig { enabled: true, key: Some(key), previous, retired }).unwrap()
}

fn key() -> StreamKey {
    StreamKey::new([7; 32])
}

fn wrap(ring: &KeyRing) -> WrapSet {
    ring.wrap(&key(), KeyOrigin::Client, &NONCES).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_envelope_has_the_known_bytes() {
    let set = wrap(&ring(A, &[], &[]));
    // Source: another implementation of AES-256-GCM, given key, nonce, associated data and text of the format.
    assert_eq!(
        hex(&set.to_bytes()),
        "010139e4f0f95c3693c7000102030405060708090a0befd1b5bff6308c3ff1b1b05096731e76b08cbfc3d2a85dca173f9e3d7ff9\
         a05069430f03f4a3fe0023f8358ff7102dc0f3e9d699ac366350"
    );
    assert_eq!(set.key().to_string(), "f3e9d699ac366350");
    assert_eq!((set.kek_list().as_str(), set.origin()), (NAME_OF_A, KeyOrigin::Client));
    assert_eq!(ring(A, &[], &[]).unwrap(&set), Some(key()));
    assert_eq!(ring(B, &[], &[]).unwrap(&set), None);
}

#[test]
fn new_streams_are_wrapped_under_every_configured_key() {
    let set = wrap(&ring(B, &[A, C], &[]));
    assert_eq!(set.envelopes().len(), 3);
    for only in [A, B, C] {
        assert_eq!(ring(only, &[], &[]).unwrap(&set), Some(key()), "{only}");
    }
    let same = WrapSet::parse(&set.to_bytes()).unwrap();
    assert_eq!(same, set);
}

#[test]
fn s97_a_rotation_adds_the_current_key_and_drops_retired_ones_only() {
    let old = wrap(&ring(A, &[], &[]));
    let during = ring(B, &[A], &[]);
    assert!(!during.is_settled(&old));
    let both = during.rewrap(&old, [4; 12]).unwrap();
    assert_eq!(both.kek_list(), format!("{NAME_OF_A},{NAME_OF_B}"));
    assert_eq!((both.key(), both.origin()), (old.key(), old.origin()));
    assert!(during.is_settled(&both));

    // The old key left the configuration, but nobody said that its envelopes may go.
    assert!(ring(B, &[], &[]).is_settled(&both));
    let after = ring(B, &[], &[NAME_OF_A]);
    let new = after.rewrap(&both, [5; 12]).unwrap();
    assert_eq!(new.kek_list(), NAME_OF_B);
    assert_eq!(after.unwrap(&new), Some(key()));
    assert!(after.is_settled(&new));
    assert_eq!(ring(A, &[], &[]).unwrap(&new), None);
}

#[test]
fn s97_a_full_set_waits_until_a_key_is_retired() {
    let full = wrap(&ring(C, &[B, A], &[]));
    assert_eq!(ring(D, &[C], &[]).rewrap(&full, [6; 12]), Err(RewrapError::Full));
    let moved = ring(D, &[C], &[NAME_OF_A]).rewrap(&full, [6; 12]).unwrap();
    assert_eq!(moved.envelopes().len(), 3);
    assert!(!moved.kek_list().contains(NAME_OF_A));
    assert_eq!(ring(D, &[], &[]).rewrap(&wrap(&ring(A, &[], &[])), [6; 12]), Err(RewrapError::Locked));
}

#[test]
fn s96_s114_wrong_settings_are_refused_and_no_text_shows_a_key() {
    let check = |config: RingConfig<'_>, expected: RingError| {
        let error = KeyRing::new(config).map(|_| ()).unwrap_err();
        assert_eq!(error, expected);
        for key in [A, B, C, "c2hvcnQ="] {
            assert!(!format!("{error} {error:?}").contains(key));
        }
    };
    let with = |key| RingConfig { enabled: true, key: Some(key), previous: &[], retired: &[] };
    check(RingConfig { enabled: true, ..RingConfig::default() }, RingError::NoKey);
    check(with("c2hvcnQ="), RingError::Key { what: "encryption.key" });
    check(with(&A[..43]), RingError::Key { what: "encryption.key" });
    check(
        RingConfig { previous: &["c2hvcnQ="], ..with(A) },
        RingError::Key { what: "an entry of encryption.previous_keys" },
    );
    check(RingConfig { previous: &[A], ..with(A) }, RingError::Twice);
    check(RingConfig { previous: &[B, B], ..with(A) }, RingError::Twice);
    check(RingConfig { previous: &[B, C, D], ..with(A) }, RingError::TooMany { found: 3 });
    check(RingConfig { previous: &[A], ..RingConfig::default() }, RingError::RotationWithoutKey);
    check(RingConfig { retired: &[NAME_OF_A], ..RingConfig::default() }, RingError::RotationWithoutKey);
    check(RingConfig { retired: &["39E4"], ..with(B) }, RingError::Retired { text: "39E4".into() });
    check(
        RingConfig { retired: &[NAME_OF_A], ..with(A) },
        RingError::RetiredInUse(NAME_OF_A.parse().unwrap()),
    );
    check(
        RingConfig { retired: &[NAME_OF_A, NAME_OF_A], ..with(B) },
        RingError::RetiredTwice(NAME_OF_A.parse().unwrap()),
    );
    let debug = format!("{:?}", ring(B, &[A], &[]));
    assert!(debug.contains(NAME_OF_A) && !debug.contains(A) && !debug.contains(B), "{debug}");
}

#[test]
fn a_node_without_a_key_wraps_and_opens_nothing() {
    let none = KeyRing::new(RingConfig::default()).unwrap();
    assert!(!none.has_key() && !none.generates());
    assert!(none.wrap(&key(), KeyOrigin::Server, &NONCES).is_none());
    let set = wrap(&ring(A, &[], &[]));
    assert!(none.unwrap(&set).is_none() && none.is_settled(&set));
    assert_eq!(none.rewrap(&set, [1; 12]), Err(RewrapError::Locked));
    // A key without `enabled` takes keys and makes none.
    let accepts = KeyRing::new(RingConfig { key: Some(A), ..RingConfig::default() }).unwrap();
    assert!(accepts.has_key() && !accepts.generates());
}

#[test]
fn sets_that_are_none_are_refused() {
    let set = wrap(&ring(A, &[B], &[])).to_bytes();
    let (first, second) = set.split_at(ENVELOPE_BYTES);
    let check = |bytes: &[u8], expected: EnvelopeError| assert_eq!(WrapSet::parse(bytes), Err(expected));
    check(&[], EnvelopeError::Length { bytes: 0 });
    check(&set[..100], EnvelopeError::Length { bytes: 100 });
    check(&[&set[..], &set[..]].concat(), EnvelopeError::Length { bytes: 4 * ENVELOPE_BYTES });
    check(&[second, first].concat(), EnvelopeError::Set);
    check(&[first, first].concat(), EnvelopeError::Set);
    let mut other = set.clone();
    other[0] = 2;
    check(&other, EnvelopeError::Version { found: 2 });
    other[0] = 1;
    other[1] = 3;
    check(&other, EnvelopeError::Origin { found: 3 });
}

proptest! {
    #[test]
    fn no_changed_byte_of_an_envelope_opens(at in 0..ENVELOPE_BYTES, flip in 1..=255_u8) {
        let mut bytes = wrap(&ring(A, &[], &[])).to_bytes();
        bytes[at] ^= flip;
        if let Ok(set) = WrapSet::parse(&bytes) {
            prop_assert_eq!(ring(A, &[], &[]).unwrap(&set), None);
        }
    }

    #[test]
    fn any_bytes_are_a_set_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..260)) {
        if let Ok(set) = WrapSet::parse(&bytes) {
            prop_assert_eq!(set.to_bytes(), bytes);
        }
    }
}
