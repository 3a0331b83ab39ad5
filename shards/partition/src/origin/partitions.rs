//! Requests for a partition: found in the metadata, fenced, permitted, and sent to the owner.

use std::rc::Rc;

use bytes::Buf;
use laneway_mailbox::Class;
use laneway_metadata::names::Missing;
use laneway_metadata::options::StreamEncryption;
use laneway_metadata::permissions::Rule;
use laneway_metadata::{PartitionPlace, Stream, Topic};
use laneway_reads::{Deadlines, DeferredTimes, Requester, SessionKey, Strategy};
use laneway_wire::batch::verify_producer_batch;
use laneway_wire::reply::{PartitionRoute, Record};
use laneway_wire::request::{
    DeferredPoll, DeleteConsumerOffset, DeleteSegments, GetConsumerOffset, GetPartitionRoute, PollMessages,
    SendMessages, StoreConsumerOffset,
};
use laneway_wire::{
    Consumer, ConsumerKind as WireKind, DecodeError, Frame, Identifier, Micros, Operation, OwnerGeneration,
    PartitionId, Partitioning, RequestHeader, Status, Strategy as WireStrategy,
};

use super::reads::{REPLICA, VIEW};
use crate::clock;
use crate::connections::{Binding, Connection};
use crate::core::{ConsumerKey, ConsumerKind, Identity};
use crate::message::{Access, Message, PartitionRequest, PollWork, ReplyTo, Work};
use crate::progress::ProgressKey;
use crate::shard::Shard;
use crate::stream_keys::{self, StreamCipher};

/// How long an immediate poll may take to answer, microseconds.
const IMMEDIATE_POLL_US_MAX: u64 = 10_000_000;

/// Which permission a request for a partition needs.
#[derive(Clone, Copy)]
enum Need {
    Send,
    Poll,
    Either,
    Manage,
}

impl Shard {
    pub(super) fn serve_partition_write(
        self: &Rc<Self>,
        connection: &Connection,
        reply_to: ReplyTo,
        binding: Binding,
        operation: Operation,
        frame: Frame,
    ) {
        let request = match operation {
            Operation::SendMessages => self.plan_send(reply_to, &binding, frame),
            Operation::StoreConsumerOffset => self.plan_store(reply_to, &binding, &frame.body),
            Operation::DeleteConsumerOffset => self.plan_delete(reply_to, &binding, &frame.body),
            Operation::DeleteSegments => self.plan_delete_segments(reply_to, &binding, &frame.body),
            _ => Err(Status::InvalidCommand),
        };
        self.serve_planned(connection, reply_to, request);
    }

    /// Serves a request that passed its checks, when its turn comes; answers one that did not.
    pub(super) fn serve_planned(
        self: &Rc<Self>,
        connection: &Connection,
        reply_to: ReplyTo,
        planned: Result<PartitionRequest, Status>,
    ) {
        let request = match planned {
            Ok(request) => request,
            Err(status) => return self.refuse_here(reply_to, status),
        };
        if let Work::Poll(poll) = &request.work {
            let bytes = poll.max_bytes.unwrap_or(u32::MAX).min(self.settings.read_bytes_max);
            connection.charge(reply_to.request(), bytes as usize);
        }
        let request = match request.work.progress_of() {
            Some(consumer) => {
                let key = ProgressKey { partition: request.key, consumer: consumer.clone() };
                connection.progress.borrow_mut().enter(key, reply_to.request(), request)
            }
            None => Some(request),
        };
        if let Some(request) = request {
            self.send_to_owner(connection, request);
        }
    }

    /// The turn of a request that waited for an earlier one of the same consumer.
    pub(super) fn serve_next(self: &Rc<Self>, connection: &Connection, request: PartitionRequest) {
        match &request.work {
            // The client has stopped waiting: nothing is read for it.
            Work::Poll(poll) if clock::now() >= poll.deadlines.request => {
                self.refuse_here(request.reply_to, Status::TransientNotAccepted);
            }
            _ => self.send_to_owner(connection, request),
        }
    }

    fn send_to_owner(self: &Rc<Self>, connection: &Connection, request: PartitionRequest) {
        let owner = self.owner_of(request.lane);
        if matches!(request.work, Work::Poll(_)) {
            connection.defer(request.reply_to.request(), owner);
        }
        if owner == self.settings.id {
            // In place: an own partition costs no message.
            self.serve_request(clock::now(), clock::wall(), request);
            return;
        }
        let reply_to = request.reply_to;
        if self.try_send(owner, Message::Partition(Box::new(request))).is_err() {
            self.refuse_here(reply_to, Status::TransientNotAccepted);
        }
    }

