//! What a fetch brings: sections, limits, commits.

use std::time::{Duration, Instant};

use laneway_wire::ConsumerKind;

use crate::client::{AT_METADATA_OP, Client, Place};
use crate::messages::{Poll, Polled, numbered};
use crate::node::Node;
use crate::request::*;

#[test]
fn body_out_of_range_is_refused() {
    // R73, R74, R76, R77, R42
    let node = Node::start(1);
    let mut client = node.client();
    let places = client.topic("limits", 2);
    let good = || fetch(&places, |place| offset(place, 0));
    assert_eq!(client.fetch(&good()).len(), 0);
    let twice = vec![offset(&places[0], 0), offset(&places[0], 1)];
    let mut bad = vec![
        Fetch { timeout_us: 999_999, ..good() },
        Fetch { wait_us: 600_000_001, timeout_us: 630_000_000, ..good() },
        Fetch { wait_us: 5_000_000, timeout_us: 5_999_999, ..good() },
        Fetch { timeout_us: 630_000_001, ..good() },
        good().min_count(0),
        good().min_count(6).count(5),
        good().count(0),
        good().max_bytes(343),
        Fetch { targets: vec![], ..good() },
        Fetch { targets: twice, ..good() },
        Fetch {
            targets: (0..1001).map(|id| Target { partition: id, ..offset(&places[0], 0) }).collect(),
            ..good()
        },
        Fetch { claimed: Some(u32::MAX), ..good() },
        Fetch { claimed: Some(3), ..good() },
        Fetch { claimed: Some(1), ..good() },
        Fetch { kind: 0, ..good() },
        Fetch { kind: 4, ..good() },
    ];
    for strategy in [0, 2, 3, 4, 6] {
        bad.push(fetch(&places, |place| Target { strategy, ..offset(place, 0) }));
    }
    bad.push(fetch(&places, |place| Target { max_bytes: LIMIT + 1, ..offset(place, 0) }));
    bad.push(fetch(&places, |place| Target { max_bytes: 343, ..offset(place, 0) }));
    for fetch in bad {
        assert_eq!(client.fetch_status(&fetch), 3, "{fetch:?}");
    }
    let body = good().body();
    for cut in 0..body.len() {
        let sent = client.raw(109, &body[..cut]);
        assert_eq!(client.exchange(&sent).status(), 3, "cut at {cut}");
    }
    let longer = client.raw(109, &[&body[..], &[0]].concat());
    assert_eq!(client.exchange(&longer).status(), 3);
    assert_eq!(client.fetch_status(&Fetch { kind: 3, ..good() }), 5);
    assert_eq!(client.fetch(&good().count(u32::MAX)).len(), 0);
    assert_eq!(ConsumerKind::Consumer as u8, 1);
}

#[test]
fn zero_wait_sees_acknowledged_sends() {
    // R32
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut producer = node.client();
        let mut readers: Vec<Client> = (0..4).map(|_| node.client()).collect();
        let places = producer.topic("seen", 6);
        for round in 0..60u64 {
            let place = &places[(round % 6) as usize];
            let base = producer.append(place, &[round.to_string()]);
            let reader = &mut readers[(round % 4) as usize];
            let fetch = fetch(&places, |other| match other.partition == place.partition {
                true => offset(other, base),
                false => offset(other, 1000),
            });
            let sections = reader.fetch(&fetch);
            assert_eq!(sections.len(), 1, "targets beyond the head get no section");
            assert_eq!(sections[0].payloads, [round.to_string().into_bytes()]);
        }
    }
}

