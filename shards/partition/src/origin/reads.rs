//! Reads of metadata, and the dispatch of everything that is not replicated.

use std::collections::BTreeMap;
use std::rc::Rc;

use laneway_metadata::permissions::Rule;
use laneway_metadata::views::{PartitionUsage as UsageView, Replicas, Usage, put_descriptions};
use laneway_wire::reply::{
    ClientDetails, ClientHeader, ClusterMetadata, ClusterNode, NodeRole, NodeStatus, Record, StreamDetails,
    Transport, put_topics_count,
};
use laneway_wire::request::{DescribeOptions, GetClient, GetMetadataChanges, GetStream, GetTopic, GetTopics};
use laneway_wire::{Code, Frame, Offset, PartitionKey, ReplicaId, Status, StreamId, TopicId};

use crate::connections::{Binding, Connection};
use crate::message::{self, ClientRow, PartitionUsage, Question, ReplyTo, UsageScope};
use crate::shard::Shard;

/// The replica id of a node that is alone. The same in the roster and in every route.
pub const REPLICA: ReplicaId = ReplicaId(0);

/// The nodes that hold a partition of a node that is alone.
pub const REPLICAS: &[u8] = &[REPLICA.0];

/// The view that routes show. A node that is alone never leaves it.
pub const VIEW: u32 = 0;

/// Name of the cluster that a node alone is.
const CLUSTER_NAME: &str = "laneway";

impl Shard {
    /// Serves a request that is not replicated, of a bound connection.
    pub(super) fn serve_read(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        binding: Binding,
        code: Code,
        frame: Frame,
    ) {
        let reply_to = self.reply_to(connection, &frame.header);
        connection.begin(reply_to.request(), frame.bytes);
        if !connection.user_is_within(&self.settings.user_limits) {
            return self.refuse_here(reply_to, Status::TransientNotAccepted);
        }
        match code {
            Code::PollMessages => {
                let planned = self.plan_poll(reply_to, &binding, &frame);
                self.serve_planned(connection, reply_to, planned);
            }
            Code::PollMessagesDeferred => {
                let planned = self.plan_deferred_poll(reply_to, &binding, &frame);
                self.serve_planned(connection, reply_to, planned);
            }
            Code::FetchMessages => self.serve_fetch(connection, reply_to, binding, &frame),
            Code::GetConsumerOffset => {
                let planned = self.plan_get_offset(reply_to, &binding, &frame);
                self.serve_planned(connection, reply_to, planned);
            }
            Code::GetPartitionRoute => match self.route(&binding, &frame.body) {
                Ok(route) => self.answer(reply_to, route),
                Err(status) => self.refuse_here(reply_to, status),
            },
            Code::GetClusterMetadata => self.answer(reply_to, |out| self.roster().put(out)),
            Code::GetUser => self.serve_user(reply_to, &binding, &frame),
            Code::GetUsers => self.serve_users(reply_to, &binding),
            Code::GetPersonalAccessTokens => self.serve_tokens(reply_to, &binding),
            Code::DescribeOptions => self.describe_options(reply_to, &binding, &frame),
            Code::GetMetadataChanges => self.serve_changes(reply_to, &binding, &frame),
            Code::GetMe => self.answer(reply_to, |out| me(connection, &binding).put(out)),
            Code::GetStats
            | Code::GetSnapshot
            | Code::GetClient
            | Code::GetClients
            | Code::GetStream
            | Code::GetStreams
            | Code::GetTopic
            | Code::GetTopics => {
                let shard = self.clone();
                compio::runtime::spawn(
                    async move { shard.serve_gathered(reply_to, binding, code, frame).await },
                )
                .detach();
            }
            _ => self.refuse_here(reply_to, Status::FeatureUnavailable),
        }
    }

    /// Reads that ask every shard.
    async fn serve_gathered(self: Rc<Self>, reply_to: ReplyTo, binding: Binding, code: Code, frame: Frame) {
        let result = match code {
            Code::GetStats => self.serve_stats(reply_to, &binding).await,
            Code::GetSnapshot => self.serve_snapshot(reply_to, &binding, &frame).await,
            Code::GetClients => self.serve_clients(reply_to, &binding, None).await,
            Code::GetClient => match GetClient::parse(&frame.body) {
                Ok(request) => self.serve_clients(reply_to, &binding, Some(request.client_id)).await,
                Err(error) => Err(error.status()),
            },
            Code::GetStream => self.serve_stream(reply_to, &binding, &frame).await,
            Code::GetStreams => self.serve_streams(reply_to, &binding).await,
            Code::GetTopic => self.serve_topic(reply_to, &binding, &frame).await,
            Code::GetTopics => self.serve_topics(reply_to, &binding, &frame).await,
            _ => Err(Status::InvalidCommand),
        };
        if let Err(status) = result {
            self.refuse_here(reply_to, status);
        }
    }

