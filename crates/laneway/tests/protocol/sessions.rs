//! Registration, binding, logout, and the life of a session. Source: wire protocol, sections 2.2 to 2.8.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use laneway_wire::primitive::Secret;
use laneway_wire::reply::{Record, Registered, TopicDetails};
use laneway_wire::request::{
    BindSecret, GetStreams, GetTopic, LoginRegister, LoginRegisterWithPat, Logout, Ping,
};
use laneway_wire::{Identifier, Op, ProtocolVersion, Reader, SessionEpoch};

use crate::client::{
    AT_CHECKSUM, AT_CLIENT, AT_SESSION, Answer, Client, Link, new_client, register, stranger, version_prefix,
};
use crate::messages::Poll;
use crate::node::{Node, SHARDS};

const VERSION: ProtocolVersion = ProtocolVersion::V0_12_2;
const SECRET: BindSecret = BindSecret([7; 32]);

fn read(reply: &crate::client::Reply) -> (u32, u64, u32) {
    let registered = Registered::read(&mut Reader::new(reply.payload())).expect("a registration");
    assert!(!registered.server_version.is_empty());
    (registered.user_id.0, registered.session.0, registered.protocol.0)
}

#[test]
fn registration_names_user_epoch_and_protocol() {
    let node = Node::start(1);
    for version in [ProtocolVersion::V0_12_1, ProtocolVersion::V0_12_2] {
        let reply =
            Link::open(node.address()).ask(&register(new_client(), SECRET, version, "iggy", "iggy")).reply();
        let (user, epoch, protocol) = read(&reply);
        assert_eq!((user, protocol), (0, version.0));
        assert!(epoch > 0);
        assert!(reply.header().commit.0 >= epoch, "the watermark covers the registration");
        assert_eq!(reply.header().request.0, 0);
    }
}

#[test]
fn same_registration_again_is_the_same_session() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let login = register(new_client(), SECRET, VERSION, "iggy", "iggy");
        let mut link = Link::open(node.address());
        let first = read(&link.ask(&login).reply());
        assert_eq!(read(&link.ask(&login).reply()), first, "on the same connection");
        assert_eq!(read(&Link::open(node.address()).ask(&login).reply()), first, "on another one");
        let other = read(
            &Link::open(node.address()).ask(&register(new_client(), SECRET, VERSION, "iggy", "iggy")).reply(),
        );
        assert!(other.1 > first.1, "epochs grow");
    }
}

#[test]
fn client_id_of_another_secret_is_taken() {
    let node = Node::start(2);
    let client = new_client();
    Link::open(node.address()).ask(&register(client, SECRET, VERSION, "iggy", "iggy")).reply();
    let mut link = Link::open(node.address());
    link.ask(&register(client, BindSecret([8; 32]), VERSION, "iggy", "iggy")).assert_eviction(12, client);
    link.assert_closed();
}

#[test]
fn wrong_credentials_of_every_kind_have_one_answer() {
    // S53
    let node = Node::start(1);
    let long = "x".repeat(101);
    let cases = [
        ("iggy", "wrong"),
        ("nobody", "iggy"),
        ("ig", "iggy"),
        (&long[..51], "iggy"),
        ("iggy", "ig"),
        ("iggy", ""),
        ("iggy", &long[..]),
    ];
    let mut seen = BTreeSet::new();
    for (username, password) in cases {
        let client = new_client();
        let mut link = Link::open(node.address());
        let answer = link.ask(&register(client, SECRET, VERSION, username, password));
        answer.assert_eviction(9, client);
        link.assert_closed();
        let Answer::Eviction(mut bytes) = answer else { unreachable!("asserted above") };
        bytes[AT_CLIENT..AT_CLIENT + 16].fill(0);
        seen.insert(bytes);
    }
    assert_eq!(seen.len(), 1, "nothing tells the cases apart");
}

#[test]
fn failed_login_does_not_prevent_the_next() {
    // S54
    let node = Node::start(1);
    let client = new_client();
    Link::open(node.address())
        .ask(&register(client, SECRET, VERSION, "iggy", "wrong"))
        .assert_eviction(9, client);
    let reply = Link::open(node.address()).ask(&register(client, SECRET, VERSION, "iggy", "iggy")).reply();
    assert!(read(&reply).1 > 0);
}

