//! The two clocks that cores get as arguments. Every shard of a process reads the same ones.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use laneway_reads::Nanos;
use laneway_wire::Micros;

static START: OnceLock<Instant> = OnceLock::new();

/// The monotonic clock.
pub fn now() -> Nanos {
    let start = START.get_or_init(Instant::now);
    // A process does not run for 584 years.
    Nanos(start.elapsed().as_nanos() as u64)
}

/// The wall clock. A clock before 1970 counts as 1970; a lane never lets its timestamps go back.
pub fn wall() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Micros(since.as_micros() as u64)
}

/// How long it is from `now` to `moment`.
pub fn until(now: Nanos, moment: Nanos) -> Duration {
    Duration::from_nanos(moment.0.saturating_sub(now.0))
}
