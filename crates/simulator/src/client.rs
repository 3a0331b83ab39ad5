//! A client, as the published one behaves: it freezes a request when it makes it, sends it again until it knows how it
//! ended, keeps one change of the metadata and one change of partitions in flight, and asks another node when one says
//! that it does not lead.

use std::rc::Rc;

use bytes::Bytes;
use laneway_metadata::{PartitionPlace, RequestIdentity, Verifier};
use laneway_partition::{ConsumerKey, ConsumerKind, Identity};
use laneway_wire::batch::BatchBuilder;
use laneway_wire::{ClientId, Micros, Offset, Op, PartitionKey, RequestNumber, SessionEpoch, Status, UserId};

use crate::contract::{Answer, Ask, Change, Request};
use crate::coverage::Mark;
use crate::env::{Env, Happening};
use crate::hold;
use crate::oracle::{Floor, Violation, digest_places};
use crate::queue::{MILLISECOND, Time};
use crate::say;

/// Consumers whose offsets clients store.
const CONSUMERS: u64 = 3;
/// How long a client waits for an answer before it sends again.
const PATIENCE: Time = 700 * MILLISECOND;
/// Lanes of requests of a client: metadata, partitions, reads.
const SLOTS: usize = 3;

/// A request that was sent and is not over.
#[derive(Clone, Debug)]
struct Pending {
    request: Request,
    /// Times that it was sent.
    attempts: u32,
    /// Answers that promised that nothing happened.
    not_accepted: u32,
    /// What the client could rely on when it sent it first.
    floor: Floor,
    target: usize,
}

/// A client of a run.
#[derive(Debug)]
pub struct Client {
    number: usize,
    id: ClientId,
    session: Option<SessionEpoch>,
    request_last: u64,
    exchange_last: u64,
    message_last: u64,
    /// The highest metadata op that it has seen.
    watermark: Op,
    places: Rc<[PartitionPlace]>,
    /// Who led each lane last, as far as this client knows.
    leaders: Vec<usize>,
    slots: [Option<Pending>; SLOTS],
    /// Requests that it will still make.
    left: u32,
    must_look_up: bool,
    lives: u32,
}

impl Client {
    /// A client that will make so many requests.
    pub fn new(number: usize, requests: u32, env: &mut Env) -> Self {
        let id = ClientId(env.streams.workload.bits_u128());
        Self {
            number,
            id,
            session: None,
            request_last: 0,
            exchange_last: 0,
            message_last: 0,
            watermark: Op(0),
            places: Rc::from([]),
            leaders: vec![0; env.plan.lanes],
            slots: [None, None, None],
            left: requests,
            must_look_up: true,
            lives: 0,
        }
    }

