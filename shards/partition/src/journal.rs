//! The journal of a shard: groups of everything that arrived, written and flushed while the next ones gather.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use laneway_storage::{JournalWriter, Progress, StorageError, WriteGroup};
use laneway_wire::LaneId;

use crate::checkpoint;
use crate::clock;
use crate::shard::Shard;

/// How long a write of a `replicated` topic may stay out of stable storage while nothing else flushes.
const UNSYNCED_MAX: Duration = Duration::from_secs(1);

/// Idle time after which the journal says that its last group has arrived. The next group says it, too, so a steady
/// trickle of single messages pays nothing.
const ATTEST_PAUSE: Duration = Duration::from_millis(5);

/// Pause before a group that found the disk full is written again.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(500);

/// The journal failed in a way that no retry can mend: what it holds is unknown. The process has to end; the next
/// start finds out what is there.
#[derive(Debug, thiserror::Error)]
#[error("the journal of shard {shard} failed: {source}")]
pub struct JournalFailed {
    /// The shard.
    pub shard: u16,
    /// Why.
    pub source: StorageError,
}

/// What the groups of one journal share.
struct Journal {
    shard: Rc<Shard>,
    writer: Rc<JournalWriter>,
    failed: RefCell<Option<StorageError>>,
}

/// Writes groups until the shard's thread ends.
pub async fn serve(shard: Rc<Shard>, writer: JournalWriter) -> JournalFailed {
    let journal = Rc::new(Journal { shard, writer: Rc::new(writer), failed: RefCell::default() });
    let shard = &journal.shard;
    loop {
        journal.begin_groups();
        if let Err(source) = journal.rotate_if_due().await {
            shard.commit.borrow_mut().poison();
            return JournalFailed { shard: shard.settings.id.0, source };
        }
        let (has_unsynced, needs_attest) = {
            let commit = shard.commit.borrow();
            (commit.has_unsynced() && commit.is_idle(), commit.needs_attest())
        };
        let bell = shard.journal_bell.wait();
        // What is there to do when nothing comes: first the cheap word on the last group, then the late flush.
        if needs_attest {
            if compio::time::timeout(ATTEST_PAUSE, bell).await.is_err() {
                shard.commit.borrow_mut().request_attest();
            }
        } else if has_unsynced {
            if compio::time::timeout(UNSYNCED_MAX, bell).await.is_err() {
                shard.commit.borrow_mut().request_flush();
            }
        } else {
            bell.await;
        }
    }
}

impl Journal {
    /// Begins what may be written now.
    fn begin_groups(self: &Rc<Self>) {
        while !self.is_rotation_due() && self.failed.borrow().is_none() {
            let group = self.shard.commit.borrow_mut().begin();
            let Some(group) = group else { return };
            let journal = self.clone();
            compio::runtime::spawn(async move { journal.write(group).await }).detach();
        }
    }

    async fn write(self: Rc<Self>, mut group: WriteGroup) {
        let error = loop {
            match self.writer.write_group(group).await {
                Ok(group) => {
                    self.shard.writes_go_on();
                    let progress = self.shard.commit.borrow_mut().complete(group);
                    // First the disk, then the answers: it works while they are made.
                    self.begin_groups();
                    advance(&self.shard, progress);
                    self.shard.journal_bell.ring();
                    return;
                }
                Err(failure) if failure.may_retry() => {
                    self.shard.writes_wait(&failure.error);
                    group = failure.group;
                    compio::time::sleep(FULL_DISK_PAUSE).await;
                }
                Err(failure) => break failure.error,
            }
        };
        self.failed.borrow_mut().get_or_insert(error);
        self.shard.journal_bell.ring();
    }

    fn is_rotation_due(&self) -> bool {
        let shard = &self.shard;
        let is_due =
            shard.commit.borrow().rotation_due() || shard.wants_checkpoint.get() || shard.reclaim.is_due();
        is_due && clock::now() >= shard.rotate_after.get()
    }

    async fn rotate_if_due(self: &Rc<Self>) -> Result<(), StorageError> {
        let shard = &self.shard;
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if !self.is_rotation_due() {
                return Ok(());
            }
            if shard.checkpointing.get() {
                // The disk is slower than the clients: they wait here, and their lanes refuse more than fits in flight.
                shard.checkpoint_bell.wait().await;
            } else if shard.commit.borrow().is_writing() {
                shard.journal_bell.wait().await;
            } else {
                shard.wants_checkpoint.set(false);
                checkpoint::begin(shard, &self.writer).await?;
                self.begin_groups();
            }
        }
    }
}

/// Tells the lanes what is written and what is on stable storage.
pub fn advance(shard: &Rc<Shard>, progress: Progress) {
    let (now, wall) = (clock::now(), clock::wall());
    for (lane, op) in progress.written {
        match lane {
            LaneId::METADATA => {
                if let Some(metadata) = shard.lane.borrow_mut().as_mut() {
                    metadata.handle_written(now, op);
                }
            }
            lane => shard.owner.borrow_mut().handle_written(now, wall, lane, op),
        }
    }
    for (lane, op) in progress.synced {
        match lane {
            LaneId::METADATA => {
                if let Some(metadata) = shard.lane.borrow_mut().as_mut() {
                    metadata.handle_synced(now, op);
                }
            }
            lane => shard.owner.borrow_mut().handle_synced(now, wall, lane, op),
        }
    }
    if shard.owner.borrow_mut().take_wants_checkpoint() {
        shard.wants_checkpoint.set(true);
    }
    shard.pump();
}