#[test]
fn login_that_cannot_be_read_is_malformed() {
    let node = Node::start(1);
    let client = new_client();
    let login = register(client, SECRET, VERSION, "iggy", "iggy");
    let body = login.body();
    let mut trailing = body.to_vec();
    trailing.push(0);
    // Empty, inside of the version prefix, inside of the secret, inside of the context, and one byte too many.
    for body in [&body[..0], &body[..5], &body[..20], &body[..body.len() - 1], &trailing] {
        let mut link = Link::open(node.address());
        link.ask(&login.with_body(body)).assert_eviction(15, client);
        link.assert_closed();
    }
}

#[test]
fn login_with_an_unknown_token_is_refused() {
    let node = Node::start(1);
    let client = new_client();
    let login = LoginRegisterWithPat {
        version: version_prefix(VERSION),
        bind_secret: SECRET,
        token: Secret(b"a token that nobody made"),
        context: &[],
    };
    let mut link = Link::open(node.address());
    link.ask(&stranger(client, &login)).assert_eviction(10, client);
    link.assert_closed();
}

#[test]
fn versions_out_of_the_window_are_told_the_window() {
    let node = Node::start(1);
    let outside = [(0, 11, 0), (0, 12, 0), (0, 12, 3), (0, 13, 0), (1, 0, 0)];
    for (major, minor, patch) in outside {
        let version = ProtocolVersion::new(major, minor, patch);
        let client = new_client();
        let mut link = Link::open(node.address());
        link.ask(&register(client, SECRET, version, "iggy", "iggy")).assert_eviction(14, client);
        link.assert_closed();
    }
    // The gate comes before anything else in the body is looked at.
    let client = new_client();
    let login = register(client, SECRET, ProtocolVersion::new(0, 11, 0), "iggy", "iggy");
    let prefix = login.body()[..4 + 4 + 2].to_vec();
    Link::open(node.address()).ask(&login.with_body(&prefix)).assert_eviction(14, client);
}

#[test]
fn bind_passes_the_version_gate() {
    let node = Node::start(1);
    let client = node.client();
    let frame = client.bind_frame(|bind| bind.version = version_prefix(ProtocolVersion::new(0, 12, 0)));
    let mut link = Link::open(node.address());
    link.ask(&frame).assert_eviction(14, client.session.client);
    link.assert_closed();
}

#[test]
fn each_version_reads_its_own_partition_records() {
    let node = Node::start(2);
    let mut newer = node.client();
    let mut older = Client::sign_in_with(node.address(), ProtocolVersion::V0_12_1);
    newer.topic("layouts", 3);
    let name = Identifier::Name("layouts");
    let get = GetTopic { stream: name, topic: name };
    let (new, old) = (newer.must(&get), older.must(&get));
    // One replica in each of the two lists, each list with its count byte.
    assert_eq!(new.len(), old.len() + 3 * 4);
    let created = older.create_topic("layouts", "older", 2);
    for (body, version, partitions) in [
        (&new, ProtocolVersion::V0_12_2, 3),
        (&old, ProtocolVersion::V0_12_1, 3),
        (&created, ProtocolVersion::V0_12_1, 2),
    ] {
        let mut reader = Reader::new(body);
        let details = TopicDetails::read(&mut reader, version).expect("a topic");
        assert!(reader.is_empty(), "nothing follows the records of {version}");
        assert_eq!(details.partitions.len(), partitions);
        for partition in details.partitions {
            assert_ne!(partition.context.incarnation.0, 0);
            let replicas = if version == ProtocolVersion::V0_12_2 { &[0][..] } else { &[] };
            assert_eq!(partition.members.len(), replicas.len());
            assert_eq!(partition.in_sync.len(), replicas.len());
        }
    }
}

#[test]
fn bind_attaches_another_connection() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let client = node.client();
        let session = &client.session;
        for epoch in [session.epoch, SessionEpoch(0)] {
            let mut link = Link::open(node.address());
            let reply = link.ask(&client.bind_frame(|bind| bind.session = epoch)).reply();
            assert_eq!(read(&reply), (0, session.epoch.0, VERSION.0), "asked for {epoch:?}");
            Client::over(link, session.clone()).assert_alive();
        }
    }
}

