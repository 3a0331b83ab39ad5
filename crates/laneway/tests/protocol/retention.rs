//! Removal of old segments: by command, by age, by size, and what it leaves to readers and to statistics.
//! Source: resources specification, sections 8.1 to 8.4 and rules S77 to S87.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use laneway::Config;
use laneway_wire::options::{OptionMap, Options};
use laneway_wire::reply::{Record, Stats, StreamDetails, TopicDetails};
use laneway_wire::request::{
    CreatePartitions, DeletePartitions, DeleteSegments, DeleteTopic, GetStats, GetStream, GetTopic,
    ResetNames, UpdateResource, UpdateTarget,
};
use laneway_wire::{Identifier, PartitionId, ProtocolVersion, Reader, Strategy};

use crate::client::{Client, Place, Reply, Sent};
use crate::messages::{Poll, Polled, numbered};
use crate::node::{Node, SHARDS};

const SEGMENT_BYTES: u64 = 1 << 20;
/// A batch of one message that leaves no room in its segment.
const FULL: usize = 1_100_000;
/// Framing of a batch of one message. Source: resources specification, section 4.
const FRAMING: u64 = 256 + 48;

const MESSAGES_MAX: u32 = 10_000;

/// A cleaner that looks all the time, and messages small enough for limits of a few segments.
fn busy_cleaner(config: &mut Config) {
    config.data_maintenance.cleaner_interval = Duration::from_millis(20);
    config.limits.frame_bytes_max = 1 << 20;
    config.reads.read_bytes_max = 64 << 20;
    config.reads.inflight_bytes_max = 64 << 20;
}

fn large_reads(config: &mut Config) {
    config.reads.read_bytes_max = 64 << 20;
}

/// Creates a topic of small segments in a stream of its own name, and finds its partitions.
fn topic(client: &mut Client, name: &str, partitions: u32, options: &[(&str, u64)]) -> Vec<Place> {
    client.create_stream(name);
    topic_in(client, name, name, partitions, options)
}

fn topic_in(
    client: &mut Client,
    stream: &str,
    name: &str,
    partitions: u32,
    options: &[(&str, u64)],
) -> Vec<Place> {
    let mut map = OptionMap::new();
    for (key, value) in [("segment_size", SEGMENT_BYTES)].iter().chain(options) {
        map.set(key, *value);
    }
    client.create_topic_with(stream, name, partitions, &map).payload();
    (0..partitions).map(|partition| place(client, stream, name, partition)).collect()
}

fn place(client: &mut Client, stream: &str, topic: &str, partition: u32) -> Place {
    let route = laneway_wire::request::GetPartitionRoute {
        stream: Identifier::Name(stream),
        topic: Identifier::Name(topic),
        partition: PartitionId(partition),
    };
    let body = client.must(&route);
    let route = laneway_wire::reply::PartitionRoute::parse(&body).expect("a route");
    Place {
        stream: stream.to_owned(),
        topic: topic.to_owned(),
        partition: PartitionId(partition),
        incarnation: route.incarnation,
        metadata_op: route.metadata_op,
    }
}

fn delete_frame(client: &Client, place: &Place, segments_count: u32) -> Sent {
    let (stream, topic, partition) = (place.stream(), place.topic(), place.partition);
    client.frame(&DeleteSegments { stream, topic, partition, segments_count })
}

fn delete(client: &mut Client, place: &Place, segments_count: u32) -> Reply {
    let frame = delete_frame(client, place, segments_count);
    client.exchange(&frame)
}

#[track_caller]
fn must_delete(client: &mut Client, place: &Place, segments_count: u32) {
    let reply = delete(client, place, segments_count);
    assert!(reply.is_committed() && reply.payload().is_empty(), "{:?}", reply.header());
}

fn all(client: &mut Client, place: &Place) -> Polled {
    client.poll(place, Poll::offset(0).code(100).count(MESSAGES_MAX))
}

