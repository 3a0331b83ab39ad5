//! A histogram of latencies in bounded memory.

use std::time::Duration;

/// Sub-buckets per power of two: values are kept to 1/128, better than one percent.
const SUB_BITS: u32 = 7;
const SUB_COUNT: usize = 1 << SUB_BITS;
/// Powers of two above the exact range that a `u64` of nanoseconds can reach.
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB_COUNT;

/// Counts durations in buckets whose width grows with the value. 60 KiB, whatever the number of values.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }
}

impl Latencies {
    /// Counts one duration; what a `u64` of nanoseconds cannot hold counts as its maximum.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// Adds what another histogram counted.
    pub fn merge(&mut self, other: &Latencies) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// The longest duration, exact; zero when nothing was counted.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The smallest value that at least `percent` of the durations do not exceed (nearest rank), never understated
    /// and overstated by less than one percent. Zero when nothing was counted.
    pub fn percentile(&self, percent: f64) -> Duration {
        assert!((0.0..=100.0).contains(&percent), "not a percentage: {percent}");
        let rank = ((percent / 100.0 * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(upper_bound(index).min(self.max));
            }
        }
        self.max()
    }
}

/// Values below `SUB_COUNT` have a bucket each; above, every power of two has `SUB_COUNT` buckets.
fn bucket(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(SUB_BITS + 1);
    let mantissa = (nanos >> shift) as usize;
    shift as usize * SUB_COUNT + mantissa
}

/// The largest value of a bucket.
fn upper_bound(index: usize) -> u64 {
    let shift = (index / SUB_COUNT).saturating_sub(1) as u32;
    let mantissa = (index - shift as usize * SUB_COUNT) as u64;
    mantissa.checked_add(1).and_then(|next| next.checked_mul(1 << shift)).map_or(u64::MAX, |next| next - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_values_give_zero() {
        let none = Latencies::default();
        assert_eq!((none.max(), none.percentile(99.0)), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn percentiles_of_one_to_a_thousand_microseconds() {
        let mut latencies = Latencies::default();
        for micros in (1..=1000).rev() {
            latencies.record(Duration::from_micros(micros));
        }
        for (percent, micros) in [(50.0, 500), (95.0, 950), (99.0, 990), (100.0, 1000), (0.0, 1)] {
            let found = latencies.percentile(percent).as_nanos() as f64 / 1000.0;
            assert!(found >= micros as f64 && found < micros as f64 * 1.01, "p{percent}: {found}");
        }
        assert_eq!(latencies.max(), Duration::from_millis(1));
    }

    #[test]
    fn one_slow_value_shows_in_the_maximum_only() {
        let mut latencies = Latencies::default();
        (0..999).for_each(|_| latencies.record(Duration::from_micros(10)));
        let mut other = Latencies::default();
        other.record(Duration::from_secs(3));
        latencies.merge(&other);
        assert!(latencies.percentile(99.0) < Duration::from_micros(11));
        assert_eq!(latencies.percentile(100.0), Duration::from_secs(3));
    }

    proptest! {
        #[test]
        fn bucket_holds_its_value(nanos in any::<u64>()) {
            let upper = upper_bound(bucket(nanos));
            prop_assert!(bucket(nanos) < BUCKETS);
            prop_assert!(upper >= nanos && upper - nanos <= nanos / SUB_COUNT as u64);
            prop_assert_eq!(bucket(upper), bucket(nanos));
        }
    }
}
