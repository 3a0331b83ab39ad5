//! Which partition a message goes to. Clients decide, and agree: the same key lands on the same partition whichever
//! client sends it. Source: wire protocol, section 7.3.

use std::num::NonZeroU32;

use laneway_wire::PartitionId;
use laneway_wire::key::partition_for_key;

/// Chooses partitions of one topic.
#[derive(Clone, Debug)]
pub struct Partitioner {
    partitions: NonZeroU32,
    cursor: u32,
}

impl Partitioner {
    /// A partitioner that starts at the partition that `random` picks: many short runs then share the partitions.
    pub fn new(partitions: NonZeroU32, random: u128) -> Self {
        // A remainder below a `u32` always fits.
        let cursor = (random % u128::from(partitions.get())) as u32;
        Self { partitions, cursor }
    }

    /// The partition of a key.
    pub fn by_key(&self, key: &[u8]) -> PartitionId {
        partition_for_key(key, self.partitions)
    }

    /// The partition whose turn it is.
    pub fn current(&self) -> PartitionId {
        PartitionId(self.cursor)
    }

    /// Ends the turn of a partition: the next one is the following, and after the last the first.
    pub fn advance(&mut self) {
        self.cursor = (self.cursor + 1) % self.partitions;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_take_turns_from_any() {
        let mut partitioner = Partitioner::new(NonZeroU32::new(3).unwrap(), u128::MAX - 1);
        let turns: Vec<u32> = (0..5)
            .map(|_| {
                let partition = partitioner.current().0;
                partitioner.advance();
                partition
            })
            .collect();
        assert_eq!(turns, [2, 0, 1, 2, 0]);
    }

    #[test]
    fn keys_go_where_other_clients_send_them() {
        let partitioner = Partitioner::new(NonZeroU32::new(3).unwrap(), 0);
        assert_eq!(partitioner.by_key(b"order-42"), PartitionId(1));
    }
}
