//! The metadata lane: from a request to its answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use laneway_metadata::planner::{PlanSettings, Planner};
use laneway_metadata::sessions::{Admit, EndReason};
use laneway_metadata::{
    Answer, Command, CommandError, CreateRoot, EndSessions, ExpireTokens, Metadata, Mutation, Register,
    RequestIdentity, Rewrap, SessionId, limits,
};
use laneway_reads::Nanos;
use laneway_vsr::{Durability, Entry, EntryBody, Replica};
use laneway_wire::{ClientId, LaneId, Micros, Op, RequestNumber, Status, StreamId, TopicId, UserId};

use crate::lifetimes::Lifetimes;
use crate::settling::{self, Settling, ShardPart, ShardWork};

/// What the runtime asks of its shard. `T` is the caller's name for a request.
#[derive(Debug)]
pub enum Effect<T> {
    /// Append the entry to the journal; answered by [`MetadataLane::handle_written`] and
    /// [`MetadataLane::handle_synced`].
    Write(Entry),
    /// Hand this version to every shard, before anything that follows.
    Publish(Arc<Metadata>),
    /// Let a shard open and fence partitions; answered by [`MetadataLane::handle_shard_done`].
    Work {
        /// The op that decided it.
        op: Op,
        /// The shard.
        shard: ShardPart,
        /// What it has to do.
        work: ShardWork,
    },
    /// The limits of this topic or the number of its partitions changed: segments of it may have to go.
    TopicChanged(StreamId, TopicId),
    /// These sessions are over: unbind their connections, refuse their parked reads.
    SessionsEnded(Vec<SessionId>),
    /// A user may do something else: look at its reads that wait again.
    GrantsChanged(UserId),
    /// Answer a request.
    Answer(T, Verdict),
}

/// What a request came to.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Committed, now or by an earlier attempt.
    Committed {
        /// The op that it committed at.
        op: Op,
        /// The answer.
        answer: Answer,
    },
    /// Refused; nothing happened.
    Refused(Status),
    /// The session that asked is over, or never was: the connection is evicted.
    NoSession,
    /// The client has a newer session: the connection is evicted.
    StaleEpoch,
}

/// Why the lane cannot be brought back.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The checkpoint does not decode.
    #[error("the checkpoint of the metadata lane is damaged: {0}")]
    Snapshot(#[from] laneway_metadata::snapshot::SnapshotError),
    /// An entry of the log does not decode.
    #[error("op {op} of the metadata lane is damaged: {source}")]
    Command {
        /// The op.
        op: Op,
        /// Why.
        source: CommandError,
    },
}

/// Who waits for an op, and how a resend of the same request finds it.
#[derive(Debug)]
struct InFlight<T> {
    tickets: Vec<T>,
    request: Option<(ClientId, RequestNumber)>,
}

/// The metadata lane of this node. Lives on shard 0.
#[derive(Debug)]
pub struct MetadataLane<T> {
    replica: Replica,
    metadata: Metadata,
    plan: PlanSettings,
    shards: u16,
    in_flight: BTreeMap<Op, InFlight<T>>,
    requests: BTreeMap<(ClientId, RequestNumber), Op>,
    settling: Settling<(T, Verdict)>,
    lifetimes: Lifetimes,
    /// Whether an op that removes tokens is on its way.
    expiring: bool,
    effects: VecDeque<Effect<T>>,
    /// Whether the log of this lane takes no entry any more.
    refuses: bool,
}

