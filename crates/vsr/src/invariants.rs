//! What always holds in a replica. Written once; used by the asserts of the core and by its property tests.

use crate::replica::Frontier;

/// The frontiers never overtake one another: applied <= committed <= written <= head, and synced <= written.
pub fn frontiers_ordered(frontier: &Frontier) -> bool {
    frontier.commit_min <= frontier.commit_max
        && frontier.commit_max <= frontier.written
        && frontier.synced <= frontier.written
        && frontier.written <= frontier.op_head
}

/// Nothing that a replica has learned is unlearned: every frontier only grows.
pub fn frontiers_grow(before: &Frontier, after: &Frontier) -> bool {
    before.op_head <= after.op_head
        && before.written <= after.written
        && before.synced <= after.synced
        && before.commit_max <= after.commit_max
        && before.commit_min <= after.commit_min
}
