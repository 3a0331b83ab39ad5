//! Puts the sources together: flag over environment over file over default.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use crate::config::Config;
use crate::effective::{Effective, Entry};
use crate::error::{ConfigError, Suggestion};
use crate::file::{self, Assigned};
use crate::keys::{KEYS, Key, OTHER_VARIABLES, VARIABLE_PREFIX, key, key_of_variable};
use crate::source::Source;
use crate::value::{self, Value};

/// A value of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagValue {
    /// The flag with its dashes, as a person finds it: `--tcp`, or `--set`.
    pub flag: String,
    /// Dotted name of the key.
    pub key: String,
    pub value: String,
}

impl FlagValue {
    /// Takes the `KEY=VALUE` of a `--set` apart. Errors: [`ConfigError::Assignment`].
    pub fn parse_set(assignment: &str) -> Result<Self, ConfigError> {
        let flag = "--set".to_owned();
        match assignment.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Self { flag, key: key.trim().to_owned(), value: value.to_owned() })
            }
            _ => Err(ConfigError::Assignment { at: Source::Flag { name: flag } }),
        }
    }
}

/// A configuration and where each of its values comes from.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub config: Config,
    pub effective: Effective,
}

/// Reads the file, if one is named, and resolves. The only function of this crate that does I/O.
///
/// `environment` is usually `std::env::vars_os()`. Errors: the first mistake, see [`ConfigError`].
pub fn load(
    path: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &[FlagValue],
) -> Result<Resolved, ConfigError> {
    let text = path
        .map(|path| {
            std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Read { path: path.to_owned(), source })
        })
        .transpose()?;
    resolve(path.zip(text.as_deref()), environment, flags)
}

/// Resolves from a file's path and text, an environment and the values of flags, and checks the whole.
///
/// Errors: the first mistake; files are looked at first, then the environment, then flags, then what concerns several
/// keys.
pub fn resolve(
    file: Option<(&Path, &str)>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &[FlagValue],
) -> Result<Resolved, ConfigError> {
    let mut values = Values::defaults();
    if let Some((path, text)) = file {
        values.take_file(path, text)?;
    }
    values.take_environment(environment)?;
    for flag in flags {
        values.take_flag(flag)?;
    }
    let config = Config::from_values(&values);
    config.check(|name| values.source(name).clone())?;
    Ok(Resolved { config, effective: values.into_effective() })
}

/// One value and its source for each key of the table.
pub(crate) struct Values(BTreeMap<&'static str, (Value, Source)>);

impl Values {
    pub(crate) fn defaults() -> Self {
        Self(
            KEYS.iter()
                .map(|key| {
                    let value =
                        value::parse(key, key.default).expect("a test parses every default of the table");
                    (key.name, (value, Source::Default))
                })
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> &Value {
        &self.0.get(name).expect("Config reads only keys of the table; a test builds it").0
    }

    fn source(&self, name: &str) -> &Source {
        &self.0.get(name).expect("checks name only keys of the table").1
    }

    fn take_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        for assignment in file::parse(path, text)? {
            let at = Source::File { path: path.to_owned(), line: assignment.line };
            if assignment.value == Assigned::EmptyTable && is_table(&assignment.name) {
                continue;
            }
            let key = find(&assignment.name, &at)?;
            if !key.scope.in_file() {
                return Err(ConfigError::Scope { at, key: key.name, variable: key.variable() });
            }
            match assignment.value {
                Assigned::Text(text) => self.set(key, &text, at)?,
                Assigned::EmptyTable | Assigned::Other => {
                    return Err(ConfigError::Shape { at, key: key.name });
                }
            }
        }
        Ok(())
    }

    fn take_environment(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(), ConfigError> {
        // Sorted, so that the first mistake is the same one each time, and LANEWAY_ names win over their IGGY_ aliases.
        let mut ours: Vec<(String, OsString)> = environment
            .into_iter()
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text)))
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX) || key_of_variable(name).is_some())
            .collect();
        ours.sort();
        for (name, text) in ours {
            // A variable that is set to nothing counts as not set: that is how a container file unsets one.
            if text.is_empty() || OTHER_VARIABLES.iter().any(|(other, _)| *other == name) {
                continue;
            }
            let Some(key) = key_of_variable(&name) else {
                return Err(unknown_variable(name));
            };
            let Some(text) = text.to_str() else {
                return Err(ConfigError::NotText { name });
            };
            self.set(key, text, Source::Environment { name })?;
        }
        Ok(())
    }

    fn take_flag(&mut self, flag: &FlagValue) -> Result<(), ConfigError> {
        let at = Source::Flag { name: flag.flag.clone() };
        let key = find(&flag.key, &at)?;
        if !key.scope.in_flags() {
            return Err(ConfigError::Scope { at, key: key.name, variable: key.variable() });
        }
        self.set(key, &flag.value, at)
    }

    fn set(&mut self, key: &'static Key, text: &str, at: Source) -> Result<(), ConfigError> {
        match value::parse(key, text) {
            Ok(value) => {
                self.0.insert(key.name, (value, at));
                Ok(())
            }
            Err(reason) => Err(ConfigError::Value { at, key: key.name, reason }),
        }
    }

    fn into_effective(mut self) -> Effective {
        let entry = |key: &'static Key| {
            let (value, source) = self.0.remove(key.name).expect("filled from the same table");
            Entry { key, value, source, resolved: None }
        };
        Effective { entries: KEYS.iter().map(entry).collect() }
    }
}

/// Whether some key lives in a table of this name.
fn is_table(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

fn find(name: &str, at: &Source) -> Result<&'static Key, ConfigError> {
    key(name).ok_or_else(|| ConfigError::UnknownKey {
        at: at.clone(),
        name: name.to_owned(),
        suggestion: Suggestion::closest(name, KEYS.iter().map(|key| key.name)),
    })
}

fn unknown_variable(name: String) -> ConfigError {
    let known: Vec<String> = KEYS
        .iter()
        .map(Key::variable)
        .chain(OTHER_VARIABLES.iter().map(|(name, _)| (*name).to_owned()))
        .collect();
    let suggestion = Suggestion::closest(&name, known.iter().map(String::as_str));
    ConfigError::UnknownVariable { name, suggestion }
}
