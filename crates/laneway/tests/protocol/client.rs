//! A client made of frames: it numbers requests as the protocol demands, keeps what it sent, so that the same bytes can
//! be sent again, and checks every byte of a reply header that the protocol fixes.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use laneway_wire::options::OptionMap;
use laneway_wire::primitive::Secret;
use laneway_wire::reply::PartitionRoute;
use laneway_wire::reply::{Record, Registered};
use laneway_wire::request::{
    BindSecret, BindSession, CreateStream, CreateTopic, GetPartitionRoute, GetStreams, LoginRegister, Ping,
    Request, VersionPrefix, encode_frame,
};
use laneway_wire::{
    ClientId, HEADER_BYTES, Identifier, Incarnation, Op, Operation, PartitionId, ProtocolVersion, Reader,
    ReplyHeader, RequestHeader, RequestNumber, SessionEpoch,
};

/// How long an answer may take. Silence is a failure in every test here, unless a test asks for it.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Bind secret of every session here.
pub const SECRET: BindSecret = BindSecret([7; 32]);

/// Places in a request header that tests overwrite.
pub const AT_CLIENT: usize = 128;
pub const AT_CHECKSUM: usize = 144;
pub const AT_NUMBER: usize = 168;
pub const AT_OPERATION: usize = 176;
pub const AT_SESSION: usize = 184;
pub const AT_CODE: usize = 196;
pub const AT_INCARNATION: usize = 200;
pub const AT_OWNER: usize = 208;
pub const AT_METADATA_OP: usize = 216;

/// A request as it went out.
#[derive(Clone, Debug)]
pub struct Sent {
    pub bytes: Vec<u8>,
}

impl Sent {
    pub fn header(&self) -> RequestHeader {
        RequestHeader::parse(self.bytes.first_chunk().expect("a frame has a header"))
    }

    pub fn number(&self) -> u64 {
        self.header().request.0
    }

    /// The same request with other header or body bytes.
    pub fn with(&self, at: usize, bytes: &[u8]) -> Sent {
        let mut changed = self.clone();
        changed.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    }

    /// The same header over another body.
    pub fn with_body(&self, body: &[u8]) -> Sent {
        let mut bytes = self.bytes[..HEADER_BYTES].to_vec();
        bytes.extend_from_slice(body);
        let size = bytes.len() as u32;
        bytes[48..52].copy_from_slice(&size.to_le_bytes());
        Sent { bytes }
    }

    pub fn body(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }
}

/// A reply frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub bytes: Vec<u8>,
}

impl Reply {
    pub fn header(&self) -> ReplyHeader {
        ReplyHeader::parse(self.bytes.first_chunk().expect("a frame has a header"))
    }

    pub fn number(&self) -> u64 {
        self.header().request.0
    }

    pub fn status(&self) -> u32 {
        self.header().status
    }