#[test]
fn bind_needs_the_secret_and_the_session() {
    let node = Node::start(2);
    let client = node.client();
    let epoch = client.session.epoch;
    let cases = [
        ("another secret", client.bind_frame(|bind| bind.bind_secret = BindSecret([8; 32])), 40),
        (
            "another secret and no epoch",
            client
                .bind_frame(|bind| (bind.bind_secret, bind.session) = (BindSecret([8; 32]), SessionEpoch(0))),
            40,
        ),
        ("an older epoch", client.bind_frame(|bind| bind.session = SessionEpoch(epoch.0 - 1)), 40),
        ("another client", client.bind_frame(|bind| bind.client = new_client()), 40),
        ("a watermark to come", client.bind_frame(|bind| bind.metadata_watermark = Op(epoch.0 + 1000)), 58),
    ];
    for (case, frame, status) in cases {
        let mut link = Link::open(node.address());
        let reply = link.ask(&frame).reply();
        assert_eq!((reply.status(), reply.body().len()), (status, 0), "{case}");
        // The refused connection is as unbound as before.
        assert_eq!(link.ask(&stranger(new_client(), &GetStreams {})).reply().status(), 40, "{case}");
        assert_eq!(link.ask(&client.bind_frame(|_| {})).reply().status(), 0, "{case}");
    }
}

#[test]
fn bind_survives_a_restart() {
    let mut node = Node::start(2);
    let mut client = node.client();
    client.create_stream("before");
    let streams = client.must(&GetStreams {});
    node.restart();
    let mut again = client.another();
    assert_eq!(again.must(&GetStreams {}), streams);
    let login = register(client.session.client, SECRET, VERSION, "iggy", "iggy");
    let reply = Link::open(node.address()).ask(&login).reply();
    assert_eq!(read(&reply).1, client.session.epoch.0, "the registration is the same as before");
}

#[test]
fn logout_leaves_an_unbound_connection() {
    let node = Node::start(2);
    let mut client = node.client();
    let logout = client.frame(&Logout {});
    let reply = client.exchange(&logout);
    assert_eq!((reply.status(), reply.header().marker, reply.body().len()), (0, 1, 0));
    assert!(reply.header().op.0 > client.session.epoch.0);
    let read = client.ask(&GetStreams {});
    assert_eq!(read.status(), 40);
    assert_eq!(client.link.ask(&stranger(client.session.client, &Ping {})).reply().status(), 0);
    let login = register(client.session.client, SECRET, VERSION, "iggy", "iggy");
    let again = client.link.ask(&login).reply();
    let registered = Registered::read(&mut Reader::new(again.payload())).expect("a registration");
    assert!(registered.session > client.session.epoch, "a new life of the session");
}

#[test]
fn session_that_ended_elsewhere_is_stale_here() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut reader, mut writer) = (node.client(), None::<Client>);
        let mut other = reader.another();
        let third = reader.another();
        writer.replace(third);
        assert_eq!(other.ask(&Logout {}).status(), 0);
        assert_eq!(reader.ask(&GetStreams {}).status(), 30);
        let mut writer = writer.expect("put there above");
        let create = writer.frame(&Logout {});
        writer.link.ask(&create).assert_eviction(1, reader.session.client);
        writer.link.assert_closed();
        assert_eq!(Link::open(node.address()).ask(&reader.bind_frame(|_| {})).reply().status(), 40);
    }
}

#[test]
fn request_of_another_client_is_refused() {
    let node = Node::start(1);
    let mut client = node.client();
    let other = new_client().0.to_le_bytes();
    let read = client.frame(&GetStreams {}).with(AT_CLIENT, &other);
    assert_eq!(client.exchange(&read).status(), 3);
    let write = client.frame(&Logout {}).with(AT_CLIENT, &other);
    let reply = client.exchange(&write);
    reply.assert_refused(3);
    client.assert_alive();
}

