//! One partition: its committed state, and beside it what is proposed.

use bytes::Bytes;
use laneway_reads::{MemoryTail, Nanos, PartitionView, StartError, StoredBatch};
use laneway_wire::batch::{BATCH_HEADER_BYTES, BatchHeader, ProducerSection};
use laneway_wire::{Micros, Offset, Op, PartitionKey, RequestNumber, Status, StreamId, TopicId};

use super::consumer::ConsumerKey;
use super::identity::{Admit, Identity, Receipt, ReceiptKind};
use super::invariants;
use super::lane::{ApplyError, LaneLimits};
use super::lane_op::{PartitionSettings, StoreMode};
use super::offsets::{AutoCommit, FenceToken, StoredOffsets};
use super::producers::Producers;
use super::receipts::Receipts;
use super::segments::{RetentionPlan, RetentionPolicy, Segment, Segments};
use super::staged::{Staged, StagedOp};

/// What the owner writes into a batch before it is proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStamp {
    /// Offset of its first message.
    pub base_offset: Offset,
    /// Its append time: never before that of the batch before it.
    pub timestamp: Micros,
}

/// Where the committed messages lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) head: Option<Offset>,
    pub(crate) retained_start: Offset,
    /// Offset after the last message in a segment.
    pub(crate) disk_end: Offset,
    /// Append time of the newest batch.
    pub(crate) timestamp_last: Micros,
    /// Every byte that was ever committed here.
    pub(crate) bytes_total: u64,
    /// Those of them that retention removed.
    pub(crate) bytes_removed: u64,
    /// Those of them that no segment holds yet.
    pub(crate) bytes_unflushed: u64,
    pub(crate) tail: MemoryTail,
    /// What is retained, cut into segments.
    pub(crate) spans: Segments,
    /// What storage wants to find again about its segments; opaque here.
    pub(crate) segments: Bytes,
}

impl Log {
    /// Offset after the last committed message.
    pub(crate) fn end(&self) -> Offset {
        self.head.map_or(Offset(0), |head| Offset(head.0 + 1))
    }
}

/// One partition of a lane, on the shard that owns the lane. Created by the op that opens it, ends with the op that
/// fences it.
#[derive(Clone, Debug)]
pub struct Partition {
    pub(crate) key: PartitionKey,
    pub(crate) stream: StreamId,
    pub(crate) topic: TopicId,
    pub(crate) settings: PartitionSettings,
    pub(crate) log: Log,
    pub(crate) offsets: StoredOffsets,
    pub(crate) receipts: Receipts,
    pub(crate) producers: Producers,
    staged: Staged,
    /// Append time of the newest proposed batch.
    timestamp_staged: Micros,
}

impl Partition {
    /// An empty partition.
    pub fn new(
        key: PartitionKey,
        stream: StreamId,
        topic: TopicId,
        settings: PartitionSettings,
        limits: &LaneLimits,
    ) -> Self {
        Self {
            key,
            stream,
            topic,
            settings,
            log: Log::default(),
            offsets: StoredOffsets::new(limits.consumer_offsets_max),
            receipts: Receipts::new(limits.sessions_max),
            producers: Producers::new(limits.producers_max),
            staged: Staged::default(),
            timestamp_staged: Micros(0),
        }
    }

    /// Its identity over time.
    pub fn key(&self) -> PartitionKey {
        self.key
    }

    /// Its stream.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Its topic.
    pub fn topic(&self) -> TopicId {
        self.topic
    }

    /// Its settings.
    pub fn settings(&self) -> &PartitionSettings {
        &self.settings
    }

    /// Highest committed offset.
    pub fn head(&self) -> Option<Offset> {
        self.log.head
    }

    /// First offset that retention has left.
    pub fn retained_start(&self) -> Offset {
        self.log.retained_start
    }

    /// Offset that the next proposed message gets.
    pub fn next_offset(&self) -> Offset {
        self.staged.end().max(self.log.end())
    }

    /// Append time of the newest committed batch.
    pub fn timestamp_last(&self) -> Micros {
        self.log.timestamp_last
    }

    /// Messages that are committed and retained.
    pub fn messages(&self) -> u64 {
        self.log.end().0 - self.log.retained_start.0
    }

    /// Bytes of the committed and retained batches, framing included.
    pub fn size_bytes(&self) -> u64 {
        self.log.bytes_total - self.log.bytes_removed
    }