/// What a partition says of itself: segments, head, bytes, messages.
fn partition(client: &mut Client, place: &Place) -> (u32, u64, u64, u64) {
    let body = client.must(&GetTopic { stream: place.stream(), topic: place.topic() });
    let topic = TopicDetails::read(&mut Reader::new(&body), ProtocolVersion::V0_12_2).expect("a topic");
    let row = topic.partitions.iter().find(|row| row.id == place.partition).expect("the partition");
    (row.segments_count, row.current_offset.0, row.size_bytes, row.messages_count)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.join("segments")];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let entry = entry.expect("an entry");
            match entry.file_type().expect("its type").is_dir() {
                true => open.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

#[track_caller]
fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !happened() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn append_full(client: &mut Client, place: &Place, batches: u64) {
    for _ in 0..batches {
        client.append(place, &[vec![b'x'; FULL]]);
    }
}

/// S82, S83, S84, S85, S86, S87.
#[test]
fn deleted_segments_are_gone_for_readers_and_counters_and_stay_gone() {
    for shards in SHARDS {
        let mut node = Node::start_with(shards, large_reads);
        let mut client = node.client();
        let place = topic(&mut client, "del", shards.into(), &[]).remove(usize::from(shards) - 1);
        // An active segment only.
        client.append(&place, &["one"]);
        let one = FRAMING + 3;
        must_delete(&mut client, &place, u32::MAX);
        assert_eq!(partition(&mut client, &place), (1, 0, one, 1));
        append_full(&mut client, &place, 4);
        client.append(&place, &["active"]);
        let (full, active) = (FRAMING + FULL as u64, FRAMING + 6);
        // The first segment holds the short message, too.
        assert_eq!(partition(&mut client, &place), (5, 5, one + 4 * full + active, 6));
        must_delete(&mut client, &place, 0);
        assert_eq!(partition(&mut client, &place).0, 5);
        must_delete(&mut client, &place, 1);
        assert_eq!(partition(&mut client, &place), (4, 5, 3 * full + active, 4));
        assert_eq!(all(&mut client, &place).offsets(), [2, 3, 4, 5]);
        assert_eq!(client.poll(&place, Poll::new(Strategy::First).count(1)).offsets(), [2]);
        assert_eq!(client.poll(&place, Poll::new(Strategy::Timestamp(0)).count(1)).offsets(), [2]);
        assert_eq!(
            client.poll(&place, Poll::new(Strategy::Last).code(100).count(100)).offsets(),
            [2, 3, 4, 5]
        );
        assert_eq!(client.poll(&place, Poll::next().count(1)).offsets(), [2]);
        node.restart();
        let mut client = node.client();
        assert_eq!(partition(&mut client, &place), (4, 5, 3 * full + active, 4));
        // Now the rest lies in files.
        must_delete(&mut client, &place, 2);
        assert_eq!(all(&mut client, &place).offsets(), [4, 5]);
        must_delete(&mut client, &place, u32::MAX);
        assert_eq!(partition(&mut client, &place), (1, 5, active, 1));
        assert_eq!(all(&mut client, &place).offsets(), [5]);
        assert_eq!(client.append(&place, &["next"]), 6, "offsets go on");
        let incarnation = format!("{:020}", place.incarnation.0);
        let of_place = |path: &PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let short = incarnation.trim_start_matches('0');
            name.trim_start_matches('0').starts_with(&format!("{short}-"))
                && name.split('-').nth(1).is_some_and(|part| part.parse() == Ok(place.partition.0))
        };
        eventually("the files of deleted segments are unlinked without a restart", || {
            files(node.data_dir()).iter().filter(|path| of_place(path)).count() <= 1
        });
        node.restart();
        let mut client = node.client();
        assert_eq!(all(&mut client, &place).offsets(), [5, 6]);
        let missing = Place { partition: PartitionId(9), ..place.clone() };
        delete(&mut client, &missing, 1).assert_refused(3007);
        let missing = Place { topic: "nowhere".to_owned(), ..place.clone() };
        delete(&mut client, &missing, 1).assert_refused(2010);
        let missing = Place { stream: "nowhere".to_owned(), ..place.clone() };
        delete(&mut client, &missing, 1).assert_refused(1009);
    }
}

