//! The log contract in its smallest form: for tests of the core, of drivers, and for exhaustive exploration.

use std::collections::{BTreeMap, VecDeque};

use laneway_wire::{LaneId, Op};

use super::{Log, LogCompletion};
use crate::entry::Entry;
use crate::event::{LogNumber, ReadRequest};

/// Logs in memory. A change completes when the test says so.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    lanes: BTreeMap<LaneId, Lane>,
    completions: VecDeque<(LaneId, LogCompletion)>,
    sync_requested: bool,
    failed: bool,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    /// As at the start of this run.
    base: BTreeMap<Op, Entry>,
    /// As after every change.
    newest: BTreeMap<Op, Entry>,
    changes: Vec<Change>,
    written: usize,
    synced: usize,
    trimmed: Op,
}

#[derive(Clone, Debug)]
enum Change {
    Append(Entry),
    Truncate(Op),
}

/// What a crash takes from a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process was killed: what the kernel had taken stays.
    Killed,
    /// The power failed: what was flushed stays.
    PowerLoss,
}

impl MemoryLog {
    /// Completes every write that is on its way.
    pub fn complete_writes(&mut self) {
        if self.failed {
            return;
        }
        for (lane, log) in &mut self.lanes {
            if log.written < log.changes.len() {
                log.written = log.changes.len();
                let number = LogNumber(log.written as u64);
                self.completions.push_back((*lane, LogCompletion::Written(number)));
            }
        }
    }

    /// Flushes what was written.
    pub fn complete_syncs(&mut self) {
        if self.failed {
            return;
        }
        self.sync_requested = false;
        for (lane, log) in &mut self.lanes {
            if log.synced < log.written {
                log.synced = log.written;
                self.completions.push_back((*lane, LogCompletion::Synced(LogNumber(log.synced as u64))));
            }
        }
    }

    /// Whether somebody asked for a flush since the last one.
    pub fn sync_requested(&self) -> bool {
        self.sync_requested
    }

    /// Takes no more changes.
    pub fn fail(&mut self) {
        self.failed = true;
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        self.completions.extend(lanes.into_iter().map(|lane| (lane, LogCompletion::Failed)));
    }

    /// The process is gone, and with it what had not arrived. Numbers start again at 1.
    pub fn crash(&mut self, crash: Crash) {
        self.completions.clear();
        self.sync_requested = false;
        self.failed = false;
        for log in self.lanes.values_mut() {
            let kept = match crash {
                Crash::Killed => log.written,
                Crash::PowerLoss => log.synced,
            };
            let entries = log.entries_after(kept).split_off(&log.trimmed);
            *log = Lane { base: entries.clone(), newest: entries, trimmed: log.trimmed, ..Lane::default() };
        }
    }

    /// The entries of a lane as after every change, in the order of their ops.
    pub fn entries(&self, lane: LaneId) -> impl Iterator<Item = &Entry> {
        self.lanes.get(&lane).into_iter().flat_map(|log| log.newest.values())
    }
}

impl Lane {
    fn change(&mut self, number: LogNumber, change: Change) {
        self.changes.push(change);
        assert_eq!(number.0, self.changes.len() as u64, "changes are numbered without a gap");
        apply(&mut self.newest, self.changes.last().expect("it was just pushed"));
    }

    /// What is there after so many changes of this run.
    fn entries_after(&self, count: usize) -> BTreeMap<Op, Entry> {
        let mut entries = self.base.clone();
        for change in &self.changes[..count] {
            apply(&mut entries, change);
        }
        entries
    }
}

impl Log for MemoryLog {
    fn append(&mut self, lane: LaneId, number: LogNumber, entry: Entry) {
        self.lanes.entry(lane).or_default().change(number, Change::Append(entry));
    }

    fn truncate(&mut self, lane: LaneId, number: LogNumber, above: Op) {
        self.lanes.entry(lane).or_default().change(number, Change::Truncate(above));
    }

    fn request_sync(&mut self) {
        self.sync_requested = true;
    }

