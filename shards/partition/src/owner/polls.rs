//! Polls: evaluated at once, parked until a commit can complete them, or sent to disk.

use laneway_reads::{
    Admission, ConnectionId, Expired, Nanos, PartitionView, PollPlan, PollRequest, ReadLimits, Requester,
    SelectError, Selection, Selector, Start, Strategy, WaiterId, wake_at,
};
use laneway_storage::{PartitionLog, ReadPlan, SegmentFile, SegmentIndex};
use laneway_vsr::{Durability, EntryBody};
use laneway_wire::reply::{PollHead, Record};
use laneway_wire::{
    Incarnation, LaneId, Micros, Offset, Op, OwnerGeneration, PartitionContext, PartitionKey, Status, UserId,
};

use super::{Owner, Todo, current_offset};
use crate::calls::CallId;
use crate::core::{AutoCommit, ConsumerKey, FenceToken, lane};
use crate::message::{Access, FetchRead, Oversized, PollTo, PollWork, ReadPart, ShardId};
use crate::stream_keys::{self, StreamCipher};

/// Deadlines that one turn looks at, so that clients and commits get their turn in between.
const EXPIRED_PER_TURN_MAX: usize = 64;

/// Bytes that the entry of an offset takes at most.
const OFFSET_ENTRY_BYTES_MAX: usize = 512;

/// Waiters that one commit wakes in one go. The rest follow in the same turn.
const WOKEN_MAX: usize = 64;

/// A poll on its way through the owner.
#[derive(Debug)]
pub struct PollJob {
    lane: LaneId,
    key: PartitionKey,
    metadata_op: Op,
    pub(super) to: PollTo,
    oversized: Oversized,
    /// Whether a read of segments for it waits or runs.
    reading: bool,
    /// Whether segments were read for it.
    from_disk: bool,
    access: Access,
    requester: Requester,
    consumer: ConsumerKey,
    /// `Next` becomes the offset that it resolved to at admission.
    strategy: Strategy,
    fence: Option<FenceToken>,
    limits: ReadLimits,
    min_count: u32,
    commit: bool,
    deadlines: laneway_reads::Deadlines,
    byte_limit: Option<u32>,
    /// What opens the messages of an encrypted stream.
    cipher: StreamCipher,
}

/// What became of a read of segments.
#[derive(Debug)]
pub enum DiskRead {
    /// Read this plan next.
    Read(ReadPlan),
    /// Nothing more on disk is wanted.
    Done,
    /// Retention removed what comes next while the read was on its way.
    Trimmed,
    /// The poll is gone.
    Gone,
}

impl PollJob {
    pub(super) fn new(lane: LaneId, key: PartitionKey, metadata_op: Op, to: PollTo, work: PollWork) -> Self {
        let PollWork {
            access,
            consumer,
            requester,
            strategy,
            count,
            min_count,
            max_bytes,
            commit,
            deadlines,
            cipher,
        } = work;
        Self {
            lane,
            key,
            metadata_op,
            to,
            oversized: Oversized::Allowed,
            reading: false,
            from_disk: false,
            access,
            requester,
            consumer,
            strategy,
            fence: None,
            // The server's cap is applied when the job meets its owner.
            limits: ReadLimits { messages: count, record_bytes: 0 },
            min_count,
            commit,
            deadlines,
            byte_limit: max_bytes,
            cipher,
        }
    }
}

impl PollJob {
    /// What the poll wants of its partition as it is now.
    fn request(&self, view: &PartitionView<'_>) -> PollRequest {
        let start = self
            .strategy
            .resolve(self.limits.messages, view.head, None)
            .expect("only `Next` can fail, and it was resolved at admission");
        PollRequest { start, limits: self.limits }
    }
}

impl Owner {
    pub(super) fn poll(&mut self, now: Nanos, wall: Micros, mut job: PollJob) {
        job.limits = ReadLimits::poll(job.limits.messages, job.byte_limit, self.read_bytes_max);
        let Some(partition) = self.partition(&job) else {
            let status = self.missing(job.lane, job.key);
            return self.refuse_poll(job.to, status);
        };
        if job.strategy == Strategy::Next {
            // A fetch resolved its start before it waited.
            let token = job.fence.map_or_else(|| partition.fence_token(&job.consumer, now), Ok);
            match token {
                Ok(token) => {
                    job.strategy = Strategy::Offset(token.start);
                    job.fence = Some(token);
                }
                Err(error) => return self.refuse_poll(job.to, error.status()),
            }
        }
        let (plan, request) = self.plan(&job);
        match plan {
            PollPlan::Ready(selection) if selection.satisfies(job.min_count) || now >= job.deadlines.wait => {
                self.finish(now, wall, job, Ok(selection));
            }
            plan => self.admit(job, plan, request),
        }
    }