    fn plan_send(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        frame: Frame,
    ) -> Result<PartitionRequest, Status> {
        let Frame { header, mut body, .. } = frame;
        let request = SendMessages::parse(&body).map_err(malformed)?;
        let partition = match request.partitioning {
            Partitioning::Partition(partition) => partition,
            // Clients resolve the others themselves.
            _ => return Err(Status::FeatureUnavailable),
        };
        let (place, cipher) =
            self.find(&header, binding, request.stream, request.topic, partition, Need::Send)?;
        let messages = request.messages_count;
        let summary = verify_producer_batch(request_batch(&body, request.batch_at), messages)
            .map_err(|error| error.status())?;
        let producer = summary.producer;
        body.advance(request.batch_at);
        if let Some(cipher) = cipher {
            // Nothing behind this point sees the messages of an encrypted stream: not the log, not the disk, not the cache.
            body = stream_keys::seal(&cipher, &body, messages)?;
        }
        let work = Work::Append {
            identity: identity(&header, binding),
            stream: place.stream,
            topic: place.topic,
            batch: body,
            messages,
            producer,
        };
        Ok(self.request(reply_to, &place, work))
    }

    fn plan_store(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        body: &[u8],
    ) -> Result<PartitionRequest, Status> {
        let StoreConsumerOffset { consumer, stream, topic, partition, offset, ack: _ } =
            StoreConsumerOffset::parse(body).map_err(malformed)?;
        let (place, consumer) =
            self.find_progress(&reply_to, binding, consumer, (stream, topic, partition))?;
        let identity = identity(reply_to.echo.header(), binding);
        Ok(self.request(reply_to, &place, Work::StoreOffset { identity, consumer, offset }))
    }

    fn plan_delete(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        body: &[u8],
    ) -> Result<PartitionRequest, Status> {
        let DeleteConsumerOffset { consumer, stream, topic, partition, ack: _ } =
            DeleteConsumerOffset::parse(body).map_err(malformed)?;
        let (place, consumer) =
            self.find_progress(&reply_to, binding, consumer, (stream, topic, partition))?;
        let identity = identity(reply_to.echo.header(), binding);
        Ok(self.request(reply_to, &place, Work::DeleteOffset { identity, consumer }))
    }

    /// Names no incarnation: the one that is there now is what the request means, and the owner refuses another.
    fn plan_delete_segments(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        body: &[u8],
    ) -> Result<PartitionRequest, Status> {
        let DeleteSegments { stream, topic, partition, segments_count: count } =
            DeleteSegments::parse(body).map_err(malformed)?;
        let (place, _) = self.locate(binding, stream, topic, partition, Need::Manage)?;
        let identity = identity(reply_to.echo.header(), binding);
        Ok(self.request(reply_to, &place, Work::DeleteSegments { identity, count }))
    }

    /// The partition and the key of a change of stored progress.
    fn find_progress(
        &self,
        reply_to: &ReplyTo,
        binding: &Binding,
        consumer: Consumer<'_>,
        (stream, topic, partition): (Identifier<'_>, Identifier<'_>, Option<PartitionId>),
    ) -> Result<(PartitionPlace, ConsumerKey), Status> {
        let header = reply_to.echo.header();
        let (place, _) =
            self.find(header, binding, stream, topic, partition.unwrap_or_default(), Need::Poll)?;
        Ok((place, consumer_key(&consumer)?))
    }

    pub(super) fn plan_get_offset(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        frame: &Frame,
    ) -> Result<PartitionRequest, Status> {
        let request = GetConsumerOffset::parse(&frame.body).map_err(malformed)?;
        let partition = request.partition.unwrap_or_default();
        let (place, _) = self.locate(binding, request.stream, request.topic, partition, Need::Poll)?;
        check_incarnation_if_named(&frame.header, &place)?;
        let consumer = consumer_key(&request.consumer)?;
        Ok(self.request(reply_to, &place, Work::GetOffset { consumer }))
    }

    pub(super) fn plan_poll(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        frame: &Frame,
    ) -> Result<PartitionRequest, Status> {
        let poll = PollMessages::parse(&frame.body).map_err(malformed)?;
        let now = clock::now();
        let deadlines = Deadlines { wait: now, request: now.after_us(IMMEDIATE_POLL_US_MAX) };
        let bounds = PollBounds { min_count: 0, max_bytes: None, deadlines };
        self.plan_read(reply_to, binding, &frame.header, &poll, bounds)
    }

