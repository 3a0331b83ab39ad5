//! What clients ask of a node, and what a primary does on its own behalf.

use bytes::{Bytes, BytesMut};
use laneway_metadata::{
    Admit as MetadataAdmit, Answer as MetadataAnswer, Command, CreateRoot, Effect as MetadataEffect,
    Metadata, Mutation, PasswordHash, PlanSettings, Planner, ROOT, ROOT_CREATED_AT, Register,
    RequestIdentity, Settings,
};
use laneway_partition::{Admit, Applied, LaneOp, StoreMode};
use laneway_reads::SessionKey;
use laneway_vsr::{Durability, EntryBody};
use laneway_wire::options::{OptionMap, Options};
use laneway_wire::{Incarnation, LaneId, Op, PartitionId, PartitionKey, Status, batch};

use super::{Node, Waiter};
use crate::contract::{Answer, Ask, Change, Request};
use crate::coverage::Mark;
use crate::env::Env;
use crate::machine::{Done, Machine, settings_of};
use crate::oracle::Violation;
use crate::say;

/// Bytes of a small entry, for the question whether one would be taken.
const SMALL: usize = 256;
/// Marks that root was proposed, among the lifecycle ops of lane 0, where there are no others.
const ROOT_PROPOSED: (PartitionKey, bool) =
    (PartitionKey { incarnation: Incarnation(0), partition: PartitionId(0) }, true);
/// Messages that a read returns at most.
const POLL_MAX: usize = 20;

impl Node {
    /// A request arrived.
    pub fn request(&mut self, env: &mut Env, request: Request) -> Result<(), Violation> {
        let (client, exchange) = (request.client, request.exchange);
        let waiter = Waiter { client, exchange };
        let lane = request.ask.lane().0 as usize;
        say!(
            env.trace,
            env.queue.now(),
            "node {} gets from client {client}: {} of lane {lane} (exchange {exchange})",
            self.id,
            request.ask.kind()
        );
        if let Some(answer) = self.handle(env, waiter, request)? {
            env.answer(self.id, client, exchange, answer);
        }
        Ok(())
    }

    fn handle(
        &mut self,
        env: &mut Env,
        waiter: Waiter,
        request: Request,
    ) -> Result<Option<Answer>, Violation> {
        let Machine::Metadata(metadata) = &self.lanes[0].machine else {
            unreachable!("lane 0 is the metadata")
        };
        let refuse = |status| Ok(Some(Answer::Refused(status)));
        if metadata.applied() < request.minimum {
            return refuse(Status::TransientNotAccepted);
        }
        if let Ask::Poll { partition, lane, .. } | Ask::StoredOffset { partition, lane, .. } = &request.ask {
            let (partition, lane) = (*partition, lane.0 as usize);
            self.open_if_missing(env, partition, lane)?;
        }
        let Machine::Metadata(metadata) = &self.lanes[0].machine else {
            unreachable!("lane 0 is the metadata")
        };
        match request.ask {
            Ask::Lookup => {
                let places = metadata.partitions().collect();
                Ok(Some(Answer::Places { applied: metadata.applied(), places }))
            }
            Ask::Register { client, verifier } => {
                if let Some(status) = self.refuses_writes(0) {
                    return refuse(status);
                }
                if metadata.root().is_none() {
                    // Nobody can sign in before the first op.
                    self.make_root(env)?;
                    return refuse(Status::TransientNotAccepted);
                }
                let register =
                    Register { client, user: ROOT, user_created_at: ROOT_CREATED_AT, verifier, token: None };
                self.propose_metadata(env, &Command::Register(register), None, Some(waiter))
            }
            Ask::Metadata { identity, change } => self.change(env, waiter, identity, &change),
            Ask::Send { partition, lane, .. } | Ask::Store { partition, lane, .. } => {
                self.write(env, waiter, partition, lane, request.ask)
            }
            Ask::Poll { partition, lane, offset } => Ok(Some(self.serve(env, partition, lane, |machine| {
                let head = machine.state.get(partition)?.head();
                Some(Answer::Polled { head, messages: machine.messages(partition, offset, POLL_MAX)? })
            }))),
            Ask::StoredOffset { partition, lane, consumer } => {
                Ok(Some(self.serve(env, partition, lane, |machine| {
                    Some(Answer::Offset(machine.state.get(partition)?.stored_offset(&consumer)))
                })))
            }
        }
    }