    /// Takes a quota unit for a poll that cannot be answered in this turn.
    fn admit(&mut self, job: PollJob, plan: PollPlan, request: PollRequest) {
        let to = job.to;
        let admission = Admission {
            partition: job.key,
            requester: job.requester,
            user: job.access.user,
            deadlines: job.deadlines,
            request: job,
        };
        match self.waiters.admit(admission) {
            Ok(id) => match plan {
                PollPlan::Ready(selection) => self.park(id, &request, &selection),
                PollPlan::Disk(_) => self.read_segments(id),
            },
            Err((_, refused)) => self.refuse_poll(to, refused.status()),
        }
    }

    fn plan(&self, job: &PollJob) -> (PollPlan, PollRequest) {
        let partition = self.partition(job).expect("the caller found the partition in this turn");
        let view = partition.view();
        let request = job.request(&view);
        (PollPlan::build(&view, &request), request)
    }

    fn park(&mut self, id: WaiterId, request: &PollRequest, selection: &Selection) {
        let waiter = self.waiters.get(id).expect("the caller holds a pending poll");
        let job = &waiter.request;
        let partition = self.partition(job).expect("the waiters of a fenced partition are removed with it");
        let wake = wake_at(&partition.view(), job.strategy, request, job.min_count, selection);
        self.waiters.park(id, wake);
    }

    /// The head of a partition advanced.
    pub(super) fn wake(&mut self, now: Nanos, wall: Micros, lane: LaneId, key: PartitionKey) {
        self.push_head(lane, key);
        loop {
            let partition = self.lanes.get(&lane).and_then(|owned| owned.state.get(key));
            let Some(partition) = partition else { return };
            let Some(head) = partition.head() else { return };
            let bytes_total = partition.bytes_total();
            let woken = self.waiters.take_satisfied(key, head, bytes_total, WOKEN_MAX);
            for id in &woken {
                self.evaluate(now, wall, *id);
            }
            if woken.len() < WOKEN_MAX {
                return;
            }
        }
    }

    /// Evaluates a pending poll against the partition as it is now.
    fn evaluate(&mut self, now: Nanos, wall: Micros, id: WaiterId) {
        let Some(waiter) = self.waiters.get(id) else { return };
        let (plan, request) = self.plan(&waiter.request);
        match plan {
            PollPlan::Ready(selection) => self.settle_poll(now, wall, id, &request, selection),
            PollPlan::Disk(_) => self.read_segments(id),
        }
    }

    /// Asks for a read of segments, unless one is on its way: that one answers when it arrives, also after the wait.
    fn read_segments(&mut self, id: WaiterId) {
        if let Some(job) = self.waiters.get_mut(id)
            && !std::mem::replace(&mut job.reading, true)
        {
            job.from_disk = true;
            self.todo.push_back(Todo::Read(id));
        }
    }

    fn settle_poll(
        &mut self,
        now: Nanos,
        wall: Micros,
        id: WaiterId,
        request: &PollRequest,
        selection: Selection,
    ) {
        let Some(waiter) = self.waiters.get(id) else { return };
        let job = &waiter.request;
        // It was allowed when it came; that may be over, and nothing is shown or stored then.
        if let Err(status) = job.access.check(&self.metadata) {
            return self.refuse_read(id, status);
        }
        if selection.satisfies(job.min_count) || now >= job.deadlines.wait {
            let waiter = self.waiters.finish(id).expect("it was just there");
            self.finish(now, wall, waiter.request, Ok(selection));
        } else if self.partition(job).is_some_and(|partition| selection.is_stale(&partition.view())) {
            // A commit came while segments were read: it woke nobody, for nothing was parked yet.
            self.evaluate(now, wall, id);
        } else {
            self.park(id, request, &selection);
        }
    }