#[test]
fn conditions_of_targets_are_sections_and_of_the_request_a_status() {
    // R36, R39
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("conditions", 4);
        client.append(&places[0], &["x"]);
        let mut fetch = fetch(&places, |place| offset(place, 0));
        fetch.targets[1].incarnation = 0;
        fetch.targets[2].generation = 7;
        fetch.targets[3].partition = 99;
        let statuses: Vec<_> =
            client.fetch(&fetch).iter().map(|section| section.head.status.number()).collect();
        assert_eq!(statuses, [0, 87, 5009, 3007]);
        // Only refused targets: at once, whatever the wait.
        let refused = Fetch { targets: fetch.targets[1..].to_vec(), ..fetch.clone() }.wait(LONG_US);
        let sent = client.fetch_frame(&refused);
        client.send(&sent);
        assert_eq!(read(&client.prompt(&sent), &refused).len(), 3);
        // With a good one beside them, the wait is whole.
        let mut waits = fetch.clone().wait(300_000);
        waits.targets[0].value = 5;
        let begun = Instant::now();
        assert_eq!(client.fetch(&waits).len(), 3);
        assert!(begun.elapsed() >= Duration::from_millis(290));
        // u64::MAX has no next: it cannot be stored through the protocol, so an offset target stands for it.
        waits.targets[0].value = u64::MAX;
        assert_eq!(client.fetch(&waits.wait(0)).len(), 3);

        let missing = Fetch { stream: "nowhere".into(), ..fetch.clone() };
        assert_eq!(client.fetch_status(&missing), 1010);
        let missing = Fetch { topic: "nowhere".into(), ..fetch.clone() };
        assert_eq!(client.fetch_status(&missing), 2011);
        let ahead = client.fetch_frame(&fetch).with(AT_METADATA_OP, &u64::MAX.to_le_bytes());
        assert_eq!(client.exchange(&ahead).status(), 58, "R37");
    }
}

#[test]
fn limits_hold_over_all_sections() {
    // R18, R22, R23, R26 and the rules of 5.5.
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("limited", 24);
        for place in &places {
            let many: Vec<String> = (0..30).map(|index| format!("{index:0>100}")).collect();
            client.append(place, &many);
        }
        let all = fetch(&places, |place| offset(place, 0));
        let sections = client.fetch(&all.clone().count(10));
        assert_eq!((sections.len(), total(&sections)), (1, 10), "the first backlog reads whole");
        let three = Fetch { targets: all.targets[..3].to_vec(), ..all.clone() };
        let sections = client.fetch(&three.clone().count(40));
        assert_eq!(total(&sections), 40);
        assert_eq!(sections[0].offsets.len(), 30);
        for max_bytes in [344, 500, 1000, 4000, 10_000, 50_000] {
            let sections = client.fetch(&all.clone().max_bytes(max_bytes));
            assert!(total(&sections) >= 1, "{max_bytes}");
        }
        let mut small = all.clone();
        small.targets.iter_mut().for_each(|target| target.max_bytes = 1000);
        let sections = client.fetch(&small);
        assert!(sections.len() > 10 && sections.iter().all(|section| section.head.records_len <= 1000));
        // A small target beside a backlog is not held back.
        let mut mixed = three.clone().count(33);
        mixed.targets[1].value = 27;
        let sections = client.fetch(&mixed);
        let found = sections.iter().find(|section| section.head.partition.0 == 1).expect("the small one");
        assert_eq!(found.offsets, [27, 28, 29]);
    }
}

#[test]
fn oversized_first_message_comes_alone() {
    // R24
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("oversized", 5);
        for place in &places {
            let payloads = [vec![b'x'; 5000], vec![b'y'; 20], vec![b'z'; 7000]];
            client.append(place, &payloads);
        }
        for max_bytes in [344, 1000, 4096] {
            let mut starts = [0u64; 5];
            let mut rounds = 0;
            while starts.iter().any(|start| *start < 3) {
                rounds += 1;
                assert!(rounds < 60, "no progress: {starts:?}");
                let asked = fetch(&places, |place| offset(place, starts[place.partition.0 as usize]));
                let asked = asked.max_bytes(max_bytes);
                let sections = client.fetch(&asked);
                assert!(total(&sections) >= 1);
                for section in sections {
                    let start = &mut starts[section.head.partition.0 as usize];
                    if let Some(first) = section.offsets.first() {
                        assert_eq!(first, start);
                    }
                    *start = section.head.next_offset.0;
                }
            }
        }
    }
}

