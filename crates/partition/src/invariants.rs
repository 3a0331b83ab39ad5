//! What always holds. Used by assertions, by property tests and by the simulator.

use laneway_wire::Offset;

use super::lane::LaneState;
use super::partition::Partition;

/// The offsets of a partition are in order, memory reaches from the segments to the head without a gap, and its
/// counters count what they say. Cheap enough for every op of a debug build.
pub fn partition(partition: &Partition) -> bool {
    let view = partition.view();
    let end = partition.head().map_or(0, |head| head.0 + 1);
    let tail_start = view.tail.start().map_or(end, |start| start.0);
    view.retained_start.0 <= end
        && view.disk_end.0 <= end
        && tail_start <= view.disk_end.0
        && partition.next_offset().0 >= end
        && partition.unflushed_bytes() <= partition.memory_bytes()
        && (partition.unflushed_bytes() == 0) == (view.disk_end.0 == end)
}

/// What a partition remembers beside its messages counts itself right, and its segments hold what is retained. Costs
/// O(n).
pub fn tables(partition: &Partition) -> bool {
    let end = Offset(partition.head().map_or(0, |head| head.0 + 1));
    partition.offsets().counts_are_exact()
        && partition.spans().cover(partition.retained_start(), end, partition.size_bytes())
}

/// Every partition holds its invariants, and the index of sessions names every partition that knows them. Costs O(n).
pub fn lane(lane: &LaneState) -> bool {
    let mut rebuilt = lane.clone();
    rebuilt.index_sessions();
    let indexed = rebuilt
        .sessions
        .iter()
        .all(|(session, keys)| lane.sessions.get(session).is_some_and(|known| keys.is_subset(known)));
    indexed && lane.iter().all(|each| partition(each) && tables(each))
}
