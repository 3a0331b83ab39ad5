//! Streams, topics, partitions, options and statistics. Source: resources, section 24.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use laneway_wire::options::{Block, OptionMap, OptionValue, Options};
use laneway_wire::reply::{
    ClientHeader, Record, Stats, StreamDetails, StreamHeader, TopicDetails, parse_option_descriptors,
    parse_topics, read_list,
};
use laneway_wire::request::{
    CreatePartitions, CreateStream, CreateTopic, DeletePartitions, DeleteStream, DeleteTopic,
    DescribeOptions, GetClients, GetMe, GetStats, GetStream, GetStreams, GetTopic, GetTopics, OptionScope,
    Ping,
};
use laneway_wire::{Identifier, ProtocolVersion, Reader};

use crate::client::{Client, Link, new_client, stranger};
use crate::harness;
use crate::messages::Poll;
use crate::node::{Node, SHARDS};

fn name(name: &str) -> Identifier<'_> {
    Identifier::Name(name)
}

fn stream_id(body: &[u8]) -> u32 {
    StreamHeader::read(&mut Reader::new(body)).expect("a stream").id.0
}

fn topic_of(body: &[u8]) -> TopicDetails<'_> {
    let mut reader = Reader::new(body);
    let topic = TopicDetails::read(&mut reader, ProtocolVersion::V0_12_2).expect("a topic");
    assert!(reader.is_empty());
    topic
}

#[test]
fn ids_start_at_zero_and_the_lowest_is_used_again() {
    // S1, S2, S3, S5
    let mut node = Node::start(2);
    let mut client = node.client();
    for (expected, stream) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(stream_id(&client.create_stream(stream)), expected as u32);
    }
    for stream in ["a", "b"] {
        for (expected, topic) in ["t", "u"].into_iter().enumerate() {
            let body = client.create_topic(stream, topic, 2);
            let details = topic_of(&body);
            assert_eq!(details.header.id.0, expected as u32, "{stream}/{topic}");
            assert_eq!(details.partitions.iter().map(|partition| partition.id.0).collect::<Vec<_>>(), [0, 1]);
        }
    }
    assert_eq!(client.ask(&DeleteStream { stream: name("a") }).outcome(), 0);
    node.restart();
    let mut client = client.another();
    assert_eq!(stream_id(&client.create_stream("d")), 0);
    assert_eq!(stream_id(&client.create_stream("e")), 3);
    assert_eq!(topic_of(&client.create_topic("b", "v", 1)).header.id.0, 2);
}

#[test]
fn names_differ_by_case_and_numbers_are_names() {
    // S6, S7, S8
    let node = Node::start(1);
    let mut client = node.client();
    for stream in ["Case", "case", "CASE", "7"] {
        client.create_stream(stream);
    }
    for stream in ["Case", "case", "CASE", "7"] {
        let body = client.must(&GetStream { stream: name(stream) });
        assert_eq!(StreamHeader::read(&mut Reader::new(&body)).expect("a stream").name, stream);
        let create = CreateStream { name: stream, options: Options::EMPTY };
        client.ask(&create).assert_committed_refusal(1012);
    }
    assert_eq!(Identifier::from_text("7"), Identifier::Numeric(7), "text that is a number never names");
    assert!(client.must(&GetStream { stream: Identifier::from_text("7") }).is_empty());
}

#[test]
fn names_are_one_to_255_bytes() {
    // S9
    let node = Node::start(1);
    let mut client = node.client();
    let longest = "n".repeat(255);
    client.create_stream(&longest);
    client.create_topic(&longest, &longest, 1);
    let before = client.must(&GetStreams {});
    let frame = client.frame(&CreateStream { name: "x", options: Options::EMPTY }).with_body(&[0]);
    assert_ne!(client.exchange(&frame).outcome(), 0, "an empty name");
    // A length byte cannot say 256: what follows 255 bytes is an options block, and no good one.
    let body = [&[255][..], &[b'n'; 256]].concat();
    let frame = client.frame(&CreateStream { name: "x", options: Options::EMPTY }).with_body(&body);
    assert_ne!(client.exchange(&frame).outcome(), 0);
    assert_eq!(client.must(&GetStreams {}), before);
}

#[test]
fn missing_resources_read_empty_and_delete_not_found() {
    // S12, S13, S14
    let node = Node::start(2);
    let mut client = node.client();
    client.create_stream("there");
    for missing in [name("gone"), Identifier::Numeric(7)] {
        for frame in [
            client.frame(&GetStream { stream: missing }),
            client.frame(&GetTopic { stream: missing, topic: missing }),
            client.frame(&GetTopic { stream: name("there"), topic: missing }),
        ] {
            let reply = client.exchange(&frame);
            assert_eq!((reply.status(), reply.body().len()), (0, 0));
        }
        assert_eq!(client.must(&GetTopics { stream: missing }), [0; 4]);
        client.ask(&DeleteStream { stream: missing }).assert_committed_refusal(1009);
        client.ask(&DeleteTopic { stream: name("there"), topic: missing }).assert_committed_refusal(2010);
    }
}

