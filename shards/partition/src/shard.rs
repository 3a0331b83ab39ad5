//! One shard: its state, and how a turn carries out what the cores ask for.
//!
//! Everything lives on one thread. A turn borrows a core, feeds it an event, gives the borrow back and carries out what
//! the core wants; no borrow is held across an await.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use laneway_encryption::KeyRing;
use laneway_mailbox::{Class, Refused};
use laneway_metadata::planner::PlanSettings;
use laneway_metadata::{Metadata, SessionId};
use laneway_reads::{Nanos, WaiterLimits};
use laneway_shard_metadata::{Effect, MetadataLane, ShardWork};
use laneway_storage::{
    DataDirectory, GroupCommit, Placing, Record, SegmentStore, StorageCounters, SyncClass,
};
use laneway_transport::{OutFrame, Signal};
use laneway_vsr::{Durability, Entry, EntryBody, Header};
use laneway_wire::{EvictionReason, LaneId, Micros, Op, Status};

use crate::budgets::{UserConnections, UserLimits, Users};
use crate::calls::{Call, Calls};
use crate::clock;
use crate::connections::{ConnectionLimits, Connections};
use crate::core::LaneLimits;
use crate::disk::Reads;
use crate::message::{
    Access, Answer, ClientRow, Inbox, Message, PartitionRequest, Post, Question, ReplyTo, ShardId, Work,
};
use crate::origin::fetches::Fetches;
use crate::origin::metadata::Ticket;
use crate::owner::{Owner, RetentionSettings, Todo};
use crate::passwords::{self, Checked, Guess, Passwords};
use crate::process::Process;
use crate::reclaim::Reclaim;
use crate::scrub::{Scrub, ScrubSettings};
use crate::snapshots::Snapshots;
use crate::stream_keys::StreamKeys;
use crate::trouble::Trouble;

/// Age of the process's figures at which they are read again, microseconds. Reading takes a part of a millisecond.
const PROCESS_US_MAX: u64 = 1_000_000;

/// How long removed segments may wait for others before a checkpoint gives their space back, microseconds.
const RECLAIM_US: u64 = 1_000_000;

/// Longest time after which a token that ends is looked at again, microseconds.
const TOKEN_LOOK_US_MAX: u64 = 60_000_000;

/// Pause after the metadata lane had no room for the end of a token, microseconds.
const TOKEN_RETRY_US: u64 = 100_000;

/// Messages that one turn takes from the mailbox, so that connections and the journal get their turn in between.
const MESSAGES_PER_TURN_MAX: usize = 256;

/// A shard has more requests waiting than it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mailbox of shard {} is full", shard.0)]
pub struct QueueFull {
    /// The shard.
    pub shard: ShardId,
}

/// How a client reaches this node.
#[derive(Clone, Debug)]
pub struct NodeAddress {
    /// The address that the roster names.
    pub ip: String,
    /// The port that listens.
    pub tcp_port: u16,
}

/// What a shard is told at its start.
#[derive(Clone, Debug)]
pub struct ShardSettings {
    /// Its number.
    pub id: ShardId,
    /// Shards of this node.
    pub shards: u16,
    /// Largest frame of a signed-in client, bytes.
    pub frame_bytes_max: usize,
    /// What the open requests of one connection may hold.
    pub connection_limits: ConnectionLimits,
    /// What the open requests of one user may hold on this shard.
    pub user_limits: UserLimits,
    /// Connections of each user on the node.
    pub user_connections: UserConnections,
    /// Connections that the node holds at most.
    pub connections_max: usize,
    /// Connections that the node holds.
    pub connections: Arc<AtomicUsize>,
    /// Longest wait of a deferred poll, microseconds.
    pub wait_us_max: u64,
    /// Deferred polls that may wait.
    pub waiters: WaiterLimits,
    /// Most bytes of records in one reply.
    pub read_bytes_max: u32,
    /// Polls that read segments at once, at least 1. Each holds at most one reply's bytes and one chunk.
    pub reads_at_once: usize,
    /// What a partition remembers.
    pub lane_limits: LaneLimits,
    /// Batches that stay in memory after they reached their segments, bytes.
    pub cache_bytes: u64,
    /// How clients reach this node.
    pub address: NodeAddress,
    /// How passwords are checked.
    pub passwords: Passwords,
    /// What requests are planned with.
    pub plan: PlanSettings,
    /// How the cleaner works.
    pub retention: RetentionSettings,
    /// The keys of the node.
    pub keys: Arc<KeyRing>,
    /// Free space of the data directory's file system below which messages are refused, bytes.
    pub free_bytes_min: u64,
    /// How sealed segments are verified.
    pub scrub: ScrubSettings,
    /// How archives for bug reports are made.
    pub snapshots: Snapshots,
}