    pub(super) fn plan_deferred_poll(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        frame: &Frame,
    ) -> Result<PartitionRequest, Status> {
        let deferred = DeferredPoll::parse(&frame.body).map_err(malformed)?;
        let now = clock::now();
        let times = DeferredTimes {
            arrival: now,
            wait_us: deferred.wait_us,
            request_timeout_us: deferred.request_timeout_us,
        };
        let deadlines = times
            .deadlines(now, self.settings.wait_us_max)
            .map_err(|_queued_too_long| Status::TransientNotAccepted)?;
        let bounds =
            PollBounds { min_count: deferred.min_count, max_bytes: Some(deferred.max_bytes), deadlines };
        self.plan_read(reply_to, binding, &frame.header, &deferred.poll, bounds)
    }

    fn plan_read(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        header: &RequestHeader,
        poll: &PollMessages<'_>,
        bounds: PollBounds,
    ) -> Result<PartitionRequest, Status> {
        if poll.consumer.kind == WireKind::Group && poll.partition.is_none() {
            return Err(Status::InvalidIdentifier);
        }
        // Groups come with their own reads; an external group never reads here.
        if poll.consumer.kind != WireKind::Consumer {
            return Err(Status::FeatureUnavailable);
        }
        let partition = poll.partition.unwrap_or_default();
        let (place, cipher) = self.find(header, binding, poll.stream, poll.topic, partition, Need::Poll)?;
        let work = PollWork {
            access: Access {
                session: SessionKey { client: binding.client, session: binding.session },
                user: binding.user,
                stream: place.stream,
                topic: place.topic,
            },
            consumer: consumer_key(&poll.consumer)?,
            requester: requester(&reply_to, binding),
            strategy: strategy(poll.strategy),
            count: poll.count,
            min_count: bounds.min_count,
            max_bytes: bounds.max_bytes,
            commit: poll.auto_commit,
            deadlines: bounds.deadlines,
            cipher,
        };
        Ok(self.request(reply_to, &place, Work::Poll(work)))
    }

    /// A client takes a deferred read back. No answer of its own.
    pub(super) fn cancel(
        self: &Rc<Self>,
        connection: &Connection,
        binding: &Binding,
        header: &RequestHeader,
    ) {
        if let Some(fetch) = connection.fetches.borrow().get(&header.request) {
            return fetch.cancel();
        }
        let waiting = connection.progress.borrow_mut().cancel(header.request);
        if let Some(PartitionRequest { reply_to, work: Work::Poll(poll), .. }) = waiting {
            // It waited for its turn and did nothing. A committing one is owed an answer.
            let frame = poll.commit.then(|| reply_to.echo.refusal(Status::TransientNotAccepted));
            return self.deliver_here(reply_to, frame);
        }
        let Some(owner) = connection.deferred(header.request) else { return };
        let requester = Requester {
            connection: connection.id,
            session: SessionKey { client: binding.client, session: binding.session },
            request: header.request,
        };
        if owner == self.settings.id {
            self.owner.borrow_mut().handle_cancel(requester);
        } else {
            // Behind the request that it takes back, in the same queue.
            self.send(owner, Class::Request, Message::Cancel(requester));
        }
    }

    pub(super) fn route(
        &self,
        binding: &Binding,
        body: &[u8],
    ) -> Result<impl FnOnce(&mut bytes::BytesMut) + use<>, Status> {
        let request = GetPartitionRoute::parse(body).map_err(malformed)?;
        let (stream, topic) = (request.stream, request.topic);
        let (place, _) = self.locate(binding, stream, topic, request.partition, Need::Either)?;
        let metadata = self.metadata();
        let partitions_count =
            metadata.topic(stream, topic).map_err(|missing| missing.admission_status())?.1.partitions_count();
        let route = PartitionRoute {
            incarnation: place.key.incarnation,
            metadata_op: metadata.applied(),
            view: VIEW,
            partitions_count,
            primary_replica: REPLICA,
        };
        Ok(move |out: &mut bytes::BytesMut| route.put(out))
    }

    /// Finds a partition and checks everything that a request with a context must pass. With the cipher of an encrypted
    /// stream.
    fn find(
        &self,
        header: &RequestHeader,
        binding: &Binding,
        stream: Identifier<'_>,
        topic: Identifier<'_>,
        partition: PartitionId,
        need: Need,
    ) -> Result<(PartitionPlace, StreamCipher), Status> {
        if header.minimum_metadata_op > self.metadata().applied() {
            return Err(Status::TransientNotAccepted);
        }
        let (place, cipher) = self.locate(binding, stream, topic, partition, need)?;
        if header.partition_incarnation != place.key.incarnation {
            return Err(Status::HistoryUnavailable);
        }
        if header.owner_generation != OwnerGeneration(0) {
            return Err(Status::ConsumerGroupPartitionNotOwned);
        }
        Ok((place, cipher))
    }

