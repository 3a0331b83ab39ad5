//! What time it is, as the clocks of a cluster agree on it.
//!
//! Every node samples the clocks of the others. Each sample says that the other clock is ahead of ours by something in
//! an interval; the interval that most nodes share is taken for the truth (Marzullo). A wall clock outside of it is held
//! to it, so that one node whose clock ran away moves no timestamp far. Nothing in safety depends on any of this.

use std::collections::BTreeMap;

use laneway_wire::{Micros, Nanos, ReplicaId};

/// Samples older than this say nothing any more. Source: cluster specification, 2.16.
pub const SAMPLE_AGE_US_MAX: u64 = 60_000_000;

/// Samples kept for one member. One a second for a minute is what arrives.
pub const SAMPLES_MAX: usize = 64;

/// How far a timestamp may lie above the agreed interval.
pub const AHEAD_US_MAX: u64 = 500_000;

/// A clock further than this outside of the agreed interval is broken: its node must not lead.
pub const BROKEN_US: u64 = 10_000_000;

/// How far above its own bound a backup lets a primary's timestamp be before it asks for another primary.
pub const REFUSED_US: u64 = 60_000_000;

/// How fast two clocks may part, in parts of a million: what a sample loses in precision as it ages.
const DRIFT_PPM: u64 = 10_000;

/// Distance from our wall clock to the agreed time, in microseconds. Negative: our clock is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// At least.
    pub low: i64,
    /// At most.
    pub high: i64,
}

/// How our own wall clock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockHealth {
    /// In the agreed interval, or near it.
    Good,
    /// No majority of clocks agrees on an interval now.
    Alone,
    /// Outside of the agreed interval by this many microseconds: the node must not lead and reports itself unhealthy.
    Broken {
        /// How far.
        by_us: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    /// Their clock minus ours, at the middle of the round trip.
    offset: i64,
    /// Half of the round trip: how wrong the offset may be.
    error: u64,
    taken: Nanos,
}

impl Sample {
    /// What it still says now; `None` when it is too old.
    fn interval(&self, now: Nanos) -> Option<Interval> {
        let age = now.us_since(self.taken);
        if age > SAMPLE_AGE_US_MAX {
            return None;
        }
        let error = (self.error + age * DRIFT_PPM / 1_000_000).min(i64::MAX as u64) as i64;
        Some(Interval { low: self.offset.saturating_sub(error), high: self.offset.saturating_add(error) })
    }
}

/// The clocks of a node's cluster. One on each node; made at start, forgotten at its end.
#[derive(Debug)]
pub struct ClusterClock {
    nodes: usize,
    samples: BTreeMap<ReplicaId, Vec<Sample>>,
    /// The newest timestamp that was given out or seen committed, and when that was.
    last: Option<(Micros, Nanos)>,
}

impl ClusterClock {
    /// For a cluster of `nodes` nodes, this one included; 1 to 32.
    pub fn new(nodes: usize) -> ClusterClock {
        assert!(nodes >= 1, "a cluster has at least this node");
        ClusterClock { nodes, samples: BTreeMap::new(), last: None }
    }

    /// The answer to a ping: it left at `sent` and its answer, which carries their wall clock, is here `now`, when our
    /// own wall clock says `wall`. Answers from the future of our clock are dropped.
    pub fn handle_pong(&mut self, now: Nanos, wall: Micros, from: ReplicaId, sent: Nanos, theirs: Micros) {
        if sent > now {
            return;
        }
        let error = now.us_since(sent).div_ceil(2);
        // Their clock was read about half a round trip ago.
        let offset = difference(theirs, wall).saturating_add(error.min(i64::MAX as u64) as i64);
        let samples = self.samples.entry(from).or_default();
        samples.retain(|sample| sample.interval(now).is_some());
        if samples.len() == SAMPLES_MAX {
            samples.remove(0);
        }
        samples.push(Sample { offset, error, taken: now });
    }

    /// The interval that a majority of the nodes, this one included, agrees on.
    pub fn interval(&self, now: Nanos) -> Option<Interval> {
        let majority = self.nodes / 2 + 1;
        let mut intervals = vec![Interval { low: 0, high: 0 }];
        intervals.extend(self.samples.values().filter_map(|samples| narrowest(samples, now)));
        intersection(&intervals, majority)
    }

    /// What the timestamp of an entry may be now: our wall clock, held to the agreed interval. Without an interval time
    /// goes on from the newest timestamp as fast as the monotonic clock, whatever the wall clock says.
    pub fn wall(&self, now: Nanos, wall: Micros) -> Micros {
        match self.interval(now) {
            Some(interval) => held(wall, interval),
            None => match self.last {
                Some((last, at)) => wall.min(Micros(last.0.saturating_add(now.us_since(at)))),
                None => wall,
            },
        }
    }

