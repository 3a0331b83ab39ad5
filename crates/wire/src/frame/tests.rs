//! Copies nothing in steady traffic, copies little otherwise, refuses what is no frame.

use bytes::BufMut;
use proptest::prelude::*;

use super::*;
use crate::ids::{ClientId, RequestNumber};
use crate::operation::Operation;

fn frame(size: usize, number: u64) -> Vec<u8> {
    let mut header = RequestHeader::new(Operation::NonReplicated, ClientId(1), size - HEADER_BYTES);
    header.request = RequestNumber(number);
    let mut bytes = header.encode().to_vec();
    bytes.extend((HEADER_BYTES..size).map(|at| (at as u64 ^ number) as u8));
    bytes
}

/// Feeds `stream` as a socket would: each read brings at most the hint, and at most `read_max`.
fn receive(decoder: &mut FrameDecoder, mut stream: &[u8], read_max: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        while let Some(frame) = decoder.poll_frame().expect("valid frames") {
            frames.push(frame);
        }
        if stream.is_empty() {
            return frames;
        }
        let received = decoder.spare_hint().min(read_max).min(stream.len());
        let buffer = decoder.take_buffer();
        assert!(buffer.capacity() - buffer.len() >= received, "the hint promises room");
        let mut buffer = buffer;
        buffer.put_slice(&stream[..received]);
        stream = &stream[received..];
        decoder.put_buffer(buffer);
    }
}

fn check(sizes: &[usize], read_max: usize) -> FrameDecoder {
    let mut decoder = FrameDecoder::new();
    let stream: Vec<u8> =
        sizes.iter().enumerate().flat_map(|(number, size)| frame(*size, number as u64)).collect();
    let frames = receive(&mut decoder, &stream, read_max);
    assert_eq!(frames.len(), sizes.len());
    for (number, (received, size)) in frames.iter().zip(sizes).enumerate() {
        let sent = frame(*size, number as u64);
        assert_eq!(received.header.request, RequestNumber(number as u64));
        assert_eq!(received.bytes, *size);
        assert_eq!(&received.body[..], &sent[HEADER_BYTES..]);
    }
    assert_eq!(decoder.pending_bytes(), 0);
    decoder
}

/// A send with `metadata` bytes before its batch.
fn send(metadata: usize, batch: usize) -> Vec<u8> {
    let header = RequestHeader::new(Operation::SendMessages, ClientId(1), 4 + metadata + batch);
    let mut bytes = header.encode().to_vec();
    bytes.put_u32_le(metadata as u32);
    bytes.resize(bytes.len() + metadata, 1);
    bytes.extend((0..batch).map(|at| at as u8));
    bytes
}

#[test]
fn large_batches_lie_at_a_block_and_move_only_when_that_changes() {
    for read_max in [usize::MAX, 100_000, 3_001] {
        let mut decoder = FrameDecoder::new();
        let mut copied = 0;
        for (round, (metadata, batch)) in
            [(40, 1_000_000), (40, 1_000_000), (40, 900_000), (77, 1_000_000), (77, 500_000), (9, 100_000)]
                .into_iter()
                .enumerate()
        {
            let stream = send(metadata, batch);
            let mut frames = receive(&mut decoder, &stream, read_max);
            let mut body = frames.pop().expect("one frame").body;
            assert_eq!(&body[..], &stream[HEADER_BYTES..]);
            body.advance(4 + metadata);
            assert_eq!(body.as_ptr().align_offset(BLOCK_BYTES), 0, "round {round}, reads of {read_max}");
            let moved = decoder.copied_bytes() - copied;
            copied = decoder.copied_bytes();
            let steady = matches!(round, 1 | 2);
            // A small frame in a large buffer moves because of its size.
            assert!(moved <= if steady { 0 } else { READ_AHEAD_BYTES as u64 }, "round {round}: {moved}");
        }
    }
}

