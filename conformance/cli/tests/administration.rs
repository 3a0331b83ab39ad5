//! Every subcommand of the published program that the first minutes in `walk.rs` do not need: options, users, tokens,
//! segments, offsets, the change log, snapshots, contexts and sessions; and what is refused, with its reason.

use std::fs;

use conformance_cli::{Cli, text};
use conformance_harness::{Broker, Settings};

#[track_caller]
fn check(output: &str, parts: &[&str]) {
    for part in parts {
        assert!(output.contains(part), "no {part:?} in:\n{output}");
    }
}

/// Runs a command that must fail, and checks what it says.
#[track_caller]
fn refused(cli: &Cli, arguments: &[&str], parts: &[&str]) {
    let output = cli.output("iggy", arguments);
    let text = text(&output);
    assert!(!output.status.success(), "{arguments:?} succeeded:\n{text}");
    check(&text, parts);
}

fn orders(cli: &Cli) {
    cli.run(&["stream", "create", "orders"]);
    cli.run(&["topic", "create", "orders", "events", "3", "none"]);
}

#[test]
fn options_are_described_set_and_reset() {
    let mut broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    for (scope, keys) in [
        ("topic", &["segment_size", "persisted", "create only", "updatable, resettable"][..]),
        ("stream", &["encryption_key", "create only, secret, critical", "read only"][..]),
        ("user", &["username", "status"][..]),
    ] {
        check(&cli.run(&["options", scope]), keys);
    }
    orders(&cli);
    check(&cli.run(&["stream", "update", "orders", "--name", "sales"]), &["updated (name: sales)"]);
    check(&cli.run(&["stream", "update", "sales", "--set", "name=orders"]), &["updated (set: name)"]);
    let update = ["topic", "update", "orders", "events"];
    cli.run(&[&update[..], &["--name", "log", "-m", "20GB", "-e", "5s"]].concat());
    let update = ["topic", "update", "orders", "log"];
    check(&cli.run(&["topic", "get", "orders", "log"]), &["20.00 GB", "5s", "explicit"]);
    cli.run(&[&update[..], &["--set", "message_expiry=10s"]].concat());
    check(&cli.run(&["topic", "get", "orders", "log"]), &["10s"]);
    cli.run(&[&update[..], &["--reset", "message_expiry", "--reset", "max_topic_size"]].concat());
    check(&cli.run(&["topic", "get", "orders", "log"]), &["Message expiry      | unlimited"]);
    refused(&cli, &[&update[..], &["--reset", "segment_size"]].concat(), &["segment_size"]);
    refused(&cli, &["stream", "update", "nowhere", "--name", "x"], &["nowhere"]);
    assert!(broker.stop().success());
    broker.assert_no_panic();
}

#[test]
fn users_live_and_die() {
    let mut broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    orders(&cli);
    check(&cli.run(&["user", "list", "--list-mode", "list"]), &["|iggy"]);
    cli.run(&["user", "create", "guest", "secret123", "-g", "p_msg,s_msg"]);
    refused(&cli, &["user", "create", "guest", "secret123"], &["already exists"]);
    check(&cli.run(&["user", "get", "guest"]), &["Poll Messages  | true", "Read Servers   | false"]);
    cli.run(&["user", "name", "guest", "visitor"]);
    cli.run(&["user", "status", "visitor", "inactive"]);
    check(&cli.run(&["user", "get", "visitor"]), &["inactive"]);
    cli.run(&["user", "status", "visitor", "active"]);
    cli.run(&["user", "password", "visitor", "secret123", "secret456"]);
    refused(&cli, &["user", "password", "visitor", "secret123", "secret789"], &["nvalid credentials"]);
    cli.run(&["user", "permissions", "visitor", "-g", "r_str", "-s", "0:r_str"]);
    check(
        &cli.run(&["user", "get", "visitor"]),
        &["Read Streams   | true", "Poll Messages  | false", "Stream: 0"],
    );
    refused(&cli, &["user", "permissions", "iggy", "-g", "r_str"], &["ermissions"]);
    refused(&cli, &["user", "delete", "iggy"], &["elet"]);
    cli.run(&["user", "delete", "visitor"]);
    check(&cli.run(&["user", "get", "visitor"]), &["was not found"]);
    assert!(broker.stop().success());
    broker.assert_no_panic();
}

/// The program keeps tokens in the keyring of the desktop; where there is none, a delete reports that after the token
/// is gone, and a login is not possible, whatever the server.
#[test]
fn tokens_are_made_and_listed_and_go() {
    let mut broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    let made = cli.run(&["pat", "create", "forever"]);
    let token = made.lines().find_map(|line| line.strip_prefix("Token: ")).expect("a token is printed once");
    assert_eq!(token.len(), 68, "{token}");
    refused(&cli, &["pat", "create", "forever"], &["already exists"]);
    cli.run(&["pat", "create", "short", "1h"]);
    let listed = cli.run(&["pat", "list", "--list-mode", "list"]);
    check(&listed, &["forever|unlimited", "short|20"]);
    let with_token = std::process::Command::new(conformance_cli::program())
        .args(["--tcp-server-address", &broker.address().to_string(), "--token", token, "me"])
        .env("HOME", cli.home())
        .output()
        .expect("run the command line program");
    check(&text(&with_token), &["User ID   | 0"]);
    let _ = cli.output("iggy", &["pat", "delete", "short"]);
    let listed = cli.run(&["pat", "list", "--list-mode", "list"]);
    assert!(!listed.contains("short"), "{listed}");
    check(&cli.run(&["session", "status"]), &["Session Active | No"]);
    cli.run(&["logout"]);
    assert!(broker.stop().success());
    broker.assert_no_panic();
}

