//! Grouped fetch (109): one request that reads several partitions of a topic. The origin asks each owner once, waits
//! until the partitions together hold enough, spends the limits over them and reads.
//!
//! Source: reads specification, section 5.

use std::collections::BTreeMap;
use std::rc::Rc;

use laneway_mailbox::Class;
use laneway_metadata::permissions::Rule;
use laneway_reads::deadlines::FetchDeadlines;
use laneway_reads::{
    Deadlines, DeferredTimes, Nanos, ReadyTarget, Requester, SessionKey, Share, Strategy, allot, even_share,
};
use laneway_wire::reply::{FetchSection, put_fetch_table};
use laneway_wire::request::FetchMessages;
use laneway_wire::{
    ConsumerKind as WireKind, Frame, Incarnation, LaneId, Offset, OwnerGeneration, PartitionContext,
    PartitionId, PartitionKey, Status,
};

use super::fetches::FetchState;
use super::partitions::{consumer_key, strategy};
use crate::clock;
use crate::connections::{Binding, Connection};
use crate::core::{ConsumerKey, FenceToken};
use crate::message::{
    Access, Answer, FetchRead, Message, Oversized, PollWork, Question, ReadPart, ReplyTo, ShardId, WatchId,
    WatchTarget,
};
use crate::shard::Shard;
use crate::stream_keys::StreamCipher;

/// A fetch, checked.
struct Fetch {
    access: Access,
    consumer: ConsumerKey,
    min_count: u32,
    count: u32,
    max_bytes: u32,
    commit: bool,
    /// When it began: a later store of the offset ends the committing read of a `Next` target.
    started: Nanos,
    deadlines: FetchDeadlines,
    /// What opens the messages of an encrypted stream.
    cipher: StreamCipher,
    targets: Vec<Target>,
}

/// One target on its way.
struct Target {
    partition: PartitionId,
    lane: LaneId,
    key: PartitionKey,
    strategy: Strategy,
    max_bytes: u32,
    state: TargetState,
}

enum TargetState {
    /// Not asked yet.
    Unresolved,
    /// Stands here.
    Resolved { start: Offset, head: Option<Offset> },
    /// Cannot be read.
    Failed(Status),
    /// Was read.
    Read(ReadPart),
}

impl Target {
    /// Whether its owner follows no more fetches, of this session or at all.
    fn found_no_room(&self) -> bool {
        matches!(self.state, TargetState::Failed(Status::DeferredPollCapacityExceeded))
    }

    fn brought_messages(&self) -> bool {
        matches!(&self.state, TargetState::Read(part) if part.messages > 0)
    }

    fn available(&self) -> u64 {
        match self.state {
            TargetState::Resolved { start, head: Some(head) } if head >= start => head.0 - start.0 + 1,
            _ => 0,
        }
    }
}

impl Fetch {
    fn fail_all_but_brought(&mut self, status: Status) {
        for target in self.targets.iter_mut().filter(|target| !target.brought_messages()) {
            target.state = TargetState::Failed(status);
        }
    }
}

impl Shard {
    /// Serves a grouped fetch. Its request is counted; it is answered exactly once, unless the client took it back.
    pub(super) fn serve_fetch(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        reply_to: ReplyTo,
        binding: Binding,
        frame: &Frame,
    ) {
        let fetch = match self.plan_fetch(&binding, frame) {
            Ok(fetch) => fetch,
            Err(status) => return self.refuse_here(reply_to, status),
        };
        connection.charge(reply_to.request(), fetch.max_bytes as usize);
        let (watch, state) = self.fetches.begin(fetch.access);
        connection.fetches.borrow_mut().insert(reply_to.request(), state.clone());
        let (shard, connection) = (self.clone(), connection.clone());
        compio::runtime::spawn(async move {
            let commit = fetch.commit;
            let answer = shard.run_fetch(reply_to, &binding, fetch, watch, &state).await;
            shard.fetches.end(watch);
            connection.fetches.borrow_mut().remove(&reply_to.request());
            match answer {
                Ok(targets) => shard.answer_fetch(reply_to, targets),
                // A plain fetch that was taken back is owed nothing.
                Err(Ended::Cancelled) if !commit => shard.deliver_here(reply_to, None),
                Err(Ended::Cancelled) => shard.refuse_here(reply_to, Status::TransientNotAccepted),
                Err(Ended::Refused(status)) => shard.refuse_here(reply_to, status),
            }
            shard.pump();
        })
        .detach();
    }

