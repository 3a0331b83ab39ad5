//! Changes of metadata: from the client's shard to the metadata lane on shard 0, and back.

use std::rc::Rc;

use laneway_metadata::planner::Planner;
use laneway_metadata::replies::CommittedReply;
use laneway_metadata::views::Replicas;
use laneway_metadata::{Answer, Mutation, RequestIdentity};
use laneway_shard_metadata::Verdict;
use laneway_wire::request::{
    CreatePartitions, CreateStream, CreateTopic, DeletePartitions, DeleteStream, DeleteTopic, UpdateResource,
    UpdateTarget,
};
use laneway_wire::{DecodeError, EvictionReason, Frame, Operation, ProtocolVersion, Status};

use super::reads::REPLICAS;
use crate::calls::CallId;
use crate::clock;
use crate::connections::Binding;
use crate::message::{self, Message, MetadataRequest, ReplyTo, ShardId};
use crate::shard::Shard;

/// Who waits for an op of the metadata lane.
#[derive(Debug)]
pub enum Ticket {
    /// A client.
    Client(ReplyTo, ProtocolVersion),
    /// A task of a shard.
    Call {
        /// The shard.
        from: ShardId,
        /// Its question.
        call: CallId,
    },
    /// Nobody.
    Nobody,
}

impl Shard {
    /// Sends a client's change to the metadata lane.
    pub(super) fn serve_metadata_write(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: Binding,
        operation: Operation,
        frame: Frame,
    ) {
        if !is_served(operation) {
            return self.refuse_here(reply_to, Status::FeatureUnavailable);
        }
        let request =
            MetadataRequest { reply_to, user: binding.user, protocol: binding.protocol, body: frame.body };
        if self.try_send(ShardId(0), Message::Metadata(Box::new(request))).is_err() {
            self.refuse_here(reply_to, Status::TransientNotAccepted);
        }
    }

    /// Plans a client's change and orders it. On shard 0.
    pub(crate) fn order_metadata(self: &Rc<Self>, request: MetadataRequest) {
        let MetadataRequest { reply_to, user, protocol, body } = request;
        if self.is_stopping() {
            return self.deliver(reply_to, Some(reply_to.echo.refusal(Status::TransientNotAccepted)));
        }
        let header = *reply_to.echo.header();
        let operation = header.operation().expect("the origin validated the header");
        let mut lane = self.lane.borrow_mut();
        let lane = lane.as_mut().expect("metadata requests go to shard 0");
        match plan(&lane.planner(user), operation, &body) {
            Ok(mutation) => {
                let identity = RequestIdentity {
                    client: header.client,
                    session: header.session,
                    request: header.request,
                    request_checksum: header.request_checksum,
                    user,
                    operation: header.operation,
                };
                lane.request(clock::wall(), identity, mutation, Ticket::Client(reply_to, protocol));
            }
            Err(status) => self.deliver(reply_to, Some(reply_to.echo.refusal(status))),
        }
    }

    /// An op of the metadata lane is done, or was refused.
    pub(crate) fn answer_metadata(self: &Rc<Self>, ticket: Ticket, verdict: Verdict) {
        match ticket {
            Ticket::Client(reply_to, protocol) => self.answer_client(reply_to, protocol, verdict),
            Ticket::Call { from, call } => {
                let answer = message::Answer::Registered(verdict);
                self.send(from, laneway_mailbox::Class::Reply, Message::Answer { call, answer });
            }
            Ticket::Nobody => {}
        }
    }

    fn answer_client(self: &Rc<Self>, to: ReplyTo, protocol: ProtocolVersion, verdict: Verdict) {
        match verdict {
            Verdict::Committed { answer: Answer::Committed(reply) | Answer::Replayed(reply), .. } => {
                self.deliver(to, Some(committed(&to, protocol, &reply)));
            }
            Verdict::Committed { answer, .. } => unreachable!("a request is not answered with {answer:?}"),
            Verdict::Refused(status) => self.deliver(to, Some(to.echo.refusal(status))),
            Verdict::NoSession => self.evict(to, EvictionReason::NoSession),
            Verdict::StaleEpoch => self.evict(to, EvictionReason::SessionTooLow),
        }
    }
}

fn committed(to: &ReplyTo, protocol: ProtocolVersion, reply: &CommittedReply) -> laneway_transport::OutFrame {
    let framed = to.echo.header().operation().is_some_and(Operation::is_result_framed);
    if !framed && !reply.status.is_ok() {
        // A body without a result section cannot say no.
        return to.echo.refusal(reply.status);
    }
    to.echo.committed(reply.op, reply.timestamp, |out| {
        if framed {
            reply.put_body(out, protocol, Replicas { members: REPLICAS, in_sync: REPLICAS });
        }
    })
}

/// Operations that the metadata lane knows. The others are refused as not offered yet.
fn is_served(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Logout
            | Operation::CreateStream
            | Operation::DeleteStream
            | Operation::CreateTopic
            | Operation::DeleteTopic
            | Operation::CreatePartitions
            | Operation::DeletePartitions
            | Operation::UpdateResource
    )
}

fn plan(planner: &Planner<'_>, operation: Operation, body: &[u8]) -> Result<Mutation, Status> {
    let malformed = |error: DecodeError| error.status();
    match operation {
        Operation::Logout => Ok(Mutation::Logout),
        Operation::CreateStream => {
            let request = CreateStream::parse(body).map_err(malformed)?;
            planner.create_stream(request.name, request.options).map_err(|refusal| refusal.status)
        }
        Operation::DeleteStream => {
            let request = DeleteStream::parse(body).map_err(malformed)?;
            Ok(planner.delete_stream(request.stream))
        }
        Operation::CreateTopic => {
            let CreateTopic { stream, partitions_count, name, options } =
                CreateTopic::parse(body).map_err(malformed)?;
            planner.create_topic(stream, partitions_count, name, options).map_err(|refusal| refusal.status)
        }
        Operation::DeleteTopic => {
            let request = DeleteTopic::parse(body).map_err(malformed)?;
            Ok(planner.delete_topic(request.stream, request.topic))
        }
        Operation::CreatePartitions => {
            let CreatePartitions { stream, topic, partitions_count } =
                CreatePartitions::parse(body).map_err(malformed)?;
            planner.create_partitions(stream, topic, partitions_count).map_err(|refusal| refusal.status)
        }
        Operation::DeletePartitions => {
            let DeletePartitions { stream, topic, partitions_count } =
                DeletePartitions::parse(body).map_err(malformed)?;
            planner.delete_partitions(stream, topic, partitions_count).map_err(|refusal| refusal.status)
        }
        Operation::UpdateResource => {
            let UpdateResource { target, reset, set } = UpdateResource::parse(body).map_err(malformed)?;
            let planned = match target {
                UpdateTarget::Stream { stream } => planner.update_stream(stream, reset, set),
                UpdateTarget::Topic { stream, topic } => planner.update_topic(stream, topic, reset, set),
                UpdateTarget::User { user } => {
                    planner.update_user(user, set, &reset.iter().collect::<Vec<_>>())
                }
            };
            planned.map_err(|refusal| refusal.status)
        }
        _ => Err(Status::FeatureUnavailable),
    }
}
