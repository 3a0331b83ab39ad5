//! The batch checksum. Source: wire protocol, sections 4.3 and 9.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{BatchHeader, MESSAGE_HEADER_BYTES};

/// Bytes that are gathered before the hash state is fed.
const GATHERED_BYTES: usize = 1024;

/// Hash of the fields of a header and of message checksums. Inputs that fit the gathering buffer (batches of up to
/// 120 messages) are hashed at once, which spares setting up the large streaming state for small batches.
pub(super) struct BatchChecksum {
    gathered: [u8; GATHERED_BYTES],
    len: usize,
    streaming: Option<Xxh3>,
}

impl BatchChecksum {
    /// Starts with the fields of `header`; its `batch_checksum` plays no part.
    pub(super) fn new(header: &BatchHeader) -> Self {
        let mut checksum = BatchChecksum { gathered: [0; GATHERED_BYTES], len: 0, streaming: None };
        checksum.push(&header.partition_id.to_le_bytes());
        checksum.push(&header.base_offset.0.to_le_bytes());
        checksum.push(&header.base_timestamp.0.to_le_bytes());
        checksum.push(&header.origin_timestamp.0.to_le_bytes());
        checksum.push(&header.batch_length.to_le_bytes());
        checksum.push(&header.message_count.to_le_bytes());
        if let Some(producer) = header.producer {
            checksum.push(&[1]);
            checksum.push(&producer.producer_id.to_le_bytes());
            checksum.push(&producer.epoch.to_le_bytes());
            checksum.push(&producer.base_sequence.to_le_bytes());
        }
        checksum
    }

    /// Adds the checksum field of the next message.
    pub(super) fn message(&mut self, checksum: u64) {
        self.push(&checksum.to_le_bytes());
    }

    /// The checksum of the batch.
    pub(super) fn finish(mut self) -> u64 {
        let gathered = &self.gathered[..self.len];
        match &mut self.streaming {
            None => xxh3_64(gathered),
            Some(state) => {
                state.update(gathered);
                state.digest()
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.len + bytes.len() > GATHERED_BYTES {
            self.streaming.get_or_insert_with(Xxh3::new).update(&self.gathered[..self.len]);
            self.len = 0;
        }
        self.gathered[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// The checksum of a message frame: everything behind its checksum field.
pub(super) fn of_message(frame: &[u8]) -> u64 {
    debug_assert!(frame.len() >= MESSAGE_HEADER_BYTES);
    xxh3_64(&frame[8..])
}
