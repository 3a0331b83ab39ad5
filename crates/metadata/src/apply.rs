//! Applying one op: the only way the state changes.
//!
//! Each change first decides, on the state just before the op, and touches the state only when nothing refuses it. The
//! order of decisions is the same everywhere: the target exists, the caller may, then the rules of the resource.

use std::sync::Arc;

use laneway_wire::reply::UserLife;
use laneway_wire::{
    ClientId, LaneId, Micros, Op, PartitionId, PartitionKey, SessionEpoch, Status, StreamId, TopicId, UserId,
};

use crate::changes::ChangeLog;
use crate::changes::notes::UserChange;
use crate::command::{Command, CreateRoot, EndSessions, Mutation, Register, RequestIdentity};
use crate::invariants;
use crate::lanes::Lanes;
use crate::metadata::Metadata;
use crate::options::set::OptionRecord;
use crate::options::{Scope, StoredOptions, TopicSettings};
use crate::permissions::Permissions;
use crate::replies::{CommittedReply, ReplyBody};
use crate::sessions::{Admit, EndReason, RegisterRefusal, Sessions};
use crate::topics::{Partition, Topic};
use crate::users::{ROOT, ROOT_CREATED_AT, User, UserStatus};

mod resources;
mod rewrap;
#[cfg(test)]
mod tests;
mod updates;
mod users;

/// What applying an op leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the one who waits for the op is told.
    pub answer: Answer,
    /// What the shards have to do about it, in order.
    pub effects: Vec<Effect>,
}

/// What the one who waits for an op is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody waits for it.
    Done,
    /// The request was executed now. Its status may be a refusal, which is committed all the same.
    Committed(CommittedReply),
    /// The request was executed before; this is what it answered.
    Replayed(CommittedReply),
    /// The session does not allow the request. Nothing was executed and nothing is kept. Never `New`, never `Replay`.
    NotExecuted(Admit),
    /// The session exists. Its epoch is older than the op when the registration was a repeated one.
    Registered {
        /// The client.
        client: ClientId,
        /// Its session.
        session: SessionEpoch,
        /// Whose session it is.
        user: UserId,
    },
    /// There is no session for this registration.
    NotRegistered(RegisterRefusal),
}

/// What the shards have to do about an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A partition begins, empty.
    PartitionCreated(PartitionPlace),
    /// A partition ends; its messages and stored offsets go.
    PartitionDeleted(PartitionPlace),
    /// The limits of a topic or the number of its partitions changed: segments of it may have to go.
    TopicChanged {
        /// Its stream.
        stream: StreamId,
        /// The topic.
        topic: TopicId,
    },
    /// A session begins.
    SessionStarted {
        /// The client.
        client: ClientId,
        /// Its session.
        session: SessionEpoch,
        /// Whose session it is.
        user: UserId,
    },
    /// A session ends: its connections are unbound and its parked requests answered.
    SessionEnded {
        /// The client.
        client: ClientId,
        /// The life that ended.
        session: SessionEpoch,
        /// Whose session it was.
        user: UserId,
        /// Why.
        reason: EndReason,
    },
    /// A user may do something else from now on: reads that it parked are looked at again.
    GrantsChanged {
        /// Whose grants.
        user: UserId,
    },
}

/// A partition and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionPlace {
    /// Its identity over time.
    pub key: PartitionKey,
    /// Its stream.
    pub stream: StreamId,
    /// Its topic.
    pub topic: TopicId,
    /// The lane that orders its writes.
    pub lane: LaneId,
    /// When it was created.
    pub created_at: Micros,
    /// What it lives by. Only expiry and size limit change during its life.
    pub settings: TopicSettings,
}

impl PartitionPlace {
    pub(crate) fn of(stream: StreamId, topic: &Topic, id: PartitionId, partition: Partition) -> Self {
        Self {
            key: PartitionKey { incarnation: partition.incarnation, partition: id },
            stream,
            topic: topic.id,
            lane: partition.lane,
            created_at: partition.created_at,
            settings: topic.settings,
        }
    }
}

/// The op being applied.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    op: Op,
    timestamp: Micros,
}

