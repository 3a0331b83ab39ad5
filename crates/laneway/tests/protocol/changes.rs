//! The metadata change log (17) over sockets. Source: resources, sections 20 and 24.

use laneway_wire::options::Options;
use laneway_wire::reply::{ChangeBody, ChangesPage, ChangesStatus, StateBody};
use laneway_wire::request::{
    ChangeCursor, ChangeStart, CreateStream, DeleteStream, DeleteTopic, GetMetadataChanges,
};
use laneway_wire::{Identifier, Op, StreamId};

use crate::client::Client;
use crate::node::{Node, SHARDS};

const ALL: GetMetadataChanges<'static> =
    GetMetadataChanges { start: ChangeStart::Earliest, since: None, until: None, limit: 100, groups: &[] };

fn after(cursor: ChangeCursor) -> GetMetadataChanges<'static> {
    GetMetadataChanges { start: ChangeStart::After(cursor), ..ALL }
}

impl Client {
    /// The place behind the newest record.
    fn latest(&mut self) -> ChangeCursor {
        let body = self.must(&GetMetadataChanges { start: ChangeStart::Latest, ..ALL });
        let page = ChangesPage::parse(&body).expect("a page");
        assert_eq!((page.status, page.records.len(), page.has_more), (ChangesStatus::Ok, 0, false));
        page.next.expect("a place")
    }

    fn status(&mut self, request: &GetMetadataChanges<'_>) -> ChangesStatus {
        let body = self.must(request);
        ChangesPage::parse(&body).expect("a page").status
    }
}

#[test]
fn followers_are_told_of_each_change_across_restarts() {
    // S106, S107
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let start = client.latest();
        let create = client.frame(&CreateStream { name: "s", options: Options::EMPTY });
        let created = client.exchange(&create).header().op;
        client.ask(&CreateStream { name: "s", options: Options::EMPTY }).assert_committed_refusal(1012);
        let body = client.must(&after(start));
        let page = ChangesPage::parse(&body).expect("a page");
        assert_eq!((page.status, page.records.len()), (ChangesStatus::Ok, 1), "the refusal left nothing");
        let record = page.records[0];
        assert_eq!((record.op, record.ordinal, record.actor.map(|user| user.0)), (created, 0, Some(0)));
        let told = ChangeBody::parse(record.group, record.kind, record.body).expect("a body");
        let Some(ChangeBody::StreamCreated { life, name, .. }) = told else { panic!("{told:?}") };
        assert_eq!((life.stream, life.created_op, name), (StreamId(0), created, "s"));
        let next = page.next.expect("a place");
        assert!(page.head_op >= created && page.log_id == Some(next.log_id));
        // A resend is told once.
        client.exchange(&create);
        let body = client.must(&after(next));
        assert!(ChangesPage::parse(&body).expect("a page").records.is_empty());

        client.create_topic("s", "t", 2);
        let name = |name| Identifier::Name(name);
        assert_eq!(client.ask(&DeleteTopic { stream: name("s"), topic: name("t") }).outcome(), 0);
        assert_eq!(client.ask(&DeleteStream { stream: name("s") }).outcome(), 0);
        let body = client.must(&after(start));
        node.restart();
        let mut client = client.another();
        let again = client.must(&after(start));
        let told = |body: &[u8]| {
            let page = ChangesPage::parse(body).expect("a page");
            page.records.iter().map(|record| (record.op, record.group, record.kind)).collect::<Vec<_>>()
        };
        assert_eq!(told(&body), told(&again));
        let kinds: Vec<_> = told(&again).iter().map(|(_, group, kind)| (*group, *kind)).collect();
        assert_eq!(kinds, [(1, 1), (2, 10), (2, 12), (1, 3)]);
    }
}

