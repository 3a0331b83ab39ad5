//! The TOML file: a flat list of dotted names with their text and line. Knows no keys.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::ConfigError;

/// One assignment of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Dotted name.
    pub(crate) name: String,
    pub(crate) value: Assigned,
    /// The first line is 1.
    pub(crate) line: usize,
}

/// The right side of an assignment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Assigned {
    /// A single value, as text.
    Text(String),
    /// A table with nothing in it, as a heading without lines gives.
    EmptyTable,
    /// A list, a date, a number that is not decimal.
    Other,
}

/// Reads a file's text. The assignments come in the order of the file.
///
/// `path` is only named in errors. Errors: [`ConfigError::Syntax`].
pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<Assignment>, ConfigError> {
    let root = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    let mut found = Vec::new();
    collect("", root.get_ref(), &mut found);
    found.sort_by_key(|(start, _)| *start);
    Ok(found
        .into_iter()
        .map(|(start, (name, value))| Assignment { name, value, line: line_of(text, start) })
        .collect())
}

type Found = (usize, (String, Assigned));

fn collect(prefix: &str, table: &DeTable<'_>, found: &mut Vec<Found>) {
    for (key, value) in table.iter() {
        let name =
            if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        match value.get_ref() {
            // The parser bounds the depth of tables, so this recursion is bounded too.
            DeValue::Table(inner) if !inner.is_empty() => collect(&name, inner, found),
            _ => found.push((key.span().start, (name, assigned(value)))),
        }
    }
}

fn assigned(value: &Spanned<DeValue<'_>>) -> Assigned {
    match value.get_ref() {
        DeValue::String(text) => Assigned::Text(text.to_string()),
        DeValue::Integer(integer) if integer.radix() == 10 => Assigned::Text(integer.as_str().to_owned()),
        DeValue::Float(float) => Assigned::Text(float.as_str().to_owned()),
        DeValue::Boolean(value) => Assigned::Text(value.to_string()),
        DeValue::Table(_) => Assigned::EmptyTable,
        _ => Assigned::Other,
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, text: &str, line: usize) -> Assignment {
        Assignment { name: name.into(), value: Assigned::Text(text.into()), line }
    }

    fn no_text(name: &str, value: Assigned, line: usize) -> Assignment {
        Assignment { name: name.into(), value, line }
    }

    #[test]
    fn tables_and_dotted_names_give_the_same_names_in_file_order() {
        let file = "shards = 2\ntcp.address = 'off'\n\n[reads]\nwait_max = \"30 s\"\n[z]\n[a]\nlist = [1]\nbig = 0x10\n";
        let expected = vec![
            text("shards", "2", 1),
            text("tcp.address", "off", 2),
            text("reads.wait_max", "30 s", 5),
            no_text("z", Assigned::EmptyTable, 6),
            no_text("a.list", Assigned::Other, 8),
            no_text("a.big", Assigned::Other, 9),
        ];
        assert_eq!(parse(Path::new("f.toml"), file).unwrap(), expected);
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = parse(Path::new("f.toml"), "shards = 2\ntcp = = 3\n").unwrap_err().to_string();
        assert!(error.starts_with("f.toml:2: not valid TOML: "), "{error}");
        let error = parse(Path::new("f.toml"), "shards = 2\nshards = 3\n").unwrap_err().to_string();
        assert!(error.starts_with("f.toml:2: "), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_answered_without_a_panic(text in "[a-z\\[\\]\\.=\"'{}0-9 \n,]{0,80}") {
            let _ = parse(Path::new("f.toml"), &text);
        }
    }
}