    pub(super) fn answer(self: &Rc<Self>, reply_to: ReplyTo, payload: impl FnOnce(&mut bytes::BytesMut)) {
        let frame = reply_to.echo.read(self.metadata().applied(), payload);
        self.deliver_here(reply_to, Some(frame));
    }

    fn roster(&self) -> ClusterMetadata<'_> {
        let address = &self.settings.address;
        let node = ClusterNode {
            replica_id: REPLICA,
            name: CLUSTER_NAME,
            ip: &address.ip,
            tcp: address.tcp_port,
            quic: 0,
            http: 0,
            websocket: 0,
            role: NodeRole::Leader,
            status: NodeStatus::Healthy,
        };
        ClusterMetadata { name: CLUSTER_NAME, nodes: vec![node] }
    }

    fn describe_options(self: &Rc<Self>, reply_to: ReplyTo, binding: &Binding, frame: &Frame) {
        match DescribeOptions::parse(&frame.body) {
            Ok(request) => {
                let defaults = &self.settings.plan.option_defaults;
                self.answer(reply_to, |out| put_descriptions(out, request.scope, binding.protocol, defaults));
            }
            Err(error) => self.refuse_here(reply_to, error.status()),
        }
    }

    /// A page of the change log, from the metadata of this shard.
    fn serve_changes(self: &Rc<Self>, reply_to: ReplyTo, binding: &Binding, frame: &Frame) {
        let metadata = self.metadata();
        let request = GetMetadataChanges::parse(&frame.body).map_err(|error| error.status());
        let permitted = metadata.permit(binding.user, Rule::ChangeLog);
        match request.and_then(|request| permitted.map(|()| request)) {
            Ok(request) => self.answer(reply_to, |out| metadata.put_changes(&request, out)),
            Err(status) => self.refuse_here(reply_to, status),
        }
    }

    async fn serve_stream(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
        frame: &Frame,
    ) -> Result<(), Status> {
        let request = GetStream::parse(&frame.body).map_err(|error| error.status())?;
        let metadata = self.metadata();
        let Ok(stream) = metadata.stream(request.stream) else {
            self.answer(reply_to, |_| {});
            return Ok(());
        };
        metadata.permit(binding.user, Rule::ReadStream(stream.id))?;
        let usage = self.usage(UsageScope::Stream(stream.id)).await?;
        self.answer(reply_to, |out| {
            let header = stream.header(usage.stream(stream.id));
            let topics =
                stream.topics.iter().map(|topic| topic.header(usage.topic(stream.id, topic.id))).collect();
            StreamDetails { header, topics }.put(out);
        });
        Ok(())
    }

    async fn serve_streams(self: &Rc<Self>, reply_to: ReplyTo, binding: &Binding) -> Result<(), Status> {
        let metadata = self.metadata();
        metadata.permit(binding.user, Rule::ListStreams)?;
        let usage = self.usage(UsageScope::Node).await?;
        self.answer(reply_to, |out| {
            for stream in metadata.streams().iter() {
                stream.header(usage.stream(stream.id)).put(out);
            }
        });
        Ok(())
    }

    async fn serve_topic(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
        frame: &Frame,
    ) -> Result<(), Status> {
        let request = GetTopic::parse(&frame.body).map_err(|error| error.status())?;
        let metadata = self.metadata();
        let Ok((stream, topic)) = metadata.topic(request.stream, request.topic) else {
            self.answer(reply_to, |_| {});
            return Ok(());
        };
        metadata.permit(binding.user, Rule::ReadTopic(stream.id, topic.id))?;
        let usage = self.usage(UsageScope::Topic(stream.id, topic.id)).await?;
        let replicas = Replicas { members: REPLICAS, in_sync: REPLICAS };
        self.answer(reply_to, |out| {
            let mut keys = topic.partitions().map(|(key, _)| key);
            let details = topic.details(&metadata, replicas, |_| {
                keys.next().map_or_else(UsageView::default, |key| usage.partition(key))
            });
            details.put(out, binding.protocol);
        });
        Ok(())
    }

    async fn serve_topics(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
        frame: &Frame,
    ) -> Result<(), Status> {
        let request = GetTopics::parse(&frame.body).map_err(|error| error.status())?;
        let metadata = self.metadata();
        let Ok(stream) = metadata.stream(request.stream) else {
            self.answer(reply_to, |out| put_topics_count(out, 0));
            return Ok(());
        };
        metadata.permit(binding.user, Rule::ListTopics(stream.id))?;
        let usage = self.usage(UsageScope::Stream(stream.id)).await?;
        self.answer(reply_to, |out| {
            put_topics_count(out, stream.topics.count());
            for topic in stream.topics.iter() {
                topic.header(usage.topic(stream.id, topic.id)).put(out);
            }
        });
        Ok(())
    }

    async fn serve_clients(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
        only: Option<u32>,
    ) -> Result<(), Status> {
        self.metadata().permit(binding.user, Rule::Servers)?;
        let mut rows = self.clients().await?;
        rows.sort_by_key(|row| row.id);
        self.answer(reply_to, |out| match only {
            None => rows.iter().for_each(|row| client_header(row).put(out)),
            Some(id) => {
                if let Some(row) = rows.iter().find(|row| row.id == id) {
                    ClientDetails { header: client_header(row), groups: Vec::new() }.put(out);
                }
            }
        });
        Ok(())
    }

    /// The connections of all shards.
    pub(super) async fn clients(&self) -> Result<Vec<ClientRow>, Status> {
        let mut rows = Vec::new();
        for shard in self.shard_ids() {
            match self.ask(shard, Question::Clients).await {
                Some(message::Answer::Clients(part)) => rows.extend(part),
                _ => return Err(Status::TransientNotAccepted),
            }
        }
        Ok(rows)
    }

    /// What the partitions of a scope hold, from all shards.
    pub(super) async fn usage(&self, scope: UsageScope) -> Result<UsageTable, Status> {
        let mut table = UsageTable::default();
        for shard in self.shard_ids() {
            match self.ask(shard, Question::Usage(scope)).await {
                Some(message::Answer::Usage(rows)) => rows.into_iter().for_each(|row| table.add(row)),
                _ => return Err(Status::TransientNotAccepted),
            }
        }
        Ok(table)
    }
}

