//! Verifying, stamping and slicing batches.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/wire/tests/common/recode.rs"]
mod recode;

fuzz_target!(|bytes: &[u8]| recode::batches(bytes));