    /// Why a lane takes no writes here now.
    fn refuses_writes(&self, lane: usize) -> Option<Status> {
        let lane = &self.lanes[lane];
        match () {
            _ if lane.replica.is_settled_backup() => Some(Status::NotPrimary),
            _ if lane.is_halted || lane.replica.admit(SMALL).is_err() => Some(Status::TransientNotAccepted),
            _ => None,
        }
    }

    // Metadata.

    fn change(
        &mut self,
        env: &mut Env,
        waiter: Waiter,
        identity: RequestIdentity,
        change: &Change,
    ) -> Result<Option<Answer>, Violation> {
        if let Some(status) = self.refuses_writes(0) {
            return Ok(Some(Answer::Refused(status)));
        }
        let lane = &mut self.lanes[0];
        let key = (identity.client, identity.request);
        if let Some(op) = lane.in_flight.get(&key) {
            lane.waiters.entry(*op).or_default().push(waiter);
            env.mark(Mark::InFlight);
            return Ok(None);
        }
        let Machine::Metadata(metadata) = &lane.machine else { unreachable!("lane 0 is the metadata") };
        let sessions = metadata.sessions();
        match sessions.admit(identity.client, identity.session, identity.request, identity.request_checksum) {
            MetadataAdmit::New => {}
            MetadataAdmit::Replay(reply) => {
                env.mark(Mark::Replayed);
                return Ok(Some(Answer::Committed(reply)));
            }
            MetadataAdmit::NoSession | MetadataAdmit::StaleEpoch => return Ok(Some(Answer::NoSession)),
            refused => {
                let status = refused.status().unwrap_or(Status::TransientNotAccepted);
                return Ok(Some(Answer::Refused(status)));
            }
        }
        match plan(metadata, change) {
            Ok(mutation) => {
                self.propose_metadata(env, &Command::Request(identity, mutation), Some(key), Some(waiter))
            }
            Err(status) => Ok(Some(Answer::Refused(status))),
        }
    }

    fn propose_metadata(
        &mut self,
        env: &mut Env,
        command: &Command,
        key: Option<(laneway_wire::ClientId, laneway_wire::RequestNumber)>,
        waiter: Option<Waiter>,
    ) -> Result<Option<Answer>, Violation> {
        let body = EntryBody::operation(command.to_bytes());
        let Some(op) = self.propose(env, 0, Durability::Persisted, body) else {
            return Ok(Some(Answer::Refused(Status::TransientNotAccepted)));
        };
        let lane = &mut self.lanes[0];
        if let Some(key) = key {
            lane.in_flight.insert(key, op);
        }
        if let Some(waiter) = waiter {
            lane.waiters.entry(op).or_default().push(waiter);
        }
        self.pump(env, 0)?;
        Ok(None)
    }

    fn propose(&mut self, env: &Env, lane: usize, durability: Durability, body: EntryBody) -> Option<Op> {
        let wall = self.wall(env);
        self.lanes[lane].replica.propose(wall, durability, body).ok()
    }

    // Partitions.

    /// Why a partition is not served here at all.
    fn refuses_partition(&self, partition: PartitionKey, lane: LaneId) -> Option<Status> {
        // The caller checked that the metadata here covers what the client has seen.
        match self.routes.get(&partition) {
            Some(place) if place.lane == lane => None,
            _ => Some(Status::HistoryUnavailable),
        }
    }

