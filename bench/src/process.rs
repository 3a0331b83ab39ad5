//! The broker under test: one process of the real binary on a directory of its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Result;

const START_MAX: Duration = Duration::from_secs(30);

/// A running broker. Dropping it kills the process and removes its files.
pub struct Broker {
    child: Child,
    directory: TempDir,
    address: SocketAddr,
}

/// What the process has used so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time of all its threads, in seconds, by steps of a clock tick.
    pub cpu_seconds: f64,
    pub resident_mib: f64,
    /// Highest resident memory so far.
    pub resident_mib_max: f64,
    pub descriptors: usize,
    /// Voluntary and involuntary switches of all threads that still live.
    pub context_switches: u64,
}

impl Broker {
    /// Starts `binary` with `shards` in a new directory below `parent`, with default settings otherwise.
    pub fn start(binary: &Path, shards: u32, parent: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("laneway-bench-").tempdir_in(parent)?;
        let log = File::create(directory.path().join("broker.log"))?;
        let data = directory.path().join("data");
        let child = Command::new(binary)
            .args([
                "serve",
                "--dev",
                "--tcp",
                "127.0.0.1:0",
                "--log",
                "warn",
                "--shards",
                &shards.to_string(),
            ])
            .arg("--data-dir")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("start {}: {error}", binary.display()))?;
        let mut broker = Self { child, directory, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Some(address) = read_address(&data.join("runtime.toml")) {
                broker.address = address;
                return Ok(broker);
            }
            if broker.child.try_wait()?.is_some() || Instant::now() > deadline {
                return Err(format!("the broker does not listen:\n{}", broker.log()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("broker.log")).unwrap_or_default()
    }

    pub fn usage(&self) -> Result<Usage> {
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let stat = fs::read_to_string(folder.join("stat"))?;
        // The name in parentheses may hold blanks; utime and stime are the 12th and 13th field behind it.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        let status = fs::read_to_string(folder.join("status"))?;
        let mut context_switches = 0;
        for task in fs::read_dir(folder.join("task"))? {
            let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
            context_switches += field(&status, "voluntary_ctxt_switches:");
            context_switches += field(&status, "nonvoluntary_ctxt_switches:");
        }
        Ok(Usage {
            cpu_seconds: (ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64,
            resident_mib: field(&status, "VmRSS:") as f64 / 1024.0,
            resident_mib_max: field(&status, "VmHWM:") as f64 / 1024.0,
            descriptors: fs::read_dir(folder.join("fd"))?.count(),
            context_switches,
        })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number behind `name` at the start of a line.
fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|value| value.split_whitespace().next())
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}

fn read_address(path: &Path) -> Option<SocketAddr> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.trim().strip_prefix("tcp_address"))?;
    value.trim_start().strip_prefix('=')?.trim().strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}
