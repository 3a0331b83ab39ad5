//! Streams, topics and partitions: how they are named, what the broker says about them, and the calls on them.
//! Source: wire protocol, sections 5.1 and 5.2.

use std::collections::BTreeMap;
use std::fmt;

use bytes::{BufMut, BytesMut};
use laneway_wire::primitive::{check_name, put_checked_str8};
use laneway_wire::{
    Code, EncodeError, Identifier, Micros, Offset, PartitionContext, PartitionId, Reader, StreamId, TopicId,
};

use crate::client::Client;
use crate::error::ClientError;
use crate::session::{Answer, Call};

/// How a stream or topic is named, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// By number.
    Id(u32),
    /// By name, 1 to 255 bytes.
    Text(String),
}

impl Name {
    /// As requests carry it.
    pub fn as_identifier(&self) -> Identifier<'_> {
        match self {
            Self::Id(id) => Identifier::Numeric(*id),
            Self::Text(name) => Identifier::Name(name),
        }
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self::Text(name.to_owned())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_identifier().fmt(f)
    }
}

/// A stream as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSummary {
    pub id: StreamId,
    pub name: String,
    pub created_at: Micros,
    pub topics_count: u32,
    pub size_bytes: u64,
    pub messages_count: u64,
}

/// A stream and its topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDetails {
    pub summary: StreamSummary,
    pub topics: Vec<TopicSummary>,
}

/// A topic as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSummary {
    pub id: TopicId,
    pub name: String,
    pub created_at: Micros,
    pub partitions_count: u32,
    pub size_bytes: u64,
    pub messages_count: u64,
    /// Effective options as text: what was set, else what the broker filled in.
    pub options: BTreeMap<String, String>,
}

/// A topic and its partitions, ascending by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDetails {
    pub summary: TopicSummary,
    pub partitions: Vec<PartitionDetails>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDetails {
    pub id: PartitionId,
    pub created_at: Micros,
    pub segments_count: u32,
    /// Highest offset; 0 also when nothing was ever stored.
    pub current_offset: Offset,
    pub size_bytes: u64,
    pub messages_count: u64,
    /// What requests to it must carry.
    pub context: PartitionContext,
}

/// Options of a new topic: key and value as text. The broker knows the types.
pub type Options = BTreeMap<String, String>;

impl Client {
    /// All streams.
    pub fn streams(&mut self) -> Result<Vec<StreamSummary>, ClientError> {
        let answer = self.call(Call::new(Code::GetStreams, 0))?;
        let mut reader = Reader::new(&answer.payload);
        let mut streams = Vec::new();
        while !reader.is_empty() {
            streams.push(read_stream(&mut reader)?);
        }
        Ok(streams)
    }

    /// One stream with its topics; `None` when there is none.
    pub fn stream(&mut self, stream: &Identifier<'_>) -> Result<Option<StreamDetails>, ClientError> {
        let mut call = Call::new(Code::GetStream, 0);
        stream.put(call.body(), "stream_id")?;
        let answer = self.call(call)?;
        if answer.payload.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(&answer.payload);
        let summary = read_stream(&mut reader)?;
        let topics = (0..summary.topics_count).map(|_| read_topic(&mut reader)).collect::<Result<_, _>>()?;
        Ok(Some(StreamDetails { summary, topics }))
    }

    /// Creates a stream.
    pub fn create_stream(&mut self, name: &str) -> Result<StreamSummary, ClientError> {
        let mut call = Call::new(Code::CreateStream, 0);
        put_checked_str8(call.body(), name, "name")?;
        let answer = self.call(call)?;
        read_stream(&mut Reader::new(&answer.payload))
    }

    /// Deletes a stream with everything in it.
    pub fn delete_stream(&mut self, stream: &Identifier<'_>) -> Result<(), ClientError> {
        let mut call = Call::new(Code::DeleteStream, 0);
        stream.put(call.body(), "stream_id")?;
        self.call(call).map(drop)
    }

    /// The topics of a stream. A stream that does not exist has none.
    pub fn topics(&mut self, stream: &Identifier<'_>) -> Result<Vec<TopicSummary>, ClientError> {
        let mut call = Call::new(Code::GetTopics, 0);
        stream.put(call.body(), "stream_id")?;
        let answer = self.call(call)?;
        let mut reader = Reader::new(&answer.payload);
        let count = reader.u32("topics_count")?;
        (0..count).map(|_| read_topic(&mut reader)).collect()
    }

    /// One topic with its partitions; `None` when there is none.
    pub fn topic(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
    ) -> Result<Option<TopicDetails>, ClientError> {
        let answer = self.call(topic_call(Code::GetTopic, stream, topic)?)?;
        if answer.payload.is_empty() { Ok(None) } else { read_topic_details(&answer).map(Some) }
    }

