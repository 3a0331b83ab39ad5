//! Answers about resources: metadata from here, sizes and counts from the shards at the time of the request.

use bytes::BytesMut;
use laneway_wire::reply::{
    OptionDescriptor, PartitionRecord, Record, StreamDetails, StreamHeader, TokenRecord, TopicDetails,
    TopicHeader, UserDetails, UserHeader, put_option_descriptors, put_rejection, put_success, put_token,
};
use laneway_wire::request::UserStatus as WireUserStatus;
use laneway_wire::{
    Incarnation, Micros, Offset, Op, OwnerGeneration, PartitionContext, PartitionId, ProtocolVersion, Status,
};

use crate::metadata::Metadata;
use crate::options::{OptionDefaults, Scope, describe};
use crate::replies::{CommittedReply, ReplyBody, StreamCreated, TopicCreated, UserCreated};
use crate::streams::Stream;
use crate::tokens::Token;
use crate::topics::Topic;
use crate::users::{User, UserStatus};

/// What a stream or topic retains. Approximate while writes are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of stored framing, payloads and headers.
    pub size_bytes: u64,
    /// Messages.
    pub messages_count: u64,
}

/// What only the shard of a partition knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionUsage {
    /// Segments, the active one included.
    pub segments_count: u32,
    /// The head; 0 for an empty partition.
    pub current_offset: Offset,
    /// What it retains.
    pub usage: Usage,
}

/// The nodes of a partition, as 0.12.2 lists them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replicas<'a> {
    /// Nodes that hold it.
    pub members: &'a [u8],
    /// Those of them that are in sync.
    pub in_sync: &'a [u8],
}

impl Stream {
    /// The header of the stream as it is now.
    pub fn header(&self, usage: Usage) -> StreamHeader<'_> {
        StreamHeader {
            id: self.id,
            created_at: self.created_at,
            topics_count: u32::try_from(self.topics.count()).expect("topics are bounded by TOPICS_MAX"),
            size_bytes: usage.size_bytes,
            messages_count: usage.messages_count,
            name: &self.name,
            explicit: self.options.explicit(),
            derived: self.options.derived(),
        }
    }
}

impl Topic {
    /// The header of the topic as it is now.
    pub fn header(&self, usage: Usage) -> TopicHeader<'_> {
        TopicHeader {
            id: self.id,
            created_at: self.created_at,
            partitions_count: self.partitions_count(),
            size_bytes: usage.size_bytes,
            messages_count: usage.messages_count,
            name: &self.name,
            explicit: self.options.explicit(),
            derived: self.options.derived(),
        }
    }

    /// The topic and its partitions. `usage` is asked once per partition, in ascending order; the topic's own sums up.
    pub fn details<'a>(
        &'a self,
        metadata: &Metadata,
        replicas: Replicas<'a>,
        mut usage: impl FnMut(PartitionId) -> PartitionUsage,
    ) -> TopicDetails<'a> {
        let mut total = Usage::default();
        let partitions = self.partitions().map(|(key, partition)| {
            let usage = usage(key.partition);
            total.size_bytes = total.size_bytes.saturating_add(usage.usage.size_bytes);
            total.messages_count = total.messages_count.saturating_add(usage.usage.messages_count);
            let context = context(key.incarnation, metadata.applied());
            record(key.partition, partition.created_at, usage, context, replicas)
        });
        let partitions = partitions.collect();
        TopicDetails { header: self.header(total), partitions }
    }
}

impl User {
    /// The header of the user.
    pub fn header(&self) -> UserHeader<'_> {
        UserHeader {
            id: self.id,
            created_at: self.created_at,
            status: self.status.into(),
            username: &self.username,
            explicit: self.options.explicit(),
            derived: self.options.derived(),
        }
    }

    /// The user with its permissions.
    pub fn details(&self) -> UserDetails<'_> {
        UserDetails { header: self.header(), permissions: self.permissions.as_ref().map(Into::into) }
    }
}

impl From<UserStatus> for WireUserStatus {
    fn from(status: UserStatus) -> Self {
        match status {
            UserStatus::Active => WireUserStatus::Active,
            UserStatus::Inactive => WireUserStatus::Inactive,
        }
    }
}

impl Token {
    /// The token as its owner's list shows it.
    pub fn record(&self) -> TokenRecord<'_> {
        TokenRecord { name: &self.name, expires_at: self.expires_at.unwrap_or(Micros(0)) }
    }
}