/// S79, S80.
#[test]
fn committed_offset_keeps_its_segment_until_its_last_message() {
    let node = Node::start_with(2, large_reads);
    let mut client = node.client();
    let place = topic(&mut client, "kept", 2, &[]).remove(1);
    for _ in 0..3 {
        // Two messages a segment: 0 1 | 2 3 | 4 5 |
        client.append(&place, &[vec![b'x'; FULL / 2], vec![b'y'; FULL / 2]]);
    }
    client.append(&place, &["active"]);
    client.store(&place, numbered(1), 0);
    must_delete(&mut client, &place, u32::MAX);
    assert_eq!(
        all(&mut client, &place).offsets(),
        [0, 1, 2, 3, 4, 5, 6],
        "offset 0 lies inside of the first"
    );
    client.store(&place, numbered(1), 1);
    must_delete(&mut client, &place, u32::MAX);
    assert_eq!(all(&mut client, &place).offsets(), [2, 3, 4, 5, 6], "all of the first is read");
    client.store(&place, numbered(2), 0);
    must_delete(&mut client, &place, u32::MAX);
    assert_eq!(all(&mut client, &place).offsets()[0], 2, "the lowest of two counts, also below the start");
    client.delete_offset(&place, numbered(2)).payload();
    client.store(&place, numbered(1), 3);
    must_delete(&mut client, &place, u32::MAX);
    assert_eq!(all(&mut client, &place).offsets(), [4, 5, 6]);
    client.delete_offset(&place, numbered(1)).payload();
    must_delete(&mut client, &place, u32::MAX);
    assert_eq!(all(&mut client, &place).offsets(), [6], "without a stored offset nothing is kept");
}

/// The same bytes again, as after a lost connection: the count is not resolved a second time.
#[test]
fn repeated_delete_of_segments_removes_once() {
    let mut node = Node::start_with(2, large_reads);
    let mut client = node.client();
    let place = topic(&mut client, "once", 2, &[]).remove(1);
    append_full(&mut client, &place, 4);
    let frame = delete_frame(&client, &place, 1);
    let first = client.exchange(&frame);
    assert!(first.is_committed());
    let again = client.exchange(&frame);
    assert!(again.is_committed());
    assert_eq!(all(&mut client, &place).offsets(), [1, 2, 3]);
    node.restart();
    let mut client = client.another();
    assert!(client.exchange(&frame).is_committed());
    assert_eq!(all(&mut client, &place).offsets(), [1, 2, 3]);
    must_delete(&mut client, &place, 1);
    assert_eq!(all(&mut client, &place).offsets(), [2, 3]);
}

/// The answer's op counts as one of metadata with every client: it must not be ahead of what reads can reach.
#[test]
fn answer_of_a_delete_carries_an_op_that_reads_can_wait_for() {
    let node = Node::start(3);
    let mut client = node.client();
    for place in topic(&mut client, "ops", 3, &[]) {
        for _ in 0..20 {
            client.append(&place, &["x"]);
        }
        append_full(&mut client, &place, 2);
        let reply = delete(&mut client, &place, 1);
        let stats = client
            .frame(&GetStats {})
            .with(crate::client::AT_METADATA_OP, &reply.header().commit.0.to_le_bytes());
        client.exchange(&stats).payload();
    }
}

