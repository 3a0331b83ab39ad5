//! The metadata change log: a bounded history of what committed ops did to resources and sessions.
//!
//! It is a part of the state like every other: the same ops give the same log on every node, and snapshots hold it.
//! Records are kept as the bytes that clients get. Two histories are bounded apart, so that busy sessions push no change
//! of a resource out. Source: resources, section 20.
//!
//! Reading order: this file (what is kept), [`notes`] (what ops write), [`page`] (a page of it), [`scan`] (a page of the
//! current state).

use std::sync::Arc;

use bytes::BytesMut;
use imbl::Vector;
use laneway_wire::reply::ChangeBody;
use laneway_wire::request::{ChangeCursor, ChangeGroup};
use laneway_wire::{Micros, Op, UserId};
use xxhash_rust::xxh3::xxh3_128;

use crate::command::{Command, RequestIdentity};
use crate::invariants::Broken;
use crate::limits;

pub mod notes;
pub mod page;
pub mod records;
mod scan;

/// What separates two records' places: op, and place among the records of the op.
pub(crate) type Place = (Op, u32);

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeEntry {
    pub(crate) op: Op,
    pub(crate) ordinal: u32,
    /// Of the op: see [`ChangeLog::seal`].
    pub(crate) checksum: u128,
    pub(crate) timestamp: Micros,
    pub(crate) actor: Option<UserId>,
    pub(crate) group: ChangeGroup,
    pub(crate) kind: u8,
    pub(crate) body: Box<[u8]>,
}

impl ChangeEntry {
    fn place(&self) -> Place {
        (self.op, self.ordinal)
    }
}

/// The last record that a history gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) op: Op,
    pub(crate) ordinal: u32,
    pub(crate) timestamp: Micros,
}

impl Evicted {
    fn place(&self) -> Place {
        (self.op, self.ordinal)
    }
}

/// The records of one class, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    records: Vector<Arc<ChangeEntry>>,
    bytes: usize,
    evicted: Option<Evicted>,
}

/// A record of the op that is being applied.
#[derive(Clone, Debug)]
struct Noted {
    group: ChangeGroup,
    kind: u8,
    body: Box<[u8]>,
}

/// The change log.
#[derive(Clone, Debug)]
pub struct ChangeLog {
    log_id: u128,
    /// Checksum of the last applied op.
    checksum: u128,
    records_max: u32,
    resources: History,
    activity: History,
    /// What the op that is being applied did so far. Empty between ops.
    noted: Vec<Noted>,
}

/// Whether a group belongs to the class of sessions and members.
pub(crate) fn is_activity(group: ChangeGroup) -> bool {
    matches!(group, ChangeGroup::Members | ChangeGroup::Sessions)
}

impl ChangeLog {
    /// An empty log. `records_max`: most records of each class.
    pub(crate) fn new(records_max: u32) -> Self {
        assert!(limits::CHANGES_MAX.contains(&records_max), "checked where the number came in");
        Self {
            log_id: 0,
            checksum: 0,
            records_max,
            resources: History::default(),
            activity: History::default(),
            noted: Vec::new(),
        }
    }

    /// Which history this is: differs between data directories. None before the first op.
    pub fn log_id(&self) -> Option<u128> {
        (self.log_id != 0).then_some(self.log_id)
    }

    /// Most records of each class.
    pub fn records_max(&self) -> u32 {
        self.records_max
    }

    /// Writes down what the op that is being applied did.
    pub(crate) fn note(&mut self, body: &ChangeBody<'_>) {
        let (group, kind) = body.kind();
        let mut bytes = BytesMut::new();
        body.put(&mut bytes);
        self.noted.push(Noted { group, kind, body: Box::from(&bytes[..]) });
    }

    /// Whether the op that is being applied did anything so far.
    pub(crate) fn has_noted(&self) -> bool {
        !self.noted.is_empty()
    }

    /// Ends an op: gives what it did its place. Each op's checksum covers the one before it, so that two histories with
    /// one beginning differ from where they part.
    pub(crate) fn seal(&mut self, op: Op, timestamp: Micros, command: &Command) {
        let mut bytes = Vec::with_capacity(96);
        bytes.extend_from_slice(&self.checksum.to_le_bytes());
        bytes.extend_from_slice(&op.0.to_le_bytes());
        bytes.extend_from_slice(&timestamp.0.to_le_bytes());
        let actor = put_identity(&mut bytes, command);
        self.checksum = xxh3_128(&bytes);
        if self.log_id == 0 {
            self.log_id = self.checksum;
        }
        let checksum = self.checksum;
        for (noted, ordinal) in std::mem::take(&mut self.noted).into_iter().zip(0..) {
            let Noted { group, kind, body } = noted;
            let entry = ChangeEntry { op, ordinal, checksum, timestamp, actor, group, kind, body };
            let records_max = self.records_max as usize;
            self.history_mut(is_activity(group)).push(entry, records_max);
        }
    }

    /// The place of the newest record.
    pub(crate) fn head(&self) -> ChangeCursor {
        let newest =
            [&self.resources, &self.activity].into_iter().filter_map(|history| history.records.last());
        match newest.max_by_key(|entry| entry.place()) {
            Some(entry) => self.cursor(entry),
            None => self.beginning(),
        }
    }

