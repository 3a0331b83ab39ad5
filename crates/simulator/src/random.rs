//! Random numbers of a run. One seed gives several independent streams, one for each kind of decision, so that one more
//! draw in the network does not change what the disks do.
//!
//! Whole numbers only: a trace must not depend on how a build treats floating point.

/// One stream of random numbers: xoshiro256**, whose state is filled by splitmix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// A chance in a million; 0 is never, 1_000_000 is always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ppm(pub u32);

impl Ppm {
    /// Never.
    pub const ZERO: Ppm = Ppm(0);
    /// Always.
    pub const ONE: Ppm = Ppm(1_000_000);

    /// So many in a hundred.
    pub const fn percent(percent: u32) -> Ppm {
        Ppm(percent * 10_000)
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The stream `name` of a seed.
    pub fn new(seed: u64, name: u64) -> Self {
        let mut mix = seed ^ name.wrapping_mul(0xd6e8_feb8_6659_fd93);
        // The first output depends on both inputs; the state must not be all zeros, which splitmix never gives.
        let state = std::array::from_fn(|_| splitmix(&mut mix));
        Self { state }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// 128 bits, never 0.
    pub fn bits_u128(&mut self) -> u128 {
        (u128::from(self.bits()) << 64 | u128::from(self.bits())).max(1)
    }

    /// A number below `end`. `end` is above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        // The bias of this reduction is below 2^-32 for the ranges of a simulation.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// An index into something of that many items.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range");
        low + self.below(high - low + 1)
    }

    /// Whether a thing of that chance happens. Always draws, whatever the chance.
    pub fn chance(&mut self, chance: Ppm) -> bool {
        self.below(1_000_000) < u64::from(chance.0)
    }

    /// True in half of the cases.
    pub fn flip(&mut self) -> bool {
        self.bits() >> 63 == 1
    }

    /// An item of a slice that is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.index(items.len());
        &items[index]
    }

    /// An exponential waiting time with that mean, cut at 32 times the mean.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        // -ln(u) = ln 2 * (leading zeros + what is left), the rest taken as linear between powers of two.
        let draw = self.bits() | 1;
        let zeros = u64::from(draw.leading_zeros());
        let mantissa = (draw << zeros) >> 32;
        // In 2^-16: the mantissa runs from 2^31 to 2^32, the fraction of the exponent from 1 to 0.
        let fraction = 0x1_0000 - ((mantissa - 0x8000_0000) >> 15);
        let log2 = ((zeros << 16) + fraction).min(46 << 16);
        ((u128::from(mean) * u128::from(log2) * 45_426) >> 32) as u64
    }
}

/// The streams of one run.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Losses, duplicates and delays of messages.
    pub network: Random,
    /// Latency and damage of disks.
    pub storage: Random,
    /// Order of what happens at the same time.
    pub scheduling: Random,
    /// What clients ask.
    pub workload: Random,
    /// Crashes, partitions and other events.
    pub faults: Random,
    /// Offsets, drifts and steps.
    pub clocks: Random,
}

impl Streams {
    /// The streams of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            network: Random::new(seed, 1),
            storage: Random::new(seed, 2),
            scheduling: Random::new(seed, 3),
            workload: Random::new(seed, 4),
            faults: Random::new(seed, 5),
            clocks: Random::new(seed, 6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, name| {
            (0..8)
                .map({
                    let mut r = Random::new(seed, name);
                    move |_| r.bits()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
    }

    #[test]
    fn a_draw_in_one_stream_moves_no_other() {
        let mut one = Streams::new(9);
        let mut other = Streams::new(9);
        one.network.bits();
        assert_eq!(one.storage.bits(), other.storage.bits());
        assert_ne!(one.network.bits(), other.network.bits());
    }

    #[test]
    fn numbers_are_spread_as_asked() {
        let mut random = Random::new(3, 3);
        let mut counts = [0u32; 10];
        for _ in 0..10_000 {
            counts[random.index(10)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        let hits = (0..100_000).filter(|_| random.chance(Ppm::percent(5))).count();
        assert!((4_500..5_500).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| (5..=7).contains(&random.between(5, 7))));
        let mean = (0..100_000).map(|_| random.exponential(1_000)).sum::<u64>() / 100_000;
        assert!((950..1_100).contains(&mean), "{mean}");
    }
}
