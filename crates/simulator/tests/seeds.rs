//! Many runs with every kind of fault, over all sizes of clusters. Rules of the cluster specification that are checked on
//! every step of every run are listed in `docs/simulator.md`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use laneway_simulator::coverage::Mark;
use laneway_simulator::run::{self, Sum};
use laneway_simulator::{Options, Profile};

/// Runs seeds on all cores.
fn run_all(seeds: std::ops::Range<u64>, make: impl Fn(u64) -> Options + Sync) -> Sum {
    run::keep_panics_quiet();
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut total = Sum::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut sum = Sum::default();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return sum;
                        }
                        sum.run(&make(seed));
                    }
                })
            })
            .collect();
        for worker in workers {
            total.add(worker.join().expect("failures of runs are caught"));
        }
    });
    total
}

fn report(name: &str, sum: &Sum) {
    println!("== {name}\n{}", sum.totals.report());
    for (seed, cause) in sum.failures.iter().take(10) {
        println!("seed {seed} FAILED: {cause}");
    }
    assert!(sum.failures.is_empty(), "{name}: {} of {} runs failed", sum.failures.len(), sum.totals.runs);
}

/// 2,000 short runs of one to six nodes. A set of runs that did not meet what it claims to test fails.
#[test]
fn two_thousand_short_runs_pass_and_meet_everything() {
    let started = std::time::Instant::now();
    let sum = run_all(0..2_000, |seed| Options::of(seed, Profile::Lite));
    let seconds = started.elapsed().as_secs_f64();
    let rate = sum.totals.simulated_seconds() as f64 / seconds;
    println!("{:.0} runs and {rate:.0} simulated seconds in a second", sum.totals.runs as f64 / seconds);
    report("lite", &sum);
    assert!(sum.totals.by_nodes[1..].iter().all(|runs| *runs > 0), "a size of cluster was not run");
    // A lone node that is damaged and started again is too rare to be in every 2,000 runs; see the test below.
    let missing = sum.totals.coverage.missing().filter(|mark| *mark != Mark::Refused);
    let missing: Vec<&str> = missing.map(Mark::text).collect();
    assert!(missing.is_empty(), "never met: {missing:?}");
}

/// A lone node whose log is damaged says so and stops; it never goes on with a hole.
#[test]
fn a_damaged_lone_node_refuses_to_start() {
    let sum = run_all(0..4_000, |seed| Options { nodes: Some(1), ..Options::of(seed, Profile::Lite) });
    report("alone", &sum);
    assert!(sum.totals.coverage.count(Mark::Refused) > 0, "no node was damaged and started again");
}

/// Long runs with more clients and lanes.
#[test]
fn long_runs_pass() {
    let sum = run_all(0..40, |seed| Options::of(seed, Profile::Swarm));
    report("swarm", &sum);
}
