//! Watches a log keep its contract, from outside. Costs a copy of the headers, so it is for tests and the simulator.

use std::collections::BTreeMap;

use laneway_wire::{LaneId, Op};

use super::{Log, LogCompletion};
use crate::entry::Entry;
use crate::event::{LogNumber, ReadRequest};
use crate::header::Identity;

/// A log and what it must know. Panics at the first breach, because a log that breaks its contract loses data.
#[derive(Clone, Debug)]
pub struct LogChecker<L> {
    inner: L,
    lanes: BTreeMap<LaneId, Watched>,
}

#[derive(Clone, Debug, Default)]
struct Watched {
    asked: LogNumber,
    written: LogNumber,
    synced: LogNumber,
    failed: bool,
    /// Names of the entries as after every change. `None` where this run has not written.
    newest: BTreeMap<Op, Identity>,
    /// Everything above was dropped in this run and not written again.
    cut: Option<Op>,
    trimmed: Op,
    reads: Vec<(ReadRequest, Expected)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Written before this run: it may be there.
    Unknown,
    /// Not there, or another one than was named.
    Nothing,
    /// This one, unless the disk damaged it.
    This(Identity),
}

impl<L: Log> LogChecker<L> {
    /// Watches a log from the start of a run.
    pub fn new(inner: L) -> LogChecker<L> {
        LogChecker { inner, lanes: BTreeMap::new() }
    }

    /// The log.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// The log, to let it work or fail. Changes and reads go through the checker.
    pub fn inner_mut(&mut self) -> &mut L {
        &mut self.inner
    }

    fn change(&mut self, lane: LaneId, number: LogNumber) -> &mut Watched {
        let watched = self.lanes.entry(lane).or_default();
        assert_eq!(number.0, watched.asked.0 + 1, "lane {lane}: changes are numbered without a gap");
        watched.asked = number;
        watched
    }
}

impl Watched {
    fn expected(&self, request: &ReadRequest) -> Expected {
        let named = |identity: &Identity| request.identity.0 == 0 || *identity == request.identity;
        match self.newest.get(&request.op) {
            Some(identity) if named(identity) => Expected::This(*identity),
            Some(_) => Expected::Nothing,
            None if self.cut.is_some_and(|above| request.op > above) => Expected::Nothing,
            None => Expected::Unknown,
        }
    }

    fn check_read(&mut self, lane: LaneId, request: &ReadRequest, entry: Option<&Entry>) {
        let asked = self.reads.iter().position(|(asked, _)| asked == request);
        let (_, expected) =
            self.reads.remove(asked.unwrap_or_else(|| panic!("lane {lane}: nobody asked {request:?}")));
        let Some(entry) = entry else { return };
        assert_eq!(entry.op(), request.op, "lane {lane}: a read gave another op");
        assert!(entry.header.names(&entry.body), "lane {lane}: a read gave damaged bytes at {}", request.op);
        let named = request.identity.0 == 0 || entry.header.identity == request.identity;
        assert!(named, "lane {lane}: a read gave another entry than was named at {}", request.op);
        match expected {
            Expected::Unknown => {}
            Expected::Nothing => {
                panic!("lane {lane}: a read gave a replaced or dropped entry at {}", request.op)
            }
            Expected::This(identity) => {
                assert_eq!(entry.header.identity, identity, "lane {lane}: a read gave a replaced entry")
            }
        }
    }

    fn check(&mut self, lane: LaneId, completion: &LogCompletion) {
        match completion {
            LogCompletion::Written(number) => {
                assert!(!self.failed, "lane {lane}: a write completed after the log failed");
                assert!(
                    *number > self.written && *number <= self.asked,
                    "lane {lane}: {number:?} written, {self:?}"
                );
                self.written = *number;
            }
            LogCompletion::Synced(number) => {
                assert!(!self.failed, "lane {lane}: a flush completed after the log failed");
                assert!(
                    *number > self.synced && *number <= self.written,
                    "lane {lane}: {number:?} synced, {self:?}"
                );
                self.synced = *number;
            }
            LogCompletion::Read { request, entry } => self.check_read(lane, request, entry.as_deref()),
            LogCompletion::Failed => self.failed = true,
        }
    }
}

impl<L: Log> Log for LogChecker<L> {
    fn append(&mut self, lane: LaneId, number: LogNumber, entry: Entry) {
        let watched = self.change(lane, number);
        watched.newest.insert(entry.op(), entry.header.identity);
        self.inner.append(lane, number, entry);
    }

    fn truncate(&mut self, lane: LaneId, number: LogNumber, above: Op) {
        let watched = self.change(lane, number);
        watched.newest.split_off(&above.next());
        watched.cut = Some(watched.cut.map_or(above, |before| before.min(above)));
        self.inner.truncate(lane, number, above);
    }

    fn request_sync(&mut self) {
        self.inner.request_sync();
    }

