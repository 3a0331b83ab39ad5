//! Storage: kills between checkpoints, a full disk, few descriptors.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use laneway_wire::reply::{PartitionRoute, parse_topics};
use laneway_wire::request::{CreateTopic, DeleteTopic, GetPartitionRoute, GetStats, GetTopic, GetTopics};
use laneway_wire::{Identifier, PartitionId};

use crate::client::{Client, Place};
use crate::load::{Ledgers, Load, acknowledged, check, ledgers, payload, until_gone};
use crate::messages::Poll;
use crate::serve::{Serve, cycles, segments, wait_for};

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn kills_between_checkpoints_lose_nothing() {
    kills("persisted");
}

#[test]
fn kills_lose_nothing_that_was_only_written() {
    kills("replicated");
}

fn kills(durability: &str) {
    let home = tempfile::tempdir().unwrap();
    let durability = format!("LANEWAY_TOPIC_DURABILITY={durability}");
    let options = [
        "LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB",
        "LANEWAY_STORAGE_CACHE_BYTES_MAX=4 MiB",
        durability.as_str(),
    ];
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
            let body = client.must(&GetTopic { stream: Identifier::Name("keep"), topic: id });
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
                        let body = client.must(&GetPartitionRoute {
                            stream,
                            topic,
                            partition: PartitionId(partition),
                        });
                        let route = PartitionRoute::parse(&body).unwrap();
                        let place = Place {
                            stream: "keep".into(),
                            topic: name.clone(),
                            partition: PartitionId(partition),
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
    let body = client.must(&GetTopics { stream: Identifier::Name(stream) });
    let topics = parse_topics(&body).expect("topics");
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

/// Fills what is left, to the last block.
fn fill_to_the_brim(ballast: &std::path::Path) {
    use std::io::Write;
    let mut file = fs::File::create(ballast).unwrap();
    for size in [1 << 20, 4096] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
}

/// Full by its own load, full to the brim because of somebody else, and room again: errors while it is full, reads are
/// served, writes resume without a restart, a stop is quick, and nothing acknowledged is lost.
#[test]
fn full_disk_refuses_messages_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount("64m") else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let home = disk.0.path();
    let (ballast, more) = (home.join("ballast"), home.join("more"));
    fs::write(&ballast, vec![0; 12 << 20]).unwrap();
    let options = ["LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB", "LANEWAY_STORAGE_CACHE_BYTES_MAX=4 MiB"];
    let ledgers = ledgers(3);
    let mut serve = Serve::start(home, 2, &options);
    let mut client = Client::sign_in(serve.address);
    client.topic("full", 3);
    let load = Load::start(serve.address, "full", &ledgers, 4, 20_000);
    let refused = || load.refused.load(std::sync::atomic::Ordering::Relaxed);
    wait_for("the disk is full", || refused() > 10);
    wait_until_stuck(&ledgers);
    assert!(serve.alive());
    // Reads are served, and so is what is small.
    check(&mut client, "full", &ledgers, true);
    client.must(&GetStats {});
    let place = client.route("full", 0);
    client.store(&place, crate::messages::numbered(1), 0);
    // Somebody else takes the rest.
    fill_to_the_brim(&more);
    let before = refused();
    wait_for("still refused", || refused() > before + 10);
    assert!(serve.alive());
    check(&mut client, "full", &ledgers, true);
    // Half of what is needed does not help, everything does.
    fs::remove_file(&more).unwrap();
    fs::remove_file(&ballast).unwrap();
    let before = acknowledged(&ledgers);
    wait_for("writes resume", || acknowledged(&ledgers) > before + 100);
    // Somebody takes everything while writes are on their way: some wait for space, and are told.
    fill_to_the_brim(&more);
    wait_until_stuck(&ledgers);
    let before = refused();
    wait_for("refused again", || refused() > before + 10);
    assert!(serve.alive());
    check(&mut client, "full", &ledgers, true);
    let begun = Instant::now();
    assert_eq!(serve.stop(), Some(0), "a stop on a full disk");
    assert!(begun.elapsed() < Duration::from_secs(8), "a stop took {:?}", begun.elapsed());
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
    fs::remove_file(&more).unwrap();
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
    let takes_all = !options.is_empty();
    let home = tempfile::tempdir().unwrap();
    let options = [options, &["LANEWAY_STORAGE_JOURNAL_BYTES_MAX=4 MiB"]].concat();
    let mut serve = Serve::start_under(home.path(), 2, &options, "ulimit -n 96; exec \"$@\"");
    let mut client = Client::sign_in(serve.address);
    let places = client.topic("few", 60);
    for round in 0..3 {
        let connect = || TcpStream::connect_timeout(&serve.address, Duration::from_secs(1)).ok();
        let mut crowd: Vec<TcpStream> = (0..150).filter_map(|_| connect()).collect();
        assert!(crowd.len() > 96);
        for place in &places {
            for _ in 0..3 {
                let frame = client.send_frame(place, &[vec![round; 100_000]]);
                let mut outcome = client.exchange(&frame).outcome();
                if outcome == 57 {
                    assert!(takes_all, "connections that are bounded leave descriptors for files");
                    // No file can be opened while the crowd has them all: unknown, until it is known.
                    crowd.clear();
                    while outcome == 57 {
                        outcome = client.exchange(&frame).outcome();
                    }
                }
                assert_eq!(outcome, 0);
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
