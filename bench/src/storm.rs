//! Workload e: what a storm of wrong passwords costs everybody else.
//!
//! Eight connections send a small message every ten milliseconds, and the latency of each is kept. Then the same with a
//! thousand more connections a second, each of which comes, asks one thing and leaves: a ping (what the connections alone
//! cost), a wrong password from one address, and a wrong password from an address of its own each time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use laneway_wire::batch::BatchBuilder;
use laneway_wire::primitive::Secret;
use laneway_wire::request::{BindSecret, LoginRegister, Ping, Request, VersionPrefix, encode_frame};
use laneway_wire::{ClientId, HEADER_BYTES, Micros, Operation, ProtocolVersion, RequestHeader};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::Result;
use crate::connection::Connection;
use crate::latency::Latencies;
use crate::process::Broker;
use crate::topic::Topic;
use crate::workers;

/// Connections that send messages, and the pause between two of one.
const SENDERS: usize = 8;
const PAUSE: Duration = Duration::from_millis(10);
const PAYLOAD_BYTES: usize = 100;
/// Guesses a second, of all threads together.
pub const GUESSES_PER_SECOND: u32 = 1000;
const GUESSERS: u32 = 16;
/// Longest wait for the answer to a guess: an argument for the storm, not for the broker.
const GUESS_MAX: Duration = Duration::from_secs(10);

/// What the other connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storm {
    Calm,
    Pings,
    OneAddress,
    ManyAddresses,
}

pub struct Weather {
    pub latencies: Latencies,
    /// Connections that asked.
    pub asked: u64,
    /// Answers that said no for good.
    pub evicted: u64,
    /// Answers that said try again, or yes to a ping.
    pub replied: u64,
    /// Connections that found no answer in time.
    pub unanswered: u64,
    pub cpu_seconds: f64,
}

#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    evicted: AtomicU64,
    replied: AtomicU64,
    unanswered: AtomicU64,
}

/// The connections that send. They sign in before it storms: the broker makes whoever guesses wait, and this address with
/// it.
pub fn senders(broker: &Broker) -> Result<Vec<Connection>> {
    (0..SENDERS).map(|_| Connection::open(broker.address())).collect()
}

/// Sends for `time` while it storms.
pub fn send(
    broker: &Broker,
    topic: &Topic,
    senders: &mut Vec<Connection>,
    storm: Storm,
    time: Duration,
) -> Result<Weather> {
    let (counts, over) = (Counts::default(), AtomicBool::new(false));
    let states = std::mem::take(senders);
    let sent = std::thread::scope(|scope| {
        if storm != Storm::Calm {
            for guesser in 0..GUESSERS {
                let (counts, over) = (&counts, &over);
                let address = broker.address();
                scope.spawn(move || guess(address, storm, guesser, counts, over));
            }
            // The first guesses are looked at, the damped ones after them are what lasts.
            std::thread::sleep(Duration::from_secs(1));
        }
        let sent = workers::run(broker, states, |sender, mut connection| {
            Ok((pace(topic, sender, &mut connection, time)?, connection))
        });
        over.store(true, Ordering::Relaxed);
        sent
    });
    let (taken, done) = sent?;
    let mut latencies = Latencies::default();
    for (part, connection) in done {
        latencies.extend(part);
        senders.push(connection);
    }
    Ok(Weather {
        latencies,
        asked: counts.asked.into_inner(),
        evicted: counts.evicted.into_inner(),
        replied: counts.replied.into_inner(),
        unanswered: counts.unanswered.into_inner(),
        cpu_seconds: taken.cpu_seconds(),
    })
}

/// One message at every tick; a late answer makes the next one late, and is counted from its tick.
fn pace(topic: &Topic, sender: usize, connection: &mut Connection, time: Duration) -> Result<Latencies> {
    let partition = sender % topic.partitions();
    let mut latencies = Latencies::default();
    let start = Instant::now();
    let mut tick = PAUSE.mul_f64(sender as f64 / SENDERS as f64);
    let mut number = 0;
    while tick < time {
        std::thread::sleep(tick.saturating_sub(start.elapsed()));
        let due = tick.max(Duration::ZERO);
        let mut batch = BatchBuilder::append_to(topic.start_send(partition, 1)?);
        let payload = topic.payload(sender, number, PAYLOAD_BYTES);
        batch.push((sender as u128) << 64 | u128::from(number + 1), Micros(number + 1), payload, &[])?;
        topic.send(connection, partition, batch.finish()?)?;
        latencies.push(start.elapsed() - due);
        number += 1;
        tick += PAUSE;
    }
    Ok(latencies)
}

fn guess(address: SocketAddr, storm: Storm, guesser: u32, counts: &Counts, over: &AtomicBool) {
    let pause = Duration::from_secs(1) * GUESSERS / GUESSES_PER_SECOND;
    let frame = match storm {
        Storm::Pings => stranger(&Ping {}),
        _ => stranger(&wrong_password()),
    };
    let start = Instant::now();
    let mut tick = pause * guesser / GUESSERS;
    for round in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(tick.saturating_sub(start.elapsed()));
        tick += pause;
        let from = match storm {
            // Below 127.0.0.0/8, so that the kernel takes each.
            Storm::ManyAddresses => Ipv4Addr::from(0x7f01_0000 + (guesser << 12) + round % 4096),
            _ => Ipv4Addr::LOCALHOST,
        };
        counts.asked.fetch_add(1, Ordering::Relaxed);
        let counted = match ask(address, from, &frame) {
            Ok(8) => &counts.replied,
            Ok(13) => &counts.evicted,
            _ => &counts.unanswered,
        };
        counted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Comes, asks, and leaves. Gives the command byte of the answer.
fn ask(address: SocketAddr, from: Ipv4Addr, frame: &[u8]) -> Result<u8> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    if from != Ipv4Addr::LOCALHOST {
        bind(&socket, &SocketAddrV4::new(from, 0))?;
    }
    connect(&socket, &address)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(GUESS_MAX))?;
    stream.write_all(frame)?;
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    Ok(header[60])
}

fn wrong_password() -> LoginRegister<'static> {
    LoginRegister {
        version: VersionPrefix { protocol: ProtocolVersion::V0_12_2, sdk_name: "bench", sdk_version: "0" },
        bind_secret: BindSecret([7; 32]),
        username: "iggy",
        password: Secret(b"not-the-password"),
        context: &[],
    }
}

fn stranger<R: Request>(request: &R) -> Bytes {
    let operation = Operation::for_code(R::CODE);
    let mut header = RequestHeader::new(operation, ClientId(77), 0);
    if operation.is_replicated() {
        header.request_checksum = 77;
    }
    encode_frame(&header, request).expect("a request within its bounds").freeze()
}
