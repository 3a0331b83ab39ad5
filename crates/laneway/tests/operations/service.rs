//! The broker as a service: what it writes down, and what it tells its manager. Rules S112, S116.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::node::Node;

const PATIENCE: Duration = Duration::from_secs(30);

/// A process that is killed when it is dropped.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Service {
    fn start(data: &Path, variables: &[(&str, &str)]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(["serve", "--dev", "--shards", "2", "--tcp", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Self(child)
    }

    fn terminate(&self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    }
}

fn manager(directory: &Path) -> (UnixDatagram, String) {
    let path = directory.join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    (socket, path.to_str().expect("a path").to_owned())
}

fn word(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 512];
    let received = socket.recv(&mut bytes).expect("a word in time");
    String::from_utf8(bytes[..received].to_vec()).expect("text")
}

#[test]
fn s112_the_bound_port_is_in_the_file_of_the_current_configuration() {
    let mut node = Node::start(1);
    let file = node.data_dir().join("runtime/current_config.toml");
    let line = format!("tcp.address = \"{}\"", node.address());
    let text = fs::read_to_string(&file).expect("the file is there as soon as the broker listens");
    assert!(text.contains(&line), "{text}");
    assert!(!text.contains(":0\""), "{text}");
    let parsed: toml::Table = text.parse().expect("it is a file that tools can read");
    let shown = parsed["tcp"]["address"].as_str().expect("the address");
    assert_eq!(shown, node.address().to_string());
    // A directory with the file in it starts again.
    node.restart();
    assert!(fs::read_to_string(&file).expect("the file").contains(&line));
}

#[test]
fn s116_ready_is_told_once_listeners_accept_and_stopping_when_they_do_not() {
    let home = tempfile::tempdir().expect("a directory");
    let (socket, path) = manager(home.path());
    let data = home.path().join("data");
    let mut service = Service::start(&data, &[("NOTIFY_SOCKET", &path)]);
    let ready = word(&socket);
    assert!(ready.starts_with("READY=1\nSTATUS=listening on 127.0.0.1:"), "{ready}");
    let address = ready.trim_end().rsplit(' ').next().expect("the address");
    TcpStream::connect(address).expect("whoever is told that it is ready finds it so");
    assert!(data.join("runtime/current_config.toml").exists());
    service.terminate();
    let stopping = word(&socket);
    assert!(stopping.starts_with("STOPPING=1\n"), "{stopping}");
    assert!(service.0.wait().expect("it ends").success());
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let silence = socket.recv(&mut [0; 64]).expect_err("a clean stop needs no more words");
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
}

#[test]
fn s116_a_watchdog_hears_from_a_living_process_and_not_from_a_stopped_one() {
    let home = tempfile::tempdir().expect("a directory");
    let (socket, path) = manager(home.path());
    let variables = [("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", "200000")];
    let service = Service::start(&home.path().join("data"), &variables);
    assert!(word(&socket).starts_with("READY=1"));
    for _ in 0..3 {
        assert_eq!(word(&socket), "WATCHDOG=1\n");
    }
    let signal = |name: &str| {
        let pid = service.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
    };
    signal("-STOP");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let end = Instant::now() + PATIENCE;
    // What was under way when it stopped may still come.
    while socket.recv(&mut [0; 64]).is_ok() {
        assert!(Instant::now() < end, "a stopped process says that it lives");
    }
    signal("-CONT");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(word(&socket), "WATCHDOG=1\n");
}
