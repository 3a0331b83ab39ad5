//! Option blocks, user headers and permissions.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/wire/tests/common/recode.rs"]
mod recode;

fuzz_target!(|bytes: &[u8]| {
    for recode in [recode::options_block, recode::user_headers, recode::permissions] {
        if let Ok(once) = recode(bytes) {
            assert_eq!(recode(&once), Ok(once));
        }
    }
});