#[test]
fn send_that_lies_about_its_metadata_is_taken_as_it_is() {
    for claimed in [0, 5_000, u32::MAX] {
        let mut stream = send(10, 100_000);
        stream[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&claimed.to_le_bytes());
        let mut decoder = FrameDecoder::new();
        let frames = receive(&mut decoder, &[&stream[..], &stream[..]].concat(), 10_000);
        assert!(frames.len() == 2 && frames.iter().all(|frame| frame.body == stream[HEADER_BYTES..]));
    }
}

#[test]
fn steady_large_frames_copy_nothing_after_the_first() {
    for size in [100_000, 1 << 20, (4 << 20) + 13] {
        let mut decoder = FrameDecoder::new();
        receive(&mut decoder, &frame(size, 0), usize::MAX);
        let first = decoder.copied_bytes();
        assert!(first <= READ_AHEAD_BYTES as u64, "{first}");
        for number in 1..20 {
            // The frame is dropped at once in one round and kept in the next: both must find memory without moving.
            let mut kept =
                receive(&mut decoder, &[frame(size, number), frame(size, number)].concat(), 300_000);
            kept.pop();
            receive(&mut decoder, &frame(size, number), usize::MAX);
        }
        assert_eq!(decoder.copied_bytes(), first, "{size}");
    }
}

#[test]
fn steady_lone_small_frames_copy_nothing() {
    let mut decoder = FrameDecoder::new();
    for number in 0..5_000 {
        assert_eq!(receive(&mut decoder, &frame(656, number), usize::MAX).len(), 1);
    }
    assert!(decoder.copied_bytes() <= 656, "{}", decoder.copied_bytes());
}

#[test]
fn a_growing_frame_moves_at_most_the_read_ahead() {
    for read_max in [1_000, 70_000, usize::MAX] {
        let decoder = check(&[300, 50 << 20], read_max);
        assert!(decoder.copied_bytes() <= READ_AHEAD_BYTES as u64);
        // Also when a buffer that is large already could take more than that before the header is known.
        let decoder = check(&[1 << 20, 4 << 20], read_max);
        assert!(decoder.copied_bytes() <= 2 * READ_AHEAD_BYTES as u64);
    }
}

#[test]
fn many_small_frames_arrive_in_one_read() {
    let mut decoder = FrameDecoder::new();
    let stream: Vec<u8> = (0..30).flat_map(|number| frame(300, number)).collect();
    assert!(decoder.spare_hint() >= stream.len());
    decoder.buffer().extend_from_slice(&stream);
    let mut count = 0;
    while decoder.poll_frame().expect("valid").is_some() {
        count += 1;
    }
    assert_eq!(count, 30);
    assert_eq!(decoder.copied_bytes(), 0);
}

#[test]
fn a_small_frame_does_not_keep_a_large_buffer() {
    let mut decoder = FrameDecoder::new();
    receive(&mut decoder, &frame(1 << 20, 0), usize::MAX);
    let before = decoder.copied_bytes();
    let kept = receive(&mut decoder, &frame(1_000, 1), usize::MAX).pop().expect("one frame");
    assert_eq!(kept.body.len(), 744);
    assert_eq!(decoder.copied_bytes(), before + 744, "the body moved to memory of its own");
    // The large buffer is still whole: the next large frame needs no new one and moves nothing.
    let before = decoder.copied_bytes();
    receive(&mut decoder, &frame(1 << 20, 2), usize::MAX);
    assert_eq!(decoder.copied_bytes(), before);
}

#[test]
fn the_memory_of_a_large_frame_fades() {
    let mut decoder = FrameDecoder::new();
    receive(&mut decoder, &frame(4 << 20, 0), usize::MAX);
    assert!(decoder.buffer().capacity() >= 4 << 20);
    for number in 0..200 {
        receive(&mut decoder, &frame(300, number), usize::MAX);
    }
    assert!(decoder.buffer().capacity() <= CHUNK_BYTES);
}

