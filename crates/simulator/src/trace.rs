//! What happened, as one number and, when somebody reads, as text.
//!
//! Every step of a run goes into the hash, whether or not it is printed; two runs are the same if their hashes are.

use std::fmt;

use crate::queue::Time;

/// What becomes of the text of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// No text is made.
    #[default]
    Off,
    /// The newest lines are kept, for the report of a failure.
    Tail(usize),
    /// All lines are kept.
    All,
}

/// The trace of one run.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    steps: u64,
    verbosity: Verbosity,
    lines: std::collections::VecDeque<String>,
}

impl Trace {
    /// An empty trace.
    pub fn new(verbosity: Verbosity) -> Self {
        Self { hash: 0x6c61_6e65_7761_7931, steps: 0, verbosity, lines: Default::default() }
    }

    /// Notes a step: what it was, as a few numbers.
    pub fn step(&mut self, at: Time, numbers: [u64; 4]) {
        self.steps += 1;
        let mut hash = self.hash ^ at;
        for number in numbers {
            hash = (hash ^ number).wrapping_mul(0x9fb2_1c65_1e98_df25);
            hash ^= hash >> 29;
        }
        self.hash = hash;
    }

    /// Whether text is wanted.
    pub fn is_on(&self) -> bool {
        self.verbosity != Verbosity::Off
    }

    /// Adds a line. Call it behind [`Trace::is_on`], or with [`crate::say`], which does.
    pub fn line(&mut self, at: Time, text: fmt::Arguments<'_>) {
        let max = match self.verbosity {
            Verbosity::Off => return,
            Verbosity::Tail(max) => max,
            Verbosity::All => usize::MAX,
        };
        if self.lines.len() >= max {
            self.lines.pop_front();
        }
        let (millis, micros) = (at / 1_000_000, at / 1_000 % 1_000);
        self.lines.push_back(format!("{millis:>6}.{micros:03} {text}"));
    }

    /// The hash over all steps.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many steps there were.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The lines that were kept.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Takes the lines that were kept.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines).into()
    }
}

/// Adds a line to a trace when somebody reads it; the text is not made otherwise.
#[macro_export]
macro_rules! say {
    ($trace:expr, $at:expr, $($text:tt)*) => {
        if $trace.is_on() {
            $trace.line($at, format_args!($($text)*));
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_every_step_and_its_time() {
        let hash = |steps: &[(Time, [u64; 4])]| {
            let mut trace = Trace::new(Verbosity::Off);
            steps.iter().for_each(|(at, numbers)| trace.step(*at, *numbers));
            trace.hash()
        };
        let one = hash(&[(1, [1, 2, 3, 4]), (2, [0; 4])]);
        assert_eq!(one, hash(&[(1, [1, 2, 3, 4]), (2, [0; 4])]));
        assert_ne!(one, hash(&[(2, [0; 4]), (1, [1, 2, 3, 4])]));
        assert_ne!(one, hash(&[(1, [1, 2, 4, 3]), (2, [0; 4])]));
        assert_ne!(one, hash(&[(1, [1, 2, 3, 4]), (3, [0; 4])]));
    }

    #[test]
    fn a_tail_keeps_the_newest_lines() {
        let mut trace = Trace::new(Verbosity::Tail(2));
        for number in 0..5u64 {
            say!(trace, number * 1_000, "line {number}");
        }
        assert_eq!(trace.lines().collect::<Vec<_>>(), ["     0.003 line 3", "     0.004 line 4"]);
    }
}
