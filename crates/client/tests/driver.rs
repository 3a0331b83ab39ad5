//! The blocking driver against a scripted broker on a real socket: what it does when connections break.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use laneway_client::{
    BatchLimits, Client, ClientError, Credentials, Name, Options, Producer, Reader, Settings, Start, Until,
};
use laneway_wire::batch::{Batch, stamp};
use laneway_wire::{
    Code, Eviction, EvictionReason, HEADER_BYTES, Identifier, Micros, Offset, Op, Operation, PartitionId,
    ReplyHeader, RequestHeader, Status,
};

/// Session epoch that the scripted broker hands out.
const EPOCH: u64 = 7;

/// One connection, seen from the broker.
struct Peer {
    stream: TcpStream,
}

impl Peer {
    fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { stream }
    }

    /// The next request: header and the whole frame.
    fn request(&mut self) -> (RequestHeader, Vec<u8>) {
        let mut frame = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut frame).unwrap();
        let header = RequestHeader::parse(frame.first_chunk().unwrap());
        header.validate().unwrap();
        frame.resize(header.size as usize, 0);
        self.stream.read_exact(&mut frame[HEADER_BYTES..]).unwrap();
        (header, frame)
    }

    fn expect(&mut self, code: Code) -> (RequestHeader, Vec<u8>) {
        let (header, frame) = self.request();
        let operation = Operation::for_code(code);
        assert_eq!(header.operation(), Some(operation), "{code}");
        if operation == Operation::NonReplicated {
            assert_eq!(header.code, code.number());
        }
        (header, frame)
    }

    fn reply(&mut self, header: ReplyHeader, body: &[u8]) {
        self.stream.write_all(&[&header.encode()[..], body].concat()).unwrap();
    }

    fn answer(&mut self, request: &RequestHeader, body: &[u8]) {
        self.reply(ReplyHeader::to(request, body.len()), body);
    }

    fn commit(&mut self, request: &RequestHeader, op: u64, body: &[u8]) {
        self.reply(ReplyHeader::committed(request, Op(op), body.len()), body);
    }

    fn refuse(&mut self, request: &RequestHeader, status: Status) {
        self.reply(ReplyHeader::refusal(request, status), &[]);
    }

    /// Serves a registration.
    fn registered(listener: &TcpListener) -> Self {
        let mut peer = Self::accept(listener);
        let (header, _) = peer.expect(Code::LoginRegister);
        peer.commit(&header, EPOCH, &[&[0; 4][..], &signed_in(EPOCH)].concat());
        peer
    }

    /// Serves a bind of the session.
    fn bound(listener: &TcpListener) -> Self {
        let mut peer = Self::accept(listener);
        let (header, _) = peer.expect(Code::BindSession);
        assert_eq!(header.session.0, EPOCH);
        peer.answer(&header, &signed_in(EPOCH));
        peer
    }
}

fn signed_in(session: u64) -> Vec<u8> {
    [&0u32.to_le_bytes()[..], &session.to_le_bytes(), &12290u32.to_le_bytes(), b"\x050.1.0"].concat()
}

/// A topic of one partition with incarnation 5, as protocol 0.12.2 writes it.
fn topic(messages: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(
        [&[0; 4][..], &9u64.to_le_bytes(), &1u32.to_le_bytes(), &[0; 16], b"\x03web", &[0; 8]].concat(),
    );
    body.extend([&[0; 4][..], &9u64.to_le_bytes(), &1u32.to_le_bytes()].concat());
    body.extend(messages.saturating_sub(1).to_le_bytes());
    body.extend(0u64.to_le_bytes());
    body.extend(messages.to_le_bytes());
    body.extend([5u64.to_le_bytes(), 0u64.to_le_bytes(), 5u64.to_le_bytes()].concat());
    body.extend([0, 0]);
    body
}

fn confirmation(base: u64) -> Vec<u8> {
    [&1u32.to_le_bytes()[..], &[0; 12], &base.to_le_bytes()].concat()
}

/// Runs a broker's script beside a client's.
fn against<T>(broker: impl FnOnce(TcpListener) + Send + 'static, client: impl FnOnce(Settings) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = Settings {
        address: listener.local_addr().unwrap().to_string(),
        credentials: Some(Credentials { username: "iggy".into(), password: "iggy".into() }),
        timeout: Duration::from_secs(5),
    };
    let broker: JoinHandle<()> = thread::spawn(move || broker(listener));
    let result = client(settings);
    broker.join().expect("the broker's script");
    result
}

