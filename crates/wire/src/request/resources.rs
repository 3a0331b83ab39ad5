//! Commands about streams, topics, partitions and segments. Source: wire protocol, sections 5.2 and 5.6 (route).

use super::requests;
use crate::ids::PartitionId;
use crate::options::Options;
use crate::primitive::Identifier;

requests! {
    /// One stream (200).
    GetStream<'a> {
        /// The stream.
        stream: Identifier<'a>,
    }
    /// Every stream (201).
    GetStreams {}
    /// Creates a stream (202).
    CreateStream<'a> {
        /// Its name.
        name: &'a str,
        /// Its options, to the end of the body.
        options: Options<'a>,
    }
    /// Deletes a stream (203).
    DeleteStream<'a> {
        /// The stream.
        stream: Identifier<'a>,
    }
    /// One topic (300).
    GetTopic<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
    }
    /// Every topic of a stream (301).
    GetTopics<'a> {
        /// The stream.
        stream: Identifier<'a>,
    }
    /// Creates a topic (302).
    CreateTopic<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// How many partitions it starts with.
        partitions_count: u32,
        /// Its name.
        name: &'a str,
        /// Its options, to the end of the body.
        options: Options<'a>,
    }
    /// Deletes a topic (303).
    DeleteTopic<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
    }
    /// Adds partitions (402).
    CreatePartitions<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// How many.
        partitions_count: u32,
    }
    /// Deletes the partitions with the highest numbers (403).
    DeletePartitions<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// How many.
        partitions_count: u32,
    }
    /// Deletes the oldest sealed segments of a partition (503).
    DeleteSegments<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition.
        partition: PartitionId,
        /// How many, at most.
        segments_count: u32,
    }
    /// Which node serves a partition (105).
    GetPartitionRoute<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// The topic.
        topic: Identifier<'a>,
        /// The partition.
        partition: PartitionId,
    }
}