    /// Creates a topic.
    pub fn create_topic(
        &mut self,
        stream: &Identifier<'_>,
        name: &str,
        partitions: u32,
        options: &Options,
    ) -> Result<TopicDetails, ClientError> {
        let mut call = Call::new(Code::CreateTopic, 0);
        stream.put(call.body(), "stream_id")?;
        call.body().put_u32_le(partitions);
        put_checked_str8(call.body(), name, "name")?;
        put_options(call.body(), options)?;
        let answer = self.call(call)?;
        read_topic_details(&answer)
    }

    /// Deletes a topic with its messages.
    pub fn delete_topic(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
    ) -> Result<(), ClientError> {
        let call = topic_call(Code::DeleteTopic, stream, topic)?;
        self.call(call).map(drop)
    }

    /// Adds partitions to a topic.
    pub fn create_partitions(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
        count: u32,
    ) -> Result<(), ClientError> {
        let mut call = topic_call(Code::CreatePartitions, stream, topic)?;
        call.body().put_u32_le(count);
        self.call(call).map(drop)
    }

    /// Removes the partitions with the highest ids, with their messages.
    pub fn delete_partitions(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
        count: u32,
    ) -> Result<(), ClientError> {
        let mut call = topic_call(Code::DeletePartitions, stream, topic)?;
        call.body().put_u32_le(count);
        self.call(call).map(drop)
    }
}

fn topic_call(code: Code, stream: &Identifier<'_>, topic: &Identifier<'_>) -> Result<Call, EncodeError> {
    let mut call = Call::new(code, 0);
    stream.put(call.body(), "stream_id")?;
    topic.put(call.body(), "topic_id")?;
    Ok(call)
}

fn read_stream(reader: &mut Reader<'_>) -> Result<StreamSummary, ClientError> {
    let id = StreamId(reader.u32("stream_id")?);
    let created_at = Micros(reader.u64("created_at")?);
    let topics_count = reader.u32("topics_count")?;
    let size_bytes = reader.u64("size_bytes")?;
    let messages_count = reader.u64("messages_count")?;
    let name = reader.str8("name")?.to_owned();
    read_options(reader)?;
    Ok(StreamSummary { id, name, created_at, topics_count, size_bytes, messages_count })
}

fn read_topic(reader: &mut Reader<'_>) -> Result<TopicSummary, ClientError> {
    let id = TopicId(reader.u32("topic_id")?);
    let created_at = Micros(reader.u64("created_at")?);
    let partitions_count = reader.u32("partitions_count")?;
    let size_bytes = reader.u64("size_bytes")?;
    let messages_count = reader.u64("messages_count")?;
    let name = reader.str8("name")?.to_owned();
    let options = read_options(reader)?;
    Ok(TopicSummary { id, name, created_at, partitions_count, size_bytes, messages_count, options })
}

fn read_topic_details(answer: &Answer) -> Result<TopicDetails, ClientError> {
    let mut reader = Reader::new(&answer.payload);
    let summary = read_topic(&mut reader)?;
    let mut partitions =
        (0..summary.partitions_count).map(|_| read_partition(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    partitions.sort_by_key(|partition| partition.id);
    Ok(TopicDetails { summary, partitions })
}

/// Reads a partition as protocol 0.12.2 lays it out, the two member lists included.
fn read_partition(reader: &mut Reader<'_>) -> Result<PartitionDetails, ClientError> {
    let partition = PartitionDetails {
        id: PartitionId(reader.u32("partition_id")?),
        created_at: Micros(reader.u64("created_at")?),
        segments_count: reader.u32("segments_count")?,
        current_offset: Offset(reader.u64("current_offset")?),
        size_bytes: reader.u64("size_bytes")?,
        messages_count: reader.u64("messages_count")?,
        context: reader.context()?,
    };
    reader.bytes8("members")?;
    reader.bytes8("in_sync")?;
    Ok(partition)
}

/// Reads the explicit and the derived options into their effective values.
fn read_options(reader: &mut Reader<'_>) -> Result<BTreeMap<String, String>, ClientError> {
    let explicit = reader.bytes32("explicit_options")?;
    let derived = reader.bytes32("derived_options")?;
    let mut options = BTreeMap::new();
    for block in [derived, explicit] {
        let mut entries = Reader::new(block);
        while !entries.is_empty() {
            let (_, key) = read_value(&mut entries)?;
            let (kind, value) = read_value(&mut entries)?;
            options.insert(String::from_utf8_lossy(key).into_owned(), value_text(kind, value));
        }
    }
    Ok(options)
}

fn read_value<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8]), ClientError> {
    let kind = reader.u8("option_kind")?;
    Ok((kind, reader.bytes32("option_value")?))
}

