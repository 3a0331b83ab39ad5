//! From the files of a data directory to the lanes as they were. Blocking; before any shard starts.

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway_shard_metadata::RecoverError;
use laneway_shard_partition::RestoredLane;
use laneway_shard_partition::core::{DecodeError, LaneLimits, LaneState};
use laneway_storage::journal::JournalMarks;
use laneway_storage::{Damage, DataDirectory, PartitionLog, RecoveredRecord, StorageError};
use laneway_wire::{LaneId, PartitionKey};

/// What a data directory held.
#[derive(Debug)]
pub struct Restored {
    /// The checkpoint of the metadata lane.
    pub metadata_snapshot: Option<Bytes>,
    /// The metadata lane's log above it.
    pub metadata_log: Vec<RecoveredRecord>,
    /// The data lanes.
    pub lanes: BTreeMap<LaneId, RestoredLane>,
    /// The journals that were read.
    pub journals: Vec<JournalMarks>,
}

/// Why a data directory cannot be brought back. Nothing was changed but torn tails cut.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A file is damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The metadata lane is damaged.
    #[error(transparent)]
    Metadata(#[from] RecoverError),
    /// The checkpoint of a lane is damaged.
    #[error("the checkpoint of lane {lane} is damaged: {source}")]
    Checkpoint {
        /// The lane.
        lane: LaneId,
        /// Why.
        source: DecodeError,
    },
    /// The list of a partition's segments is damaged.
    #[error("the checkpoint of lane {lane} is damaged: segments of partition {partition}: {damage}")]
    Segments {
        /// The lane.
        lane: LaneId,
        /// The partition.
        partition: PartitionKey,
        /// What is wrong.
        damage: Damage,
    },
}

/// Reads everything, and brings the segments to what the checkpoints name.
pub fn restore(directory: &DataDirectory, limits: LaneLimits) -> Result<Restored, RestoreError> {
    let recovery = directory.recover()?;
    for torn in &recovery.torn {
        tracing::warn!(
            journal = %torn.journal,
            position = torn.position,
            "cut the tail of a write that was never acknowledged"
        );
    }
    let direct: Vec<_> = recovery.direct_batches().collect();
    let mut records = recovery.lanes;
    let mut metadata_snapshot = None;
    let mut lanes = BTreeMap::new();
    for checkpoint in recovery.checkpoints {
        if checkpoint.lane == LaneId::METADATA {
            metadata_snapshot = Some(checkpoint.payload);
            continue;
        }
        lanes.insert(checkpoint.lane, restore_lane(checkpoint.lane, &checkpoint.payload, limits)?);
    }
    let report = directory.reconcile(lanes.values().flat_map(|lane| lane.logs.values()), direct)?;
    if report.cut + report.removed > 0 {
        tracing::info!(
            cut = report.cut,
            cut_bytes = report.cut_bytes,
            removed = report.removed,
            "segments brought to their checkpoints"
        );
    }
    let metadata_log = records.remove(&LaneId::METADATA).unwrap_or_default();
    for (lane, log) in records {
        lanes.entry(lane).or_insert_with(|| empty_lane(lane, limits)).records = log;
    }
    Ok(Restored { metadata_snapshot, metadata_log, lanes, journals: recovery.journals })
}

fn empty_lane(lane: LaneId, limits: LaneLimits) -> RestoredLane {
    RestoredLane { state: LaneState::new(lane, limits), logs: BTreeMap::new(), records: Vec::new() }
}

fn restore_lane(lane: LaneId, payload: &Bytes, limits: LaneLimits) -> Result<RestoredLane, RestoreError> {
    let state = LaneState::from_checkpoint(payload, limits)
        .map_err(|source| RestoreError::Checkpoint { lane, source })?;
    let mut logs = BTreeMap::new();
    for partition in state.iter() {
        let key = partition.key();
        let segment_bytes = partition.settings().segment_bytes;
        let log = match partition.segments().is_empty() {
            true => PartitionLog::new(key, segment_bytes),
            false => {
                PartitionLog::decode(key, segment_bytes, partition.segments())
                    .map_err(|damage| RestoreError::Segments { lane, partition: key, damage })?
                    .0
            }
        };
        logs.insert(key, log);
    }
    Ok(RestoredLane { state, logs, records: Vec::new() })
}