impl<T> MetadataLane<T> {
    /// The lane from its checkpoint and the log above it. Entries come in the order of their ops.
    pub fn recover<'a>(
        snapshot: Option<&[u8]>,
        log: impl IntoIterator<Item = (Op, Micros, &'a [u8])>,
        plan: PlanSettings,
        shards: u16,
        session_timeout_us: u64,
        now: Nanos,
    ) -> Result<Self, RecoverError> {
        let mut metadata = match snapshot {
            Some(bytes) => Metadata::from_snapshot(bytes)?,
            None => Metadata::new(),
        };
        for (op, timestamp, bytes) in log {
            if op <= metadata.applied() {
                continue;
            }
            let command =
                Command::from_bytes(bytes).map_err(|source| RecoverError::Command { op, source })?;
            metadata.apply(op, timestamp, &command);
        }
        let mut lifetimes = Lifetimes::new(session_timeout_us);
        for session in metadata.sessions().iter().filter(|session| session.is_live()) {
            lifetimes.begin(now, SessionId { client: session.client, epoch: session.epoch });
        }
        Ok(Self {
            replica: Replica::alone_in(LaneId::METADATA, metadata.applied(), metadata.applied_at()),
            metadata,
            plan,
            shards,
            in_flight: BTreeMap::new(),
            requests: BTreeMap::new(),
            settling: Settling::default(),
            lifetimes,
            expiring: false,
            effects: VecDeque::new(),
            refuses: false,
        })
    }

