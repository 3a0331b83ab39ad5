//! The message key of a line: what decides its partition.

use std::borrow::Cow;

use regex_lite::Regex;

/// How the key of a line is found.
#[derive(Clone, Debug)]
pub enum KeyRule {
    /// Lines have no keys; partitions take turns.
    Balanced,
    /// The first capture group of the first match, or the whole match of a pattern without groups.
    Pattern(Regex),
    /// One column, counted from 1.
    Column {
        /// Number of the column, from 1.
        column: usize,
        /// What is between two columns.
        between: Between,
    },
}

/// What separates two columns.
#[derive(Clone, Debug)]
pub enum Between {
    /// Any run of ASCII blanks; blanks in front of the first column do not count, as in awk.
    Blanks,
    /// Exactly these bytes, never empty; two in a row have an empty column between them, as in cut.
    Bytes(Vec<u8>),
}

/// Why a rule cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyRuleError {
    /// The pattern does not compile.
    #[error("--key-regex: {0}")]
    Pattern(#[from] regex_lite::Error),
    /// Columns are counted from 1.
    #[error("--key-column counts from 1, as cut -f does")]
    ColumnZero,
    /// Nothing separates the columns.
    #[error("--delimiter must not be empty")]
    EmptyDelimiter,
}

impl KeyRule {
    /// A rule that looks for `pattern` (syntax of the crate regex-lite).
    pub fn pattern(pattern: &str) -> Result<Self, KeyRuleError> {
        Ok(Self::Pattern(Regex::new(pattern)?))
    }

    /// A rule that takes column number `column`, from 1. No delimiter means runs of blanks.
    pub fn column(column: usize, delimiter: Option<&str>) -> Result<Self, KeyRuleError> {
        let between = match delimiter {
            None => Between::Blanks,
            Some("") => return Err(KeyRuleError::EmptyDelimiter),
            Some(delimiter) => Between::Bytes(delimiter.as_bytes().to_vec()),
        };
        if column == 0 {
            return Err(KeyRuleError::ColumnZero);
        }
        Ok(Self::Column { column, between })
    }

    /// The key of a line (given without its newline), or `None` when it has none or an empty one.
    ///
    /// A pattern sees text: bytes that are not UTF-8 look like U+FFFD to it. The same line always gives the same key.
    pub fn key<'a>(&self, line: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let key = match self {
            Self::Balanced => None,
            Self::Pattern(pattern) => match String::from_utf8_lossy(line) {
                Cow::Borrowed(text) => found(pattern, text).map(|key| Cow::Borrowed(key.as_bytes())),
                Cow::Owned(text) => found(pattern, &text).map(|key| Cow::Owned(key.as_bytes().to_vec())),
            },
            Self::Column { column, between } => {
                let key = match between {
                    Between::Bytes(delimiter) => nth_column(line, *column, delimiter),
                    Between::Blanks => {
                        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(column - 1)
                    }
                };
                key.map(Cow::Borrowed)
            }
        };
        key.filter(|key| !key.is_empty())
    }
}

fn found<'t>(pattern: &Regex, text: &'t str) -> Option<&'t str> {
    let captures = pattern.captures(text)?;
    let group = if captures.len() > 1 { captures.get(1) } else { captures.get(0) };
    group.map(|group| group.as_str())
}

fn nth_column<'a>(line: &'a [u8], column: usize, delimiter: &[u8]) -> Option<&'a [u8]> {
    let mut rest = line;
    for _ in 1..column {
        let at = position(rest, delimiter)?;
        rest = rest.get(at + delimiter.len()..)?;
    }
    let end = position(rest, delimiter).unwrap_or(rest.len());
    rest.get(..end)
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: &KeyRule, line: &[u8], expected: Option<&str>) {
        assert_eq!(rule.key(line).as_deref(), expected.map(str::as_bytes));
    }

    #[test]
    fn pattern_gives_its_group_or_the_whole_match() {
        let group = KeyRule::pattern("user=([a-z]+)").unwrap();
        check(&group, b"at=1 user=ann ok", Some("ann"));
        check(&group, b"at=1 user=", None);
        check(&KeyRule::pattern("[0-9]+").unwrap(), b"at 42, 43", Some("42"));
    }

    #[test]
    fn pattern_reads_lines_that_are_not_text() {
        let rule = KeyRule::pattern("id=([0-9]+)").unwrap();
        check(&rule, b"\xff\xfe id=7 \x00", Some("7"));
    }

    #[test]
    fn column_counts_from_one_and_may_be_missing() {
        let tab = |column| KeyRule::column(column, Some("\t")).unwrap();
        check(&tab(1), b"a\tb\tc", Some("a"));
        check(&tab(3), b"a\tb\tc", Some("c"));
        check(&tab(4), b"a\tb\tc", None);
        check(&tab(2), b"a\t\tc", None);
        check(&tab(1), b"", None);
        check(&KeyRule::column(2, Some(", ")).unwrap(), b"x, y,z, w", Some("y,z"));
    }

    #[test]
    fn columns_between_runs_of_blanks() {
        let rule = KeyRule::column(2, None).unwrap();
        check(&rule, b"  ann \t bob  cid", Some("bob"));
        check(&rule, b"ann ", None);
    }

    #[test]
    fn unusable_rules_are_refused() {
        assert!(matches!(KeyRule::pattern("("), Err(KeyRuleError::Pattern(_))));
        assert!(matches!(KeyRule::column(0, Some(",")), Err(KeyRuleError::ColumnZero)));
        assert!(matches!(KeyRule::column(1, Some("")), Err(KeyRuleError::EmptyDelimiter)));
    }
}
