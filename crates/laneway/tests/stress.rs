//! The broker as a process under stress: kills in the middle of checkpoints, a full disk, few descriptors, deletes under
//! load, a stop under load. What was acknowledged is there afterwards, once, at its offset.

#[path = "protocol/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "protocol/messages.rs"]
#[allow(dead_code)]
mod messages;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::thread::{JoinHandle, scope, sleep, spawn};
use std::time::{Duration, Instant};

use laneway_wire::Identifier;
use laneway_wire::request::{CreatePartitions, CreateTopic, DeletePartitions, DeleteTopic, GetStats, Logout};

use client::{ANSWER_MAX, Answer, Client, Place};
use messages::{Poll, confirmed, numbered};

/// More than any start or stop here should need on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most messages of one poll while checking.
const PAGE: u32 = 2000;

/// A process of `laneway serve`. Killed when it is dropped.
struct Serve {
    child: Child,
    address: SocketAddr,
    err: PathBuf,
}

impl Serve {
    fn start(home: &Path, shards: u16, options: &[&str]) -> Self {
        Self::start_under(home, shards, options, "exec \"$@\"")
    }

    /// Starts the broker by a line of the shell.
    fn start_under(home: &Path, shards: u16, options: &[&str], shell: &str) -> Self {
        Self::try_start(home, shards, options, shell)
            .unwrap_or_else(|text| panic!("it does not start: {text}"))
    }

    fn try_start(home: &Path, shards: u16, options: &[&str], shell: &str) -> Result<Self, String> {
        let (data, err) = (home.join("data"), home.join("err"));
        let runtime = data.join("runtime.toml");
        let _ = fs::remove_file(&runtime);
        let log = File::options().create(true).append(true).open(&err).unwrap();
        let mut command = Command::new("sh");
        let shards = shards.to_string();
        command
            .args([
                "-c",
                shell,
                "sh",
                env!("CARGO_BIN_EXE_laneway"),
                "serve",
                "--dev",
                "--tcp",
                "127.0.0.1:0",
            ])
            .args(["--shards", &shards, "--data-dir", data.to_str().unwrap()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        for option in options {
            let (name, value) = option.split_once('=').unwrap();
            command.env(name, value);
        }
        let mut child = command.spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&runtime).unwrap_or_default();
            let address = text.split_once("tcp_address = \"").and_then(|(_, rest)| rest.split_once('"'));
            if let Some((address, _)) = address {
                return Ok(Self { child, address: address.parse().unwrap(), err });
            }
            let said = || fs::read_to_string(&err).unwrap_or_default();
            if child.try_wait().unwrap().is_some() {
                return Err(said());
            }
            assert!(Instant::now() < end, "it does not listen: {}", said());
            sleep(Duration::from_millis(5));
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Asks it to stop; gives the exit code.
    fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end: {}", fs::read_to_string(&self.err).unwrap());
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.err).unwrap_or_default());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs something that ends by a panic when the broker goes away. The panic is quiet.
fn until_gone(work: impl FnOnce()) {
    static QUIET: Once = Once::new();
    thread_local!(static EXPECTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    QUIET.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                loud(info);
            }
        }));
    });
    EXPECTED.set(true);
    let _ = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(false);
}

/// What a producer knows about its partition.
#[derive(Debug, Default)]
struct Ledger {
    /// Number of the next message.
    next: u64,
    /// Offset of each message whose send was acknowledged.
    acknowledged: BTreeMap<u64, u64>,
    checked_to: u64,
}

/// Producers of one partition each, and what they were told.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

type Ledgers = Arc<Vec<Mutex<Ledger>>>;

fn ledgers(count: usize) -> Ledgers {
    Arc::new((0..count).map(|_| Mutex::default()).collect())
}

fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(bytes.max(8), number as u8);
    payload
}

impl Load {
    fn start(address: SocketAddr, topic: &str, ledgers: &Ledgers, batch: usize, bytes: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = |at: usize| {
            let (stop, ledgers, topic) = (stop.clone(), ledgers.clone(), topic.to_owned());
            spawn(move || {
                until_gone(|| {
                    let mut client = Client::sign_in(address);
                    let place = client.route(&topic, at as u32);
                    while !stop.load(Ordering::Relaxed) {
                        let first = {
                            let mut ledger = ledgers[at].lock().unwrap();
                            ledger.next += batch as u64;
                            ledger.next - batch as u64
                        };
                        let payloads: Vec<_> =
                            (0..batch as u64).map(|index| payload(first + index, bytes)).collect();
                        let sent = client.send_frame(&place, &payloads);
                        client.send(&sent);
                        // A full disk makes it wait, for as long as the test likes.
                        let reply = loop {
                            if let Some(reply) = client.reply_within(&sent, Duration::from_millis(200)) {
                                break reply;
                            }
                            if stop.load(Ordering::Relaxed) {
                                return;
                            }
                        };
                        if reply.outcome() == 58 {
                            continue;
                        }
                        let base = confirmed(&reply, &place);
                        let mut ledger = ledgers[at].lock().unwrap();
                        ledger
                            .acknowledged
                            .extend((0..batch as u64).map(|index| (first + index, base + index)));
                    }
                });
            })
        };
        let threads = (0..ledgers.len()).map(thread).collect();
        Self { stop, threads }
    }

