//! The monotonic clock of a process, as a number that the caller brings.

/// Nanoseconds of a monotonic clock that all shards of a process share. Its zero means nothing; only differences and
/// the order do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A moment that never comes.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// This moment plus `duration_us` microseconds. Saturates at [`Nanos::NEVER`].
    pub fn after_us(self, duration_us: u64) -> Nanos {
        Nanos(self.0.saturating_add(duration_us.saturating_mul(1_000)))
    }

    /// This moment minus `duration_us` microseconds. Saturates at the clock's zero.
    pub fn before_us(self, duration_us: u64) -> Nanos {
        Nanos(self.0.saturating_sub(duration_us.saturating_mul(1_000)))
    }

    /// Whole microseconds from `earlier` to this moment, rounded up so that a queue never gives time back; 0 when
    /// `earlier` is later.
    pub fn us_since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0).div_ceil(1_000)
    }
}
