//! A byte stream in pieces through the frame decoder of both sides; the first byte sizes the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/wire/tests/common/recode.rs"]
mod recode;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, stream)) = bytes.split_first() else { return };
    recode::stream(stream, || 1 + usize::from(*piece) * 3);
    let _ = recode::request_frame(stream);
    let _ = recode::eviction(stream);
});
