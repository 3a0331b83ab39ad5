//! Logging: one line per event on standard error, colours only for a person.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error(
        "log.filter: {input:?} is not a filter ({reason}); write a level (error, warn, info, debug, trace) or \
             TARGET=LEVEL pairs such as info,laneway_storage=debug"
    )]
    Filter { input: String, reason: String },
    #[error("logging was started before")]
    Twice,
}

/// Checks a filter without starting anything.
pub fn check_filter(filter: &str) -> Result<(), LoggingError> {
    parse(filter).map(drop)
}

/// Starts logging for the whole process. Standard output stays free for what a command prints.
///
/// `filter`: a level or `TARGET=LEVEL` pairs, joined by commas.
pub fn start(filter: &str) -> Result<(), LoggingError> {
    // A person sees colours, a file or a collector does not. Source of the variable: no-color.org.
    let ansi =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(parse(filter)?)
        .with_writer(|| Both)
        .with_ansi(ansi)
        // It would say so on standard error, and panic where that cannot be written.
        .log_internal_errors(false)
        .try_init()
        .map_err(|_| LoggingError::Twice)
}

/// The newest lines of the log, without colours; for a bug report.
pub fn recent() -> String {
    let lines = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    let (front, back) = lines.as_slices();
    without_colours(&String::from_utf8_lossy(&[front, back].concat()))
}

/// Bytes of the log that stay in memory.
const RECENT_BYTES_MAX: usize = 512 * 1024;

static RECENT: Mutex<VecDeque<u8>> = Mutex::new(VecDeque::new());

/// Standard error, and the memory of the newest lines.
struct Both;

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A log that cannot be written (its disk is full, its reader is gone) is no reason to stop serving.
        let _ = io::stderr().write_all(bytes);
        let mut lines = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend(bytes);
        let surplus = lines.len().saturating_sub(RECENT_BYTES_MAX);
        lines.drain(..surplus);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

/// Removes what colours a terminal: an escape, a bracket, and all up to a letter.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out.push_str(piece.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest));
    }
    out
}

fn parse(filter: &str) -> Result<EnvFilter, LoggingError> {
    let error = |reason: String| LoggingError::Filter { input: filter.to_owned(), reason };
    // The library takes a bare word that is no level for the name of a target, and nothing at all for a level; a slip
    // such as `inof` would silence the broker.
    for part in filter.split(',').map(str::trim) {
        if part.is_empty() || (!part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err()) {
            return Err(error(format!("{part:?} is not a level")));
        }
    }
    EnvFilter::builder().parse(filter).map_err(|source| error(source.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_are_accepted() {
        for filter in ["info", "WARN", "off", "info,laneway_storage=debug", "laneway[span]=trace, error"] {
            assert!(check_filter(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn the_newest_lines_are_kept_within_their_bound_and_without_colours() {
        let line = "\u{1b}[32mINFO\u{1b}[0m a line of a test\n";
        for _ in 0..2 * RECENT_BYTES_MAX / line.len() {
            Both.write_all(line.as_bytes()).unwrap();
        }
        let text = recent();
        assert!(text.ends_with("INFO a line of a test\n"), "{}", &text[text.len() - 100..]);
        assert!(text.len() <= RECENT_BYTES_MAX && !text.contains('\u{1b}'));
    }

    #[test]
    fn slips_are_refused_and_named() {
        for (filter, slip) in [("inof", "inof"), ("info,", "\"\""), ("laneway=loud", "loud"), ("", "\"\"")] {
            let error = check_filter(filter).unwrap_err().to_string();
            assert!(error.contains(slip) && error.contains("info,laneway_storage=debug"), "{error}");
        }
    }
}
