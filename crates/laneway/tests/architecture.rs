//! The direction of the arrows: what each crate may stand on, and what the cores must not know. Source:
//! `docs/architecture.md`. Reads manifests, the lock file and sources; runs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates of this workspace and the ones that each may name, bottom up. A crate that is missing here fails the test.
const MAY_USE: &[(&str, &[&str])] = &[
    ("laneway-wire", &[]),
    ("laneway-encryption", &[]),
    ("laneway-config", &[]),
    ("laneway-mailbox", &[]),
    ("laneway-vsr", &["laneway-wire"]),
    ("laneway-metadata", &["laneway-wire", "laneway-encryption"]),
    ("laneway-reads", &["laneway-wire"]),
    ("laneway-partition", &["laneway-wire", "laneway-vsr", "laneway-reads"]),
    ("laneway-simulator", THE_CORES),
    ("laneway-client", &["laneway-wire"]),
    ("laneway-storage", &["laneway-wire", "laneway-vsr"]),
    ("laneway-transport", &["laneway-wire", "laneway-mailbox"]),
    ("laneway-shard-metadata", &["laneway-wire", "laneway-vsr", "laneway-metadata", "laneway-reads"]),
    ("laneway-shard-partition", BELOW_THE_SHARD),
    ("laneway", EVERYTHING),
];

/// What a simulated node is made of.
const THE_CORES: &[&str] =
    &["laneway-wire", "laneway-vsr", "laneway-metadata", "laneway-reads", "laneway-partition"];

const BELOW_THE_SHARD: &[&str] = &[
    "laneway-wire",
    "laneway-encryption",
    "laneway-mailbox",
    "laneway-vsr",
    "laneway-metadata",
    "laneway-reads",
    "laneway-partition",
    "laneway-storage",
    "laneway-transport",
    // The metadata lane performs nothing itself; the shard that holds it carries out its effects.
    "laneway-shard-metadata",
];

const EVERYTHING: &[&str] = &[
    "laneway-wire",
    "laneway-encryption",
    "laneway-config",
    "laneway-mailbox",
    "laneway-vsr",
    "laneway-metadata",
    "laneway-reads",
    "laneway-partition",
    "laneway-client",
    "laneway-storage",
    "laneway-transport",
    "laneway-shard-metadata",
    "laneway-shard-partition",
];

/// Crates whose whole tree of dependencies, tests included, is free of runtimes.
const WITHOUT_RUNTIME: &[&str] = &[
    "laneway-wire",
    "laneway-encryption",
    "laneway-vsr",
    "laneway-metadata",
    "laneway-reads",
    "laneway-partition",
    "laneway-simulator",
    "laneway-config",
    "laneway-client",
    "laneway-mailbox",
    "laneway-shard-metadata",
];

/// Runtimes and what they drive; a name also stands for the crates called `NAME-something`.
const RUNTIMES: &[&str] = &["compio", "io-uring", "tokio", "monoio", "mio", "smol", "async-std", "glommio"];

/// Sources without I/O: the cores, and the parts of two driver crates that only plan.
const SANS_IO: &[&str] = &[
    "crates/wire/src",
    "crates/encryption/src",
    "crates/vsr/src",
    "crates/metadata/src",
    "crates/reads/src",
    "crates/storage/src",
    "shards/metadata/src",
    "crates/partition/src",
    "crates/simulator/src",
];

/// The one directory inside [`SANS_IO`] that does I/O.
const DRIVER: &str = "crates/storage/src/driver";

