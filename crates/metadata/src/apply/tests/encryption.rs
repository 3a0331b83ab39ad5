//! Streams with a key: what is stored, what reads show, and rotation. Rules S93 to S97.

use laneway_encryption::{KeyOrigin, KeyRing, RingConfig, StreamKey, WrapSet};

use super::*;
use crate::command::Rewrap;
use crate::options::StreamEncryption;

const A: &str = "/rvT1xP4V8u1EAhk4xDdqzqM2UOPXyy9XYkl4uRShgE=";
const B: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

fn ring(key: &str, previous: &[&str]) -> KeyRing {
    KeyRing::new(RingConfig { key: Some(key), previous, ..RingConfig::default() }).unwrap()
}

fn wrap(ring: &KeyRing, key: [u8; 32], origin: KeyOrigin) -> WrapSet {
    ring.wrap(&StreamKey::new(key), origin, &[[1; 12]; 3]).unwrap()
}

/// Creates a stream whose block names the key `[7; 32]`.
fn create(node: &mut Node, name: &str) -> u32 {
    let mut options = OptionMap::new();
    options.set("encryption_key", &[7_u8; 32][..]);
    let block = options.encode().unwrap();
    node.status(|planner| {
        planner.create_stream_with(name, Options::parse(&block).unwrap(), |key| {
            Ok(Some(
                ring(A, &[])
                    .wrap(&key.expect("the block names one"), KeyOrigin::Client, &[[1; 12]; 3])
                    .unwrap(),
            ))
        })
    })
}

fn shown(node: &Node, stream: u32, key: &str) -> Option<String> {
    let stream = node.metadata.stream(stream).unwrap();
    let value = stream.options.derived().get(key)?;
    value.as_text().map(str::to_owned)
}

#[test]
fn s95_a_stream_shows_the_names_of_its_keys_also_after_a_snapshot() {
    let mut node = Node::new();
    assert_eq!(create(&mut node, "s"), 0);
    let check = |node: &Node| {
        assert_eq!(shown(node, 0, "encryption_key_source").as_deref(), Some("stream"));
        assert_eq!(shown(node, 0, "encryption_key_fingerprint").as_deref(), Some("f3e9d699ac366350"));
        assert_eq!(shown(node, 0, "encryption_kek_fingerprint").as_deref(), Some("39e4f0f95c3693c7"));
        let stream = node.metadata.stream(0).unwrap();
        assert_eq!(stream.options.explicit().iter().count(), 0);
        assert_eq!(stream.options.derived().iter().count(), 3);
    };
    check(&node);
    let snapshot = node.metadata.to_snapshot();
    assert!(!snapshot.windows(32).any(|window| window == [7; 32]), "the key is in no snapshot");
    node.metadata = Metadata::from_snapshot(&snapshot).unwrap();
    check(&node);
}

#[test]
fn s96_no_command_holds_or_shows_the_key() {
    let node = Node::new();
    let mut options = OptionMap::new();
    options.set("encryption_key", &[7_u8; 32][..]);
    let block = options.encode().unwrap();
    let mutation = node
        .plan(|planner| {
            planner.create_stream_with("s", Options::parse(&block).unwrap(), |key| {
                Ok(Some(ring(A, &[]).wrap(&key.unwrap(), KeyOrigin::Client, &[[1; 12]; 3]).unwrap()))
            })
        })
        .unwrap();
    let debug = format!("{mutation:?}");
    assert!(!debug.contains("7, 7, 7") && debug.contains("encryption_key_wrapped"), "{debug}");
    let mut node = node;
    let identity = node.identity();
    let bytes = Command::Request(identity, mutation).to_bytes();
    assert!(!bytes.windows(32).any(|window| window == [7; 32]));
}

#[test]
fn s97_a_rewrap_replaces_envelopes_of_the_same_key_and_nothing_else() {
    let mut node = Node::new();
    assert_eq!((create(&mut node, "s"), node.stream("plain")), (0, 0));
    let created_op = node.metadata.stream(0).unwrap().created_op;
    let rewrap = |stream, created_op, envelopes: &WrapSet| Rewrap {
        stream: StreamId(stream),
        created_op,
        envelopes: envelopes.to_bytes(),
    };
    let before = node.metadata.clone();
    let during = wrap(&ring(B, &[A]), [7; 32], KeyOrigin::Client);
    let other_key = wrap(&ring(B, &[]), [8; 32], KeyOrigin::Client);
    let other_origin = wrap(&ring(B, &[]), [7; 32], KeyOrigin::Server);
    node.apply(&Command::RewrapStreams(vec![
        rewrap(0, Op(created_op.0 + 1), &during),
        rewrap(0, created_op, &other_key),
        rewrap(0, created_op, &other_origin),
        rewrap(1, node.metadata.stream(1).unwrap().created_op, &during),
        rewrap(9, Op(1), &during),
    ]));
    assert!(same_resources(&node.metadata, &before), "none of these concerns a stream with that key");

    let outcome = node.apply(&Command::RewrapStreams(vec![rewrap(0, created_op, &during)]));
    assert_eq!((outcome.answer, outcome.effects), (Answer::Done, Vec::new()));
    let stream = node.metadata.stream(0).unwrap();
    assert_eq!(*stream.options.encryption(), StreamEncryption::Sealed(during));
    let keks = shown(&node, 0, "encryption_kek_fingerprint");
    assert_eq!(keks.as_deref(), Some("39e4f0f95c3693c7,d55d479829bc2936"));
    assert_eq!(shown(&node, 1, "encryption_key_source").as_deref(), Some("none"));
}
