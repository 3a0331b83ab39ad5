//! What the votes for a view decide: which entries survive. A pure function of the votes, so that every member that
//! computes it, at any time and with any settings of its own, computes the same. Source: cluster specification, 2.10.

use laneway_wire::Op;

use crate::header::{Header, Identity};
use crate::marks::mark;
use crate::mutation::{Mutation, Mutations};
use crate::quorum::Quorums;
use crate::vote::{CheckpointId, Held, LogTrust, Vote, WINDOW_OPS_MAX};

/// The log that a set of votes decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedLog {
    /// Committed through here.
    pub commit_max: Op,
    /// The head.
    pub op_head: Op,
    /// The headers, downward from `op_head` to the lowest one that is known, at most to `commit_max`.
    pub headers: Vec<Header>,
    /// For each header the members that hold its body, as bits by place in the member list.
    pub holders: Vec<u16>,
    /// The newest checkpoint of a voter: what it names is committed.
    pub checkpoint: CheckpointId,
    /// Untrusted logs took part because every member voted and too few could be trusted: acknowledged entries may be gone.
    pub data_loss_possible: bool,
}

/// What a merge came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// More votes are needed: fewer than a quorum so far, or an open question at this op.
    Waiting(Option<Op>),
    /// The votes of all members contradict each other or leave a hole. Nothing is decided; a later view may.
    Refused(Refusal),
    /// The decided log.
    Ready(MergedLog),
}

/// Why a merge was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An entry that is known to be committed was never acknowledged by too many.
    #[error("op {op} is committed, and {nacks} members deny that they ever acknowledged it")]
    CommittedEntryDenied {
        /// The op.
        op: Op,
        /// Members that deny it.
        nacks: usize,
    },
    /// Two votes of one log view name different entries.
    #[error("op {op} has two names in one view")]
    Conflict {
        /// The op.
        op: Op,
    },
    /// Nobody has the entry, and too few deny it.
    #[error("op {op} is held by nobody and may have been acknowledged")]
    Lost {
        /// The op.
        op: Op,
    },
    /// Neighbours do not name each other.
    #[error("op {op} does not go on from the entry below it")]
    Broken {
        /// The op.
        op: Op,
    },
    /// More is open than a window holds.
    #[error("{head} is more than a window above {commit_max}")]
    TooLong {
        /// The head.
        head: Op,
        /// The commit point.
        commit_max: Op,
    },
}

/// The votes of a view, by place in the member list.
#[derive(Clone, Copy, Debug)]
pub struct Ballot<'a> {
    /// One place a member; `None` when its vote is not here.
    pub votes: &'a [Option<Vote>],
    /// The quorums.
    pub quorums: Quorums,
    /// Planted bugs.
    pub mutations: Mutations,
}

/// What the votes say about one op.
struct Tally<'a> {
    header: Option<&'a Header>,
    conflict: bool,
    copies: u16,
    nacks: usize,
}

impl<'a> Ballot<'a> {
    /// Decides.
    pub fn merge(&self) -> Merge {
        let all = self.all().count();
        if all < self.quorums.view_change() {
            return Merge::Waiting(None);
        }
        let complete = all == self.quorums.members();
        let trusted = self.all().filter(|(_, vote)| vote.trust == LogTrust::Trusted).count();
        let with_untrusted = trusted < self.quorums.view_change();
        if with_untrusted && !complete {
            mark!("merge waits for trusted votes");
            return Merge::Waiting(None);
        }
        let believed: Vec<(usize, &Vote)> =
            self.all().filter(|(_, vote)| with_untrusted || vote.trust == LogTrust::Trusted).collect();

        let commit_max = self.commit_max();
        let latest = believed.iter().map(|(_, vote)| vote.log_view).max().expect("a quorum is not empty");
        let head_of = |vote: &Vote| vote.op_head;
        let candidate = believed
            .iter()
            .filter(|(_, vote)| vote.log_view == latest || self.mutations.has(Mutation::IgnoreLogView))
            .map(|(_, vote)| head_of(vote))
            .max()
            .expect("the latest log view is of a vote")
            .max(commit_max);
        if candidate == Op(0) {
            // Everybody lacks op 0: asking about it would look like a quorum of nacks.
            let (headers, holders) = (Vec::new(), Vec::new());
            let data_loss_possible = with_untrusted;
            return Merge::Ready(MergedLog {
                commit_max,
                op_head: Op(0),
                headers,
                holders,
                checkpoint: self.newest_checkpoint(),
                data_loss_possible,
            });
        }

        let mut headers: Vec<Header> = Vec::new();
        let mut holders = Vec::new();
        let mut op_head = candidate;
        let mut op = commit_max.max(Op(1));
        while op <= candidate {
            let tally = self.tally(op, latest, &believed, with_untrusted);
            let covered = op == commit_max && self.checkpoint_at(op).is_some();
            if tally.nacks >= self.quorums.nack() || self.unheld_is_enough(&tally) {
                if op <= commit_max {
                    mark!("merge refuses to drop a committed entry");
                    return Merge::Refused(Refusal::CommittedEntryDenied { op, nacks: tally.nacks });
                }
                mark!("merge truncates");
                op_head = Op(op.0 - 1);
                break;
            }
            if tally.conflict {
                return self.open(op, complete, Refusal::Conflict { op });
            }
            match tally.header {
                Some(header) if tally.copies != 0 || covered => {
                    headers.push(*header);
                    holders.push(tally.copies);
                }
                None if covered => mark!("merge anchored by a checkpoint"),
                _ => {
                    mark!("merge has no copy");
                    return self.open(op, complete, Refusal::Lost { op });
                }
            }
            op = op.next();
        }
        if let Some(op) = self.broken(&headers, commit_max) {
            return Merge::Refused(Refusal::Broken { op });
        }
        if op_head.0 - commit_max.0 > WINDOW_OPS_MAX as u64 {
            return Merge::Refused(Refusal::TooLong { head: op_head, commit_max });
        }
        headers.reverse();
        holders.reverse();
        Merge::Ready(MergedLog {
            commit_max,
            op_head,
            headers,
            holders,
            checkpoint: self.newest_checkpoint(),
            data_loss_possible: with_untrusted,
        })
    }

