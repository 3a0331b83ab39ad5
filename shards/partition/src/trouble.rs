//! A disk that is full or broken: who is told what, and when it is over.
//!
//! Messages are refused before the disk is full: what was accepted still has to reach its segments, and deletes need
//! some room to give much back. Where somebody else takes that room, too, writes wait for it, and those who wait are
//! told that their outcome is unknown. A write or a flush of the journal that failed for another reason is never
//! repeated: the shard takes no change any more and answers reads.

use std::cell::Cell;
use std::rc::Rc;

use laneway_reads::Nanos;
use laneway_storage::StorageError;
use laneway_wire::Status;

use crate::clock;
use crate::owner::DiskState;
use crate::process;
use crate::shard::Shard;

/// Age at which the free space is looked up again while there was room, microseconds. Looking costs a microsecond.
const LOOK_US: u64 = 50_000;

/// It is also looked up again when messages of this part of the free space that is kept have come since.
const LOOK_PART: u64 = 16;

/// The same while there was none: writes go on soon after there is.
const LOOK_FULL_US: u64 = 5_000;

/// How long a write waits for space before the clients that wait for it are told, microseconds.
const WAIT_US_MAX: u64 = 2_000_000;

/// Checkpoints that fail one after the other before messages are refused.
const FAILED_CHECKPOINTS_MAX: u32 = 4;

/// Longest pause before a failed checkpoint is tried again, microseconds.
const RETRY_US_MAX: u64 = 600_000_000;

/// Pause after the first checkpoint that failed, microseconds. It doubles with each.
const RETRY_US: u64 = 1_000_000;

/// What is wrong with the disk of a shard.
#[derive(Debug, Default)]
pub struct Trouble {
    broken: Cell<bool>,
    full: Cell<bool>,
    /// Since when a write waits for space or a descriptor.
    waits_since: Cell<Option<Nanos>>,
    /// That it waits for space, not for a descriptor.
    is_out_of_space: Cell<bool>,
    looked_at: Cell<Nanos>,
    /// Bytes of messages since then.
    taken_bytes: Cell<u64>,
    failed_checkpoints: Cell<u32>,
}

impl Trouble {
    /// Whether what is on its way through the journal does not move.
    pub fn is_stuck(&self) -> bool {
        self.broken.get() || self.waits_since.get().is_some()
    }

    fn state(&self) -> DiskState {
        if self.broken.get() {
            DiskState::Broken
        } else if self.full.get() || self.is_out_of_space.get() {
            DiskState::Full
        } else if self.failed_checkpoints.get() >= FAILED_CHECKPOINTS_MAX {
            DiskState::Clogged
        } else {
            DiskState::Sound
        }
    }
}

impl Shard {
    /// Looks the free space up before a message is taken, unless that was just done.
    pub(crate) fn look_at_space(&self, now: Nanos, bytes: u64) {
        let age = if self.trouble.full.get() { LOOK_FULL_US } else { LOOK_US };
        let taken = self.trouble.taken_bytes.get().saturating_add(bytes);
        self.trouble.taken_bytes.set(taken);
        let is_fresh = now < self.trouble.looked_at.get().after_us(age);
        if is_fresh && taken < self.settings.free_bytes_min / LOOK_PART {
            return;
        }
        self.trouble.looked_at.set(now);
        self.trouble.taken_bytes.set(0);
        // Where the space cannot be looked up, the write itself tells.
        let Some((free, _)) = process::disk(self.directory.path()) else { return };
        let full = free < self.settings.free_bytes_min;
        if self.trouble.full.replace(full) != full {
            match full {
                true => tracing::error!(
                    free_bytes = free,
                    free_bytes_min = self.settings.free_bytes_min,
                    "the disk is full: messages are refused, reads go on"
                ),
                false => tracing::info!(free_bytes = free, "the disk has room again: messages are taken"),
            }
        }
        self.apply_trouble();
    }

    /// A write found no space or no descriptor and will be tried again.
    pub fn writes_wait(self: &Rc<Self>, error: &StorageError) {
        let now = clock::now();
        let since = match self.trouble.waits_since.get() {
            Some(since) => since,
            None => {
                match error {
                    StorageError::OutOfSpace { .. } => {
                        tracing::error!(%error, "the disk is full; writes wait for space");
                        self.trouble.is_out_of_space.set(true);
                    }
                    _ => tracing::error!(%error, "no descriptor is left; writes wait for one"),
                }
                self.trouble.waits_since.set(Some(now));
                self.apply_trouble();
                now
            }
        };
        if now >= since.after_us(WAIT_US_MAX) || self.is_stopping() {
            self.answer_unknown();
        }
    }

    /// A write of the journal went through.
    pub fn writes_go_on(&self) {
        if self.trouble.waits_since.take().is_some() {
            tracing::info!("writes go on");
            self.trouble.is_out_of_space.set(false);
            self.trouble.looked_at.set(Nanos(0));
            self.apply_trouble();
        }
    }

    /// A write or a flush of the journal failed: what it holds is unknown until the next start has read it.
    pub fn journal_broke(self: &Rc<Self>, error: &StorageError) {
        tracing::error!(
            shard = self.settings.id.0,
            %error,
            "the journal failed: this shard takes no change until a restart; reads go on"
        );
        self.trouble.broken.set(true);
        self.apply_trouble();
        if let Some(lane) = self.lane.borrow_mut().as_mut() {
            lane.refuse_changes();
        }
        self.answer_unknown();
    }

    /// A checkpoint was made.
    pub fn checkpoint_made(&self) {
        if self.trouble.failed_checkpoints.replace(0) >= FAILED_CHECKPOINTS_MAX {
            tracing::info!("checkpoints are made again: messages are taken");
        }
        self.apply_trouble();
    }

    /// A checkpoint failed. Nothing is lost: the journal still holds everything.
    pub fn checkpoint_failed(&self, error: &StorageError) {
        tracing::error!(%error, "the checkpoint failed; the journal keeps what it would have freed");
        let failed = self.trouble.failed_checkpoints.get().saturating_add(1);
        self.trouble.failed_checkpoints.set(failed);
        if failed == FAILED_CHECKPOINTS_MAX {
            tracing::error!("checkpoints keep failing: messages are refused, reads go on");
        }
        // A failed flush is never repeated.
        if !matches!(error, StorageError::Poisoned { .. }) {
            let pause = RETRY_US.saturating_mul(1 << (failed - 1).min(10)).min(RETRY_US_MAX);
            self.reclaim.want(clock::now().after_us(pause));
        }
        self.apply_trouble();
    }

    /// Tells those whose changes are on their way that their outcome is unknown.
    pub fn answer_unknown(self: &Rc<Self>) {
        self.owner.borrow_mut().answer_unknown();
        if let Some(lane) = self.lane.borrow_mut().as_mut() {
            lane.answer_waiting(Status::TransientNotCommitted);
        }
        self.pump();
    }

    fn apply_trouble(&self) {
        self.owner.borrow_mut().set_disk(self.trouble.state());
    }
}