    pub fn body(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    pub fn is_committed(&self) -> bool {
        self.header().marker == 1
    }

    /// The refusal in the header or in the result section; 0 is a success.
    pub fn outcome(&self) -> u32 {
        let header = self.header();
        let operation = header.operation().expect("checked when it came in");
        if header.status != 0 || !operation.is_result_framed() {
            return header.status;
        }
        match u32_at(self.body(), 0) {
            0 => 0,
            _ => u32_at(self.body(), 8),
        }
    }

    /// What follows the result section of a success, or the raw body.
    #[track_caller]
    pub fn payload(&self) -> &[u8] {
        assert_eq!(self.outcome(), 0, "{:?}", self.header());
        match self.header().operation().is_some_and(Operation::is_result_framed) {
            true => &self.body()[4..],
            false => self.body(),
        }
    }

    /// A refusal that committed: its bytes are fixed by sections 1.8 and 1.14 c.
    #[track_caller]
    pub fn assert_committed_refusal(&self, code: u32) {
        let header = self.header();
        assert_eq!((header.status, header.marker), (0, 1), "a committed refusal: {header:?}");
        assert!(header.op.0 > 0 && header.op == header.commit, "{header:?}");
        let mut body = [0; 12];
        body[0] = 1;
        body[8..].copy_from_slice(&code.to_le_bytes());
        assert_eq!(self.body(), body, "code {code} in a result section");
    }

    /// A refusal before anything happened.
    #[track_caller]
    pub fn assert_refused(&self, code: u32) {
        assert_eq!(self.outcome(), code, "{:?}", self.header());
        assert_eq!((self.header().marker, self.header().op), (0, Op(0)), "nothing committed");
    }

    /// What the protocol fixes about every reply. Source: wire protocol, sections 1.2, 1.4, 1.8 and 1.12.
    #[track_caller]
    fn check(&self, request: &RequestHeader) {
        let bytes = &self.bytes;
        let header = self.header();
        let zero =
            |range: Range<usize>| assert!(bytes[range.clone()].iter().all(|byte| *byte == 0), "{range:?}");
        [0..32, 62..128, 144..160, 209..216, 221..224, 232..256].into_iter().for_each(zero);
        assert_eq!(header.size as usize, bytes.len());
        assert_eq!(header.client, request.client);
        assert_eq!(header.request_checksum, request.request_checksum);
        assert_eq!(header.request, request.request);
        let operation = Operation::from_byte(header.operation);
        match Operation::from_byte(request.operation) {
            Some(asked) => {
                assert_eq!(operation.map(Operation::request_operation), Some(asked.request_operation()))
            }
            // A byte that nobody declares is echoed.
            None => assert_eq!(header.operation, request.operation),
        }
        match header.marker {
            1 => {
                assert!(header.op.0 > 0 && header.op == header.commit, "{header:?}");
                assert_eq!(header.status, 0, "a committed reply says no in its section");
                assert_eq!(header.partition_incarnation, request.partition_incarnation);
            }
            marker => assert_eq!((marker, header.op), (0, Op(0)), "{header:?}"),
        }
        if header.status != 0 {
            assert!(self.body().is_empty(), "a refusal by status has no body");
        } else if operation.is_some_and(|operation| operation.is_result_framed()) {
            match u32_at(self.body(), 0) {
                0 => {}
                count => {
                    assert_eq!(
                        (count, u32_at(self.body(), 4), self.body().len()),
                        (1, 0, 12),
                        "one rejection"
                    )
                }
            }
        }
        if operation == Some(Operation::SendMessages) && header.status == 0 {
            assert_eq!((header.marker, self.body().len()), (1, 24), "one confirmation, committed");
        }
    }
}

/// Whatever may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Reply(Reply),
    /// All 256 bytes.
    Eviction(Vec<u8>),
    Closed,
}

impl Answer {
    #[track_caller]
    pub fn reply(self) -> Reply {
        match self {
            Answer::Reply(reply) => reply,
            other => panic!("no reply but {other:?}"),
        }
    }

    /// Asserts that this is an eviction with all its reserved bytes zero, after which nothing comes.
    #[track_caller]
    pub fn assert_eviction(&self, reason: u8, client: ClientId) {
        let Answer::Eviction(bytes) = self else { panic!("no eviction {reason} but {self:?}") };
        assert_eq!(bytes[255], reason, "the reason");
        assert_eq!(bytes[128..144], client.0.to_le_bytes(), "the client");
        assert_eq!(u32_at(bytes, 48), 256);
        let window = if reason == 14 { [12290u32, 12289] } else { [0, 0] };
        assert_eq!((u32_at(bytes, 144), u32_at(bytes, 148)), (window[0], window[1]), "the window");
        for range in [0..48, 62..128, 152..255] {
            assert!(bytes[range.clone()].iter().all(|byte| *byte == 0), "reserved {range:?}");
        }
    }
}

