//! Grouped fetch (109), over sockets: limits, sums, sections, ends. Source: reads, sections 5 and 13.

#[path = "protocol/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "protocol/messages.rs"]
#[allow(dead_code)]
mod messages;
#[path = "protocol/node.rs"]
#[allow(dead_code)]
mod node;

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use laneway_wire::batch::records;
use laneway_wire::reply::{FetchReply, FetchSection};
use laneway_wire::request::{DeleteTopic, Logout};
use laneway_wire::{ConsumerKind, Identifier};

use client::{AT_CODE, Client, Place, Reply, Sent};
use messages::{Poll, Polled, assert_checksums, numbered};
use node::Node;

const SHARDS: [u16; 2] = [1, 3];
/// How long a test looks at something that must not happen.
const SETTLING: Duration = Duration::from_millis(200);
/// An event's answer comes within this, far below the wait.
const PROMPT: Duration = Duration::from_secs(4);
const LONG_US: u64 = 20_000_000;
const LIMIT: u32 = 1 << 20;

/// The fields of a fetch, of any value.
#[derive(Clone, Debug)]
struct Fetch {
    kind: u8,
    consumer: u32,
    stream: String,
    topic: String,
    wait_us: u64,
    timeout_us: u64,
    min_count: u32,
    count: u32,
    max_bytes: u32,
    commit: bool,
    targets: Vec<Target>,
    /// What the body says about the number of targets, if not the truth.
    claimed: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Target {
    partition: u32,
    strategy: u8,
    value: u64,
    max_bytes: u32,
    incarnation: u64,
    generation: u64,
}

fn offset(place: &Place, value: u64) -> Target {
    Target {
        partition: place.partition.0,
        strategy: 1,
        value,
        max_bytes: LIMIT,
        incarnation: place.incarnation.0,
        generation: 0,
    }
}

fn next(place: &Place) -> Target {
    Target { strategy: 5, ..offset(place, 0) }
}

fn fetch(places: &[Place], target: impl Fn(&Place) -> Target) -> Fetch {
    Fetch {
        kind: 1,
        consumer: 1,
        stream: places[0].stream.clone(),
        topic: places[0].topic.clone(),
        wait_us: 0,
        timeout_us: 10_000_000,
        min_count: 1,
        count: 1000,
        max_bytes: LIMIT,
        commit: false,
        targets: places.iter().map(target).collect(),
        claimed: None,
    }
}

impl Fetch {
    fn wait(self, wait_us: u64) -> Self {
        Self { wait_us, timeout_us: wait_us + 10_000_000, ..self }
    }

    fn min_count(self, min_count: u32) -> Self {
        Self { min_count, ..self }
    }

    fn count(self, count: u32) -> Self {
        Self { count, ..self }
    }

    /// Of the request and of each target.
    fn max_bytes(mut self, max_bytes: u32) -> Self {
        self.targets.iter_mut().for_each(|target| target.max_bytes = max_bytes);
        Self { max_bytes, ..self }
    }

    fn commit(self) -> Self {
        Self { commit: true, ..self }
    }