impl Metadata {
    /// Applies the next op.
    ///
    /// # Panics
    /// When `op` does not follow the last one, when time goes back, or when the command breaks its bounds: the log and
    /// the planner are ours, and [`Command::from_bytes`] checks what was read.
    pub fn apply(&mut self, op: Op, timestamp: Micros, command: &Command) -> Outcome {
        assert_eq!(op, self.applied.next(), "ops are applied in order, each once");
        assert!(timestamp >= self.applied_at, "the timestamps of a lane never go back");
        assert!(command.check().is_ok(), "commands are within their bounds: {command:?}");
        let moment = Moment { op, timestamp };
        let mut effects = Vec::new();
        let answer = match command {
            Command::CreateRoot(root) => self.create_root(root),
            Command::Register(register) => self.register(moment, register, &mut effects),
            Command::EndSessions(end) => self.end_sessions(moment, end, &mut effects),
            Command::Request(identity, mutation) => self.request(moment, identity, mutation, &mut effects),
            Command::RewrapStreams(rewraps) => self.rewrap_streams(rewraps),
            Command::ExpireTokens(expire) => {
                self.expire_tokens(moment, expire);
                Answer::Done
            }
        };
        self.applied = op;
        self.applied_at = timestamp;
        self.changes.seal(op, timestamp, command);
        debug_assert!(
            !self.check_is_due() || invariants::check(self) == Ok(()),
            "{:?}",
            invariants::check(self)
        );
        Outcome { answer, effects }
    }

    /// Whether a debug build checks the whole state after this op: after each one while that is cheap, and after one in
    /// many when there is much to walk. Checking thousands of streams after each op takes minutes to create them.
    fn check_is_due(&self) -> bool {
        const STREAMS_CHEAP: usize = 64;
        const OPS_BETWEEN: u64 = 256;
        self.streams.count() <= STREAMS_CHEAP || self.applied.0.is_multiple_of(OPS_BETWEEN)
    }

    fn create_root(&mut self, root: &CreateRoot) -> Answer {
        if self.root().is_some() {
            return Answer::Done;
        }
        assert_eq!(self.streams.count() + self.sessions.count(), 0, "nothing can exist before root");
        self.settings = root.settings;
        self.lanes = Lanes::new(root.settings.lanes_per_class);
        self.sessions = Sessions::new(root.settings.sessions_max);
        self.changes = ChangeLog::new(root.settings.changes_max);
        self.users.create(User {
            id: ROOT,
            created_at: ROOT_CREATED_AT,
            status: UserStatus::Active,
            username: root.username.as_str().into(),
            password_hash: root.password_hash.clone(),
            permissions: Some(Permissions::all()),
            options: Arc::default(),
            tokens: Default::default(),
        });
        self.note_user_of(ROOT, UserChange::Created);
        Answer::Done
    }

    fn register(&mut self, at: Moment, register: &Register, effects: &mut Vec<Effect>) -> Answer {
        let Register { client, user, user_created_at, verifier, token } = *register;
        if !self.is_active(user, user_created_at) {
            return Answer::NotRegistered(RegisterRefusal::UserGone);
        }
        let signs_in = |hash| {
            let found = self.users.by_token(&hash);
            found.is_some_and(|(owner, token)| owner.id == user && !token.has_expired(at.timestamp))
        };
        if !token.is_none_or(signs_in) {
            return Answer::NotRegistered(RegisterRefusal::TokenGone);
        }
        match self.sessions.register(at.op, client, user, user_created_at, verifier) {
            Ok(registered) => {
                let session = registered.epoch;
                if registered.is_new {
                    effects.push(Effect::SessionStarted { client, session, user });
                    self.note_session(UserLife { user, created_at: user_created_at }, client, session);
                }
                Answer::Registered { client, session, user }
            }
            Err(refusal) => Answer::NotRegistered(refusal),
        }
    }

    fn end_sessions(&mut self, at: Moment, end: &EndSessions, effects: &mut Vec<Effect>) -> Answer {
        for session in &end.sessions {
            self.end_session(at, session.client, session.epoch, end.reason, effects);
        }
        Answer::Done
    }

    fn end_session(
        &mut self,
        at: Moment,
        client: ClientId,
        epoch: SessionEpoch,
        reason: EndReason,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(ended) = self.sessions.end(at.op, client, epoch, reason) {
            effects.push(Effect::SessionEnded { client, session: epoch, user: ended.user, reason });
            self.note_session_closed(&ended, reason);
        }
    }