#[test]
fn topic_names_are_unique_in_a_stream() {
    // S15
    let node = Node::start(1);
    let mut client = node.client();
    for stream in ["one", "two"] {
        client.create_stream(stream);
        client.create_topic(stream, "same", 1);
        client.create_topic_with(stream, "same", 1, &OptionMap::new()).assert_committed_refusal(2013);
    }
    let body = client.must(&GetTopics { stream: name("one") });
    assert_eq!(parse_topics(&body).expect("topics").len(), 1);
}

#[test]
fn counts_of_partitions() {
    // S16, S17, S18, S19, S20, S21
    let node = Node::start(2);
    let mut client = node.client();
    client.create_stream("s");
    assert_eq!(topic_of(&client.create_topic("s", "none", 0)).partitions.len(), 0);
    assert_eq!(topic_of(&client.create_topic("s", "most", 1000)).partitions.len(), 1000);
    assert_eq!(client.create_topic_with("s", "more", 1001, &OptionMap::new()).outcome(), 2015);
    client.create_topic("s", "t", 1);
    let add = |count| CreatePartitions { stream: name("s"), topic: name("t"), partitions_count: count };
    let remove = |count| DeletePartitions { stream: name("s"), topic: name("t"), partitions_count: count };
    for count in [0, 1001] {
        assert_eq!(client.ask(&add(count)).outcome(), 2015);
    }
    assert_eq!(client.ask(&add(2)).payload(), [0; 0]);
    let ids = |client: &mut Client| {
        let body = client.must(&GetTopic { stream: name("s"), topic: name("t") });
        topic_of(&body).partitions.iter().map(|partition| partition.id.0).collect::<Vec<_>>()
    };
    assert_eq!(ids(&mut client), [0, 1, 2]);
    assert_eq!(client.ask(&remove(4)).outcome(), 2019);
    assert_eq!(ids(&mut client), [0, 1, 2]);
    assert_eq!(client.ask(&remove(1)).outcome(), 0);
    assert_eq!(ids(&mut client), [0, 1], "the highest goes");
    assert_eq!(client.ask(&remove(2)).outcome(), 0);
    assert_eq!(ids(&mut client), [0; 0]);
}

#[test]
fn fixed_topic_keeps_its_partitions() {
    // S24
    let node = Node::start(1);
    let mut client = node.client();
    client.create_stream("s");
    let fixed = OptionMap::new().with("partition_resize_policy", "fixed");
    assert_eq!(client.create_topic_with("s", "t", 2, &fixed).outcome(), 0);
    let (stream, topic) = (name("s"), name("t"));
    assert_eq!(client.ask(&CreatePartitions { stream, topic, partitions_count: 1 }).outcome(), 2023);
    assert_eq!(client.ask(&DeletePartitions { stream, topic, partitions_count: 1 }).outcome(), 2023);
}

#[test]
fn partitions_of_the_server_are_capped() {
    // S25
    let node = Node::start_with(2, |config| config.metadata.partitions_max = Some(3));
    let mut client = node.client();
    client.create_stream("s");
    client.create_topic("s", "two", 2);
    assert_eq!(client.create_topic_with("s", "t", 2, &OptionMap::new()).outcome(), 2022);
    client.create_topic("s", "none", 0);
    let add = CreatePartitions { stream: name("s"), topic: name("none"), partitions_count: 1 };
    assert_eq!([client.ask(&add).outcome(), client.ask(&add).outcome()], [0, 2022]);
}

fn number(block: &Block<'_>, key: &str) -> Option<u128> {
    block.get(key).and_then(|value| value.as_unsigned())
}

#[test]
fn options_are_explicit_or_derived() {
    // S27, S28, S36
    let node = Node::start(1);
    let mut client = node.client();
    client.create_stream("s");
    let body = client.create_topic("s", "plain", 1);
    let header = topic_of(&body).header;
    assert_eq!(number(&header.derived, "message_expiry"), Some(u64::MAX.into()));
    assert_eq!(number(&header.derived, "max_topic_size"), Some(u64::MAX.into()));
    assert_eq!(header.explicit.iter().count(), 0);
    let set = OptionMap::new().with("segment_size", "128MiB").with("message_expiry", 5_000_000u64);
    let reply = client.create_topic_with("s", "set", 1, &set);
    let body = reply.payload().to_vec();
    let read = client.must(&GetTopic { stream: name("s"), topic: name("set") });
    for body in [body, read] {
        let header = topic_of(&body).header;
        let size = header.explicit.get("segment_size").expect("it was set");
        assert_eq!((size.kind, size.as_unsigned()), (12, Some(134_217_728)));
        assert_eq!(number(&header.explicit, "message_expiry"), Some(5_000_000));
        assert!(
            header.derived.get("segment_size").is_none() && header.derived.get("max_topic_size").is_some()
        );
        let mut keys: Vec<_> = header.derived.iter().map(|(key, _)| key.to_owned()).collect();
        keys.extend(header.explicit.iter().map(|(key, _)| key.to_owned()));
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "each key in one block");
    }
}