    fn write(
        &mut self,
        env: &mut Env,
        waiter: Waiter,
        partition: PartitionKey,
        lane_id: LaneId,
        ask: Ask,
    ) -> Result<Option<Answer>, Violation> {
        let lane = lane_id.0 as usize;
        let refuse = |status| Ok(Some(Answer::Refused(status)));
        let identity = match &ask {
            Ask::Send { identity, .. } | Ask::Store { identity, .. } => *identity,
            _ => unreachable!("only writes come here"),
        };
        let Machine::Metadata(metadata) = &self.lanes[0].machine else {
            unreachable!("lane 0 is the metadata")
        };
        if metadata.sessions().live(identity.client, identity.session).is_none() {
            return Ok(Some(Answer::NoSession));
        }
        if let Some(status) = self.refuses_partition(partition, lane_id) {
            return refuse(status);
        }
        if let Some(status) = self.refuses_writes(lane) {
            return refuse(status);
        }
        if !self.open_if_missing(env, partition, lane)? {
            return refuse(Status::TransientNotAccepted);
        }
        let wall = self.wall(env);
        let current = &mut self.lanes[lane];
        let (op, timestamp) = current.replica.next(wall);
        let Machine::Data(data) = &mut current.machine else { unreachable!("a data lane holds partitions") };
        let Some(held) = data.state.get_mut(partition) else { return refuse(Status::TransientNotAccepted) };
        let admit = match &ask {
            Ask::Send { count, .. } => held.admit_append(Some(&identity), *count, None, wall),
            Ask::Store { consumer, offset, .. } => {
                held.admit_store_offset(Some(&identity), consumer, *offset, wall)
            }
            _ => unreachable!("only writes come here"),
        };
        match admit {
            Admit::New => {}
            Admit::Replay(receipt) => {
                env.mark(Mark::Replayed);
                return Ok(Some(Answer::Receipt(receipt)));
            }
            Admit::InFlight(op) => {
                env.mark(Mark::InFlight);
                current.waiters.entry(op).or_default().push(waiter);
                return Ok(None);
            }
            Admit::Refuse(status) => return refuse(status),
        }
        let (durability, body) = match ask {
            Ask::Send { batch, count, .. } => {
                let stamp = held.stage_append(op, Some(identity), count, None, timestamp);
                let mut batch = BytesMut::from(&batch[..]);
                batch::stamp(&mut batch, partition.partition, stamp.base_offset, stamp.timestamp)
                    .expect("the client made the batch");
                let lane_op = LaneOp::AppendBatch {
                    key: partition,
                    identity: Some(identity),
                    base_offset: stamp.base_offset,
                    producer: None,
                };
                (held.settings().durability, append_body(lane_op.encode(), batch.freeze()))
            }
            Ask::Store { consumer, offset, .. } => {
                held.stage_store_offset(op, Some(identity), &consumer);
                let lane_op = LaneOp::StoreOffset {
                    key: partition,
                    identity: Some(identity),
                    consumer,
                    offset,
                    mode: StoreMode::Explicit,
                };
                (held.settings().offset_durability, EntryBody::operation(lane_op.encode()))
            }
            _ => unreachable!("only writes come here"),
        };
        let proposed = self.propose(env, lane, durability, body);
        assert!(proposed == Some(op), "the op that was staged is the op that was proposed");
        self.lanes[lane].waiters.entry(op).or_default().push(waiter);
        self.pump(env, lane)?;
        Ok(None)
    }

    /// Whether a partition is there. Before its lane has opened it, it is not; a stop may have come in between, so the
    /// first one who asks makes up for it.
    fn open_if_missing(
        &mut self,
        env: &mut Env,
        partition: PartitionKey,
        lane: usize,
    ) -> Result<bool, Violation> {
        let Machine::Data(data) = &self.lanes[lane].machine else {
            unreachable!("a data lane holds partitions")
        };
        if data.state.get(partition).is_some() {
            return Ok(true);
        }
        self.align(env, lane)?;
        Ok(false)
    }