    fn join(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn acknowledged(ledgers: &Ledgers) -> usize {
    ledgers.iter().map(|ledger| ledger.lock().unwrap().acknowledged.len()).sum()
}

/// Reads every partition and compares it with what its producer was told.
fn check(client: &mut Client, topic: &str, ledgers: &Ledgers, whole: bool) {
    for (at, ledger) in ledgers.iter().enumerate() {
        let ledger = &mut *ledger.lock().unwrap();
        let place = client.route(topic, at as u32);
        let mut offset = if whole { 0 } else { ledger.checked_to };
        let mut found = BTreeMap::new();
        let mut last = None;
        loop {
            let polled = client.poll(&place, Poll::offset(offset).count(PAGE).max_bytes(4 << 20));
            if polled.messages.is_empty() {
                break;
            }
            for message in polled.messages {
                assert_eq!(message.offset, offset, "partition {at}: offsets are contiguous");
                offset += 1;
                let number = u64::from_le_bytes(message.payload[..8].try_into().unwrap());
                assert_eq!(message.payload, payload(number, message.payload.len()), "partition {at}");
                assert!(last < Some(number), "partition {at}: {number} came after {last:?}");
                last = Some(number);
                found.insert(number, message.offset);
            }
        }
        let from = if whole { 0 } else { ledger.checked_to };
        for (number, told) in ledger.acknowledged.iter().filter(|(_, told)| **told >= from) {
            assert_eq!(found.get(number), Some(told), "partition {at}: message {number} was acknowledged");
        }
        ledger.checked_to = offset;
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Segment files and the incarnation that each names.
fn segments(home: &Path) -> Vec<(u64, PathBuf)> {
    let mut found = Vec::new();
    for fan in fs::read_dir(home.join("data/segments")).unwrap() {
        for file in fs::read_dir(fan.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let incarnation = name.split('-').next().unwrap();
            found.push((incarnation.parse().unwrap(), path));
        }
    }
    found
}

fn cycles(usual: u64) -> u64 {
    std::env::var("LANEWAY_STRESS_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn kills_between_checkpoints_lose_nothing() {
    let home = tempfile::tempdir().unwrap();
    let options = ["LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB", "LANEWAY_STORAGE_CACHE_BYTES_MAX=4 MiB"];
    let ledgers = ledgers(4);
    let mut seed = 0x9e37_79b9_7f4a_7c15 ^ (u64::from(std::process::id()) << 20);
    println!("seed {seed}");
    let mut churned = 0;
    let deleted: Arc<Mutex<Vec<String>>> = Arc::default();
    for cycle in 0..cycles(5) {
        let serve = Serve::start(home.path(), [2, 1, 3, 4][cycle as usize % 4], &options);
        let mut client = Client::sign_in(serve.address);
        if cycle == 0 {
            client.topic("keep", 4);
        }
        check(&mut client, "keep", &ledgers, false);
        for name in deleted.lock().unwrap().drain(..) {
            let id = Identifier::Name(&name);
            let body =
                client.must(&laneway_wire::request::GetTopic { stream: Identifier::Name("keep"), topic: id });
            assert!(body.is_empty(), "{name} was deleted");
        }
        let load = Load::start(serve.address, "keep", &ledgers, 8, 12_000);
        let (address, first, deleted_now) = (serve.address, churned, deleted.clone());
        churned += 10_000;
        let churn = spawn(move || {
            until_gone(|| {
                let mut client = Client::sign_in(address);
                for round in first.. {
                    let name = format!("churn-{round}");
                    let (stream, topic) = (Identifier::Name("keep"), Identifier::Name(&name));
                    let options = laneway_wire::options::Options::EMPTY;
                    client.must(&CreateTopic { stream, partitions_count: 3, name: &name, options });
                    for partition in 0..3 {
                        let body = client.must(&laneway_wire::request::GetPartitionRoute {
                            stream,
                            topic,
                            partition: laneway_wire::PartitionId(partition),
                        });
                        let route = laneway_wire::reply::PartitionRoute::parse(&body).unwrap();
                        let place = Place {
                            stream: "keep".into(),
                            topic: name.clone(),
                            partition: laneway_wire::PartitionId(partition),
                            incarnation: route.incarnation,
                            metadata_op: route.metadata_op,
                        };
                        client.append(&place, &[vec![1; 100_000]]);
                    }
                    client.must(&DeleteTopic { stream, topic });
                    deleted_now.lock().unwrap().push(name);
                }
            });
        });
        sleep(Duration::from_millis(300 + random(&mut seed) % 2500));
        serve.kill();
        load.join();
        churn.join().unwrap();
    }
    let serve = Serve::start(home.path(), 3, &options);
    let mut client = Client::sign_in(serve.address);
    check(&mut client, "keep", &ledgers, true);
    let kept: Vec<u64> = (0..4).map(|partition| client.route("keep", partition).incarnation.0).collect();
    // What a kill left undeleted goes now.
    for name in topics(&mut client, "keep") {
        if name != "keep" {
            let (stream, topic) = (Identifier::Name("keep"), Identifier::Name(&name));
            client.must(&DeleteTopic { stream, topic });
        }
    }
    println!("acknowledged {} in all", acknowledged(&ledgers));
    assert!(acknowledged(&ledgers) > 0);
    assert_eq!(serve.stop(), Some(0));
    for (incarnation, path) in segments(home.path()) {
        assert!(kept.contains(&incarnation), "{} belongs to no partition", path.display());
    }
}

fn topics(client: &mut Client, stream: &str) -> Vec<String> {
    let body = client.must(&laneway_wire::request::GetTopics { stream: Identifier::Name(stream) });
    let topics = laneway_wire::reply::parse_topics(&body).expect("topics");
    topics.iter().map(|topic| topic.name.to_owned()).collect()
}

/// A small file system in memory; none where it cannot be mounted.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let path = place.path().to_str().unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs", path]).output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self(place))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", self.0.path().to_str().unwrap()]).status();
    }
}

fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(50));
    }
}