#[test]
fn send_whose_answer_is_lost_goes_out_again_byte_for_byte() {
    let (acknowledged, reconnects) = against(
        |listener| {
            let mut peer = Peer::registered(&listener);
            let (header, _) = peer.expect(Code::GetTopic);
            peer.answer(&header, &topic(0));
            let (_, first) = peer.expect(Code::SendMessages);
            drop(peer);
            let mut peer = Peer::bound(&listener);
            let (header, second) = peer.expect(Code::SendMessages);
            assert!(first == second, "the frame changed");
            assert_eq!(header.partition_incarnation.0, 5);
            // A plain OK proves nothing now; the client must ask again.
            peer.answer(&header, &[]);
            let (header, third) = peer.expect(Code::SendMessages);
            assert!(first == third, "the frame changed");
            peer.commit(&header, 12, &confirmation(41));
        },
        |settings| {
            let client = Client::connect(settings).unwrap();
            let mut producer =
                Producer::open(client, &"logs".into(), &Name::Id(0), BatchLimits::default()).unwrap();
            producer.push(PartitionId(0), 1, Micros(1), b"payload", b"").unwrap();
            producer.flush().unwrap();
            (producer.poll_acknowledged().unwrap(), producer.client().reconnects())
        },
    );
    assert_eq!((acknowledged.base, acknowledged.messages, reconnects), (Some(Offset(41)), 1, 1));
}

#[test]
fn broker_that_lost_the_session_leaves_a_sent_change_uncertain() {
    against(
        |listener| {
            let mut peer = Peer::registered(&listener);
            peer.expect(Code::CreateStream);
            drop(peer);
            let mut peer = Peer::accept(&listener);
            let (header, _) = peer.expect(Code::BindSession);
            peer.refuse(&header, Status::Unauthenticated);
            let (header, _) = peer.expect(Code::LoginRegister);
            peer.commit(&header, 20, &[&[0; 4][..], &signed_in(20)].concat());
            let (header, _) = peer.expect(Code::Ping);
            assert_eq!(header.session.0, 20);
            peer.answer(&header, &[]);
        },
        |settings| {
            let mut client = Client::connect(settings).unwrap();
            let start = Instant::now();
            let error = client.create_stream("logs").unwrap_err();
            assert!(matches!(error, ClientError::Uncertain { code: Code::CreateStream }), "{error}");
            assert!(start.elapsed() < Duration::from_secs(4), "an outcome that is known was waited for");
            // The client itself goes on, under a new session.
            client.ping().unwrap();
        },
    );
}

#[test]
fn transient_refusal_is_repeated_until_it_succeeds() {
    against(
        |listener| {
            let mut peer = Peer::registered(&listener);
            let (header, first) = peer.expect(Code::CreateStream);
            peer.refuse(&header, Status::TransientNotAccepted);
            let (header, second) = peer.expect(Code::CreateStream);
            assert!(first == second, "the frame changed");
            let words = [1, 0, Status::StreamNameAlreadyExists.number()];
            let rejection: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
            peer.commit(&header, 9, &rejection);
        },
        |settings| {
            let error = Client::connect(settings).unwrap().create_stream("logs").unwrap_err();
            assert_eq!(error.status(), Some(Status::StreamNameAlreadyExists));
        },
    );
}