/// One shard. Made on its thread by the broker, ends with the thread.
#[derive(Debug)]
pub struct Shard {
    /// What it was told.
    pub settings: ShardSettings,
    /// The data directory.
    pub directory: DataDirectory,
    /// What storage counts.
    pub counters: Rc<StorageCounters>,
    /// Segment files.
    pub segments: Rc<SegmentStore>,
    /// Open questions to other shards.
    pub calls: Calls,
    /// Its connections.
    pub connections: RefCell<Connections>,
    /// Its lanes.
    pub owner: RefCell<Owner>,
    /// The metadata lane; on shard 0.
    pub lane: RefCell<Option<MetadataLane<Ticket>>>,
    /// What waits for the journal.
    pub commit: RefCell<GroupCommit>,
    /// Rung when something waits for the journal.
    pub journal_bell: Signal,
    /// Reads of segments.
    pub reads: Reads,
    /// What users hold here.
    pub users: RefCell<Users>,
    /// The keys of the streams that it met.
    pub stream_keys: StreamKeys,
    /// Grouped fetches of its connections.
    pub fetches: Fetches,
    /// Earliest next try to rotate the journal, after one that found no space or no descriptor.
    pub rotate_after: Cell<Nanos>,
    /// What is wrong with its disk.
    pub trouble: Trouble,
    /// Verification of its sealed segments.
    pub scrub: Scrub,
    /// When a checkpoint is made for the disk space that it gives back.
    pub reclaim: Reclaim,
    /// Whether memory waits for a checkpoint, however full the journal is.
    pub wants_checkpoint: Cell<bool>,
    /// Whether a checkpoint is being made.
    pub checkpointing: Cell<bool>,
    /// Rung when a checkpoint is done.
    pub checkpoint_bell: Signal,
    process: RefCell<Option<(Nanos, Rc<Process>)>>,
    metadata: RefCell<Arc<Metadata>>,
    posts: Vec<Post>,
    inbox: Inbox,
    /// Messages that found a queue full and must not be lost.
    late: RefCell<VecDeque<(ShardId, Class, Message)>>,
    timer_bell: Signal,
    timer_armed: Cell<Option<Nanos>>,
    /// The token that ends next, and when to look.
    token_timer: Cell<Option<(Micros, Nanos)>>,
    stopping: Cell<bool>,
}