/// S77, S78.
#[test]
fn expired_segments_go_and_the_active_one_stays() {
    let mut node = Node::start_with(2, |config| {
        busy_cleaner(config);
        config.limits.frame_bytes_max = 64 << 20;
    });
    let mut client = node.client();
    let expires = topic(&mut client, "expires", 2, &[("message_expiry", 1_000_000)]).remove(1);
    let stays = topic(&mut client, "stays", 2, &[]).remove(1);
    for place in [&expires, &stays] {
        append_full(&mut client, place, 3);
        client.append(place, &["active"]);
    }
    assert_eq!(all(&mut client, &expires).offsets(), [0, 1, 2, 3], "not before its time");
    eventually("sealed segments expire", || all(&mut client, &expires).offsets() == [3]);
    // A segment whose time comes while the broker is down goes after the start.
    append_full(&mut client, &expires, 2);
    node.restart();
    let mut client = node.client();
    eventually("sealed segments expire after a restart", || all(&mut client, &expires).offsets().is_empty());
    assert_eq!(partition(&mut client, &expires), (1, 5, 0, 0), "everything is gone but the head");
    assert_eq!(client.poll(&expires, Poll::new(Strategy::Last).count(5)).offsets(), [0_u64; 0]);
    assert_eq!(client.append(&expires, &["more"]), 6);
    assert_eq!(all(&mut client, &expires).offsets(), [6]);
    assert_eq!(all(&mut client, &stays).offsets(), [0, 1, 2, 3]);
    assert_eq!(partition(&mut client, &stays).0, 4);
}

/// A consumer that catches up lets an expired segment go, without an append.
#[test]
fn expired_segment_goes_when_its_consumer_has_read_it() {
    let node = Node::start_with(1, |config| {
        busy_cleaner(config);
        config.limits.frame_bytes_max = 64 << 20;
    });
    let mut client = node.client();
    let place = topic(&mut client, "lagging", 1, &[("message_expiry", 100_000)]).remove(0);
    client.append(&place, &["first"]);
    client.store(&place, numbered(1), 0);
    append_full(&mut client, &place, 2);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(all(&mut client, &place).offsets(), [0, 1, 2], "kept for the consumer");
    client.store(&place, numbered(1), 1);
    eventually("the first segment goes", || all(&mut client, &place).offsets() == [2]);
    client.delete_offset(&place, numbered(1)).payload();
    eventually("the second one, too", || all(&mut client, &place).offsets().is_empty());
}

/// Section 8.2: the share of a partition, raised to a segment and a message.
#[test]
fn size_limit_keeps_the_newest_segments_of_each_partition() {
    let node = Node::start_with(2, busy_cleaner);
    let mut client = node.client();
    // Two partitions: 4 MiB each.
    let places = topic(&mut client, "limited", 2, &[("max_topic_size", 8 << 20)]);
    // A share of 1 MiB is raised to a segment and the largest message, 2 MiB.
    let raised = topic(&mut client, "raised", 2, &[("max_topic_size", 2 << 20)]);
    let payload = vec![b'x'; 500_000];
    for place in places.iter().chain(&raised) {
        for _ in 0..30 {
            client.append(place, &[&payload]);
        }
    }
    // Three batches fill a segment of 1,500,912 bytes.
    for place in &places {
        eventually("down to its share", || partition(&mut client, place).2 <= 4 << 20);
        assert_eq!(all(&mut client, place).offsets(), [24, 25, 26, 27, 28, 29], "and no further");
    }
    for place in &raised {
        eventually("down to its share", || partition(&mut client, place).2 <= 2 << 20);
        assert_eq!(all(&mut client, place).offsets(), [27, 28, 29]);
    }
    // With more partitions each has less.
    let (stream, topic) = (Identifier::Name("limited"), Identifier::Name("limited"));
    client.must(&CreatePartitions { stream, topic, partitions_count: 2 });
    for place in &places {
        eventually("a smaller share", || all(&mut client, place).offsets() == [27, 28, 29]);
    }
}

/// Section 8.4, R115, R151: a reader that is parked below the new start, and one that names an offset below it.
#[test]
fn parked_poll_at_a_removed_offset_goes_on_at_the_start() {
    for shards in SHARDS {
        let node = Node::start_with(shards, large_reads);
        let mut client = node.client();
        let place = topic(&mut client, "parked", shards.into(), &[]).remove(usize::from(shards) - 1);
        append_full(&mut client, &place, 3);
        let mut other = client.another();
        let parked = Poll::offset(0).min_count(5).count(MESSAGES_MAX).wait_ms(10_000).max_bytes(60 << 20);
        let frame = other.poll_frame(&place, parked);
        other.send(&frame);
        assert!(other.reply_within(&frame, Duration::from_millis(200)).is_none(), "it waits for five");
        must_delete(&mut client, &place, 2);
        for _ in 0..3 {
            assert!(
                other.reply_within(&frame, Duration::from_millis(50)).is_none(),
                "fewer than five are left"
            );
            client.append(&place, &["more"]);
        }
        client.append(&place, &["more"]);
        let polled = Polled::read(&other.reply_to(&frame), &place);
        assert_eq!(polled.offsets(), [2, 3, 4, 5, 6]);
    }
}

