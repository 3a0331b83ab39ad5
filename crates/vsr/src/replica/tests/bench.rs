//! One replica of three, with the other two and the disk played by the test.

use std::collections::BTreeMap;

use laneway_wire::{Micros, Nanos, Op, ReplicaId};

use super::cluster::{CLUSTER, LANE, roster};
use crate::config::{Config, Timing};
use crate::entry::{Durability, Entry, EntryBody, View};
use crate::event::{DurableState, Effect, Event, LogNumber, SuperblockNumber};
use crate::header::{Draft, Epoch, Header, Identity};
use crate::message::{Anchor, Message, Progress, StartView};
use crate::recovery::{self, Found, FoundKind, LogScan, Tail, Witness};
use crate::replica::{Replica, Restored};
use crate::superblock::Promise;
use crate::vote::{CheckpointId, Held, LogTrust, Slot, Vote};

pub struct Bench {
    pub replica: Replica,
    pub now: Nanos,
    pub sent: Vec<(ReplicaId, Message)>,
    pub states: Vec<(SuperblockNumber, DurableState)>,
    pub applied: Vec<Op>,
    pub log: BTreeMap<Op, Entry>,
    pub written: LogNumber,
    pub truncated: Vec<Op>,
    pub others: Vec<Effect>,
    /// Whether writes finish at once.
    pub log_works: bool,
    pub superblock_works: bool,
}

pub fn config(replica: u8) -> Config {
    Config {
        cluster: CLUSTER,
        lane: LANE,
        replica: ReplicaId(replica),
        roster: roster(3),
        timing: Timing::DEFAULT,
        seed: 7,
    }
}

pub fn root() -> CheckpointId {
    CheckpointId { op: Op(0), identity: Identity::root(CLUSTER, LANE) }
}

/// Entries from op 1 on; those from `fork` on are made in view 1 and have other names.
pub fn entries(count: u64, fork: u64) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for op in 1..=count {
        entries.push(entry_after(entries.last(), u32::from(op >= fork)));
    }
    entries
}

pub fn entry_after(before: Option<&Entry>, view: u32) -> Entry {
    let parent = before.map_or(root().identity, |entry| entry.header.identity);
    let op = before.map_or(Op(1), |entry| entry.op().next());
    let body = EntryBody::operation(vec![op.0 as u8, view as u8]);
    let draft = Draft {
        op,
        parent,
        view: View(view),
        commit: Op(0),
        timestamp: Micros(op.0),
        epoch: Epoch(0),
        primary: ReplicaId((view % 3) as u8),
        durability: Durability::Persisted,
    };
    Entry { header: Header::seal(CLUSTER, LANE, draft, &body), body }
}

pub fn anchor(entry: &Entry) -> Anchor {
    Anchor { op: entry.op(), identity: entry.header.identity }
}

pub fn progress(entry: &Entry) -> Progress {
    Progress { received: anchor(entry), persisted: anchor(entry), held: entry.op(), checkpoint: Op(0) }
}

pub fn prepare(view: u32, commit: u64, entry: &Entry) -> Message {
    Message::Prepare { view: View(view), commit: Op(commit), checkpoint: Op(0), entry: entry.clone() }
}

pub fn heartbeat(view: u32, sequence: u64, commit: u64) -> Message {
    Message::Heartbeat {
        view: View(view),
        sequence,
        sent_at: Nanos(0),
        commit: Op(commit),
        op_head: Op(0),
        checkpoint: Op(0),
        checkpoint_quorum: Op(0),
    }
}

pub fn suspicion(target: u32) -> Message {
    Message::StartViewChange { view: View(0), target: View(target), commit_max: Op(0) }
}

/// A vote for `view` of a replica that holds these entries.
pub fn vote(view: u32, log_view: u32, commit: u64, entries: &[Entry]) -> Message {
    let held = entries.iter().rev().filter(|entry| entry.op().0 >= commit.max(1));
    Message::DoViewChange(Box::new(Vote {
        view: View(view),
        log_view: View(log_view),
        op_head: entries.last().map_or(Op(0), Entry::op),
        commit_max: Op(commit),
        checkpoint: root(),
        trust: LogTrust::Trusted,
        syncing: false,
        slots: held.map(|entry| Slot { held: Held::Present(entry.header), nack: false }).collect(),
    }))
}

pub fn start_view(view: u32, commit: u64, entries: &[Entry], nonce: Option<crate::Nonce>) -> Message {
    let headers: Vec<Header> = entries
        .iter()
        .rev()
        .map(|entry| entry.header)
        .filter(|header| header.op.0 >= commit.max(1))
        .collect();
    Message::StartView(Box::new(StartView {
        view: View(view),
        op_head: entries.last().map_or(Op(0), Entry::op),
        commit_max: Op(commit),
        checkpoint: root(),
        headers,
        nonce,
    }))
}

/// What a restart finds.
pub struct Found0<'a> {
    pub view: u32,
    pub log_view: u32,
    pub commit: u64,
    pub promise: Promise,
    pub entries: &'a [Entry],
    pub tail: Tail,
    pub witness: Witness,
}

impl Bench {
    pub fn fresh(replica: u8) -> Bench {
        let now = Nanos(1_000_000_000);
        Bench::around(Replica::fresh(config(replica), now), now, &[])
    }

