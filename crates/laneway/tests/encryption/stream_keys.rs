//! Who gives a stream its key, and what is told of it.

use laneway_wire::options::OptionMap;

use crate::client::Client;
use crate::process::{Home, Shown, shown};
use crate::{KEY_A, KEY_B, NAME_OF_A};

/// A key that a client chose, and its fingerprint. Source: another implementation of SHA-256.
const STREAM_KEY: [u8; 32] = *b"laneway test key: 32 bytes long!";

fn fingerprint_of_client(key: &[u8; 32]) -> String {
    laneway_encryption::StreamKey::new(*key).fingerprint().to_string()
}

#[test]
fn s93_without_a_server_key_a_stream_key_is_refused_and_streams_stay_plain() {
    let home = Home::new();
    let broker = home.start(&[]);
    let mut client = broker.client();
    client.create_stream_with_key("keyed", &STREAM_KEY).assert_refused(4106);
    client.create_stream("plain");
    let plain = Shown { source: Some("none".into()), key: None, keks: None };
    assert_eq!(client.shown("plain"), plain);
}

#[test]
fn s95_a_stream_with_a_client_key_shows_the_fingerprint_that_the_client_computes() {
    let home = Home::new();
    // A key without `enabled`: keys are accepted, none is made.
    let broker = home.start(&[("KEY", KEY_A)]);
    let mut client = broker.client();
    let created = client.create_stream_with_key("keyed", &STREAM_KEY);
    let expected = Shown {
        source: Some("stream".into()),
        key: Some(fingerprint_of_client(&STREAM_KEY)),
        keks: Some(NAME_OF_A.into()),
    };
    assert_eq!(shown(created.payload()), expected);
    assert_eq!(client.shown("keyed"), expected);

    let mut options = OptionMap::new();
    options.set("encryption_key", "bGFuZXdheSB0ZXN0IGtleTogMzIgYnl0ZXMgbG9uZyE=");
    client.create_stream_with("as_text", &options).payload();
    assert_eq!(client.shown("as_text"), expected);

    client.create_stream("plain");
    assert_eq!(client.shown("plain").source.as_deref(), Some("none"));
}

#[test]
fn s94_with_encryption_a_keyless_stream_gets_a_key_of_its_own() {
    let home = Home::new();
    let broker = home.start(&[("ENABLED", "true"), ("KEY", KEY_A)]);
    let mut client = broker.client();
    client.create_stream("one");
    client.create_stream("two");
    let (one, two) = (client.shown("one"), client.shown("two"));
    assert_eq!((one.source.as_deref(), one.keks.as_deref()), (Some("server"), Some(NAME_OF_A)));
    assert_eq!(one.key.as_ref().map(String::len), Some(16));
    assert_ne!(one.key, two.key, "every stream has its own");
    client.create_stream_with_key("named", &STREAM_KEY).payload();
    assert_eq!(client.shown("named").source.as_deref(), Some("stream"));
}

#[test]
fn s96_a_malformed_stream_key_fails_and_no_key_is_in_a_reply_a_log_or_a_file() {
    let home = Home::new();
    let broker = home.start(&[("ENABLED", "true"), ("KEY", KEY_A), ("PREVIOUS_KEYS", KEY_B)]);
    let mut client = broker.client();
    client.create_stream_with_key("short", &STREAM_KEY[..31]).assert_refused(70);
    let mut options = OptionMap::new();
    options.set("encryption_key", "not base64");
    client.create_stream_with("words", &options).assert_refused(70);
    let created = client.create_stream_with_key("keyed", &STREAM_KEY);
    let replies = [created.bytes, all_about(&mut client, "keyed")].concat();
    assert!(!replies.windows(32).any(|window| window == STREAM_KEY), "the key is in no reply");
    broker.stop();
    let broker = home.start(&[("ENABLED", "true"), ("KEY", KEY_A), ("PREVIOUS_KEYS", KEY_B)]);
    assert_eq!(broker.client().shown("keyed").source.as_deref(), Some("stream"));
    broker.stop();
    for (what, secret) in
        [("stream key", &STREAM_KEY[..]), ("key", KEY_A.as_bytes()), ("key", KEY_B.as_bytes())]
    {
        assert_eq!(home.files_with(secret), Vec::<std::path::PathBuf>::new(), "the {what} is in no file");
    }
    assert!(home.log().contains("connected"), "the log says everything it can");
}

fn all_about(client: &mut Client, stream: &str) -> Vec<u8> {
    use laneway_wire::Identifier;
    use laneway_wire::request::{GetStream, GetStreams};
    let stream = Identifier::Name(stream);
    [client.must(&GetStream { stream }), client.must(&GetStreams {})].concat()
}

#[test]
fn s114_bad_keys_end_the_start_before_anything_is_made() {
    let check = |keys: &[(&str, &str)], part: &str| {
        let home = Home::new();
        let output = home.refuses(keys);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(part), "no {part:?} in {message}");
        assert!(!message.contains(KEY_A) && !message.contains("c2hvcnQ="), "{message}");
        assert!(!home.path().join("data").exists());
    };
    check(&[("ENABLED", "true")], "encryption.key is not set");
    check(&[("ENABLED", "true"), ("KEY", "c2hvcnQ=")], "encryption.key is not 32 bytes");
    check(&[("KEY", KEY_A), ("PREVIOUS_KEYS", KEY_A)], "given twice");
    check(&[("PREVIOUS_KEYS", KEY_A)], "need encryption.key");
    check(&[("KEY", KEY_A), ("RETIRED_KEYS", NAME_OF_A)], "still configured");
    check(&[("KEY", KEY_A), ("RETIRED_KEYS", "XYZ")], "hexadecimal");
}
