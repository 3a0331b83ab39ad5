//! UpdateResource (16) over sockets. Source: resources, sections 10.4, 10.5 and 24.

use laneway_wire::options::{Block, OptionMap, OptionValue, Options};
use laneway_wire::reply::{Record, StreamHeader, TopicDetails};
use laneway_wire::request::{CreateStream, GetStream, GetTopic, ResetNames, UpdateResource, UpdateTarget};
use laneway_wire::{Identifier, ProtocolVersion, Reader};

use crate::client::{Client, Reply};
use crate::node::{Node, SHARDS};

fn name(name: &str) -> Identifier<'_> {
    Identifier::Name(name)
}

fn topic_target<'a>(stream: &'a str, topic: &'a str) -> UpdateTarget<'a> {
    UpdateTarget::Topic { stream: name(stream), topic: name(topic) }
}

impl Client {
    #[track_caller]
    fn update(&mut self, target: UpdateTarget<'_>, set: &OptionMap, reset: &[&str]) -> Reply {
        let block = set.encode().expect("a block");
        let set = Options::parse(&block).expect("a block");
        self.ask(&UpdateResource { target, reset: ResetNames::Listed(reset), set })
    }

    #[track_caller]
    fn update_topic(&mut self, topic: &str, set: &OptionMap, reset: &[&str]) -> Reply {
        self.update(topic_target("s", topic), set, reset)
    }

    fn body_of(&mut self, topic: &str) -> Vec<u8> {
        self.must(&GetTopic { stream: name("s"), topic: name(topic) })
    }
}

fn set(key: &str, value: impl Into<OptionValue>) -> OptionMap {
    OptionMap::new().with(key, value)
}

/// A number of a topic's options: whether it is explicit, and its value.
fn option(body: &[u8], key: &str) -> (bool, u128) {
    let topic = TopicDetails::read(&mut Reader::new(body), ProtocolVersion::V0_12_2).expect("a topic");
    let of = |block: &Block<'_>| block.get(key).and_then(|value| value.as_unsigned());
    match (of(&topic.header.explicit), of(&topic.header.derived)) {
        (Some(value), None) => (true, value),
        (None, Some(value)) => (false, value),
        other => panic!("{key} stands in one block, not {other:?}"),
    }
}

#[test]
fn streams_are_renamed_and_keep_their_number() {
    // S10, S11
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        client.create_stream("a");
        client.create_stream("b");
        client.create_topic("a", "t", 2);
        let target = UpdateTarget::Stream { stream: name("a") };
        assert_eq!(client.update(target, &set("name", "a"), &[]).payload(), [0; 0], "its own name");
        client.update(target, &set("name", "b"), &[]).assert_committed_refusal(1012);
        client
            .update(UpdateTarget::Stream { stream: name("c") }, &set("name", "d"), &[])
            .assert_committed_refusal(1009);
        assert_eq!(client.update(target, &set("name", "renamed"), &[]).outcome(), 0);
        for _ in 0..2 {
            assert!(client.must(&GetStream { stream: name("a") }).is_empty());
            let body = client.must(&GetStream { stream: name("renamed") });
            let header = StreamHeader::read(&mut Reader::new(&body)).expect("a stream");
            assert_eq!((header.id.0, header.topics_count), (0, 1));
            node.restart();
            client = client.another();
        }
        client.create_stream("a");
    }
}

