//! Checkpoints at run time: the journal goes on in a new file, the lanes' batches go to their segments, each lane
//! writes its checkpoint, and the older journals go.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use laneway_storage::{JournalWriter, SegmentFile, StorageError};
use laneway_wire::{LaneId, Op, PartitionKey};

use crate::clock;
use crate::journal;
use crate::owner::{LaneCheckpoint, LaneDraft};
use crate::shard::Shard;

/// Pause after a rotation that found no space or no descriptor.
const ROTATE_PAUSE_US: u64 = 500_000;

/// Everything that one checkpoint covers, frozen in one turn.
#[derive(Debug)]
pub struct Draft {
    lanes: Vec<LaneDraft>,
    metadata: Option<(Op, Bytes)>,
}

impl Draft {
    /// What goes with the checkpoint, for [`Gone::keep`] if it fails.
    pub fn gone(&self) -> Gone {
        Gone {
            fenced: self.lanes.iter().flat_map(LaneDraft::gone).collect(),
            removable: self.lanes.iter().map(LaneDraft::removable).collect(),
        }
    }
}

/// Files that a checkpoint no longer names and that go after it.
#[derive(Debug)]
pub struct Gone {
    fenced: Vec<(LaneId, PartitionKey)>,
    removable: Vec<(LaneId, Vec<SegmentFile>)>,
}

impl Gone {
    /// The checkpoint was not made: the files go with the next one. Those that are gone already do no harm.
    pub fn keep(self, shard: &Shard) {
        let mut owner = shard.owner.borrow_mut();
        owner.keep_fenced(self.fenced);
        for (lane, removable) in self.removable {
            owner.keep_removable(lane, removable);
        }
    }
}

/// Rotates the journal and lets a task make the checkpoint while the journal goes on.
pub async fn begin(shard: &Rc<Shard>, writer: &Rc<JournalWriter>) -> Result<(), StorageError> {
    let place = match writer.rotate(|| shard.commit.borrow_mut().close()).await {
        Ok(place) => place,
        Err(error) if writer.is_usable() && error.is_exhausted() => {
            tracing::warn!(%error, "no new journal can be made; the current one goes on");
            let again = clock::now().after_us(ROTATE_PAUSE_US);
            shard.rotate_after.set(again);
            shard.reclaim.postpone(again);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let progress = shard.commit.borrow_mut().rotated(place);
    journal::advance(shard, progress);
    shard.reclaim.begun();
    let draft = freeze(shard);
    let gone = draft.gone();
    shard.checkpointing.set(true);
    let (shard, writer) = (shard.clone(), writer.clone());
    compio::runtime::spawn(async move {
        match complete(&shard, draft, Some(&writer)).await {
            Ok(_) => shard.checkpoint_made(),
            Err(error) => {
                gone.keep(&shard);
                shard.checkpoint_failed(&error);
            }
        }
        shard.checkpointing.set(false);
        shard.checkpoint_bell.ring();
        shard.journal_bell.ring();
    })
    .detach();
    Ok(())
}

/// Freezes the lanes at what is applied. No write is in flight.
pub fn freeze(shard: &Shard) -> Draft {
    let metadata = shard.lane.borrow().as_ref().map(|lane| {
        let metadata = lane.metadata();
        (metadata.applied(), Bytes::from(metadata.to_snapshot()))
    });
    Draft { lanes: shard.owner.borrow_mut().draft_checkpoints(), metadata }
}

/// Makes a frozen checkpoint durable and frees what it covers. Gives the op of each lane. `writer` takes the journals
/// that are free then, to write them again; without one they go.
pub async fn complete(
    shard: &Shard,
    draft: Draft,
    writer: Option<&JournalWriter>,
) -> Result<BTreeMap<LaneId, Op>, StorageError> {
    let Draft { lanes, metadata } = draft;
    for lane in &lanes {
        flush(shard, lane).await?;
    }
    shard.segments.flush().await?;

    let mut covered = BTreeMap::new();
    if let Some((op, snapshot)) = metadata {
        shard.directory.write_checkpoint(LaneId::METADATA, op, snapshot, &shard.counters).await?;
        covered.insert(LaneId::METADATA, op);
    }
    for lane in lanes {
        let LaneCheckpoint { lane, op, payload, gone, removable } =
            shard.owner.borrow_mut().finish_draft(lane);
        shard.directory.write_checkpoint(lane, op, payload, &shard.counters).await?;
        covered.insert(lane, op);
        let files = shard.owner.borrow_mut().forget(lane, &gone, removable);
        shard.segments.remove(files).await?;
    }
    let deletable = {
        let mut commit = shard.commit.borrow_mut();
        for (lane, op) in &covered {
            commit.checkpointed(*lane, *op);
        }
        commit.take_deletable()
    };
    match writer {
        Some(writer) => writer.recycle(&deletable).await?,
        None => shard.directory.remove_journals(&deletable, &shard.counters).await?,
    }
    shard.owner.borrow_mut().release_memory(shard.settings.cache_bytes);
    Ok(covered)
}

async fn flush(shard: &Shard, lane: &LaneDraft) -> Result<(), StorageError> {
    for part in lane.flush_parts() {
        let plan = shard.owner.borrow().plan_flush(lane.lane(), &part);
        if let Some(plan) = plan {
            shard.segments.append(&plan).await?;
            shard.owner.borrow_mut().note_flushed(lane.lane(), &part, &plan);
        }
    }
    Ok(())
}
