//! The worked example of the reference, tampering, and slices against a simple model.

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::ids::{Micros, Offset, PartitionId};
use crate::options::{Value, put_user_header};

const ORIGIN: u64 = 1_700_000_000_000_000;

/// The batch of section 4.6: `hello` with the header k=v, and `hi` 250 microseconds later.
fn example() -> BatchBuilder {
    let mut headers = BytesMut::new();
    put_user_header(&mut headers, Value::text("k"), Value::text("v")).expect("short");
    let mut builder = BatchBuilder::new();
    builder.push(1, Micros(ORIGIN), b"hello", &headers).expect("fits");
    builder.push(2, Micros(ORIGIN + 250), b"hi", b"").expect("fits");
    builder
}

fn example_bytes() -> Vec<u8> {
    example().finish().expect("two messages").to_vec()
}

fn stamped_example() -> Vec<u8> {
    let mut batch = example_bytes();
    stamp(&mut batch, PartitionId(0), Offset(100), Micros(ORIGIN + 900)).expect("valid");
    batch
}

/// A batch of messages of the given payload sizes.
fn batch_of(sizes: &[usize]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (index, size) in sizes.iter().enumerate() {
        let headers = vec![7; size % 5];
        builder
            .push(index as u128, Micros(ORIGIN + index as u64), &vec![index as u8; *size], &headers)
            .expect("fits");
    }
    builder.finish().expect("not empty").to_vec()
}

/// Sets the checksums of a batch that a test has tampered with.
fn seal(batch: &mut [u8]) {
    let mut position = BATCH_HEADER_BYTES;
    while position + MESSAGE_HEADER_BYTES <= batch.len() {
        let frame = &batch[position..];
        let len = MESSAGE_HEADER_BYTES + (u32_at(frame, 32) + u32_at(frame, 36)) as usize;
        let Some(frame) = batch.get_mut(position..position + len) else { break };
        let checksum = checksum::of_message(frame);
        frame[..8].copy_from_slice(&checksum.to_le_bytes());
        position += len;
    }
    seal_header(batch);
}

fn seal_header(batch: &mut [u8]) {
    let Ok(view) = Batch::parse(batch) else { return };
    let Ok(checksum) = verify::checksum_of(&view.header, view.messages()) else { return };
    batch[40..48].copy_from_slice(&checksum.to_le_bytes());
}

fn check(batch: &[u8], expected: Status) {
    let error = verify_producer_batch(batch, 2).expect_err("tampered");
    assert_eq!(error.status(), expected, "{error}");
}

#[test]
fn example_of_the_reference_has_its_checksums() {
    let batch = example_bytes();
    assert_eq!(batch.len(), 371);
    let summary = verify_producer_batch(&batch, 2).expect("valid");
    assert_eq!((summary.message_count, summary.bytes, summary.payload_bytes), (2, 371, 7));
    assert_eq!(Batch::parse(&batch).expect("valid").header.batch_checksum, 0xb09e_5321_d1ba_5159);
    let stamped = stamped_example();
    assert_eq!(verify_stored(&stamped).expect("valid").header.batch_checksum, 0xd1a9_719d_faa1_115d);
    let slice = slice(&stamped, Offset(101), 10, usize::MAX).expect("one message");
    assert_eq!((slice.count, slice.first_offset, slice.range.clone()), (1, Offset(101), 321..371));
    assert_eq!(BatchHeader::parse(&slice.header).expect("valid").batch_checksum, 0x6816_c399_3f9b_3f6c);
}

#[test]
fn producer_section_of_the_reference_verifies_and_goes_when_stamped() {
    let producer = ProducerSection { producer_id: 4711 << 20, epoch: 0, base_sequence: 0 };
    let mut builder = example();
    builder.producer(producer).expect("valid");
    let mut batch = builder.finish().expect("two messages").to_vec();
    let row = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x70, 0x26, 1, 0, 0, 0];
    assert_eq!(batch[0x30..0x40], row);
    assert_eq!(batch[40..48], [0xc6, 0x20, 0x4b, 0x4c, 0x43, 0x11, 0xe4, 0x06]);
    assert_eq!(verify_producer_batch(&batch, 2).expect("valid").producer, Some(producer));
    assert_eq!(verify_stored(&batch).err(), Some(BatchError::Producer));
    let section = stamp(&mut batch, PartitionId(0), Offset(100), Micros(ORIGIN + 900));
    assert_eq!(section, Ok(Some(producer)));
    assert_eq!(batch, stamped_example(), "nothing of the section is left");
}