#[test]
fn topics_change_what_may_change() {
    // S28, S29, S30
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        client.create_stream("s");
        client.create_topic_with("s", "t", 2, &set("max_topic_size", "5 GiB"));
        client.create_topic("s", "taken", 1);
        assert_eq!(option(&client.body_of("t"), "max_topic_size"), (true, 5 << 30));
        let patch = set("message_expiry", "5s").with("name", "renamed");
        assert_eq!(client.update_topic("t", &patch, &["max_topic_size"]).payload(), [0; 0]);
        for _ in 0..2 {
            let body = client.body_of("renamed");
            assert_eq!(option(&body, "message_expiry"), (true, 5_000_000));
            assert_eq!(option(&body, "max_topic_size"), (false, u64::MAX.into()));
            assert!(client.body_of("t").is_empty());
            node.restart();
            client = client.another();
        }
        // A number is taken as well as a text, and the current value is a success.
        for value in [OptionValue::from(7u64), OptionValue::from("7"), OptionValue::from(7u64)] {
            assert_eq!(client.update_topic("renamed", &set("message_expiry", value), &[]).outcome(), 0);
            assert_eq!(option(&client.body_of("renamed"), "message_expiry"), (true, 7));
        }
        client.update_topic("renamed", &set("name", "taken"), &[]).assert_committed_refusal(2013);
        client.update_topic("missing", &set("name", "x"), &[]).assert_committed_refusal(2010);
        // Partitions that are there go on.
        client.update(topic_target("gone", "t"), &set("name", "x"), &[]).assert_committed_refusal(1009);
    }
}

#[test]
fn updates_that_break_a_rule_change_nothing() {
    // S26, S31, S32, S33, S34, S35
    let node = Node::start(1);
    let mut client = node.client();
    client.create_stream("s");
    client.create_topic("s", "t", 1);
    let before = client.body_of("t");
    let none = OptionMap::new();
    let cases: Vec<(OptionMap, &[&str], u32)> = vec![
        (none.clone(), &["segment_size"], 4103),
        (set("segment_size", 1u64 << 20), &[], 4103),
        (none.clone(), &["name"], 4104),
        (set("flavour", "x"), &[], 4041),
        (none.clone(), &["flavour"], 4041),
        (set("critical_keys", "x"), &[], 4105),
        (set("message_expiry", "0"), &[], 3),
        (set("message_expiry", "soon"), &[], 4042),
        (set("max_topic_size", "10 KiB"), &[], 1019),
        (set("durability", "replicated"), &[], 4103),
        // The first mistake by the order of the checks counts.
        (set("message_expiry", "soon").with("flavour", "x"), &["name"], 4041),
        (set("message_expiry", "soon").with("segment_size", 1u64 << 20), &["name"], 4103),
        (set("message_expiry", "soon"), &["name"], 4104),
    ];
    for (set, reset, code) in cases {
        assert_eq!(client.update_topic("t", &set, reset).outcome(), code, "{set:?} {reset:?}");
    }
    let target = UpdateTarget::Stream { stream: name("s") };
    for (key, code) in [("encryption_key_source", 4105), ("encryption_key", 4103), ("segment_size", 4041)] {
        assert_eq!(client.update(target, &set(key, "none"), &[]).outcome(), code, "{key}");
    }
    // What an encoder refuses to write: nothing at all, one key twice, a key set and reset.
    let good = client.frame(&UpdateResource {
        target: topic_target("s", "t"),
        reset: ResetNames::Listed(&["message_expiry"]),
        set: Options::EMPTY,
    });
    let target_bytes = &good.body()[..good.body().len() - 16];
    let key = |key: &str| [&[key.len() as u8][..], key.as_bytes()].concat();
    let value = |text: &str| [&[2][..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let entry = [value("message_expiry"), value("5 s")].concat();
    let tails = [
        vec![0],
        [&[2][..], &key("message_expiry"), &key("message_expiry")].concat(),
        [&[1][..], &key("message_expiry"), &entry].concat(),
        [&[0][..], &entry, &entry].concat(),
    ];
    for tail in tails {
        let frame = client.frame(&CreateStream { name: "x", options: Options::EMPTY }).number();
        let sent = good.with_body(&[target_bytes, &tail].concat()).with(168, &frame.to_le_bytes());
        assert_eq!(client.exchange(&sent).outcome(), 3, "{tail:?}");
    }
    let sent = good.with_body(&[&[9][..], &good.body()[1..]].concat());
    assert_eq!(client.exchange(&sent).outcome(), 3, "an unknown scope");
    let after = client.body_of("t");
    // All but the op that the answer was read at: a refusal may commit.
    assert_eq!(after[..after.len() - 12], before[..before.len() - 12]);
}