    fn all(&self) -> impl Iterator<Item = (usize, &'a Vote)> {
        self.votes.iter().enumerate().filter_map(|(place, vote)| Some((place, vote.as_ref()?)))
    }

    /// What is committed for certain. The floor of a vote's slots says nothing about it (V47).
    fn commit_max(&self) -> Op {
        let of_vote = |vote: &Vote| {
            let head = vote.slots.first().and_then(|slot| slot.held.header());
            let in_head = head.map_or(Op(0), |header| header.commit);
            let window = Op(vote.op_head.0.saturating_sub(WINDOW_OPS_MAX as u64));
            let floor = match self.mutations.has(Mutation::FloorIsCommitted) {
                true => Op((vote.op_head.0 + 1).saturating_sub(vote.slots.len().max(1) as u64)),
                false => Op(0),
            };
            vote.commit_max.max(in_head).max(window).max(floor)
        };
        self.all().map(|(_, vote)| of_vote(vote)).max().unwrap_or_default()
    }

    fn tally(
        &self,
        op: Op,
        latest: crate::View,
        believed: &[(usize, &'a Vote)],
        all_trusted: bool,
    ) -> Tally<'a> {
        let canonical = |vote: &Vote| vote.log_view == latest || self.mutations.has(Mutation::IgnoreLogView);
        let mut header: Option<&Header> = None;
        let mut conflict = false;
        // Whether an older entry here may be the very one that the latest log holds: its name is lost there, or the vote of
        // that log reaches the op and says nothing about it, as it does where a checkpoint took the entry's place.
        let mut may_be_the_same = false;
        for (_, vote) in believed.iter().filter(|(_, vote)| canonical(vote)) {
            let Some(slot) = vote.slot(op) else {
                may_be_the_same |= op <= vote.op_head;
                continue;
            };
            may_be_the_same |= matches!(slot.held, Held::Faulty(None));
            match (header, slot.held.header()) {
                (None, found) => header = found,
                (Some(known), Some(found)) => conflict |= known.identity != found.identity,
                (Some(_), None) => {}
            }
        }
        let denies = |vote: &Vote| {
            if vote.syncing || (vote.trust == LogTrust::Untrusted && !all_trusted) {
                return false;
            }
            if vote.op_head < op {
                return true;
            }
            let Some(slot) = vote.slot(op) else { return false };
            let other = match (slot.held.header(), header) {
                (Some(theirs), Some(header)) => theirs.identity != header.identity,
                (Some(_), None) => !may_be_the_same,
                (None, _) => false,
            };
            slot.nack || (!canonical(vote) && other)
        };
        let nacks = believed.iter().filter(|(_, vote)| denies(vote)).count();
        let holds = |vote: &Vote| match (vote.slot(op), header) {
            (Some(slot), Some(header)) => {
                slot.held.is_present()
                    && slot.held.header().is_some_and(|held| held.identity == header.identity)
            }
            _ => false,
        };
        let copies =
            self.all().filter(|(_, vote)| holds(vote)).fold(0u16, |bits, (place, _)| bits | 1 << place);
        Tally { header, conflict, copies, nacks }
    }

    /// The name at an op, as a checkpoint gives it when the entry is gone everywhere.
    fn checkpoint_at(&self, op: Op) -> Option<Identity> {
        self.all().find(|(_, vote)| vote.checkpoint.op == op).map(|(_, vote)| vote.checkpoint.identity)
    }

    fn newest_checkpoint(&self) -> CheckpointId {
        self.all().map(|(_, vote)| vote.checkpoint).max().expect("a quorum is not empty")
    }

    /// The first op that does not go on from the one below.
    fn broken(&self, headers: &[Header], commit_max: Op) -> Option<Op> {
        let links = headers.windows(2).find(|pair| !pair[1].follows(&pair[0])).map(|pair| pair[1].op);
        let first = headers.first().filter(|header| header.op == commit_max.next());
        let anchor = first.and_then(|header| {
            let anchor = self.checkpoint_at(commit_max)?;
            (anchor != header.parent).then_some(header.op)
        });
        links.or(anchor)
    }

    fn open(&self, op: Op, complete: bool, refusal: Refusal) -> Merge {
        match complete {
            true => {
                mark!("merge refused");
                Merge::Refused(refusal)
            }
            false => Merge::Waiting(Some(op)),
        }
    }

    fn unheld_is_enough(&self, tally: &Tally<'_>) -> bool {
        self.mutations.has(Mutation::DropNackQuorum) && tally.copies == 0
    }
}

#[cfg(test)]
mod tests;
