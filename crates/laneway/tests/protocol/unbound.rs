//! What a connection is served before and after it is bound, and codes and operations that nobody serves. Source: wire
//! protocol, sections 1.11, 2.1 and 5.7.

use laneway_wire::options::Options;
use laneway_wire::request::{CreateStream, GetClusterMetadata, GetStreams, GetUsers, Logout, Ping};
use laneway_wire::{Code, Identifier, Operation};

use crate::client::{AT_OPERATION, Link, Sent, new_client, stranger, stranger_with_code};
use crate::messages::{Poll, batch, frame_of, header_of};
use crate::node::Node;

/// Commands that were served once. Source: wire protocol, section 5.7.
const RETIRED: [u32; 12] = [14, 35, 102, 103, 104, 107, 123, 124, 204, 205, 304, 305];

#[test]
fn ping_needs_no_session() {
    // S55
    let node = Node::start(2);
    let mut link = Link::open(node.address());
    let client = new_client();
    let reply = link.ask(&stranger(client, &Ping {})).reply();
    assert_eq!((reply.status(), reply.body().len()), (0, 0));
    // Section 1.14 d, but for the fields that are free.
    assert_eq!(reply.bytes[48..52], 256u32.to_le_bytes());
    assert_eq!(reply.bytes[60], 8);
    assert_eq!(reply.bytes[160..176], client.0.to_le_bytes());
    assert_eq!(reply.bytes[208], 2);
}

#[test]
fn reads_need_a_session() {
    // S55
    let node = Node::start(2);
    let mut link = Link::open(node.address());
    let client = new_client();
    let frames = [
        stranger(client, &GetStreams {}),
        stranger(client, &GetUsers {}),
        stranger(client, &GetClusterMetadata {}),
        stranger_with_code(client, 9999),
        stranger_with_code(client, 107),
    ];
    for frame in frames {
        let reply = link.ask(&frame).reply();
        assert_eq!((reply.status(), reply.header().commit.0), (40, 0), "{:?}", frame.header());
    }
    assert_eq!(link.ask(&stranger(client, &Ping {})).reply().status(), 0);
}

#[test]
fn writes_without_a_session_are_evicted() {
    let node = Node::start(2);
    let client = new_client();
    let mut header = header_of(Operation::CreateStream, client);
    (header.session.0, header.request.0, header.request_checksum) = (1, 1, 5);
    let create = frame_of(&header, &CreateStream { name: "s", options: Options::EMPTY });
    let logout = frame_of(&header, &Logout {});
    let send = create.with(AT_OPERATION, &[160]);
    for frame in [create, logout, send] {
        let mut link = Link::open(node.address());
        link.ask(&frame).assert_eviction(1, client);
        link.assert_closed();
    }
}

#[test]
fn legacy_logins_are_malformed() {
    let node = Node::start(1);
    for code in [Code::LoginUser, Code::LoginWithPersonalAccessToken] {
        let client = new_client();
        let mut link = Link::open(node.address());
        link.ask(&stranger_with_code(client, code.number())).assert_eviction(15, client);
        link.assert_closed();
    }
}

#[test]
fn retired_and_unknown_codes_are_invalid_commands() {
    // S43, R78
    let node = Node::start(2);
    let mut client = node.client();
    for code in RETIRED.into_iter().chain([0, 2, 18, 110, 9999, u32::MAX]) {
        let frame = client.raw(code, &[]);
        let reply = client.exchange(&frame);
        assert_eq!((reply.status(), reply.body().len()), (3, 0), "code {code}");
    }
    client.assert_alive();
}

#[test]
fn undeclared_and_internal_operations_are_invalid_commands() {
    let node = Node::start(2);
    let mut client = node.client();
    let retired = [129, 131, 133, 135, 142, 69, 76, 127, 163, 164, 165, 170, 255];
    let internal = (64..=75).filter(|byte| *byte != 69).chain(166..=169);
    for byte in retired.into_iter().chain(internal) {
        let frame = client.frame(&Logout {}).with(AT_OPERATION, &[byte]);
        let reply = client.exchange(&frame);
        assert_eq!((reply.status(), reply.header().operation), (3, byte));
        reply_has_no_marker(&reply);
    }
    client.assert_alive();
}

fn reply_has_no_marker(reply: &crate::client::Reply) {
    assert_eq!((reply.header().marker, reply.header().op.0), (0, 0));
}

#[test]
fn bodies_that_cannot_be_read_are_invalid_commands() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("malformed", 1).remove(0);
    let stream = Identifier::Name("malformed");
    let good = client.frame(&laneway_wire::request::GetStream { stream });
    let bodies: [(&str, Vec<u8>); 6] = [
        ("kind 0", [&[0, 4][..], &[0; 4]].concat()),
        ("kind 3", [&[3, 4][..], &[0; 4]].concat()),
        ("numeric of 3 bytes", vec![1, 3, 0, 0, 0]),
        ("empty name", vec![2, 0]),
        ("short name", vec![2, 5, b'a']),
        ("a name that is no UTF-8", vec![2, 2, 0xff, 0xfe]),
    ];
    for (what, body) in bodies {
        let frame = good.with_body(&body).with(168, &client.next_number().0.to_le_bytes());
        assert_eq!(client.exchange(&frame).status(), 3, "{what}");
    }
    let frames: Vec<(&str, Sent)> = vec![
        (
            "a create without a name",
            client.frame(&CreateStream { name: "x", options: Options::EMPTY }).with_body(&[0]),
        ),
        ("a send of a few bytes", client.send_frame(&place, &["x"]).with_body(&[1, 0, 0, 0])),
        ("a poll of a few bytes", client.poll_frame(&place, Poll::offset(0)).with_body(&[1, 1, 4])),
        ("a scope that is none", client.raw(13, &[0])),
    ];
    for (what, frame) in frames {
        let reply = client.exchange(&frame);
        assert_eq!(reply.status(), 3, "{what}");
        reply_has_no_marker(&reply);
    }
    assert_eq!(client.append(&place, &["x"]), 0, "nothing of it was stored");
    assert!(!batch(&["x"], None).is_empty());
}
