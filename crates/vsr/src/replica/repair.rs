//! What is missing: fetched from others by name, and served to them.

use std::collections::BTreeMap;

use laneway_wire::{Nanos, Op, ReplicaId};

use super::slots::Body;
use super::{Replica, Status, Timer};
use crate::config::WINDOW_BYTES_MAX;
use crate::entry::{Entry, View};
use crate::event::{Effect, Halt, ReadPurpose, ReadRequest};
use crate::header::{Header, Identity};
use crate::marks::mark;
use crate::message::{Anchor, GET_PREPARE_MAX, HEADERS_MAX, Message, Nonce};
use crate::vote::{LogTrust, WINDOW_OPS_MAX};

/// Entries that may be asked for and not answered.
const OUTSTANDING_MAX: usize = 64;

/// Headers that are known without their bodies. A replica that is further behind fetches a checkpoint.
const KNOWN_MAX: usize = 4096;

/// A question that is out, until it is asked again of somebody else.
#[derive(Clone, Copy, Debug)]
struct Asked {
    until: Nanos,
}

/// What is being fetched.
#[derive(Clone, Debug)]
pub(super) struct Repair {
    outstanding: BTreeMap<Op, Asked>,
    headers: Option<Asked>,
    /// Turns with every question, so that the load and the misses are spread.
    turn: usize,
    /// The head of the primary, as its heartbeats say.
    pub primary_head: Op,
    /// When the log last grew without a gap.
    pub progress_at: Nanos,
    progress: Op,
    /// Members that no longer have what is missing, as bits by place.
    evicted: u32,
}

impl Repair {
    pub fn new(now: Nanos) -> Repair {
        Repair {
            outstanding: BTreeMap::new(),
            headers: None,
            turn: 0,
            primary_head: Op(0),
            progress_at: now,
            progress: Op(0),
            evicted: 0,
        }
    }

    /// Nothing that was asked is waited for.
    pub fn forget(&mut self) {
        self.outstanding.clear();
        self.headers = None;
        self.evicted = 0;
    }
}

impl Replica {
    // ---- Asking.

    /// The highest op of the current log that should be here.
    fn repair_target(&self) -> Op {
        let known = self.known.last_key_value().map_or(Op(0), |(op, _)| *op);
        let ahead = self.ahead.last_key_value().map_or(Op(0), |(op, _)| *op);
        let mut target = self.slots.head().max(known).max(ahead);
        if self.status == Status::Normal && !self.leads() {
            target = target.max(self.commit_max).max(self.repair.primary_head);
        }
        if let Some(merged) = &self.election.merged {
            target = target.max(merged.op_head);
        }
        target
    }

    pub(super) fn wants_repair(&self) -> bool {
        let may = match self.status {
            Status::Normal => !self.transferring,
            Status::ViewChange => self.election.merged.is_some(),
            _ => false,
        };
        may && !self.storage.log_failed
            && (self.slots.held() < self.repair_target()
                || self.slots.verified() < self.slots.head()
                || self.slots.damaged().next().is_some())
    }

    /// Starts repair as soon as something is missing, in whatever status that is (V56).
    pub(super) fn schedule_repair(&mut self) {
        if self.slots.held() > self.repair.progress {
            self.repair.progress_at = self.now;
        }
        self.repair.progress = self.slots.held();
        if !self.wants_repair() {
            self.timers.stop(Timer::Repair);
        } else if !self.timers.runs(Timer::Repair) {
            self.repair.progress_at = self.now;
            self.ask();
        }
    }

    pub(super) fn on_repair_timer(&mut self) {
        if self.wants_repair() {
            self.ask();
        }
    }

    /// One batch of questions: bodies from low to high, because apply goes on with the lowest; headers from high to low,
    /// because each names the one below.
    fn ask(&mut self) {
        self.timers.arm(Timer::Repair, self.now.after_us(self.config.timing.repair_us));
        let stuck_us = self.now.us_since(self.repair.progress_at);
        if stuck_us >= self.config.timing.repair_transfer_us
            && self.status == Status::Normal
            && !self.leads()
            && self.slots.held() < self.commit_max
        {
            mark!("repair made no progress");
            return self.start_transfer();
        }
        let now = self.now;
        self.repair.outstanding.retain(|_, asked| asked.until > now);
        if self.repair.headers.is_some_and(|asked| asked.until <= now) {
            self.repair.headers = None;
        }
        let mut wanted: BTreeMap<ReplicaId, Vec<Anchor>> = BTreeMap::new();
        let target = self.repair_target();
        let damaged: Vec<Op> = self.slots.damaged().take(GET_PREPARE_MAX).collect();
        for op in damaged {
            self.want(op, &mut wanted);
        }
        let mut op = self.slots.held().next();
        while op <= target && self.repair.outstanding.len() < OUTSTANDING_MAX {
            self.want(op, &mut wanted);
            op = op.next();
        }
        let view = self.view;
        for (peer, wanted) in wanted {
            let nonce = self.next_nonce();
            self.send(peer, Message::GetPrepare { view, nonce, wanted });
        }
        self.ask_headers();
    }