impl Shard {
    /// A shard with restored lanes. `posts` leads to every shard, this one included.
    #[expect(clippy::too_many_arguments, reason = "made once, by the broker, from parts that it just made")]
    pub fn new(
        settings: ShardSettings,
        directory: DataDirectory,
        counters: Rc<StorageCounters>,
        segments: Rc<SegmentStore>,
        commit: GroupCommit,
        owner: Owner,
        lane: Option<MetadataLane<Ticket>>,
        metadata: Arc<Metadata>,
        posts: Vec<Post>,
        inbox: Inbox,
    ) -> Rc<Self> {
        assert!(posts.len() == usize::from(settings.shards), "there is a way to every shard");
        assert!(lane.is_some() == (settings.id == ShardId(0)), "shard 0 runs the metadata lane");
        assert!(settings.reads_at_once > 0, "a read that begins must end");
        let connections = RefCell::new(Connections::new(settings.id));
        let shard = Rc::new(Self {
            settings,
            directory,
            counters,
            segments,
            calls: Calls::default(),
            connections,
            owner: RefCell::new(owner),
            lane: RefCell::new(lane),
            commit: RefCell::new(commit),
            journal_bell: Signal::default(),
            reads: Reads::default(),
            users: RefCell::default(),
            stream_keys: StreamKeys::default(),
            fetches: Fetches::default(),
            rotate_after: Cell::new(Nanos(0)),
            trouble: Trouble::default(),
            scrub: Scrub::default(),
            reclaim: Reclaim::default(),
            wants_checkpoint: Cell::new(false),
            checkpointing: Cell::new(false),
            checkpoint_bell: Signal::default(),
            process: RefCell::default(),
            metadata: RefCell::new(metadata),
            posts,
            inbox,
            late: RefCell::default(),
            timer_bell: Signal::default(),
            timer_armed: Cell::new(None),
            token_timer: Cell::new(None),
            stopping: Cell::new(false),
        });
        shard.owner.borrow_mut().keep_in_memory(shard.settings.cache_bytes);
        shard.owner.borrow_mut().handle_metadata(shard.metadata());
        shard
    }

    /// The newest metadata that this shard has.
    pub fn metadata(&self) -> Arc<Metadata> {
        self.metadata.borrow().clone()
    }

    /// Whether the shard refuses new work.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// The shard that owns a lane.
    pub fn owner_of(&self, lane: LaneId) -> ShardId {
        ShardId(laneway_shard_metadata::settling::owner(lane, self.settings.shards))
    }