/// The value of an option or a user header as text. Source: wire protocol, section 3.6.
pub fn value_text(kind: u8, value: &[u8]) -> String {
    fn number<const N: usize>(value: &[u8], text: impl Fn([u8; N]) -> String) -> Option<String> {
        value.try_into().ok().map(text)
    }
    let text = match kind {
        2 => std::str::from_utf8(value).ok().map(str::to_owned),
        3 => number(value, |[byte]: [u8; 1]| (byte != 0).to_string()),
        4 => number(value, |bytes| i8::from_le_bytes(bytes).to_string()),
        5 => number(value, |bytes| i16::from_le_bytes(bytes).to_string()),
        6 => number(value, |bytes| i32::from_le_bytes(bytes).to_string()),
        7 => number(value, |bytes| i64::from_le_bytes(bytes).to_string()),
        8 => number(value, |bytes| i128::from_le_bytes(bytes).to_string()),
        9 => number(value, |bytes| u8::from_le_bytes(bytes).to_string()),
        10 => number(value, |bytes| u16::from_le_bytes(bytes).to_string()),
        11 => number(value, |bytes| u32::from_le_bytes(bytes).to_string()),
        12 => number(value, |bytes| u64::from_le_bytes(bytes).to_string()),
        13 => number(value, |bytes| u128::from_le_bytes(bytes).to_string()),
        14 => number(value, |bytes| f32::from_le_bytes(bytes).to_string()),
        15 => number(value, |bytes| f64::from_le_bytes(bytes).to_string()),
        _ => None,
    };
    text.unwrap_or_else(|| value.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Appends an options block: keys ascending, every value as text.
fn put_options(out: &mut BytesMut, options: &Options) -> Result<(), EncodeError> {
    for text in options.iter().flat_map(|(key, value)| [key, value]) {
        check_name(text, "option")?;
        out.put_u8(2);
        out.put_u32_le(u32::from(u8::try_from(text.len()).unwrap_or(u8::MAX)));
        out.put_slice(text.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::primitive::put_str8;

    #[test]
    fn values_read_as_text() {
        assert_eq!(value_text(2, "äh".as_bytes()), "äh");
        assert_eq!(value_text(12, &5u64.to_le_bytes()), "5");
        assert_eq!(value_text(7, &(-5i64).to_le_bytes()), "-5");
        assert_eq!(value_text(3, &[1]), "true");
        assert_eq!(value_text(12, &[1, 2]), "0102");
        assert_eq!(value_text(1, &[0xab]), "ab");
        assert_eq!(value_text(2, &[0xff]), "ff");
    }

    #[test]
    fn options_are_written_as_the_example_shows() {
        let mut out = BytesMut::new();
        put_options(&mut out, &Options::from([("k".into(), "v".into())])).unwrap();
        assert_eq!(out.as_ref(), [2, 1, 0, 0, 0, b'k', 2, 1, 0, 0, 0, b'v']);
        assert!(put_options(&mut out, &Options::from([("k".into(), String::new())])).is_err());
    }

    /// The partition that the specification pins for 0.12.2.
    #[test]
    fn partition_of_the_reference_is_read() {
        let mut bytes = Vec::new();
        let text = "01000000004cf1238e0100000200000063000000000000000004000000000000640000000000000017000000000000000000000000000000650000000000000003010304020104";
        for at in (0..text.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&text[at..at + 2], 16).unwrap());
        }
        let mut reader = Reader::new(&bytes);
        let partition = read_partition(&mut reader).unwrap();
        assert!(reader.is_empty());
        assert_eq!((partition.id, partition.current_offset), (PartitionId(1), Offset(99)));
        assert_eq!((partition.context.incarnation.0, partition.context.metadata_op.0), (23, 101));
        for cut in 0..bytes.len() {
            assert!(read_partition(&mut Reader::new(&bytes[..cut])).is_err(), "{cut}");
        }
    }

    #[test]
    fn topic_names_its_effective_options() {
        let mut out = BytesMut::new();
        out.put_u32_le(3);
        out.put_u64_le(9);
        out.put_u32_le(0);
        out.put_u64_le(11);
        out.put_u64_le(12);
        put_str8(&mut out, "web");
        for (key, value) in [("a", "set"), ("b", "filled in")] {
            let mut block = BytesMut::new();
            let mut options = Options::from([(key.into(), value.into())]);
            if key == "b" {
                options.insert("a".into(), "overruled".into());
            }
            put_options(&mut block, &options).unwrap();
            out.put_u32_le(block.len() as u32);
            out.put_slice(&block);
        }
        let topic = read_topic(&mut Reader::new(&out)).unwrap();
        assert_eq!((topic.id, topic.name.as_str(), topic.messages_count), (TopicId(3), "web", 12));
        assert_eq!(
            topic.options,
            Options::from([("a".into(), "set".into()), ("b".into(), "filled in".into())])
        );
    }
}