/// Waits until nothing was acknowledged for a while.
fn wait_until_stuck(ledgers: &Ledgers) {
    let (mut seen, mut since) = (0, Instant::now());
    wait_for("the disk fills", || {
        let now = acknowledged(ledgers);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(2)
    });
}

#[test]
fn full_disk_holds_writes_back_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount("64m") else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let home = disk.0.path();
    let ballast = home.join("ballast");
    let fill = |bytes: usize| fs::write(&ballast, vec![0; bytes]).unwrap();
    fill(24 << 20);
    let options = ["LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB", "LANEWAY_STORAGE_CACHE_BYTES_MAX=4 MiB"];
    let ledgers = ledgers(3);
    let mut serve = Serve::start(home, 2, &options);
    let mut client = Client::sign_in(serve.address);
    client.topic("full", 3);
    let load = Load::start(serve.address, "full", &ledgers, 4, 20_000);
    wait_until_stuck(&ledgers);
    assert!(serve.alive());
    let before = acknowledged(&ledgers);
    // Reads are served.
    check(&mut client, "full", &ledgers, true);
    client.must(&GetStats {});
    fs::remove_file(&ballast).unwrap();
    wait_for("writes resume", || acknowledged(&ledgers) > before + 100);
    // Full again, and killed there.
    wait_until_stuck(&ledgers);
    assert!(serve.alive());
    check(&mut client, "full", &ledgers, true);
    let begun = Instant::now();
    println!("asked to stop on a full disk: {:?} after {:?}", serve.stop(), begun.elapsed());
    load.join();
    // A start without space either serves or says why it does not. With space, everything is there.
    match Serve::try_start(home, 2, &options, "exec \"$@\"") {
        Ok(serve) => {
            println!("it starts on a full disk");
            check(&mut Client::sign_in(serve.address), "full", &ledgers, true);
            serve.kill();
        }
        Err(said) => {
            println!("it does not start on a full disk: {}", said.lines().last().unwrap_or_default())
        }
    }
    let remount = ["-o", "remount,size=128m", home.to_str().unwrap()];
    assert!(Command::new("mount").args(remount).status().unwrap().success());
    let serve = Serve::start(home, 1, &options);
    let mut client = Client::sign_in(serve.address);
    check(&mut client, "full", &ledgers, true);
    let place = client.route("full", 0);
    client.append(&place, &[payload(u64::MAX, 8)]);
    assert_eq!(serve.stop(), Some(0));
}