    fn plan_fetch(&self, binding: &Binding, frame: &Frame) -> Result<Fetch, Status> {
        let request = FetchMessages::parse(&frame.body).map_err(|error| error.status())?;
        // Groups come with their own reads; an external group never reads here.
        if request.consumer.kind != WireKind::Consumer {
            return Err(Status::FeatureUnavailable);
        }
        let now = clock::now();
        let times = DeferredTimes {
            arrival: now,
            wait_us: request.wait_us,
            request_timeout_us: request.request_timeout_us,
        };
        let deadlines = times
            .fetch_deadlines(now, self.settings.wait_us_max)
            .map_err(|_queued_too_long| Status::TransientNotAccepted)?;
        let metadata = self.metadata();
        let (stream, topic) =
            metadata.topic(request.stream, request.topic).map_err(|missing| missing.admission_status())?;
        metadata.permit(binding.user, Rule::Poll(stream.id, topic.id))?;
        let cipher = self.cipher(stream, topic)?;
        let targets = request.targets.iter().map(|target| {
            let found = metadata.partition(stream.id.0, topic.id.0, target.partition);
            let (lane, key, state) = match found {
                Err(missing) => {
                    let nowhere = PartitionKey { incarnation: Incarnation(0), partition: target.partition };
                    (LaneId::METADATA, nowhere, TargetState::Failed(missing.admission_status()))
                }
                Ok(place) if place.key.incarnation != target.incarnation => {
                    (place.lane, place.key, TargetState::Failed(Status::HistoryUnavailable))
                }
                Ok(place) if target.owner_generation != OwnerGeneration(0) => {
                    (place.lane, place.key, TargetState::Failed(Status::ConsumerGroupPartitionNotOwned))
                }
                Ok(place) => (place.lane, place.key, TargetState::Unresolved),
            };
            Target {
                partition: target.partition,
                lane,
                key,
                strategy: strategy(target.strategy),
                max_bytes: target.max_bytes,
                state,
            }
        });
        Ok(Fetch {
            access: Access {
                session: SessionKey { client: binding.client, session: binding.session },
                user: binding.user,
                stream: stream.id,
                topic: topic.id,
            },
            consumer: consumer_key(&request.consumer)?,
            min_count: request.min_count,
            count: request.count,
            max_bytes: request.max_bytes.min(self.settings.read_bytes_max),
            commit: request.auto_commit,
            started: now,
            deadlines,
            cipher,
            targets: targets.collect(),
        })
    }

