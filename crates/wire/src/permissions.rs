//! The permissions block. Source: wire protocol, section 3.10.

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};

use crate::ids::{StreamId, TopicId};
use crate::primitive::{DecodeError, Reader};

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: bool,)*
        }

        impl $name {
            fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($name { $($field: reader.boolean(stringify!($field))?,)* })
            }

            fn put(&self, out: &mut BytesMut) {
                $(out.put_u8(self.$field.into());)*
            }
        }
    )*};
}

flags! {
    /// What a user may do everywhere; ten bytes in this order.
    GlobalPermissions {
        /// Manage servers.
        manage_servers,
        /// Read about servers.
        read_servers,
        /// Manage users.
        manage_users,
        /// Read about users.
        read_users,
        /// Manage streams.
        manage_streams,
        /// Read about streams.
        read_streams,
        /// Manage topics.
        manage_topics,
        /// Read about topics.
        read_topics,
        /// Read messages.
        poll_messages,
        /// Append messages.
        send_messages,
    }
    /// What a user may do with a stream; six bytes in this order.
    StreamFlags {
        /// Manage the stream.
        manage_stream,
        /// Read about the stream.
        read_stream,
        /// Manage its topics.
        manage_topics,
        /// Read about its topics.
        read_topics,
        /// Read its messages.
        poll_messages,
        /// Append messages to it.
        send_messages,
    }
    /// What a user may do with a topic; four bytes in this order.
    TopicPermissions {
        /// Manage the topic.
        manage_topic,
        /// Read about the topic.
        read_topic,
        /// Read its messages.
        poll_messages,
        /// Append messages to it.
        send_messages,
    }
}

/// What a user may do with one stream and with topics of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamPermissions {
    /// The stream itself.
    pub flags: StreamFlags,
    /// Single topics, in ascending order on the wire.
    pub topics: BTreeMap<TopicId, TopicPermissions>,
}

/// What a user may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions {
    /// Everywhere.
    pub global: GlobalPermissions,
    /// Single streams, in ascending order on the wire.
    pub streams: BTreeMap<StreamId, StreamPermissions>,
}

impl Permissions {
    /// Everything, as the root user has it.
    pub fn root() -> Self {
        let global = GlobalPermissions {
            manage_servers: true,
            read_servers: true,
            manage_users: true,
            read_users: true,
            manage_streams: true,
            read_streams: true,
            manage_topics: true,
            read_topics: true,
            poll_messages: true,
            send_messages: true,
        };
        Permissions { global, streams: BTreeMap::new() }
    }

    /// Reads a block that fills `bytes`. Streams and topics may come in any order, each once.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let permissions = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(permissions)
    }

    /// Reads a block, which says itself where it ends.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let global = GlobalPermissions::read(reader)?;
        let mut streams = BTreeMap::new();
        let mut more = reader.boolean("has_streams")?;
        while more {
            let id = StreamId(reader.u32("stream_id")?);
            if streams.insert(id, read_stream(reader)?).is_some() {
                return Err(DecodeError::Duplicate { field: "stream_id" });
            }
            more = reader.boolean("has_next_stream")?;
        }
        Ok(Permissions { global, streams })
    }

    /// Appends the block, streams and topics in ascending order.
    pub fn put(&self, out: &mut BytesMut) {
        self.global.put(out);
        out.put_u8((!self.streams.is_empty()).into());
        let mut streams = self.streams.iter().peekable();
        while let Some((id, stream)) = streams.next() {
            out.put_u32_le(id.0);
            stream.flags.put(out);
            out.put_u8((!stream.topics.is_empty()).into());
            let mut topics = stream.topics.iter().peekable();
            while let Some((id, topic)) = topics.next() {
                out.put_u32_le(id.0);
                topic.put(out);
                out.put_u8(topics.peek().is_some().into());
            }
            out.put_u8(streams.peek().is_some().into());
        }
    }

    /// Appends the length of the block and the block.
    pub fn put_prefixed(&self, out: &mut BytesMut) {
        let at = out.len();
        out.put_u32_le(0);
        self.put(out);
        let len = u32::try_from(out.len() - at - 4).expect("permissions fit a frame");
        out[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }
}

fn read_stream(reader: &mut Reader<'_>) -> Result<StreamPermissions, DecodeError> {
    let flags = StreamFlags::read(reader)?;
    let mut topics = BTreeMap::new();
    let mut more = reader.boolean("has_topics")?;
    while more {
        let id = TopicId(reader.u32("topic_id")?);
        if topics.insert(id, TopicPermissions::read(reader)?).is_some() {
            return Err(DecodeError::Duplicate { field: "topic_id" });
        }
        more = reader.boolean("has_next_topic")?;
    }
    Ok(StreamPermissions { flags, topics })
}
