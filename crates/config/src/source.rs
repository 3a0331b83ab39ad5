//! Where a value was set.

use std::fmt;
use std::path::PathBuf;

/// The place that a value came from, in rising order of precedence. Displays as a person would look for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The table of keys.
    Default,
    /// A line of the configuration file, the first is 1.
    File { path: PathBuf, line: usize },
    /// An environment variable.
    Environment { name: String },
    /// A flag of the command line, with its dashes.
    Flag { name: String },
    /// A field that the program that embeds the broker set.
    Code,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Code => f.write_str("configuration in code"),
            Self::Environment { name } | Self::Flag { name } => f.write_str(name),
        }
    }
}
