//! Changes of metadata: from the client's shard to the metadata lane on shard 0, and back.

use std::rc::Rc;

use bytes::BytesMut;
use laneway_metadata::planner::Planner;
use laneway_metadata::replies::{CommittedReply, ReplyBody};
use laneway_metadata::views::Replicas;
use laneway_metadata::{Answer, Mutation, RequestIdentity};
use laneway_shard_metadata::Verdict;
use laneway_wire::request::{
    ChangePassword, CreatePartitions, CreatePersonalAccessToken, CreateTopic, CreateUser, DeletePartitions,
    DeletePersonalAccessToken, DeleteStream, DeleteTopic, DeleteUser, UpdatePermissions, UpdateResource,
    UpdateTarget,
};
use laneway_wire::{DecodeError, EvictionReason, Frame, Operation, ProtocolVersion, Status};

use super::reads::REPLICAS;
use super::secrets::new_token;
use super::streams;
use crate::calls::CallId;
use crate::clock;
use crate::connections::Binding;
use crate::message::{self, Message, MetadataRequest, Prepared, ReplyTo, ShardId};
use crate::secret::Secret;
use crate::shard::Shard;

/// Who waits for an op of the metadata lane.
#[derive(Debug)]
pub enum Ticket {
    /// A client.
    Client {
        /// Where its answer goes.
        reply_to: ReplyTo,
        /// The layout of the answer.
        protocol: ProtocolVersion,
        /// The token that was made for it, which only this answer shows.
        token: Option<Secret>,
    },
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
        self.order(reply_to, binding, frame.body, Prepared::Nothing);
    }

    pub(super) fn order(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: Binding,
        body: BytesMut,
        prepared: Prepared,
    ) {
        let Binding { user, protocol, .. } = binding;
        let request = MetadataRequest { reply_to, user, protocol, body, prepared };
        if self.try_send(ShardId(0), Message::Metadata(Box::new(request))).is_err() {
            self.refuse_here(reply_to, Status::TransientNotAccepted);
        }
    }

    /// Plans a client's change and orders it. On shard 0.
    pub(crate) fn order_metadata(self: &Rc<Self>, request: MetadataRequest) {
        let MetadataRequest { reply_to, user, protocol, mut body, prepared } = request;
        if self.is_stopping() {
            return self.deliver(reply_to, Some(reply_to.echo.refusal(Status::TransientNotAccepted)));
        }
        let header = *reply_to.echo.header();
        let operation = header.operation().expect("the origin validated the header");
        let mut lane = self.lane.borrow_mut();
        let lane = lane.as_mut().expect("metadata requests go to shard 0");
        let planned = match operation {
            Operation::CreateStream => {
                streams::plan_create(&lane.planner(user), &self.settings.keys, &mut body)
                    .map(|mutation| Planned { mutation, token: None })
            }
            _ => plan(&lane.planner(user), operation, &body, prepared),
        };
        match planned {
            Ok(Planned { mutation, token }) => {
                let identity = RequestIdentity {
                    client: header.client,
                    session: header.session,
                    request: header.request,
                    request_checksum: header.request_checksum,
                    user,
                    operation: header.operation,
                };
                lane.request(clock::wall(), identity, mutation, Ticket::Client { reply_to, protocol, token });
            }
            Err(status) => self.deliver(reply_to, Some(reply_to.echo.refusal(status))),
        }
    }

    /// An op of the metadata lane is done, or was refused.
    pub(crate) fn answer_metadata(self: &Rc<Self>, ticket: Ticket, verdict: Verdict) {
        match ticket {
            Ticket::Client { reply_to, protocol, token } => {
                self.answer_client(reply_to, protocol, token, verdict);
            }
            Ticket::Call { from, call } => {
                let answer = message::Answer::Registered(verdict);
                self.send(from, laneway_mailbox::Class::Reply, Message::Answer { call, answer });
            }
            Ticket::Nobody => {}
        }
    }

    fn answer_client(
        self: &Rc<Self>,
        to: ReplyTo,
        protocol: ProtocolVersion,
        token: Option<Secret>,
        verdict: Verdict,
    ) {
        match verdict {
            Verdict::Committed { answer: Answer::Committed(reply), .. }
                if reply.body == ReplyBody::TokenCreated =>
            {
                let token =
                    token.as_ref().and_then(Secret::text).expect("a token was made before it was kept");
                let frame =
                    to.echo.committed(reply.op, reply.timestamp, |out| reply.put_token_body(out, token));
                self.deliver(to, Some(frame));
            }
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
            | Operation::CreateUser
            | Operation::DeleteUser
            | Operation::UpdatePermissions
            | Operation::ChangePassword
            | Operation::CreatePersonalAccessToken
            | Operation::DeletePersonalAccessToken
    )
}

/// What is ordered for a request.
struct Planned {
    mutation: Mutation,
    /// The token that the answer shows.
    token: Option<Secret>,
}

fn plan(
    planner: &Planner<'_>,
    operation: Operation,
    body: &[u8],
    prepared: Prepared,
) -> Result<Planned, Status> {
    let mut shown = None;
    let mutation = match operation {
        Operation::CreatePersonalAccessToken => {
            let request = CreatePersonalAccessToken::parse(body).map_err(|error| error.status())?;
            let (token, hash) = new_token().ok_or(Status::TransientNotAccepted)?;
            shown = Some(token);
            planner.create_token(&request, hash).map_err(|refusal| refusal.status)
        }
        Operation::CreateUser
        | Operation::DeleteUser
        | Operation::UpdatePermissions
        | Operation::ChangePassword
        | Operation::DeletePersonalAccessToken => plan_user(planner, operation, body, prepared),
        _ => plan_resource(planner, operation, body),
    };
    Ok(Planned { mutation: mutation?, token: shown })
}

fn plan_user(
    planner: &Planner<'_>,
    operation: Operation,
    body: &[u8],
    prepared: Prepared,
) -> Result<Mutation, Status> {
    let malformed = |error: DecodeError| error.status();
    let planned = match (operation, prepared) {
        (Operation::CreateUser, Prepared::NewUser(hash)) => {
            planner.create_user(&CreateUser::parse(body).map_err(malformed)?, hash)
        }
        (Operation::ChangePassword, Prepared::Change(change)) => {
            planner.change_password(&ChangePassword::parse(body).map_err(malformed)?, change)
        }
        (Operation::DeleteUser, _) => {
            Ok(planner.delete_user(DeleteUser::parse(body).map_err(malformed)?.user))
        }
        (Operation::UpdatePermissions, _) => {
            planner.update_permissions(&UpdatePermissions::parse(body).map_err(malformed)?)
        }
        (Operation::DeletePersonalAccessToken, _) => {
            Ok(planner.delete_token(DeletePersonalAccessToken::parse(body).map_err(malformed)?.name))
        }
        _ => return Err(Status::InvalidCommand),
    };
    planned.map_err(|refusal| refusal.status)
}

fn plan_resource(planner: &Planner<'_>, operation: Operation, body: &[u8]) -> Result<Mutation, Status> {
    let malformed = |error: DecodeError| error.status();
    match operation {
        Operation::Logout => Ok(Mutation::Logout),
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
                UpdateTarget::User { user } => planner.update_user(user, reset, set),
            };
            planned.map_err(|refusal| refusal.status)
        }
        _ => Err(Status::FeatureUnavailable),
    }
}