    fn read(&mut self, lane: LaneId, request: ReadRequest) {
        let found = self.lanes.get(&lane).and_then(|log| log.newest.get(&request.op));
        let named = |entry: &&Entry| request.identity.0 == 0 || entry.header.identity == request.identity;
        let entry = found.filter(named).cloned().map(Box::new);
        self.completions.push_back((lane, LogCompletion::Read { request, entry }));
    }

    fn trim(&mut self, lane: LaneId, below: Op) {
        let log = self.lanes.entry(lane).or_default();
        log.trimmed = log.trimmed.max(below);
        log.newest = log.newest.split_off(&below);
        log.base = log.base.split_off(&below);
    }

    fn poll_completion(&mut self) -> Option<(LaneId, LogCompletion)> {
        self.completions.pop_front()
    }
}

fn apply(entries: &mut BTreeMap<Op, Entry>, change: &Change) {
    match change {
        Change::Append(entry) => {
            entries.insert(entry.op(), entry.clone());
        }
        Change::Truncate(above) => {
            entries.split_off(&above.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Identity;
    use crate::log::LogChecker;
    use crate::log::checker::tests::{entry, read};

    const LANE: LaneId = LaneId(4);

    fn ops(log: &LogChecker<MemoryLog>) -> Vec<u64> {
        log.inner().entries(LANE).map(|entry| entry.op().0).collect()
    }

    fn three_written_two_synced() -> LogChecker<MemoryLog> {
        let mut log = LogChecker::new(MemoryLog::default());
        for op in 1..=2 {
            log.append(LANE, LogNumber(op), entry(op, 0));
        }
        log.inner_mut().complete_writes();
        log.inner_mut().complete_syncs();
        log.append(LANE, LogNumber(3), entry(3, 0));
        log.inner_mut().complete_writes();
        log.append(LANE, LogNumber(4), entry(4, 0));
        while log.poll_completion().is_some() {}
        log
    }

    #[test]
    fn a_killed_process_keeps_what_was_written_a_power_loss_what_was_flushed() {
        let mut log = three_written_two_synced();
        log.inner_mut().crash(Crash::Killed);
        assert_eq!(ops(&log), [1, 2, 3]);
        let mut log = three_written_two_synced();
        log.inner_mut().crash(Crash::PowerLoss);
        assert_eq!(ops(&log), [1, 2]);
    }

    #[test]
    fn a_truncation_and_what_replaces_it_stay_in_order() {
        let mut log = three_written_two_synced();
        log.truncate(LANE, LogNumber(5), Op(2));
        log.append(LANE, LogNumber(6), entry(3, 9));
        log.inner_mut().complete_writes();
        log.read(LANE, read(3, entry(3, 0).header.identity));
        log.read(LANE, read(3, Identity(0)));
        log.read(LANE, read(4, Identity(0)));
        let mut answers = Vec::new();
        while let Some((_, completion)) = log.poll_completion() {
            if let LogCompletion::Read { entry, .. } = completion {
                answers.push(entry.map(|entry| *entry));
            }
        }
        assert_eq!(answers, [None, Some(entry(3, 9)), None]);
        assert_eq!(ops(&log), [1, 2, 3]);
    }

    #[test]
    fn what_is_trimmed_is_gone_and_the_rest_is_there() {
        let mut log = three_written_two_synced();
        log.trim(LANE, Op(3));
        assert_eq!(ops(&log), [3, 4]);
        log.inner_mut().crash(Crash::Killed);
        assert_eq!(ops(&log), [3]);
    }

    #[test]
    fn a_failed_log_completes_nothing_and_still_reads() {
        let mut log = three_written_two_synced();
        log.inner_mut().fail();
        log.inner_mut().complete_writes();
        assert_eq!(log.poll_completion(), Some((LANE, LogCompletion::Failed)));
        assert_eq!(log.poll_completion(), None);
        log.read(LANE, read(2, Identity(0)));
        assert!(matches!(log.poll_completion(), Some((_, LogCompletion::Read { entry: Some(_), .. }))));
    }
}