impl UserCreated {
    fn details(&self) -> UserDetails<'_> {
        let header = UserHeader {
            id: self.id,
            created_at: self.created_at,
            status: self.status.into(),
            username: &self.username,
            explicit: self.options.explicit(),
            derived: self.options.derived(),
        };
        UserDetails { header, permissions: self.permissions.as_ref().map(Into::into) }
    }
}

impl StreamCreated {
    fn details(&self) -> StreamDetails<'_> {
        let header = StreamHeader {
            id: self.id,
            created_at: self.created_at,
            topics_count: 0,
            size_bytes: 0,
            messages_count: 0,
            name: &self.name,
            explicit: self.options.explicit(),
            derived: self.options.derived(),
        };
        StreamDetails { header, topics: Vec::new() }
    }
}

impl TopicCreated {
    fn details<'a>(&'a self, op: Op, replicas: Replicas<'a>) -> TopicDetails<'a> {
        let header = TopicHeader {
            id: self.id,
            created_at: self.created_at,
            partitions_count: self.partitions_count,
            size_bytes: 0,
            messages_count: 0,
            name: &self.name,
            explicit: self.options.explicit(),
            derived: self.options.derived(),
        };
        // Every shard opens a partition with one segment, which is active.
        let usage = PartitionUsage { segments_count: 1, ..PartitionUsage::default() };
        let partitions = (0..self.partitions_count).map(|id| {
            record(PartitionId(id), self.created_at, usage, context(Incarnation(op.0), op), replicas)
        });
        TopicDetails { header, partitions: partitions.collect() }
    }
}

impl CommittedReply {
    /// Appends the body of a result-framed reply: the result section, then the payload of a success. The same reply gives
    /// the same bytes for the same protocol, whenever it is repeated. Logout is not result-framed: its body is empty.
    pub fn put_body(&self, out: &mut BytesMut, version: ProtocolVersion, replicas: Replicas<'_>) {
        if !self.status.is_ok() {
            return put_rejection(out, self.status);
        }
        match &self.body {
            // The token was shown once. Source: wire protocol, section 2.8.
            ReplyBody::TokenCreated => {
                return put_rejection(out, Status::PersonalAccessTokenAlreadyExists);
            }
            _ => put_success(out),
        }
        match &self.body {
            ReplyBody::Empty | ReplyBody::TokenCreated => {}
            ReplyBody::StreamCreated(stream) => stream.details().put(out),
            ReplyBody::TopicCreated(topic) => topic.details(self.op, replicas).put(out, version),
            ReplyBody::UserCreated(user) => user.details().put(out),
        }
    }

    /// Appends the body of the first answer to a request for a token, which alone shows it.
    ///
    /// # Panics
    /// When the reply is not of a token that was made.
    pub fn put_token_body(&self, out: &mut BytesMut, token: &str) {
        assert!(self.status.is_ok() && self.body == ReplyBody::TokenCreated, "a token was made");
        put_success(out);
        put_token(out, token);
    }
}

/// Appends the answer to DescribeOptions for a connection of `version`. `defaults` is what the answering node is set to.
pub fn put_descriptions(
    out: &mut BytesMut,
    scope: Scope,
    version: ProtocolVersion,
    defaults: &OptionDefaults,
) {
    let rows: Vec<_> = describe(scope, version).collect();
    let defaults: Vec<_> = rows.iter().map(|row| row.default_value(defaults)).collect();
    let descriptors: Vec<_> = rows
        .iter()
        .zip(&defaults)
        .map(|(row, default)| OptionDescriptor {
            key: row.name,
            kind: row.kind,
            flags: row.flags(),
            default: default.as_ref().map_or(&[], |value| value.bytes.as_slice()),
            description: row.description,
        })
        .collect();
    put_option_descriptors(out, &descriptors);
}

/// The context of a partition in answers about topics: no group is concerned, so there is no owner.
fn context(incarnation: Incarnation, metadata_op: Op) -> PartitionContext {
    PartitionContext { incarnation, owner_generation: OwnerGeneration(0), metadata_op }
}

fn record<'a>(
    id: PartitionId,
    created_at: Micros,
    usage: PartitionUsage,
    context: PartitionContext,
    replicas: Replicas<'a>,
) -> PartitionRecord<'a> {
    PartitionRecord {
        id,
        created_at,
        segments_count: usage.segments_count,
        current_offset: usage.current_offset,
        size_bytes: usage.usage.size_bytes,
        messages_count: usage.usage.messages_count,
        context,
        members: replicas.members,
        in_sync: replicas.in_sync,
    }
}