#[test]
fn producer_sections_out_of_range_are_refused() {
    let valid = ProducerSection { producer_id: 5, epoch: 3, base_sequence: SEQUENCES - 1 };
    assert_eq!(valid.next_sequence(1), 0);
    assert_eq!(valid.next_sequence(u32::MAX), (SEQUENCES - 1 + (u32::MAX - SEQUENCES)) % SEQUENCES);
    for bad in [
        ProducerSection { producer_id: 1 << 63, ..valid },
        ProducerSection { epoch: 1 << 15, ..valid },
        ProducerSection { base_sequence: SEQUENCES, ..valid },
    ] {
        assert_eq!(example().producer(bad), Err(BuildError::Producer));
        let header =
            BatchHeader { producer: Some(bad), ..Batch::parse(&example_bytes()).expect("valid").header };
        assert_eq!(BatchHeader::parse(&header.encode()), Err(BatchError::Producer));
    }
    for (at, value) in [(52, 2), (53, 1), (55, 1), (56, 1), (66, 1), (71, 1)] {
        let mut batch = example_bytes();
        batch[at] = value;
        check(&batch, Status::InvalidCommand);
    }
}

#[test]
fn every_kind_of_damage_has_its_status() {
    let valid = example_bytes();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut batch = valid.clone();
        change(&mut batch);
        batch
    };
    let resealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut batch = with(change);
        seal(&mut batch);
        batch
    };
    assert_eq!(verify_producer_batch(&valid, 3).expect_err("count").status(), Status::InvalidMessagesCount);
    check(&with(&|batch| batch[48] = 0), Status::InvalidMessagesCount);
    check(&with(&|batch| batch[40] ^= 1), Status::InvalidBatchChecksum);
    check(&with(&|batch| batch[24] ^= 1), Status::InvalidBatchChecksum);
    check(&with(&|batch| batch[256] ^= 1), Status::InvalidMessageChecksum);
    check(&with(&|batch| batch[304] ^= 1), Status::InvalidMessageChecksum);
    check(&with(&|batch| *batch.last_mut().expect("not empty") ^= 1), Status::InvalidMessageChecksum);
    check(&with(&|batch| batch.push(0)), Status::InvalidCommand);
    check(&with(&|batch| batch.truncate(370)), Status::InvalidCommand);
    check(&with(&|batch| batch[72] = 1), Status::InvalidCommand);
    check(&with(&|batch| batch[255] = 1), Status::InvalidCommand);
    check(&with(&|batch| batch[32..40].copy_from_slice(&255u64.to_le_bytes())), Status::InvalidCommand);
    check(&with(&|batch| batch[32..40].fill(0xff)), Status::InvalidCommand);
    // Everything below carries correct checksums, so that the rule itself is what refuses it.
    check(&resealed(&|batch| batch[256 + 40] = 1), Status::InvalidCommand);
    check(&resealed(&|batch| batch[256 + 24] = 1), Status::InvalidCommand);
    check(&resealed(&|batch| batch[321 + 24] = 2), Status::InvalidCommand);
    check(&resealed(&|batch| batch[321 + 36] = 3), Status::InvalidCommand);
    check(
        &with(&|batch| batch[321 + 32..321 + 36].copy_from_slice(&100_001u32.to_le_bytes())),
        Status::TooBigUserHeaders,
    );
    check(
        &with(&|batch| batch[321 + 36..321 + 40].copy_from_slice(&64_000_001u32.to_le_bytes())),
        Status::TooBigMessagePayload,
    );
    let empty_payload = resealed(&|batch| {
        batch.truncate(321 + 48);
        batch[321 + 36] = 0;
        let length = batch.len() as u64;
        batch[32..40].copy_from_slice(&length.to_le_bytes());
    });
    check(&empty_payload, Status::EmptyMessagePayload);
    // A third message that the count does not know, and a count that the frames do not reach.
    let mut three = batch_of(&[3, 4, 5]);
    three[48] = 2;
    seal(&mut three);
    check(&three, Status::InvalidCommand);
    let mut one = batch_of(&[3]);
    one[48] = 2;
    seal(&mut one);
    check(&one, Status::InvalidCommand);
}

#[test]
fn builder_refuses_what_the_broker_would_refuse() {
    let mut builder = BatchBuilder::new();
    assert_eq!(builder.push(1, Micros(1), b"", b""), Err(BuildError::EmptyPayload));
    let headers = vec![0; USER_HEADERS_BYTES_MAX + 1];
    assert_eq!(
        builder.push(1, Micros(1), b"x", &headers),
        Err(BuildError::UserHeadersTooLarge { bytes: USER_HEADERS_BYTES_MAX + 1 })
    );
    let payload = vec![0; PAYLOAD_BYTES_MAX + 1];
    assert!(matches!(builder.push(1, Micros(1), &payload, b""), Err(BuildError::PayloadTooLarge { .. })));
    assert_eq!(builder.message_count(), 0);
    assert_eq!(builder.finish().expect_err("empty"), BuildError::EmptyBatch);
    let mut builder = BatchBuilder::new();
    builder.push(1, Micros(0), b"x", b"").expect("fits");
    builder.push(1, Micros(1 << 32), b"x", b"").expect("fits");
    assert_eq!(builder.finish().expect_err("span"), BuildError::TimestampSpan);
}