    fn body(&self) -> Vec<u8> {
        let name = |name: &str| [&[2, name.len() as u8], name.as_bytes()].concat();
        let mut body = vec![self.kind, 1, 4];
        body.extend(self.consumer.to_le_bytes());
        body.extend(name(&self.stream));
        body.extend(name(&self.topic));
        body.extend(self.wait_us.to_le_bytes());
        body.extend(self.timeout_us.to_le_bytes());
        body.extend(self.min_count.to_le_bytes());
        body.extend(self.count.to_le_bytes());
        body.extend(self.max_bytes.to_le_bytes());
        body.push(self.commit.into());
        body.extend(self.claimed.unwrap_or(self.targets.len() as u32).to_le_bytes());
        for target in &self.targets {
            body.extend(target.partition.to_le_bytes());
            body.push(target.strategy);
            body.extend(target.value.to_le_bytes());
            body.extend(target.max_bytes.to_le_bytes());
            body.extend(target.incarnation.to_le_bytes());
            body.extend(target.generation.to_le_bytes());
        }
        body
    }
}

#[derive(Clone, Debug)]
struct Section {
    head: FetchSection,
    offsets: Vec<u64>,
    payloads: Vec<Vec<u8>>,
}

/// Reads an answer and checks what holds for each.
#[track_caller]
fn read(reply: &Reply, fetch: &Fetch) -> Vec<Section> {
    assert_eq!(reply.status(), 0, "{:?}", reply.header());
    let parsed = FetchReply::parse(reply.body()).expect("sections");
    let mut sections = Vec::new();
    for (head, bytes) in parsed.sections {
        let (mut offsets, mut payloads) = (Vec::new(), Vec::new());
        for record in records(bytes) {
            let record = record.expect("a record");
            assert_checksums(record.bytes);
            assert_eq!(record.header.partition_id, u64::from(head.partition.0));
            for message in record.messages() {
                let message = message.expect("a frame");
                offsets.push(record.header.base_offset.0 + u64::from(message.offset_delta));
                payloads.push(message.payload.to_vec());
            }
        }
        assert!(offsets.windows(2).all(|pair| pair[0] + 1 == pair[1]), "R20");
        let target = fetch.targets.iter().find(|target| target.partition == head.partition.0);
        let target = target.expect("a section of a target");
        if head.status.is_ok() {
            assert_eq!(head.context.incarnation.0, target.incarnation);
            if let Some(last) = offsets.last() {
                assert_eq!(head.next_offset.0, last + 1);
                assert!(head.current_offset.0 >= *last, "R31");
            }
        } else {
            assert_eq!(head, FetchSection::failed(head.partition, head.status));
        }
        sections.push(Section { head, offsets, payloads });
    }
    let order: Vec<u32> = sections.iter().map(|section| section.head.partition.0).collect();
    let asked: Vec<u32> =
        fetch.targets.iter().map(|target| target.partition).filter(|id| order.contains(id)).collect();
    assert_eq!(order, asked, "sections come in the order of the targets");
    let messages: usize = sections.iter().map(|section| section.offsets.len()).sum();
    let bytes: u32 = sections.iter().map(|section| section.head.records_len).sum();
    assert!(messages <= fetch.count as usize, "R18: {messages}");
    if messages != 1 {
        assert!(bytes <= fetch.max_bytes, "R22: {bytes}");
        for section in &sections {
            let target = fetch.targets.iter().find(|target| target.partition == section.head.partition.0);
            assert!(section.head.records_len <= target.unwrap().max_bytes, "R23");
        }
    }
    sections
}

fn total(sections: &[Section]) -> usize {
    sections.iter().map(|section| section.offsets.len()).sum()
}

impl Client {
    fn fetch_frame(&self, fetch: &Fetch) -> Sent {
        self.raw(109, &fetch.body())
    }

    #[track_caller]
    fn fetch(&mut self, fetch: &Fetch) -> Vec<Section> {
        let sent = self.fetch_frame(fetch);
        read(&self.exchange(&sent), fetch)
    }

    #[track_caller]
    fn fetch_status(&mut self, fetch: &Fetch) -> u32 {
        let sent = self.fetch_frame(fetch);
        self.exchange(&sent).status()
    }

    #[track_caller]
    fn park(&mut self, fetch: &Fetch) -> Sent {
        let sent = self.fetch_frame(fetch);
        self.send(&sent);
        self.assert_alive();
        assert!(self.reply_within(&sent, SETTLING).is_none(), "the fetch parks");
        sent
    }

    #[track_caller]
    fn prompt(&mut self, sent: &Sent) -> Reply {
        self.reply_within(sent, PROMPT).expect("an answer soon after the event")
    }
}

fn cancel(sent: &Sent) -> Sent {
    let header = Sent { bytes: sent.bytes[..256].to_vec() };
    header.with(AT_CODE, &108u32.to_le_bytes()).with_body(&[])
}

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
fn sum_over_partitions_ends_the_wait() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut producer, mut reader) = (node.client(), node.client());
        let places = producer.topic("sum", 7);
        for (round, target) in
            [offset as fn(&Place, u64) -> Target, |place, _| next(place)].iter().enumerate()
        {
            let held = round as u64;
            let fetch = fetch(&places, |place| Target { value: held, ..target(place, held) })
                .wait(LONG_US)
                .min_count(7 * (1 + if round == 1 { 1 } else { 0 }));
            let sent = reader.park(&fetch);
            for (index, place) in places.iter().enumerate() {
                assert!(reader.reply_within(&sent, Duration::from_millis(30)).is_none(), "{index} of 7");
                producer.append(place, &["m"]);
            }
            let sections = read(&reader.prompt(&sent), &fetch);
            assert_eq!(total(&sections), fetch.min_count as usize);
            assert_eq!(sections.len(), 7);
        }
    }
}