#[test]
fn request_of_an_older_epoch_is_evicted() {
    let node = Node::start(1);
    let mut client = node.client();
    let epoch = client.session.epoch.0 - 1;
    let write = client.frame(&Logout {}).with(AT_SESSION, &epoch.to_le_bytes());
    client.link.ask(&write).assert_eviction(7, client.session.client);
    client.link.assert_closed();
    client.another().assert_alive();
}

#[test]
fn connections_of_a_session_serve_each_other() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut first = node.client();
        let mut second = first.another();
        let places = first.topic("shared", 3);
        for place in &places {
            let offset = first.append(place, &["one"]);
            assert_eq!(second.poll(place, Poll::offset(offset)).payloads(), ["one"]);
            assert_eq!(second.append(place, &["two"]), offset + 1);
            assert_eq!(first.poll(place, Poll::offset(0)).payloads(), ["one", "two"]);
        }
    }
}

#[test]
fn pipelined_requests_are_matched_by_number() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("pipeline", 3);
        for place in &places {
            client.append(place, &["x"]);
        }
        let frames: Vec<_> = (0..256u64)
            .map(|index| {
                let place = &places[index as usize % places.len()];
                match index % 4 {
                    0 => client.frame(&Ping {}),
                    1 => client.frame(&GetStreams {}),
                    2 => client.poll_frame(place, Poll::offset(0).count(1)),
                    _ => client.send_frame(place, &[format!("{index}")]),
                }
            })
            .collect();
        frames.iter().for_each(|frame| client.send(frame));
        let replies: Vec<_> = frames.iter().rev().map(|frame| client.reply_to(frame)).collect();
        assert!(replies.iter().all(|reply| reply.status() == 0));
        assert_eq!(replies.iter().map(|reply| reply.number()).collect::<BTreeSet<_>>().len(), 256);
    }
}

#[test]
fn writes_of_one_connection_keep_their_order() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("order", 2);
        let frames: Vec<_> =
            (0..64).map(|index| client.send_frame(&places[index % 2], &[format!("{index}")])).collect();
        frames.iter().for_each(|frame| client.send(frame));
        for (index, frame) in frames.iter().enumerate() {
            let reply = client.reply_to(frame);
            assert_eq!(crate::messages::confirmed(&reply, &places[index % 2]), index as u64 / 2);
        }
    }
}

#[test]
fn lost_connection_does_not_end_the_session() {
    let node = Node::start(2);
    let client = node.client();
    let bind = client.bind_frame(|_| {});
    let session = client.session.clone();
    drop(client);
    sleep(Duration::from_millis(200));
    let mut link = Link::open(node.address());
    assert_eq!(read(&link.ask(&bind).reply()).1, session.epoch.0);
    Client::over(link, session).assert_alive();
}

#[test]
fn session_without_a_connection_expires() {
    let node = Node::start_with(2, |config| config.sessions.timeout = Duration::from_secs(10));
    let (lost, mut kept) = (node.client(), node.client());
    let bind = lost.bind_frame(|_| {});
    drop(lost);
    sleep(Duration::from_secs(6));
    // Binding before the end starts the time anew.
    let mut link = Link::open(node.address());
    assert_eq!(link.ask(&bind).reply().status(), 0);
    drop(link);
    sleep(Duration::from_secs(5));
    assert_eq!(Link::open(node.address()).ask(&bind).reply().status(), 0, "ten seconds are not over");
    sleep(Duration::from_millis(11_500));
    assert_eq!(Link::open(node.address()).ask(&bind).reply().status(), 40);
    kept.assert_alive();
}

#[test]
fn password_in_a_register_frame_is_all_that_a_session_needs() {
    // The checksum of a registration is an identity, not a digest, and no key of the session.
    let node = Node::start(1);
    let client = new_client();
    let login = LoginRegister {
        version: version_prefix(VERSION),
        bind_secret: SECRET,
        username: "iggy",
        password: Secret(b"iggy"),
        context: b"anything",
    };
    let frame = stranger(client, &login);
    let first = read(&Link::open(node.address()).ask(&frame).reply());
    let other = frame.with(AT_CHECKSUM, &99u128.to_le_bytes());
    assert_eq!(read(&Link::open(node.address()).ask(&other).reply()), first);
}