/// A partition that is deleted and made again under a delete of its segments.
#[test]
fn delete_of_segments_never_meets_another_life_of_the_partition() {
    let node = Node::start_with(3, large_reads);
    let mut client = node.client();
    let mut deleter = client.another();
    let places = topic(&mut client, "lives", 3, &[]);
    let (stream, topic) = (Identifier::Name("lives"), Identifier::Name("lives"));
    for _ in 0..10 {
        let place = self::place(&mut client, "lives", "lives", 2);
        append_full(&mut client, &place, 2);
        let frames: Vec<Sent> = (0..4).map(|_| delete_frame(&deleter, &place, 1)).collect();
        let recreate = client.frame(&DeletePartitions { stream, topic, partitions_count: 1 });
        client.send(&recreate);
        frames.iter().for_each(|frame| deleter.send(frame));
        client.reply_to(&recreate).payload();
        client.must(&CreatePartitions { stream, topic, partitions_count: 1 });
        for frame in &frames {
            let outcome = deleter.reply_to(frame).outcome();
            assert!([0, 58, 3007, 3014].contains(&outcome), "{outcome}");
        }
        let again = self::place(&mut client, "lives", "lives", 2);
        assert_ne!(again.incarnation, place.incarnation);
        assert_eq!(client.append(&again, &["first"]), 0);
        assert_eq!(all(&mut client, &again).offsets(), [0]);
        client.must(&DeletePartitions { stream, topic, partitions_count: 1 });
        client.must(&CreatePartitions { stream, topic, partitions_count: 1 });
    }
    drop(places);
}

/// What a stream and the node say, and the same counted again from what readers get.
fn assert_recount(client: &mut Client, stream: &str, topics: &[Vec<Place>]) {
    let body = client.must(&GetStream { stream: Identifier::Name(stream) });
    let details = StreamDetails::read(&mut Reader::new(&body)).expect("a stream");
    let (mut bytes_of_stream, mut messages_of_stream, mut segments) = (0, 0, 0);
    assert_eq!(details.topics.len(), topics.len());
    for (header, places) in details.topics.iter().zip(topics) {
        let (mut bytes_of_topic, mut messages_of_topic) = (0, 0);
        for place in places {
            let polled = all(client, place);
            let messages = polled.messages.len() as u64;
            // One message a batch in these tests.
            let bytes: u64 = polled.messages.iter().map(|each| FRAMING + each.payload.len() as u64).sum();
            let (counted, _, size, count) = partition(client, place);
            assert_eq!((size, count), (bytes, messages), "partition {}", place.partition.0);
            segments += counted;
            bytes_of_topic += bytes;
            messages_of_topic += messages;
        }
        assert_eq!((header.size_bytes, header.messages_count), (bytes_of_topic, messages_of_topic));
        bytes_of_stream += bytes_of_topic;
        messages_of_stream += messages_of_topic;
    }
    let stream = &details.header;
    assert_eq!((stream.size_bytes, stream.messages_count), (bytes_of_stream, messages_of_stream));
    let body = client.must(&GetStats {});
    let stats = Stats::read(&mut Reader::new(&body)).expect("statistics");
    assert_eq!(
        (stats.messages_size_bytes, stats.messages_count, stats.segments_count),
        (bytes_of_stream, messages_of_stream, segments)
    );
}

