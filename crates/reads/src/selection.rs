//! Which bytes a read takes: contiguous messages, whole batches as they are, the first and the last cut where needed.
//!
//! A whole batch goes out as one part, byte for byte as it is stored. A cut one goes out as two: a fresh header and a
//! slice of the stored frames. Nothing is copied but those 256 bytes.
//!
//! Source: reads specification, sections 2.1 and 2.3 to 2.5.

use bytes::Bytes;
use laneway_wire::batch::{BATCH_HEADER_BYTES, Slice, slice, verify_stored};
use laneway_wire::{Micros, Offset, Status};

use crate::plan::PartitionView;
use crate::record::{self, Head};
use crate::start::Start;
use crate::tail::{MemoryTail, StoredBatch};

/// Most bytes of records in one reply unless configured otherwise. Source: reads specification, section 10.
pub const READ_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Bytes of a poll reply before its records. A client's byte limit counts them. Source: reads specification, section
/// 10.
pub const POLL_HEAD_BYTES: u32 = 40;
/// A disk selection below this part of the buffers it would keep alive is copied out instead.
const SPARSE_PART: u64 = 4;
/// Buffers below this size are not worth a copy.
const SPARSE_BYTES_MIN: u64 = 64 * 1024;

/// What a read may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Most messages.
    pub messages: u32,
    /// Most bytes of records: each batch counts its header and the frames that are taken. One larger first message
    /// comes alone in spite of it.
    pub record_bytes: u64,
}

impl ReadLimits {
    /// Limits of a poll. `max_bytes` is the client's limit of head plus records, `None` for an immediate poll, which
    /// has none; `read_bytes_max` is the server's cap of one reply.
    pub fn poll(count: u32, max_bytes: Option<u32>, read_bytes_max: u32) -> Self {
        let bytes = max_bytes.map_or(read_bytes_max, |max_bytes| max_bytes.min(read_bytes_max));
        Self { messages: count, record_bytes: u64::from(bytes.saturating_sub(POLL_HEAD_BYTES)) }
    }
}

/// What a read returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The records in order, ready for one vectored write.
    pub parts: Vec<Bytes>,
    /// Messages in them.
    pub messages: u32,
    /// Bytes in them.
    pub bytes: u64,
    /// Offset of the first message.
    pub first: Option<Offset>,
    /// Offset of the last message.
    pub last: Option<Offset>,
    /// The head at the time of planning, which caps the whole read.
    pub head: Option<Offset>,
    /// No further message would have fitted: the read ends its wait, also below the messages it waits for.
    pub byte_limited: bool,
    /// The read could not look at everything below the head: it ends its wait, too.
    pub truncated: bool,
}

impl Selection {
    /// Nothing, as of `head`.
    pub fn empty(head: Option<Offset>) -> Self {
        Self { head, ..Self::default() }
    }

    /// Whether it ends a wait for `min_count` messages.
    pub fn satisfies(&self, min_count: u32) -> bool {
        self.messages >= min_count || self.byte_limited || self.truncated
    }

    /// Whether messages were committed since it was planned. Parking on it could sleep through them.
    pub fn is_stale(&self, view: &PartitionView<'_>) -> bool {
        self.head != view.head
    }

    /// Whether it holds no message.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Where the reader goes on: behind the last message, or, when there is none, at `start` moved up to the first
    /// retained offset.
    pub fn next_offset(&self, start: Offset, retained_start: Offset) -> Offset {
        match self.last {
            Some(last) => Offset(last.0.saturating_add(1)),
            None => start.max(retained_start),
        }
    }
}

/// Why a read has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The first batch of the read is unreadable or fails its checks. Never an empty reply: the reader would take it
    /// for "nothing there yet".
    #[error("the batch at offset {offset} cannot be read or fails its checks")]
    Unreadable {
        /// The first offset that could not be served.
        offset: Offset,
    },
}

impl SelectError {
    /// The status that answers it.
    pub fn status(self) -> Status {
        match self {
            SelectError::Unreadable { .. } => Status::CannotReadMessage,
        }
    }
}

/// What a chunk of stored batches left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEnd {
    /// The selection is complete; [`Selector::finish`] has it.
    Done,
    /// More is wanted. The next chunk starts `advance` bytes after the start of this one (which may lie behind its
    /// end) and holds at least `need` bytes; with nothing left on disk the read goes on in memory.
    More {
        /// From the start of this chunk to the start of the next, bytes.
        advance: u64,
        /// Bytes that the next chunk needs at least to make progress.
        need: u64,
    },
}

/// Builds one selection from batches in order. Lives for one read; the head it was made with caps everything it takes.
#[derive(Clone, Debug)]
pub struct Selector {
    start: Start,
    head: Offset,
    limits: ReadLimits,
    /// The next message to take; unknown until a timestamp has met its batch.
    next: Option<Offset>,
    /// Where the next batch of a disk scan must begin; unknown before the first.
    scan_next: Option<Offset>,
    selection: Selection,
    done: bool,
    failed: bool,
    pinned: u64,
}