/// What partitions hold, summed up for their topics and streams.
#[derive(Debug, Default)]
pub(super) struct UsageTable {
    partitions: BTreeMap<PartitionKey, PartitionUsage>,
    topics: BTreeMap<(StreamId, TopicId), Usage>,
    streams: BTreeMap<StreamId, Usage>,
}

impl UsageTable {
    fn add(&mut self, row: PartitionUsage) {
        for sum in [
            self.topics.entry((row.stream, row.topic)).or_default(),
            self.streams.entry(row.stream).or_default(),
        ] {
            sum.size_bytes += row.bytes;
            sum.messages_count += row.messages;
        }
        self.partitions.insert(row.key, row);
    }

    fn stream(&self, stream: StreamId) -> Usage {
        self.streams.get(&stream).copied().unwrap_or_default()
    }

    fn topic(&self, stream: StreamId, topic: TopicId) -> Usage {
        self.topics.get(&(stream, topic)).copied().unwrap_or_default()
    }

    fn partition(&self, key: PartitionKey) -> UsageView {
        let Some(row) = self.partitions.get(&key) else { return UsageView::default() };
        UsageView {
            segments_count: row.segments,
            current_offset: row.head.unwrap_or(Offset(0)),
            usage: Usage { size_bytes: row.bytes, messages_count: row.messages },
        }
    }

    /// Every partition of the scope.
    pub(super) fn rows(&self) -> impl Iterator<Item = &PartitionUsage> {
        self.partitions.values()
    }
}

fn client_header(row: &ClientRow) -> ClientHeader<'_> {
    ClientHeader {
        client_id: row.id,
        user_id: row.user,
        transport: Transport::Tcp,
        address: &row.address,
        groups_count: 0,
    }
}

struct Me {
    row: ClientRow,
}

impl Me {
    fn put(&self, out: &mut bytes::BytesMut) {
        ClientDetails { header: client_header(&self.row), groups: Vec::new() }.put(out);
    }
}

fn me(connection: &Connection, binding: &Binding) -> Me {
    Me {
        row: ClientRow {
            id: connection.number(),
            user: Some(binding.user),
            address: connection.peer.to_string(),
        },
    }
}
