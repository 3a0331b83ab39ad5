//! What reads show of a resource: metadata from here, sizes and counts from the shards at the time of the request.

use std::borrow::Cow;

use laneway_wire::{Incarnation, Micros, Op, PartitionId, StreamId, TopicId};

use crate::metadata::Metadata;
use crate::options::{Key, OptionSet, OptionValue, Scope};
use crate::replies::{StreamCreated, TopicCreated};
use crate::streams::Stream;
use crate::topics::Topic;

/// What a partition retains, summed up for its topic and stream. Approximate while writes are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of stored framing, payloads and headers.
    pub size_bytes: u64,
    /// Messages.
    pub messages_count: u64,
}

/// The two blocks of options that every answer carries, each by key in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionBlocks<'a> {
    /// What the client set.
    pub explicit: Vec<(&'a str, Cow<'a, OptionValue>)>,
    /// What the broker filled in.
    pub derived: Vec<(&'a str, Cow<'a, OptionValue>)>,
}

impl<'a> OptionBlocks<'a> {
    /// The blocks of a resource of this scope. Streams also say who chose their key.
    pub fn of(scope: Scope, options: &'a OptionSet) -> Self {
        let block =
            |explicit| options.public(explicit).map(|(key, value)| (key, Cow::Borrowed(value))).collect();
        let mut blocks = Self { explicit: block(true), derived: block(false) };
        if scope == Scope::Stream {
            // No stream of this build is encrypted: a key is refused at create.
            blocks.derived.push((Key::EncryptionKeySource.name(), Cow::Owned(OptionValue::text("none"))));
            blocks.derived.sort_by_key(|(key, _)| *key);
        }
        blocks
    }
}

/// A stream header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView<'a> {
    /// Its number.
    pub id: StreamId,
    /// When it was created.
    pub created_at: Micros,
    /// Topics in it.
    pub topics_count: u32,
    /// What it retains.
    pub usage: Usage,
    /// Its name.
    pub name: &'a str,
    /// Its options.
    pub options: OptionBlocks<'a>,
}

impl<'a> StreamView<'a> {
    /// The header of a stream as it is now.
    pub fn new(stream: &'a Stream, usage: Usage) -> Self {
        Self {
            id: stream.id,
            created_at: stream.created_at,
            topics_count: u32::try_from(stream.topics.count()).expect("topics are bounded by TOPICS_MAX"),
            usage,
            name: &stream.name,
            options: OptionBlocks::of(Scope::Stream, &stream.options),
        }
    }

    /// The header of a stream as it was created: the answer to CreateStream, also when it is repeated later.
    pub fn created(stream: &'a StreamCreated) -> Self {
        Self {
            id: stream.id,
            created_at: stream.created_at,
            topics_count: 0,
            usage: Usage::default(),
            name: &stream.name,
            options: OptionBlocks::of(Scope::Stream, &stream.options),
        }
    }
}

/// A topic header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView<'a> {
    /// Its number.
    pub id: TopicId,
    /// When it was created.
    pub created_at: Micros,
    /// Partitions in it.
    pub partitions_count: u32,
    /// What it retains.
    pub usage: Usage,
    /// Its name.
    pub name: &'a str,
    /// Its options.
    pub options: OptionBlocks<'a>,
}

impl<'a> TopicView<'a> {
    /// The header of a topic as it is now.
    pub fn new(topic: &'a Topic, usage: Usage) -> Self {
        Self {
            id: topic.id,
            created_at: topic.created_at,
            partitions_count: topic.partitions_count(),
            usage,
            name: &topic.name,
            options: OptionBlocks::of(Scope::Topic, &topic.options),
        }
    }

    /// The header of a topic as it was created: the answer to CreateTopic, also when it is repeated later.
    pub fn created(topic: &'a TopicCreated) -> Self {
        Self {
            id: topic.id,
            created_at: topic.created_at,
            partitions_count: topic.partitions_count,
            usage: Usage::default(),
            name: &topic.name,
            options: OptionBlocks::of(Scope::Topic, &topic.options),
        }
    }
}

/// A partition as GetTopic lists it, without what only its shard knows (segments, head, usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Its number.
    pub id: PartitionId,
    /// When it was created.
    pub created_at: Micros,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The metadata op at which this was read. The owner generation of its context is 0.
    pub metadata_op: Op,
}

impl PartitionView {
    /// The partitions of a topic as they are now, by number.
    pub fn of_topic<'a>(metadata: &Metadata, topic: &'a Topic) -> impl Iterator<Item = Self> + use<'a> {
        let metadata_op = metadata.applied();
        topic.partitions().map(move |(key, partition)| Self {
            id: key.partition,
            created_at: partition.created_at,
            incarnation: key.incarnation,
            metadata_op,
        })
    }

    /// The partitions of a topic as it was created by `op`, by number. All are empty.
    pub fn created(topic: &TopicCreated, op: Op) -> impl Iterator<Item = Self> + use<> {
        let created_at = topic.created_at;
        (0..topic.partitions_count).map(move |id| Self {
            id: PartitionId(id),
            created_at,
            incarnation: Incarnation(op.0),
            metadata_op: op,
        })
    }
}
