//! Installs the published command line program once, and runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use conformance_harness::{Broker, ScratchDir};

/// Release that the walk is written for.
const VERSION: &str = "0.14.1-edge.7";

/// The program, with a home directory of its own and the broker that it talks to.
pub struct Cli {
    home: ScratchDir,
    address: String,
}

impl Cli {
    pub fn new(broker: &Broker) -> Self {
        Self { home: ScratchDir::new(), address: broker.address().to_string() }
    }

    /// Directory of the program's settings, and a place for files of the test.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs one command as root and returns what it printed.
    ///
    /// # Panics
    /// When it does not exit with 0.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.output("iggy", arguments);
        assert!(output.status.success(), "{arguments:?} ended with {}:\n{}", output.status, text(&output));
        text(&output)
    }

    /// Runs one command with this password of root.
    pub fn output(&self, password: &str, arguments: &[&str]) -> Output {
        Command::new(program())
            .args(["--tcp-server-address", &self.address, "--username", "iggy", "--password", password])
            .args(arguments)
            .env("HOME", self.home())
            .output()
            .expect("run the command line program")
    }
}

/// Standard output and standard error as text.
pub fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// Path of the program: `IGGY_CLI`, or the pinned release, installed into the target folder when it is not there.
///
/// It is built with its default features, because this release does not compile without them. Where no keyring service
/// runs it says so and goes on.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(named) = std::env::var_os("IGGY_CLI") {
            return named.into();
        }
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
        let root = target.join(format!("iggy-cli-{VERSION}"));
        let program = root.join("bin/iggy");
        if !program.is_file() {
            install(&root, &target.join("iggy-cli-build"));
        }
        program
    })
}

fn install(root: &Path, target: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["install", "--locked", "--debug", "--version", VERSION, "--root"])
        .arg(root)
        .arg("iggy-cli")
        .env("CARGO_TARGET_DIR", target)
        .status()
        .expect("run cargo to install the command line program");
    assert!(status.success(), "the command line program does not install: {status}");
}