    /// The state as of the last applied op.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Plans requests of `user` on the applied state.
    pub fn planner(&self, user: UserId) -> Planner<'_> {
        Planner { metadata: &self.metadata, settings: &self.plan, user }
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.settling.is_empty()
    }

    /// The next thing to do, if any.
    pub fn poll_effect(&mut self) -> Option<Effect<T>> {
        self.effects.pop_front()
    }

    /// Orders a request of a session. A resend of one that is on its way waits for the same op; a resend of one that
    /// committed gets the same answer.
    pub fn request(&mut self, now: Micros, identity: RequestIdentity, mutation: Mutation, ticket: T) {
        let key = (identity.client, identity.request);
        if let Some(op) = self.requests.get(&key) {
            if self.refuses {
                let verdict = Verdict::Refused(Status::TransientNotCommitted);
                return self.effects.push_back(Effect::Answer(ticket, verdict));
            }
            let waiting = self.in_flight.get_mut(op).expect("a request that is listed is in flight");
            waiting.tickets.push(ticket);
            return;
        }
        let sessions = self.metadata.sessions();
        match sessions.admit(identity.client, identity.session, identity.request, identity.request_checksum) {
            Admit::New => {
                self.propose(now, &Command::Request(identity, mutation), Some(key), ticket);
            }
            Admit::Replay(reply) => {
                let op = reply.op;
                self.answer_when_settled(
                    op,
                    ticket,
                    Verdict::Committed { op, answer: Answer::Replayed(reply) },
                );
            }
            Admit::NoSession => self.effects.push_back(Effect::Answer(ticket, Verdict::NoSession)),
            Admit::StaleEpoch => self.effects.push_back(Effect::Answer(ticket, Verdict::StaleEpoch)),
            refused => {
                let status = refused.status().unwrap_or(Status::TransientNotAccepted);
                self.effects.push_back(Effect::Answer(ticket, Verdict::Refused(status)));
            }
        }
    }

    /// Orders a registration; the user was verified.
    pub fn register(&mut self, now: Micros, register: Register, ticket: T) {
        self.propose(now, &Command::Register(register), None, ticket);
    }

    /// Makes root and fixes the settings, on the first boot.
    pub fn create_root(&mut self, now: Micros, root: CreateRoot, ticket: T) {
        self.propose(now, &Command::CreateRoot(root), None, ticket);
    }

    /// Gives streams other envelopes of their keys, at most [`limits::REWRAPS_PER_OP_MAX`] at a time.
    pub fn rewrap_streams(&mut self, now: Micros, rewraps: Vec<Rewrap>, ticket: T) {
        self.propose(now, &Command::RewrapStreams(rewraps), None, ticket);
    }

    /// Every write of the lane through `op` has finished.
    pub fn handle_written(&mut self, now: Nanos, op: Op) {
        self.replica.handle_written(op);
        self.pump(now);
    }

    /// A flush that covers every write of the lane through `op` has finished.
    pub fn handle_synced(&mut self, now: Nanos, op: Op) {
        self.replica.handle_synced(op);
        self.pump(now);
    }

    /// A shard has committed what an op asked of it.
    pub fn handle_shard_done(&mut self, op: Op, shard: ShardPart) {
        for (ticket, verdict) in self.settling.done(op, shard) {
            self.effects.push_back(Effect::Answer(ticket, verdict));
        }
    }

    /// A connection joined a session, or left it.
    pub fn handle_attached(&mut self, now: Nanos, session: SessionId, joined: bool) {
        match joined {
            true => self.lifetimes.join(session),
            false => self.lifetimes.leave(now, session),
        }
    }

    /// The earliest moment at which [`MetadataLane::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.lifetimes.poll_timeout()
    }

    /// Ends the sessions whose time is over. `ticket` names the op that does it.
    pub fn handle_timeout(&mut self, now: Nanos, wall: Micros, ticket: T) {
        let due = self.lifetimes.take_expired(now, limits::SESSIONS_ENDED_PER_OP_MAX);
        let live = self.metadata.sessions();
        let sessions: Vec<SessionId> =
            due.into_iter().filter(|session| live.live(session.client, session.epoch).is_some()).collect();
        if !sessions.is_empty() {
            let end = EndSessions { sessions, reason: EndReason::Expired };
            self.propose(wall, &Command::EndSessions(end), None, ticket);
        }
    }

    /// When the next token ends; none while those that ended are being removed.
    pub fn next_token_expiry(&self) -> Option<Micros> {
        if self.expiring { None } else { self.metadata.users().next_token_expiry() }
    }

    /// Removes tokens whose time is over. Says whether the lane took the op that does it.
    pub fn expire_tokens(&mut self, now: Micros, ticket: T) -> bool {
        let tokens = self.metadata.users().expired_tokens(now, limits::TOKENS_EXPIRED_PER_OP_MAX);
        if !tokens.is_empty() && !self.expiring {
            self.expiring = self.propose(now, &Command::ExpireTokens(ExpireTokens { tokens }), None, ticket);
        }
        self.expiring
    }

    /// Says whether the lane took it.
    /// The log of this lane takes no entry any more: changes are refused from now on.
    pub fn refuse_changes(&mut self) {
        self.refuses = true;
    }

    /// Answers everybody who waits for an op that does not move, with a status that says so. The ops themselves stay: one
    /// that is asked for again is waited for again.
    pub fn answer_waiting(&mut self, status: Status) {
        let waiting =
            self.in_flight.values_mut().flat_map(|in_flight| std::mem::take(&mut in_flight.tickets));
        let waiting: Vec<T> = waiting.chain(self.settling.take_answers().map(|(ticket, _)| ticket)).collect();
        for ticket in waiting {
            self.effects.push_back(Effect::Answer(ticket, Verdict::Refused(status)));
        }
    }

    fn propose(
        &mut self,
        now: Micros,
        command: &Command,
        request: Option<(ClientId, RequestNumber)>,
        ticket: T,
    ) -> bool {
        if self.refuses {
            let verdict = Verdict::Refused(Status::TransientNotAccepted);
            self.effects.push_back(Effect::Answer(ticket, verdict));
            return false;
        }
        let body = EntryBody::operation(command.to_bytes());
        match self.replica.propose(now, Durability::Persisted, body) {
            Ok(op) => {
                self.in_flight.insert(op, InFlight { tickets: vec![ticket], request });
                if let Some(key) = request {
                    self.requests.insert(key, op);
                }
                self.pump_writes();
                true
            }
            Err(_full) => {
                let verdict = Verdict::Refused(Status::TransientNotAccepted);
                self.effects.push_back(Effect::Answer(ticket, verdict));
                false
            }
        }
    }

    fn pump_writes(&mut self) {
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                laneway_vsr::Effect::Write { entry, .. } => self.effects.push_back(Effect::Write(entry)),
                other => unreachable!("a proposal of a lone member does nothing but write: {other:?}"),
            }
        }
    }

    fn pump(&mut self, now: Nanos) {
        let mut applied = false;
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                laneway_vsr::Effect::Write { entry, .. } => self.effects.push_back(Effect::Write(entry)),
                laneway_vsr::Effect::Apply(entry) => {
                    self.apply(now, &entry);
                    applied = true;
                }
                other => unreachable!("a lone member needs nothing else: {other:?}"),
            }
        }
        debug_assert!(!applied || self.metadata.applied() == self.replica.frontier().commit_min);
    }

    fn apply(&mut self, now: Nanos, entry: &Entry) {
        let op = entry.op();
        let command = Command::from_bytes(&entry.body.prefix).expect("this node encoded the command");
        let outcome = self.metadata.apply(op, entry.timestamp(), &command);
        if matches!(command, Command::ExpireTokens(_)) {
            self.expiring = false;
        }
        self.replica.handle_applied(op);
        self.effects.push_back(Effect::Publish(Arc::new(self.metadata.clone())));
        self.note_sessions(now, &outcome.effects);

        let in_flight =
            self.in_flight.remove(&op).expect("every op of this node has someone who waits for it");
        if let Some(key) = in_flight.request {
            self.requests.remove(&key);
        }
        let verdict = verdict(op, outcome.answer);
        // A resend that waited as well is answered as every later one is: what was shown once is not shown twice.
        let mut verdicts = std::iter::once(verdict.clone()).chain(std::iter::repeat(repeated(verdict)));
        let answers =
            in_flight.tickets.into_iter().filter_map(|ticket| Some((ticket, verdicts.next()?))).collect();
        self.settle(op, settling::split(&outcome.effects, self.shards), answers);
    }

    fn settle(&mut self, op: Op, work: BTreeMap<ShardPart, ShardWork>, answers: Vec<(T, Verdict)>) {
        if work.is_empty() {
            let answers = answers.into_iter().map(|(ticket, verdict)| Effect::Answer(ticket, verdict));
            self.effects.extend(answers);
            return;
        }
        let shards: BTreeSet<ShardPart> = work.keys().copied().collect();
        self.settling.hold(op, shards, answers);
        for (shard, work) in work {
            self.effects.push_back(Effect::Work { op, shard, work });
        }
    }

    fn answer_when_settled(&mut self, op: Op, ticket: T, verdict: Verdict) {
        if let Err((ticket, verdict)) = self.settling.join(op, (ticket, verdict)) {
            self.effects.push_back(Effect::Answer(ticket, verdict));
        }
    }

    fn note_sessions(&mut self, now: Nanos, effects: &[laneway_metadata::Effect]) {
        let mut ended = Vec::new();
        for effect in effects {
            match *effect {
                laneway_metadata::Effect::GrantsChanged { user } => {
                    self.effects.push_back(Effect::GrantsChanged(user));
                }
                laneway_metadata::Effect::SessionStarted { client, session, .. } => {
                    self.lifetimes.begin(now, SessionId { client, epoch: session });
                }
                laneway_metadata::Effect::SessionEnded { client, session, .. } => {
                    let session = SessionId { client, epoch: session };
                    self.lifetimes.end(session);
                    ended.push(session);
                }
                laneway_metadata::Effect::TopicChanged { stream, topic } => {
                    self.effects.push_back(Effect::TopicChanged(stream, topic));
                }
                _ => {}
            }
        }
        if !ended.is_empty() {
            self.effects.push_back(Effect::SessionsEnded(ended));
        }
    }
}

