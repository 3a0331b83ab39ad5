//! Memory or disk: what a read needs before it can be answered.

use laneway_wire::{Micros, Offset};

use crate::selection::{ReadLimits, Selection, Selector};
use crate::start::{Start, Strategy};
use crate::tail::MemoryTail;
use crate::waiters::WakeAt;

/// One partition as a read sees it at one moment.
#[derive(Clone, Copy, Debug)]
pub struct PartitionView<'a> {
    /// Highest committed offset; `None` before the first commit.
    pub head: Option<Offset>,
    /// First offset that retention has left.
    pub retained_start: Offset,
    /// Offset after the last message that a segment holds.
    pub disk_end: Offset,
    /// Append time of the newest committed batch.
    pub timestamp_last: Micros,
    /// Running total of committed bytes, framing included. Never falls.
    pub bytes_total: u64,
    /// The newest batches. Reaches to the head whenever the segments do not.
    pub tail: &'a MemoryTail,
}

/// What a read wants, with nothing left to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollRequest {
    /// Where it starts.
    pub start: Start,
    /// How much it may return.
    pub limits: ReadLimits,
}

/// How a read goes on.
#[derive(Clone, Debug)]
pub enum PollPlan {
    /// It is complete: nothing is there, or all of it is in memory.
    Ready(Selection),
    /// It begins in a segment.
    Disk(DiskRead),
}

/// A read that begins in a segment.
///
/// While [`Selector::wants`] names a start below the end of the segments, the caller reads there and feeds
/// [`Selector::push_read`] (batches that storage checked) or [`Selector::push_chunk`] (bytes as they are); behind it,
/// it feeds the partition's tail of that moment to [`Selector::push_tail`]. [`Selector::finish`] has the answer. A
/// batch that cannot be read is [`Selector::fail`].
#[derive(Clone, Debug)]
pub struct DiskRead {
    /// Takes the bytes.
    pub selector: Selector,
}

impl PollPlan {
    /// Plans a read. The head of the view caps it, whatever commits while it runs.
    pub fn build(view: &PartitionView<'_>, request: &PollRequest) -> PollPlan {
        let Some(head) = view.head else { return PollPlan::Ready(Selection::empty(None)) };
        if request.limits.messages == 0 || view.retained_start > head {
            return PollPlan::Ready(Selection::empty(Some(head)));
        }
        let start = match request.start {
            Start::Offset(offset) => Start::Offset(offset.max(view.retained_start)),
            Start::Timestamp(timestamp) => Start::Timestamp(timestamp),
        };
        let mut selector = Selector::new(start, head, request.limits);
        match place(view, head, start) {
            Place::Nowhere => PollPlan::Ready(Selection::empty(Some(head))),
            Place::Disk => PollPlan::Disk(DiskRead { selector }),
            Place::Memory => {
                selector.push_tail(view.tail, view.retained_start);
                match selector.finish() {
                    Ok(selection) => PollPlan::Ready(selection),
                    // Only unreadable bytes end here, and those in memory were checked: our own mistake.
                    Err(error) => panic!("the memory tail is broken: {error}"),
                }
            }
        }
    }
}

/// The commit at which a read that holds too little may hold enough. `strategy` is the one of the request, because a
/// read from `Last` moves with the head; `request` is what it resolved to for `selection`.
///
/// A selection of an older head than the view's (messages were committed while it was read from a disk) says too
/// little: [`Selection::is_stale`] tells, and the caller evaluates again in the same turn instead of parking. Here it
/// is woken by the next commit, whatever it waits for.
pub fn wake_at(
    view: &PartitionView<'_>,
    strategy: Strategy,
    request: &PollRequest,
    min_count: u32,
    selection: &Selection,
) -> WakeAt {
    let next_commit = view.head.map_or(Offset(0), |head| Offset(head.0.saturating_add(1)));
    if selection.is_stale(view) {
        return WakeAt { head: next_commit, bytes_total: None };
    }
    let missing = u64::from(min_count.saturating_sub(selection.messages)).max(1);
    let head = match (strategy, request.start) {
        (Strategy::Last, _) => next_commit,
        (_, Start::Timestamp(_)) if selection.is_empty() => next_commit,
        (_, Start::Offset(start)) if selection.is_empty() => {
            let start = start.max(view.retained_start).max(next_commit);
            Offset(start.0.saturating_add(missing - 1))
        }
        _ => Offset(next_commit.0.saturating_add(missing - 1)),
    };
    // What is readable from the start is exactly the selection, so the limit is full once the rest of it was
    // committed. A start above the head counts what lies before it, too, and wakes early at worst.
    let bytes_left = request.limits.record_bytes.saturating_sub(selection.bytes);
    WakeAt { head, bytes_total: Some(view.bytes_total.saturating_add(bytes_left)) }
}

enum Place {
    Nowhere,
    Memory,
    Disk,
}

fn place(view: &PartitionView<'_>, head: Offset, start: Start) -> Place {
    let tail_start = view.tail.start();
    match start {
        Start::Offset(offset) if offset > head => Place::Nowhere,
        Start::Offset(offset) if tail_start.is_some_and(|tail_start| tail_start <= offset) => Place::Memory,
        Start::Timestamp(timestamp) if timestamp > view.timestamp_last => Place::Nowhere,
        Start::Timestamp(timestamp) if tail_holds(view, timestamp) => Place::Memory,
        Start::Offset(_) | Start::Timestamp(_) => Place::Disk,
    }
}

/// Whether the first batch at or after `timestamp` is certainly not on disk: everything retained is in memory, or the
/// tail begins with an older batch.
fn tail_holds(view: &PartitionView<'_>, timestamp: Micros) -> bool {
    view.tail
        .front()
        .is_some_and(|front| front.base_offset <= view.retained_start || front.base_timestamp < timestamp)
}
