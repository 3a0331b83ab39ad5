//! Every request decoder; the first byte chooses the command.
#![no_main]

use laneway_wire::Code;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/wire/tests/common/recode.rs"]
mod recode;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let code = Code::ALL[usize::from(*choice) % Code::ALL.len()];
    if let Ok(once) = recode::request_body(code, body) {
        assert_eq!(recode::request_body(code, &once), Ok(once));
    }
});
