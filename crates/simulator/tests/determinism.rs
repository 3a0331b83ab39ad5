//! The same seed is the same run: twice in a row, in every build (point e of what the simulator must show).

use laneway_simulator::run;
use laneway_simulator::trace::Verbosity;
use laneway_simulator::{Options, Profile};

fn hash(seed: u64, profile: Profile, verbosity: Verbosity) -> u64 {
    let outcome = run::run(&Options { verbosity, ..Options::of(seed, profile) });
    assert_eq!(outcome.violation, None, "seed {seed}");
    outcome.trace_hash
}

#[test]
fn a_seed_gives_the_same_trace_twice_with_and_without_text() {
    for seed in 0..40 {
        let first = hash(seed, Profile::Lite, Verbosity::Off);
        assert_eq!(first, hash(seed, Profile::Lite, Verbosity::Off), "seed {seed}");
        assert_eq!(first, hash(seed, Profile::Lite, Verbosity::Tail(50)), "seed {seed}: reading changes it");
    }
    assert_ne!(hash(1, Profile::Lite, Verbosity::Off), hash(2, Profile::Lite, Verbosity::Off));
}
