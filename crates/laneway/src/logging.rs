//! Logging: one line per event on standard error, colours only for a person.

use std::io::{self, IsTerminal};

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
        .with_writer(io::stderr)
        .with_ansi(ansi)
        .try_init()
        .map_err(|_| LoggingError::Twice)
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
    fn slips_are_refused_and_named() {
        for (filter, slip) in [("inof", "inof"), ("info,", "\"\""), ("laneway=loud", "loud"), ("", "\"\"")] {
            let error = check_filter(filter).unwrap_err().to_string();
            assert!(error.contains(slip) && error.contains("info,laneway_storage=debug"), "{error}");
        }
    }
}
