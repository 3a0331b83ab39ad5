//! Threads that start together.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::Result;
use crate::process::{Broker, Usage};

/// What a common run took: from the start of all to the end of the last.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub time: Duration,
    /// The broker before and after. Signing in, slow on purpose, came before.
    pub before: Usage,
    pub after: Usage,
}

impl Taken {
    pub fn cpu_seconds(&self) -> f64 {
        self.after.cpu_seconds - self.before.cpu_seconds
    }
}

/// Gives each state to a thread of its own. Returns what each made, in the order of the states; the first error if there
/// is one.
pub fn run<S: Send, T: Send>(
    broker: &Broker,
    states: Vec<S>,
    work: impl Fn(usize, S) -> Result<T> + Sync,
) -> Result<(Taken, Vec<T>)> {
    let barrier = Barrier::new(states.len() + 1);
    let (work, barrier) = (&work, &barrier);
    std::thread::scope(|scope| {
        let threads: Vec<_> = states
            .into_iter()
            .enumerate()
            .map(|(number, state)| {
                scope.spawn(move || {
                    barrier.wait();
                    work(number, state)
                })
            })
            .collect();
        let before = broker.usage()?;
        barrier.wait();
        let since = Instant::now();
        let results: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect();
        let time = since.elapsed();
        let after = broker.usage()?;
        Ok((Taken { time, before, after }, results.into_iter().collect::<Result<Vec<T>>>()?))
    })
}
