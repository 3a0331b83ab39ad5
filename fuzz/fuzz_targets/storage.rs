//! Files of a data directory: whatever the bytes are, recovery gives records, a torn tail or a named refusal.
#![no_main]

use bytes::Bytes;
use laneway_storage::journal::header::JournalHeader;
use laneway_storage::journal::scan::{LastRun, scan};
use laneway_storage::{PartitionLog, checkpoint};
use laneway_wire::{Incarnation, PartitionId, PartitionKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let file = Bytes::copy_from_slice(bytes);
    let _ = checkpoint::parse(&file);
    let key = PartitionKey { incarnation: Incarnation(1), partition: PartitionId(0) };
    if let Ok((log, _rest)) = PartitionLog::decode(key, 1 << 20, bytes) {
        let mut again = Vec::new();
        log.encode(&mut again);
        assert!(PartitionLog::decode(key, 1 << 20, &again).is_ok_and(|(_, rest)| rest.is_empty()));
    }
    let tag = JournalHeader::parse(bytes).map_or(0, |header| header.tag());
    for last_run in [LastRun::SameBoot, LastRun::OtherBoot] {
        let _ = scan(&file, tag, last_run);
    }
});
