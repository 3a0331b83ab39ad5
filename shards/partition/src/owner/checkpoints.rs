//! Checkpoints of the owned lanes: what has to reach segments first, and what is noted when it has.

use bytes::Bytes;
use laneway_reads::StoredBatch;
use laneway_storage::{AppendPlan, SegmentFile};
use laneway_wire::{LaneId, Offset, Op, PartitionKey};

use super::Owner;
use crate::core::CheckpointDraft;

/// A lane at one op, on its way into a checkpoint.
#[derive(Debug)]
pub struct LaneDraft {
    lane: LaneId,
    draft: CheckpointDraft,
    /// Partitions whose files can go once this checkpoint is durable.
    gone: Vec<PartitionKey>,
    /// Segments that retention removed, and that this checkpoint does not name.
    removable: Vec<SegmentFile>,
}

/// A lane's checkpoint, ready to be written.
#[derive(Debug)]
pub struct LaneCheckpoint {
    /// The lane.
    pub lane: LaneId,
    /// The op that it covers.
    pub op: Op,
    /// Its bytes.
    pub payload: Bytes,
    /// Partitions that it no longer names.
    pub gone: Vec<PartitionKey>,
    /// Files of removed segments, which it no longer names either.
    pub removable: Vec<SegmentFile>,
}

/// Batches of one partition that have to reach its segments.
#[derive(Debug)]
pub struct FlushPart {
    /// The partition.
    pub key: PartitionKey,
    /// Offset of the last message among them.
    pub up_to: Offset,
    /// The batches, oldest first.
    pub batches: Vec<StoredBatch>,
}

impl LaneDraft {
    /// The lane.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// The op that the checkpoint covers.
    pub fn op(&self) -> Op {
        self.draft.op()
    }

    /// Partitions whose files go with this checkpoint.
    pub fn gone(&self) -> impl Iterator<Item = (LaneId, PartitionKey)> + '_ {
        self.gone.iter().map(|key| (self.lane, *key))
    }

    /// Segments whose files go with this checkpoint.
    pub fn removable(&self) -> (LaneId, Vec<SegmentFile>) {
        (self.lane, self.removable.clone())
    }

    /// What has to reach segments before the checkpoint may be written.
    pub fn flush_parts(&self) -> Vec<FlushPart> {
        self.draft
            .to_flush()
            .map(|(key, up_to, batches)| FlushPart { key, up_to, batches: batches.to_vec() })
            .collect()
    }
}

impl Owner {
    /// Freezes every lane at its last applied op. Called while no write is in flight, right after the journal was
    /// rotated, so that the older journals hold nothing above these ops.
    pub fn draft_checkpoints(&mut self) -> Vec<LaneDraft> {
        self.lanes
            .iter_mut()
            .map(|(lane, owned)| {
                let mut draft = owned.state.draft_checkpoint();
                for (key, log) in &owned.logs {
                    let Some(partition) = owned.state.get(*key) else { continue };
                    // As of this op: batches that are written directly go on while the others are brought there.
                    let mut segments = Vec::new();
                    log.encode_at(
                        partition.head().map_or(Offset(0), |head| Offset(head.0 + 1)),
                        &mut segments,
                    );
                    draft.set_segments(*key, Bytes::from(segments));
                }
                LaneDraft {
                    lane: *lane,
                    draft,
                    gone: std::mem::take(&mut owned.fenced),
                    removable: std::mem::take(&mut owned.removable),
                }
            })
            .collect()
    }

    /// Where a partition's batches go. None when nothing is known of the partition.
    pub fn plan_flush(&self, lane: LaneId, part: &FlushPart) -> Option<AppendPlan> {
        let log = self.lanes.get(&lane)?.logs.get(&part.key)?;
        let batches = part.batches.iter().map(|batch| batch.bytes.clone());
        let plan = log.plan_append(batches);
        Some(plan.unwrap_or_else(|damage| panic!("partition {}: a batch in memory is {damage}", part.key)))
    }

    /// The batches are in their segments.
    pub fn note_flushed(&mut self, lane: LaneId, part: &FlushPart, plan: &AppendPlan) {
        let Some(owned) = self.lanes.get_mut(&lane) else { return };
        if let Some(log) = owned.logs.get_mut(&part.key) {
            log.appended(plan);
        }
        if let Some(partition) = owned.state.get_mut(part.key) {
            partition.flushed(part.up_to);
            let start = partition.retained_start();
            owned.remove_below(part.key, start);
        }
        owned.note_direct(part.key);
    }

    /// The bytes of the checkpoint, once everything in it was flushed.
    pub fn finish_draft(&mut self, draft: LaneDraft) -> LaneCheckpoint {
        let LaneDraft { lane, draft, gone, removable } = draft;
        let op = draft.op();
        LaneCheckpoint { lane, op, payload: Bytes::from(draft.finish()), gone, removable }
    }

    /// The checkpoint is durable: forgets the partitions that it no longer names, and gives the files to remove.
    pub fn forget(
        &mut self,
        lane: LaneId,
        gone: &[PartitionKey],
        removable: Vec<SegmentFile>,
    ) -> Vec<SegmentFile> {
        let mut files = removable;
        if let Some(owned) = self.lanes.get_mut(&lane) {
            let logs = gone.iter().filter_map(|key| owned.logs.remove(key));
            files.extend(logs.flat_map(|log| log.files().collect::<Vec<_>>()));
        }
        files
    }

    /// The checkpoint was not written: the files of removed segments go with the next one.
    pub fn keep_removable(&mut self, lane: LaneId, removable: Vec<SegmentFile>) {
        if let Some(owned) = self.lanes.get_mut(&lane) {
            owned.removable.extend(removable);
        }
    }

    /// The checkpoint was not made: the files of these partitions go with the next one.
    pub fn keep_fenced(&mut self, gone: Vec<(LaneId, PartitionKey)>) {
        for (lane, key) in gone {
            if let Some(owned) = self.lanes.get_mut(&lane)
                && owned.logs.contains_key(&key)
            {
                owned.fenced.push(key);
            }
        }
    }

    /// Frees memory of batches that segments hold, until the lanes keep about `keep_bytes`.
    pub fn release_memory(&mut self, keep_bytes: u64) {
        let holders = self
            .lanes
            .values()
            .flat_map(|owned| owned.state.iter())
            .filter(|partition| partition.memory_bytes() > 0)
            .count() as u64;
        let Some(share) = keep_bytes.checked_div(holders) else { return };
        for owned in self.lanes.values_mut() {
            for partition in owned.state.iter_mut() {
                partition.release_memory(share);
            }
        }
    }
}