#[test]
fn a_message_at_both_limits_passes() {
    let payload = vec![1; PAYLOAD_BYTES_MAX];
    let mut builder = BatchBuilder::new();
    builder.push(1, Micros(ORIGIN), &payload, &vec![0; USER_HEADERS_BYTES_MAX]).expect("at the limit");
    assert_eq!(builder.push(2, Micros(ORIGIN), &payload, b""), Err(BuildError::BatchTooLarge));
    let batch = builder.finish().expect("one message");
    assert_eq!(batch.len(), RECORD_BYTES_MAX);
    verify_producer_batch(&batch, 1).expect("valid");
}

#[test]
fn earliest_time_is_the_origin_whatever_the_order() {
    let mut builder = BatchBuilder::new();
    for time in [50, 20, 90] {
        builder.push(0, Micros(time), b"x", b"").expect("fits");
    }
    let bytes = builder.finish().expect("three messages");
    let batch = Batch::parse(&bytes).expect("valid");
    let times: Vec<u64> =
        batch.messages().map(|message| batch.origin_timestamp_of(&message.expect("valid")).0).collect();
    assert_eq!((batch.header.origin_timestamp, times), (Micros(20), vec![50, 20, 90]));
    verify_producer_batch(&bytes, 3).expect("valid");
}

#[test]
fn records_stop_at_the_first_broken_one() {
    let stamped = stamped_example();
    let two = [&stamped[..], &stamped[..]].concat();
    assert_eq!(records(&two).filter(Result::is_ok).count(), 2);
    let mut torn = records(&two[..two.len() - 1]);
    assert!(torn.next().expect("first").is_ok());
    assert!(torn.next().expect("torn").is_err());
    assert_eq!(torn.next_at(), stamped.len());
    assert!(torn.next().is_none());
    assert!(frames(&stamped).expect("valid").all(|frame| frame.is_ok()));
}

#[test]
fn a_large_batch_hashes_as_a_small_one() {
    // More messages than the checksum gathers before it turns to the streaming state.
    for messages in [100, 121, 122, 400] {
        let batch = batch_of(&vec![3; messages]);
        let mut input = batch[..40].to_vec();
        input.extend_from_slice(&batch[48..52]);
        for frame in frames(&batch).expect("valid") {
            input.extend_from_slice(&frame.expect("valid").1.checksum.to_le_bytes());
        }
        assert_eq!(u64_at(&batch, 40), xxhash_rust::xxh3::xxh3_64(&input), "{messages}");
    }
}

#[test]
fn a_slice_fills_its_byte_limit_exactly() {
    let batch = batch_of(&[10, 20, 30]);
    let second = frames(&batch).expect("valid").nth(1).expect("three").expect("valid").0;
    let count = |limit| slice(&batch, Offset(0), 3, limit).map_or(0, |slice| slice.count);
    assert_eq!([second.end - 1, second.end, batch.len() - 1, batch.len()].map(count), [1, 2, 2, 3]);
    assert_eq!([0, BATCH_HEADER_BYTES, second.start - 1, second.start].map(count), [0, 0, 0, 1]);
}

