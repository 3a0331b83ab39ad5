//! Planted bugs are found (point d of what the simulator must show). Each is one place of the consensus core that is
//! wrong; the number says within how many seeds it has to be found. Found means that a run fails which passes without
//! the bug: `tests/seeds.rs` runs the same seeds.

use laneway_simulator::run;
use laneway_simulator::{Options, Profile, mutations};

const FOUND_WITHIN: [(&str, u64); 14] = [
    ("drop-nack-quorum", 300),
    ("ack-before-durable", 20),
    ("ack-over-gap", 8_000),
    ("skip-superblock-before-vote", 20),
    ("skip-superblock-before-ack", 20),
    ("recompute-vote", 100),
    ("keep-relics", 1_500),
    ("apply-over-gap", 20),
    ("nack-held", 200),
    ("early-log-view", 20),
    ("keep-heartbeat-counter", 200),
    ("floor-is-committed", 4_000),
    ("ignore-log-view", 1_500),
    ("small-commit-quorum", 200),
];

#[test]
fn planted_bugs_are_found_within_their_number_of_seeds() {
    run::keep_panics_quiet();
    let mut missed = Vec::new();
    for (name, seeds) in FOUND_WITHIN {
        let number = mutations::find(name).unwrap_or_else(|| panic!("no bug is called {name}"));
        let found = (0..seeds).find_map(|seed| {
            let options = Options { mutation: Some(number), ..Options::of(seed, Profile::Lite) };
            run::run(&options).violation.map(|violation| (seed, violation.0))
        });
        match found {
            Some((seed, cause)) => println!("{name}: seed {seed}: {cause}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
