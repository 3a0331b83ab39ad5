//! Seeds that failed once. What a seed draws changes with the simulator, so each test also says what was wrong; a test of
//! the core itself stands beside the fix.

use laneway_simulator::run;
use laneway_simulator::{Options, Profile};

fn passes(nodes: usize, seeds: &[u64]) {
    run::keep_panics_quiet();
    for seed in seeds {
        let options = Options { nodes: Some(nodes), ..Options::of(*seed, Profile::Lite) };
        assert_eq!(run::run(&options).violation, None, "seed {seed} with {nodes} nodes");
    }
}

/// A restarted lone replica gave a new op a time at or before that of an entry that was not applied yet.
#[test]
fn times_grow_over_what_a_restart_has_not_applied() {
    passes(1, &[44, 52, 67, 156]);
}

/// A restarted lone replica served reads before it had applied its log.
#[test]
fn a_lone_replica_serves_after_it_applied_its_log() {
    passes(1, &[2_002_857]);
}

/// A partition was opened again after its end, by a primary whose metadata lagged: its offsets began anew.
#[test]
fn a_partition_that_ended_stays_ended() {
    passes(1, &[66, 81, 100]);
    passes(3, &[323, 425]);
}

/// An unreadable entry of a primary was asked for by op only, of the primary only, for ever.
#[test]
fn a_damaged_entry_of_the_primary_is_had_from_others() {
    passes(3, &[308, 337, 613, 738]);
    passes(5, &[919, 974]);
    passes(6, &[46, 494, 884, 890, 998]);
}

/// Blocks whose witness was there before them turned a crash of all nodes into lost ends that nobody could vote over.
#[test]
fn a_crash_of_all_nodes_leaves_enough_to_elect() {
    passes(2, &[14, 199, 526, 548, 559]);
    passes(3, &[131, 885]);
    passes(4, &[52]);
}
