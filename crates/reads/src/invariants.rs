//! What always holds. Used by assertions and by property tests.

use crate::selection::{ReadLimits, Selection};
use crate::waiters::Waiters;

/// No more requests are pending than allowed. Cheap enough for every change of a debug build.
pub fn within_limits<T>(waiters: &Waiters<T>) -> bool {
    waiters.len() <= waiters.limits().shard_max
}

/// Every index of the waiters names exactly the waiters that belong into it. Costs O(n log n).
pub fn indexes_are_exact<T>(waiters: &Waiters<T>) -> bool {
    waiters.index_is_exact()
}

/// A selection keeps its limits, counts what it holds, and stays at or below its head.
pub fn selection(selection: &Selection, limits: ReadLimits) -> bool {
    let bytes: u64 = selection.parts.iter().map(|part| part.len() as u64).sum();
    let span = match (selection.first, selection.last) {
        (Some(first), Some(last)) => last.0.checked_sub(first.0).map(|span| span + 1),
        (None, None) => Some(0),
        _ => None,
    };
    bytes == selection.bytes
        && selection.messages <= limits.messages
        && (bytes <= limits.record_bytes || selection.messages == 1)
        && span == Some(u64::from(selection.messages))
        && selection.last <= selection.head
}
