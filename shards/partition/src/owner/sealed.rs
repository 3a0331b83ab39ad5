//! Sealed segments, one after the other, for who verifies them.

use laneway_storage::{ReadPlan, SegmentFile};
use laneway_wire::{Incarnation, LaneId, Offset, PartitionId, PartitionKey, StreamId, TopicId};

use super::Owner;
use crate::scrub::DamagedRange;

/// Partitions that one step looks at.
const PARTITIONS_PER_STEP_MAX: usize = 256;

/// Where a walk over the sealed segments of a shard stands.
#[derive(Clone, Copy, Debug)]
pub struct ScrubPlace {
    lane: LaneId,
    key: PartitionKey,
    /// Segments from this base on are still to come.
    base: Offset,
}

impl Default for ScrubPlace {
    fn default() -> Self {
        let key = PartitionKey { incarnation: Incarnation(0), partition: PartitionId(0) };
        Self { lane: LaneId(0), key, base: Offset(0) }
    }
}

impl Owner {
    /// The next sealed segment, its file and its offsets. `Some(None)`: none was found yet, ask again; `None`: the walk
    /// is over. Segments that come and go meanwhile are no trouble.
    pub fn next_sealed(&self, place: &mut ScrubPlace) -> Option<Option<(LaneId, SegmentFile, DamagedRange)>> {
        let mut looked_at = 0;
        for (lane, owned) in self.lanes.range(place.lane..) {
            if *lane > place.lane {
                *place = ScrubPlace { lane: *lane, ..ScrubPlace::default() };
            }
            for (key, log) in owned.logs.range(place.key..) {
                if *key > place.key {
                    (place.key, place.base) = (*key, Offset(0));
                }
                let stored = owned.state.get(*key).map_or(Offset(0), |partition| partition.disk_end());
                let segments = log.segments();
                let at = segments.partition_point(|segment| segment.base < place.base);
                if let Some(segment) =
                    segments.get(at).filter(|segment| segment.sealed && segment.next <= stored)
                {
                    place.base = segment.next;
                    let file = SegmentFile { partition: *key, base: segment.base };
                    let last = Offset(segment.next.0 - 1);
                    return Some(Some((*lane, file, DamagedRange { first: segment.base, last })));
                }
                place.base = Offset(u64::MAX);
                looked_at += 1;
                if looked_at == PARTITIONS_PER_STEP_MAX {
                    return Some(None);
                }
            }
        }
        None
    }

    /// How to read a segment from an offset on. None when it is gone.
    pub fn plan_scrub(
        &self,
        lane: LaneId,
        file: SegmentFile,
        offset: Offset,
        bytes_max: u64,
    ) -> Option<ReadPlan> {
        let log = self.lanes.get(&lane)?.logs.get(&file.partition)?;
        log.plan_read(offset, bytes_max).filter(|plan| plan.file == file)
    }

    /// Whether a segment is still part of its partition.
    pub fn holds_segment(&self, file: SegmentFile) -> bool {
        let mut logs = self.lanes.values().filter(|owned| owned.state.get(file.partition).is_some());
        logs.any(|owned| {
            owned.logs.get(&file.partition).is_some_and(|log| {
                log.segments().binary_search_by_key(&file.base, |segment| segment.base).is_ok()
            })
        })
    }

    /// Stream and topic of a partition.
    pub fn place_of(&self, key: PartitionKey) -> Option<(StreamId, TopicId)> {
        let partition = self.lanes.values().find_map(|owned| owned.state.get(key))?;
        Some((partition.stream(), partition.topic()))
    }
}