    /// The highest timestamp that we take from a primary; `None` when we know no better than it.
    pub fn bound(&self, now: Nanos, wall: Micros) -> Option<Micros> {
        let interval = self.interval(now)?;
        Some(plus(wall, interval.high.saturating_add(REFUSED_US as i64)))
    }

    /// A timestamp was given out here, or is committed. Only committed ones of others count, so that a runaway primary
    /// poisons nobody.
    pub fn note(&mut self, now: Nanos, timestamp: Micros) {
        if self.last.is_none_or(|(last, _)| timestamp > last) {
            self.last = Some((timestamp, now));
        }
    }

    /// How our own wall clock stands.
    pub fn health(&self, now: Nanos) -> ClockHealth {
        let Some(interval) = self.interval(now) else { return ClockHealth::Alone };
        let by_us = interval.low.max(interval.high.saturating_neg()).max(0) as u64;
        match by_us > BROKEN_US {
            true => ClockHealth::Broken { by_us },
            false => ClockHealth::Good,
        }
    }
}

/// Our wall clock, held to where the others say the time is.
fn held(wall: Micros, interval: Interval) -> Micros {
    let low = plus(wall, interval.low);
    let high = plus(wall, interval.high.saturating_add(AHEAD_US_MAX as i64));
    wall.clamp(low, high)
}

/// The sample that says most now.
fn narrowest(samples: &[Sample], now: Nanos) -> Option<Interval> {
    let intervals = samples.iter().filter_map(|sample| sample.interval(now));
    intervals.min_by_key(|interval| interval.high.saturating_sub(interval.low))
}

/// The narrowest interval that the most intervals share; `None` when fewer than `least` share any.
fn intersection(intervals: &[Interval], least: usize) -> Option<Interval> {
    // Closed intervals: at one point an end comes after the starts.
    let mut edges: Vec<(i64, bool)> =
        intervals.iter().flat_map(|interval| [(interval.low, false), (interval.high, true)]).collect();
    edges.sort_unstable();
    let mut depth = 0;
    let mut best: Option<(usize, Interval)> = None;
    for (place, (at, ends)) in edges.iter().enumerate() {
        if *ends {
            depth -= 1;
            continue;
        }
        depth += 1;
        if best.is_none_or(|(most, _)| depth > most) {
            // The next edge closes the interval that this one opened: any start there would be deeper still.
            let high = edges[place + 1].0;
            best = Some((depth, Interval { low: *at, high }));
        }
    }
    best.filter(|(most, _)| *most >= least).map(|(_, interval)| interval)
}

fn difference(one: Micros, other: Micros) -> i64 {
    let distance = i64::try_from(one.0.abs_diff(other.0)).unwrap_or(i64::MAX);
    if one >= other { distance } else { -distance }
}

