//! Metadata changes take effect once, and every answer that committed is kept. Source: wire protocol, sections 1.10, 2.8.

use laneway_wire::options::Options;
use laneway_wire::request::{
    CreatePartitions, CreateStream, CreateTopic, DeletePartitions, DeleteStream, DeleteTopic, GetStreams,
};
use laneway_wire::{Identifier, RequestNumber};

use crate::client::{AT_CHECKSUM, AT_NUMBER, Client, Sent, stranger};
use crate::node::{Node, SHARDS};

fn create_stream(client: &Client, name: &str) -> Sent {
    client.frame(&CreateStream { name, options: Options::EMPTY })
}

#[test]
fn resends_get_the_same_bytes() {
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let name = Identifier::Name("once");
        let create = create_stream(&client, "once");
        let topic = client.frame(&CreateTopic {
            stream: name,
            partitions_count: 3,
            name: "once",
            options: Options::EMPTY,
        });
        let delete_topic = client.frame(&DeleteTopic { stream: name, topic: name });
        let delete = client.frame(&DeleteStream { stream: name });
        let mut second = client.another();
        let mut known = Vec::new();
        for frame in [create, topic, delete_topic, delete] {
            let reply = client.exchange(&frame);
            assert!(reply.is_committed() && reply.outcome() == 0);
            assert_eq!(client.exchange(&frame), reply, "on the same connection");
            assert_eq!(second.exchange(&frame), reply, "on another one");
            known.push((frame, reply));
        }
        node.restart();
        let mut third = client.another();
        for (frame, reply) in &known {
            assert_eq!(third.exchange(frame), *reply, "after a restart");
        }
        assert_eq!(third.must(&GetStreams {}), [0; 0], "the deletes were not undone");
    }
}

#[test]
fn resend_while_the_first_is_on_its_way_is_one_change() {
    let node = Node::start(3);
    let mut client = node.client();
    let mut second = client.another();
    for round in 0..20 {
        let name = format!("round-{round}");
        let create = create_stream(&client, &name);
        client.send(&create);
        second.send(&create);
        let replies = [client.reply_to(&create), second.reply_to(&create)];
        assert!(replies[0].is_committed());
        assert_eq!(replies[0], replies[1]);
    }
}

#[test]
fn number_of_another_request_is_refused() {
    let node = Node::start(2);
    let mut client = node.client();
    let create = create_stream(&client, "first");
    let reply = client.exchange(&create);
    let other = create_stream(&client, "second").with(AT_NUMBER, &create.number().to_le_bytes());
    let other = other.with(AT_CHECKSUM, &77u128.to_le_bytes());
    client.exchange(&other).assert_refused(3);
    assert_eq!(client.exchange(&create), reply, "the first answer is still there");
    let streams = client.must(&GetStreams {});
    assert!(!streams.windows(6).any(|bytes| bytes == b"second"));
}

#[test]
fn numbers_below_the_window_are_never_executed() {
    let node = Node::start(2);
    let mut client = node.client();
    let unused = create_stream(&client, "late");
    let frames: Vec<_> = (0..12).map(|index| create_stream(&client, &format!("s{index}"))).collect();
    for frame in &frames {
        assert_eq!(client.exchange(frame).outcome(), 0);
    }
    let kept = client.exchange(&frames[11]);
    assert!(kept.is_committed());
    for frame in [&unused, &frames[0]] {
        let reply = client.exchange(frame);
        assert!(matches!(reply.status(), 59 | 85), "{:?}", reply.header());
        reply.assert_refused(reply.status());
    }
    // A number that was skipped and overtaken may not run either.
    assert!(!client.must(&GetStreams {}).windows(4).any(|bytes| bytes == b"late"));
    let gap = RequestNumber(client.next_number().0 + 1000);
    let ahead = create_stream(&client, "ahead").with(AT_NUMBER, &gap.0.to_le_bytes());
    assert_eq!(client.exchange(&ahead).outcome(), 0, "numbers may have gaps");
}