/// A connection.
pub struct Link {
    stream: TcpStream,
}

impl Link {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("set the read timeout");
        stream.set_write_timeout(Some(ANSWER_MAX)).expect("set the write timeout");
        stream.set_nodelay(true).expect("set nodelay");
        Self { stream }
    }

    pub fn send(&mut self, sent: &Sent) {
        self.stream.write_all(&sent.bytes).expect("send");
    }

    pub fn read(&mut self) -> Answer {
        self.read_within(ANSWER_MAX).unwrap_or_else(|| panic!("silence for {ANSWER_MAX:?}"))
    }

    /// The next answer; none when nothing begins to come in time.
    pub fn read_within(&mut self, patience: Duration) -> Option<Answer> {
        let patience = patience.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(patience)).expect("set the read timeout");
        let mut first = [0];
        let begun = self.stream.peek(&mut first);
        self.stream.set_read_timeout(Some(ANSWER_MAX)).expect("set the read timeout");
        match begun {
            Ok(0) => return Some(Answer::Closed),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
            Err(e) if e.kind() == ErrorKind::Interrupted => {
                panic!("the broker interrupts its embedder's reads")
            }
            Err(_) => return Some(Answer::Closed),
        }
        let mut bytes = vec![0; HEADER_BYTES];
        if self.stream.read_exact(&mut bytes).is_err() {
            return Some(Answer::Closed);
        }
        let size = u32_at(&bytes, 48) as usize;
        assert!((HEADER_BYTES..=65 << 20).contains(&size), "an answer of {size} bytes");
        bytes.resize(size, 0);
        if self.stream.read_exact(&mut bytes[HEADER_BYTES..]).is_err() {
            return Some(Answer::Closed);
        }
        Some(match bytes[60] {
            8 => Answer::Reply(Reply { bytes }),
            13 if size == HEADER_BYTES => Answer::Eviction(bytes),
            other => panic!("an answer with command byte {other} of {size} bytes"),
        })
    }

    /// Sends a request of no session and reads what comes.
    pub fn ask(&mut self, sent: &Sent) -> Answer {
        self.send(sent);
        let answer = self.read();
        if let Answer::Reply(reply) = &answer {
            reply.check(&sent.header());
        }
        answer
    }

    /// Asserts that the broker ends the connection, with nothing more to say.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        assert_eq!(self.read(), Answer::Closed);
    }
}

/// What all connections of a session share.
#[derive(Debug)]
pub struct Session {
    pub address: SocketAddr,
    pub client: ClientId,
    pub epoch: SessionEpoch,
    pub secret: BindSecret,
    pub version: ProtocolVersion,
    number: AtomicU64,
}

/// A connection that is bound to a session.
pub struct Client {
    pub link: Link,
    pub session: Arc<Session>,
    /// Requests that were not answered yet.
    open: HashMap<u64, RequestHeader>,
    /// Replies that came before somebody asked for them.
    came: Vec<Reply>,
}

/// A partition and which life of it.
#[derive(Clone, Debug)]
pub struct Place {
    pub stream: String,
    pub topic: String,
    pub partition: PartitionId,
    pub incarnation: Incarnation,
    pub metadata_op: Op,
}

impl Place {
    pub fn stream(&self) -> Identifier<'_> {
        Identifier::Name(&self.stream)
    }

    pub fn topic(&self) -> Identifier<'_> {
        Identifier::Name(&self.topic)
    }
}

impl Client {
    pub fn sign_in(address: SocketAddr) -> Self {
        Self::sign_in_with(address, ProtocolVersion::V0_12_2)
    }

    pub fn sign_in_with(address: SocketAddr, version: ProtocolVersion) -> Self {
        let login = register(new_client(), SECRET, version, "iggy", "iggy");
        Self::sign_in_by(address, version, &login)
            .unwrap_or_else(|refused| panic!("no session but {refused:?}"))
    }

