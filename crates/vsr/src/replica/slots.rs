//! The log as the core knows it: which names are at which ops, which bodies are held, and how far all of it is durable.

use std::collections::{BTreeSet, VecDeque};

use laneway_wire::Op;

use crate::entry::{Durability, Entry, EntryBody};
use crate::event::LogNumber;
use crate::header::{Header, Identity};
use crate::message::Anchor;

/// Where the body of an entry is.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Not here, or damaged.
    Missing,
    /// In memory, and in the log or on its way there.
    Cached(EntryBody),
    /// In the log only.
    Stored,
}

/// One op.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// The name, where it is known.
    pub identity: Option<Identity>,
    /// The header, where it is known.
    pub header: Option<Header>,
    pub body: Body,
    /// The log change that wrote it; 0 when it was found at the start.
    pub number: LogNumber,
    /// Nothing at this op can have been acknowledged before the write was durable.
    pub fresh: bool,
    /// Something was here and is not readable.
    pub damaged: bool,
}

impl Slot {
    pub fn is_held(&self) -> bool {
        !matches!(self.body, Body::Missing)
    }
}

/// The ops from the one above `base` to the head.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    base: Anchor,
    slots: VecDeque<Slot>,
    cached_bytes: usize,
    /// Every body through here is held, and every entry names the one before it.
    held: Op,
    written: Op,
    synced: Op,
    /// Through here the log is the one of the current view: a chain of names leads down from an entry that the view
    /// decided.
    verified: Op,
    written_number: LogNumber,
    synced_number: LogNumber,
    /// The newest change among the slots that are forgotten.
    base_number: LogNumber,
    /// Ops at or below the held one whose bodies turned out to be unreadable.
    damaged: BTreeSet<Op>,
}

impl Slots {
    /// An empty log above `base`.
    pub fn new(base: Anchor) -> Slots {
        Slots {
            base,
            slots: VecDeque::new(),
            cached_bytes: 0,
            held: base.op,
            written: base.op,
            synced: base.op,
            verified: base.op,
            written_number: LogNumber(0),
            synced_number: LogNumber(0),
            base_number: LogNumber(0),
            damaged: BTreeSet::new(),
        }
    }

    pub fn base(&self) -> Anchor {
        self.base
    }

    pub fn head(&self) -> Op {
        Op(self.base.op.0 + self.slots.len() as u64)
    }

    pub fn held(&self) -> Op {
        self.held
    }

    pub fn written(&self) -> Op {
        self.written
    }

    pub fn synced(&self) -> Op {
        self.synced
    }

    pub fn verified(&self) -> Op {
        self.verified
    }

    pub fn numbers(&self) -> (LogNumber, LogNumber) {
        (self.written_number, self.synced_number)
    }

    /// Applied entries that cannot be given to others any more, lowest first.
    pub fn damaged(&self) -> impl Iterator<Item = Op> {
        self.damaged.iter().copied()
    }

    pub fn cached_bytes(&self) -> usize {
        self.cached_bytes
    }

    fn index(&self, op: Op) -> Option<usize> {
        let above = op.0.checked_sub(self.base.op.0 + 1)?;
        usize::try_from(above).ok().filter(|index| *index < self.slots.len())
    }

    pub fn get(&self, op: Op) -> Option<&Slot> {
        self.slots.get(self.index(op)?)
    }

    pub fn header(&self, op: Op) -> Option<&Header> {
        self.get(op)?.header.as_ref()
    }

    /// The name at an op, `base` included.
    pub fn identity(&self, op: Op) -> Option<Identity> {
        if op == self.base.op {
            return Some(self.base.identity);
        }
        self.get(op)?.identity
    }

    /// The place and name at an op; below the kept headers without the name, which then proves nothing.
    pub fn anchor_or_unnamed(&self, op: Op) -> Anchor {
        Anchor { op, identity: self.identity(op).unwrap_or_default() }
    }

    /// The entry at an op, when its body is in memory.
    pub fn entry(&self, op: Op) -> Option<Entry> {
        let slot = self.get(op)?;
        match (&slot.header, &slot.body) {
            (Some(header), Body::Cached(body)) => Some(Entry { header: *header, body: body.clone() }),
            _ => None,
        }
    }

    /// Whether the entry at an op is as durable as its class asks.
    pub fn is_durable(&self, op: Op) -> bool {
        if op <= self.base.op {
            return true;
        }
        let Some(slot) = self.get(op) else { return false };
        let reached = match slot.header.map(|header| header.durability) {
            Some(Durability::Replicated) => self.written_number,
            Some(Durability::Persisted) => self.synced_number,
            None => return false,
        };
        slot.is_held() && slot.number <= reached
    }

    /// Adds a slot that was found at the start.
    pub fn push_found(&mut self, identity: Option<Identity>, header: Option<Header>, present: bool) {
        let body = if present { Body::Stored } else { Body::Missing };
        let number = LogNumber(0);
        self.slots.push_back(Slot { identity, header, body, number, fresh: false, damaged: !present });
        self.advance();
    }

    /// Adds an entry at the head; its write has this number.
    pub fn append(&mut self, entry: &Entry, number: LogNumber) {
        assert!(entry.header.op == self.head().next(), "an entry goes to the head or into a hole");
        self.cached_bytes += entry.body.bytes();
        self.slots.push_back(Slot {
            identity: Some(entry.header.identity),
            header: Some(entry.header),
            body: Body::Cached(entry.body.clone()),
            number,
            fresh: true,
            damaged: false,
        });
        self.advance();
    }