    /// Every shard of the node.
    pub fn shard_ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.settings.shards).map(ShardId)
    }

    /// Takes metadata that was published and not looked at yet. Shard 0 publishes before it answers, so after this no
    /// client is ahead of this shard with an op that it was told of.
    pub fn catch_up(&self) {
        if let Some(metadata) = self.inbox.take_published() {
            self.set_metadata(metadata);
        }
    }

    fn set_metadata(&self, metadata: Arc<Metadata>) {
        let op = metadata.applied();
        if op > self.metadata.borrow().applied() {
            *self.metadata.borrow_mut() = metadata.clone();
            self.owner.borrow_mut().handle_metadata(metadata);
        }
    }

    /// Takes messages from other shards until the shard's thread ends.
    pub async fn serve_mailbox(self: Rc<Self>) {
        loop {
            if self.late.borrow().is_empty() {
                self.inbox.ready().await;
            } else {
                // A full queue empties within turns of its shard; waiting for it must not hold up this one.
                let _ = compio::time::timeout(std::time::Duration::from_millis(1), self.inbox.ready()).await;
                self.send_late();
            }
            self.take_messages();
            yield_now().await;
        }
    }

    /// Takes messages that are there, at most a turn's worth. Says whether some may be left.
    pub fn take_messages(self: &Rc<Self>) -> bool {
        self.catch_up();
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(message) = self.inbox.take() else { break };
            self.handle_message(message);
        }
        self.pump();
        !self.inbox.is_empty()
    }

    /// Ends waits and sessions in time, with one timer for all of them.
    pub async fn serve_timers(self: Rc<Self>) {
        loop {
            let now = clock::now();
            let deadline = self.earliest_deadline();
            self.timer_armed.set(deadline);
            match deadline {
                Some(deadline) if deadline <= now => {
                    self.handle_timeouts();
                    self.pump();
                    yield_now().await;
                }
                Some(deadline) => {
                    let _ = compio::time::timeout(clock::until(now, deadline), self.timer_bell.wait()).await;
                }
                None => self.timer_bell.wait().await,
            }
        }
    }

    fn earliest_deadline(&self) -> Option<Nanos> {
        let parked = self.owner.borrow().poll_timeout();
        let sessions = self.lane.borrow().as_ref().and_then(|lane| lane.poll_timeout());
        parked.into_iter().chain(sessions).chain(self.reclaim.wanted_at()).chain(self.token_deadline()).min()
    }

    /// When to look for a token that has ended. Tokens end by the calendar, the timer runs by the other clock: the two
    /// are compared once for each token, and again after [`TOKEN_LOOK_US_MAX`], because the calendar may be set.
    fn token_deadline(&self) -> Option<Nanos> {
        let expires_at = self.lane.borrow().as_ref().and_then(|lane| lane.next_token_expiry())?;
        match self.token_timer.get() {
            Some((timed, deadline)) if timed == expires_at => Some(deadline),
            _ => {
                let left_us = expires_at.0.saturating_sub(clock::wall().0).min(TOKEN_LOOK_US_MAX);
                let deadline = clock::now().after_us(left_us);
                self.token_timer.set(Some((expires_at, deadline)));
                Some(deadline)
            }
        }
    }

    fn expire_tokens(&self, now: Nanos, wall: Micros) {
        let due = self.token_deadline().is_some_and(|deadline| deadline <= now);
        let mut lane = self.lane.borrow_mut();
        let Some(lane) = lane.as_mut().filter(|_| due) else { return };
        self.token_timer.set(None);
        let Some(expires_at) = lane.next_token_expiry().filter(|expires_at| *expires_at <= wall) else {
            return;
        };
        if !lane.expire_tokens(wall, Ticket::Nobody) {
            self.token_timer.set(Some((expires_at, now.after_us(TOKEN_RETRY_US))));
        }
    }

    fn handle_timeouts(&self) {
        let (now, wall) = (clock::now(), clock::wall());
        let metadata = self.metadata();
        self.owner.borrow_mut().handle_timeout(now, wall, &metadata);
        if self.reclaim.take_due(now) {
            self.journal_bell.ring();
        }
        if let Some(lane) = self.lane.borrow_mut().as_mut()
            && lane.poll_timeout().is_some_and(|deadline| deadline <= now)
        {
            lane.handle_timeout(now, wall, Ticket::Nobody);
        }
        self.expire_tokens(now, wall);
    }

    fn handle_message(self: &Rc<Self>, message: Message) {
        let (now, wall) = (clock::now(), clock::wall());
        match message {
            Message::Partition(request) => self.serve_request(now, wall, *request),
            Message::Metadata(request) => self.order_metadata(*request),
            Message::Reply { to, frame } => self.deliver_here(to, frame),
            Message::Question { from, call, question } => self.answer_question(from, call, question),
            Message::Answer { call, answer } => self.calls.answer(call, answer),
            Message::Watched { watch, key, head } => self.fetches.note(watch, key, head),
            Message::Unwatch { from, watch } => self.owner.borrow_mut().handle_unwatch(from, watch),
            Message::Cancel(requester) => self.owner.borrow_mut().handle_cancel(requester),
            Message::ConnectionLost(connection) => {
                self.owner.borrow_mut().handle_connection_lost(connection);
            }
            Message::SessionsEnded(sessions) => {
                // Their end was published before it was told: what comes from now on finds them over.
                self.catch_up();
                self.fetches.end_sessions(&sessions);
                self.owner.borrow_mut().handle_sessions_ended(wall, &sessions);
            }
            Message::TopicChanged(stream, topic) => {
                // Published before it was told.
                self.catch_up();
                let metadata = self.metadata();
                let owned = |lane| self.owner_of(lane) == self.settings.id;
                self.owner.borrow_mut().handle_topic_changed(now, &metadata, (stream, topic), owned);
            }
            Message::GrantsChanged(user) => {
                self.catch_up();
                self.fetches.look_again(user, &self.metadata());
                self.owner.borrow_mut().handle_grants_changed(user);
            }
            Message::Alive(flag) => flag.store(true, Ordering::Release),
            Message::Evict { to, reason } => self.evict_here(to, reason),
            Message::Lifecycle { op, work } => self.begin_lifecycle(op, &work),
            Message::LifecycleDone { op, shard } => {
                if let Some(lane) = self.lane.borrow_mut().as_mut() {
                    lane.handle_shard_done(op, shard.0);
                }
            }
            Message::Attached { session, joined } => {
                if let Some(lane) = self.lane.borrow_mut().as_mut() {
                    lane.handle_attached(now, session, joined);
                }
            }
        }
    }

    /// Serves a request of a client on the shard that owns the partition.
    ///
    /// The right of a poll is looked up again here: it may have ended while the poll was on its way, and then its end
    /// has passed this shard already and would not wake what is parked now.
    pub(crate) fn serve_request(self: &Rc<Self>, now: Nanos, wall: Micros, request: PartitionRequest) {
        if let Work::Poll(poll) = &request.work
            && let Err(status) = self.check_access(&poll.access)
        {
            let refusal = request.reply_to.echo.refusal(status);
            return self.deliver(request.reply_to, Some(refusal));
        }
        if let Work::Append { batch, .. } = &request.work {
            self.look_at_space(now, batch.len() as u64);
        }
        self.owner.borrow_mut().handle_request(now, wall, request);
    }

    /// Whether a read may be made, by the newest metadata when what this shard has looked at says no.
    fn check_access(&self, access: &Access) -> Result<(), Status> {
        if access.check(&self.metadata.borrow()).is_ok() {
            return Ok(());
        }
        self.catch_up();
        access.check(&self.metadata.borrow())
    }

    fn begin_lifecycle(&self, op: Op, work: &ShardWork) {
        let fence: Vec<_> = work.fence.iter().map(|place| (place.lane, place.key)).collect();
        self.owner.borrow_mut().handle_lifecycle(clock::wall(), op, &work.open, &fence);
    }

    /// Carries out what the cores want, until they want nothing.
    pub fn pump(self: &Rc<Self>) {
        loop {
            let todo = self.owner.borrow_mut().poll_todo();
            if let Some(todo) = todo {
                self.carry_out(todo);
                continue;
            }
            let effect = self.lane.borrow_mut().as_mut().and_then(MetadataLane::poll_effect);
            let Some(effect) = effect else { break };
            self.carry_out_metadata(effect);
        }
        let deadline = self.earliest_deadline();
        if deadline.is_some_and(|deadline| self.timer_armed.get().is_none_or(|armed| deadline < armed)) {
            self.timer_armed.set(deadline);
            self.timer_bell.ring();
        }
    }

    fn carry_out(self: &Rc<Self>, todo: Todo) {
        match todo {
            Todo::Write(lane, entry, placing) => self.write(lane, entry, placing),
            Todo::Answer(to, frame) => self.deliver(to, frame),
            Todo::AnswerFetch(to, call, part) => {
                self.send(to, Class::Reply, Message::Answer { call, answer: Answer::Read(part) });
            }
            Todo::Push(push) => {
                let news = Message::Watched { watch: push.watch, key: push.key, head: push.head };
                self.send(push.to, Class::Reply, news);
            }
            Todo::Read(id) => self.read_segments(id),
            Todo::Reclaim => self.reclaim.want(clock::now().after_us(RECLAIM_US)),
            Todo::LifecycleDone(op) => {
                let done = Message::LifecycleDone { op, shard: self.settings.id };
                self.send(ShardId(0), Class::Control, done);
            }
        }
    }

    fn carry_out_metadata(self: &Rc<Self>, effect: Effect<Ticket>) {
        match effect {
            Effect::Write(entry) => self.write(LaneId::METADATA, entry, Placing::Unplaced),
            Effect::Publish(metadata) => {
                for post in &self.posts[1..] {
                    post.publish(metadata.clone());
                }
                self.set_metadata(metadata);
            }
            Effect::Work { op, shard, work } => {
                self.send(ShardId(shard), Class::Control, Message::Lifecycle { op, work });
            }
            Effect::TopicChanged(stream, topic) => {
                for shard in self.shard_ids() {
                    self.send(shard, Class::Control, Message::TopicChanged(stream, topic));
                }
            }
            Effect::SessionsEnded(sessions) => self.sessions_ended(sessions),
            Effect::GrantsChanged(user) => {
                for shard in self.shard_ids() {
                    self.send(shard, Class::Control, Message::GrantsChanged(user));
                }
            }
            Effect::Answer(ticket, verdict) => self.answer_metadata(ticket, verdict),
        }
    }

    fn sessions_ended(self: &Rc<Self>, sessions: Vec<SessionId>) {
        for shard in self.shard_ids() {
            self.send(shard, Class::Control, Message::SessionsEnded(sessions.clone()));
        }
    }

    fn write(&self, lane: LaneId, entry: Entry, placing: Placing) {
        let Entry { header: Header { op, view, timestamp, durability, .. }, body } = entry;
        let class = match durability {
            Durability::Replicated => SyncClass::Replicated,
            Durability::Persisted => SyncClass::Persisted,
        };
        let EntryBody { prefix, batch, .. } = body;
        let record = Record { lane, op, view: view.0, timestamp, class, prefix, batch, placing };
        // A poisoned journal takes nothing: the op never commits, and whoever waits for it is told that it is unknown.
        if self.commit.borrow_mut().push(record).is_ok() {
            self.journal_bell.ring();
        }
    }

    /// Answers a client, wherever its connection is.
    pub fn deliver(self: &Rc<Self>, to: ReplyTo, frame: Option<OutFrame>) {
        if to.origin == self.settings.id {
            self.deliver_here(to, frame);
        } else {
            self.send(to.origin, Class::Reply, Message::Reply { to, frame });
        }
    }

    /// Ends the session binding of a client's connection, wherever it is.
    pub fn evict(self: &Rc<Self>, to: ReplyTo, reason: EvictionReason) {
        if to.origin == self.settings.id {
            self.evict_here(to, reason);
        } else {
            self.send(to.origin, Class::Reply, Message::Evict { to, reason });
        }
    }

    /// Sends what must arrive. A full queue is tried again until it takes the message.
    pub fn send(self: &Rc<Self>, to: ShardId, class: Class, message: Message) {
        if to == self.settings.id {
            // Through the own mailbox, too: the caller may be inside of a turn.
            if let Err(Refused(message)) = self.posts[usize::from(to.0)].send(class, message) {
                self.late.borrow_mut().push_back((to, class, message));
            }
            return;
        }
        if self.late.borrow().is_empty() {
            if let Err(Refused(message)) = self.posts[usize::from(to.0)].send(class, message) {
                self.late.borrow_mut().push_back((to, class, message));
            }
        } else {
            // Behind what waits already: answers of one connection keep their order.
            self.late.borrow_mut().push_back((to, class, message));
        }
    }

    /// Sends what may be refused: nothing happened then.
    pub fn try_send(&self, to: ShardId, message: Message) -> Result<(), QueueFull> {
        self.posts[usize::from(to.0)]
            .send(Class::Request, message)
            .map_err(|Refused(_)| QueueFull { shard: to })
    }

    fn send_late(&self) {
        let count = self.late.borrow().len();
        for _ in 0..count {
            let next = self.late.borrow_mut().pop_front();
            let Some((to, class, message)) = next else { return };
            if let Err(Refused(message)) = self.posts[usize::from(to.0)].send(class, message) {
                self.late.borrow_mut().push_back((to, class, message));
            }
        }
    }

    fn answer_question(self: &Rc<Self>, from: ShardId, call: crate::calls::CallId, question: Question) {
        let answer = match question {
            Question::Register(register) => {
                let ticket = Ticket::Call { from, call };
                if let Some(lane) = self.lane.borrow_mut().as_mut() {
                    lane.register(clock::wall(), register, ticket);
                }
                return;
            }
            Question::Usage(scope) => Answer::Usage(self.owner.borrow().usage(scope)),
            Question::Clients => Answer::Clients(self.client_rows()),
            Question::Watch { watch, waits, consumer, targets } => {
                Answer::Watched(self.owner.borrow_mut().handle_watch(from, watch, waits, &consumer, &targets))
            }
            Question::Read(read) => {
                if let Err(status) = self.check_access(&read.work.access) {
                    let answer = Answer::Read(Err(status));
                    return self.send(from, Class::Reply, Message::Answer { call, answer });
                }
                let (now, wall) = (clock::now(), clock::wall());
                return self.owner.borrow_mut().handle_fetch_read(now, wall, from, call, *read);
            }
        };
        self.send(from, Class::Reply, Message::Answer { call, answer });
    }

    fn client_rows(&self) -> Vec<ClientRow> {
        let connections = self.connections.borrow();
        connections
            .iter()
            .map(|connection| ClientRow {
                id: connection.number(),
                user: connection.binding().map(|binding| binding.user),
                address: connection.peer.to_string(),
            })
            .collect()
    }

    /// Whether a stranger knows a password. [`Checked::Later`] when too many wait as well.
    pub async fn check_password(&self, guess: Guess) -> Checked {
        let call = self.calls.open();
        let queued = self.settings.passwords.sign_in(guess, self.own_post(), call.id());
        checked(queued, call).await
    }

    /// Checks and hashes passwords for a signed-in user. [`Checked::Later`] when too many wait as well.
    pub async fn change_password(&self, work: passwords::Work) -> Checked {
        let call = self.calls.open();
        let queued = self.settings.passwords.change(work, self.own_post(), call.id());
        checked(queued, call).await
    }

    pub(crate) fn own_post(&self) -> Post {
        self.posts[usize::from(self.settings.id.0)].clone()
    }

    /// What the process uses, read at most once a second.
    pub fn process(&self) -> Rc<Process> {
        let now = clock::now();
        let mut cached = self.process.borrow_mut();
        match cached.as_ref() {
            Some((read, process)) if now < read.after_us(PROCESS_US_MAX) => process.clone(),
            before => {
                let before = before.map(|(_, process)| process.clone());
                let process = Rc::new(crate::process::read(self.directory.path(), before.as_deref()));
                *cached = Some((now, process.clone()));
                process
            }
        }
    }

    /// Asks another shard, or this one, and waits for the answer. None when the shard's queue is full.
    pub async fn ask(&self, to: ShardId, question: Question) -> Option<Answer> {
        let call = self.calls.open();
        let message = Message::Question { from: self.settings.id, call: call.id(), question };
        self.try_send(to, message).ok()?;
        Some(call.wait().await)
    }

    /// Refuses new work and what is parked. What is on its way still commits and is answered.
    pub fn stop(self: &Rc<Self>) {
        self.stopping.set(true);
        self.owner.borrow_mut().stop();
        self.pump();
    }

    /// Whether nothing is on its way through the lanes of this shard.
    pub fn is_idle(&self) -> bool {
        self.owner.borrow().is_idle()
            && self.lane.borrow().as_ref().is_none_or(MetadataLane::is_idle)
            && self.commit.borrow().is_idle()
            && self.late.borrow().is_empty()
            && self.inbox.is_empty()
    }
}

async fn checked(queued: Result<(), passwords::Busy>, call: Call<'_>) -> Checked {
    if queued.is_err() {
        return Checked::Later;
    }
    match call.wait().await {
        Answer::Password(checked) => checked,
        other => unreachable!("the threads for passwords do not answer {other:?}"),
    }
}

/// Lets the other tasks of the shard run.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return std::task::Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await
}