/// What a core never says: clocks, randomness, files, sockets, tasks.
const NOT_IN_A_CORE: &[&str] = &[
    "compio",
    "tokio",
    "io_uring",
    "Instant::now",
    "SystemTime",
    "getrandom::",
    "std::fs",
    "std::thread",
    "TcpStream",
    "std::env::",
    "async fn",
    ".await",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parse(path: &Path) -> toml::Table {
    read(path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Each crate of the workspace with its directory.
fn crates() -> BTreeMap<String, PathBuf> {
    ["crates", "shards"]
        .iter()
        .flat_map(|group| fs::read_dir(root().join(group)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|dir| dir.join("Cargo.toml").exists())
        .map(|dir| {
            let manifest = parse(&dir.join("Cargo.toml"));
            (manifest["package"]["name"].as_str().unwrap().to_owned(), dir)
        })
        .collect()
}

/// The names under `[dependencies]` of a manifest.
fn direct(dir: &Path) -> BTreeSet<String> {
    let manifest = parse(&dir.join("Cargo.toml"));
    manifest
        .get("dependencies")
        .and_then(|table| table.as_table())
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect()
}

/// Name to names, as the lock file has it. Versions of one name are merged: none of them is welcome.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let lock = parse(&root().join("Cargo.lock"));
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap().to_owned();
        let names = package.get("dependencies").and_then(|list| list.as_array()).into_iter().flatten();
        // An entry is `name`, or `name version` where there are several.
        let names = names.filter_map(|entry| entry.as_str()?.split(' ').next().map(str::to_owned));
        edges.entry(name).or_default().extend(names);
    }
    edges
}

/// The Rust sources below a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The code of a source: without comments, and without the tests at its end.
fn code(path: &Path) -> String {
    let text = read(path);
    let before_tests = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Whether the code has this word, and not only a longer name that begins with it.
fn says(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let next = code[at + word.len()..].chars().next();
        word.ends_with(':') || next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
    })
}

fn is_runtime(name: &str) -> bool {
    RUNTIMES.iter().any(|runtime| {
        name == *runtime || name.strip_prefix(runtime).is_some_and(|rest| rest.starts_with('-'))
    })
}

#[test]
fn every_crate_uses_only_what_stands_below_it() {
    let crates = crates();
    for (name, dir) in &crates {
        let (_, allowed) = MAY_USE
            .iter()
            .find(|(known, _)| known == name)
            .unwrap_or_else(|| panic!("{name} is new: say in this test what it may use"));
        for dependency in direct(dir).iter().filter(|dependency| crates.contains_key(*dependency)) {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not use {dependency}");
        }
    }
}

#[test]
fn no_runtime_is_anywhere_below_a_core() {
    let edges = locked();
    for core in WITHOUT_RUNTIME {
        let mut seen = BTreeSet::new();
        let mut left = vec![(*core).to_owned()];
        while let Some(name) = left.pop() {
            assert!(!is_runtime(&name), "{core} stands on {name}: see `cargo tree -p {core} -i {name}`");
            for dependency in edges.get(&name).unwrap_or_else(|| panic!("{name} is not in Cargo.lock")) {
                if seen.insert(dependency.clone()) {
                    left.push(dependency.clone());
                }
            }
        }
    }
}

#[test]
fn cores_name_no_clock_no_randomness_and_no_io() {
    let driver = root().join(DRIVER);
    let mut read = 0;
    for dir in SANS_IO {
        for path in sources(&root().join(dir)) {
            // Files of tests may start threads and read the clock.
            let is_test = path.strip_prefix(root()).unwrap_or(&path).iter().any(|part| part == "tests")
                || path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
            if path.starts_with(&driver) || is_test {
                continue;
            }
            read += 1;
            let code = code(&path);
            for word in NOT_IN_A_CORE {
                assert!(!says(&code, word), "{} says {word}", path.display());
            }
        }
    }
    assert!(read > 50, "only {read} sources were found: the paths of this test are wrong");
}

#[test]
fn cores_forbid_unsafe_code() {
    for (name, dir) in crates() {
        if WITHOUT_RUNTIME.contains(&name.as_str()) {
            assert!(read(&dir.join("src/lib.rs")).contains("#![forbid(unsafe_code)]"), "{name}");
        }
    }
}

#[test]
fn only_drivers_name_the_runtime() {
    let users: BTreeSet<String> = crates()
        .iter()
        .filter(|(_, dir)| direct(dir).iter().any(|name| is_runtime(name)))
        .map(|(name, _)| name.clone())
        .collect();
    let drivers = ["laneway", "laneway-shard-partition", "laneway-storage", "laneway-transport"];
    for user in &users {
        assert!(drivers.contains(&user.as_str()), "{user} must not name a runtime");
    }
    // The published client is what the conformance packages test with; the product speaks the protocol by itself.
    for (name, dir) in crates() {
        assert!(direct(&dir).iter().all(|dependency| !dependency.starts_with("iggy")), "{name}");
    }
}
