//! The journal of a shard: one write and one flush for everything that arrived while the last one was on its way.

use std::rc::Rc;
use std::time::Duration;

use laneway_storage::{JournalWriter, Progress, StorageError};
use laneway_wire::LaneId;

use crate::checkpoint;
use crate::clock;
use crate::shard::Shard;

/// How long a write of a `replicated` topic may stay out of stable storage while nothing else flushes.
const UNSYNCED_MAX: Duration = Duration::from_secs(1);

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

/// Writes groups until the shard's thread ends.
pub async fn serve(shard: Rc<Shard>, mut writer: JournalWriter) -> JournalFailed {
    loop {
        match write_all(&shard, &mut writer).await {
            Ok(()) if shard.commit.borrow().has_unsynced() => {
                let rung = compio::time::timeout(UNSYNCED_MAX, shard.journal_bell.wait()).await;
                if rung.is_err() {
                    shard.commit.borrow_mut().request_flush();
                }
            }
            Ok(()) => shard.journal_bell.wait().await,
            Err(source) => return JournalFailed { shard: shard.settings.id.0, source },
        }
    }
}

async fn write_all(shard: &Rc<Shard>, writer: &mut JournalWriter) -> Result<(), StorageError> {
    let mut warned = false;
    loop {
        rotate_if_due(shard, writer).await?;
        let group = shard.commit.borrow_mut().begin();
        let Some(group) = group else { return Ok(()) };
        match writer.write_group(group).await {
            Ok(group) => {
                warned = false;
                let progress = shard.commit.borrow_mut().complete(group);
                advance(shard, progress);
            }
            Err(failure) if failure.may_retry() => {
                if !warned {
                    tracing::error!(error = %failure.error, "the disk is full; writes wait for space");
                    warned = true;
                }
                shard.commit.borrow_mut().retry(failure.group);
                compio::time::sleep(FULL_DISK_PAUSE).await;
            }
            Err(failure) => {
                shard.commit.borrow_mut().poison();
                return Err(failure.error);
            }
        }
    }
}

async fn rotate_if_due(shard: &Rc<Shard>, writer: &mut JournalWriter) -> Result<(), StorageError> {
    let due = shard.commit.borrow().rotation_due() || shard.reclaim.is_due();
    if !due || clock::now() < shard.rotate_after.get() {
        return Ok(());
    }
    if shard.checkpointing.get() {
        // The disk is slower than the clients: they wait here, and their lanes refuse more than fits in flight.
        while shard.checkpointing.get() {
            shard.checkpoint_bell.wait().await;
        }
    }
    checkpoint::begin(shard, writer).await
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
    shard.pump();
}