    fn want(&mut self, op: Op, wanted: &mut BTreeMap<ReplicaId, Vec<Anchor>>) {
        if let Some((peer, identity)) = self.question(op) {
            let until = self.now.after_us(self.config.timing.repair_wait_us);
            self.repair.outstanding.insert(op, Asked { until });
            wanted.entry(peer).or_default().push(Anchor { op, identity });
        }
    }

    /// Whom to ask for the body at an op, and under which name.
    fn question(&mut self, op: Op) -> Option<(ReplicaId, Identity)> {
        if self.repair.outstanding.contains_key(&op) || self.ahead.contains_key(&op) {
            return None;
        }
        if let Some(slot) = self.slots.get(op) {
            let identity = slot.identity.filter(|_| matches!(slot.body, Body::Missing))?;
            return Some((self.next_peer(op)?, identity));
        }
        if let Some(header) = self.known.get(&op) {
            let identity = header.identity;
            return Some((self.next_peer(op)?, identity));
        }
        // The primary of a started view says what is at an op; nobody else is believed without a name.
        let follows = self.status == Status::Normal && !self.leads();
        follows.then(|| (self.primary(), Identity::default()))
    }

    /// The next peer in turn that may have the body at an op.
    fn next_peer(&mut self, op: Op) -> Option<ReplicaId> {
        let members = self.config.roster.members();
        let holders = self.election.merged.as_ref().and_then(|merged| {
            let index = merged.op_head.0.checked_sub(op.0)?;
            merged.holders.get(usize::try_from(index).ok()?).copied()
        });
        for _ in 0..members.len() {
            self.repair.turn = (self.repair.turn + 1) % members.len();
            let turn = self.repair.turn;
            let holds = holders.is_none_or(|bits| bits & 1 << turn != 0);
            if Some(turn) != self.place && holds {
                return Some(members[turn]);
            }
        }
        None
    }

    /// Asks for the headers between the log and the lowest known header of the view.
    fn ask_headers(&mut self) {
        if self.repair.headers.is_some() {
            return;
        }
        let head = self.slots.head();
        let lowest = self.known.first_key_value().map(|(op, _)| *op);
        let (first, last) = match lowest {
            // The walk has not reached the log yet.
            Some(lowest) if lowest.0 > head.0 + 1 => (head.next(), Op(lowest.0 - 1)),
            _ => return,
        };
        if self.status == Status::Normal {
            // The primary is asked for the entries themselves.
            return;
        }
        if self.known.len() >= KNOWN_MAX || last.0 - first.0 >= KNOWN_MAX as u64 {
            mark!("primary-elect is too far behind");
            return self.give_up_view();
        }
        let first = first.max(Op((last.0 + 1).saturating_sub(HEADERS_MAX as u64)));
        let Some(peer) = self.next_peer(Op(u64::MAX)) else { return };
        let until = self.now.after_us(self.config.timing.repair_wait_us);
        self.repair.headers = Some(Asked { until });
        let nonce = self.next_nonce();
        self.send(peer, Message::GetHeaders { view: self.view, nonce, first, last });
    }

    /// Headers, from high to low. Each is accepted only under the name that the one above it gives.
    pub(super) fn on_headers(&mut self, from: ReplicaId, view: View, headers: &[Header]) {
        if self.status == Status::Normal && !self.leads() && from == self.primary() && view == self.view {
            return self.on_name(headers);
        }
        if self.election.merged.is_none() || headers.len() > HEADERS_MAX {
            return;
        }
        self.repair.headers = None;
        for header in headers {
            let Some((lowest, above)) = self.known.first_key_value() else { break };
            if header.op.next() != *lowest {
                continue;
            }
            if header.identity != above.parent
                || header.op <= self.commit_min
                || self.known.len() >= KNOWN_MAX
            {
                mark!("header under another name");
                break;
            }
            self.known.insert(header.op, *header);
        }
        if self.reconcile() {
            self.truncate_disk();
            self.drain_ahead();
            self.finish_merge();
        }
    }

    /// The primary of the view says which entry is at an op, for it cannot read the body.
    fn on_name(&mut self, headers: &[Header]) {
        let [header] = headers else { return };
        let lowest = self.known.first_key_value().is_none_or(|(op, _)| header.op < *op);
        if header.op > self.slots.head() && lowest && self.known.len() < KNOWN_MAX {
            self.known.insert(header.op, *header);
            self.repair.outstanding.remove(&header.op);
        }
    }