/// Connects a crowd again and again while one client appends to many partitions, with checkpoints all the time.
fn crowd(options: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let options = [options, &["LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB"]].concat();
    let mut serve = Serve::start_under(home.path(), 2, &options, "ulimit -n 96; exec \"$@\"");
    let mut client = Client::sign_in(serve.address);
    let places = client.topic("few", 60);
    for round in 0..3 {
        let connect = || TcpStream::connect_timeout(&serve.address, Duration::from_secs(1)).ok();
        let crowd: Vec<TcpStream> = (0..150).filter_map(|_| connect()).collect();
        assert!(crowd.len() > 96);
        for place in &places {
            for _ in 0..3 {
                client.append(place, &[vec![round; 100_000]]);
            }
        }
        assert!(serve.alive());
        drop(crowd);
        let mut served = false;
        wait_for("connections are served again", || {
            until_gone(|| {
                Client::sign_in(serve.address).assert_alive();
                served = true;
            });
            served
        });
    }
    for place in &places {
        assert_eq!(client.poll(place, Poll::offset(0)).messages.len(), 9);
    }
    assert_eq!(serve.stop(), Some(0));
}

#[test]
fn few_descriptors_bound_the_connections() {
    crowd(&[]);
}

#[test]
fn no_descriptor_left_pauses_the_accept() {
    // More connections than descriptors: whoever comes first has them.
    crowd(&["LANEWAY_CONNECTIONS_MAX=10000"]);
}

/// Asks until the time is over. Every answer must have one of these outcomes.
fn hammer(until: Instant, allowed: &[u32], mut ask: impl FnMut() -> u32) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    while Instant::now() < until {
        let outcome = ask();
        assert!(allowed.contains(&outcome), "outcome {outcome}");
        *counts.entry(outcome).or_default() += 1;
    }
    counts
}

#[test]
fn deletes_under_load_answer_everybody() {
    let home = tempfile::tempdir().unwrap();
    let options = ["LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB"];
    let serve = Serve::start(home.path(), 3, &options);
    let mut admin = Client::sign_in(serve.address);
    admin.topic("races", 3);
    let until = Instant::now() + Duration::from_secs(cycles(6));
    let allowed = [0, 58, 87, 2011, 3007];
    let (name, generation) = ("races", AtomicU64::new(0));
    let route = |client: &mut Client, partition: u32| {
        let id = Identifier::Name(name);
        let ask = laneway_wire::request::GetPartitionRoute {
            stream: id,
            topic: id,
            partition: laneway_wire::PartitionId(partition),
        };
        let reply = client.ask(&ask);
        (reply.outcome() == 0).then(|| {
            let route = laneway_wire::reply::PartitionRoute::parse(reply.payload()).unwrap();
            Place {
                stream: name.into(),
                topic: name.into(),
                partition: laneway_wire::PartitionId(partition),
                incarnation: route.incarnation,
                metadata_op: route.metadata_op,
            }
        })
    };
    scope(|scope| {
        for partition in 0..4u32 {
            let address = serve.address;
            scope.spawn(move || {
                let mut client = Client::sign_in(address);
                let mut place = None;
                let counts = hammer(until, &allowed, || {
                    let here = place.take().or_else(|| route(&mut client, partition));
                    let Some(here) = here else { return 58 };
                    let sent = client.send_frame(&here, &["x", "y"]);
                    let outcome = client.exchange(&sent).outcome();
                    place = (outcome == 0).then_some(here);
                    outcome
                });
                println!("sends {partition}: {counts:?}");
                assert!(counts.contains_key(&0));
            });
            scope.spawn(move || {
                let mut client = Client::sign_in(address);
                let mut round = 0;
                let allowed = [allowed.as_slice(), &[3021, 4100]].concat();
                let counts = hammer(until, &allowed, || {
                    let Some(place) = route(&mut client, partition) else { return 58 };
                    round += 1;
                    let sent = match round % 4 {
                        0 => client.store_frame(&place, numbered(7), 0),
                        1 => client.poll_frame(&place, Poll::next().by(numbered(7)).commit().wait_ms(50)),
                        2 => client.poll_frame(&place, Poll::offset(u64::MAX / 2).wait_ms(100)),
                        _ => client.delete_offset_frame(&place, numbered(7)),
                    };
                    client.exchange(&sent).outcome()
                });
                println!("reads {partition}: {counts:?}");
            });
        }
        let address = serve.address;
        let generation = &generation;
        scope.spawn(move || {
            let mut client = Client::sign_in(address);
            let id = Identifier::Name(name);
            while Instant::now() < until {
                let round = generation.fetch_add(1, Ordering::Relaxed);
                if round % 5 == 4 {
                    client.must(&DeleteTopic { stream: id, topic: id });
                    client.create_topic(name, name, 3);
                } else {
                    client.must(&CreatePartitions { stream: id, topic: id, partitions_count: 2 });
                    sleep(Duration::from_millis(20));
                    client.must(&DeletePartitions { stream: id, topic: id, partitions_count: 3 });
                    client.must(&CreatePartitions { stream: id, topic: id, partitions_count: 1 });
                }
                sleep(Duration::from_millis(20));
            }
        });
    });
    println!("generations {}", generation.load(Ordering::Relaxed));
    let live: Vec<u64> = (0..3).map(|partition| admin.route(name, partition).incarnation.0).collect();
    assert_eq!(serve.stop(), Some(0));
    for (incarnation, path) in segments(home.path()) {
        assert!(live.contains(&incarnation), "{} belongs to no partition", path.display());
    }
    let serve = Serve::start(home.path(), 2, &options);
    Client::sign_in(serve.address).assert_alive();
}