#[test]
fn options_that_break_a_rule_create_nothing() {
    // S26, S32, S33, S37, S38, S39
    let node = Node::start(1);
    let mut client = node.client();
    client.create_stream("s");
    let option = |key: &str, value: OptionValue| OptionMap::new().with(key, value);
    let cases: Vec<(OptionMap, u32, u32)> = vec![
        (option("max_topic_size", (10u64 << 10).into()), 1, 1019),
        (option("no_such_key", 1u64.into()), 1, 4041),
        (option("encryption_key_source", "none".into()), 1, 4041),
        (option("segment_size", 1000u64.into()), 1, 4042),
        (option("segment_size", (512u64 << 10).into()), 1, 4042),
        (option("segment_size", (2u64 << 30).into()), 1, 4042),
        (option("segment_size", ((1u64 << 20) + 1).into()), 1, 4042),
        (option("messages_required_to_save", 0u32.into()), 1, 4042),
        (option("preallocate_segments", true.into()).with("segment_size", 1u64 << 30), 65, 4042),
        (option("name", "column".into()), 1, 4042),
    ];
    for (options, partitions, code) in cases {
        assert_eq!(client.create_topic_with("s", "t", partitions, &options).outcome(), code, "{options:?}");
    }
    let block = option("encryption_key_source", "none".into()).encode().expect("a block");
    let options = Options::parse(&block).expect("a block");
    assert_eq!(client.ask(&CreateStream { name: "x", options }).outcome(), 4105);
    assert_eq!(client.must(&GetTopics { stream: name("s") }), [0; 4], "nothing was created");
    let body = client.must(&GetStreams {});
    assert_eq!(read_list::<StreamHeader<'_>>(&body).expect("streams").len(), 1);
}

#[test]
fn option_blocks_are_strict() {
    let node = Node::start(1);
    let mut client = node.client();
    client.create_stream("s");
    let good = client.frame(&CreateTopic {
        stream: name("s"),
        partitions_count: 1,
        name: "t",
        options: Options::EMPTY,
    });
    let key = |key: &str| [&[2][..], &(key.len() as u32).to_le_bytes(), key.as_bytes()].concat();
    let one = [key("segment_size"), key("1 MiB")].concat();
    let blocks = [
        [one.clone(), one.clone()].concat(),
        one[..one.len() - 1].to_vec(),
        [&[1][..], &one[1..]].concat(),
        [&[0][..], &one[1..]].concat(),
        vec![2, 0, 0, 0, 0],
    ];
    for block in blocks {
        let frame = good.with_body(&[good.body(), &block].concat());
        let frame = frame.with(168, &client.next_number().0.to_le_bytes());
        assert_eq!(client.exchange(&frame).outcome(), 3, "{block:?}");
    }
    let frame = good.with_body(&[good.body(), &one].concat());
    let frame = frame.with(168, &client.next_number().0.to_le_bytes());
    assert_eq!(client.exchange(&frame).outcome(), 0);
}

#[test]
fn public_options_are_described_in_order() {
    // S40, S41
    let node = Node::start(1);
    let mut keys = [
        "name",
        "compression_algorithm",
        "message_expiry",
        "max_topic_size",
        "segment_size",
        "durability",
        "consumer_offset_durability",
        "partition_resize_policy",
        "messages_required_to_save",
        "size_of_messages_required_to_save",
        "preallocate_segments",
    ]
    .to_vec();
    for version in [ProtocolVersion::V0_12_1, ProtocolVersion::V0_12_2] {
        let mut client = Client::sign_in_with(node.address(), version);
        if version == ProtocolVersion::V0_12_2 {
            keys.push("replication_factor");
        }
        let body = client.must(&DescribeOptions { scope: OptionScope::Topic });
        let rows = parse_option_descriptors(&body).expect("descriptors");
        assert_eq!(rows.iter().map(|row| row.key).collect::<Vec<_>>(), keys);
        assert_eq!((rows[2].kind, rows[2].flags, rows[2].default), (12, 3, &[0xff; 8][..]));
        assert_eq!((rows[4].kind, rows[4].flags), (12, 0));
        for scope in [OptionScope::Stream, OptionScope::User] {
            let body = client.must(&DescribeOptions { scope });
            let rows = parse_option_descriptors(&body).expect("descriptors");
            assert!(rows.iter().all(|row| !["critical_keys", "encryption_key_wrapped"].contains(&row.key)));
        }
        for scope in [0, 4, 255] {
            let frame = client.raw(13, &[scope]);
            assert_eq!(client.exchange(&frame).status(), 3);
        }
    }
}

#[test]
fn sizes_and_statistics_count_what_is_there() {
    // S99, S101
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("sizes", 3);
        client.create_topic("sizes", "empty", 2);
        for place in &places {
            client.append(place, &[[b'p'; 100]; 7]);
        }
        let bytes = 256 + 7 * (48 + 100);
        for _ in 0..2 {
            let body = client.must(&GetTopic { stream: name("sizes"), topic: name("sizes") });
            let topic = topic_of(&body);
            assert_eq!((topic.header.size_bytes, topic.header.messages_count), (3 * bytes, 21));
            for partition in &topic.partitions {
                assert_eq!((partition.size_bytes, partition.messages_count), (bytes, 7));
                assert_eq!((partition.current_offset.0, partition.segments_count), (6, 1));
            }
            let body = client.must(&GetStream { stream: name("sizes") });
            let stream = StreamDetails::read(&mut Reader::new(&body)).expect("a stream");
            assert_eq!((stream.header.size_bytes, stream.header.messages_count), (3 * bytes, 21));
            assert_eq!((stream.header.topics_count, stream.topics.len()), (2, 2));
            let body = client.must(&GetStats {});
            let stats = Stats::read(&mut Reader::new(&body)).expect("statistics");
            let counts =
                [stats.streams_count, stats.topics_count, stats.partitions_count, stats.segments_count];
            assert_eq!(counts, [1, 2, 5, 5]);
            assert_eq!((stats.messages_count, stats.messages_size_bytes), (21, 3 * bytes));
            assert_eq!((stats.consumer_groups_count, stats.process_id), (0, std::process::id()));
            node.restart();
            client = client.another();
        }
    }
}

