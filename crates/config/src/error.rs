//! What can be wrong with a configuration. Every message names the place and the fix.

use std::fmt;
use std::path::PathBuf;

use crate::source::Source;
use crate::value::ValueError;

/// Why there is no configuration. The first mistake that was found; nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: not valid TOML: {message}", path.display())]
    Syntax { path: PathBuf, line: usize, message: String },
    #[error("{at}: unknown key {name:?}{suggestion} (`laneway config --keys` lists them all)")]
    UnknownKey { at: Source, name: String, suggestion: Suggestion },
    #[error("unknown environment variable {name}{suggestion} (`laneway config --keys` lists them all)")]
    UnknownVariable { name: String, suggestion: Suggestion },
    #[error("environment variable {name} is not UTF-8 text")]
    NotText { name: String },
    #[error("{at}: {key}: {reason}")]
    Value { at: Source, key: &'static str, reason: ValueError },
    #[error("{at}: {key}: a single value is needed here, not a list, a table or a date")]
    Shape { at: Source, key: &'static str },
    #[error("{at}: {key} cannot be set here; set {variable} in the environment")]
    Scope { at: Source, key: &'static str, variable: String },
    #[error("{at}: write --set KEY=VALUE, for example --set sessions.timeout=30m")]
    Assignment { at: Source },
    #[error("{at}: HTTP is not there yet; set http.address to off (the default) and use TCP")]
    NoHttp { at: Source },
    #[error(
        "tcp.address is off and there is no other listener; set tcp.address, for example to 127.0.0.1:8090"
    )]
    NoListener,
    #[error("{small} ({small_value}) must not exceed {large} ({large_value}); change one of them")]
    Order { small: &'static str, small_value: String, large: &'static str, large_value: String },
}

/// The closest known name, if one is close. Displays as `; did you mean "x"?` or as nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion(pub Option<String>);

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(f, "; did you mean {name:?}?"),
            None => Ok(()),
        }
    }
}

impl Suggestion {
    /// The candidate with the fewest edits, if they are few enough to be a slip, else one that the text begins.
    /// Separators count as equal.
    pub(crate) fn closest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> Self {
        let wrong = normal(wrong);
        let edits_max = (wrong.chars().count() / 4).max(2);
        let slip = candidates
            .clone()
            .into_iter()
            .map(|candidate| (strsim::damerau_levenshtein(&wrong, &normal(candidate)), candidate))
            .min_by_key(|(edits, _)| *edits)
            .filter(|(edits, _)| *edits <= edits_max)
            .map(|(_, candidate)| candidate);
        let longer =
            || (wrong.len() > 2).then(|| candidates.into_iter().find(|c| normal(c).starts_with(&wrong)))?;
        Self(slip.or_else(longer).map(str::to_owned))
    }
}

fn normal(name: &str) -> String {
    // Names longer than any key cannot be a slip of one; the cut keeps the comparison cheap.
    name.chars()
        .take(80)
        .map(|c| if matches!(c, '.' | '_' | '-') { '.' } else { c.to_ascii_lowercase() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_close_name_is_suggested() {
        let known = ["tcp.address", "reads.wait_max", "shards"];
        let check = |wrong: &str, expected: Option<&str>| {
            assert_eq!(Suggestion::closest(wrong, known).0.as_deref(), expected, "{wrong}");
        };
        check("tcp.adress", Some("tcp.address"));
        check("tcp_address", Some("tcp.address"));
        check("shard", Some("shards"));
        check("reads.wait", Some("reads.wait_max"));
        check("colour", None);
        check("", None);
        check(&"tcp.address".repeat(1000), None);
    }
}