/// What a resend of the same request is answered.
fn repeated(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Committed { op, answer: Answer::Committed(reply) } => {
            Verdict::Committed { op, answer: Answer::Replayed(reply) }
        }
        other => other,
    }
}

/// Decisions at apply that mean "not executed" are answered like those before the log.
fn verdict(op: Op, answer: Answer) -> Verdict {
    match answer {
        Answer::NotExecuted(Admit::NoSession) => Verdict::NoSession,
        Answer::NotExecuted(Admit::StaleEpoch) => Verdict::StaleEpoch,
        Answer::NotExecuted(refused) => {
            Verdict::Refused(refused.status().unwrap_or(Status::TransientNotAccepted))
        }
        answer => Verdict::Committed { op, answer },
    }
}

#[cfg(test)]
mod tests {
    use laneway_metadata::{NewToken, PasswordHash, ROOT, ROOT_CREATED_AT, Settings, TokenHash, Verifier};
    use laneway_wire::SessionEpoch;

    use super::*;

    const CLIENT: ClientId = ClientId(7);

    /// A lane with root signed in, whose journal is quick. Tickets are names.
    struct Node {
        lane: MetadataLane<&'static str>,
        now: Micros,
    }

    impl Node {
        fn new() -> Self {
            let lane = MetadataLane::recover(None, [], PlanSettings::default(), 1, 1_000_000, Nanos(0));
            let mut node = Self { lane: lane.expect("nothing to recover"), now: Micros(1_000) };
            let root = CreateRoot {
                username: "root".into(),
                password_hash: PasswordHash::new("$phc"),
                settings: Settings::default(),
            };
            node.lane.create_root(node.now, root, "root");
            node.settle();
            let verifier = Verifier([1; 32]);
            let register = Register {
                client: CLIENT,
                user: ROOT,
                user_created_at: ROOT_CREATED_AT,
                verifier,
                token: None,
            };
            node.lane.register(node.now, register, "session");
            node.settle();
            node
        }

