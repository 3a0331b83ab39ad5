//! A client made of bytes: frames are written by hand, so that they can be wrong, and nothing of the broker's own
//! decoders is used to judge its answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const HEADER_BYTES: usize = 256;
/// Place of the frame's total length.
pub const SIZE: Range<usize> = 48..52;
/// Place of the operation of a request.
pub const OPERATION: usize = 176;
/// Place of the command code of a request.
pub const CODE: Range<usize> = 196..200;

pub const REGISTER: u8 = 1;
pub const NON_REPLICATED: u8 = 2;
pub const LOGOUT: u8 = 3;

pub const PING: u32 = 1;
pub const BIND_SESSION: u32 = 15;
pub const ROUTE: u32 = 105;

/// How long the broker may take for an answer. Silence is a failure in every test here.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);
const SECRET: [u8; 32] = [7; 32];
const PROTOCOL_0_12_2: u32 = 12_290;

/// A request before it becomes bytes.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub client: u128,
    pub session: u64,
    pub number: u64,
    pub operation: u8,
    pub code: u32,
    pub incarnation: u64,
    pub metadata_op: u64,
    pub body: Vec<u8>,
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES];
        frame[SIZE].copy_from_slice(&((HEADER_BYTES + self.body.len()) as u32).to_le_bytes());
        frame[60] = 5;
        frame[128..144].copy_from_slice(&self.client.to_le_bytes());
        // Partition operations and reads have no identity of their own; every other request has one.
        let is_identified = !matches!(self.operation, NON_REPLICATED | 160..=162);
        let identity = if is_identified { u128::from(self.number) << 64 | 0xa5 } else { 0 };
        frame[144..160].copy_from_slice(&identity.to_le_bytes());
        frame[168..176].copy_from_slice(&self.number.to_le_bytes());
        frame[OPERATION] = self.operation;
        frame[184..192].copy_from_slice(&self.session.to_le_bytes());
        frame[CODE].copy_from_slice(&self.code.to_le_bytes());
        frame[200..208].copy_from_slice(&self.incarnation.to_le_bytes());
        frame[216..224].copy_from_slice(&self.metadata_op.to_le_bytes());
        frame.extend_from_slice(&self.body);
        frame
    }
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Reply {
        number: u64,
        operation: u8,
        status: u32,
        body: Vec<u8>,
    },
    Eviction {
        reason: u8,
    },
    /// The broker ended the connection.
    Closed,
}

impl Answer {
    /// Whether the broker did what the frame asked for: status 0, and no code in the result section.
    pub fn is_success(&self) -> bool {
        match self {
            Answer::Reply { status: 0, operation, body, .. } => {
                let is_framed = matches!(*operation, 64..=75 | 128..=137 | 139..=150 | 161 | 162 | REGISTER);
                !is_framed || body.get(..4) == Some(&[0; 4])
            }
            _ => false,
        }
    }

    pub fn ends_the_connection(&self) -> bool {
        !matches!(self, Answer::Reply { .. })
    }
}

/// A signed-in identity that connections are bound to.
pub struct Session {
    address: SocketAddr,
    pub client: u128,
    pub epoch: u64,
    number: AtomicU64,
}

impl Session {
    /// Signs in as root, on a connection that is closed again.
    pub fn register(address: SocketAddr) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let client = u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) | 1 << 100;
        let mut link = Link::open(address);
        link.send(
            &Request { client, operation: REGISTER, body: register_body(), ..Request::default() }.encode(),
        );
        let answer = link.read();
        let Answer::Reply { status: 0, body, .. } = &answer else { panic!("sign in: {answer:?}") };
        assert_eq!(body[..4], [0; 4], "sign in: a rejection {body:?}");
        let epoch = u64_at(body, 8);
        Arc::new(Self { address, client, epoch, number: AtomicU64::new(1) })
    }

    /// A connection of this session; none when the session is gone.
    pub fn try_bind(self: &Arc<Self>) -> Option<Bound> {
        let mut link = Link::open(self.address);
        let mut body = version_prefix();
        body.extend_from_slice(&self.client.to_le_bytes());
        body.extend_from_slice(&self.epoch.to_le_bytes());
        body.extend_from_slice(&0u64.to_le_bytes());
        body.extend_from_slice(&SECRET);
        link.send(&self.request(NON_REPLICATED, BIND_SESSION, body).encode());
        let answer = link.read();
        answer.is_success().then(|| Bound { session: Arc::clone(self), link })
    }

    pub fn bind(self: &Arc<Self>) -> Bound {
        self.try_bind().expect("bind a connection to a live session")
    }

    /// A request of this session with a number that was never used.
    pub fn request(&self, operation: u8, code: u32, body: Vec<u8>) -> Request {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        Request {
            client: self.client,
            session: self.epoch,
            number,
            operation,
            code,
            body,
            ..Request::default()
        }
    }
}

/// A connection that is bound to a session.
pub struct Bound {
    pub session: Arc<Session>,
    pub link: Link,
}