    /// Every byte that was ever committed here; the running total that wakes readers by bytes.
    pub fn bytes_total(&self) -> u64 {
        self.log.bytes_total
    }

    /// The partition as a read sees it now.
    pub fn view(&self) -> PartitionView<'_> {
        PartitionView {
            head: self.log.head,
            retained_start: self.log.retained_start,
            disk_end: self.log.disk_end,
            timestamp_last: self.log.timestamp_last,
            bytes_total: self.log.bytes_total,
            tail: &self.log.tail,
        }
    }

    /// Stored offsets and read fences.
    pub fn offsets(&self) -> &StoredOffsets {
        &self.offsets
    }

    /// Receipts of the sessions that wrote here.
    pub fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    /// Idempotent producers.
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    // Admission: nothing changes, and every refusal means that nothing happened.

    /// What to do with a send of `message_count` messages at `now`.
    pub fn admit_append(
        &self,
        identity: Option<&Identity>,
        message_count: u32,
        producer: Option<&ProducerSection>,
        now: Micros,
    ) -> Admit {
        if message_count == 0 || self.next_offset().0.checked_add(u64::from(message_count)).is_none() {
            return Admit::Refuse(Status::InvalidMessagesCount);
        }
        let admit = self.admit_request(identity, ReceiptKind::Append, now);
        match (admit, producer) {
            (Admit::New, Some(producer)) => {
                let request = identity.map_or(RequestNumber(0), |identity| identity.request);
                self.producers.admit(producer, message_count, request, now)
            }
            (admit, _) => admit,
        }
    }

    /// What to do with a client's store of an offset: 4100 above the head, 3024 for a key too many.
    pub fn admit_store_offset(
        &self,
        identity: Option<&Identity>,
        consumer: &ConsumerKey,
        offset: Offset,
        now: Micros,
    ) -> Admit {
        let admit = self.admit_request(identity, ReceiptKind::StoreOffset, now);
        if admit != Admit::New {
            return admit;
        }
        match self.offsets.admit_store(consumer, offset, self.log.head) {
            Ok(()) => Admit::New,
            Err(status) => Admit::Refuse(status),
        }
    }

    /// What to do with a client's delete of an offset: 3021 when nothing is stored. `now_monotonic` stamps that
    /// refusal, too.
    pub fn admit_delete_offset(
        &mut self,
        identity: Option<&Identity>,
        consumer: &ConsumerKey,
        now: Micros,
        now_monotonic: Nanos,
    ) -> Admit {
        let admit = self.admit_request(identity, ReceiptKind::DeleteOffset, now);
        if admit != Admit::New {
            return admit;
        }
        match self.offsets.admit_delete(consumer, now_monotonic) {
            Ok(()) => Admit::New,
            Err(status) => Admit::Refuse(status),
        }
    }

    /// What to do with a client's delete of segments.
    pub fn admit_delete_segments(&self, identity: &Identity, now: Micros) -> Admit {
        self.admit_request(Some(identity), ReceiptKind::DeleteSegments, now)
    }

    fn admit_request(&self, identity: Option<&Identity>, kind: ReceiptKind, now: Micros) -> Admit {
        let Some(identity) = identity else { return Admit::New };
        match self.staged.in_flight(identity) {
            Some(op) => Admit::InFlight(op),
            None => self.receipts.admit(identity, kind, now, self.staged.requests()),
        }
    }

    // Staging: the op was admitted and is about to be proposed in the same turn.

    /// Gives an admitted batch its place and time. `timestamp` is the op's.
    pub fn stage_append(
        &mut self,
        op: Op,
        identity: Option<Identity>,
        message_count: u32,
        producer: Option<ProducerSection>,
        timestamp: Micros,
    ) -> BatchStamp {
        assert!(message_count > 0, "an empty batch was admitted");
        let base_offset = self.next_offset();
        let timestamp = timestamp.max(self.timestamp_staged).max(self.log.timestamp_last);
        let end = Offset(base_offset.0 + u64::from(message_count));
        let producer_id = producer.map(|producer| producer.producer_id);
        self.staged.push(op, identity, StagedOp::Append { end, producer_id });
        if let Some(producer) = producer {
            self.producers.stage(op, producer, message_count);
        }
        self.timestamp_staged = timestamp;
        BatchStamp { base_offset, timestamp }
    }

    /// A client's store of an offset is about to be proposed.
    pub fn stage_store_offset(&mut self, op: Op, identity: Option<Identity>, consumer: &ConsumerKey) {
        self.offsets.stage_store(consumer);
        self.staged.push(op, identity, StagedOp::Store { consumer: consumer.clone() });
    }

    /// A client's delete of an offset is about to be proposed.
    pub fn stage_delete_offset(&mut self, op: Op, identity: Option<Identity>, consumer: &ConsumerKey) {
        self.offsets.stage_delete(consumer);
        self.staged.push(op, identity, StagedOp::Delete { consumer: consumer.clone() });
    }

    /// A client's delete of segments is about to be proposed. What retention proposes needs no staging.
    pub fn stage_delete_segments(&mut self, op: Op, identity: Identity) {
        self.staged.push(op, Some(identity), StagedOp::AdvanceStart);
    }

    /// A read returned messages through `last` and commits them. Raises the offset in memory before the reply leaves;
    /// on [`AutoCommit::Submit`] a store with [`StoreMode::Auto`] has to be proposed as `op`. Needs no staging.
    pub fn auto_commit(
        &mut self,
        consumer: &ConsumerKey,
        last: Offset,
        op: Op,
    ) -> Result<AutoCommit, Status> {
        assert!(Some(last) <= self.log.head, "a read returned what is not committed");
        self.offsets.raise(consumer, last, op)
    }

    /// Forgets everything that was proposed and never committed: the lane has a new primary, or its journal failed.
    pub fn discard_staged(&mut self) {
        self.staged.clear();
        self.offsets.discard_staged();
        self.producers.discard_staged();
        self.timestamp_staged = self.log.timestamp_last;
    }

    // Reads.

    /// The stored offset as this consumer sees it: what its reads committed counts at once.
    pub fn stored_offset(&self, consumer: &ConsumerKey) -> Option<Offset> {
        self.offsets.stored(consumer)
    }

    /// Resolves the start of a `Next` read and remembers what it was resolved against. `at` is the admission here for
    /// a deferred poll, and the start of the whole request for a fetch.
    pub fn fence_token(&self, consumer: &ConsumerKey, at: Nanos) -> Result<FenceToken, StartError> {
        Ok(FenceToken { start: self.offsets.next_start(consumer)?, at })
    }

    /// Whether a `Next` read may still answer, and store if it commits. Otherwise: 58, nothing stored.
    pub fn fence_holds(&self, consumer: &ConsumerKey, token: FenceToken, committing: bool) -> bool {
        self.offsets.fence_holds(consumer, token, committing)
    }

    // Memory and segments.

    /// Bytes in memory that no segment holds yet.
    pub fn unflushed_bytes(&self) -> u64 {
        self.log.bytes_unflushed
    }

    /// Bytes of batches in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.log.tail.bytes()
    }

    /// Offset after the last message in a segment.
    pub fn disk_end(&self) -> Offset {
        self.log.disk_end
    }

    /// The batches that no segment holds yet, up to and with `up_to`, oldest first. Shared, not copied.
    pub fn tail_for_flush(&self, up_to: Offset) -> Vec<StoredBatch> {
        self.log
            .tail
            .from_offset(self.log.disk_end)
            .take_while(|batch| batch.last_offset() <= up_to)
            .cloned()
            .collect()
    }

    /// Segments hold every batch up to and with `up_to` now. The batches stay in memory until
    /// [`Self::release_memory`] takes them.
    pub fn flushed(&mut self, up_to: Offset) {
        assert!(Some(up_to) <= self.log.head, "more was flushed than is committed");
        let end = Offset(up_to.0 + 1);
        if end <= self.log.disk_end {
            return;
        }
        let flushed =
            self.log.tail.from_offset(self.log.disk_end).take_while(|batch| batch.base_offset < end);
        let (mut bytes, mut last_end) = (0, self.log.disk_end);
        for batch in flushed {
            bytes += batch.bytes.len() as u64;
            last_end = batch.end_offset();
        }
        assert!(last_end == end, "a flush ended inside a batch");
        self.log.bytes_unflushed -= bytes;
        self.log.disk_end = end;
        let removed = end.min(self.log.retained_start);
        self.log.tail.drop_while(|batch| batch.end_offset() <= removed);
        debug_assert!(invariants::partition(self));
    }

    /// Drops the oldest batches that segments hold, until `keep_bytes` of memory are left. Returns the bytes that were
    /// freed.
    pub fn release_memory(&mut self, keep_bytes: u64) -> u64 {
        let before = self.log.tail.bytes();
        let disk_end = self.log.disk_end;
        let mut left = before;
        self.log.tail.drop_while(|batch| {
            let drop = left > keep_bytes && batch.end_offset() <= disk_end;
            if drop {
                left -= batch.bytes.len() as u64;
            }
            drop
        });
        before - self.log.tail.bytes()
    }

    /// Its segments, oldest first.
    pub fn spans(&self) -> &Segments {
        &self.log.spans
    }

    /// Takes over segments that a checkpoint of version 1 did not write down itself. Refused when they are not what the
    /// log holds.
    pub fn adopt_spans(&mut self, spans: Segments) -> bool {
        let covered = spans.cover(self.log.retained_start, self.log.end(), self.size_bytes());
        if covered {
            self.log.spans = spans;
        }
        covered
    }

    /// Where a delete of the oldest `count` segments leads; `None` when none may go.
    pub fn plan_delete_segments(&self, count: u32) -> Option<Offset> {
        self.log.spans.plan_delete(count, self.offsets.barrier())
    }

    /// What a policy removes at `now`.
    pub fn plan_retention(&self, policy: RetentionPolicy, now: Micros) -> RetentionPlan {
        self.log.spans.plan_retention(policy, self.offsets.barrier(), now)
    }

    /// What storage wrote down about its segments at the last checkpoint; opaque here.
    pub fn segments(&self) -> &Bytes {
        &self.log.segments
    }

    /// Replaces what storage wants to find again.
    pub fn set_segments(&mut self, segments: Bytes) {
        self.log.segments = segments;
    }

    // Apply: called by the lane, in the order of its ops.

    pub(crate) fn apply_append(
        &mut self,
        op: Op,
        identity: Option<Identity>,
        base_offset: Offset,
        producer: Option<ProducerSection>,
        bytes: Bytes,
    ) -> Result<(Receipt, bool), ApplyError> {
        let (batch, bytes_stored) = match stored_head(&bytes) {
            Some((head, stored)) => (head, Some(stored)),
            None => (StoredBatch::parse(bytes).ok_or(ApplyError::Batch { op, key: self.key })?, None),
        };
        let end = self.log.end();
        // A batch that came back from a segment already is not appended again, but what it did beside is done.
        let held = batch.end_offset() <= end;
        if batch.base_offset != base_offset || (!held && base_offset != end) {
            return Err(ApplyError::Gap { op, key: self.key, expected: end, found: batch.base_offset });
        }
        if !held && batch.base_timestamp < self.log.timestamp_last {
            return Err(ApplyError::TimeWentBack { op, key: self.key });
        }
        let receipt = Receipt {
            kind: ReceiptKind::Append,
            request: identity.map_or(RequestNumber(0), |identity| identity.request),
            op,
            base_offset,
            message_count: batch.message_count,
            timestamp: batch.base_timestamp,
            status: Status::Ok,
        };
        self.unstage(op);
        if let Some(producer) = producer {
            let Receipt { message_count, timestamp, .. } = receipt;
            self.producers.record(op, &producer, message_count, base_offset, timestamp);
        }
        let sealed = match bytes_stored {
            _ if held => false,
            Some(bytes) => self.append_stored(&batch, bytes),
            None => self.append(batch),
        };
        debug_assert!(invariants::partition(self));
        Ok((receipt, sealed))
    }

    /// A batch that is in its segment and not in memory. Everything before it is in segments, too: only recovery
    /// appends like this, and it has brought no batch into memory without need.
    fn append_stored(&mut self, batch: &StoredBatch, bytes: u64) -> bool {
        assert!(self.log.disk_end == self.log.end(), "a batch in memory would be followed by a hole");
        self.log.tail.drop_while(|_| true);
        let sealed = self.extend(batch, bytes);
        self.log.disk_end = batch.end_offset();
        sealed
    }

    /// Adds a batch, and says whether it sealed its segment.
    fn append(&mut self, batch: StoredBatch) -> bool {
        let bytes = batch.bytes.len() as u64;
        let sealed = self.extend(&batch, bytes);
        self.log.bytes_unflushed += bytes;
        self.log.tail.push(batch);
        sealed
    }

    /// Moves the head over a batch, wherever its bytes are.
    fn extend(&mut self, batch: &StoredBatch, bytes: u64) -> bool {
        let span = Segment {
            base: batch.base_offset,
            end: batch.end_offset(),
            bytes,
            timestamp_last: batch.base_timestamp,
            sealed: false,
        };
        self.log.head = Some(batch.last_offset());
        self.log.timestamp_last = batch.base_timestamp;
        self.log.bytes_total += bytes;
        self.log.spans.append(span, self.settings.segment_bytes)
    }

    pub(crate) fn apply_store_offset(
        &mut self,
        op: Op,
        identity: Option<Identity>,
        consumer: &ConsumerKey,
        offset: Offset,
        mode: StoreMode,
        clock: Clock,
    ) -> Receipt {
        self.offsets.apply_store(op, consumer, offset, mode, clock.monotonic);
        self.unstage(op);
        debug_assert!(invariants::partition(self));
        Receipt {
            kind: ReceiptKind::StoreOffset,
            request: identity.map_or(RequestNumber(0), |identity| identity.request),
            op,
            base_offset: offset,
            message_count: 0,
            timestamp: clock.timestamp,
            status: Status::Ok,
        }
    }

    pub(crate) fn apply_delete_offset(
        &mut self,
        op: Op,
        identity: Option<Identity>,
        consumer: &ConsumerKey,
        clock: Clock,
    ) -> Receipt {
        let status = self.offsets.apply_delete(op, consumer, clock.monotonic);
        self.unstage(op);
        debug_assert!(invariants::partition(self));
        Receipt {
            kind: ReceiptKind::DeleteOffset,
            request: identity.map_or(RequestNumber(0), |identity| identity.request),
            op,
            base_offset: Offset(0),
            message_count: 0,
            timestamp: clock.timestamp,
            status,
        }
    }

    /// Removes the sealed segments that end at or below `start`, also those that are still in memory only: how far each
    /// replica has written its files is its own affair.
    pub(super) fn apply_advance_start(
        &mut self,
        op: Op,
        identity: Option<Identity>,
        start: Offset,
        clock: Clock,
    ) -> Receipt {
        if let Some((start, bytes)) = self.log.spans.advance(start) {
            self.retain_from(start, bytes);
        }
        self.unstage(op);
        debug_assert!(invariants::partition(self));
        Receipt {
            kind: ReceiptKind::DeleteSegments,
            request: identity.map_or(RequestNumber(0), |identity| identity.request),
            op,
            base_offset: self.log.retained_start,
            message_count: 0,
            timestamp: clock.timestamp,
            status: Status::Ok,
        }
    }

    fn retain_from(&mut self, start: Offset, bytes: u64) {
        assert!(start > self.log.retained_start, "retention went back");
        assert!(start <= self.log.end(), "retention passed the head");
        self.log.retained_start = start;
        self.log.bytes_removed += bytes;
        assert!(self.log.bytes_removed <= self.log.bytes_total, "retention removed more than was written");
        // What no segment holds yet stays until one does: a log has no gaps on its way there.
        let stored = self.log.disk_end.min(start);
        self.log.tail.drop_while(|batch| batch.end_offset() <= stored);
    }

    fn unstage(&mut self, op: Op) {
        match self.staged.take(op) {
            Some(StagedOp::Append { producer_id: Some(producer_id), .. }) => {
                self.producers.unstage(op, producer_id);
            }
            Some(StagedOp::Store { consumer }) => self.offsets.unstage_store(&consumer),
            Some(StagedOp::Delete { consumer }) => self.offsets.unstage_delete(&consumer),
            Some(StagedOp::Append { producer_id: None, .. } | StagedOp::AdvanceStart) | None => {}
        }
    }
}

/// A batch of which only the header is given, because the rest is in its segment; and the bytes of all of it.
fn stored_head(bytes: &Bytes) -> Option<(StoredBatch, u64)> {
    let block: &[u8; BATCH_HEADER_BYTES] = bytes.as_ref().try_into().ok()?;
    let header = BatchHeader::parse(block).ok()?;
    let is_part = header.batch_length > BATCH_HEADER_BYTES as u64 && header.message_count > 0;
    let ends = header.base_offset.0.checked_add(u64::from(header.message_count)).is_some();
    let head = StoredBatch {
        base_offset: header.base_offset,
        message_count: header.message_count,
        base_timestamp: header.base_timestamp,
        bytes: Bytes::new(),
    };
    (is_part && ends && header.producer.is_none()).then_some((head, header.batch_length))
}

/// The times of an op that is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The op's own, the same on every replica.
    pub(crate) timestamp: Micros,
    /// This process's; 0 while it recovers.
    pub(crate) monotonic: Nanos,
}
