//! What always holds in a replica. Written once; used by the asserts of the core, by its property tests and by the
//! simulator.

use crate::entry::View;
use crate::replica::{Frontier, Status};
use crate::superblock::Promise;

/// The frontiers never overtake one another: applied <= written <= head, applied <= committed, and synced <= written.
pub fn frontiers_ordered(frontier: &Frontier) -> bool {
    frontier.commit_min <= frontier.commit_max
        && frontier.commit_min <= frontier.written
        && frontier.synced <= frontier.written
        && frontier.written <= frontier.op_head
}

/// Nothing that a replica has learned is unlearned while it stays in one view and its log is sound: every frontier only
/// grows.
pub fn frontiers_grow(before: &Frontier, after: &Frontier) -> bool {
    before.op_head <= after.op_head
        && before.written <= after.written
        && before.synced <= after.synced
        && commits_grow(before, after)
}

/// Commits are for ever, whatever happens to the log.
pub fn commits_grow(before: &Frontier, after: &Frontier) -> bool {
    before.commit_max <= after.commit_max && before.commit_min <= after.commit_min
}

/// The log view never passes the view; in normal status they are one, and only a vote backs a view whose log is open.
pub fn views_ordered(status: Status, view: View, log_view: View, promise: &Promise) -> bool {
    let backed = match promise {
        Promise::None => view == log_view,
        Promise::View { .. } => view == log_view,
        Promise::Vote(vote) => vote.view == view && vote.log_view == log_view && log_view < view,
    };
    log_view <= view && backed && (status != Status::Normal || view == log_view)
}
