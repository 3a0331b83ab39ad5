//! Idempotent producers of 0.12.2. Source: wire protocol, section 9.

use laneway_wire::Partitioning;
use laneway_wire::batch::ProducerSection;

use crate::client::{Client, Place};
use crate::messages::{Poll, batch, confirmed};
use crate::node::{Node, SHARDS};

fn section(epoch: u16, base_sequence: u32) -> ProducerSection {
    ProducerSection { producer_id: 4711 << 20, epoch, base_sequence }
}

/// Sends with a new request number and gives the status, and the base offset of a success.
#[track_caller]
fn produce(
    client: &mut Client,
    place: &Place,
    payloads: &[&str],
    section: ProducerSection,
) -> Result<u64, u32> {
    let sent = client.produce_frame(place, payloads, section);
    let reply = client.exchange(&sent);
    match reply.status() {
        0 => Ok(confirmed(&reply, place)),
        status => {
            reply.assert_refused(status);
            Err(status)
        }
    }
}

#[test]
fn sequence_is_stored_once() {
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut client = node.client();
        let mut other = node.client();
        for place in client.topic("sequence", 2) {
            assert_eq!(produce(&mut client, &place, &["a", "b"], section(0, 0)), Ok(0));
            assert_eq!(produce(&mut client, &place, &["c"], section(0, 2)), Ok(2));
            assert_eq!(produce(&mut client, &place, &["a", "b"], section(0, 0)), Ok(0), "a duplicate");
            assert_eq!(produce(&mut other, &place, &["c"], section(0, 2)), Ok(2), "from another session");
            assert_eq!(produce(&mut client, &place, &["e"], section(0, 4)), Err(92), "a gap");
            assert_eq!(produce(&mut client, &place, &["d"], section(0, 3)), Ok(3));
            assert_eq!(client.poll(&place, Poll::offset(0)).payloads(), ["a", "b", "c", "d"]);
        }
        node.restart();
        let mut client = client.another();
        let place = client.route("sequence", 1);
        assert_eq!(produce(&mut client, &place, &["d"], section(0, 3)), Ok(3), "after a restart");
        assert_eq!(produce(&mut client, &place, &["e"], section(0, 4)), Ok(4));
    }
}

#[test]
fn newer_epoch_fences_the_older() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("epochs", 1).remove(0);
    assert_eq!(produce(&mut client, &place, &["a"], section(3, 0)), Ok(0));
    assert_eq!(produce(&mut client, &place, &["b"], section(4, 0)), Ok(1));
    assert_eq!(produce(&mut client, &place, &["c"], section(3, 1)), Err(93));
    assert_eq!(produce(&mut client, &place, &["a"], section(3, 0)), Err(93), "even what is a duplicate");
    assert_eq!(produce(&mut client, &place, &["c"], section(4, 1)), Ok(2));
    assert_eq!(client.poll(&place, Poll::offset(0)).payloads(), ["a", "b", "c"]);
}

#[test]
fn unknown_producer_starts_at_zero() {
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("unknown", 1).remove(0);
    assert_eq!(produce(&mut client, &place, &["x"], section(0, 1)), Err(94));
    assert_eq!(produce(&mut client, &place, &["x"], section(0, 0)), Ok(0));
    assert_eq!(client.poll(&place, Poll::offset(0)).offsets(), [0]);
}

#[test]
fn sections_out_of_range_are_refused() {
    let node = Node::start(1);
    let mut client = node.client();
    let place = client.topic("ranges", 1).remove(0);
    let partitioning = Partitioning::Partition(place.partition);
    let good = batch(&["x"], Some(section(0, 0)));
    let cases: [(usize, Vec<u8>); 6] = [
        (52, vec![2]),
        (53, vec![1]),
        (56, (1u64 << 63).to_le_bytes().to_vec()),
        (64, 0x8000u16.to_le_bytes().to_vec()),
        (66, vec![1]),
        (68, (1u32 << 31).to_le_bytes().to_vec()),
    ];
    for (at, bytes) in cases {
        let mut batch = good.clone();
        batch[at..at + bytes.len()].copy_from_slice(&bytes);
        let sent = client.send_frame_of(&place, partitioning, 1, &batch);
        assert_eq!(client.exchange(&sent).status(), 3, "bytes at {at}");
    }
    // The section is under the batch checksum.
    let mut batch = good.clone();
    batch[68..72].copy_from_slice(&1u32.to_le_bytes());
    let sent = client.send_frame_of(&place, partitioning, 1, &batch);
    assert_eq!(client.exchange(&sent).status(), 4039);
    let sent = client.send_frame_of(&place, partitioning, 1, &good);
    assert_eq!(client.exchange(&sent).status(), 0);
}

#[test]
fn served_batches_carry_no_section() {
    // `Polled::read` asserts that bytes 52 to 256 of every record are zero and that its checksum holds.
    let node = Node::start(2);
    let mut client = node.client();
    let place = client.topic("stripped", 1).remove(0);
    assert_eq!(produce(&mut client, &place, &["a", "b", "c"], section(0, 0)), Ok(0));
    assert_eq!(client.poll(&place, Poll::offset(0)).payloads(), ["a", "b", "c"]);
    assert_eq!(client.poll(&place, Poll::offset(1).count(1)).payloads(), ["b"], "a slice");
}

#[test]
fn batches_without_a_section_stand_beside_a_sequence() {
    let node = Node::start(1);
    let mut client = node.client();
    let place = client.topic("mixed", 1).remove(0);
    assert_eq!(produce(&mut client, &place, &["a"], section(0, 0)), Ok(0));
    assert_eq!(client.append(&place, &["b"]), 1);
    assert_eq!(produce(&mut client, &place, &["c"], section(0, 1)), Ok(2));
    assert_eq!(produce(&mut client, &place, &["a"], section(0, 0)), Ok(0));
}