    /// A session by any login with [`SECRET`]; what came instead when it is refused.
    pub fn sign_in_by(address: SocketAddr, version: ProtocolVersion, login: &Sent) -> Result<Self, Answer> {
        let mut link = Link::open(address);
        let reply = match link.ask(login) {
            Answer::Reply(reply) if reply.outcome() == 0 => reply,
            refused => return Err(refused),
        };
        let registered = Registered::read(&mut Reader::new(reply.payload())).expect("a registration");
        let (client, epoch, secret) = (login.header().client, registered.session, SECRET);
        let number = AtomicU64::new(1);
        let session = Arc::new(Session { address, client, epoch, secret, version, number });
        Ok(Self::over(link, session))
    }

    pub fn over(link: Link, session: Arc<Session>) -> Self {
        Self { link, session, open: HashMap::new(), came: Vec::new() }
    }

    /// One more connection of the same session.
    pub fn another(&self) -> Client {
        let mut link = Link::open(self.session.address);
        let bound = link.ask(&self.bind_frame(|_| {})).reply();
        assert_eq!(bound.status(), 0, "bind one more connection");
        Self::over(link, self.session.clone())
    }

    /// A bind of this session, changed by `change`.
    pub fn bind_frame(&self, change: impl FnOnce(&mut BindSession<'static>)) -> Sent {
        let session = &self.session;
        let mut bind = BindSession {
            version: version_prefix(session.version),
            client: session.client,
            session: session.epoch,
            metadata_watermark: Op(0),
            bind_secret: session.secret,
        };
        change(&mut bind);
        self.frame(&bind)
    }

    pub fn next_number(&self) -> RequestNumber {
        RequestNumber(self.session.number.fetch_add(1, Ordering::Relaxed))
    }

    /// A request with a number of its own.
    pub fn frame<R: Request>(&self, request: &R) -> Sent {
        let session = &self.session;
        let number = self.next_number();
        let mut header = RequestHeader::new(Operation::for_code(R::CODE), session.client, 0);
        header.request = number;
        header.session = session.epoch;
        let operation = Operation::for_code(R::CODE);
        if operation.is_replicated() && !operation.is_partition() {
            header.request_checksum = u128::from(number.0) << 64 | 0xa5a5;
        }
        Sent { bytes: encode_frame(&header, request).expect("a request that can be encoded").to_vec() }
    }

    /// A request for one life of a partition.
    pub fn frame_at<R: Request>(&self, place: &Place, request: &R) -> Sent {
        self.frame(request)
            .with(AT_INCARNATION, &place.incarnation.0.to_le_bytes())
            .with(AT_METADATA_OP, &place.metadata_op.0.to_le_bytes())
    }

    /// A read with a code and a body of any kind.
    pub fn raw(&self, code: u32, body: &[u8]) -> Sent {
        self.frame(&Ping {}).with(AT_CODE, &code.to_le_bytes()).with_body(body)
    }

    pub fn send(&mut self, sent: &Sent) {
        self.open.insert(sent.number(), sent.header());
        self.link.send(sent);
    }

    #[track_caller]
    pub fn reply_to(&mut self, sent: &Sent) -> Reply {
        self.reply_within(sent, ANSWER_MAX).unwrap_or_else(|| panic!("no reply to {:?}", sent.header()))
    }

    /// The reply to a request; none when it does not come in time.
    #[track_caller]
    pub fn reply_within(&mut self, sent: &Sent, patience: Duration) -> Option<Reply> {
        let until = Instant::now() + patience;
        loop {
            if let Some(at) = self.came.iter().position(|reply| reply.number() == sent.number()) {
                return Some(self.came.remove(at));
            }
            let left = until.saturating_duration_since(Instant::now());
            let reply = self.link.read_within(left)?.reply();
            let request = self.open.remove(&reply.number());
            reply.check(
                &request.unwrap_or_else(|| panic!("a reply that nobody waits for: {:?}", reply.header())),
            );
            self.came.push(reply);
        }
    }

    #[track_caller]
    pub fn exchange(&mut self, sent: &Sent) -> Reply {
        self.send(sent);
        self.reply_to(sent)
    }

    #[track_caller]
    pub fn ask<R: Request>(&mut self, request: &R) -> Reply {
        let sent = self.frame(request);
        self.exchange(&sent)
    }

    /// The payload of a request that must succeed.
    #[track_caller]
    pub fn must<R: Request>(&mut self, request: &R) -> Vec<u8> {
        self.ask(request).payload().to_vec()
    }

    #[track_caller]
    pub fn create_stream(&mut self, name: &str) -> Vec<u8> {
        self.must(&CreateStream { name, options: laneway_wire::options::Options::EMPTY })
    }

    #[track_caller]
    pub fn create_topic(&mut self, stream: &str, topic: &str, partitions_count: u32) -> Vec<u8> {
        self.create_topic_with(stream, topic, partitions_count, &OptionMap::new()).payload().to_vec()
    }

    #[track_caller]
    pub fn create_topic_with(
        &mut self,
        stream: &str,
        topic: &str,
        partitions_count: u32,
        options: &OptionMap,
    ) -> Reply {
        let block = options.encode().expect("a block of options");
        let options = laneway_wire::options::Options::parse(&block).expect("a block of options");
        self.ask(&CreateTopic { stream: Identifier::Name(stream), partitions_count, name: topic, options })
    }

    /// Makes a stream and a topic of this name and finds its partitions.
    #[track_caller]
    pub fn topic(&mut self, name: &str, partitions: u32) -> Vec<Place> {
        self.create_stream(name);
        self.create_topic(name, name, partitions);
        (0..partitions).map(|partition| self.route(name, partition)).collect()
    }

    #[track_caller]
    pub fn route(&mut self, name: &str, partition: u32) -> Place {
        let (stream, partition) = (Identifier::Name(name), PartitionId(partition));
        let body = self.must(&GetPartitionRoute { stream, topic: stream, partition });
        let route = PartitionRoute::parse(&body).expect("a route");
        assert_ne!(route.incarnation, Incarnation(0));
        let (stream, topic) = (name.to_owned(), name.to_owned());
        Place { stream, topic, partition, incarnation: route.incarnation, metadata_op: route.metadata_op }
    }

    /// Asserts that nothing more comes on this connection than what was asked for, by one more question.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        let streams = self.frame(&GetStreams {});
        self.exchange(&streams).payload();
    }
}