#[test]
fn segments_and_offsets_and_clients() {
    let mut broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    orders(&cli);
    cli.run(&["message", "send", "--partition-id", "1", "orders", "events", "a", "b", "c"]);
    cli.run(&["consumer-offset", "set", "5", "orders", "events", "1", "1"]);
    check(
        &cli.run(&["consumer-offset", "get", "5", "orders", "events", "1"]),
        &["Current offset | 2", "Stored offset  | 1"],
    );
    check(&cli.run(&["consumer-offset", "get", "6", "orders", "events", "1"]), &["was not found"]);
    refused(&cli, &["consumer-offset", "set", "5", "orders", "events", "1", "3"], &["ffset"]);
    check(&cli.run(&["segment", "delete", "orders", "events", "1", "1"]), &["Deleted 1 segment"]);
    refused(&cli, &["segment", "delete", "orders", "events", "7", "1"], &["artition"]);
    check(&cli.run(&["client", "list", "--list-mode", "list"]), &["127.0.0.1", "TCP"]);
    check(&cli.run(&["client", "get", "4000000000"]), &["was not found"]);
    check(&cli.run(&["cluster", "metadata"]), &["leader", "healthy"]);
    cli.run(&["partition", "create", "orders", "events", "2"]);
    cli.run(&["partition", "delete", "orders", "events", "2"]);
    refused(&cli, &["partition", "delete", "orders", "events", "4"], &["artition"]);
    assert!(broker.stop().success());
    broker.assert_no_panic();
}

/// Consumer groups are not served yet: each command says so, and nothing else happens.
#[test]
fn consumer_groups_are_refused_by_name() {
    let mut broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    orders(&cli);
    for arguments in [
        &["consumer-group", "create", "orders", "events", "g"][..],
        &["consumer-group", "list", "orders", "events"],
        &["consumer-group", "get", "orders", "events", "g"],
        &["consumer-group", "delete", "orders", "events", "g"],
        &["consumer-offset", "set", "-k", "consumer-group", "g", "orders", "events", "1", "0"],
    ] {
        refused(&cli, arguments, &["Feature is unavailable"]);
    }
    assert!(broker.stop().success());
    broker.assert_no_panic();
}

#[test]
fn changes_are_read_and_snapshots_are_written() {
    let mut broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    orders(&cli);
    check(&cli.run(&["metadata", "changes"]), &["\"status\":\"ok\"", "stream_created", "topic_created"]);
    check(&cli.run(&["metadata", "changes", "--from", "latest"]), &["\"status\":\"ok\"", "mc1_"]);
    check(&cli.run(&["metadata", "changes", "--from", "current"]), &["\"phase\":\"current\"", "orders"]);
    let pages = cli.run(&["metadata", "changes", "--groups", "streams,topics", "--limit", "1"]);
    assert_eq!(pages.matches("\"status\"").count(), 2, "a page per record:\n{pages}");

    let folder = cli.home().join("snapshots");
    fs::create_dir(&folder).expect("make a folder");
    let folder = folder.to_str().expect("a path of plain characters");
    for arguments in [&["-s", "test"][..], &["-s", "all", "-c", "stored"]] {
        cli.run(&[&["snapshot", "-o", folder][..], arguments].concat());
    }
    let archives: Vec<_> = fs::read_dir(folder).expect("read the folder").flatten().collect();
    assert!(!archives.is_empty());
    for archive in archives {
        let bytes = fs::read(archive.path()).expect("read an archive");
        assert_eq!(&bytes[..4], b"PK\x03\x04", "{:?}", archive.path());
    }
    assert!(broker.stop().success());
    broker.assert_no_panic();
}

/// What the program keeps for itself works beside the broker.
#[test]
fn contexts_lead_to_the_broker() {
    let mut broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    let address = broker.address().to_string();
    let create = ["context", "create", "here", "--transport", "tcp", "--tcp-server-address", &address];
    cli.run(&[&create[..], &["-u", "iggy", "-p", "iggy"]].concat());
    check(&cli.run(&["context", "list"]), &["here", "default*"]);
    cli.run(&["context", "use", "here"]);
    check(&cli.run(&["context", "show", "here"]), &["here*", &address]);
    cli.run(&["context", "use", "default"]);
    cli.run(&["context", "delete", "here"]);
    assert!(broker.stop().success());
    broker.assert_no_panic();
}
