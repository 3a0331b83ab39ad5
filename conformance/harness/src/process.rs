use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::scratch::ScratchDir;

/// How long a broker may take until it listens. Generous: the machine may be busy with a build.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a broker may take to drain after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Pause between two looks at a file or a process that something is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Log lines that a failing test prints, counted from the end.
const LOG_LINES_MAX: usize = 200;

/// How a broker is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The executable.
    pub binary: PathBuf,
    /// Number of shards, at least 1.
    pub shards: u32,
    /// Further arguments of `laneway serve`.
    pub arguments: Vec<String>,
    /// Further environment variables of the process.
    pub environment: Vec<(String, String)>,
}

impl Settings {
    /// Two shards, so that every suite crosses shards, and no further arguments.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into(), shards: 2, arguments: Vec::new(), environment: Vec::new() }
    }
}

impl Default for Settings {
    /// The settings for [`laneway_binary`](super::laneway_binary).
    fn default() -> Self {
        Self::new(super::laneway_binary())
    }
}

/// What a broker process holds at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUse {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub descriptors: usize,
}

/// One broker process with its data directory and its log.
///
/// The first start takes a free port; every later start of the same value takes that port again, as a broker that
/// is restarted in place does. Dropping the value kills the process and removes its files.
#[derive(Debug)]
pub struct Broker {
    settings: Settings,
    scratch: ScratchDir,
    child: Option<Child>,
    address: Option<SocketAddr>,
}

impl Broker {
    /// Starts a broker on an empty directory and waits until it listens.
    ///
    /// # Panics
    /// When it does not listen within 30 s, with the log in the message.
    pub fn start(settings: Settings) -> Self {
        let mut broker = Self { settings, scratch: ScratchDir::new(), child: None, address: None };
        broker.restart();
        broker
    }

    /// Address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("a broker has an address once it was started")
    }

    /// Connection string of the published client for the root user of a `--dev` broker.
    pub fn connection_string(&self) -> String {
        format!("iggy+tcp://iggy:iggy@{}", self.address())
    }

    pub fn data_dir(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// Process id.
    ///
    /// # Panics
    /// When the process does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the broker runs").id()
    }

    /// Everything that the process wrote to standard output and standard error, over all its starts.
    pub fn log(&self) -> String {
        fs::read(self.log_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Starts the process without waiting for it to listen.
    ///
    /// # Panics
    /// When the process runs already or cannot be started.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "the broker runs already");
        // The file of a killed process names an address that nothing listens on any more.
        let _ = fs::remove_file(self.runtime_path());
        let tcp = self.address.map_or_else(|| "127.0.0.1:0".to_owned(), |address| address.to_string());
        let log = self.open_log();
        let mut command = Command::new(&self.settings.binary);
        // The broker reads its settings from variables of this name and refuses the ones it does not know, such as ours.
        for (name, _) in std::env::vars_os() {
            if ["LANEWAY_", "IGGY_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--tcp", &tcp, "--dev", "--shards", &self.settings.shards.to_string()])
            .args(&self.settings.arguments)
            .envs(self.settings.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("duplicate the log handle"))
            .stderr(log);
        let child =
            command.spawn().unwrap_or_else(|e| panic!("start {}: {e}", self.settings.binary.display()));
        self.child = Some(child);
    }

    /// Waits until the spawned process listens.
    ///
    /// # Panics
    /// When it ends, or does not listen within 30 s.
    pub fn wait_until_listening(&mut self) {
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Some(address) = read_address(&self.runtime_path()) {
                self.address = Some(address);
                return;
            }
            if let Some(status) = self.try_wait() {
                panic!("the broker ended with {status} before it listened; its log:\n{}", self.log_tail());
            }
            assert!(
                Instant::now() < deadline,
                "the broker does not listen after {START_MAX:?}; its log:\n{}",
                self.log_tail()
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Starts the process again on the same directory and port, and waits until it listens.
    pub fn restart(&mut self) {
        self.spawn();
        self.wait_until_listening();
    }

    /// Ends the process with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends SIGTERM and waits for the end of the process.
    ///
    /// # Panics
    /// When the process does not end within 20 s.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        let deadline = Instant::now() + STOP_MAX;
        loop {
            if let Some(status) = self.try_wait() {
                self.child = None;
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the broker did not end within {STOP_MAX:?} after SIGTERM; its log:\n{}",
                self.log_tail()
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Sends one signal by name, without the `SIG` prefix.
    ///
    /// # Panics
    /// When the process does not run or the signal cannot be sent.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.pid().to_string()])
            .status()
            .expect("run kill");
        assert!(status.success(), "kill -{name}: {status}");
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.is_some() && self.try_wait().is_none()
    }

    /// Memory and descriptors of the running process.
    ///
    /// # Panics
    /// When the process does not run.
    pub fn process_use(&self) -> ProcessUse {
        let folder = PathBuf::from(format!("/proc/{}", self.pid()));
        let status = fs::read_to_string(folder.join("status")).expect("the process runs");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a VmRSS line");
        let kib: u64 = resident.trim().trim_end_matches(" kB").parse().expect("VmRSS counts kB");
        let descriptors = fs::read_dir(folder.join("fd")).expect("the process runs").count();
        ProcessUse { resident_bytes: kib * 1024, descriptors }
    }

    /// Fails when the process ended or when one of its threads panicked.
    ///
    /// # Panics
    /// In that case, with the log in the message.
    pub fn assert_healthy(&mut self) {
        assert!(self.is_running(), "the broker ended; its log:\n{}", self.log_tail());
        self.assert_no_panic();
    }

    /// Fails when one of the threads of the process panicked, in any of its starts.
    ///
    /// # Panics
    /// In that case, with the log in the message.
    pub fn assert_no_panic(&self) {
        assert!(!self.log().contains("panicked at"), "the broker panicked; its log:\n{}", self.log_tail());
    }

    /// The last lines of the log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }

    fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("wait for the broker")
    }

    fn open_log(&self) -> File {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("open the log of the broker")
    }

    fn log_path(&self) -> PathBuf {
        self.scratch.path().join("broker.log")
    }

    fn runtime_path(&self) -> PathBuf {
        self.data_dir().join("runtime.toml")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of the broker ----\n{}\n---- end of the log ----", self.log_tail());
        }
        self.kill();
    }
}

/// The `tcp_address` of a complete runtime file.
fn read_address(path: &Path) -> Option<SocketAddr> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.trim().strip_prefix("tcp_address"))?;
    // A file that is still being written has no closing quote yet, and does not parse.
    let quoted = value.trim_start().strip_prefix('=')?.trim().strip_prefix('"')?;
    quoted.strip_suffix('"')?.parse().ok()
}