fn plus(wall: Micros, distance: i64) -> Micros {
    Micros(wall.0.saturating_add_signed(distance))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND as i64;

    /// Clocks that are off by so much, each sampled now over a round trip of 2 ms.
    fn sampled(now: Nanos, wall: Micros, others: &[i64]) -> ClusterClock {
        let mut clock = ClusterClock::new(others.len() + 1);
        for (replica, offset) in others.iter().enumerate() {
            let theirs = plus(wall, offset - 1_000);
            clock.handle_pong(now, wall, ReplicaId(replica as u8 + 1), now.before_us(2_000), theirs);
        }
        clock
    }

    const NOW: Nanos = Nanos(500_000_000_000);
    const WALL: Micros = Micros(1_700_000_000_000_000);

    #[test]
    fn clocks_that_agree_leave_our_own_alone() {
        let clock = sampled(NOW, WALL, &[300, -200]);
        assert_eq!(clock.wall(NOW, WALL), WALL);
        assert_eq!(clock.health(NOW), ClockHealth::Good);
    }

    /// V62: our clock is an hour ahead, or behind, of all others.
    #[test]
    fn our_runaway_clock_is_held_to_the_majority() {
        for off in [-HOUR, HOUR] {
            let clock = sampled(NOW, WALL, &[off, off + 500]);
            let distance = difference(clock.wall(NOW, WALL), plus(WALL, off)).unsigned_abs();
            assert!(distance <= SECOND, "{distance}");
            assert!(matches!(clock.health(NOW), ClockHealth::Broken { by_us } if by_us > 3_500 * SECOND));
        }
    }

    /// V62: another clock is an hour off.
    #[test]
    fn one_runaway_clock_of_the_others_moves_nothing() {
        for off in [-HOUR, HOUR] {
            let clock = sampled(NOW, WALL, &[off, 500]);
            assert_eq!(clock.wall(NOW, WALL), WALL);
            assert_eq!(clock.health(NOW), ClockHealth::Good);
        }
    }

    #[test]
    fn without_a_majority_time_goes_on_from_the_last_timestamp() {
        let mut clock = sampled(NOW, WALL, &[HOUR, -HOUR]);
        assert_eq!(clock.health(NOW), ClockHealth::Alone);
        assert_eq!(clock.bound(NOW, WALL), None);
        clock.note(NOW, WALL);
        let later = NOW.after_us(3 * SECOND);
        assert_eq!(clock.wall(later, plus(WALL, HOUR)), plus(WALL, 3 * SECOND as i64), "stepped forward");
        assert_eq!(clock.wall(later, plus(WALL, SECOND as i64)), plus(WALL, SECOND as i64));
        clock.note(later, Micros(5));
        assert_eq!(clock.wall(later, plus(WALL, HOUR)), plus(WALL, 3 * SECOND as i64), "the newest counts");
    }

    #[test]
    fn a_lone_node_believes_its_own_clock() {
        let clock = ClusterClock::new(1);
        assert_eq!(clock.interval(NOW), Some(Interval { low: 0, high: 0 }));
        assert_eq!(clock.wall(NOW, WALL), WALL);
        assert_eq!(clock.bound(NOW, WALL), Some(plus(WALL, REFUSED_US as i64)));
    }

    #[test]
    fn samples_lose_precision_and_then_end() {
        let clock = sampled(NOW, WALL, &[5_000, 5_000]);
        assert_eq!(clock.interval(NOW), Some(Interval { low: 4_000, high: 6_000 }));
        // By now they may have drifted to where our own clock stands.
        assert_eq!(clock.interval(NOW.after_us(SAMPLE_AGE_US_MAX)), Some(Interval { low: 0, high: 0 }));
        assert_eq!(clock.interval(NOW.after_us(SAMPLE_AGE_US_MAX + 1)), None);
    }

    #[test]
    fn a_member_fills_its_bound_and_no_more() {
        let mut clock = ClusterClock::new(3);
        for n in 0..3 * SAMPLES_MAX as u64 {
            let now = NOW.after_us(n * 1_000);
            clock.handle_pong(now, WALL, ReplicaId(1), now.before_us(200), WALL);
        }
        assert_eq!(clock.samples[&ReplicaId(1)].len(), SAMPLES_MAX);
        clock.handle_pong(NOW, WALL, ReplicaId(2), NOW.after_us(1), WALL);
        assert_eq!(clock.samples.get(&ReplicaId(2)), None, "an answer to a ping that is not sent yet");
    }

    proptest! {
        /// Whatever one clock of five says, and however long its messages take, the time that a good node gives out stays
        /// within a second of the good clocks.
        #[test]
        fn one_bad_clock_of_five_never_matters(
            good in proptest::collection::vec(-20_000i64..20_000, 3),
            bad in any::<i32>(),
            trips in proptest::collection::vec(0u64..40_000, 4),
            place in 0usize..4,
        ) {
            let mut offsets = good.clone();
            offsets.insert(place.min(3), i64::from(bad) * 1_000);
            let mut clock = ClusterClock::new(5);
            for (replica, (offset, trip)) in offsets.iter().zip(&trips).enumerate() {
                let theirs = plus(WALL, offset - (*trip as i64) / 2);
                clock.handle_pong(NOW, WALL, ReplicaId(replica as u8 + 1), NOW.before_us(*trip), theirs);
            }
            let given = difference(clock.wall(NOW, WALL), WALL).unsigned_abs();
            prop_assert!(given <= SECOND, "{given}");
        }

        /// The chosen interval lies in as many sources as claimed, checked point by point.
        #[test]
        fn the_intersection_is_in_a_majority(
            ends in proptest::collection::vec((-50i64..50, 0i64..30), 1..8),
            least in 1usize..8,
        ) {
            let intervals: Vec<_> = ends.iter().map(|(low, width)| Interval { low: *low, high: low + width }).collect();
            let depth = |at: i64| intervals.iter().filter(|i| i.low <= at && at <= i.high).count();
            let deepest = (-50..=80).map(depth).max().unwrap();
            match intersection(&intervals, least) {
                Some(found) => {
                    prop_assert!(deepest >= least);
                    prop_assert!((found.low..=found.high).all(|at| depth(at) == deepest));
                }
                None => prop_assert!(deepest < least),
            }
        }
    }
}