#[test]
fn single_message_at_offset_zero_ends_the_wait() {
    // 2.6: a head of 0 is no proof of emptiness.
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut producer, mut reader) = (node.client(), node.client());
        let places = producer.topic("zero", 4);
        for (at, place) in places.iter().enumerate() {
            let fetch = fetch(&places, |place| offset(place, u64::from((place.partition.0 as usize) < at)));
            let fetch = fetch.wait(LONG_US);
            let sent = reader.park(&fetch);
            producer.append(place, &["only"]);
            let sections = read(&reader.prompt(&sent), &fetch);
            assert_eq!((sections.len(), sections[0].offsets.as_slice()), (1, &[0][..]));
        }
    }
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
fn wait_that_ends_empty_tells_starts_of_next() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("idle", 4);
        client.append(&places[1], &["a", "b"]);
        client.store(&places[1], numbered(1), 1);
        let begun = Instant::now();
        let mut fetch = fetch(&places[..3], |place| match place.partition.0 {
            0 => offset(place, 9),
            _ => next(place),
        })
        .wait(400_000);
        let sections = client.fetch(&fetch);
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(390) && took < PROMPT, "{took:?}");
        assert_eq!(sections.len(), 2, "offset targets get no section");
        let starts: Vec<_> = sections.iter().map(|section| section.head.next_offset.0).collect();
        assert_eq!(starts, [2, 0]);
        assert_eq!(sections[0].head.current_offset.0, 1);
        // Below min_count, what is there comes at the end of the wait.
        fetch.targets.push(offset(&places[3], 0));
        fetch.min_count = 10;
        client.append(&places[3], &["c"]);
        let begun = Instant::now();
        let sections = client.fetch(&fetch);
        assert!(begun.elapsed() >= Duration::from_millis(390));
        assert_eq!(total(&sections), 1);
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
        let ahead = client.fetch_frame(&fetch).with(client::AT_METADATA_OP, &u64::MAX.to_le_bytes());
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
fn store_while_parked_fences_its_section() {
    // R59
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut other) = (node.client(), node.client());
        let places = client.topic("fence", 4);
        for place in &places {
            client.append(place, &["0", "1", "2"]);
            client.store(place, numbered(1), 2);
        }
        let fetch = fetch(&places, next).wait(LONG_US).min_count(4).commit();
        let sent = client.park(&fetch);
        other.store(&places[1], numbered(1), 2);
        other.store(&places[2], numbered(1), 0);
        for place in &places {
            other.append(place, &["3"]);
        }
        let sections = read(&client.prompt(&sent), &fetch);
        let statuses: Vec<_> = sections.iter().map(|section| section.head.status.number()).collect();
        assert_eq!(statuses, [0, 58, 58, 0]);
        let stored: Vec<_> = places.iter().map(|place| other.stored(place, numbered(1))).collect();
        assert_eq!(stored, [Some(3), Some(2), Some(0), Some(3)]);
    }
}

#[test]
fn deleted_topic_ends_a_parked_fetch() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut admin) = (node.client(), node.client());
        for commit in [false, true] {
            let name = format!("gone-{commit}");
            let places = admin.topic(&name, 6);
            let fetch = Fetch { commit, ..fetch(&places, next).wait(LONG_US) };
            let sent = client.park(&fetch);
            let id = Identifier::Name(&name);
            assert_eq!(admin.ask(&DeleteTopic { stream: id, topic: id }).outcome(), 0);
            let sections = read(&client.prompt(&sent), &fetch);
            assert!(!sections.is_empty());
            for section in sections {
                assert_eq!(section.head.status.number(), 87);
            }
        }
    }
}

#[test]
fn cancel_ends_a_parked_fetch() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, mut producer) = (node.client(), node.client());
        let places = client.topic("cancel", 5);
        for _ in 0..3 {
            let plain = client.park(&fetch(&places, |place| offset(place, 100)).wait(LONG_US));
            let committing = client.park(&fetch(&places, next).min_count(900).wait(LONG_US).commit());
            for sent in [&plain, &committing, &plain, &committing] {
                client.link.send(&cancel(sent));
            }
            assert_eq!(client.prompt(&committing).status(), 58);
            producer.append(&places[0], &["x"]);
            assert!(client.reply_within(&plain, SETTLING).is_none(), "a plain one gets no answer");
            assert!(client.reply_within(&committing, SETTLING).is_none(), "exactly one answer");
            assert_eq!(client.stored(&places[0], numbered(1)), None);
        }
    }
}