        fn ask_for_token(&mut self, request: u64, lives_us: u64, ticket: &'static str) {
            let identity = RequestIdentity {
                client: CLIENT,
                session: SessionEpoch(2),
                request: RequestNumber(request),
                request_checksum: 9,
                user: ROOT,
                operation: 146,
            };
            let name = format!("token {request}");
            let hash = TokenHash([request as u8; 32]);
            let token = NewToken { name, hash, lives_us: Some(lives_us), tokens_max: 9 };
            self.lane.request(self.now, identity, Mutation::CreateToken(token), ticket);
        }

        /// Writes and flushes everything; gives the answers.
        fn settle(&mut self) -> Vec<(&'static str, Verdict)> {
            let mut answers = Vec::new();
            while let Some(effect) = self.lane.poll_effect() {
                match effect {
                    Effect::Write(entry) => {
                        self.lane.handle_written(Nanos(0), entry.op());
                        self.lane.handle_synced(Nanos(0), entry.op());
                    }
                    Effect::Answer(ticket, verdict) => answers.push((ticket, verdict)),
                    _ => {}
                }
            }
            answers
        }
    }

    /// Only the one who asked first is shown the token; a resend that waited for the same op is answered as a later one.
    #[test]
    fn a_resend_that_waits_for_the_same_op_is_answered_as_a_repeated_one() {
        let mut node = Node::new();
        node.ask_for_token(1, 1_000, "first");
        node.ask_for_token(1, 1_000, "resend");
        let answers = node.settle();
        assert!(
            matches!(
                answers.as_slice(),
                [
                    ("first", Verdict::Committed { answer: Answer::Committed(_), .. }),
                    ("resend", Verdict::Committed { answer: Answer::Replayed(_), .. })
                ]
            ),
            "{answers:?}"
        );
    }

    /// S75: those whose time is over go with one op, and while it is on its way nobody asks for another.
    #[test]
    fn tokens_whose_time_is_over_are_removed_by_one_op() {
        let mut node = Node::new();
        node.ask_for_token(1, 5_000, "one");
        node.ask_for_token(2, 5_000, "two");
        node.ask_for_token(3, 9_000_000, "later");
        node.settle();
        let ends = node.lane.next_token_expiry().expect("a token ends");
        assert!(!node.lane.expire_tokens(Micros(ends.0 - 1), "early"), "nothing to do yet");
        node.now = Micros(ends.0 + 5);
        assert!(node.lane.expire_tokens(node.now, "expire"));
        assert_eq!(node.lane.next_token_expiry(), None, "on its way");
        assert!(node.lane.expire_tokens(node.now, "again"));
        assert_eq!(node.settle().iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), ["expire"]);
        let root = node.lane.metadata().root().expect("root");
        assert_eq!(root.tokens.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["token 3"]);
        assert!(node.lane.next_token_expiry().is_some_and(|next| next > node.now));
    }
}