impl Selector {
    /// A selector for a start that is already moved up to the retained range. `head` is the committed head of this
    /// moment.
    pub fn new(start: Start, head: Offset, limits: ReadLimits) -> Self {
        let next = match start {
            Start::Offset(offset) => Some(offset),
            Start::Timestamp(_) => None,
        };
        let done = limits.messages == 0 || next.is_some_and(|next| next > head);
        Self {
            start,
            head,
            limits,
            next,
            scan_next: None,
            selection: Selection::empty(Some(head)),
            done,
            failed: false,
            pinned: 0,
        }
    }

    /// Where the next batch is to be looked for; `None` when the selection is complete.
    pub fn wants(&self) -> Option<Start> {
        (!self.done).then(|| self.next.map_or(self.start, Start::Offset))
    }

    /// What was taken so far.
    pub fn selected(&self) -> &Selection {
        &self.selection
    }

    /// Bytes of records that may still be taken: what a read of a segment need not exceed.
    pub fn bytes_left(&self) -> u64 {
        self.limits.record_bytes.saturating_sub(self.selection.bytes)
    }

    /// Takes from a batch whose checks were made: when it came in, or when it was read.
    pub fn push_batch(&mut self, batch: &StoredBatch) {
        self.push(batch);
    }

    /// Takes from batches that were read from a segment and checked there. They share a buffer of `buffer_bytes`,
    /// which a small selection does not keep alive.
    pub fn push_read(&mut self, batches: impl IntoIterator<Item = StoredBatch>, buffer_bytes: u64) {
        let parts = self.selection.parts.len();
        for batch in batches {
            if self.done {
                break;
            }
            self.push(&batch);
        }
        if self.selection.parts.len() > parts {
            self.pinned += buffer_bytes;
        }
    }

    /// Takes from a tail of batches in memory, from wherever this read stands. A tail may hold batches below
    /// `retained_start` that only wait for their segment: they are not read any more.
    pub fn push_tail(&mut self, tail: &MemoryTail, retained_start: Offset) {
        let from = match self.wants() {
            None => return,
            Some(Start::Offset(offset)) => offset,
            Some(Start::Timestamp(timestamp)) => match tail.at_timestamp(timestamp) {
                Some(batch) => batch.base_offset.max(retained_start),
                None => return,
            },
        };
        for batch in tail.from_offset(from) {
            if self.done {
                break;
            }
            self.push_batch(batch);
        }
    }

    /// Takes from bytes that were read from a segment and begin at a batch. Every batch is checked before it is taken;
    /// one that fails ends the selection before it.
    pub fn push_chunk(&mut self, chunk: &Bytes) -> ChunkEnd {
        let parts = self.selection.parts.len();
        let mut position = 0;
        let end = loop {
            match self.step(chunk, position) {
                Step::Next(next) => position = next,
                Step::End(end) => break end,
            }
        };
        if self.selection.parts.len() > parts {
            self.pinned += chunk.len() as u64;
        }
        end
    }

    /// Looks at the batch at `position` of a chunk: skips it, takes it, or says what is missing.
    fn step(&mut self, chunk: &Bytes, position: usize) -> Step {
        if self.done {
            return Step::End(ChunkEnd::Done);
        }
        let Some(header) = chunk.get(position..).and_then(|rest| rest.first_chunk()) else {
            let need = BATCH_HEADER_BYTES as u64;
            return Step::End(ChunkEnd::More { advance: position as u64, need });
        };
        let head = match Head::parse(header) {
            Some(head) if self.scan_next.is_none_or(|next| next == head.base_offset) => head,
            _ => return self.step_failed(),
        };
        // A batch before an offset needs no check: a wrong count would not meet the batch behind it. A batch before a time
        // does: a wrong time would hide it.
        if self.next.is_some_and(|next| head.end_offset() <= next) {
            self.scan_next = Some(head.end_offset());
            return skip(chunk, position, head.length);
        }
        let Some(bytes) = record::whole(chunk, position, head.length) else {
            return Step::End(ChunkEnd::More { advance: position as u64, need: head.length });
        };
        if verify_stored(&bytes).is_err() {
            return self.step_failed();
        }
        let next = position + bytes.len();
        self.scan_next = Some(head.end_offset());
        self.push(&StoredBatch {
            base_offset: head.base_offset,
            message_count: head.message_count,
            base_timestamp: head.base_timestamp,
            bytes,
        });
        Step::Next(next)
    }

    fn step_failed(&mut self) -> Step {
        self.fail();
        Step::End(ChunkEnd::Done)
    }

    /// The read ran out of its buffer budget: it answers with what it has.
    pub fn truncate(&mut self) {
        if !self.done {
            self.selection.truncated = true;
            self.done = true;
        }
    }