#[test]
fn lost_connections_free_everything() {
    for shards in SHARDS {
        let node = Node::start_with(shards, |config| config.reads.pending_per_shard_max = 64);
        let mut client = node.client();
        let places = client.topic("lost", 6);
        for _ in 0..30 {
            let mut reader = client.another();
            for _ in 0..8 {
                let sent = reader.fetch_frame(&fetch(&places, next).wait(LONG_US).commit());
                reader.send(&sent);
            }
            reader.assert_alive();
        }
        sleep(SETTLING);
        client.append(&places[0], &["x"]);
        sleep(SETTLING);
        assert_eq!(client.stored(&places[0], numbered(1)), None, "nothing is stored for who is gone");
        let fetch = fetch(&places, |place| offset(place, 1)).wait(LONG_US);
        let sent = client.park(&fetch);
        client.append(&places[0], &["y"]);
        assert_eq!(total(&read(&client.prompt(&sent), &fetch)), 1);
    }
}

#[test]
fn full_quota_refuses_the_whole_fetch() {
    // 4.6: for each session and for all, 90 at once. What does not wait needs none.
    for shards in SHARDS {
        let node = Node::start_with(shards, |config| {
            config.reads.pending_per_shard_max = 5;
            config.reads.pending_per_session_max = 3;
        });
        let (mut client, mut other) = (node.client(), node.client());
        let places = client.topic("quota", 6);
        let waits = fetch(&places, next).wait(LONG_US);
        let parked: Vec<Sent> = (0..3).map(|_| client.park(&waits)).collect();
        assert_eq!(client.fetch_status(&waits.clone().commit()), 90);
        assert_eq!(client.fetch(&fetch(&places, next)).len(), 6);
        let others: Vec<Sent> = (0..2).map(|_| other.park(&waits)).collect();
        assert_eq!(other.fetch_status(&waits), 90, "the shard is full");
        client.link.send(&cancel(&parked[0]));
        client.assert_alive();
        let again = client.park(&waits);
        client.append(&places[3], &["x"]);
        for sent in [&parked[1], &parked[2], &again] {
            assert_eq!(total(&read(&client.prompt(sent), &waits)), 1);
        }
        for sent in &others {
            assert_eq!(total(&read(&other.prompt(sent), &waits)), 1);
        }
    }
}

#[test]
fn end_of_the_session_ends_its_fetches() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut admin = node.client();
        let places = admin.topic("session", 5);
        for commit in [false, true] {
            let mut owner = node.client();
            let mut waiters: Vec<Client> = (0..6).map(|_| owner.another()).collect();
            let fetch = Fetch { commit, ..fetch(&places, next).wait(LONG_US) };
            let parked: Vec<Sent> = waiters.iter_mut().map(|waiter| waiter.park(&fetch)).collect();
            assert_eq!(owner.ask(&Logout {}).status(), 0);
            for (waiter, sent) in waiters.iter_mut().zip(&parked) {
                assert_eq!(waiter.prompt(sent).status(), 30);
            }
        }
    }
}

#[test]
fn stop_answers_parked_fetches() {
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let places = client.topic("stop", 5);
        let plain = fetch(&places, |place| offset(place, 0)).wait(LONG_US);
        let committing = fetch(&places, next).wait(LONG_US).commit();
        let sent = [client.park(&plain), client.park(&committing)];
        scope(|scope| {
            scope.spawn(|| node.stop());
            for (sent, fetch) in sent.iter().zip([&plain, &committing]) {
                let reply = client.prompt(sent);
                if reply.status() != 58 {
                    let sections = read(&reply, fetch);
                    assert!(!sections.is_empty());
                    // Shards stop one after the other: a partition may still have answered that it has nothing.
                    let statuses: Vec<_> =
                        sections.iter().map(|section| section.head.status.number()).collect();
                    assert!(statuses.contains(&58) && total(&sections) == 0, "{statuses:?}");
                    assert!(statuses.iter().all(|status| [0, 58].contains(status)), "{statuses:?}");
                }
            }
        });
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