#[test]
fn next_offset_continues_exactly() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("walk", 6);
        let mut sent = 0;
        for round in 0..40usize {
            let place = &places[round % 6];
            let payloads: Vec<String> = (0..1 + round % 5).map(|index| format!("{round}-{index}")).collect();
            sent += payloads.len();
            client.append(place, &payloads);
        }
        for (count, max_bytes) in [(1, LIMIT), (7, LIMIT), (1000, 700), (13, 2000), (1000, LIMIT)] {
            let mut order: Vec<usize> = (0..6).collect();
            let mut starts = [0u64; 6];
            let mut got = 0;
            for _ in 0..2 * sent {
                let asked: Vec<Place> = order.iter().map(|at| places[*at].clone()).collect();
                let fetch = fetch(&asked, |place| offset(place, starts[place.partition.0 as usize]))
                    .count(count)
                    .max_bytes(max_bytes);
                let sections = client.fetch(&fetch);
                if total(&sections) == 0 {
                    break;
                }
                for section in &sections {
                    let at = section.head.partition.0 as usize;
                    if let Some(first) = section.offsets.first() {
                        assert_eq!(*first, starts[at], "no gap and no repeat");
                    }
                    starts[at] = section.head.next_offset.0;
                    order.retain(|other| *other != at);
                    order.push(at);
                }
                got += total(&sections);
            }
            assert_eq!(got, sent, "count {count}, bytes {max_bytes}");
        }
    }
}

#[test]
fn committing_fetch_stores_per_partition() {
    // R44, R45, R46, R47
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let mut other = node.client();
        let places = client.topic("commit", 5);
        for place in &places[..4] {
            client.append(place, &["a", "b", "c", "d"]);
        }
        client.fetch(&fetch(&places, next));
        for place in &places {
            assert_eq!(client.stored(place, numbered(1)), None, "a plain fetch stores nothing");
        }
        let mut seen = [0u64; 5];
        for _ in 0..8 {
            let sections = client.fetch(&fetch(&places, next).count(3).commit());
            for section in &sections {
                let at = section.head.partition.0 as usize;
                if let Some(last) = section.offsets.last() {
                    assert_eq!(section.offsets[0], seen[at]);
                    seen[at] = last + 1;
                }
            }
            for place in &places {
                let stored = seen[place.partition.0 as usize].checked_sub(1);
                assert_eq!(other.stored(place, numbered(1)), stored, "partition {}", place.partition.0);
            }
        }
        assert_eq!(seen, [4, 4, 4, 4, 0]);
    }
}

#[test]
fn thousand_targets() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut producer) = (node.client(), node.client());
        client.create_stream("thousand");
        client.create_topic("thousand", "thousand", 1000);
        let places: Vec<Place> = (0..1000).map(|partition| client.route("thousand", partition)).collect();
        let parked = fetch(&places, next).wait(LONG_US).min_count(3);
        let sent = client.park(&parked);
        for at in [0, 499, 999] {
            producer.append(&places[at], &[at.to_string()]);
        }
        let sections = read(&client.prompt(&sent), &parked);
        assert_eq!((sections.len(), total(&sections)), (1000, 3));
        let sections = client.fetch(&fetch(&places, |place| offset(place, 0)));
        let found: Vec<_> = sections.iter().map(|section| section.head.partition.0).collect();
        assert_eq!(found, [0, 499, 999]);
        for place in &places {
            if !found.contains(&place.partition.0) {
                producer.append(place, &["m"]);
            }
        }
        let sections = client.fetch(&fetch(&places, next).commit());
        assert_eq!(total(&sections), 1000);
    }
}

#[test]
fn fetches_beside_polls_and_disk() {
    // What lies in segments is read as what lies in memory, and a poll of the same connection ends alone.
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("disk", 6);
        for place in &places {
            for round in 0..20 {
                client.append(place, &[format!("{round:0>2000}"), "x".into()]);
            }
        }
        node.restart();
        let mut client = node.client();
        let places: Vec<Place> = (0..6).map(|partition| client.route("disk", partition)).collect();
        let sections = client.fetch(&fetch(&places, |place| offset(place, 3)));
        assert_eq!(total(&sections), 6 * 37);
        let sections = client.fetch(&fetch(&places, next).max_bytes(60_000).commit());
        assert!(total(&sections) > 10);
        let poll = client.poll_frame(&places[5], Poll::offset(40).wait_ms(10_000));
        client.send(&poll);
        let waits = fetch(&places, |place| offset(place, 40)).wait(LONG_US);
        let sent = client.park(&waits);
        node.client().append(&places[5], &["new"]);
        assert_eq!(total(&read(&client.prompt(&sent), &waits)), 1);
        assert_eq!(Polled::read(&client.reply_to(&poll), &places[5]).offsets(), [40]);
    }
}
