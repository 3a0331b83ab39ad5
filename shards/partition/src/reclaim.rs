//! When a checkpoint is made for the disk space that it gives back: files may go only after a checkpoint that does not
//! name them, and an idle shard would wait for its next one forever.

use std::cell::Cell;

use laneway_reads::Nanos;

/// A wish for a checkpoint.
#[derive(Debug, Default)]
pub struct Reclaim {
    wanted_at: Cell<Option<Nanos>>,
    due: Cell<bool>,
}

impl Reclaim {
    /// Wants a checkpoint at `at`, unless one is wanted earlier.
    pub fn want(&self, at: Nanos) {
        if !self.due.get() && self.wanted_at.get().is_none_or(|wanted| at < wanted) {
            self.wanted_at.set(Some(at));
        }
    }

    /// When it is wanted.
    pub fn wanted_at(&self) -> Option<Nanos> {
        self.wanted_at.get()
    }

    /// Whether its time has come just now.
    pub fn take_due(&self, now: Nanos) -> bool {
        let due = self.wanted_at.get().is_some_and(|wanted| wanted <= now);
        if due {
            self.wanted_at.set(None);
            self.due.set(true);
        }
        due
    }

    /// Whether a checkpoint is to be made at the next chance.
    pub fn is_due(&self) -> bool {
        self.due.get()
    }

    /// It cannot be made now: wants it later.
    pub fn postpone(&self, at: Nanos) {
        if self.due.replace(false) {
            self.wanted_at.set(Some(at));
        }
    }

    /// A checkpoint begins, for whatever reason: it serves every wish so far.
    pub fn begun(&self) {
        self.due.set(false);
        self.wanted_at.set(None);
    }
}