impl Bound {
    /// Sends one well-formed request and returns the answer to it.
    pub fn ask(&mut self, operation: u8, code: u32, body: Vec<u8>) -> Answer {
        let request = self.session.request(operation, code, body);
        self.ask_with(&request)
    }

    pub fn ask_with(&mut self, request: &Request) -> Answer {
        self.link.send(&request.encode());
        loop {
            match self.link.read() {
                Answer::Reply { number, .. } if number != request.number => {}
                answer => return answer,
            }
        }
    }

    /// The body of a request that must succeed, without its result section.
    pub fn must(&mut self, operation: u8, code: u32, body: Vec<u8>) -> Vec<u8> {
        let answer = self.ask(operation, code, body);
        assert!(answer.is_success(), "operation {operation} code {code}: {answer:?}");
        let Answer::Reply { mut body, operation, .. } = answer else { unreachable!("a success is a reply") };
        if !matches!(operation, NON_REPLICATED | LOGOUT | 160) {
            body.drain(..4);
        }
        body
    }

    /// Sends any bytes and then a ping, and returns what came back before the answer to the ping. So nothing is
    /// waited for that may never come. Replies may overtake each other: a late one is passed over by the next call.
    pub fn provoke(&mut self, bytes: &[u8]) -> Vec<Answer> {
        let ping = self.session.request(NON_REPLICATED, PING, Vec::new());
        let mut answers = Vec::new();
        // The broker may have closed the connection after the first part of what is written here.
        if self.link.try_send(&[bytes, &ping.encode()].concat()).is_err() {
            return vec![Answer::Closed];
        }
        loop {
            match self.link.read() {
                Answer::Reply { number, .. } if number == ping.number => return answers,
                answer => {
                    let ends = answer.ends_the_connection();
                    answers.push(answer);
                    if ends {
                        return answers;
                    }
                }
            }
        }
    }

    /// Incarnation and metadata op of a partition.
    pub fn route(&mut self, name: &str, partition: u32) -> (u64, u64) {
        let body = [&named(name)[..], &named(name), &partition.to_le_bytes()].concat();
        let route = self.must(NON_REPLICATED, ROUTE, body);
        assert_eq!(route.len(), 25);
        (u64_at(&route, 0), u64_at(&route, 8))
    }
}

/// A connection of which the broker knows nothing.
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

    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("send");
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Writes as much as the kernel takes within `patience`, and returns the number of bytes.
    pub fn send_what_fits(&mut self, bytes: &[u8], patience: Duration) -> usize {
        self.stream.set_write_timeout(Some(patience)).expect("set the write timeout");
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        sent
    }

    /// Tells the broker that nothing more follows, and keeps reading.
    pub fn finish(&mut self) {
        // It fails only when the broker closed the connection already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next answer.
    ///
    /// # Panics
    /// When none comes in time, or when it is not a frame of the protocol.
    pub fn read(&mut self) -> Answer {
        let mut header = [0; HEADER_BYTES];
        if !self.read_exact(&mut header) {
            return Answer::Closed;
        }
        let size = u32::from_le_bytes(header[SIZE].try_into().expect("four bytes")) as usize;
        assert!((HEADER_BYTES..=65 << 20).contains(&size), "an answer of {size} bytes");
        let mut body = vec![0; size - HEADER_BYTES];
        if !self.read_exact(&mut body) {
            return Answer::Closed;
        }
        match header[60] {
            8 => Answer::Reply {
                number: u64_at(&header, 200),
                operation: header[208],
                status: u32::from_le_bytes(header[216..220].try_into().expect("four bytes")),
                body,
            },
            13 => Answer::Eviction { reason: header[255] },
            other => panic!("an answer with command byte {other}"),
        }
    }

    /// Everything until the broker closes the connection, which it must.
    pub fn read_to_the_end(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            match self.read() {
                Answer::Closed => return answers,
                answer => answers.push(answer),
            }
        }
    }

    /// Whether all bytes came; the connection ended otherwise.
    fn read_exact(&mut self, bytes: &mut [u8]) -> bool {
        match self.stream.read_exact(bytes) {
            Ok(()) => true,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("silence for {ANSWER_MAX:?}")
            }
            // A close with unread bytes in the other direction arrives as a reset.
            Err(_) => false,
        }
    }
}

pub fn version_prefix() -> Vec<u8> {
    [&PROTOCOL_0_12_2.to_le_bytes()[..], &string8("raw"), &string8("0")].concat()
}

pub fn register_body() -> Vec<u8> {
    [&version_prefix()[..], &SECRET, &string8("iggy"), &string8("iggy"), &[0; 4]].concat()
}

pub fn string8(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

/// A string identifier.
pub fn named(name: &str) -> Vec<u8> {
    [&[2, name.len() as u8], name.as_bytes()].concat()
}

/// A numeric identifier.
pub fn numbered(id: u32) -> Vec<u8> {
    [&[1, 4], &id.to_le_bytes()[..]].concat()
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
