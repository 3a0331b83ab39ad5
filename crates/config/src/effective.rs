//! The effective configuration as a listing: each key with its value and its source.

use std::fmt::Write;

use crate::keys::Key;
use crate::source::Source;
use crate::value::{self, Value};

/// Every key of the table, in its order. Created by [`crate::resolve`].
#[derive(Debug, Clone)]
pub struct Effective {
    pub entries: Vec<Entry>,
}

/// One line of the listing.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: &'static Key,
    pub value: Value,
    pub source: Source,
    /// What an `auto` came to on this machine, where somebody found out.
    pub resolved: Option<String>,
}

impl Effective {
    /// Notes what `auto` of a key means here. Nothing happens if the key has a value of its own.
    pub fn note_auto(&mut self, name: &str, resolved: impl ToString) {
        for entry in &mut self.entries {
            if entry.key.name == name && entry.value == Value::Absent {
                entry.resolved = Some(resolved.to_string());
            }
        }
    }

    /// A table of key, value, unit and source, with a heading. Secrets are masked.
    pub fn table(&self) -> String {
        let mut rows = vec![["KEY".to_owned(), "VALUE".to_owned(), "UNIT".to_owned(), "SOURCE".to_owned()]];
        rows.extend(self.entries.iter().map(Entry::columns));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (key, value, unit) = (width(0), width(1), width(2));
        let mut out = String::new();
        for [a, b, c, d] in &rows {
            writeln!(out, "{a:key$}  {b:value$}  {c:unit$}  {d}").expect("a string takes every write");
        }
        out
    }
}

impl Entry {
    fn columns(&self) -> [String; 4] {
        let mut value = value::format(self.key, &self.value);
        if let Some(resolved) = &self.resolved {
            value = format!("{value} ({resolved})");
        }
        [self.key.name.to_owned(), value, value::unit(self.key).to_owned(), self.source.to_string()]
    }
}
