//! `docs/configuration.md`, written from the table of keys.

use std::fmt::Write;

use crate::keys::{KEYS, Key, OTHER_VARIABLES};
use crate::value::{expected, unit};

const HEAD: &str = "\
# Configuration

<!-- Generated from crates/config/src/keys.rs. Rewrite it with: UPDATE_DOCS=1 cargo test -p laneway-config -->

Nothing needs to be configured: `laneway` serves on 127.0.0.1:8090 and keeps its data in `./laneway-data`.

A value comes from the first of these that sets it:

1. a flag (`--tcp ADDR`, or `--set KEY=VALUE` for a key without a flag of its own),
2. an environment variable (`LANEWAY_` and the key in upper case, joined by `_`; an empty one counts as not set),
3. the TOML file that `--config FILE` or `LANEWAY_CONFIG` names (no file is read unless named),
4. the default.

`laneway config` prints every key with its value and the flag, variable or file line that set it. An unknown key, an
unknown `LANEWAY_` variable or a bad value is an error before anything starts; it names the place, and the closest known
name. `laneway config --keys` prints the keys of this page.

Sizes are whole numbers with a unit (`512 KiB`, `64 MiB`, `1 GB`), durations too (`500 ms`, `30 s`, `1 h 30 m`). A unit is
required; only `0` has none. In a file they are strings: `wait_max = \"30 s\"`.
";

/// The whole page. A test compares it with the file.
pub fn configuration_markdown() -> String {
    let mut out = HEAD.to_owned();
    out.push_str("\n## Keys\n\n| key | default | values | meaning |\n| --- | --- | --- | --- |\n");
    for key in KEYS {
        line(&mut out, &format!("| `{}` | {} | {} | {} |", key.name, default(key), expected(key), key.about));
    }
    out.push_str("\n## Where each key is set\n\n| key | unit | environment | flag | file |\n| --- | --- | --- | --- | --- |\n");
    for key in KEYS {
        let variables = match key.variable_alias {
            Some(alias) => format!("`{}` or `{alias}`", key.variable()),
            None => format!("`{}`", key.variable()),
        };
        let flag = match (key.flag, key.scope) {
            (Some(flag), _) => format!("`{flag}`"),
            (None, scope) if !scope.in_flags() => "no".to_owned(),
            (None, _) => "`--set`".to_owned(),
        };
        let file = if key.scope.in_file() { "yes" } else { "no" };
        line(&mut out, &format!("| `{}` | {} | {variables} | {flag} | {file} |", key.name, unit(key)));
    }
    out.push_str("\n## Other variables\n\n| variable | meaning |\n| --- | --- |\n");
    for (name, about) in OTHER_VARIABLES {
        line(&mut out, &format!("| `{name}` | {about} |"));
    }
    out
}

/// The keys for a terminal: name, default, accepted values, meaning. Reads nothing.
pub fn key_list() -> String {
    let mut out = String::new();
    for key in KEYS {
        line(
            &mut out,
            &format!("{} = {}", key.name, if key.default.is_empty() { "(not set)" } else { key.default }),
        );
        line(&mut out, &format!("    {}", key.about));
        line(&mut out, &format!("    {}; {}", expected(key), key.variable()));
    }
    out
}

fn default(key: &Key) -> String {
    if key.default.is_empty() { "not set".to_owned() } else { format!("`{}`", key.default) }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a string takes every write");
}
