//! Ops of one partition that are proposed and not yet applied, in their order.

use std::collections::{BTreeMap, VecDeque};

use laneway_wire::{Offset, Op};

use super::consumer::ConsumerKey;
use super::identity::Identity;

/// What a proposed op will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StagedOp {
    /// Appends messages up to before `end`.
    Append { end: Offset, producer_id: Option<u64> },
    /// Stores an offset, because a client asked.
    Store { consumer: ConsumerKey },
    /// Deletes an offset.
    Delete { consumer: ConsumerKey },
    /// Deletes segments.
    AdvanceStart,
}

/// The proposed ops of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Staged {
    queue: VecDeque<(Op, Option<Identity>, StagedOp)>,
    requests: BTreeMap<Identity, Op>,
    /// Offset after the last message that was proposed; applied ones are below it.
    end: Offset,
}

impl Staged {
    pub(crate) fn push(&mut self, op: Op, identity: Option<Identity>, staged: StagedOp) {
        assert!(self.queue.back().is_none_or(|(last, ..)| *last < op), "ops are staged in order");
        if let Some(identity) = identity {
            self.requests.insert(identity, op);
        }
        if let StagedOp::Append { end, .. } = staged {
            self.end = end;
        }
        self.queue.push_back((op, identity, staged));
    }

    /// The op of a request that is on its way.
    pub(crate) fn in_flight(&self, identity: &Identity) -> Option<Op> {
        self.requests.get(identity).copied()
    }

    /// Takes the op that is applied now. Earlier ones that are still here were never committed, which ops in order
    /// rule out.
    pub(crate) fn take(&mut self, op: Op) -> Option<StagedOp> {
        let (first, ..) = self.queue.front()?;
        assert!(*first >= op, "an op before op {op} was staged and never applied");
        if *first > op {
            return None;
        }
        let (_, identity, staged) = self.queue.pop_front()?;
        if let Some(identity) = identity {
            self.requests.remove(&identity);
        }
        Some(staged)
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.requests.clear();
        self.end = Offset(0);
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Offset after the last message that was proposed, 0 when none was.
    pub(crate) fn end(&self) -> Offset {
        self.end
    }
}