    /// The next batch cannot be read: the selection ends before it.
    pub fn fail(&mut self) {
        self.failed = true;
        self.done = true;
        self.selection.truncated = true;
    }

    /// The selection.
    pub fn finish(mut self) -> Result<Selection, SelectError> {
        if self.failed && self.selection.is_empty() {
            let offset = self.next.or(self.scan_next).unwrap_or(Offset(0));
            return Err(SelectError::Unreadable { offset });
        }
        let sparse =
            self.pinned >= SPARSE_BYTES_MIN && self.selection.bytes.saturating_mul(SPARSE_PART) < self.pinned;
        if sparse {
            let copy: Vec<u8> = self.selection.parts.iter().flat_map(|part| part.iter().copied()).collect();
            self.selection.parts = vec![Bytes::from(copy)];
        }
        Ok(self.selection)
    }

    /// Whether a batch lies wholly before the start.
    fn is_before(&self, end: Offset, base_timestamp: Micros) -> bool {
        match (self.next, self.start) {
            (Some(next), _) => end <= next,
            (None, Start::Timestamp(timestamp)) => base_timestamp < timestamp,
            (None, Start::Offset(_)) => false,
        }
    }

    fn push(&mut self, batch: &StoredBatch) {
        if self.done || self.is_before(batch.end_offset(), batch.base_timestamp) {
            return;
        }
        if self.next.is_none() && batch.base_offset > self.head {
            // A time that no committed batch has reached.
            self.done = true;
            return;
        }
        let next = *self.next.get_or_insert(batch.base_offset);
        if batch.base_offset > next {
            // Messages between the two are missing, and the next one is committed. A reader must never jump over them.
            self.fail();
            return;
        }
        let readable = batch.end_offset().0.min(self.head.0.saturating_add(1)) - next.0;
        let left = u64::from(self.limits.messages - self.selection.messages);
        self.take(batch, next, readable.min(left) as u32);
    }

    /// Takes `count` messages of a batch from `first` on, as far as the bytes allow.
    fn take(&mut self, batch: &StoredBatch, first: Offset, count: u32) {
        assert!(count > 0, "a batch that was to be taken has nothing to take");
        let left = self.bytes_left();
        let whole = first == batch.base_offset && count == batch.message_count;
        if whole && batch.bytes.len() as u64 <= left {
            self.add(first, count, [batch.bytes.clone()]);
            return;
        }
        let byte_limit = usize::try_from(left).unwrap_or(usize::MAX);
        if let Some(slice) = slice(&batch.bytes, first, count, byte_limit) {
            self.add_slice(batch, &slice);
            self.limit_bytes_if(slice.count < count);
        } else if self.selection.is_empty() {
            // The first message alone is above the limit: it comes alone, so that every read makes progress.
            match slice(&batch.bytes, first, 1, usize::MAX) {
                Some(slice) => self.add_slice(batch, &slice),
                None => self.fail(),
            }
            self.limit_bytes_if(true);
        } else {
            self.limit_bytes_if(true);
        }
    }

    fn limit_bytes_if(&mut self, limited: bool) {
        self.selection.byte_limited |= limited;
        self.done |= limited;
    }

    fn add_slice(&mut self, batch: &StoredBatch, slice: &Slice) {
        if slice.count == batch.message_count {
            self.add(slice.first_offset, slice.count, [batch.bytes.clone()]);
        } else {
            let header = Bytes::copy_from_slice(&slice.header);
            self.add(slice.first_offset, slice.count, [header, batch.bytes.slice(slice.range.clone())]);
        }
    }

    fn add<const N: usize>(&mut self, first: Offset, count: u32, parts: [Bytes; N]) {
        let last = Offset(first.0 + u64::from(count) - 1);
        self.selection.first.get_or_insert(first);
        self.selection.last = Some(last);
        self.selection.messages += count;
        self.selection.bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.selection.parts.extend(parts);
        self.next = last.next();
        // A selection that fills the limit exactly is full as well: no further message costs nothing.
        if self.selection.bytes >= self.limits.record_bytes {
            self.selection.byte_limited = true;
        }
        self.done = self.selection.byte_limited
            || self.selection.messages >= self.limits.messages
            || last >= self.head
            || self.next.is_none();
    }
}

/// What looking at one batch of a chunk came to.
enum Step {
    /// Go on at this position.
    Next(usize),
    /// The chunk has no more to give.
    End(ChunkEnd),
}

/// Steps over a batch that is not wanted, also when the chunk ends inside it.
fn skip(chunk: &Bytes, position: usize, length: u64) -> Step {
    let advance = position as u64 + length;
    match usize::try_from(advance) {
        Ok(next) if next < chunk.len() => Step::Next(next),
        _ => Step::End(ChunkEnd::More { advance, need: BATCH_HEADER_BYTES as u64 }),
    }
}