    /// Puts a body into a hole; its write has this number.
    pub fn fill(&mut self, entry: &Entry, number: LogNumber) {
        let index = self.index(entry.header.op).expect("a hole is below the head");
        let slot = &mut self.slots[index];
        assert!(!slot.is_held() && slot.identity.is_none_or(|name| name == entry.header.identity));
        self.cached_bytes += entry.body.bytes();
        slot.identity = Some(entry.header.identity);
        slot.header = Some(entry.header);
        slot.body = Body::Cached(entry.body.clone());
        slot.number = number;
        slot.damaged = false;
        self.damaged.remove(&entry.header.op);
        self.name_below(entry.header.op, entry.header.parent);
        self.advance();
    }

    /// Notes the name of the entry below `op`, when nothing is known about it.
    pub fn name_below(&mut self, op: Op, parent: Identity) {
        if let Some(index) = op.0.checked_sub(1).and_then(|below| self.index(Op(below))) {
            let slot = &mut self.slots[index];
            if slot.identity.is_none() {
                slot.identity = Some(parent);
            }
        }
    }

    /// Keeps the body of a stored entry in memory.
    pub fn cache(&mut self, op: Op, body: EntryBody) {
        if let Some(index) = self.index(op)
            && matches!(self.slots[index].body, Body::Stored)
        {
            self.cached_bytes += body.bytes();
            self.slots[index].body = Body::Cached(body);
        }
    }

    /// Lets the memory of a body go.
    fn uncache(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let Body::Cached(body) = &slot.body {
            self.cached_bytes -= body.bytes();
            slot.body = Body::Stored;
        }
    }

    /// The body at an op cannot be read after all. Ops through `floor` are applied and may miss their bodies.
    pub fn damage(&mut self, op: Op, floor: Op) {
        let Some(index) = self.index(op) else { return };
        self.uncache(index);
        let slot = &mut self.slots[index];
        slot.body = Body::Missing;
        slot.damaged = true;
        match op > floor {
            true => self.clamp(Op(op.0 - 1)),
            false => _ = self.damaged.insert(op),
        }
    }

    /// Drops everything above an op.
    pub fn cut(&mut self, to: Op) {
        while self.head() > to && !self.slots.is_empty() {
            self.uncache(self.slots.len() - 1);
            self.slots.pop_back();
        }
        self.verified = self.verified.min(to);
        self.clamp(to);
    }

    fn clamp(&mut self, to: Op) {
        self.held = self.held.min(to);
        self.written = self.written.min(to);
        self.synced = self.synced.min(to);
    }

    /// The log through `op` is the one of the current view.
    pub fn verify(&mut self, op: Op) {
        assert!(op <= self.head());
        self.verified = self.verified.max(op);
    }

    /// A new view's log is adopted: only what is applied is known to be part of it.
    pub fn doubt(&mut self, applied: Op) {
        self.verified = self.verified.min(applied);
    }

    /// `op` is applied: its body leaves the memory, and headers more than `keep` below it are forgotten.
    pub fn applied(&mut self, op: Op, keep: u64) {
        if let Some(index) = self.index(op) {
            self.uncache(index);
        }
        while self.base.op.0 + keep < op.0 && !self.slots.is_empty() {
            self.uncache(0);
            let slot = self.slots.pop_front().expect("checked");
            self.base_number = self.base_number.max(slot.number);
            let op = self.base.op.next();
            self.damaged.remove(&op);
            self.base = Anchor { op, identity: slot.identity.expect("applied entries have names") };
        }
    }

    /// A checkpoint takes the place of everything through its op. Entries above stay when they go on from it.
    pub fn install(&mut self, checkpoint: Anchor) {
        let joins = self.identity(checkpoint.op) == Some(checkpoint.identity);
        if joins {
            while self.base.op < checkpoint.op {
                self.uncache(0);
                if let Some(slot) = self.slots.pop_front() {
                    self.base_number = self.base_number.max(slot.number);
                }
                self.base.op = self.base.op.next();
            }
            self.damaged = self.damaged.split_off(&checkpoint.op.next());
            self.base = checkpoint;
        } else {
            let numbers = self.numbers();
            *self = Slots::new(checkpoint);
            (self.written_number, self.synced_number) = numbers;
        }
        let reach = |op: Op| op.max(checkpoint.op);
        self.held = reach(self.held);
        self.written = reach(self.written);
        self.synced = reach(self.synced);
        self.verified = reach(self.verified);
        self.advance();
    }

    pub fn set_written(&mut self, number: LogNumber) {
        self.written_number = self.written_number.max(number);
        self.advance();
    }

    pub fn set_synced(&mut self, number: LogNumber) {
        self.synced_number = self.synced_number.max(number);
        self.set_written(number);
    }

    /// Everything that is forgotten is flushed: a shorthand for a driver that names ops instead of changes.
    pub fn sync_applied(&mut self) {
        self.set_synced(self.base_number);
    }

    fn advance(&mut self) {
        while let Some(slot) = self.get(self.held.next()) {
            let chained = slot.header.is_some_and(|header| Some(header.parent) == self.identity(self.held));
            if !slot.is_held() || !chained {
                break;
            }
            self.held = self.held.next();
        }
        let done = |from: Op, number: LogNumber| {
            // Forgotten slots have lost their numbers but the newest.
            let mut op = if number >= self.base_number { from.max(self.base.op) } else { from };
            while op < self.held && self.get(op.next()).is_some_and(|slot| slot.number <= number) {
                op = op.next();
            }
            op
        };
        (self.written, self.synced) =
            (done(self.written, self.written_number), done(self.synced, self.synced_number));
    }
}
