//! Streams, topics and partitions. Source: wire protocol, sections 5.2 and 9.

use bytes::{BufMut, BytesMut};

use super::{Record, count32, read_counted, read_list, records};
use crate::ids::{Micros, Offset, PartitionId, StreamId, TopicId};
use crate::options::Block;
use crate::primitive::{DecodeError, PartitionContext, Reader};
use crate::protocol::ProtocolVersion;

/// Bytes of a partition record without its node lists.
pub const PARTITION_RECORD_BYTES: usize = 64;
/// Most nodes in a list of a partition record. Source: wire protocol, section 9.
pub const REPLICAS_MAX: usize = 32;

records! {
    /// A stream.
    StreamHeader<'a> {
        /// Its number.
        id: StreamId,
        /// When it was created.
        created_at: Micros,
        /// Topics in it.
        topics_count: u32,
        /// Bytes of all its messages.
        size_bytes: u64,
        /// Messages in it.
        messages_count: u64,
        /// Its name.
        name: &'a str,
        /// Options that a client set.
        explicit: Block<'a>,
        /// Options that the broker filled in.
        derived: Block<'a>,
    }
    /// A topic.
    TopicHeader<'a> {
        /// Its number in the stream.
        id: TopicId,
        /// When it was created.
        created_at: Micros,
        /// Partitions in it.
        partitions_count: u32,
        /// Bytes of all its messages.
        size_bytes: u64,
        /// Messages in it.
        messages_count: u64,
        /// Its name.
        name: &'a str,
        /// Options that a client set.
        explicit: Block<'a>,
        /// Options that the broker filled in.
        derived: Block<'a>,
    }
}

/// A stream and its topics: the answer to GetStream and CreateStream. `header.topics_count` is written as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamDetails<'a> {
    /// The stream.
    pub header: StreamHeader<'a>,
    /// Its topics.
    pub topics: Vec<TopicHeader<'a>>,
}

impl<'a> Record<'a> for StreamDetails<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let header = StreamHeader::read(reader)?;
        Ok(StreamDetails { header, topics: read_list(reader.rest())? })
    }

    fn put(&self, out: &mut BytesMut) {
        self.header.put(out);
        self.topics.iter().for_each(|topic| topic.put(out));
    }
}

/// A partition, as GetTopic and CreateTopic list it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartitionRecord<'a> {
    /// Its number in the topic.
    pub id: PartitionId,
    /// When it was created.
    pub created_at: Micros,
    /// Segments it has.
    pub segments_count: u32,
    /// Its last committed offset, 0 when it is empty.
    pub current_offset: Offset,
    /// Bytes of its messages.
    pub size_bytes: u64,
    /// Messages in it.
    pub messages_count: u64,
    /// Its life; the owner generation is 0 here.
    pub context: PartitionContext,
    /// Nodes that hold it, at most [`REPLICAS_MAX`]. Not on the wire of 0.12.1.
    pub members: &'a [u8],
    /// Those of them that are in sync. Not on the wire of 0.12.1.
    pub in_sync: &'a [u8],
}

impl<'a> PartitionRecord<'a> {
    /// Reads a record of `version`.
    pub fn read(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Self, DecodeError> {
        let mut record = PartitionRecord {
            id: PartitionId(reader.u32("partition id")?),
            created_at: Micros(reader.u64("created_at")?),
            segments_count: reader.u32("segments_count")?,
            current_offset: Offset(reader.u64("current_offset")?),
            size_bytes: reader.u64("size_bytes")?,
            messages_count: reader.u64("messages_count")?,
            context: reader.context()?,
            members: &[],
            in_sync: &[],
        };
        if lists_replicas(version) {
            record.members = read_replicas(reader, "members")?;
            record.in_sync = read_replicas(reader, "in_sync")?;
        }
        Ok(record)
    }

    /// Appends a record of `version`.
    ///
    /// # Panics
    /// When a list has more than [`REPLICAS_MAX`] nodes.
    pub fn put(&self, out: &mut BytesMut, version: ProtocolVersion) {
        out.put_u32_le(self.id.0);
        out.put_u64_le(self.created_at.0);
        out.put_u32_le(self.segments_count);
        out.put_u64_le(self.current_offset.0);
        out.put_u64_le(self.size_bytes);
        out.put_u64_le(self.messages_count);
        self.context.put(out);
        if lists_replicas(version) {
            put_replicas(out, self.members);
            put_replicas(out, self.in_sync);
        }
    }
}

/// Whether partition records of a version carry node lists.
fn lists_replicas(version: ProtocolVersion) -> bool {
    version >= ProtocolVersion::V0_12_2
}

fn read_replicas<'a>(reader: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8], DecodeError> {
    let replicas = reader.bytes8(field)?;
    if replicas.len() > REPLICAS_MAX {
        return Err(DecodeError::Range { field });
    }
    Ok(replicas)
}

fn put_replicas(out: &mut BytesMut, replicas: &[u8]) {
    assert!(replicas.len() <= REPLICAS_MAX, "a partition has at most {REPLICAS_MAX} replicas");
    out.put_u8(replicas.len() as u8);
    out.put_slice(replicas);
}

/// A topic and its partitions: the answer to GetTopic and CreateTopic. There are `header.partitions_count` of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicDetails<'a> {
    /// The topic.
    pub header: TopicHeader<'a>,
    /// Its partitions.
    pub partitions: Vec<PartitionRecord<'a>>,
}

impl<'a> TopicDetails<'a> {
    /// Reads an answer of `version`.
    pub fn read(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Self, DecodeError> {
        let header = TopicHeader::read(reader)?;
        let mut partitions = Vec::new();
        for _ in 0..header.partitions_count {
            partitions.push(PartitionRecord::read(reader, version)?);
        }
        Ok(TopicDetails { header, partitions })
    }

    /// Reads the answer to GetTopic; an empty body means that there is no such topic.
    pub fn parse_optional(body: &'a [u8], version: ProtocolVersion) -> Result<Option<Self>, DecodeError> {
        if body.is_empty() {
            return Ok(None);
        }
        TopicDetails::read(&mut Reader::new(body), version).map(Some)
    }

    /// Appends an answer of `version`.
    ///
    /// # Panics
    /// When the header counts other partitions than there are.
    pub fn put(&self, out: &mut BytesMut, version: ProtocolVersion) {
        assert_eq!(self.header.partitions_count as usize, self.partitions.len(), "clients read by the count");
        self.header.put(out);
        self.partitions.iter().for_each(|partition| partition.put(out, version));
    }
}

/// Appends the head of the answer to GetTopics; `count` topic headers follow.
pub fn put_topics_count(out: &mut BytesMut, count: usize) {
    out.put_u32_le(count32(count));
}

/// Reads the answer to GetTopics.
pub fn parse_topics(body: &[u8]) -> Result<Vec<TopicHeader<'_>>, DecodeError> {
    let mut reader = Reader::new(body);
    let count = reader.u32("topics")?;
    let topics = read_counted(&mut reader, count)?;
    reader.finish()?;
    Ok(topics)
}
