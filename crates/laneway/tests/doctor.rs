//! `laneway doctor` as a process: one line for each check, what JSON says, exit codes, and that nothing is left behind.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use laneway::{Broker, Config};
use serde_json::Value;

fn doctor(arguments: &[&str], data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laneway"))
        .args(["doctor", "--data-dir", data.to_str().expect("a path")])
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .expect("run laneway")
}

fn report(arguments: &[&str], data: &Path) -> (Option<i32>, Value) {
    let output = doctor(&[arguments, &["--json"]].concat(), data);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

const EVERY_CHECK: [&str; 17] = [
    "config",
    "config.log",
    "config.root",
    "encryption",
    "kernel",
    "engine",
    "limits.nofile",
    "limits.memlock",
    "cores",
    "memory",
    "clock",
    "clock.source",
    "disk.space",
    "disk.direct",
    "disk.flush",
    "data_dir",
    "port",
];

#[test]
fn a_fit_machine_gets_a_line_for_each_check_and_keeps_nothing() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let output = doctor(&["--tcp", "127.0.0.1:0"], &data);
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names[..names.len() - 1], EVERY_CHECK, "{text}");
    assert_eq!(output.status.code(), Some(0), "{text}");
    for line in text.lines() {
        let verdict = line.split_whitespace().next().unwrap();
        assert!(["ok", "warn", "FAIL"].contains(&verdict) || line.contains("failures"), "{line}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn json_holds_the_same_checks_with_their_remedies() {
    let home = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fs::write(home.path().join("letter.txt"), "dear").unwrap();
    let (code, found) = report(&["--tcp", &address, "--shards", "255"], home.path());
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(found["checks"].as_array().unwrap().len(), EVERY_CHECK.len());
    for (name, verdict) in [("port", "fail"), ("data_dir", "fail"), ("cores", "warn"), ("config", "ok")] {
        let check = check(&found, name);
        assert_eq!(check["verdict"], verdict, "{check}");
        assert_eq!(check.get("remedy").is_some(), verdict != "ok", "{check}");
    }
    assert!(check(&found, "port")["found"].as_str().unwrap().contains(&address));
}

#[test]
fn a_configuration_that_cannot_be_used_is_the_finding() {
    let home = tempfile::tempdir().unwrap();
    let (code, found) = report(&["--set", "shards=many"], home.path());
    assert_eq!(code, Some(1));
    assert_eq!(found["checks"].as_array().unwrap().len(), 1);
    assert!(check(&found, "config")["found"].as_str().unwrap().contains("shards"));
    let (code, found) = report(&["--set", "encryption.enabled=true", "--tcp", "127.0.0.1:0"], home.path());
    assert_eq!((code, &check(&found, "encryption")["verdict"]), (Some(1), &Value::from("fail")));
    let (code, found) = report(&["--log", "inof", "--tcp", "127.0.0.1:0"], home.path());
    assert_eq!((code, &check(&found, "config.log")["verdict"]), (Some(1), &Value::from("fail")));
}

#[test]
fn a_running_broker_is_no_finding() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut config =
        Config { data_dir: data.clone(), shards: Some(1), pin_cores: false, ..Config::default() };
    config.tcp.address = Some(([127, 0, 0, 1], 0).into());
    config.root.dev = true;
    let broker = Broker::start(config).unwrap();
    let address = broker.tcp_addr().unwrap().to_string();
    let (code, found) = report(&["--tcp", &address], &data);
    assert_eq!(code, Some(0), "{found}");
    for name in ["port", "data_dir"] {
        assert!(check(&found, name)["found"].as_str().unwrap().contains("in use"), "{found}");
    }
    broker.shutdown().unwrap();
    let (code, found) = report(&["--tcp", &address], &data);
    assert_eq!(code, Some(0), "{found}");
    assert!(check(&found, "data_dir")["found"].as_str().unwrap().contains("data of this format"), "{found}");
}