    fn locate(
        &self,
        binding: &Binding,
        stream: Identifier<'_>,
        topic: Identifier<'_>,
        partition: PartitionId,
        need: Need,
    ) -> Result<(PartitionPlace, StreamCipher), Status> {
        let metadata = self.metadata();
        // A change of the topic answers as the metadata lane does.
        let missing = |missing: Missing| match need {
            Need::Manage => missing.committed_status(),
            _ => missing.admission_status(),
        };
        let (found_stream, found_topic) = metadata.topic(stream, topic).map_err(missing)?;
        let (stream_id, topic_id) = (found_stream.id, found_topic.id);
        let send = || metadata.permit(binding.user, Rule::Send(stream_id, topic_id));
        let poll = || metadata.permit(binding.user, Rule::Poll(stream_id, topic_id));
        match need {
            Need::Send => send()?,
            Need::Poll => poll()?,
            Need::Either => send().or_else(|_| poll())?,
            Need::Manage => metadata.permit(binding.user, Rule::ManageTopic(stream_id, topic_id))?,
        }
        if found_topic.partitions_count() == 0 && matches!(need, Need::Send) {
            return Err(Status::NoPartitions);
        }
        let place = metadata.partition(stream_id.0, topic_id.0, partition).map_err(missing)?;
        Ok((place, self.cipher(found_stream, found_topic)?))
    }

    /// What seals and opens the messages of a stream; none in plain text. Refuses what this node must not serve.
    pub(super) fn cipher(&self, stream: &Stream, topic: &Topic) -> Result<StreamCipher, Status> {
        if *topic.options.encryption() == StreamEncryption::Unreadable {
            return Err(Status::UnsupportedCriticalOption);
        }
        self.stream_keys.cipher(&self.settings.keys, stream)
    }

    fn request(&self, reply_to: ReplyTo, place: &PartitionPlace, work: Work) -> PartitionRequest {
        PartitionRequest {
            lane: place.lane,
            key: place.key,
            metadata_op: self.metadata().applied(),
            reply_to,
            work,
        }
    }
}

/// What differs between an immediate and a deferred poll.
struct PollBounds {
    min_count: u32,
    max_bytes: Option<u32>,
    deadlines: Deadlines,
}

fn malformed(error: DecodeError) -> Status {
    error.status()
}

fn request_batch(body: &[u8], batch_at: usize) -> &[u8] {
    body.get(batch_at..).unwrap_or_default()
}

fn check_incarnation_if_named(header: &RequestHeader, place: &PartitionPlace) -> Result<(), Status> {
    let named = header.partition_incarnation;
    match named.0 == 0 || named == place.key.incarnation {
        true => Ok(()),
        false => Err(Status::HistoryUnavailable),
    }
}

fn identity(header: &RequestHeader, binding: &Binding) -> Identity {
    Identity { client: binding.client, session: binding.session, request: header.request }
}

fn requester(reply_to: &ReplyTo, binding: &Binding) -> Requester {
    Requester {
        connection: reply_to.connection,
        session: SessionKey { client: binding.client, session: binding.session },
        request: reply_to.request(),
    }
}

/// The key that a consumer's offsets are stored under. Groups are keyed by their own number and come with their
/// commands.
pub(super) fn consumer_key(consumer: &Consumer<'_>) -> Result<ConsumerKey, Status> {
    let kind = match consumer.kind {
        WireKind::Consumer => ConsumerKind::Consumer,
        WireKind::Group | WireKind::ExternalGroup => return Err(Status::FeatureUnavailable),
    };
    match consumer.id {
        Identifier::Numeric(number) => Ok(ConsumerKey::number(kind, u64::from(number))),
        Identifier::Name(name) => ConsumerKey::name(kind, name.as_bytes()).ok_or(Status::InvalidCommand),
    }
}

pub(super) fn strategy(strategy: WireStrategy) -> Strategy {
    match strategy {
        WireStrategy::Offset(offset) => Strategy::Offset(offset),
        WireStrategy::Timestamp(timestamp) => Strategy::Timestamp(Micros(timestamp)),
        WireStrategy::First => Strategy::First,
        WireStrategy::Last => Strategy::Last,
        WireStrategy::Next => Strategy::Next,
    }
}
