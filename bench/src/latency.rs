//! Every single latency of a run, kept whole: a few million at most.

use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    pub fn push(&mut self, latency: Duration) {
        self.0.push(latency.as_nanos() as u64);
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Milliseconds below which a share of the latencies lies, by nearest rank; 0 without any.
    pub fn percentile(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0) as f64 / 1e6
    }
}