#[test]
fn clients_list_the_caller() {
    // S102
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let mut others: Vec<_> = (0..4).map(|_| client.another()).collect();
        let mut stranger_link = Link::open(node.address());
        assert_eq!(stranger_link.ask(&stranger(new_client(), &Ping {})).reply().status(), 0);
        let me = client.must(&GetMe {});
        let mine = ClientHeader::read(&mut Reader::new(&me)).expect("a client");
        assert_eq!((mine.user_id.map(|user| user.0), mine.groups_count), (Some(0), 0));
        let body = client.must(&GetClients {});
        let all: Vec<ClientHeader<'_>> = read_list(&body).expect("clients");
        assert!(all.contains(&mine));
        assert_eq!(all.iter().filter(|client| client.user_id.is_some()).count(), 5);
        assert_eq!(all.iter().map(|client| client.client_id).collect::<BTreeSet<_>>().len(), all.len());
        others.iter_mut().for_each(Client::assert_alive);
    }
}

#[test]
fn connection_above_the_limit_is_closed_at_accept() {
    // S113
    for shards in SHARDS {
        let node = Node::start_with(shards, |config| config.connections.max = Some(3));
        let ping = || stranger(new_client(), &Ping {});
        let mut open: Vec<_> = (0..3).map(|_| Link::open(node.address())).collect();
        for link in &mut open {
            assert_eq!(link.ask(&ping()).reply().status(), 0);
        }
        Link::open(node.address()).assert_closed();
        for link in &mut open {
            assert_eq!(link.ask(&ping()).reply().status(), 0, "the others stay");
        }
        open.pop();
        sleep(Duration::from_millis(200));
        assert_eq!(Link::open(node.address()).ask(&ping()).reply().status(), 0, "a place is free");
    }
}

#[test]
fn term_ends_the_process_and_loses_nothing() {
    // S115
    let mut broker = harness::Broker::start(harness::Settings::new(env!("CARGO_BIN_EXE_laneway")));
    let mut client = Client::sign_in(broker.address());
    let places = client.topic("term", 3);
    for place in &places {
        client.append(place, &["kept"]);
    }
    let waiting = client.poll_frame(&places[0], Poll::offset(1).wait_ms(20_000));
    client.send(&waiting);
    client.assert_alive();
    assert!(broker.stop().success());
    assert_eq!(client.reply_to(&waiting).status(), 58);
    broker.restart();
    let mut again = client.another();
    for place in &places {
        assert_eq!(again.poll(place, Poll::offset(0)).payloads(), ["kept"]);
        assert_eq!(again.append(place, &["next"]), 1);
    }
}
