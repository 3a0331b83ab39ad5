//! Commands about consumer groups. Source: wire protocol, section 5.4.

use super::requests;
use crate::primitive::Identifier;

requests! {
    /// One consumer group (600).
    GetConsumerGroup<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
    }
    /// Every consumer group of a topic (601).
    GetConsumerGroups<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
    }
    /// Creates a consumer group (602).
    CreateConsumerGroup<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// Its name.
        name: &'a str,
    }
    /// Deletes a consumer group (603).
    DeleteConsumerGroup<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
    }
    /// Joins a consumer group with the caller's session (604).
    JoinConsumerGroup<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
    }
    /// Leaves a consumer group (605).
    LeaveConsumerGroup<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
    }
    /// The partitions assigned to the caller (606).
    SyncConsumerGroup<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The group.
        group: Identifier<'a>,
    }
}