#[test]
fn refusals_that_committed_are_proven_and_repeated() {
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        client.topic("taken", 1);
        let (name, missing) = (Identifier::Name("taken"), Identifier::Name("missing"));
        let topic = |stream, name| CreateTopic { stream, partitions_count: 1, name, options: Options::EMPTY };
        let cases = [
            (create_stream(&client, "taken"), 1012),
            (client.frame(&DeleteStream { stream: missing }), 1009),
            (client.frame(&DeleteStream { stream: Identifier::Numeric(99) }), 1009),
            (client.frame(&topic(missing, "t")), 1009),
            (client.frame(&topic(name, "taken")), 2013),
            (client.frame(&DeleteTopic { stream: name, topic: missing }), 2010),
            (client.frame(&DeleteTopic { stream: missing, topic: missing }), 1009),
            (client.frame(&CreatePartitions { stream: name, topic: missing, partitions_count: 1 }), 2010),
            (client.frame(&DeletePartitions { stream: name, topic: name, partitions_count: 4 }), 2019),
        ];
        let mut kept = Vec::new();
        for (frame, code) in cases {
            let reply = client.exchange(&frame);
            reply.assert_committed_refusal(code);
            assert_eq!(client.exchange(&frame), reply, "code {code}");
            kept.push((frame, reply));
        }
        node.restart();
        let mut again = client.another();
        for (frame, reply) in kept.iter().rev().take(3) {
            assert_eq!(again.exchange(frame), *reply, "after a restart");
        }
        // The name is free now, and still the answer of then is the answer.
        let taken = create_stream(&again, "taken");
        let refused = again.exchange(&taken);
        refused.assert_committed_refusal(1012);
        assert_eq!(again.ask(&DeleteStream { stream: name }).outcome(), 0);
        assert_eq!(again.exchange(&taken), refused);
    }
}

#[test]
fn refusals_before_admission_prove_nothing() {
    let node = Node::start(2);
    let mut client = node.client();
    client.topic("limits", 1);
    let name = Identifier::Name("limits");
    let create = client.frame(&CreateStream { name: "x", options: Options::EMPTY }).with_body(&[0]);
    client.exchange(&create).assert_refused(3);
    for count in [0, 1001] {
        let reply = client.ask(&CreatePartitions { stream: name, topic: name, partitions_count: count });
        assert_eq!(reply.outcome(), 2015);
    }
    // A refusal that proves nothing uses no number up: the same number may come with what is right.
    let right = create_stream(&client, "right").with(AT_NUMBER, &create.number().to_le_bytes());
    let reply = client.exchange(&right);
    assert!(
        matches!((reply.outcome(), reply.is_committed()), (0, true) | (59 | 85, false)),
        "{:?}",
        reply.header()
    );
}

#[test]
fn rejected_create_stream_has_the_bytes_of_the_reference() {
    let node = Node::start(1);
    let mut client = node.client();
    client.create_stream("a");
    let sent = create_stream(&client, "a");
    let reply = client.exchange(&sent);
    // Section 1.14 c, with our own ids, op and time.
    let mut expected = vec![0; 268];
    expected[48..52].copy_from_slice(&268u32.to_le_bytes());
    expected[60] = 8;
    expected[128..144].copy_from_slice(&sent.bytes[144..160]);
    expected[160..176].copy_from_slice(&sent.bytes[128..144]);
    expected[176..200].copy_from_slice(&reply.bytes[176..200]);
    expected[200..208].copy_from_slice(&sent.bytes[168..176]);
    expected[208] = 128;
    expected[220] = 1;
    expected[256] = 1;
    expected[264..268].copy_from_slice(&1012u32.to_le_bytes());
    assert_eq!(reply.bytes, expected);
    assert_eq!(reply.bytes[176..184], reply.bytes[184..192], "op and commit");
}

#[test]
fn commit_of_a_change_is_the_watermark_that_reads_meet() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let mut links: Vec<_> = (0..6).map(|_| client.another()).collect();
        for round in 0..10 {
            let name = format!("w{round}");
            let create = create_stream(&client, &name);
            let op = client.exchange(&create).header().op;
            for link in &mut links {
                let read = link.frame(&GetStreams {}).with(216, &op.0.to_le_bytes());
                let reply = link.exchange(&read);
                // The node has applied what it told: it answers, from a state that has the stream.
                assert_eq!(reply.status(), 0);
                assert!(reply.body().windows(name.len()).any(|bytes| bytes == name.as_bytes()), "{name}");
                assert!(reply.header().commit >= op);
            }
        }
        let future = client.frame(&GetStreams {}).with(216, &1_000_000u64.to_le_bytes());
        assert_eq!(client.exchange(&future).status(), 58);
    }
}

#[test]
fn change_without_a_session_is_not_ordered() {
    let node = Node::start(1);
    let mut client = node.client();
    let number = client.next_number();
    let mut frame =
        stranger(client.session.client, &CreateStream { name: "nobody", options: Options::EMPTY });
    frame = frame.with(AT_NUMBER, &number.0.to_le_bytes());
    // A replicated request that names no session breaks the header's rules: the connection ends.
    client.link.send(&frame);
    client.link.assert_closed();
    assert_eq!(client.another().must(&GetStreams {}), [0; 0]);
}