#[test]
fn a_slice_of_a_slice_is_a_slice_of_the_batch() {
    let mut batch = batch_of(&[10, 20, 30, 40]);
    stamp(&mut batch, PartitionId(3), Offset(50), Micros(9)).expect("valid");
    let outer = slice(&batch, Offset(51), 3, usize::MAX).expect("three");
    let record = [&outer.header[..], &batch[outer.range]].concat();
    let inner = slice(&record, Offset(52), 1, usize::MAX).expect("one");
    let direct = slice(&batch, Offset(52), 1, usize::MAX).expect("one");
    assert_eq!(inner.header, direct.header);
    assert_eq!(record[inner.range], batch[direct.range]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn slices_serve_what_a_model_selects(
        sizes in prop::collection::vec(1usize..300, 1..20),
        base in 0u64..1_000,
        first in 0u64..1_030,
        count in 0u32..25,
        limit in prop_oneof![Just(usize::MAX), 0usize..4_000],
    ) {
        let mut batch = batch_of(&sizes);
        prop_assert_eq!(stamp(&mut batch, PartitionId(7), Offset(base), Micros(5)), Ok(None));
        let all: Vec<_> = frames(&batch).expect("valid").map(|frame| frame.expect("valid")).collect();
        let mut bytes = BATCH_HEADER_BYTES;
        let selected: Vec<_> = all
            .iter()
            .filter(|(_, message)| base + u64::from(message.offset_delta) >= first)
            .take(count as usize)
            .take_while(|(range, _)| { bytes += range.len(); bytes <= limit })
            .collect();
        let sliced = slice(&batch, Offset(first), count, limit);
        prop_assert_eq!(sliced.is_some(), !selected.is_empty());
        if let Some(sliced) = sliced {
            prop_assert_eq!(sliced.range.clone(), selected[0].0.start..selected.last().expect("some").0.end);
            prop_assert_eq!(sliced.count as usize, selected.len());
            prop_assert_eq!(sliced.first_offset.0, base + u64::from(selected[0].1.offset_delta));
            prop_assert!(sliced.bytes() <= limit);
            let mut record = [&sliced.header[..], &batch[sliced.range]].concat();
            let served = Batch::parse_exact(&record).expect("a record").header;
            prop_assert_eq!((served.partition_id, served.base_offset, served.base_timestamp), (7, Offset(base), Micros(5)));
            let before = record.clone();
            seal_header(&mut record);
            prop_assert_eq!(before, record, "the checksum is right");
        }
    }

    #[test]
    fn no_single_flipped_byte_passes(sizes in prop::collection::vec(1usize..60, 1..5), at: prop::sample::Index, flip in 1u8..) {
        let mut batch = batch_of(&sizes);
        let at = at.index(batch.len());
        batch[at] ^= flip;
        prop_assert!(verify_producer_batch(&batch, sizes.len() as u32).is_err(), "byte {}", at);
        prop_assert!(verify_stored(&batch).is_err(), "byte {}", at);
    }

    #[test]
    fn no_truncation_passes(sizes in prop::collection::vec(1usize..60, 1..5), end: prop::sample::Index) {
        let batch = batch_of(&sizes);
        let cut = &batch[..end.index(batch.len())];
        prop_assert!(verify_producer_batch(cut, sizes.len() as u32).is_err());
        prop_assert!(verify_stored(cut).is_err());
        prop_assert_eq!(stamp(&mut cut.to_vec(), PartitionId(0), Offset(0), Micros(0)).is_err(), true);
    }
}

#[test]
fn a_rewritten_record_is_valid_and_goes_back_to_the_same_bytes() {
    let lengths = |message: &Message<'_>, more: isize| BodyLengths {
        payload: (message.payload.len() as isize + more) as u32,
        user_headers: message.user_headers.len() as u32,
    };
    let mut producer = example();
    producer.producer(ProducerSection { producer_id: 5, epoch: 1, base_sequence: 9 }).expect("valid");
    let producer = producer.finish().expect("two messages");
    for original in [stamped_example(), producer.to_vec()] {
        let mut longer = BytesMut::from(&b"before"[..]);
        let record = Batch::parse_exact(&original).expect("valid");
        let written = rewrite::<BatchError>(&record, &mut longer, |message, out| {
            out.extend_from_slice(b"+28");
            out.extend_from_slice(&message.bytes[MESSAGE_HEADER_BYTES..]);
            Ok(lengths(message, 3))
        })
        .expect("valid");
        let longer = &longer[6..];
        assert_eq!((written, longer.len()), (longer.len(), original.len() + 6));
        let record = Batch::parse_exact(longer).expect("valid");
        verify_producer_batch(longer, 2).expect("checksums are made anew");
        let mut back = BytesMut::new();
        rewrite::<BatchError>(&record, &mut back, |message, out| {
            out.extend_from_slice(&message.bytes[MESSAGE_HEADER_BYTES + 3..]);
            Ok(lengths(message, -3))
        })
        .expect("valid");
        assert_eq!(back, original);
    }
}

#[test]
fn a_sealed_payload_may_be_stored_above_the_limit_and_not_sent() {
    let mut builder = BatchBuilder::new();
    builder.push(1, Micros(ORIGIN), &vec![1; PAYLOAD_BYTES_MAX], b"").expect("fits");
    let sent = builder.finish().expect("one message");
    let record = Batch::parse_exact(&sent).expect("valid");
    for (more, stored) in [(SEAL_BYTES_MAX, true), (SEAL_BYTES_MAX + 1, false)] {
        let mut sealed = BytesMut::new();
        let rewritten = rewrite::<BatchError>(&record, &mut sealed, |message, out| {
            out.extend_from_slice(message.payload);
            out.resize(out.len() + more, 0);
            Ok(BodyLengths { payload: (message.payload.len() + more) as u32, user_headers: 0 })
        });
        let too_large = |error| matches!(error, BatchError::PayloadTooLarge { index: 0, .. });
        match stored {
            true => {
                assert!(verify_stored(&sealed).is_ok());
                assert!(too_large(verify_producer_batch(&sealed, 1).unwrap_err()));
            }
            false => assert!(too_large(rewritten.unwrap_err())),
        }
    }
}
