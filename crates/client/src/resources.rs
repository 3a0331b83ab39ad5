//! Streams, topics and partitions: how they are named, what the broker says about them, and the calls on them.
//! Source: wire protocol, sections 5.1 and 5.2.

use std::collections::BTreeMap;
use std::fmt;

use bytes::BytesMut;
use laneway_wire::options::{self as wire_options, Value, ValueKind};
use laneway_wire::reply::{self, Record, StreamHeader, TopicHeader, read_list, read_optional};
use laneway_wire::{
    Identifier, Micros, Offset, PartitionContext, PartitionId, Reader, StreamId, TopicId, request,
};

use crate::client::Client;
use crate::error::{ClientError, PROTOCOL};
use crate::session::Call;

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
        let answer = self.call(Call::of(&request::GetStreams {})?)?;
        let streams: Vec<StreamHeader<'_>> = read_list(&answer.payload)?;
        Ok(streams.iter().map(StreamSummary::from).collect())
    }

    /// One stream with its topics; `None` when there is none.
    pub fn stream(&mut self, stream: &Identifier<'_>) -> Result<Option<StreamDetails>, ClientError> {
        let answer = self.call(Call::of(&request::GetStream { stream: *stream })?)?;
        let details: Option<reply::StreamDetails<'_>> = read_optional(&answer.payload)?;
        Ok(details.map(|details| StreamDetails {
            summary: StreamSummary::from(&details.header),
            topics: details.topics.iter().map(TopicSummary::from).collect(),
        }))
    }

    /// Creates a stream.
    pub fn create_stream(&mut self, name: &str) -> Result<StreamSummary, ClientError> {
        let request = request::CreateStream { name, options: wire_options::Options::EMPTY };
        let answer = self.call(Call::of(&request)?)?;
        let header = StreamHeader::read(&mut Reader::new(&answer.payload))?;
        Ok(StreamSummary::from(&header))
    }

    /// Deletes a stream with everything in it.
    pub fn delete_stream(&mut self, stream: &Identifier<'_>) -> Result<(), ClientError> {
        self.call(Call::of(&request::DeleteStream { stream: *stream })?).map(drop)
    }

    /// The topics of a stream. A stream that does not exist has none.
    pub fn topics(&mut self, stream: &Identifier<'_>) -> Result<Vec<TopicSummary>, ClientError> {
        let answer = self.call(Call::of(&request::GetTopics { stream: *stream })?)?;
        Ok(reply::parse_topics(&answer.payload)?.iter().map(TopicSummary::from).collect())
    }

    /// One topic with its partitions; `None` when there is none.
    pub fn topic(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
    ) -> Result<Option<TopicDetails>, ClientError> {
        let answer = self.call(Call::of(&request::GetTopic { stream: *stream, topic: *topic })?)?;
        let details = reply::TopicDetails::parse_optional(&answer.payload, PROTOCOL)?;
        Ok(details.as_ref().map(TopicDetails::from))
    }

    /// Creates a topic.
    pub fn create_topic(
        &mut self,
        stream: &Identifier<'_>,
        name: &str,
        partitions: u32,
        options: &Options,
    ) -> Result<TopicDetails, ClientError> {
        let block = encode_options(options)?;
        let options = wire_options::Options::parse(&block)?;
        let request = request::CreateTopic { stream: *stream, partitions_count: partitions, name, options };
        let answer = self.call(Call::of(&request)?)?;
        let details = reply::TopicDetails::read(&mut Reader::new(&answer.payload), PROTOCOL)?;
        Ok(TopicDetails::from(&details))
    }

    /// Sets options of a topic, `name` among them, and resets others, all or nothing.
    pub fn update_topic(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
        set: &Options,
        reset: &[&str],
    ) -> Result<(), ClientError> {
        let block = encode_options(set)?;
        let target = request::UpdateTarget::Topic { stream: *stream, topic: *topic };
        let reset = request::ResetNames::Listed(reset);
        let set = wire_options::Options::parse(&block)?;
        self.call(Call::of(&request::UpdateResource { target, reset, set })?).map(drop)
    }

    /// Deletes a topic with its messages.
    pub fn delete_topic(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
    ) -> Result<(), ClientError> {
        self.call(Call::of(&request::DeleteTopic { stream: *stream, topic: *topic })?).map(drop)
    }

    /// Adds partitions to a topic.
    pub fn create_partitions(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
        count: u32,
    ) -> Result<(), ClientError> {
        let request = request::CreatePartitions { stream: *stream, topic: *topic, partitions_count: count };
        self.call(Call::of(&request)?).map(drop)
    }

    /// Removes the oldest sealed segments of a partition, at most `count`; less where a consumer has not read them.
    pub fn delete_segments(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
        partition: PartitionId,
        count: u32,
    ) -> Result<(), ClientError> {
        let (stream, topic) = (*stream, *topic);
        let request = request::DeleteSegments { stream, topic, partition, segments_count: count };
        self.call(Call::of(&request)?).map(drop)
    }

    /// Removes the partitions with the highest ids, with their messages.
    pub fn delete_partitions(
        &mut self,
        stream: &Identifier<'_>,
        topic: &Identifier<'_>,
        count: u32,
    ) -> Result<(), ClientError> {
        let request = request::DeletePartitions { stream: *stream, topic: *topic, partitions_count: count };
        self.call(Call::of(&request)?).map(drop)
    }
}

