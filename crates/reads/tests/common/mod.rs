//! Logs for tests: real batches with known payloads.
#![allow(dead_code, reason = "each test file uses its own part of it")]

use laneway_reads::StoredBatch;
use laneway_wire::batch::{BatchBuilder, stamp};
use laneway_wire::{Micros, Offset, PartitionId};

/// A log of batches, given as their payload lengths and append times.
pub struct Log {
    pub batches: Vec<StoredBatch>,
    pub messages: Vec<Message>,
    pub head: Option<Offset>,
}

#[derive(Clone, Copy)]
/// One message of it.
pub struct Message {
    pub offset: u64,
    pub timestamp: u64,
    pub batch: usize,
    pub payload: u64,
}

pub fn log(shape: &[(Vec<usize>, u64)]) -> Log {
    let (mut batches, mut messages) = (Vec::new(), Vec::new());
    let (mut offset, mut timestamp) = (0, 1_000);
    for (payloads, step) in shape {
        timestamp += step;
        let mut builder = BatchBuilder::new();
        for (index, len) in payloads.iter().enumerate() {
            let id = u128::from(offset + index as u64) + 1;
            let payload = vec![id as u8; *len];
            builder.push(id, Micros(500 + index as u64), &payload, &[]).unwrap();
        }
        let mut bytes = builder.finish().unwrap();
        stamp(&mut bytes, PartitionId(3), Offset(offset), Micros(timestamp)).unwrap();
        for (index, len) in payloads.iter().enumerate() {
            messages.push(Message {
                offset: offset + index as u64,
                timestamp,
                batch: batches.len(),
                payload: *len as u64,
            });
        }
        batches.push(StoredBatch::parse(bytes.freeze()).unwrap());
        offset += payloads.len() as u64;
    }
    Log { batches, messages, head: offset.checked_sub(1).map(Offset) }
}
