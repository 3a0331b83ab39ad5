//! The partition of a message key. Clients resolve keys themselves; a server that does it must agree with them.
//! Source: wire protocol, section 7.3.

use std::num::NonZeroU32;

use crate::ids::PartitionId;

/// XxHash32 (seed 0) of the key bytes, modulo the partition count.
pub fn partition_for_key(key: &[u8], partitions: NonZeroU32) -> PartitionId {
    PartitionId(xxhash_rust::xxh32::xxh32(key, 0) % partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_the_reference_lands_on_its_partition() {
        assert_eq!(xxhash_rust::xxh32::xxh32(b"order-42", 0), 0xbbc3_3ad1);
        assert_eq!(partition_for_key(b"order-42", NonZeroU32::new(3).expect("3")), PartitionId(1));
        assert_eq!(partition_for_key(b"", NonZeroU32::MIN), PartitionId(0));
    }
}