    async fn run_fetch(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
        mut fetch: Fetch,
        watch: WatchId,
        state: &FetchState,
    ) -> Result<Vec<Target>, Ended> {
        let waits = (fetch.deadlines.wait > clock::now()).then_some(fetch.access);
        let owners = self.resolve(&mut fetch, watch, waits).await;
        let full = fetch.targets.iter().any(Target::found_no_room);
        let asked =
            fetch.targets.iter().filter(|target| !matches!(target.state, TargetState::Failed(_))).count();
        let cut_short = if asked > 0 && !full { wait(&mut fetch, state).await } else { false };
        for owner in owners {
            self.send(owner, Class::Control, Message::Unwatch { from: self.settings.id, watch });
        }
        if state.cancelled.get() {
            return Err(Ended::Cancelled);
        }
        if full {
            // As a section it would leave a committing client in doubt; nothing happened, and the whole answer says so.
            return Err(Ended::Refused(Status::DeferredPollCapacityExceeded));
        }
        if let Some(status) = state.lost.get() {
            return Err(Ended::Refused(status));
        }
        let shares = shares(&fetch, cut_short);
        let refused = self.read_targets(reply_to, binding, &mut fetch, shares, state).await;
        if state.cancelled.get() && !fetch.commit {
            return Err(Ended::Cancelled);
        }
        let brought = fetch.targets.iter().any(Target::brought_messages);
        self.catch_up();
        if let Err(status) = fetch.access.check(&self.metadata()) {
            if !fetch.commit || !brought {
                return Err(Ended::Refused(status));
            }
            // What a committing fetch stored stays served; the rest says why it is not.
            fetch.fail_all_but_brought(status);
        }
        self.fail_deleted(&mut fetch);
        let failed = fetch.targets.iter().any(|target| matches!(target.state, TargetState::Failed(_)));
        match refused && !brought && !failed {
            // An empty answer would bring the client straight back.
            true => Err(Ended::Refused(Status::DeferredPollCapacityExceeded)),
            false => Ok(fetch.targets),
        }
    }

    /// A partition that was deleted meanwhile is gone for the client, whatever its owner still had of it.
    fn fail_deleted(&self, fetch: &mut Fetch) {
        let metadata = self.metadata();
        for target in &mut fetch.targets {
            let found = metadata.partition(fetch.access.stream.0, fetch.access.topic.0, target.partition);
            let current = found.is_ok_and(|place| place.key == target.key);
            if !current && !matches!(target.state, TargetState::Failed(_)) {
                target.state = TargetState::Failed(Status::HistoryUnavailable);
            }
        }
    }

    /// Asks each owner once where its targets stand, and lets it push what changes. Gives the owners.
    async fn resolve(
        self: &Rc<Self>,
        fetch: &mut Fetch,
        watch: WatchId,
        waits: Option<Access>,
    ) -> Vec<ShardId> {
        let mut by_owner: BTreeMap<ShardId, Vec<WatchTarget>> = BTreeMap::new();
        for target in &fetch.targets {
            if matches!(target.state, TargetState::Unresolved) {
                let watched = WatchTarget { lane: target.lane, key: target.key, strategy: target.strategy };
                by_owner.entry(self.owner_of(target.lane)).or_default().push(watched);
            }
        }
        let mut states = BTreeMap::new();
        for (owner, targets) in &by_owner {
            let question =
                Question::Watch { watch, waits, consumer: fetch.consumer.clone(), targets: targets.clone() };
            if let Some(Answer::Watched(watched)) = self.ask(*owner, question).await {
                states.extend(watched.into_iter().map(|watched| (watched.key, watched.state)));
            }
        }
        for target in &mut fetch.targets {
            if matches!(target.state, TargetState::Unresolved) {
                target.state = match states.get(&target.key) {
                    Some(Ok(state)) => TargetState::Resolved { start: state.start, head: state.head },
                    Some(Err(status)) => TargetState::Failed(*status),
                    None => TargetState::Failed(Status::TransientNotAccepted),
                };
            }
        }
        // Nobody follows anything for a fetch that does not wait.
        if waits.is_some() { by_owner.into_keys().collect() } else { Vec::new() }
    }

