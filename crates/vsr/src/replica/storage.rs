//! What is durable here, and what waits for it.

use std::collections::VecDeque;

use laneway_wire::{Nanos, Op};

use super::slots::Slots;
use super::{Replica, Status};
use crate::durability::{Barrier, Requirement};
use crate::entry::{Entry, View};
use crate::event::{DurableState, Effect, LogNumber, SuperblockNumber};
use crate::marks::mark;
use crate::mutation::Mutation;
use crate::superblock::Promise;

/// The devices as the core knows them.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    /// The last change of the log that was handed out.
    pub log_issued: LogNumber,
    /// When the log last made progress, or had nothing to do.
    pub log_moved_at: Nanos,
    pub log_failed: bool,
    /// The log may hold entries up to here on disk, leftovers included.
    pub disk_head: Op,
    /// The last record that was handed out.
    pub superblock_issued: SuperblockNumber,
    pub superblock_done: SuperblockNumber,
    /// The record that first named the current view and what backs it.
    pub view_saved: SuperblockNumber,
    /// Nothing is acknowledged before this record.
    pub acknowledge_after: SuperblockNumber,
    /// Views of the records that are under way.
    under_way: VecDeque<(SuperblockNumber, View, View)>,
    pub durable_view: View,
    pub durable_log_view: View,
}

impl Storage {
    pub fn new(
        now: Nanos,
        superblock: SuperblockNumber,
        view: View,
        log_view: View,
        disk_head: Op,
    ) -> Storage {
        Storage {
            log_issued: LogNumber(0),
            log_moved_at: now,
            log_failed: false,
            disk_head,
            superblock_issued: superblock,
            superblock_done: superblock,
            view_saved: superblock,
            acknowledge_after: superblock,
            under_way: VecDeque::new(),
            durable_view: view,
            durable_log_view: log_view,
        }
    }

    pub fn barrier(&self, slots: &Slots) -> Barrier {
        let (written, synced) = slots.numbers();
        Barrier { superblock: self.superblock_done, written, synced }
    }

    pub fn is_view_saved(&self) -> bool {
        self.superblock_done >= self.view_saved
    }
}

impl Replica {
    /// Whether the disk has what a message needs, as far as this core can tell.
    pub(super) fn is_satisfied(&self, required: &Requirement) -> bool {
        if self.is_alone() {
            return true;
        }
        required.view.is_none_or(|view| self.storage.durable_view >= view)
            && required.log_view.is_none_or(|view| self.storage.durable_log_view >= view)
            && (!required.vote || self.storage.is_view_saved())
            && required.written <= self.slots.written()
            && required.synced <= self.slots.synced()
    }

    /// Writes the superblock as everything stands now.
    pub(super) fn save(&mut self) -> SuperblockNumber {
        let number = SuperblockNumber(self.storage.superblock_issued.0 + 1);
        self.storage.superblock_issued = number;
        self.storage.under_way.push_back((number, self.view, self.log_view));
        let state = Box::new(DurableState {
            view: self.view,
            log_view: self.log_view,
            commit_max: self.commit_max,
            checkpoint: self.checkpoint,
            promise: self.promise.clone(),
            trust: self.trust,
            syncing: self.syncing || self.transferring,
        });
        self.effects.push_back(Effect::WriteSuperblock { number, state });
        number
    }

    /// Writes a superblock whose views or promise are new.
    pub(super) fn save_view(&mut self) {
        self.storage.view_saved = self.save();
    }

    pub(super) fn on_superblock_written(&mut self, number: SuperblockNumber) {
        assert!(number <= self.storage.superblock_issued, "a record that was never handed out");
        self.storage.superblock_done = self.storage.superblock_done.max(number);
        while let Some((first, view, log_view)) = self.storage.under_way.front().copied()
            && first <= number
        {
            self.storage.under_way.pop_front();
            assert!(self.storage.durable_view <= view && self.storage.durable_log_view <= log_view, "V29");
            (self.storage.durable_view, self.storage.durable_log_view) = (view, log_view);
        }
        if self.status == Status::ViewChange && self.storage.is_view_saved() {
            self.on_view_saved();
        }
        self.acknowledge_if_new();
    }

    fn on_view_saved(&mut self) {
        match (&self.promise, self.leads()) {
            (Promise::Vote(_), _) => self.on_vote_saved(),
            (Promise::View { .. }, true) => self.start_view(),
            (Promise::View { .. }, false) => self.follow_view(),
            (Promise::None, _) => unreachable!("a view change is backed by something"),
        }
    }

    /// Appends to the log.
    pub(super) fn write_head(&mut self, entry: Entry) {
        let number = self.next_log_number();
        self.slots.append(&entry, number);
        self.storage.disk_head = self.storage.disk_head.max(entry.header.op);
        self.effects.push_back(Effect::Write { number, entry });
    }

    /// Writes into a hole of the log.
    pub(super) fn write_hole(&mut self, entry: Entry) {
        mark!("hole repaired");
        let number = self.next_log_number();
        self.slots.fill(&entry, number);
        self.effects.push_back(Effect::Write { number, entry });
    }

    /// Makes sure that nothing above the head as known is left on disk. Comes before the next write, which matters: the
    /// next entry may be at the op of a leftover.
    pub(super) fn truncate_disk(&mut self) {
        let above = self.slots.head();
        if self.storage.disk_head <= above || self.mutations.has(Mutation::KeepRelics) {
            return;
        }
        mark!("log truncated");
        let number = self.next_log_number();
        self.storage.disk_head = above;
        self.effects.push_back(Effect::Truncate { number, above });
    }

    fn next_log_number(&mut self) -> LogNumber {
        let (_, synced) = self.slots.numbers();
        if self.storage.log_issued == synced {
            self.storage.log_moved_at = self.now;
        }
        self.storage.log_issued.0 += 1;
        self.storage.log_issued
    }

    pub(super) fn on_written(&mut self, number: LogNumber) {
        assert!(number <= self.storage.log_issued, "lane {}: written but never proposed", self.config.lane);
        self.slots.set_written(number);
        self.on_log_progress();
    }

    pub(super) fn on_synced(&mut self, number: LogNumber) {
        assert!(number <= self.storage.log_issued, "lane {}: flushed but never proposed", self.config.lane);
        self.slots.set_synced(number);
        self.on_log_progress();
    }

    fn on_log_progress(&mut self) {
        self.storage.log_moved_at = self.now;
        match self.status {
            Status::Normal if self.leads() => self.commit(),
            Status::Normal => {
                self.acknowledge_if_new();
                self.apply_ready();
            }
            Status::ViewChange => self.finish_merge(),
            _ => {}
        }
    }

    pub(super) fn on_log_failed(&mut self) {
        mark!("log failed");
        self.storage.log_failed = true;
        if self.is_primary() && !self.is_alone() {
            self.abdicate();
        }
    }

    /// Whether writes have been waiting for longer than a primary may let others wait.
    pub(super) fn is_log_stuck(&self) -> bool {
        let (_, synced) = self.slots.numbers();
        let waiting = self.storage.log_issued > synced;
        self.storage.log_failed
            || waiting && self.now.us_since(self.storage.log_moved_at) >= self.config.timing.abdicate_us
    }
}