    fn request(
        &mut self,
        at: Moment,
        identity: &RequestIdentity,
        mutation: &Mutation,
        effects: &mut Vec<Effect>,
    ) -> Answer {
        let RequestIdentity { client, session, request, request_checksum, .. } = *identity;
        match self.sessions.admit(client, session, request, request_checksum) {
            Admit::New => {}
            Admit::Replay(reply) => return Answer::Replayed(reply),
            refused => return Answer::NotExecuted(refused),
        }
        let result = self.execute(at, identity, mutation, effects);
        let (status, body) = match result {
            Ok(body) => (Status::Ok, body),
            Err(status) => (status, ReplyBody::Empty),
        };
        assert!(
            !status.is_ok() || result_is_consistent(&body, mutation),
            "the reply is of the request's kind"
        );
        assert!(status.is_ok() || !self.changes.has_noted(), "a refusal changes nothing");
        let reply = CommittedReply {
            request,
            request_checksum,
            op: at.op,
            timestamp: at.timestamp,
            operation: identity.operation,
            status,
            body,
        };
        self.sessions.record(client, reply.clone());
        Answer::Committed(reply)
    }

    fn execute(
        &mut self,
        at: Moment,
        identity: &RequestIdentity,
        mutation: &Mutation,
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        // The session, not the entry, says who asks: the table is what sign-in and revocation change.
        let session = self.sessions.session(identity.client).expect("an admitted request has a session");
        let (user, user_created_at) = (session.user, session.user_created_at);
        if identity.user != user || !self.is_active(user, user_created_at) {
            return Err(Status::Unauthenticated);
        }
        match mutation {
            Mutation::Logout => {
                self.end_session(at, identity.client, identity.session, EndReason::Logout, effects);
                Ok(ReplyBody::Empty)
            }
            Mutation::CreateStream { name, options } => self.create_stream(at, user, name, options),
            Mutation::DeleteStream { stream } => self.delete_stream(user, stream, effects),
            Mutation::CreateTopic { stream, name, options, lanes } => {
                self.create_topic(at, user, stream, name, options, lanes, effects)
            }
            Mutation::DeleteTopic { stream, topic } => self.delete_topic(user, stream, topic, effects),
            Mutation::CreatePartitions { stream, topic, lanes } => {
                self.create_partitions(at, user, stream, topic, lanes, effects)
            }
            Mutation::DeletePartitions { stream, topic, count } => {
                self.delete_partitions(user, stream, topic, *count, effects)
            }
            Mutation::CreateUser(new) => self.create_user(at, user, new),
            Mutation::DeleteUser { user: target } => self.delete_user(at, user, target, effects),
            Mutation::UpdateUser { user: target, username, status } => {
                self.update_user(at, user, target, username.as_deref(), *status, effects)
            }
            Mutation::UpdatePermissions { user: target, permissions } => {
                self.update_permissions(user, target, permissions.as_ref(), effects)
            }
            Mutation::ChangePassword { user: target, change } => {
                self.change_password(user, target, change.as_ref())
            }
            Mutation::CreateToken(new) => self.create_token(at, user, new),
            Mutation::DeleteToken { name } => self.delete_token(user, name),
            Mutation::UpdateStream { stream, name } => self.update_stream(user, stream, name),
            Mutation::UpdateTopic { stream, topic, name, options } => {
                self.update_topic(user, stream, topic, name.as_deref(), options, effects)
            }
        }
    }

    fn is_active(&self, user: UserId, created_at: Micros) -> bool {
        self.users
            .user(user)
            .is_some_and(|user| user.created_at == created_at && user.status == UserStatus::Active)
    }
}

fn result_is_consistent(body: &ReplyBody, mutation: &Mutation) -> bool {
    match mutation {
        Mutation::CreateStream { .. } => matches!(body, ReplyBody::StreamCreated(_)),
        Mutation::CreateTopic { .. } => matches!(body, ReplyBody::TopicCreated(_)),
        Mutation::CreateUser(_) => matches!(body, ReplyBody::UserCreated(_)),
        Mutation::CreateToken(_) => matches!(body, ReplyBody::TokenCreated),
        _ => matches!(body, ReplyBody::Empty),
    }
}

fn stored(scope: Scope, options: &[OptionRecord]) -> Arc<StoredOptions> {
    let stored = StoredOptions::from_records(scope, options.to_vec());
    Arc::new(stored.expect("the command's bounds were checked"))
}

fn below(count: usize, max: usize, status: Status) -> Result<(), Status> {
    if count < max { Ok(()) } else { Err(status) }
}