#[test]
fn answer_that_never_comes_ends_with_the_patience() {
    let start = Instant::now();
    against(
        |listener| {
            let mut peer = Peer::registered(&listener);
            peer.expect(Code::GetStreams);
            // Hold the connection until the client has given up and hung up.
            let _ = peer.stream.read(&mut [0; 1]);
        },
        |mut settings| {
            settings.timeout = Duration::from_millis(200);
            let error = Client::connect(settings).unwrap().streams().unwrap_err();
            assert!(matches!(error, ClientError::Timeout { code: Code::GetStreams, .. }), "{error}");
        },
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn read_that_is_never_answered_names_the_patience_it_took() {
    against(
        |listener| {
            let mut peer = Peer::registered(&listener);
            let (header, _) = peer.expect(Code::GetTopic);
            peer.answer(&header, &topic(1));
            peer.expect(Code::PollMessagesDeferred);
            let _ = peer.stream.read(&mut [0; 1]);
        },
        |mut settings| {
            settings.timeout = Duration::from_millis(200);
            let mut client = Client::connect(settings).unwrap();
            let (stream, topic) = ("logs".into(), "web".into());
            let mut reader =
                Reader::open(&mut client, &stream, &topic, &[], Start::First, Until::Now).unwrap();
            let error = reader.next(&mut client, Duration::from_millis(50)).unwrap_err();
            assert_eq!(error.to_string(), "read: no answer within 250ms; a longer --timeout waits longer");
        },
    );
}

#[test]
fn wrong_password_is_reported_and_not_retried() {
    against(
        |listener| {
            let mut peer = Peer::accept(&listener);
            let (header, _) = peer.expect(Code::LoginRegister);
            let mut bytes = [0; HEADER_BYTES];
            Eviction::new(header.client, EvictionReason::InvalidCredentials).write(&mut bytes);
            peer.stream.write_all(&bytes).unwrap();
        },
        |settings| {
            let error = Client::connect(settings).unwrap_err();
            assert!(error.to_string().starts_with("wrong user name or password"), "{error}");
        },
    );
}

#[test]
fn other_servers_are_recognised() {
    against(
        |listener| {
            let mut peer = Peer::accept(&listener);
            peer.expect(Code::LoginRegister);
            peer.stream.write_all(&b"HTTP/1.1 400 Bad Request\r\n".repeat(20)).unwrap();
        },
        |settings| {
            let error = Client::connect(settings).unwrap_err();
            assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
        },
    );
}

#[test]
fn nobody_listening_is_said_at_once() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let settings = Settings { address: address.clone(), credentials: None, timeout: Duration::from_secs(30) };
    let start = Instant::now();
    let error = Client::connect(settings).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot reach {address}: connection refused")), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn reader_ends_at_what_was_there_and_follows_offsets() {
    against(
        |listener| {
            let mut peer = Peer::registered(&listener);
            let (header, _) = peer.expect(Code::GetTopic);
            peer.answer(&header, &topic(3));
            for (base, payloads) in [(0, &[&b"a"[..], b"b"][..]), (2, &[b"c"])] {
                let (header, frame) = peer.expect(Code::PollMessagesDeferred);
                let strategy = &frame[HEADER_BYTES + 6 + 1 + 6 + 6 + 5..][..9];
                let expected =
                    if base == 0 { [3, 0, 0, 0, 0, 0, 0, 0, 0] } else { [1, 2, 0, 0, 0, 0, 0, 0, 0] };
                assert_eq!(strategy, expected);
                peer.answer(&header, &polled(2, base, payloads));
            }
        },
        |settings| {
            let mut client = Client::connect(settings).unwrap();
            let topic = (Name::Text("logs".into()), Name::Id(0));
            let mut reader =
                Reader::open(&mut client, &topic.0, &topic.1, &[], Start::First, Until::Now).unwrap();
            let mut found = Vec::new();
            while !reader.is_done() {
                if let Some(polled) = reader.next(&mut client, Duration::from_secs(1)).unwrap() {
                    found.extend(polled.messages().map(|message| {
                        let message = message.unwrap();
                        (message.offset.0, message.payload.to_vec())
                    }));
                }
            }
            assert_eq!(found, [(0, b"a".to_vec()), (1, b"b".to_vec()), (2, b"c".to_vec())]);
        },
    );
}

/// The answer to a poll: one batch that starts at `base`.
fn polled(current: u64, base: u64, payloads: &[&[u8]]) -> Vec<u8> {
    let mut batch = laneway_wire::batch::BatchBuilder::new();
    for payload in payloads {
        batch.push(1, Micros(1), payload, b"").unwrap();
    }
    let mut batch = batch.finish().unwrap().to_vec();
    stamp(&mut batch, PartitionId(0), Offset(base), Micros(2)).unwrap();
    assert_eq!(Batch::parse_exact(&batch).unwrap().header.base_offset, Offset(base));
    let mut body =
        [&0u32.to_le_bytes()[..], &current.to_le_bytes(), &(payloads.len() as u32).to_le_bytes()].concat();
    body.extend([0; 24]);
    body.extend(batch);
    body
}

#[test]
fn topic_that_is_missing_is_none() {
    against(
        |listener| {
            let mut peer = Peer::registered(&listener);
            let (header, _) = peer.expect(Code::GetTopic);
            peer.answer(&header, &[]);
            let (header, frame) = peer.expect(Code::CreateTopic);
            let body = &frame[HEADER_BYTES..];
            assert_eq!(
                body,
                b"\x02\x04logs\x02\x00\x00\x00\x03web\x02\x01\x00\x00\x00k\x02\x01\x00\x00\x00v"
            );
            peer.commit(&header, 9, &[&[0; 4][..], &topic(0)].concat());
        },
        |settings| {
            let mut client = Client::connect(settings).unwrap();
            let stream = Identifier::Name("logs");
            assert_eq!(client.topic(&stream, &Identifier::Name("web")).unwrap(), None);
            let options = Options::from([("k".into(), "v".into())]);
            let created = client.create_topic(&stream, "web", 2, &options).unwrap();
            assert_eq!(created.partitions[0].context.incarnation.0, 5);
            assert_eq!(client.session().watermark(), Op(9));
        },
    );
}