    fn read(&mut self, lane: LaneId, request: ReadRequest) {
        let watched = self.lanes.entry(lane).or_default();
        assert!(request.op >= watched.trimmed, "lane {lane}: op {} was given up", request.op);
        let expected = watched.expected(&request);
        watched.reads.push((request, expected));
        self.inner.read(lane, request);
    }

    fn trim(&mut self, lane: LaneId, below: Op) {
        let watched = self.lanes.entry(lane).or_default();
        watched.trimmed = watched.trimmed.max(below);
        watched.newest = watched.newest.split_off(&below);
        self.inner.trim(lane, below);
    }

    fn poll_completion(&mut self) -> Option<(LaneId, LogCompletion)> {
        let (lane, completion) = self.inner.poll_completion()?;
        self.lanes.entry(lane).or_default().check(lane, &completion);
        Some((lane, completion))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::VecDeque;

    use laneway_wire::{Micros, ReplicaId};

    use super::*;
    use crate::entry::{Durability, EntryBody, View};
    use crate::event::ReadPurpose;
    use crate::header::{ClusterId, Draft, Epoch, Header};

    pub(crate) fn entry(op: u64, salt: u8) -> Entry {
        let body = EntryBody::operation(vec![salt, op as u8]);
        let draft = Draft {
            op: Op(op),
            parent: Identity(1),
            view: View(0),
            commit: Op(0),
            timestamp: Micros(op),
            epoch: Epoch(0),
            primary: ReplicaId(0),
            durability: Durability::Persisted,
        };
        Entry { header: Header::seal(ClusterId(1), LaneId(4), draft, &body), body }
    }

    pub(crate) fn read(op: u64, identity: Identity) -> ReadRequest {
        ReadRequest { op: Op(op), identity, purpose: ReadPurpose::Apply }
    }

    /// A log that completes what it is told to complete, right or wrong.
    #[derive(Default)]
    struct Scripted(VecDeque<LogCompletion>);

    impl Log for Scripted {
        fn append(&mut self, _: LaneId, _: LogNumber, _: Entry) {}
        fn truncate(&mut self, _: LaneId, _: LogNumber, _: Op) {}
        fn request_sync(&mut self) {}
        fn read(&mut self, _: LaneId, _: ReadRequest) {}
        fn trim(&mut self, _: LaneId, _: Op) {}
        fn poll_completion(&mut self) -> Option<(LaneId, LogCompletion)> {
            self.0.pop_front().map(|completion| (LaneId(4), completion))
        }
    }

    fn run(completions: Vec<LogCompletion>) {
        let mut log = LogChecker::new(Scripted(completions.into()));
        for op in 1..=3 {
            log.append(LaneId(4), LogNumber(op), entry(op, 0));
        }
        log.truncate(LaneId(4), LogNumber(4), Op(2));
        log.append(LaneId(4), LogNumber(5), entry(2, 7));
        for op in 1..=3 {
            log.read(LaneId(4), read(op, Identity(0)));
        }
        while log.poll_completion().is_some() {}
    }

    fn answer(op: u64, salt: u8) -> LogCompletion {
        LogCompletion::Read { request: read(op, Identity(0)), entry: Some(Box::new(entry(op, salt))) }
    }

    #[test]
    fn a_log_that_keeps_its_contract_passes() {
        let written = |number| LogCompletion::Written(LogNumber(number));
        let synced = |number| LogCompletion::Synced(LogNumber(number));
        run(vec![
            written(2),
            synced(1),
            answer(2, 7),
            answer(1, 0),
            written(5),
            synced(5),
            LogCompletion::Failed,
        ]);
        run(vec![LogCompletion::Read { request: read(3, Identity(0)), entry: None }]);
    }

    macro_rules! breaches {
        ($($name:ident: $completions:expr, $words:literal;)*) => {$(
            #[test]
            #[should_panic(expected = $words)]
            fn $name() {
                run($completions);
            }
        )*};
    }

    breaches! {
        a_write_nobody_asked_for: vec![LogCompletion::Written(LogNumber(6))], "written";
        a_write_that_goes_back:
            vec![LogCompletion::Written(LogNumber(3)), LogCompletion::Written(LogNumber(2))], "written";
        a_flush_of_what_is_not_written: vec![LogCompletion::Synced(LogNumber(1))], "synced";
        a_write_after_the_failure:
            vec![LogCompletion::Failed, LogCompletion::Written(LogNumber(1))], "after the log failed";
        a_dropped_entry_comes_back: vec![answer(3, 0)], "replaced or dropped";
        a_replaced_entry_comes_back: vec![answer(2, 0)], "a replaced entry";
        an_answer_nobody_asked_for: vec![answer(1, 0), answer(1, 0)], "nobody asked";
        damaged_bytes: vec![{
            let mut damaged = entry(1, 0);
            damaged.body.prefix = "other".into();
            LogCompletion::Read { request: read(1, Identity(0)), entry: Some(Box::new(damaged)) }
        }], "damaged bytes";
    }
}
