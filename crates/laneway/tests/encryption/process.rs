//! The real binary with a data directory that outlives it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use laneway_wire::options::OptionMap;
use laneway_wire::reply::{Record, StreamDetails};
use laneway_wire::request::{CreateStream, GetStream};
use laneway_wire::{Identifier, Reader};
use tempfile::TempDir;

use crate::client::{Client, Reply};

/// More than any start or stop here should need on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A data directory and what was printed beside it.
pub struct Home {
    directory: TempDir,
}

/// A running broker. Killed when it is dropped.
pub struct Process {
    child: Child,
    address: SocketAddr,
}

/// What a stream shows of its key: source, fingerprint, fingerprints of the keys that wrap it.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    pub source: Option<String>,
    pub key: Option<String>,
    pub keks: Option<String>,
}

impl Home {
    pub fn new() -> Self {
        Self { directory: TempDir::new().expect("a directory") }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    fn command(&self, keys: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
        command
            .args(["serve", "--dev", "--shards", "2", "--tcp", "127.0.0.1:0", "--log", "trace", "--data-dir"])
            .arg(self.data())
            .env_clear()
            .envs(keys.iter().map(|(key, value)| (format!("LANEWAY_ENCRYPTION_{key}"), value)))
            .stdin(Stdio::null());
        command
    }

    /// Starts a broker. `keys`: what follows `LANEWAY_ENCRYPTION_`. Output is kept in the home.
    pub fn start(&self, keys: &[(&str, &str)]) -> Process {
        let runtime = self.data().join("runtime.toml");
        let _ = fs::remove_file(&runtime);
        let log = |name: &str| {
            File::options().create(true).append(true).open(self.path().join(name)).expect("a log file")
        };
        let mut child =
            self.command(keys).stdout(log("out.log")).stderr(log("err.log")).spawn().expect("it starts");
        let end = Instant::now() + PATIENCE;
        let address = loop {
            let text = fs::read_to_string(&runtime).unwrap_or_default();
            let found = text.split_once("tcp_address = \"").and_then(|(_, rest)| rest.split_once('"'));
            if let Some((address, _)) = found {
                break address.parse().expect("an address");
            }
            assert!(child.try_wait().expect("a child").is_none(), "it ended: {}", self.log());
            assert!(Instant::now() < end, "it does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        };
        Process { child, address }
    }

    /// A start that must fail.
    pub fn refuses(&self, keys: &[(&str, &str)]) -> Output {
        let output = self.command(keys).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path().join("err.log")).unwrap_or_default()
    }

    /// Files under the home, logs included, that hold these bytes.
    pub fn files_with(&self, needle: &[u8]) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![self.path().to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory).expect("a directory").map(|entry| entry.expect("an entry"))
            {
                let path = entry.path();
                if path.is_dir() {
                    left.push(path);
                } else if holds(&fs::read(&path).unwrap_or_default(), needle) {
                    found.push(path);
                }
            }
        }
        found
    }
}

/// Whether the bytes hold the needle. Skips ahead by its first byte: files are large, and this is a debug build.
fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    let first = needle[0];
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        if rest[at..].starts_with(needle) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

impl Process {
    pub fn client(&self) -> Client {
        Client::sign_in(self.address)
    }

    pub fn kill(mut self) {
        self.child.kill().expect("a running process");
        self.child.wait().expect("a child");
    }

    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < end, "it does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    /// Creates a stream with these options.
    pub fn create_stream_with(&mut self, name: &str, options: &OptionMap) -> Reply {
        let block = options.encode().expect("a block of options");
        let options = laneway_wire::options::Options::parse(&block).expect("a block of options");
        self.ask(&CreateStream { name, options })
    }

    /// Creates a stream with a key of its own.
    pub fn create_stream_with_key(&mut self, name: &str, key: &[u8]) -> Reply {
        let mut options = OptionMap::new();
        options.set("encryption_key", key);
        self.create_stream_with(name, &options)
    }

    pub fn shown(&mut self, stream: &str) -> Shown {
        shown(&self.must(&GetStream { stream: Identifier::Name(stream) }))
    }
}

/// What a reply about a stream shows of its key.
pub fn shown(payload: &[u8]) -> Shown {
    let details = StreamDetails::read(&mut Reader::new(payload)).expect("a stream");
    assert_eq!(details.header.explicit.iter().count(), 0, "a key is not returned as an option");
    let text = |key: &str| Some(details.header.derived.get(key)?.as_text()?.to_owned());
    Shown {
        source: text("encryption_key_source"),
        key: text("encryption_key_fingerprint"),
        keks: text("encryption_kek_fingerprint"),
    }
}