impl From<&StreamHeader<'_>> for StreamSummary {
    fn from(header: &StreamHeader<'_>) -> Self {
        Self {
            id: header.id,
            name: header.name.to_owned(),
            created_at: header.created_at,
            topics_count: header.topics_count,
            size_bytes: header.size_bytes,
            messages_count: header.messages_count,
        }
    }
}

impl From<&TopicHeader<'_>> for TopicSummary {
    fn from(header: &TopicHeader<'_>) -> Self {
        // What was set overrules what was filled in.
        let options = header.derived.iter().chain(header.explicit.iter());
        Self {
            id: header.id,
            name: header.name.to_owned(),
            created_at: header.created_at,
            partitions_count: header.partitions_count,
            size_bytes: header.size_bytes,
            messages_count: header.messages_count,
            options: options.map(|(key, value)| (key.to_owned(), value_text(&value))).collect(),
        }
    }
}

impl From<&reply::TopicDetails<'_>> for TopicDetails {
    fn from(details: &reply::TopicDetails<'_>) -> Self {
        let mut partitions: Vec<_> = details
            .partitions
            .iter()
            .map(|partition| PartitionDetails {
                id: partition.id,
                created_at: partition.created_at,
                segments_count: partition.segments_count,
                current_offset: partition.current_offset,
                size_bytes: partition.size_bytes,
                messages_count: partition.messages_count,
                context: partition.context,
            })
            .collect();
        partitions.sort_by_key(|partition| partition.id);
        Self { summary: TopicSummary::from(&details.header), partitions }
    }
}

/// Options as a block, every value as text: the broker reads text for every kind. Source: wire protocol, section 3.7.
fn encode_options(options: &Options) -> Result<BytesMut, ClientError> {
    let mut map = wire_options::OptionMap::new();
    for (key, value) in options {
        map.set(key, value.as_str());
    }
    Ok(map.encode()?)
}

/// The value of an option or a user header as text; bytes that are none as hexadecimal digits. Source: wire protocol,
/// section 3.6.
pub fn value_text(value: &Value<'_>) -> String {
    let text = match value.value_kind() {
        Some(ValueKind::Bool) => value.as_bool().map(|value| value.to_string()),
        Some(ValueKind::Text) => value.as_text().map(str::to_owned),
        Some(ValueKind::F32 | ValueKind::F64) => value.as_float().map(|value| value.to_string()),
        _ => (value.as_unsigned().map(|value| value.to_string()))
            .or_else(|| value.as_signed().map(|value| value.to_string())),
    };
    text.unwrap_or_else(|| value.bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_text() {
        let text = |kind, bytes: &[u8]| value_text(&Value { kind, bytes });
        assert_eq!(text(2, "äh".as_bytes()), "äh");
        assert_eq!(text(12, &5u64.to_le_bytes()), "5");
        assert_eq!(text(7, &(-5i64).to_le_bytes()), "-5");
        assert_eq!(text(3, &[1]), "true");
        assert_eq!(text(15, &0.5f64.to_le_bytes()), "0.5");
        assert_eq!(text(12, &[1, 2]), "0102");
        assert_eq!(text(1, &[0xab]), "ab");
        assert_eq!(text(2, &[0xff]), "ff");
        assert_eq!(text(99, &[1]), "01");
    }

    #[test]
    fn options_are_written_as_the_example_shows() {
        let block = encode_options(&Options::from([("k".into(), "v".into())])).unwrap();
        assert_eq!(block.as_ref(), [2, 1, 0, 0, 0, b'k', 2, 1, 0, 0, 0, b'v']);
        assert!(encode_options(&Options::from([("k".into(), String::new())])).is_err());
        assert!(encode_options(&Options::from([("k".into(), "v".repeat(256))])).is_err());
    }

    #[test]
    fn topic_names_its_effective_options() {
        let derived = Options::from([("a".into(), "overruled".into()), ("b".into(), "filled in".into())]);
        let (explicit, derived) = (
            encode_options(&Options::from([("a".into(), "set".into())])).unwrap(),
            encode_options(&derived).unwrap(),
        );
        let block = |bytes| wire_options::Block::Encoded(wire_options::Options::parse(bytes).unwrap());
        let header = TopicHeader {
            id: TopicId(3),
            created_at: Micros(9),
            partitions_count: 0,
            size_bytes: 11,
            messages_count: 12,
            name: "web",
            explicit: block(&explicit),
            derived: block(&derived),
        };
        let topic = TopicSummary::from(&header);
        assert_eq!((topic.id, topic.name.as_str(), topic.messages_count), (TopicId(3), "web", 12));
        assert_eq!(
            topic.options,
            Options::from([("a".into(), "set".into()), ("b".into(), "filled in".into())])
        );
    }
}