    // ---- Receiving.

    /// A body. Accepted only under a known name, or from the settled primary, which decides the name (V58).
    pub(super) fn on_repair_prepare(&mut self, from: ReplicaId, view: View, settled: bool, entry: Entry) {
        let open = matches!(self.status, Status::Normal) || self.election.merged.is_some();
        if !open || self.transferring {
            return;
        }
        let (op, identity) = (entry.header.op, entry.header.identity);
        self.repair.outstanding.remove(&op);
        if let Some(slot) = self.slots.get(op) {
            if !slot.is_held() && slot.identity == Some(identity) {
                self.write_hole(entry);
                self.on_hole_filled();
            }
            return;
        }
        let named = self.known.get(&op).is_some_and(|header| header.identity == identity);
        let decided = settled
            && self.status == Status::Normal
            && view == self.view
            && from == self.primary()
            && !self.known.contains_key(&op);
        if !named && !decided {
            mark!("repair under an unknown name");
            return;
        }
        self.stash(entry);
        self.drain_ahead();
    }

    fn on_hole_filled(&mut self) {
        if self.status == Status::Normal {
            self.drain_ahead();
            self.apply_ready();
        }
    }

    /// Keeps an entry of the current log until the ones below it are here.
    pub(super) fn stash(&mut self, entry: Entry) {
        let op = entry.header.op;
        if op <= self.slots.head() && self.status == Status::Normal || op <= self.commit_min {
            return;
        }
        self.repair.outstanding.remove(&op);
        self.ahead.insert(op, entry);
        let mut bytes: usize = self.ahead.values().map(|entry| entry.body.bytes()).sum();
        while self.ahead.len() > 1 && (self.ahead.len() > WINDOW_OPS_MAX || bytes > WINDOW_BYTES_MAX) {
            let (_, dropped) = self.ahead.pop_last().expect("more than one");
            bytes -= dropped.body.bytes();
        }
    }

    /// Moves what goes on from the log into it. Everything that waits ahead is of the current log, so the name that it
    /// gives to the entry below proves or refutes that one.
    pub(super) fn drain_ahead(&mut self) {
        while let Some((&op, entry)) = self.ahead.first_key_value() {
            let head = self.slots.head();
            if op <= head {
                self.ahead.pop_first();
                continue;
            }
            if op != head.next() {
                break;
            }
            self.slots.name_below(op, entry.header.parent);
            if self.slots.identity(head) != Some(entry.header.parent) {
                mark!("leftover at the head");
                if head <= self.commit_min {
                    let ours = self.slots.identity(head).unwrap_or_default();
                    let theirs = entry.header.parent;
                    return self.halt(Halt::Diverged { op: head, view: self.view, ours, theirs });
                }
                self.cut(Op(head.0 - 1));
                continue;
            }
            let (_, entry) = self.ahead.pop_first().expect("checked");
            self.truncate_disk();
            self.write_head(entry);
            self.slots.verify(op);
        }
        if self.election.merged.is_some() {
            self.finish_merge();
        } else {
            self.apply_ready();
        }
    }

    /// The front of what was asked for is gone at a peer. Once nobody else can have it, a checkpoint takes its place.
    pub(super) fn on_range_evicted(&mut self, from: ReplicaId, _nonce: Nonce, oldest: Op) {
        let Some(place) = self.place_of(from) else { return };
        let missing = self.slots.held().next();
        if oldest <= missing || !self.wants_repair() {
            return;
        }
        self.repair.evicted |= 1 << place;
        if let Some(merged) = &self.election.merged {
            // Only what is committed can have been trimmed.
            if missing <= merged.commit_max && self.is_evicted_everywhere() {
                mark!("primary-elect lacks what is trimmed");
                self.give_up_view();
            }
            return;
        }
        let only_primary_asked = !self.known.contains_key(&missing) && self.slots.get(missing).is_none();
        if self.status == Status::Normal
            && !self.leads()
            && (only_primary_asked && from == self.primary() || self.is_evicted_everywhere())
        {
            mark!("range evicted");
            self.start_transfer();
        }
    }

    fn is_evicted_everywhere(&self) -> bool {
        (0..self.config.roster.members().len())
            .all(|place| Some(place) == self.place || self.repair.evicted & 1 << place != 0)
    }