    fn serve(
        &mut self,
        env: &mut Env,
        partition: PartitionKey,
        lane_id: LaneId,
        read: impl FnOnce(&super::super::machine::DataMachine) -> Option<Answer>,
    ) -> Answer {
        let lane = lane_id.0 as usize;
        let now = self.monotonic(env);
        if let Some(status) = self.refuses_partition(partition, lane_id) {
            return Answer::Refused(status);
        }
        let current = &self.lanes[lane];
        let Machine::Data(data) = &current.machine else { unreachable!("a data lane holds partitions") };
        let status = match () {
            _ if current.replica.is_settled_backup() => Status::NotPrimary,
            _ if !current.replica.may_serve_reads(now) => Status::TransientNotAccepted,
            _ => match read(data) {
                Some(answer) => return answer,
                None => Status::TransientNotAccepted,
            },
        };
        env.mark(Mark::ReadRefused);
        Answer::Refused(status)
    }

    // What a primary does on its own behalf.

    /// Brings a lane in line with the metadata, as far as this node leads it and knows the metadata.
    pub(super) fn align(&mut self, env: &mut Env, lane: usize) -> Result<(), Violation> {
        if self.refuses_writes(lane).is_some() {
            return Ok(());
        }
        if lane == 0 {
            return self.make_root(env);
        }
        let mut wanted: Vec<(Op, LaneOp, (PartitionKey, bool))> = Vec::new();
        let current = &self.lanes[lane];
        let Machine::Data(data) = &current.machine else { unreachable!("a data lane holds partitions") };
        let Machine::Metadata(metadata) = &self.lanes[0].machine else {
            unreachable!("lane 0 is the metadata")
        };
        for place in self.routes.values().filter(|place| place.lane.0 as usize == lane) {
            if data.state.get(place.key).is_none() {
                let (stream, topic, settings) = (place.stream, place.topic, settings_of(place));
                let open = LaneOp::OpenPartition { key: place.key, stream, topic, settings };
                wanted.push((Op(place.key.incarnation.0), open, (place.key, true)));
            }
        }
        for partition in data.state.iter() {
            let key = partition.key();
            if !self.routes.contains_key(&key) && metadata.applied().0 >= key.incarnation.0 {
                wanted.push((Op(0), LaneOp::FencePartition { key }, (key, false)));
            }
        }
        wanted.retain(|(_, _, what)| !current.proposed.contains(what));
        let mut retire = Vec::new();
        for session in metadata.sessions().iter().filter(|session| !session.is_live()) {
            let key = SessionKey { client: session.client, session: session.epoch };
            if data.state.knows_session(key) && !current.retiring.contains(&key) {
                retire.push(key);
            }
        }
        for (_, lane_op, what) in wanted {
            let body = EntryBody::operation(lane_op.encode());
            if self.propose(env, lane, Durability::Persisted, body).is_some() {
                self.lanes[lane].proposed.insert(what);
            }
        }
        for session in retire {
            let body = EntryBody::operation(LaneOp::RetireSession { session }.encode());
            if self.propose(env, lane, Durability::Replicated, body).is_some() {
                self.lanes[lane].retiring.insert(session);
            }
        }
        self.pump(env, lane)
    }

    fn make_root(&mut self, env: &mut Env) -> Result<(), Violation> {
        let Machine::Metadata(metadata) = &self.lanes[0].machine else {
            unreachable!("lane 0 is the metadata")
        };
        if metadata.root().is_some() || self.lanes[0].proposed.contains(&ROOT_PROPOSED) {
            return Ok(());
        }
        let lanes_per_class = (env.plan.lanes as u32 - 1) / 2;
        let root = CreateRoot {
            username: "root".to_owned(),
            password_hash: PasswordHash::new("$argon2id$"),
            settings: Settings { lanes_per_class, sessions_max: 16, ..Settings::default() },
        };
        self.lanes[0].proposed.insert(ROOT_PROPOSED);
        self.propose_metadata(env, &Command::CreateRoot(root), None, None)?;
        Ok(())
    }
}

fn append_body(prefix: Vec<u8>, batch: Bytes) -> EntryBody {
    let parsed = batch::Batch::parse(&batch).expect("the batch was just stamped");
    let batch_checksum = parsed.header.batch_checksum;
    EntryBody { prefix: prefix.into(), batch, batch_checksum }
}