    /// The place before every record.
    pub(crate) fn beginning(&self) -> ChangeCursor {
        ChangeCursor { log_id: self.log_id, ..ChangeCursor::default() }
    }

    pub(crate) fn cursor(&self, entry: &ChangeEntry) -> ChangeCursor {
        let ChangeEntry { op, ordinal, checksum, .. } = *entry;
        ChangeCursor { log_id: self.log_id, op, checksum, ordinal }
    }

    /// What was given up last of the classes that the groups belong to: the newest of it.
    pub(crate) fn evicted(&self, groups_mask: u8) -> Option<Evicted> {
        let activity = ChangeGroup::Members.bit() | ChangeGroup::Sessions.bit();
        let of = |asked: bool, history: &History| history.evicted.filter(|_| asked);
        let resources = of(groups_mask & !activity != 0, &self.resources);
        let activity = of(groups_mask & activity != 0, &self.activity);
        resources.into_iter().chain(activity).max_by_key(Evicted::place)
    }

    /// Whether a place in this history is one: a record stands there, or has stood there as far as anybody can tell.
    pub(crate) fn knows(&self, cursor: &ChangeCursor) -> bool {
        let place = (cursor.op, cursor.ordinal);
        cursor.op == Op(0)
            || [&self.resources, &self.activity].into_iter().any(|history| {
                history.evicted.is_some_and(|evicted| place <= evicted.place())
                    || history.find(place).is_some_and(|entry| entry.checksum == cursor.checksum)
            })
    }

    /// The records behind a place, of both classes, in their order.
    pub(crate) fn after(&self, place: Place) -> impl Iterator<Item = &ChangeEntry> {
        let mut resources = self.resources.after(place).peekable();
        let mut activity = self.activity.after(place).peekable();
        std::iter::from_fn(move || {
            let first = match (resources.peek(), activity.peek()) {
                (Some(left), Some(right)) => left.place() < right.place(),
                (left, _) => left.is_some(),
            };
            if first { resources.next() } else { activity.next() }
        })
    }

    /// The numbers that hold of every log, in time that does not depend on its size.
    pub(crate) fn check(&self, applied: Op) -> Result<(), Broken> {
        let holds = |what, condition| if condition { Ok(()) } else { Err(Broken(what)) };
        holds("nothing noted between ops", self.noted.is_empty())?;
        holds("a log has an id from its first op on", (self.log_id != 0) == (applied != Op(0)))?;
        for history in [&self.resources, &self.activity] {
            holds("change records limit", history.records.len() <= self.records_max as usize)?;
            let (first, last) = (history.records.front(), history.records.last());
            holds("change records are applied", last.is_none_or(|last| last.op <= applied))?;
            let evicted = history.evicted.map_or((Op(0), 0), |evicted| evicted.place());
            holds("change records follow the evicted", first.is_none_or(|first| evicted < first.place()))?;
        }
        Ok(())
    }

    fn history_mut(&mut self, activity: bool) -> &mut History {
        if activity { &mut self.activity } else { &mut self.resources }
    }
}

impl History {
    fn push(&mut self, entry: ChangeEntry, records_max: usize) {
        self.bytes += entry.body.len();
        self.records.push_back(Arc::new(entry));
        while self.records.len() > records_max || self.bytes > limits::CHANGE_BYTES_MAX {
            let Some(oldest) = self.records.pop_front() else { break };
            self.bytes -= oldest.body.len();
            let ChangeEntry { op, ordinal, timestamp, .. } = *oldest;
            self.evicted = Some(Evicted { op, ordinal, timestamp });
        }
    }

    fn find(&self, place: Place) -> Option<&Arc<ChangeEntry>> {
        let index = self.records.binary_search_by(|entry| entry.place().cmp(&place)).ok()?;
        self.records.get(index)
    }

    fn after(&self, place: Place) -> impl Iterator<Item = &ChangeEntry> {
        let start = match self.records.binary_search_by(|entry| entry.place().cmp(&place)) {
            Ok(index) => index + 1,
            Err(index) => index,
        };
        (start..self.records.len()).filter_map(|index| self.records.get(index).map(Arc::as_ref))
    }
}

/// Appends what tells this command from another one at the same op and time. Gives who asked for it.
fn put_identity(bytes: &mut Vec<u8>, command: &Command) -> Option<UserId> {
    match command {
        Command::CreateRoot(root) => {
            // The hash is salted, and so no two data directories begin alike.
            bytes.extend_from_slice(root.username.as_bytes());
            bytes.extend_from_slice(root.password_hash.phc().as_bytes());
            None
        }
        Command::Register(register) => {
            bytes.extend_from_slice(&register.client.0.to_le_bytes());
            Some(register.user)
        }
        Command::Request(identity, _) => {
            let RequestIdentity { client, session, request, request_checksum, user, .. } = *identity;
            bytes.extend_from_slice(&client.0.to_le_bytes());
            bytes.extend_from_slice(&session.0.to_le_bytes());
            bytes.extend_from_slice(&request.0.to_le_bytes());
            bytes.extend_from_slice(&request_checksum.to_le_bytes());
            Some(user)
        }
        _ => None,
    }
}