    /// A backup or primary of view 0 that holds these entries; everything through `commit` is applied.
    pub fn holding(replica: u8, commit: u64, entries: &[Entry]) -> Bench {
        assert!(replica != 0);
        let mut bench = Bench::fresh(replica);
        for entry in entries {
            bench.message(0, prepare(0, 0, entry));
        }
        bench.message(0, heartbeat(0, 1, commit));
        bench.sent.clear();
        bench
    }

    pub fn restart(replica: u8, found: Found0<'_>) -> Bench {
        let now = Nanos(1_000_000_000);
        let Found0 { view, log_view, commit, promise, entries, tail, witness } = found;
        let scan = LogScan {
            found: entries
                .iter()
                .enumerate()
                .map(|(at, entry)| Found {
                    flush: at as u64,
                    at: at as u64,
                    kind: FoundKind::Entry(entry.header),
                })
                .collect(),
            tail,
            witness,
        };
        let log = recovery::classify(&scan, root());
        let state = DurableState {
            view: View(view),
            log_view: View(log_view),
            commit_max: Op(commit),
            checkpoint: root(),
            promise,
            trust: LogTrust::Trusted,
            syncing: false,
        };
        let superblock = SuperblockNumber(5);
        let restored = Restored { superblock, state, log, applied: root(), timestamp_last: Micros(0) };
        Bench::around(Replica::restore(config(replica), now, restored), now, entries)
    }

    pub fn around(replica: Replica, now: Nanos, entries: &[Entry]) -> Bench {
        let mut bench = Bench {
            replica,
            now,
            sent: Vec::new(),
            states: Vec::new(),
            applied: Vec::new(),
            log: entries.iter().map(|entry| (entry.op(), entry.clone())).collect(),
            written: LogNumber(0),
            truncated: Vec::new(),
            others: Vec::new(),
            log_works: true,
            superblock_works: true,
        };
        bench.carry_out();
        bench
    }

    pub fn message(&mut self, from: u8, message: Message) {
        self.event(Event::Message { from: ReplicaId(from), message });
    }

    pub fn event(&mut self, event: Event) {
        self.replica.handle(self.now, event);
        self.carry_out();
    }

    /// Lets time pass, timer by timer.
    pub fn wait(&mut self, us: u64) {
        let until = self.now.after_us(us);
        while self.replica.poll_timeout() <= until {
            self.now = self.now.max(self.replica.poll_timeout());
            self.event(Event::Timeout);
        }
        self.now = until;
    }

    pub fn propose(&mut self) -> Entry {
        let op = self
            .replica
            .propose(Micros(5), Durability::Persisted, EntryBody::operation(vec![1]))
            .expect("a primary takes entries");
        self.carry_out();
        self.log[&op].clone()
    }

    /// The disk catches up.
    pub fn finish_log(&mut self) {
        self.log_works = true;
        self.event(Event::Synced(self.written));
    }

    pub fn finish_superblock(&mut self) {
        self.superblock_works = true;
        if let Some((number, _)) = self.states.last() {
            self.event(Event::SuperblockWritten(*number));
        }
    }

    pub fn carry_out(&mut self) {
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                Effect::Write { number, entry } => {
                    self.written = number;
                    self.log.insert(entry.op(), entry);
                    if self.log_works {
                        self.replica.handle(self.now, Event::Synced(number));
                    }
                }
                Effect::Truncate { number, above } => {
                    self.written = number;
                    self.truncated.push(above);
                    self.log.split_off(&above.next());
                    if self.log_works {
                        self.replica.handle(self.now, Event::Synced(number));
                    }
                }
                Effect::Apply(entry) => {
                    self.applied.push(entry.op());
                    self.replica.handle(self.now, Event::Applied(entry.op()));
                }
                Effect::Send { to, message, .. } => self.sent.push((to, message)),
                Effect::WriteSuperblock { number, state } => {
                    self.states.push((number, *state));
                    if self.superblock_works {
                        self.replica.handle(self.now, Event::SuperblockWritten(number));
                    }
                }
                Effect::Read(request) => {
                    let entry = self.log.get(&request.op).cloned();
                    self.replica.handle(self.now, Event::Read { request, entry });
                }
                other => self.others.push(other),
            }
        }
    }

    pub fn take_sent(&mut self) -> Vec<(ReplicaId, Message)> {
        std::mem::take(&mut self.sent)
    }

    /// How many messages of a kind were sent since they were last taken.
    pub fn count(&self, kind: &str) -> usize {
        self.sent.iter().filter(|(_, message)| message.kind() == kind).count()
    }

    pub fn last(&self, kind: &str) -> Option<&Message> {
        self.sent.iter().rev().map(|(_, message)| message).find(|message| message.kind() == kind)
    }

    pub fn last_vote(&self) -> Option<&Vote> {
        match self.last("do_view_change")? {
            Message::DoViewChange(vote) => Some(vote),
            _ => None,
        }
    }

    pub fn last_progress(&self) -> Option<&Progress> {
        match self.last("prepare_ok")? {
            Message::PrepareOk { progress, .. } => Some(progress),
            _ => None,
        }
    }

    pub fn probe(&self) -> Option<crate::Nonce> {
        match self.last("get_view")? {
            Message::GetView { nonce, .. } => Some(*nonce),
            _ => None,
        }
    }
}