/// A registration without a session.
pub fn register(
    client: ClientId,
    bind_secret: BindSecret,
    protocol: ProtocolVersion,
    username: &str,
    password: &str,
) -> Sent {
    let login = LoginRegister {
        version: version_prefix(protocol),
        bind_secret,
        username,
        password: Secret(password.as_bytes()),
        context: &[],
    };
    stranger(client, &login)
}

/// A request of a client that has no session.
pub fn stranger<R: Request>(client: ClientId, request: &R) -> Sent {
    let operation = Operation::for_code(R::CODE);
    let mut header = RequestHeader::new(operation, client, 0);
    if operation.is_replicated() {
        header.request_checksum = client.0 ^ 0x77;
    }
    Sent { bytes: encode_frame(&header, request).expect("a request that can be encoded").to_vec() }
}

/// A read of no session with a code of any kind.
pub fn stranger_with_code(client: ClientId, code: u32) -> Sent {
    stranger(client, &Ping {}).with(AT_CODE, &code.to_le_bytes())
}

pub fn version_prefix(protocol: ProtocolVersion) -> VersionPrefix<'static> {
    VersionPrefix { protocol, sdk_name: "raw", sdk_version: "0" }
}

pub fn new_client() -> ClientId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ClientId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) | 0x1234 << 100)
}

#[track_caller]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[track_caller]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
