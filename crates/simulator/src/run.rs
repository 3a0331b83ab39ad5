//! Running one seed and saying what came of it. An assertion of a core that fails is a finding like any other.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::options::{Options, Plan};
use crate::oracle::Violation;
use crate::totals::Totals;
use crate::world::{Outcome, World};

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the text and the place of panics instead of printing them. For whole processes that only run simulations.
pub fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|place| format!("{}:{}", place.file(), place.line()));
        let text = format!("{} at {}", message_of(info.payload()), place.unwrap_or_default());
        PANIC.with(|panic| *panic.borrow_mut() = Some(text));
    }));
}

fn message_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

/// Runs a seed. A panic becomes a violation; its trace ends where the panic was.
pub fn run(options: &Options) -> Outcome {
    let mut world = World::new(options);
    let result = catch_unwind(AssertUnwindSafe(|| world.run_to_end()));
    let violation = match result {
        Ok(result) => result.err(),
        Err(payload) => {
            let kept = PANIC.with(|panic| panic.borrow_mut().take());
            let text = kept.unwrap_or_else(|| message_of(&*payload));
            Some(Violation(format!("an assertion failed: {text}")))
        }
    };
    world.into_outcome(violation)
}

/// What became of a seed, in one line.
pub fn describe(options: &Options, outcome: &Outcome) -> String {
    match &outcome.violation {
        Some(violation) => format!("seed {} FAILED: {violation}", options.seed),
        None => format!(
            "seed {} passed: {} nodes, {} ops, {} ms, trace hash {:016x}",
            options.seed,
            outcome.plan.nodes,
            outcome.totals.committed,
            outcome.totals.simulated / 1_000_000,
            outcome.trace_hash
        ),
    }
}

/// What a run is, in a few words.
pub fn describe_plan(plan: &Plan) -> String {
    format!("{plan:#?}")
}

/// Adds up what runs did and keeps the seeds that failed.
#[derive(Debug, Default)]
pub struct Sum {
    /// What was done.
    pub totals: Totals,
    /// Seeds that failed, and why.
    pub failures: Vec<(u64, String)>,
}

impl Sum {
    /// Runs a seed and adds it.
    pub fn run(&mut self, options: &Options) {
        let outcome = run(options);
        self.totals.add(&outcome.totals);
        if let Some(violation) = outcome.violation {
            self.failures.push((options.seed, violation.0));
        }
    }

    /// Adds other runs.
    pub fn add(&mut self, other: Sum) {
        self.totals.add(&other.totals);
        self.failures.extend(other.failures);
        self.failures.sort();
    }
}