/// Turns a change into what the log orders.
fn plan(metadata: &Metadata, change: &Change) -> Result<Mutation, Status> {
    let settings = PlanSettings { nodes: 6, ..PlanSettings::default() };
    let planner = Planner { metadata, settings: &settings, user: ROOT };
    let planned = match change {
        Change::CreateStream(name) => planner.create_stream(name, Options::EMPTY),
        Change::DeleteStream(name) => Ok(planner.delete_stream(laneway_metadata::RefKey::Name(name))),
        Change::CreateTopic { stream, topic, partitions, persisted } => {
            let level = if *persisted { "persisted" } else { "replicated" };
            let options = OptionMap::new().with("durability", level);
            let options = options.encode().expect("one short option fits");
            let options = Options::parse(&options).expect("it was just written");
            planner.create_topic(laneway_metadata::RefKey::Name(stream), *partitions, topic, options)
        }
        Change::DeleteTopic { stream, topic } => Ok(planner
            .delete_topic(laneway_metadata::RefKey::Name(stream), laneway_metadata::RefKey::Name(topic))),
        Change::CreatePartitions { stream, topic, count } => planner.create_partitions(
            laneway_metadata::RefKey::Name(stream),
            laneway_metadata::RefKey::Name(topic),
            *count,
        ),
        Change::DeletePartitions { stream, topic, count } => planner.delete_partitions(
            laneway_metadata::RefKey::Name(stream),
            laneway_metadata::RefKey::Name(topic),
            *count,
        ),
        Change::Logout => Ok(Mutation::Logout),
    };
    planned.map_err(|refusal| refusal.status)
}

/// What those who waited for an op are told. Notes what it executed.
pub(super) fn answer_of(
    env: &mut Env,
    op: Op,
    done: &Done,
    prefix: &[u8],
    is_first: bool,
) -> Result<Answer, Violation> {
    match done {
        Done::Metadata(outcome) => {
            if is_first {
                note_metadata(env, op, outcome, prefix)?;
            }
            Ok(match &outcome.answer {
                MetadataAnswer::Committed(reply) | MetadataAnswer::Replayed(reply) => {
                    Answer::Committed(reply.clone())
                }
                MetadataAnswer::Registered { session, .. } => Answer::Registered(*session),
                MetadataAnswer::NotExecuted(MetadataAdmit::NoSession | MetadataAdmit::StaleEpoch) => {
                    Answer::NoSession
                }
                MetadataAnswer::NotExecuted(refused) => {
                    Answer::Refused(refused.status().unwrap_or(Status::TransientNotAccepted))
                }
                MetadataAnswer::Done | MetadataAnswer::NotRegistered(_) => {
                    Answer::Refused(Status::TransientNotAccepted)
                }
            })
        }
        Done::Data(applied) => Ok(match applied {
            Applied::Appended { receipt, .. }
            | Applied::OffsetStored { receipt, .. }
            | Applied::OffsetDeleted { receipt, .. }
            | Applied::StartAdvanced { receipt, .. } => Answer::Receipt(*receipt),
            Applied::Missing { .. } => Answer::Refused(Status::HistoryUnavailable),
            Applied::Opened { .. } | Applied::Fenced { .. } | Applied::Retired { .. } | Applied::Skipped => {
                Answer::Refused(Status::TransientNotCommitted)
            }
        }),
    }
}

fn note_metadata(
    env: &mut Env,
    op: Op,
    outcome: &laneway_metadata::Outcome,
    prefix: &[u8],
) -> Result<(), Violation> {
    if let MetadataAnswer::Committed(_) = &outcome.answer
        && let Ok(Command::Request(identity, mutation)) = Command::from_bytes(prefix)
    {
        env.oracle.executed(0, op, (identity.client, identity.session, identity.request))?;
        if matches!(mutation, Mutation::DeleteStream { .. }) {
            env.mark(Mark::StreamDeleted);
        }
    }
    if outcome.effects.iter().any(|effect| matches!(effect, MetadataEffect::SessionEnded { .. })) {
        env.mark(Mark::SessionEnded);
    }
    Ok(())
}