/// Two topics with 10 and 7 messages: segments of one are deleted, then the other. S86, S101.
#[test]
fn statistics_equal_a_recount_after_deletes() {
    for shards in SHARDS {
        let mut node = Node::start_with(shards, large_reads);
        let mut client = node.client();
        client.create_stream("counts");
        let first = topic_in(&mut client, "counts", "first", 2, &[]);
        let second = topic_in(&mut client, "counts", "second", 2, &[]);
        for number in 0..10 {
            let size = if number % 3 == 0 { 100 } else { 600_000 };
            client.append(&first[number % 2], &[vec![b'a'; size]]);
        }
        for number in 0..7 {
            client.append(&second[number % 2], &[vec![b'b'; 600_000]]);
        }
        let both = [first.clone(), second.clone()];
        assert_recount(&mut client, "counts", &both);
        let before = partition(&mut client, &first[0]);
        must_delete(&mut client, &first[0], 1);
        let after = partition(&mut client, &first[0]);
        assert!(after.0 < before.0 && after.1 == before.1 && after.2 < before.2 && after.3 < before.3);
        assert_recount(&mut client, "counts", &both);
        must_delete(&mut client, &first[1], u32::MAX);
        assert_recount(&mut client, "counts", &both);
        node.restart();
        let mut client = node.client();
        assert_recount(&mut client, "counts", &both);
        client.must(&DeleteTopic { stream: Identifier::Name("counts"), topic: Identifier::Name("second") });
        assert_recount(&mut client, "counts", &both[..1]);
        node.restart();
        assert_recount(&mut node.client(), "counts", &both[..1]);
    }
}

/// Disk space of deleted topics comes back while the broker is idle.
#[test]
fn deleted_topic_gives_its_files_back() {
    let mut node = Node::start_with(2, large_reads);
    let mut client = node.client();
    let places = topic(&mut client, "gone", 2, &[]);
    for place in &places {
        append_full(&mut client, place, 2);
    }
    // To files.
    node.restart();
    let mut client = node.client();
    assert_eq!(files(node.data_dir()).len(), 4);
    client.must(&DeleteTopic { stream: Identifier::Name("gone"), topic: Identifier::Name("gone") });
    eventually("its files are unlinked", || files(node.data_dir()).is_empty());
}

/// S88, S89: what is sent behind a delete never meets what it deletes, and the rest of the stream goes on.
#[test]
fn changes_behind_a_delete_of_their_topic_find_it_gone() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        client.create_stream("busy");
        client.create_topic("busy", "doomed", 60);
        let (stream, doomed) = (Identifier::Name("busy"), Identifier::Name("doomed"));
        let delete = client.frame(&DeleteTopic { stream, topic: doomed });
        let change = client.frame(&CreatePartitions { stream, topic: doomed, partitions_count: 1 });
        let again = client.frame(&DeleteTopic { stream, topic: doomed });
        [&delete, &change, &again].into_iter().for_each(|frame| client.send(frame));
        client.create_topic("busy", "other", 3);
        for frame in [&change, &again] {
            let outcome = client.reply_to(frame).outcome();
            assert!([88, 2010].contains(&outcome), "{outcome}");
        }
        client.reply_to(&delete).payload();
        assert!(client.must(&GetTopic { stream, topic: doomed }).is_empty(), "absent once it is answered");
        client.create_topic("busy", "doomed", 1);
    }
}

/// S29 with its effect: an expiry that is set later counts for what is there, without an append or a restart.
#[test]
fn changed_limits_remove_what_is_there() {
    let node = Node::start_with(2, |config| {
        busy_cleaner(config);
        config.limits.frame_bytes_max = 64 << 20;
    });
    let mut client = node.client();
    let place = topic(&mut client, "later", 2, &[]).remove(1);
    append_full(&mut client, &place, 3);
    client.append(&place, &["active"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(all(&mut client, &place).offsets(), [0, 1, 2, 3]);
    let name = Identifier::Name("later");
    let block = OptionMap::new().with("message_expiry", 100_000_u64).encode().expect("a block");
    let set = Options::parse(&block).expect("a block");
    let target = UpdateTarget::Topic { stream: name, topic: name };
    client.must(&UpdateResource { target, reset: ResetNames::NONE, set });
    eventually("the new expiry counts", || all(&mut client, &place).offsets() == [3]);
}
