//! Joins the records of all journals into each lane's log. A lane may have moved between shards from run to run, so
//! its ops can lie in any of the files; what counts is that they continue its checkpoint without a gap.

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway_wire::{LaneId, Micros, Op};

use super::{
    record::{Placing, SyncClass},
    scan::ScannedRecord,
};
use crate::{error::StorageError, layout::JournalName};

/// One op read back from a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRecord {
    /// The lane that ordered it.
    pub lane: LaneId,
    /// Its number in the lane.
    pub op: Op,
    /// The view in which it was proposed.
    pub view: u32,
    /// When the primary took it.
    pub timestamp: Micros,
    /// What its acknowledgement promised.
    pub class: SyncClass,
    /// First part of the body as it was given; a slice of the file's buffer.
    pub prefix: Bytes,
    /// Second part of the body as it was given; a slice of the file's buffer. Only its header when the batch is at its
    /// place, see [`RecoveredRecord::placing`].
    pub batch: Bytes,
    /// Where the batch is, or will be.
    pub placing: Placing,
    /// The file it was read from.
    pub journal: JournalName,
    /// Where its record starts in the file.
    pub position: u64,
}

impl RecoveredRecord {
    /// A scanned record with the file it came from.
    pub fn new(journal: JournalName, scanned: ScannedRecord) -> RecoveredRecord {
        let header = scanned.header;
        RecoveredRecord {
            lane: header.lane,
            op: header.op,
            view: header.view,
            timestamp: header.timestamp,
            class: header.class,
            prefix: scanned.prefix,
            batch: scanned.batch,
            placing: header.placing,
            journal,
            position: header.at.position,
        }
    }

    fn same_content(&self, other: &RecoveredRecord) -> bool {
        self.view == other.view
            && self.timestamp == other.timestamp
            && self.class == other.class
            && self.prefix == other.prefix
            && self.batch == other.batch
            && self.placing.is_direct() == other.placing.is_direct()
    }
}

/// Which ops a journal file holds; it may be deleted once a checkpoint covers the highest of every lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalMarks {
    /// The file.
    pub journal: JournalName,
    /// The highest op of each lane in it.
    pub highest: BTreeMap<LaneId, Op>,
}

impl JournalMarks {
    /// No ops yet.
    pub fn new(journal: JournalName) -> JournalMarks {
        JournalMarks { journal, highest: BTreeMap::new() }
    }

    /// Notes an op of the file.
    pub fn note(&mut self, lane: LaneId, op: Op) {
        let highest = self.highest.entry(lane).or_default();
        *highest = op.max(*highest);
    }

    /// True when these checkpoints hold the effects of every op in the file.
    pub fn covered_by(&self, checkpoints: &BTreeMap<LaneId, Op>) -> bool {
        self.highest.iter().all(|(lane, op)| checkpoints.get(lane).is_some_and(|covered| covered >= op))
    }
}

/// Each lane's ops above its checkpoint, in order. A lane without a checkpoint must start at op 1.
///
/// Errors: [`StorageError::Gap`] and [`StorageError::Conflict`] name lane, op, file and position. A second record with
/// the same content is dropped.
pub fn merge(
    checkpoints: &BTreeMap<LaneId, Op>,
    records: impl IntoIterator<Item = RecoveredRecord>,
) -> Result<BTreeMap<LaneId, Vec<RecoveredRecord>>, StorageError> {
    let mut lanes: BTreeMap<LaneId, Vec<RecoveredRecord>> = BTreeMap::new();
    for record in records {
        if record.op > covered(checkpoints, record.lane) {
            lanes.entry(record.lane).or_default().push(record);
        }
    }
    for (lane, records) in &mut lanes {
        // Stable: of two records for one op, the one of the file that was given first stays first.
        records.sort_by_key(|record| record.op);
        join(covered(checkpoints, *lane), records)?;
    }
    Ok(lanes)
}

fn covered(checkpoints: &BTreeMap<LaneId, Op>, lane: LaneId) -> Op {
    checkpoints.get(&lane).copied().unwrap_or_default()
}

fn join(covered: Op, records: &mut Vec<RecoveredRecord>) -> Result<(), StorageError> {
    let mut joined: Vec<RecoveredRecord> = Vec::with_capacity(records.len());
    let mut last = covered;
    for record in records.drain(..) {
        let RecoveredRecord { lane, op, journal, position, .. } = record;
        if let Some(previous) = joined.last().filter(|previous| previous.op == op) {
            if !previous.same_content(&record) {
                return Err(StorageError::Conflict { lane, op, journal, position });
            }
            continue;
        }
        let expected = last.next();
        if op != expected {
            return Err(StorageError::Gap { lane, expected, found: op, journal, position });
        }
        last = op;
        joined.push(record);
    }
    *records = joined;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(shard: u16, lane: u32, op: u64, body: &'static str) -> RecoveredRecord {
        RecoveredRecord {
            lane: LaneId(lane),
            op: Op(op),
            view: 0,
            timestamp: Micros(op),
            class: SyncClass::Persisted,
            prefix: Bytes::from_static(body.as_bytes()),
            batch: Bytes::new(),
            placing: Placing::Unplaced,
            journal: JournalName { shard, sequence: 1 },
            position: 4096,
        }
    }

    fn ops(records: Vec<RecoveredRecord>, checkpoint: u64) -> Result<Vec<u64>, String> {
        let checkpoints = BTreeMap::from([(LaneId(1), Op(checkpoint))]);
        let mut lanes = merge(&checkpoints, records).map_err(|error| error.to_string())?;
        Ok(lanes.remove(&LaneId(1)).unwrap_or_default().iter().map(|record| record.op.0).collect())
    }

    #[test]
    fn a_lane_that_moved_between_shards_is_joined() {
        let records =
            vec![record(0, 1, 3, "c"), record(0, 1, 4, "d"), record(1, 1, 1, "a"), record(1, 1, 2, "b")];
        assert_eq!(ops(records, 0), Ok(vec![1, 2, 3, 4]));
    }

    #[test]
    fn ops_at_or_below_the_checkpoint_are_left_out() {
        let records = vec![record(0, 1, 3, "c"), record(0, 1, 4, "d"), record(0, 1, 5, "e")];
        assert_eq!(ops(records.clone(), 4), Ok(vec![5]));
        assert_eq!(ops(records, 9), Ok(vec![]));
    }

    #[test]
    fn a_gap_is_refused_by_name() {
        let error = ops(vec![record(0, 1, 1, "a"), record(2, 1, 3, "c")], 0).unwrap_err();
        assert_eq!(
            error,
            "lane 1: op 2 is missing, 00002-000000000001.journal continues with op 3 at byte 4096"
        );
        assert!(ops(vec![record(0, 1, 5, "e")], 3).is_err(), "gap after the checkpoint");
        assert!(ops(vec![record(0, 1, 2, "b")], 0).is_err(), "gap before the first op");
    }

    #[test]
    fn a_second_record_for_an_op_must_be_the_same() {
        assert_eq!(ops(vec![record(0, 1, 1, "a"), record(2, 1, 1, "a")], 0), Ok(vec![1]));
        let error = ops(vec![record(0, 1, 1, "a"), record(2, 1, 1, "b")], 0).unwrap_err();
        assert!(error.contains("op 1 has two different records, the second in 00002"), "{error}");
    }
}