    /// The earliest moment at which [`Owner::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let retention = self.retention.poll_timeout().filter(|_| !self.stopping);
        self.waiters.poll_timeout().into_iter().chain(retention).min()
    }

    /// Ends the waits and requests whose time is over, and removes what retention no longer keeps.
    pub fn handle_timeout(&mut self, now: Nanos, wall: Micros, metadata: &laneway_metadata::Metadata) {
        self.clean(now, wall, metadata);
        for expired in self.waiters.take_expired(now, EXPIRED_PER_TURN_MAX) {
            match expired {
                Expired::Wait(id) => self.evaluate(now, wall, id),
                Expired::Request(id) => {
                    if let Some(waiter) = self.waiters.finish(id) {
                        self.refuse_poll(waiter.request.to, Status::TransientNotCommitted);
                    }
                }
            }
        }
    }

    /// A client takes a deferred read back. A committing one is owed exactly one answer.
    pub fn handle_cancel(&mut self, requester: Requester) {
        if let Some(waiter) = self.waiters.cancel(requester) {
            let job = waiter.request;
            match job.to {
                PollTo::Client(reply_to) => {
                    let frame = job.commit.then(|| reply_to.echo.refusal(Status::TransientNotAccepted));
                    self.todo.push_back(Todo::Answer(reply_to, frame));
                }
                to @ PollTo::Fetch { .. } => self.refuse_poll(to, Status::TransientNotAccepted),
            }
        }
    }

    /// A connection ended: nothing is owed to it. A grouped fetch learns that its read is over.
    pub fn handle_connection_lost(&mut self, connection: ConnectionId) {
        for waiter in self.waiters.remove_connection(connection) {
            if let to @ PollTo::Fetch { .. } = waiter.request.to {
                self.refuse_poll(to, Status::TransientNotAccepted);
            }
        }
    }

    /// Starts a poll's read of segments: the selector that takes the bytes, if the poll is still there.
    pub fn begin_read(&mut self, id: WaiterId) -> Option<Selector> {
        let waiter = self.waiters.get(id)?;
        match self.plan(&waiter.request).0 {
            PollPlan::Disk(read) => Some(read.selector),
            // It came into memory meanwhile; the selector takes it from there.
            PollPlan::Ready(_) => {
                let job = &waiter.request;
                let view = self.partition(job)?.view();
                let head = view.head?;
                let start = match job.request(&view).start {
                    Start::Offset(offset) => Start::Offset(offset.max(view.retained_start)),
                    timestamp => timestamp,
                };
                Some(Selector::new(start, head, job.limits))
            }
        }
    }

    /// What a poll has to read next.
    pub fn plan_read(&self, id: WaiterId, selector: &Selector, chunk_bytes: u64) -> DiskRead {
        let Some(waiter) = self.waiters.get(id) else { return DiskRead::Gone };
        let job = &waiter.request;
        let Some(log) = self.log(job.lane, job.key) else { return DiskRead::Gone };
        let retained_start = self.partition(job).map_or(Offset(0), |partition| partition.retained_start());
        let plan = match selector.wants() {
            Some(Start::Offset(offset)) if offset < retained_start => return DiskRead::Trimmed,
            None => None,
            Some(Start::Offset(offset)) => log.plan_read(offset, chunk_bytes),
            Some(Start::Timestamp(timestamp)) => log.plan_read_timestamp(timestamp, chunk_bytes),
        };
        plan.map_or(DiskRead::Done, DiskRead::Read)
    }

    /// Where a read by time starts when the first batch of that time lies below what is retained: batches are in the order
    /// of their time, so it is the first retained one. A segment's file may begin below.
    pub fn begin_read_above(&self, id: WaiterId, first: Offset) -> Option<Selector> {
        let job = &self.waiters.get(id)?.request;
        let view = self.partition(job)?.view();
        let head = view.head.filter(|_| first < view.retained_start)?;
        Some(Selector::new(Start::Offset(view.retained_start), head, job.limits))
    }

    /// Whether a segment was removed since it was planned to be read.
    pub fn is_trimmed(&self, id: WaiterId, file: SegmentFile) -> bool {
        let Some(waiter) = self.waiters.get(id) else { return false };
        let job = &waiter.request;
        self.partition(job).is_some_and(|partition| file.base < partition.retained_start())
    }

    /// Keeps an index that a read built on its way.
    pub fn install_index(&mut self, id: WaiterId, file: SegmentFile, index: SegmentIndex) {
        let Some(waiter) = self.waiters.get(id) else { return };
        let (lane, key) = (waiter.request.lane, waiter.request.key);
        if let Some(log) = self.lanes.get_mut(&lane).and_then(|owned| owned.logs.get_mut(&key)) {
            log.install_index(file, index);
        }
    }

    /// The segments gave what they had: the rest comes from memory, and the poll is answered or parked.
    pub fn finish_read(&mut self, now: Nanos, wall: Micros, id: WaiterId, mut selector: Selector) {
        let Some(job) = self.waiters.get_mut(id) else { return };
        job.reading = false;
        let job = &self.waiters.get(id).expect("it was just there").request;
        let Some(partition) = self.partition(job) else { return };
        let view = partition.view();
        selector.push_tail(view.tail, view.retained_start);
        let request = job.request(&view);
        match selector.finish() {
            Ok(selection) => {
                self.settle_poll(now, wall, id, &request, selection);
            }
            Err(error) => self.fail_read(now, wall, id, error),
        }
    }

    /// The segments are damaged behind what the read has: that is served, and nothing behind the damage.
    pub fn finish_partial_read(&mut self, now: Nanos, wall: Micros, id: WaiterId, selector: Selector) {
        let Some(job) = self.waiters.get_mut(id) else { return };
        job.reading = false;
        let job = &self.waiters.get(id).expect("it was just there").request;
        let Some(partition) = self.partition(job) else { return };
        let request = job.request(&partition.view());
        match selector.finish() {
            Ok(mut selection) => {
                selection.truncated = true;
                self.settle_poll(now, wall, id, &request, selection);
            }
            Err(error) => self.fail_read(now, wall, id, error),
        }
    }

    /// A user may do something else from now on: its reads that it may not make any more end.
    pub fn handle_grants_changed(&mut self, user: UserId) {
        let metadata = self.metadata.clone();
        let lost = self.waiters.remove_matching(|waiter| {
            let access = waiter.request.access;
            access.user == user && access.check(&metadata).is_err()
        });
        for waiter in lost {
            let status = waiter.request.access.check(&metadata).err().unwrap_or(Status::Unauthorized);
            self.refuse_poll(waiter.request.to, status);
        }
    }

    /// The read could not be made now; nothing was stored.
    pub fn refuse_read(&mut self, id: WaiterId, status: Status) {
        if let Some(waiter) = self.waiters.finish(id) {
            self.refuse_poll(waiter.request.to, status);
        }
    }

    /// The read met damage before it had anything.
    pub fn fail_read(&mut self, now: Nanos, wall: Micros, id: WaiterId, error: SelectError) {
        if let Some(waiter) = self.waiters.finish(id) {
            self.finish(now, wall, waiter.request, Err(error));
        }
    }

    fn partition(&self, job: &PollJob) -> Option<&crate::core::Partition> {
        self.lanes.get(&job.lane)?.state.get(job.key)
    }

    fn log(&self, lane: LaneId, key: PartitionKey) -> Option<&PartitionLog> {
        self.lanes.get(&lane)?.logs.get(&key)
    }

    /// Checks, stores and answers in one turn.
    fn finish(&mut self, now: Nanos, wall: Micros, job: PollJob, result: Result<Selection, SelectError>) {
        if now >= job.deadlines.request {
            // The client has given up: storing its progress now would skip what it never saw.
            return self.refuse_poll(job.to, Status::TransientNotCommitted);
        }
        let selection = match result {
            Ok(selection) => selection,
            Err(error) => return self.refuse_poll(job.to, error.status()),
        };
        let owned = self.lanes.get_mut(&job.lane).expect("a poll is finished in a turn that found its lane");
        let Some(partition) = owned.state.get_mut(job.key) else {
            return self.refuse_poll(job.to, Status::HistoryUnavailable);
        };
        let oversized = selection.bytes > job.limits.record_bytes;
        if oversized && job.oversized == Oversized::Refused {
            return self.refuse_poll(job.to, Status::DeferredPollCapacityExceeded);
        }
        if let Some(token) = job.fence
            && !partition.fence_holds(&job.consumer, token, job.commit)
        {
            return self.refuse_poll(job.to, Status::TransientNotAccepted);
        }
        let selection = match open(&job, selection) {
            Ok(selection) => selection,
            // Before anything is stored: the consumer stays in front of what it cannot be shown.
            Err(status) => return self.refuse_poll(job.to, status),
        };
        let owned = self.lanes.get_mut(&job.lane).expect("it was found in this turn");
        let partition = owned.state.get_mut(job.key).expect("it was found in this turn");
        if job.commit && self.disk.refuses_changes().is_some() {
            // Nothing is stored, so nothing is returned either.
            return self.refuse_poll(job.to, Status::TransientNotAccepted);
        }
        if job.commit
            && let Some(last) = selection.last
        {
            let (op, _) = owned.replica.next(wall);
            let offset_durability = partition.settings().offset_durability;
            match partition.auto_commit(&job.consumer, last, op) {
                Ok(AutoCommit::Covered) => {}
                Ok(AutoCommit::Submit) => {
                    let lane_op = lane::auto_commit_op(job.key, job.consumer.clone(), last);
                    self.submit_auto_commit(wall, job.lane, offset_durability, lane_op);
                }
                Err(status) => return self.refuse_poll(job.to, status),
            }
        }
        self.answer_poll(&job, selection);
    }

    fn answer_fetch(&mut self, job: &PollJob, origin: ShardId, call: CallId, selection: Selection) {
        let retained_start = self.partition(job).map_or(Offset(0), |partition| partition.retained_start());
        let start = match job.strategy {
            Strategy::Offset(start) => start,
            _ => Offset(0),
        };
        let next_offset = selection.next_offset(start, retained_start);
        let Selection { parts, messages, bytes, head, .. } = selection;
        let part = ReadPart { records: parts, messages, bytes, head, next_offset };
        self.todo.push_back(Todo::AnswerFetch(origin, call, Ok(part)));
    }

    /// Refuses a poll, whoever asked for it.
    pub(super) fn refuse_poll(&mut self, to: PollTo, status: Status) {
        match to {
            PollTo::Client(reply_to) => self.refuse(reply_to, status),
            PollTo::Fetch { origin, call } => {
                self.todo.push_back(Todo::AnswerFetch(origin, call, Err(status)));
            }
        }
    }

    /// A read of a grouped fetch.
    pub fn handle_fetch_read(
        &mut self,
        now: Nanos,
        wall: Micros,
        from: ShardId,
        call: CallId,
        read: FetchRead,
    ) {
        let to = PollTo::Fetch { origin: from, call };
        if self.stopping {
            return self.refuse_poll(to, Status::TransientNotAccepted);
        }
        let mut job = PollJob::new(read.lane, read.key, read.metadata_op, to, read.work);
        job.oversized = read.oversized;
        job.fence = read.fence;
        self.poll(now, wall, job);
    }

    /// Nobody waits for the offset of a read; one that finds its lane full heals with the next.
    fn submit_auto_commit(
        &mut self,
        wall: Micros,
        lane: LaneId,
        durability: Durability,
        lane_op: crate::core::LaneOp,
    ) {
        let owned = self.lanes.get(&lane).expect("the caller found the lane in this turn");
        if owned.replica.admit(OFFSET_ENTRY_BYTES_MAX).is_ok() {
            self.propose(wall, lane, durability, EntryBody::operation(lane_op.encode()));
        }
    }

    fn answer_poll(&mut self, job: &PollJob, selection: Selection) {
        if !selection.is_empty()
            && let Some(owned) = self.lanes.get_mut(&job.lane)
        {
            owned.reads.entry(job.key).or_default().count(job.from_disk);
        }
        let reply_to = match job.to {
            PollTo::Client(reply_to) => reply_to,
            PollTo::Fetch { origin, call } => return self.answer_fetch(job, origin, call, selection),
        };
        let metadata_op = self.metadata.applied().max(job.metadata_op);
        let head = PollHead {
            partition: job.key.partition,
            current_offset: current_offset(selection.head),
            messages_count: selection.messages,
            context: PartitionContext {
                incarnation: Incarnation(job.key.incarnation.0),
                owner_generation: OwnerGeneration(0),
                metadata_op,
            },
        };
        let frame =
            reply_to.echo.records(metadata_op, job.key.incarnation, |out| head.put(out), selection.parts);
        self.todo.push_back(Todo::Answer(reply_to, Some(frame)));
    }
}

/// The messages of a selection as a client may see them. Only those of an encrypted stream cost anything.
fn open(job: &PollJob, selection: Selection) -> Result<Selection, Status> {
    let Some(cipher) = &job.cipher else { return Ok(selection) };
    match stream_keys::open(cipher, &selection.parts) {
        Ok(opened) if opened.is_empty() => Ok(selection),
        Ok(opened) => Ok(Selection { bytes: opened.len() as u64, parts: vec![opened], ..selection }),
        Err(error) => {
            tracing::error!(partition = %job.key, %error, "stored messages cannot be opened");
            Err(Status::CannotDecryptData)
        }
    }
}