    /// Once everything that was committed when the view was adopted is here, the log proves again what it lacks.
    pub(super) fn regain_trust(&mut self) {
        if let Some(op) = self.trusted_at
            && self.status == Status::Normal
            && self.slots.written().min(self.slots.verified()) >= op
            && self.trust == LogTrust::Untrusted
        {
            mark!("log trusted again");
            self.trust = LogTrust::Trusted;
            self.trusted_at = None;
            self.save();
        }
    }

    // ---- Serving, in any status (V59).

    pub(super) fn on_get_headers(&mut self, from: ReplicaId, nonce: Nonce, first: Op, last: Op) {
        let mut headers = Vec::new();
        let mut op = last;
        while op >= first.max(Op(1))
            && headers.len() < HEADERS_MAX
            && let Some(header) = self.slots.header(op).or_else(|| self.known.get(&op))
        {
            headers.push(*header);
            op = Op(op.0 - 1);
        }
        let view = self.view;
        if !headers.is_empty() {
            self.send(from, Message::Headers { view, nonce, headers });
        } else if last <= self.slots.base().op {
            self.send_evicted(from, nonce, self.slots.base().op.next());
        }
    }

    pub(super) fn on_get_prepare(&mut self, from: ReplicaId, nonce: Nonce, wanted: &[Anchor]) {
        for asked in wanted.iter().take(GET_PREPARE_MAX) {
            self.serve(from, nonce, *asked);
        }
    }

    fn serve(&mut self, to: ReplicaId, nonce: Nonce, asked: Anchor) {
        let nameless = asked.identity == Identity::default();
        if nameless && !self.is_primary() || asked.op > self.slots.head() {
            return;
        }
        let view = self.view;
        let (op, identity) = (asked.op, self.slots.identity(asked.op));
        if self.slots.get(op).is_some() {
            if !nameless && identity != Some(asked.identity) {
                return;
            }
            match self.slots.entry(op) {
                // What is not committed is sent as the primary sends it.
                Some(entry) if nameless && op > self.commit_max => {
                    let (commit, checkpoint) = (self.commit_min, self.checkpoint.op);
                    return self.send(to, Message::Prepare { view, commit, checkpoint, entry });
                }
                Some(entry) => return self.send_repair(to, nonce, entry),
                None if !self.slots.get(op).is_some_and(|slot| slot.is_held()) => {
                    return self.name_instead(to, nonce, asked);
                }
                None => {}
            }
        }
        mark!("repair served from the log");
        let identity = identity.unwrap_or(asked.identity);
        let request = ReadRequest { op, identity, purpose: ReadPurpose::Repair { to, nonce } };
        self.effects.push_back(Effect::Read(request));
    }

    /// Without the body the primary can still say which entry it is, so that others can be asked for it.
    fn name_instead(&mut self, to: ReplicaId, nonce: Nonce, asked: Anchor) {
        if asked.identity == Identity::default()
            && asked.op <= self.commit_max
            && let Some(header) = self.slots.header(asked.op)
        {
            mark!("name served instead of the body");
            let headers = vec![*header];
            self.send(to, Message::Headers { view: self.view, nonce, headers });
        }
    }

    fn send_repair(&mut self, to: ReplicaId, nonce: Nonce, entry: Entry) {
        let settled = self.is_primary() && entry.header.op <= self.commit_max;
        self.send(to, Message::RepairPrepare { view: self.view, nonce, settled, entry });
    }

    fn send_evicted(&mut self, to: ReplicaId, nonce: Nonce, oldest: Op) {
        let (view, checkpoint) = (self.view, self.checkpoint.op);
        self.send(to, Message::RangeEvicted { view, nonce, oldest, checkpoint });
    }

    /// A read of the log has ended.
    pub(super) fn on_read(&mut self, request: ReadRequest, entry: Option<Entry>) {
        let ReadRequest { op, identity, purpose } = request;
        let (to, nonce) = match purpose {
            ReadPurpose::Apply => return self.on_read_to_apply(op, identity, entry),
            ReadPurpose::Repair { to, nonce } => (to, nonce),
        };
        let named = |entry: &Entry| identity == Identity::default() || entry.header.identity == identity;
        match entry.filter(|entry| entry.header.op == op && named(entry)) {
            Some(entry) => self.send_repair(to, nonce, entry),
            // Below the checkpoint the log may be gone; above it the entry is damaged.
            None if op <= self.checkpoint.op.max(self.slots.base().op) => {
                self.send_evicted(to, nonce, op.next())
            }
            None => {
                let slot = self.slots.get(op).filter(|slot| slot.identity == Some(identity));
                if slot.is_some_and(|slot| matches!(slot.body, Body::Stored)) {
                    mark!("served entry is damaged");
                    self.slots.damage(op, self.commit_min);
                }
                self.name_instead(to, nonce, Anchor { op, identity: Identity::default() });
            }
        }
    }
}
