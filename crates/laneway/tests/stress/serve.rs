//! The broker as a process.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// More than any start or stop here should need on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A process of `laneway serve`. Killed when it is dropped.
pub struct Serve {
    child: Child,
    pub address: SocketAddr,
    err: PathBuf,
}

impl Serve {
    pub fn start(home: &Path, shards: u16, options: &[&str]) -> Self {
        Self::start_under(home, shards, options, "exec \"$@\"")
    }

    /// Starts the broker by a line of the shell.
    pub fn start_under(home: &Path, shards: u16, options: &[&str], shell: &str) -> Self {
        Self::try_start(home, shards, options, shell)
            .unwrap_or_else(|text| panic!("it does not start: {text}"))
    }

    pub fn try_start(home: &Path, shards: u16, options: &[&str], shell: &str) -> Result<Self, String> {
        // Beside the directory: a disk that a test fills must not lose what the broker says of it.
        let (data, err) = (home.join("data"), home.with_extension("err"));
        let runtime = data.join("runtime.toml");
        let _ = fs::remove_file(&runtime);
        let log = File::options().create(true).append(true).open(&err).unwrap();
        let mut command = Command::new("sh");
        let shards = shards.to_string();
        command
            .args([
                "-c",
                shell,
                "sh",
                env!("CARGO_BIN_EXE_laneway"),
                "serve",
                "--dev",
                "--tcp",
                "127.0.0.1:0",
            ])
            .args(["--shards", &shards, "--data-dir", data.to_str().unwrap()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        for option in options {
            let (name, value) = option.split_once('=').unwrap();
            command.env(name, value);
        }
        let mut child = command.spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&runtime).unwrap_or_default();
            let address = text.split_once("tcp_address = \"").and_then(|(_, rest)| rest.split_once('"'));
            if let Some((address, _)) = address {
                return Ok(Self { child, address: address.parse().unwrap(), err });
            }
            let said = || fs::read_to_string(&err).unwrap_or_default();
            if child.try_wait().unwrap().is_some() {
                return Err(said());
            }
            assert!(Instant::now() < end, "it does not listen: {}", said());
            sleep(Duration::from_millis(5));
        }
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Everything that it wrote to the log until now.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Asks it to stop; gives the exit code.
    pub fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                if !status.success() {
                    eprintln!("{}", fs::read_to_string(&self.err).unwrap_or_default());
                }
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end: {}", fs::read_to_string(&self.err).unwrap());
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.err).unwrap_or_default());
        }
        let _ = fs::remove_file(&self.err);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Segment files and the incarnation that each names.
pub fn segments(home: &Path) -> Vec<(u64, PathBuf)> {
    let mut found = Vec::new();
    for fan in fs::read_dir(home.join("data/segments")).unwrap() {
        for file in fs::read_dir(fan.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let incarnation = name.split('-').next().unwrap();
            found.push((incarnation.parse().unwrap(), path));
        }
    }
    found
}

pub fn cycles(usual: u64) -> u64 {
    std::env::var("LANEWAY_STRESS_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(50));
    }
}