#[test]
fn places_expire_and_are_of_one_data_directory() {
    // S108
    let node = Node::start_with(2, |config| config.metadata.change_records_max = 16);
    let other = Node::start(1);
    let mut client = node.client();
    let start = client.latest();
    client.create_stream("s0");
    assert_eq!(client.status(&after(start)), ChangesStatus::Ok);
    (1..20).for_each(|index| drop(client.create_stream(&format!("s{index}"))));
    assert_eq!(client.status(&after(start)), ChangesStatus::Expired);
    let body = client.must(&ALL);
    let page = ChangesPage::parse(&body).expect("a page");
    let streams = page.records.iter().filter(|record| record.group == 1).count();
    assert_eq!((page.status, streams), (ChangesStatus::Ok, 16));
    assert!(page.retained_since.0 > 0 && page.oldest_op > Op(1));
    let foreign = other.client().latest();
    assert_ne!(foreign.log_id, start.log_id);
    assert_eq!(client.status(&after(foreign)), ChangesStatus::Reset);
    let ahead = ChangeCursor { op: Op(1_000_000), ..client.latest() };
    let body = client.must(&after(ahead));
    let page = ChangesPage::parse(&body).expect("a page");
    assert_eq!((page.status, page.next), (ChangesStatus::Behind, Some(ahead)), "the place is repeated");
}

#[test]
fn requests_out_of_range_are_refused() {
    // S109, S110
    let node = Node::start(1);
    let mut client = node.client();
    let good = client.frame(&ALL);
    let head = |mode: u8| [&[mode][..], &[0; 44]].concat();
    let body = |mode, times: &[u8], limit: u32, groups: &[u8]| {
        let groups = [&[groups.len() as u8][..], groups].concat();
        [head(mode), times.to_vec(), limit.to_le_bytes().to_vec(), groups, vec![0, 0]].concat()
    };
    let time = |time: u64| [&[1][..], &time.to_le_bytes()].concat();
    let cases = [
        body(0, &[0, 0], 0, &[]),
        body(0, &[0, 0], 1001, &[]),
        body(0, &[time(2), time(1)].concat(), 100, &[]),
        body(1, &[time(1), vec![0]].concat(), 100, &[]),
        body(3, &[0, 0], 100, &[2]),
        body(3, &[0, 0], 100, &[1, 3]),
        body(3, &[0, 0], 100, &[7]),
        body(0, &[0, 0], 100, &[9]),
        body(4, &[0, 0], 100, &[]),
        [body(0, &[0, 0], 100, &[]), vec![0]].concat(),
    ];
    for (index, body) in cases.iter().enumerate() {
        let frame = good.with_body(body).with(168, &client.next_number().0.to_le_bytes());
        assert_eq!(client.exchange(&frame).status(), 3, "case {index}");
    }
    for body in [body(0, &[0, 0], 1000, &[1, 1, 8]), body(0, &[time(1), time(1)].concat(), 1, &[])] {
        let frame = good.with_body(&body).with(168, &client.next_number().0.to_le_bytes());
        assert_eq!(client.exchange(&frame).status(), 0);
    }
}

#[test]
fn current_state_is_what_is_there() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        for stream in ["a", "b"] {
            client.create_stream(stream);
            client.create_topic(stream, "t", 3);
        }
        let (mut seen, mut token) = (Vec::new(), None::<Vec<u8>>);
        let groups = [1, 2, 3, 6, 8];
        loop {
            let parsed = token
                .as_deref()
                .map(|bytes| laneway_wire::request::ChangePageToken::parse(bytes).expect("a token"));
            let start = ChangeStart::Current(parsed);
            let body = client.must(&GetMetadataChanges { start, limit: 2, groups: &groups, ..ALL });
            let page = ChangesPage::parse(&body).expect("a page");
            for item in &page.items {
                let state = StateBody::parse(item.group, item.group, item.body).expect("an item");
                if let Some(StateBody::Partitions { partitions_count, .. }) = &state {
                    assert_eq!(*partitions_count, 3);
                }
                seen.push(item.group);
            }
            assert_eq!(page.has_more, page.token.is_some());
            let mut bytes = bytes::BytesMut::new();
            let Some(next) = page.token else {
                // Followed from here, nothing is missed.
                let anchor = page.next.expect("a place");
                client.create_stream("c");
                let body = client.must(&after(anchor));
                assert_eq!(ChangesPage::parse(&body).expect("a page").records.len(), 1);
                break;
            };
            next.put_prefixed(&mut bytes);
            token = Some(bytes[2..].to_vec());
        }
        assert_eq!(seen, [1, 1, 2, 2, 3, 3, 6, 8]);
    }
}