#[test]
fn sizes_out_of_range_and_foreign_commands_end_the_stream() {
    for size in [0u32, 255, FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
        let mut bytes = frame(256, 0);
        bytes[SIZE_AT..SIZE_AT + 4].copy_from_slice(&size.to_le_bytes());
        let mut decoder = FrameDecoder::new();
        decoder.buffer().extend_from_slice(&bytes[..52]);
        assert_eq!(decoder.poll_frame().expect_err("size"), FrameError::Size { size, max: FRAME_BYTES_MAX });
    }
    for command in [0, 1, 8, 13, 255] {
        let mut bytes = frame(256, 0);
        bytes[COMMAND_AT] = command;
        let mut decoder = FrameDecoder::new();
        decoder.buffer().extend_from_slice(&bytes);
        assert_eq!(decoder.poll_frame().expect_err("command"), FrameError::Command { command });
    }
    let mut decoder = FrameDecoder::with_limit(1_000);
    decoder.buffer().extend_from_slice(&frame(1_001, 0)[..256]);
    assert!(decoder.poll_frame().is_err());
}

#[test]
fn the_largest_frame_is_accepted() {
    let decoder = check(&[FRAME_BYTES_MAX], usize::MAX);
    assert!(decoder.copied_bytes() <= READ_AHEAD_BYTES as u64);
}

#[test]
fn replies_and_evictions_come_out_for_clients() {
    let request = RequestHeader::new(Operation::NonReplicated, ClientId(9), 0);
    let mut stream = ReplyHeader::to(&request, 3).encode().to_vec();
    stream.extend_from_slice(b"abc");
    let eviction = Eviction::new(ClientId(9), crate::header::EvictionReason::StaleClient);
    stream.extend_from_slice(&eviction.encode());
    let mut decoder = FrameDecoder::new();
    decoder.buffer().extend_from_slice(&stream);
    let Ok(Some(ServerFrame::Reply { header, body })) = decoder.poll_server_frame() else {
        panic!("a reply comes first");
    };
    assert_eq!((header.client, &body[..]), (ClientId(9), &b"abc"[..]));
    let Ok(Some(ServerFrame::Eviction(received))) = decoder.poll_server_frame() else {
        panic!("then the eviction");
    };
    assert_eq!(received, eviction);
    assert!(decoder.poll_server_frame().expect("nothing left").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_split_of_any_frames_gives_the_same_frames(
        sizes in prop::collection::vec(prop_oneof![256usize..2_000, 10_000usize..40_000, 60_000usize..300_000], 1..40),
        read_max in prop_oneof![1usize..64, 256usize..20_000, Just(usize::MAX)],
    ) {
        let sizes = if read_max < 64 { &sizes[..sizes.len().min(3)] } else { &sizes[..] };
        let decoder = check(sizes, read_max);
        // A frame moves its first part at most once, and is copied out only when it is small.
        prop_assert!(decoder.copied_bytes() <= (2 * READ_AHEAD_BYTES * sizes.len()) as u64);
    }
}

#[test]
fn small_frames_that_come_one_at_a_time_and_are_kept_share_chunks() {
    const FRAMES: usize = 1000;
    let mut decoder = FrameDecoder::new();
    let mut kept = Vec::new();
    let mut chunks = 0;
    let mut chunk_end = std::ptr::null::<u8>();
    for number in 0..FRAMES {
        let bytes = frame(HEADER_BYTES + 400, number as u64);
        assert!(decoder.spare_hint() >= 1);
        let mut sent = 0;
        while sent < bytes.len() {
            let step = decoder.spare_hint().min(bytes.len() - sent);
            let mut buffer = decoder.take_buffer();
            if sent == 0 && buffer.as_ptr() != chunk_end {
                chunks += 1;
            }
            buffer.extend_from_slice(&bytes[sent..sent + step]);
            sent += step;
            decoder.put_buffer(buffer);
        }
        let frame = decoder.poll_frame().unwrap().unwrap();
        assert_eq!(frame.body.len(), 400);
        chunk_end = frame.body.as_ptr_range().end;
        kept.push(frame.body);
    }
    assert_eq!(decoder.copied_bytes(), 0);
    let per_chunk = CHUNK_BYTES / (HEADER_BYTES + 400);
    assert!(chunks <= FRAMES.div_ceil(per_chunk) + 1, "{chunks} chunks for {FRAMES} kept frames");
}
