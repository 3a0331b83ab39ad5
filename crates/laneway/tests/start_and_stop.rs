//! The broker as a process: starts that must fail, what a first start prints, and how signals end it.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LANEWAY: &str = env!("CARGO_BIN_EXE_laneway");
/// More than any start or stop here should need on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process of `laneway serve`. Killed when it is dropped.
struct Serve {
    child: Child,
    data: PathBuf,
    out: PathBuf,
    err: PathBuf,
}

impl Serve {
    /// Starts a broker in `home`, which holds its data directory and its output. `arguments` come after the address.
    fn spawn(home: &Path, arguments: &[&str]) -> Self {
        let [data, out, err] = ["data", "out", "err"].map(|name| home.join(name));
        let runtime = data.join("runtime.toml");
        assert!(!runtime.exists(), "no broker ran here, or it stopped cleanly");
        let child = bare(&["serve", "--shards", "2", "--data-dir", data.to_str().unwrap()])
            .args(["--tcp", "127.0.0.1:0"])
            .args(arguments)
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Self { child, data, out, err }
    }

    fn start(home: &Path, arguments: &[&str]) -> Self {
        let mut serve = Self::spawn(home, arguments);
        let end = Instant::now() + PATIENCE;
        while serve.address().is_none() {
            assert!(serve.child.try_wait().unwrap().is_none(), "it ended: {}", serve.err());
            assert!(Instant::now() < end, "it does not listen: {}", serve.err());
            std::thread::sleep(Duration::from_millis(5));
        }
        serve
    }

    fn address(&self) -> Option<String> {
        let text = fs::read_to_string(self.data.join("runtime.toml")).ok()?;
        Some(text.split_once("tcp_address = \"")?.1.split_once('"')?.0.to_owned())
    }

    fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits until it ends by itself. Gives its exit code.
    #[track_caller]
    fn ended(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end: {}", self.err());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    fn stop(&mut self) {
        self.signal("TERM");
        assert_eq!(self.ended(), Some(0), "{}", self.err());
    }

    /// Runs a client command against it as root.
    fn run(&self, line: &str, password: &str) -> Output {
        self.command(line, password).output().unwrap()
    }

    fn command(&self, line: &str, password: &str) -> Command {
        let mut command = bare(&line.split_whitespace().collect::<Vec<_>>());
        command
            .env("LANEWAY_SERVER", self.address().expect("it listens"))
            .env("LANEWAY_USERNAME", "iggy")
            .env("LANEWAY_PASSWORD", password);
        command
    }

    #[track_caller]
    fn succeeds(&self, line: &str) -> String {
        let output = self.run(line, "iggy");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that knows nothing of the environment of the tests.
fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(LANEWAY);
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// A second start that must fail: exit code 1, one error line with these parts, nothing on standard output.
#[track_caller]
fn fails_to_start(arguments: &[&str], parts: &[&str]) {
    let output = bare(&["serve", "--dev", "--shards", "1"]).args(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(output.stdout.is_empty());
    let errors: Vec<_> = message.lines().filter(|line| line.starts_with("laneway: ")).collect();
    assert_eq!(errors.len(), 1, "{message}");
    assert!(!message.contains("panicked"), "{message}");
    for part in parts {
        assert!(errors[0].contains(part), "no {part:?} in {message}");
    }
}

#[test]
fn a_busy_port_is_one_clear_error() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut first = Serve::start(homes[0].path(), &["--dev"]);
    let address = first.address().unwrap();
    let data = homes[1].path().join("data");
    fails_to_start(
        &["--tcp", &address, "--data-dir", data.to_str().unwrap()],
        &[&address, "already in use", "--tcp"],
    );
    assert!(!data.exists(), "a start that is refused makes no directory");
    first.succeeds("ping");
    first.stop();
}

#[test]
fn a_data_directory_in_use_is_named_with_its_process() {
    let home = tempfile::tempdir().unwrap();
    let mut first = Serve::start(home.path(), &["--dev"]);
    let data = first.data.to_str().unwrap();
    let process = format!("process {}", first.child.id());
    fails_to_start(&["--tcp", "127.0.0.1:0", "--data-dir", data], &[data, "in use", &process]);
    // The first one goes on as if nothing had happened, and can still be found.
    first.succeeds("streams create after");
    first.stop();
}

#[test]
fn a_newer_data_directory_is_refused_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let mut serve = Serve::start(home.path(), &["--dev"]);
    serve.succeeds("streams create kept");
    serve.stop();

    let file = serve.data.join("VERSION");
    let ours = fs::read(&file).unwrap();
    let mut newer = ours.clone();
    // Source: docs/storage.md, VERSION: the format number is the four bytes at 16.
    newer[16..20].copy_from_slice(&9u32.to_le_bytes());
    fs::write(&file, &newer).unwrap();
    let data = serve.data.to_str().unwrap();
    let parts = [file.to_str().unwrap(), "format version 9", "up to 1"];
    fails_to_start(&["--tcp", "127.0.0.1:0", "--data-dir", data], &parts);
    assert_eq!(fs::read(&file).unwrap(), newer);

    fs::write(&file, &ours).unwrap();
    let mut serve = Serve::start(home.path(), &[]);
    assert!(serve.succeeds("streams list").contains("kept"));
    serve.stop();
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("letter.txt"), "dear").unwrap();
    let path = home.path().to_str().unwrap();
    fails_to_start(&["--tcp", "127.0.0.1:0", "--data-dir", path], &[path, "not a data directory"]);
    let names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["letter.txt"]);
    // The cause is part of the one line.
    let below = home.path().join("letter.txt/data");
    let below = below.to_str().unwrap();
    fails_to_start(&["--tcp", "127.0.0.1:0", "--data-dir", below], &[below, "Not a directory"]);
}

