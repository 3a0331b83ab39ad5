//! Commands about stored offsets. Source: wire protocol, section 5.5.

use super::requests;
use crate::ids::{Offset, PartitionId};
use crate::primitive::{AckLevel, Consumer, Identifier};

requests! {
    /// Reads a stored offset (120).
    GetConsumerOffset<'a> {
        /// Whose.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; absent means that the server chooses.
        partition: Option<PartitionId>,
    }
    /// Stores an offset (121).
    StoreConsumerOffset<'a> {
        /// Whose.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; absent means that the server chooses.
        partition: Option<PartitionId>,
        /// The last offset that was processed.
        offset: Offset,
        /// When to answer.
        ack: AckLevel,
    }
    /// Deletes a stored offset (122).
    DeleteConsumerOffset<'a> {
        /// Whose.
        consumer: Consumer<'a>,
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition; absent means that the server chooses.
        partition: Option<PartitionId>,
        /// When to answer.
        ack: AckLevel,
    }
}
