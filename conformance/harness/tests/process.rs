//! The harness against a stand-in for the broker: a shell script with the same interface.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conformance_harness::{Broker, ScratchDir, Settings};

/// Announces an address, says which start it is, and waits for a signal.
const STAND_IN: &str = r#"#!/bin/sh
data=$3
tcp=$5
mkdir -p "$data"
echo start >> "$data/starts"
echo "arguments: $*"
[ "$tcp" = 127.0.0.1:0 ] && tcp=127.0.0.1:4711
trap 'echo drained; exit 0' TERM
printf 'tcp_address = "%s"\n' "$tcp" > "$data/runtime.toml"
while :; do sleep 0.01; done
"#;

/// A process that another test forks while the script is being written holds it open, and then it cannot be run.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct StandIn {
    _turn: MutexGuard<'static, ()>,
    _folder: ScratchDir,
    path: PathBuf,
}

fn stand_in(script: &str) -> StandIn {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = ScratchDir::new();
    let path = folder.path().join("laneway");
    std::fs::write(&path, script).expect("write the script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("make it executable");
    StandIn { _turn: turn, _folder: folder, path }
}

fn starts(broker: &Broker) -> usize {
    std::fs::read_to_string(broker.data_dir().join("starts")).expect("the stand-in counts").lines().count()
}

#[test]
fn broker_is_started_killed_restarted_and_stopped() {
    let script = stand_in(STAND_IN);
    let mut broker = Broker::start(Settings { shards: 3, ..Settings::new(&script.path) });
    assert_eq!(broker.address().port(), 4711);
    assert!(broker.log().contains("--tcp 127.0.0.1:0 --dev --shards 3"), "{}", broker.log());
    assert!(broker.process_use().resident_bytes > 0);
    let first = broker.pid();
    broker.kill();
    assert!(!broker.is_running());
    broker.restart();
    assert_ne!(broker.pid(), first);
    assert_eq!(starts(&broker), 2, "the directory stays");
    assert!(broker.log().contains("--tcp 127.0.0.1:4711"), "the second start takes the same port");
    assert!(broker.stop().success());
    assert!(broker.log().ends_with("drained\n"));
}

#[test]
fn dropped_broker_takes_its_process_and_files_along() {
    let script = stand_in(STAND_IN);
    let broker = Broker::start(Settings::new(&script.path));
    let (data, process) = (broker.data_dir(), PathBuf::from(format!("/proc/{}", broker.pid())));
    assert!(data.is_dir() && process.is_dir());
    drop(broker);
    assert!(!data.exists() && !process.exists());
}

#[test]
#[should_panic(expected = "before it listened")]
fn broker_that_ends_at_start_is_reported_with_its_log() {
    let script = stand_in("#!/bin/sh\necho no disk; exit 3\n");
    Broker::start(Settings::new(&script.path));
}

#[test]
#[should_panic(expected = "the broker panicked")]
fn panic_in_the_log_is_found() {
    let script =
        stand_in(&STAND_IN.replace("echo start", "echo \"thread 'shard' panicked at here\"; echo start"));
    Broker::start(Settings::new(&script.path)).assert_healthy();
}
