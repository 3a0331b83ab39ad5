//! A line on standard error that says how far a long command is. Only for a person at a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two updates: often enough to look alive, seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(200);

/// The progress line of one command.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    enabled: bool,
    next: Instant,
}

impl Progress {
    /// A line that shows when standard error is a terminal and `wanted` says so.
    pub fn new(wanted: bool) -> Self {
        Self { shown: false, enabled: wanted && io::stderr().is_terminal(), next: Instant::now() + EVERY }
    }

    /// Shows a text, if it is time for it; otherwise the text is not even made.
    pub fn update(&mut self, text: impl FnOnce() -> String) {
        if !self.enabled || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        self.shown = true;
        // Nobody misses a progress line that cannot be written.
        let _ = write!(io::stderr().lock(), "\r\x1b[K{}", text());
        let _ = io::stderr().lock().flush();
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
