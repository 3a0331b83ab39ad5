//! `laneway config` as a process, and settings that a start refuses: what is printed, where, and with which exit code.

use std::process::{Command, Output, Stdio};

fn laneway(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laneway"))
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("run laneway")
}

/// A usage error: exit code 2, one line on standard error with these parts, nothing on standard output.
#[track_caller]
fn refused(arguments: &[&str], variables: &[(&str, &str)], parts: &[&str]) {
    let output = laneway(arguments, variables);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    assert_eq!(message.lines().filter(|line| line.starts_with("laneway: ")).count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "no {part:?} in {message}");
    }
}

/// `serve` and `config` with the same mistake give the same answer.
#[track_caller]
fn refused_by_both(arguments: &[&str], variables: &[(&str, &str)], parts: &[&str]) {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().join("data");
    for command in ["config", "serve"] {
        let mut line = vec![command, "--data-dir", data.to_str().unwrap()];
        line.extend(arguments);
        refused(&line, variables, parts);
    }
    assert!(!data.exists(), "a start that is refused makes no directory");
}

fn row(listing: &str, key: &str) -> String {
    let line = listing.lines().find(|line| line.split_whitespace().next() == Some(key)).expect(key);
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn config_prints_each_value_with_its_source() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "lanes_per_shard = 2\n").unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = ["config", "--config", path, "--shards", "1", "--set", "topic.durability=replicated"];
    let output = laneway(&arguments, &[("LANEWAY_SESSIONS_TIMEOUT", "50 s")]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(row(&text, "lanes_per_shard"), format!("lanes_per_shard 2 number {path}:1"));
    assert_eq!(row(&text, "sessions.timeout"), "sessions.timeout 50 s duration LANEWAY_SESSIONS_TIMEOUT");
    assert_eq!(row(&text, "shards"), "shards 1 number --shards");
    assert_eq!(row(&text, "topic.durability"), "topic.durability replicated word --set");
    assert_eq!(row(&text, "topic.segment_size"), "topic.segment_size 1 GiB size default");
    assert!(text.contains("engine here: "));
}

#[test]
fn keys_are_listed_without_any_source() {
    let output = laneway(&["config", "--keys"], &[("LANEWAY_TPC_ADDRESS", "off")]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for key in laneway_config::keys::KEYS {
        assert!(text.contains(key.name), "{}", key.name);
    }
}

#[test]
fn mistakes_end_with_2_and_name_the_fix() {
    refused_by_both(&[], &[("LANEWAY_TPC_ADDRESS", "off")], &["LANEWAY_TCP_ADDRESS"]);
    refused_by_both(&["--set", "shards"], &[], &["--set KEY=VALUE"]);
    refused_by_both(&["--set", "tcp.adress=off"], &[], &["\"tcp.adress\"", "did you mean \"tcp.address\"?"]);
    refused_by_both(&["--set", "topic.segment_size=64"], &[], &["topic.segment_size", "unit", "64 MiB"]);
    refused_by_both(&["--set", "topic.segment_size=64 MX"], &[], &["topic.segment_size", "\"MX\""]);
    refused_by_both(&["--set", "sessions.timeout=15"], &[], &["sessions.timeout", "unit", "30 s"]);
    refused_by_both(
        &["--set", "topic.max_topic_size=16MiB"],
        &[],
        &["topic.segment_size (1 GiB)", "topic.max_topic_size (16 MiB)"],
    );
    // S114
    refused_by_both(&["--log", "inof"], &[], &["inof", "info"]);
    refused_by_both(&["--set", "tokens.per_user_max=0"], &[], &["tokens.per_user_max", "from 1"]);
    refused_by_both(&["--http", "127.0.0.1:3000"], &[], &["--http", "HTTP is not there yet", "http.address"]);
    refused_by_both(&["--tcp", "localhost:8090"], &[], &["--tcp", "127.0.0.1:8090"]);
    refused_by_both(&["--config", "/nonexistent/l.toml"], &[], &["/nonexistent/l.toml"]);
}

#[test]
fn a_wrong_line_of_a_file_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (text, part) in [
        ("shards = 1\n[reads]\nwait = '1 s'\n", ":3: unknown key \"reads.wait\""),
        ("[tcp]\naddress = 'here'\n", ":2: tcp.address: "),
        ("shards = \n", ":1: not valid TOML"),
    ] {
        std::fs::write(file.path(), text).unwrap();
        refused_by_both(&["--config", path], &[], &[&format!("{path}{part}")]);
        refused_by_both(&[], &[("LANEWAY_CONFIG", path)], &[&format!("{path}{part}")]);
    }
}

#[test]
fn half_of_the_root_credentials_is_refused() {
    refused(&["config"], &[("LANEWAY_ROOT_USERNAME", "admin")], &["LANEWAY_ROOT_PASSWORD"]);
    refused(&["config"], &[("LANEWAY_ROOT_PASSWORD", "secret-1")], &["LANEWAY_ROOT_USERNAME"]);
}

#[test]
fn an_unknown_flag_is_named() {
    let output = laneway(&["config", "--no-such-flag"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-such-flag"));
}

#[test]
fn secrets_stay_out_of_the_listing() {
    let output = laneway(&["config"], &[("IGGY_ROOT_USERNAME", "admin"), ("IGGY_ROOT_PASSWORD", "hunter22")]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("hunter22"));
    assert!(row(&text, "root.password").contains("********"), "{text}");
}
