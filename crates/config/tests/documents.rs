//! The files that people read are derived from the table or checked against it.

use std::path::{Path, PathBuf};

use laneway_config::{Config, configuration_markdown, resolve};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn configuration_page_is_what_the_table_says() {
    let path = root().join("docs/configuration.md");
    let expected = configuration_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/configuration.md is out of date: run UPDATE_DOCS=1 cargo test -p laneway-config"
    );
}

/// The sample file shows each key with its default behind a `#` (prose has a space after it). Without the `#` it must
/// still be valid, and change nothing.
#[test]
fn sample_file_names_every_key_with_its_default() {
    let path = root().join("configs/single-node.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    resolve(Some((&path, &text)), [], &[]).unwrap();
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => setting.to_owned() + "\n",
            _ => line.to_owned() + "\n",
        })
        .collect();
    let resolved = resolve(Some((&path, &uncommented)), [], &[]).unwrap();
    assert_eq!(resolved.config, Config::default());
    for entry in resolved.effective.entries {
        let shown = entry.source != laneway_config::Source::Default;
        assert_eq!(shown, entry.key.scope.in_file(), "{}", entry.key.name);
    }
}
