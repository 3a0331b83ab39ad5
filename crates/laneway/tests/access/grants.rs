//! Rights that change while requests wait. Source: reads, rules R43, R109, R144; resources, S61 to S65.

use laneway_wire::request::{GetStream, GetStreams, GetTopic};
use laneway_wire::{Identifier, permissions::Permissions};

use crate::accounts::{global, on_stream, on_topic, with_user};
use crate::client::{Client, Place};
use crate::messages::{Poll, Polled};
use crate::node::SHARDS;

const LONG_MS: u64 = 20_000;

fn park(client: &mut Client, place: &Place) -> crate::client::Sent {
    let sent = client.poll_frame(place, Poll::offset(0).wait_ms(LONG_MS));
    client.send(&sent);
    client.must(&laneway_wire::request::GetMe {});
    sent
}

/// R109: a lost permission ends what waits, at once and with 41; what is still allowed waits on.
#[test]
fn parked_polls_end_when_their_permission_is_lost() {
    for shards in SHARDS {
        let (_node, mut root, mut ann) = with_user(shards, None);
        let places = root.topic("lost", 3);
        root.grant("ann", on_stream(0, |flags| flags.poll_messages = true)).payload();
        let parked: Vec<_> = places.iter().map(|place| park(&mut ann, place)).collect();
        // Another right of the same kind: nothing changes for them.
        root.grant("ann", global(|flags| flags.read_streams = true)).payload();
        ann.must(&laneway_wire::request::GetMe {});
        root.grant("ann", global(|flags| flags.send_messages = true)).payload();
        for sent in &parked {
            let reply = ann.reply_to(sent);
            assert_eq!((reply.status(), reply.body().len()), (41, 0));
        }
        assert_eq!(ann.poll_status(&places[0], Poll::offset(0)), 41, "R43");
    }
}

/// A permission that comes back in time changes nothing for what waits: it is looked at when something happens.
#[test]
fn parked_polls_of_others_wait_on() {
    for shards in SHARDS {
        let (_node, mut root, mut ann) =
            with_user(shards, global(|flags| (flags.poll_messages, flags.send_messages) = (true, true)));
        let place = root.topic("others", 1).remove(0);
        let waits = park(&mut ann, &place);
        root.create_user("bob", Some(Permissions::root())).payload();
        root.grant("bob", None).payload();
        root.append(&place, &["a"]);
        assert_eq!(Polled::read(&ann.reply_to(&waits), &place).payloads(), ["a"]);
    }
}

/// R43, R109: deactivation and deletion end what waits with 30.
#[test]
fn parked_polls_end_with_their_user() {
    for shards in SHARDS {
        let (_node, mut root, mut ann) = with_user(shards, global(|flags| flags.poll_messages = true));
        let places = root.topic("ended", 3);
        let parked: Vec<_> = places.iter().map(|place| park(&mut ann, place)).collect();
        assert_eq!(root.delete_user("ann").outcome(), 0);
        for sent in &parked {
            assert_eq!(ann.reply_to(sent).status(), 30);
        }
    }
}

/// S61, S62: to poll and to send are two rights, and neither shows the topic.
#[test]
fn poll_and_send_are_apart() {
    for shards in SHARDS {
        let (_node, mut root, mut ann) = with_user(shards, global(|flags| flags.poll_messages = true));
        let place = root.topic("apart", 1).remove(0);
        root.append(&place, &["a"]);
        assert_eq!(ann.poll(&place, Poll::offset(0)).payloads(), ["a"]);
        let send = ann.send_frame(&place, &["b"]);
        assert_eq!(ann.exchange(&send).status(), 41);
        assert_eq!(get_topic(&mut ann), 41);
        root.grant("ann", on_topic(0, 0, |flags| flags.send_messages = true)).payload();
        assert_eq!(ann.append(&place, &["b"]), 1);
        assert_eq!(ann.poll_status(&place, Poll::offset(0)), 41);
        assert_eq!(get_topic(&mut ann), 41);
    }
}

fn get_topic(client: &mut Client) -> u32 {
    let (stream, topic) = (Identifier::Numeric(0), Identifier::Numeric(0));
    client.ask(&GetTopic { stream, topic }).outcome()
}

/// S63, S64, S65.
#[test]
fn rights_above_include_those_below_and_not_the_other_way() {
    let (_node, mut root, mut ann) = with_user(2, global(|flags| flags.read_streams = true));
    let place = root.topic("above", 1).remove(0);
    assert_eq!(ann.poll(&place, Poll::offset(0)).payloads(), [""; 0], "S63");
    root.grant("ann", on_stream(0, |flags| flags.read_stream = true)).payload();
    ann.ask(&GetStream { stream: Identifier::Numeric(0) }).payload();
    ann.ask(&GetStreams {}).assert_refused(41);
    root.grant("ann", on_topic(0, 0, |flags| flags.manage_topic = true)).payload();
    assert_eq!(get_topic(&mut ann), 0);
    let create = ann.create_topic_with("above", "other", 1, &Default::default());
    create.assert_committed_refusal(41);
    let (stream, topic) = (Identifier::Numeric(0), Identifier::Numeric(0));
    ann.must(&laneway_wire::request::DeleteTopic { stream, topic });
}
