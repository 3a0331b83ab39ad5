//! A short, deterministic fuzz run over every entry point that takes bytes: random bytes, golden bytes with random
//! damage, and golden frames spliced together. The fuzz targets run the same functions without an end.

mod common;

use common::{recode, samples};

/// A small generator, so that the run is the same everywhere (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Flips, overwrites, cuts, repeats or removes a few bytes.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 2, 4, 0x7f, 0x80, 0xff][random.below(7)],
            2 => bytes.truncate(at),
            3 => {
                let end = (at + random.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + 1 + random.below(64)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                bytes[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8);
            }
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(1);
    for _ in 0..3_000 {
        let len = random.below(400);
        // Small bytes find more kinds, counts and lengths than uniform ones.
        let mask = [0xff, 0x0f, 0x03][random.below(3)];
        let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8 & mask).collect();
        recode::everything(&bytes);
    }
}

#[test]
fn damaged_frames_and_bodies_never_panic() {
    let mut random = Random(2);
    let samples = samples::all();
    for round in 0..6_000 {
        let sample = &samples[round % samples.len()];
        let mut bytes = sample.bytes.clone();
        if random.below(3) != 0 && bytes.len() > 256 {
            bytes.drain(..256);
        }
        damage(&mut bytes, &mut random);
        if let Ok(once) = sample.recode(&bytes) {
            assert_eq!(sample.recode(&once).as_ref(), Ok(&once), "{}", sample.name);
        }
        if round % 4 == 0 {
            recode::everything(&bytes);
        }
    }
}

#[test]
fn damaged_streams_never_panic_and_end_or_wait() {
    let mut random = Random(3);
    let samples = samples::all();
    for _ in 0..2_000 {
        let mut stream = Vec::new();
        for _ in 0..1 + random.below(5) {
            stream.extend_from_slice(&samples[random.below(samples.len())].bytes);
        }
        damage(&mut stream, &mut random);
        recode::stream(&stream, || 1 + random.below(700));
    }
}