    /// Reads what was allotted: the first read alone, because it may bring one message above its bytes, then the others
    /// together. Says whether an owner refused one for want of room.
    async fn read_targets(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
        fetch: &mut Fetch,
        shares: Vec<(usize, Share)>,
        state: &FetchState,
    ) -> bool {
        let mut refused = false;
        let mut turn = Oversized::Allowed;
        let mut rest = shares.into_iter();
        for (at, share) in rest.by_ref() {
            let outcome = self.read_target(reply_to, binding, fetch, at, share, turn).await;
            match &outcome {
                Ok(part)
                    if part.bytes + u64::from(laneway_reads::selection::POLL_HEAD_BYTES)
                        > u64::from(share.bytes) =>
                {
                    // The one message above its bytes comes alone in the whole answer.
                    take(fetch, at, outcome, &mut refused);
                    return refused;
                }
                Ok(part) if part.messages > 0 => turn = Oversized::Refused,
                // Nothing was stored: the next read gets the turn.
                _ => {}
            }
            take(fetch, at, outcome, &mut refused);
            if state.is_over() {
                return refused;
            }
            if turn == Oversized::Refused {
                break;
            }
        }
        let mut calls = Vec::new();
        for (at, share) in rest {
            let call = self.calls.open();
            let read = self.fetch_read(reply_to, binding, fetch, at, share, turn);
            let owner = self.owner_of(read.lane);
            let question = Question::Read(Box::new(read));
            let message = Message::Question { from: self.settings.id, call: call.id(), question };
            match self.try_send(owner, message) {
                Ok(()) => calls.push((at, call)),
                Err(_full) => take(fetch, at, Err(Status::TransientNotAccepted), &mut refused),
            }
        }
        for (at, call) in calls {
            let outcome = match call.wait().await {
                Answer::Read(outcome) => outcome,
                _ => Err(Status::ShardCommunicationError),
            };
            take(fetch, at, outcome, &mut refused);
        }
        refused
    }

    async fn read_target(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
        fetch: &Fetch,
        at: usize,
        share: Share,
        turn: Oversized,
    ) -> Result<ReadPart, Status> {
        let read = self.fetch_read(reply_to, binding, fetch, at, share, turn);
        match self.ask(self.owner_of(read.lane), Question::Read(Box::new(read))).await {
            Some(Answer::Read(outcome)) => outcome,
            Some(_) => Err(Status::ShardCommunicationError),
            None => Err(Status::TransientNotAccepted),
        }
    }

    fn fetch_read(
        &self,
        reply_to: ReplyTo,
        binding: &Binding,
        fetch: &Fetch,
        at: usize,
        share: Share,
        oversized: Oversized,
    ) -> FetchRead {
        let target = &fetch.targets[at];
        let requester = Requester {
            connection: reply_to.connection,
            session: SessionKey { client: binding.client, session: binding.session },
            request: self.fetches.read_number(),
        };
        let work = PollWork {
            access: fetch.access,
            consumer: fetch.consumer.clone(),
            requester,
            strategy: target.strategy,
            count: share.messages,
            min_count: 0,
            max_bytes: Some(share.bytes),
            commit: fetch.commit,
            deadlines: Deadlines { wait: clock::now(), request: fetch.deadlines.read },
            cipher: fetch.cipher.clone(),
        };
        let fence = match target.state {
            TargetState::Resolved { start, .. } if target.strategy == Strategy::Next => {
                Some(FenceToken { start, at: fetch.started })
            }
            _ => None,
        };
        FetchRead {
            lane: target.lane,
            key: target.key,
            metadata_op: self.metadata().applied(),
            work,
            oversized,
            fence,
        }
    }

    fn answer_fetch(self: &Rc<Self>, reply_to: ReplyTo, targets: Vec<Target>) {
        let metadata_op = self.metadata().applied();
        let mut sections = Vec::with_capacity(targets.len());
        let mut records = Vec::new();
        for target in targets {
            let context = PartitionContext {
                incarnation: target.key.incarnation,
                owner_generation: OwnerGeneration(0),
                metadata_op,
            };
            let section = |head: Option<Offset>, messages_count, next_offset, records_len| FetchSection {
                partition: target.partition,
                status: Status::Ok,
                current_offset: head.unwrap_or(Offset(0)),
                messages_count,
                context,
                next_offset,
                records_len,
            };
            match target.state {
                TargetState::Failed(status) => sections.push(FetchSection::failed(target.partition, status)),
                TargetState::Read(part) => {
                    // The bound of a reply is far below a u32.
                    sections.push(section(part.head, part.messages, part.next_offset, part.bytes as u32));
                    records.extend(part.records);
                }
                TargetState::Resolved { start, head } if target.strategy == Strategy::Next => {
                    sections.push(section(head, 0, start, 0));
                }
                // Nothing was learned: the client keeps its position.
                TargetState::Resolved { .. } | TargetState::Unresolved => {}
            }
        }
        let frame = reply_to.echo.records(
            metadata_op,
            reply_to.echo.header().partition_incarnation,
            |out| put_fetch_table(out, &sections),
            records,
        );
        self.deliver_here(reply_to, Some(frame));
    }
}