/// S47, with standard output in place of the log.
#[test]
fn a_random_password_is_printed_once_and_logged_never() {
    let home = tempfile::tempdir().unwrap();
    let mut serve = Serve::start(home.path(), &["--log", "trace"]);
    let out = serve.out();
    let password = out.split_once("password: ").expect("a password").1.split_whitespace().next().unwrap();
    assert!(password.len() >= 20, "{out}");
    assert_eq!(out.matches(password).count(), 1, "{out}");
    assert!(out.contains("username: iggy"), "{out}");
    assert!(serve.run("streams create mine", password).status.success());
    assert!(!serve.run("streams create other", "iggy").status.success());
    serve.stop();
    assert_eq!(serve.out(), out);
    assert!(!serve.err().contains(password));

    let mut again = Serve::start(home.path(), &["--log", "trace"]);
    let listed = again.run("streams list", password);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("mine"));
    again.stop();
    assert_eq!(again.out(), "");
    assert!(!again.err().contains(password));
    for file in files_below(&again.data) {
        let bytes = fs::read(&file).unwrap();
        let found = bytes.windows(password.len()).any(|window| window == password.as_bytes());
        assert!(!found, "{}", file.display());
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn sigterm_drains_and_ends_with_0_whatever_clients_do() {
    let home = tempfile::tempdir().unwrap();
    let mut serve = Serve::start(home.path(), &["--dev", "--set", "shutdown.drain_timeout=20s"]);
    let silent = TcpStream::connect(serve.address().unwrap()).unwrap();
    let mut half = TcpStream::connect(serve.address().unwrap()).unwrap();
    half.write_all(&[0; 100]).unwrap();
    serve.succeeds("streams create s");
    serve.succeeds("topics create s/t --partitions 1");
    let mut tail =
        serve.command("tail s/t --follow", "iggy").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let waiting = tail.as_mut().unwrap();
    std::thread::sleep(Duration::from_millis(300));

    let started = Instant::now();
    serve.signal("TERM");
    let code = serve.ended();
    let took = started.elapsed();
    let _ = waiting.kill();
    let _ = waiting.wait();
    assert_eq!(code, Some(0), "{}", serve.err());
    // A parked poll is refused and an idle connection is closed; nothing of this is waited for.
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(!serve.data.join("runtime.toml").exists());
    drop((silent, half));
}

#[test]
fn a_second_signal_while_draining_ends_at_once() {
    let home = tempfile::tempdir().unwrap();
    let mut serve = Serve::start(home.path(), &["--dev"]);
    // Megabytes that only the journal holds, so that the last checkpoint takes far longer than taking a signal.
    let lines: String = (0..40_000).map(|number| format!("{number:0>400}\n")).collect();
    let mut send = serve
        .command("send s/t --create", "iggy")
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    send.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(send.wait().unwrap().success());

    // Both signals are there when the process goes on, and it takes the lower number first.
    for name in ["STOP", "INT", "TERM", "CONT"] {
        serve.signal(name);
    }
    assert_eq!(serve.ended(), Some(128 + 15), "{}", serve.err());
    assert!(serve.err().contains("draining"), "{}", serve.err());

    // What was acknowledged is there all the same.
    let _ = fs::remove_file(serve.data.join("runtime.toml"));
    let mut again = Serve::start(home.path(), &[]);
    assert_eq!(again.succeeds("tail s/t --first"), lines);
    again.stop();
}

#[test]
fn defaults_of_topics_are_those_of_the_start_that_made_them() {
    let home = tempfile::tempdir().unwrap();
    let settings = [
        "--set=topic.durability=replicated",
        "--set=topic.consumer_offset_durability=replicated",
        "--set=topic.segment_size=2 MiB",
        "--set=topic.message_expiry=5 s",
        "--set=topic.max_topic_size=8 MiB",
    ];
    let mut serve = Serve::start(home.path(), &[&["--dev"], &settings[..]].concat());
    serve.succeeds("streams create s");
    serve.succeeds("topics create s/before --partitions 1");
    let expected = [
        "\"durability\":\"replicated\"",
        "\"consumer_offset_durability\":\"replicated\"",
        "\"segment_size\":\"2097152\"",
        "\"message_expiry\":\"5000000\"",
        "\"max_topic_size\":\"8388608\"",
    ];
    let before = serve.succeeds("topics show s/before --json");
    for part in expected {
        assert!(before.contains(part), "no {part} in {before}");
    }
    serve.stop();

    let mut serve = Serve::start(home.path(), &["--set", "sessions.max=4"]);
    serve.succeeds("topics create s/after --partitions 1");
    assert_eq!(serve.succeeds("topics show s/before --json"), before);
    let after = serve.succeeds("topics show s/after --json");
    assert!(
        after.contains("\"durability\":\"persisted\"") && after.contains("\"segment_size\":\"1073741824\"")
    );
    serve.stop();
    let log = serve.err();
    assert!(log.contains("sessions.max") && log.contains("fixed by the first start"), "{log}");
}