#[test]
fn logout_ends_polls_of_every_connection() {
    let home = tempfile::tempdir().unwrap();
    let serve = Serve::start(home.path(), 3, &[]);
    let mut admin = Client::sign_in(serve.address);
    let places = admin.topic("logout", 6);
    for _ in 0..5 {
        let mut owner = Client::sign_in(serve.address);
        let mut parked: Vec<_> = (0..30)
            .map(|at| {
                let mut client = owner.another();
                let poll = Poll::next().commit().wait_ms(20_000);
                let sent = client.poll_frame(&places[at % 6], poll);
                client.send(&sent);
                (client, sent)
            })
            .collect();
        let sent = owner.frame(&Logout {});
        owner.send(&sent);
        for (client, sent) in &mut parked {
            // One that was served after the logout is refused by its session as well.
            let reply = client.reply_within(sent, Duration::from_secs(4)).expect("soon after the logout");
            assert_eq!(reply.status(), 30);
        }
        assert_eq!(owner.reply_to(&sent).outcome(), 0);
    }
    let place = &places[0];
    admin.append(place, &["x"]);
    assert_eq!(admin.stored(place, numbered(1)), None);
}

#[test]
fn one_request_on_two_connections_is_stored_once() {
    let home = tempfile::tempdir().unwrap();
    let serve = Serve::start(home.path(), 3, &[]);
    let mut one = Client::sign_in(serve.address);
    let mut others = [one.another(), one.another(), one.another()];
    let places = one.topic("once", 4);
    for round in 0..100u64 {
        let place = &places[(round % 4) as usize];
        let sent = one.send_frame(place, &[round.to_string()]);
        one.send(&sent);
        others.iter_mut().for_each(|other| other.send(&sent));
        let base = confirmed(&one.reply_to(&sent), place);
        for other in &mut others {
            assert_eq!(confirmed(&other.reply_to(&sent), place), base);
        }
        assert_eq!(base, round / 4);
    }
    for place in &places {
        assert_eq!(one.poll(place, Poll::offset(0)).messages.len(), 25);
    }
}

#[test]
fn stop_under_load_keeps_what_it_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let options = ["LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB"];
    let ledgers = ledgers(6);
    for cycle in 0..3u16 {
        let serve = Serve::start(home.path(), 1 + cycle, &options);
        let mut client = Client::sign_in(serve.address);
        if cycle == 0 {
            client.topic("stop", 6);
        }
        check(&mut client, "stop", &ledgers, true);
        let load = Load::start(serve.address, "stop", &ledgers, 8, 4_000);
        let place = client.route("stop", 0);
        let mut parked: Vec<_> = (0..8)
            .map(|_| {
                let mut client = client.another();
                let sent = client.poll_frame(&place, Poll::offset(1 << 40).wait_ms(25_000));
                client.send(&sent);
                (client, sent)
            })
            .collect();
        sleep(Duration::from_millis(800));
        let begun = Instant::now();
        assert_eq!(serve.stop(), Some(0));
        println!("stopped in {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
        load.join();
        for (client, sent) in &mut parked {
            let answer = client.link.read_within(ANSWER_MAX).expect("an answer or an end");
            match answer {
                Answer::Reply(reply) => assert_eq!((reply.number(), reply.status()), (sent.number(), 58)),
                other => panic!("a parked poll got {other:?}"),
            }
        }
    }
    let serve = Serve::start(home.path(), 2, &options);
    check(&mut Client::sign_in(serve.address), "stop", &ledgers, true);
    println!("acknowledged {}", acknowledged(&ledgers));
}
