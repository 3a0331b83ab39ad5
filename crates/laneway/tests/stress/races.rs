//! Requests that race with deletes, logouts, resends and stops.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use laneway_wire::reply::PartitionRoute;
use laneway_wire::request::{CreatePartitions, DeletePartitions, DeleteTopic, GetPartitionRoute, Logout};
use laneway_wire::{Identifier, PartitionId};

use crate::client::{ANSWER_MAX, Answer, Client, Place};
use crate::load::{Load, acknowledged, check, ledgers};
use crate::messages::{Poll, confirmed, numbered};
use crate::serve::{Serve, cycles, segments};

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
        let ask = GetPartitionRoute { stream: id, topic: id, partition: PartitionId(partition) };
        let reply = client.ask(&ask);
        (reply.outcome() == 0).then(|| {
            let route = PartitionRoute::parse(reply.payload()).unwrap();
            Place {
                stream: name.into(),
                topic: name.into(),
                partition: PartitionId(partition),
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