/// Why a fetch ended without sections.
enum Ended {
    /// The client took it back, or is gone.
    Cancelled,
    /// Refused as a whole.
    Refused(Status),
}

/// Waits until the targets together hold enough, a target failed, or the wait is over. True when a target failed: then
/// every target is read with a share, so that each reports its own condition.
async fn wait(fetch: &mut Fetch, state: &FetchState) -> bool {
    loop {
        let failed = take_news(fetch, state);
        let available =
            fetch.targets.iter().fold(0_u64, |sum, target| sum.saturating_add(target.available()));
        let now = clock::now();
        if failed || state.is_over() || available >= u64::from(fetch.min_count) || now >= fetch.deadlines.wait
        {
            return failed;
        }
        let _ = compio::time::timeout(clock::until(now, fetch.deadlines.wait), state.bell.wait()).await;
    }
}

/// Applies what the owners pushed. True when a target failed.
fn take_news(fetch: &mut Fetch, state: &FetchState) -> bool {
    let news = state.news.take();
    let mut failed = false;
    for target in &mut fetch.targets {
        let Some(change) = news.get(&target.key) else { continue };
        match (&mut target.state, change) {
            (TargetState::Resolved { head, .. }, Ok(new)) => *head = Some(*new),
            (TargetState::Resolved { .. }, Err(status)) => {
                target.state = TargetState::Failed(*status);
                failed = true;
            }
            _ => {}
        }
    }
    failed
}

/// Which targets are read, and how much of each, in the order of the request.
fn shares(fetch: &Fetch, cut_short: bool) -> Vec<(usize, Share)> {
    let resolved = |target: &Target| matches!(target.state, TargetState::Resolved { .. });
    if cut_short {
        let readable: Vec<usize> = fetch
            .targets
            .iter()
            .enumerate()
            .filter(|(_, target)| resolved(target))
            .map(|(at, _)| at)
            .collect();
        let Some(even) = even_share(readable.len(), fetch.count, fetch.max_bytes) else { return Vec::new() };
        let mut left = fetch.count;
        return readable
            .into_iter()
            .map_while(|at| {
                let messages = even.messages.min(left);
                left -= messages;
                let bytes = even.bytes.min(fetch.targets[at].max_bytes);
                (messages > 0).then_some((at, Share { messages, bytes }))
            })
            .collect();
    }
    let ready: Vec<usize> = fetch
        .targets
        .iter()
        .enumerate()
        .filter(|(_, target)| target.available() > 0)
        .map(|(at, _)| at)
        .collect();
    let wanted: Vec<ReadyTarget> = ready
        .iter()
        .map(|at| ReadyTarget {
            available: fetch.targets[*at].available(),
            wanted_bytes: fetch.targets[*at].max_bytes,
        })
        .collect();
    let allotted = allot(&wanted, fetch.count, fetch.max_bytes);
    ready.into_iter().zip(allotted).filter_map(|(at, share)| Some((at, share?))).collect()
}

/// Notes what a read came to.
fn take(fetch: &mut Fetch, at: usize, outcome: Result<ReadPart, Status>, refused: &mut bool) {
    let target = &mut fetch.targets[at];
    match outcome {
        Ok(part) => target.state = TargetState::Read(part),
        Err(Status::DeferredPollCapacityExceeded) => *refused = true,
        Err(status) => target.state = TargetState::Failed(status),
    }
}
