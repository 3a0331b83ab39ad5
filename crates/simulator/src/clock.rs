//! The clocks of a node: a monotonic one that drifts, and a wall clock that is wrong and jumps.

use crate::queue::{SECOND, Time};
use crate::random::Random;

/// The wall time at which a run starts: microseconds since the epoch.
pub const WALL_START: u64 = 1_700_000_000_000_000;

/// What the clocks of a run do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSettings {
    /// Most that a wall clock is wrong, microseconds.
    pub offset_us_max: u64,
    /// Most that a clock runs fast or slow, parts in a million.
    pub drift_ppm_max: u64,
}

/// The clocks of one node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeClock {
    /// Parts in a million that both clocks run fast.
    drift_ppm: i64,
    offset_us: i64,
}

impl NodeClock {
    /// Clocks that are wrong by up to what the settings say.
    pub fn draw(settings: &ClockSettings, random: &mut Random) -> Self {
        Self {
            drift_ppm: signed(random, settings.drift_ppm_max),
            offset_us: signed(random, settings.offset_us_max),
        }
    }

    /// The monotonic clock, nanoseconds.
    pub fn monotonic(&self, now: Time) -> u64 {
        let drifted = i128::from(now) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000;
        // A run starts at 1 s, so that nobody sees the time before its own start.
        u64::try_from(drifted).expect("drift is small") + SECOND
    }

    /// How long it takes in real time until the monotonic clock shows `deadline`.
    pub fn real_delay(&self, now: Time, deadline: u64) -> Time {
        let left = deadline.saturating_sub(self.monotonic(now));
        let real = u128::from(left) * 1_000_000 / u128::from((1_000_000 + self.drift_ppm).unsigned_abs());
        // One more, so that the clock has reached the deadline when it fires.
        real as u64 + 1
    }

    /// The wall clock, microseconds since the epoch.
    pub fn wall(&self, now: Time) -> u64 {
        let monotonic_us = self.monotonic(now) / 1_000;
        (WALL_START + monotonic_us).saturating_add_signed(self.offset_us)
    }

    /// The wall clock jumps.
    pub fn step(&mut self, by_us: i64) {
        self.offset_us += by_us;
    }

    /// The wall clock is right again.
    pub fn set_right(&mut self) {
        self.offset_us = 0;
    }
}

fn signed(random: &mut Random, max: u64) -> i64 {
    random.between(0, 2 * max) as i64 - max as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_reached_when_its_delay_is_over() {
        let mut random = Random::new(1, 1);
        let settings = ClockSettings { offset_us_max: 5_000_000, drift_ppm_max: 10_000 };
        for _ in 0..1_000 {
            let clock = NodeClock::draw(&settings, &mut random);
            let now = random.below(100 * SECOND);
            let deadline = clock.monotonic(now) + random.below(10 * SECOND);
            let at = now + clock.real_delay(now, deadline);
            assert!(clock.monotonic(at) >= deadline);
            assert!(clock.monotonic(at) <= deadline + 1_000);
        }
    }

    #[test]
    fn steps_move_the_wall_clock_only() {
        let mut clock = NodeClock::default();
        let (wall, monotonic) = (clock.wall(SECOND), clock.monotonic(SECOND));
        clock.step(-2_000_000);
        assert_eq!(clock.wall(SECOND), wall - 2_000_000);
        assert_eq!(clock.monotonic(SECOND), monotonic);
    }
}