    /// Whether it has nothing left to do and nothing on its way.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.slots.iter().all(Option::is_none)
    }

    /// Whether it waits for an answer.
    pub fn waits(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// What it waits for, for the report of a failure.
    pub fn describe(&self) -> String {
        let pending = self.slots.iter().flatten();
        let asks: Vec<String> = pending
            .map(|pending| {
                let request = &pending.request;
                format!("{} of lane {} ({} times)", request.ask.kind(), request.ask.lane(), pending.attempts)
            })
            .collect();
        format!("client {} waits for {} and has {} requests left", self.number, asks.join(", "), self.left)
    }

    /// Makes a request where there is room for one; thinks again later otherwise.
    pub fn think(&mut self, env: &mut Env) {
        let before = self.exchange_last;
        self.consider(env);
        if self.exchange_last == before && self.left > 0 {
            self.think_later(env);
        }
    }

    fn think_later(&mut self, env: &mut Env) {
        let pause = MILLISECOND + env.streams.workload.exponential(env.plan.think_mean);
        let at = env.now() + pause;
        env.plan_at(at, Happening::Think { client: self.number });
    }

    fn consider(&mut self, env: &mut Env) {
        if self.session.is_none() {
            if self.slots[0].is_none() && self.left > 0 {
                let ask = Ask::Register { client: self.id, verifier: Verifier([self.lives as u8; 32]) };
                self.begin(env, 0, ask, None);
            }
            return;
        }
        if self.left == 0 {
            return;
        }
        if self.must_look_up && self.slots[2].is_none() {
            self.must_look_up = false;
            self.begin(env, 2, Ask::Lookup, None);
            return;
        }
        let choice = env.streams.workload.below(100);
        match choice {
            0..=14 => self.change_metadata(env),
            15..=64 => self.send(env),
            65..=76 => self.store(env),
            _ => self.read(env),
        }
    }

    fn begin(&mut self, env: &mut Env, slot: usize, ask: Ask, partition: Option<PartitionKey>) {
        self.exchange_last += 1;
        let lane = ask.lane().0 as usize;
        let floor = env.oracle.floor(lane, partition);
        let target = match ask {
            Ask::Lookup => env.streams.workload.index(env.plan.nodes),
            _ => self.leaders[lane],
        };
        let request =
            Request { client: self.number, exchange: self.exchange_last, minimum: self.watermark, ask };
        self.slots[slot] = Some(Pending { request, attempts: 0, not_accepted: 0, floor, target });
        self.transmit(env, slot);
    }

    fn transmit(&mut self, env: &mut Env, slot: usize) {
        let Some(pending) = &mut self.slots[slot] else { return };
        pending.attempts += 1;
        let (request, attempt) = (pending.request.clone(), pending.attempts);
        let exchange = request.exchange;
        say!(
            env.trace,
            env.queue.now(),
            "client {} asks node {}: {} of lane {} (exchange {exchange}, attempt {attempt})",
            self.number,
            pending.target,
            request.ask.kind(),
            request.ask.lane()
        );
        env.ask(pending.target, request);
        let at = env.now() + PATIENCE;
        env.plan_at(at, Happening::Resend { client: self.number, exchange, attempt });
    }

    /// The patience for an attempt is over.
    pub fn resend(&mut self, env: &mut Env, exchange: u64, attempt: u32) {
        let Some(slot) = self.slot_of(exchange) else { return };
        let nodes = env.plan.nodes;
        let Some(pending) = &mut self.slots[slot] else { return };
        if pending.attempts == attempt {
            pending.target = (pending.target + 1 + env.streams.workload.index(nodes)) % nodes;
            self.transmit(env, slot);
        }
    }

    fn slot_of(&self, exchange: u64) -> Option<usize> {
        let of = |pending: &Option<Pending>| pending.as_ref().is_some_and(|p| p.request.exchange == exchange);
        self.slots.iter().position(of)
    }

    fn next_request(&mut self) -> RequestNumber {
        self.request_last += 1;
        RequestNumber(self.request_last)
    }

    fn identity(&mut self) -> Option<Identity> {
        let session = self.session?;
        Some(Identity { client: self.id, session, request: self.next_request() })
    }

    fn change_metadata(&mut self, env: &mut Env) {
        if self.slots[0].is_some() {
            return;
        }
        let Some(session) = self.session else { return };
        let random = &mut env.streams.workload;
        let stream = ["main", "other"][random.index(10) / 7].to_owned();
        let topic = ["one", "two"][random.index(2)].to_owned();
        let change = match random.below(20) {
            0..=4 => Change::CreateStream(stream),
            5..=11 => {
                let partitions = random.between(1, 3) as u32;
                Change::CreateTopic { stream, topic, partitions, persisted: random.flip() }
            }
            12..=13 => Change::CreatePartitions { stream, topic, count: 1 },
            14..=15 => Change::DeletePartitions { stream, topic, count: 1 },
            16..=17 => Change::DeleteTopic { stream, topic },
            18 => Change::DeleteStream("other".to_owned()),
            _ => Change::Logout,
        };
        let request_checksum = random.bits_u128();
        let request = self.next_request();
        let identity = RequestIdentity {
            client: self.id,
            session,
            request,
            request_checksum,
            user: UserId(0),
            operation: 1,
        };
        self.left -= 1;
        self.begin(env, 0, Ask::Metadata { identity, change: Rc::new(change) }, None);
    }

    fn pick_place(&mut self, env: &mut Env) -> Option<PartitionPlace> {
        if self.places.is_empty() {
            self.must_look_up = true;
            if self.slots[0].is_none() && env.streams.workload.below(3) == 0 {
                self.make_room_to_write(env);
            }
            return None;
        }
        Some(*env.streams.workload.pick(&self.places))
    }

    /// There is no partition at all: make the stream and the topic that there should be.
    fn make_room_to_write(&mut self, env: &mut Env) {
        let Some(session) = self.session else { return };
        let random = &mut env.streams.workload;
        let stream = "main".to_owned();
        let change = match random.flip() {
            true => Change::CreateStream(stream),
            false => Change::CreateTopic {
                stream,
                topic: "one".to_owned(),
                partitions: 2,
                persisted: random.flip(),
            },
        };
        let request_checksum = random.bits_u128();
        let request = self.next_request();
        let client = self.id;
        let identity =
            RequestIdentity { client, session, request, request_checksum, user: UserId(0), operation: 1 };
        self.begin(env, 0, Ask::Metadata { identity, change: Rc::new(change) }, None);
    }

    fn send(&mut self, env: &mut Env) {
        if self.slots[1].is_some() {
            return;
        }
        let Some(place) = self.pick_place(env) else { return };
        let Some(identity) = self.identity() else { return };
        let count = env.streams.workload.between(1, 3) as u32;
        let batch = self.batch(count, env);
        self.left -= 1;
        let ask = Ask::Send { identity, partition: place.key, lane: place.lane, batch, count };
        self.begin(env, 1, ask, Some(place.key));
    }

    fn batch(&mut self, count: u32, env: &mut Env) -> Bytes {
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            self.message_last += 1;
            let number = (self.number as u128) << 64 | u128::from(self.message_last);
            let length = 1 + env.streams.workload.index(40);
            let payload = [self.message_last as u8; 40];
            builder
                .push(number, Micros(self.message_last), &payload[..length], &[])
                .expect("a small message fits");
        }
        builder.finish().expect("a batch with messages is whole").freeze()
    }

    fn store(&mut self, env: &mut Env) {
        if self.slots[1].is_some() {
            return;
        }
        let Some(place) = self.pick_place(env) else { return };
        let Some(identity) = self.identity() else { return };
        let end = env.oracle.floor(place.lane.0 as usize, Some(place.key)).messages;
        // Sometimes beyond the end, which is refused.
        let offset = Offset(env.streams.workload.below(end + 2));
        let consumer = consumer(env);
        self.left -= 1;
        let ask = Ask::Store { identity, partition: place.key, lane: place.lane, consumer, offset };
        self.begin(env, 1, ask, Some(place.key));
    }

    fn read(&mut self, env: &mut Env) {
        if self.slots[2].is_some() {
            return;
        }
        let Some(place) = self.pick_place(env) else { return };
        self.left -= 1;
        let (partition, lane) = (place.key, place.lane);
        let ask = match env.streams.workload.below(4) {
            0 => Ask::StoredOffset { partition, lane, consumer: consumer(env) },
            1 => return self.begin(env, 2, Ask::Lookup, None),
            _ => {
                let end = env.oracle.floor(lane.0 as usize, Some(partition)).messages;
                Ask::Poll { partition, lane, offset: Offset(env.streams.workload.below(end + 1)) }
            }
        };
        self.begin(env, 2, ask, Some(partition));
    }

    /// An answer arrived.
    pub fn answered(
        &mut self,
        env: &mut Env,
        exchange: u64,
        node: usize,
        answer: Answer,
    ) -> Result<(), Violation> {
        let Some(slot) = self.slot_of(exchange) else { return Ok(()) };
        let lane = self.slots[slot].as_ref().map_or(0, |pending| pending.request.ask.lane().0 as usize);
        match answer {
            Answer::Refused(status) => return self.refused(env, slot, node, status),
            Answer::NoSession => {
                self.finish(env, slot);
                self.sign_in_again(env);
                return Ok(());
            }
            answer => {
                self.leaders[lane] = node;
                self.succeeded(env, slot, answer)?;
            }
        }
        self.finish(env, slot);
        Ok(())
    }

    fn succeeded(&mut self, env: &mut Env, slot: usize, answer: Answer) -> Result<(), Violation> {
        let Some(pending) = &self.slots[slot] else { return Ok(()) };
        let floor = pending.floor;
        match (&pending.request.ask, answer) {
            (Ask::Register { client, .. }, Answer::Registered(session)) => {
                env.oracle.registered(*client, session)?;
                self.session = Some(session);
                self.watermark = self.watermark.max(Op(session.0));
            }
            (Ask::Metadata { change, .. }, Answer::Committed(reply)) => {
                env.oracle.reply(floor, &reply)?;
                self.watermark = self.watermark.max(reply.op);
                self.must_look_up = true;
                if **change == Change::Logout {
                    env.mark(Mark::SessionEnded);
                    self.sign_in_again(env);
                }
            }
            (Ask::Lookup, Answer::Places { applied, places }) => {
                env.oracle.looked_up(pending.request.minimum, applied, digest_places(&places))?;
                self.watermark = self.watermark.max(applied);
                self.places = places;
            }
            (
                Ask::Send { partition, lane, .. } | Ask::Store { partition, lane, .. },
                Answer::Receipt(receipt),
            ) => {
                env.oracle.receipt(lane.0 as usize, *partition, floor, &receipt)?;
                if receipt.message_count == 0 {
                    env.mark(Mark::OffsetStored);
                }
            }
            (Ask::Poll { partition, offset, .. }, Answer::Polled { head, messages }) => {
                env.oracle.polled(*partition, offset.0, floor, head.map(|head| head.0), &messages)?;
                env.mark(Mark::Read);
            }
            (Ask::StoredOffset { partition, consumer, .. }, Answer::Offset(offset)) => {
                env.oracle.offset_read(*partition, consumer, floor, offset.map(|offset| offset.0))?;
            }
            (ask, answer) => hold!(false, "a {} was answered with a {}", ask.kind(), answer.kind()),
        }
        env.totals.requests += 1;
        Ok(())
    }

    fn refused(&mut self, env: &mut Env, slot: usize, node: usize, status: Status) -> Result<(), Violation> {
        let nodes = env.plan.nodes;
        let Some(pending) = &mut self.slots[slot] else { return Ok(()) };
        let (exchange, attempt) = (pending.request.exchange, pending.attempts);
        let lane = pending.request.ask.lane().0 as usize;
        let pause = env.streams.workload.between(5, 60) * MILLISECOND;
        match status {
            Status::TransientNotCommitted => env.mark(Mark::Unknown),
            Status::TransientNotAccepted => {
                env.mark(Mark::NotAccepted);
                pending.not_accepted += 1;
                let identity = match &pending.request.ask {
                    Ask::Send { identity, .. } | Ask::Store { identity, .. } => {
                        Some((identity.client, identity.session, identity.request))
                    }
                    Ask::Metadata { identity, .. } => {
                        Some((identity.client, identity.session, identity.request))
                    }
                    _ => None,
                };
                // Everybody who got the request has promised that nothing happened: the client may go on.
                let known = pending.not_accepted == pending.attempts;
                if let Some(key) = identity
                    && known
                    && env.streams.workload.below(12) == 0
                {
                    env.oracle.given_up(key)?;
                    self.finish(env, slot);
                    return Ok(());
                }
            }
            Status::NotPrimary => {
                env.mark(Mark::NotPrimary);
                self.leaders[lane] = (node + 1) % nodes;
            }
            Status::HistoryUnavailable => {
                self.must_look_up = true;
                self.places =
                    self.places.iter().filter(|place| place.lane.0 as usize != lane).copied().collect();
                self.finish(env, slot);
                return Ok(());
            }
            _ => {
                self.finish(env, slot);
                return Ok(());
            }
        }
        // Sends again after a pause, by way of the timer that an attempt without an answer has.
        let at = env.now() + pause;
        env.plan_at(at, Happening::Resend { client: self.number, exchange, attempt });
        Ok(())
    }

    fn finish(&mut self, env: &mut Env, slot: usize) {
        self.slots[slot] = None;
        self.think_later(env);
    }

    /// The session is over: what is on its way with it will never be answered well.
    fn sign_in_again(&mut self, env: &mut Env) {
        self.session = None;
        self.lives += 1;
        self.id = ClientId(env.streams.workload.bits_u128());
        self.request_last = 0;
        self.slots[1] = None;
        self.slots[2] = None;
    }
}

fn consumer(env: &mut Env) -> ConsumerKey {
    ConsumerKey::number(ConsumerKind::Consumer, env.streams.workload.below(CONSUMERS))
}
