//! Every reply decoder, in both protocol versions; the first byte chooses the command.
#![no_main]

use laneway_wire::{Code, ProtocolVersion};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/wire/tests/common/recode.rs"]
mod recode;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let code = Code::ALL[usize::from(*choice) % Code::ALL.len()];
    for version in [ProtocolVersion::V0_12_1, ProtocolVersion::V0_12_2] {
        let _ = recode::reply_frame(code, version, body);
        if let Ok(once) = recode::reply_payload(code, version, body) {
            assert_eq!(recode::reply_payload(code, version, &once), Ok(once));
        }
    }
});
