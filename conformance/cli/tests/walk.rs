//! A person's first minutes with the published command line program.

use conformance_cli::{Cli, text};
use conformance_harness::{Broker, Settings};

#[track_caller]
fn check(output: &str, parts: &[&str]) {
    for part in parts {
        assert!(output.contains(part), "no {part:?} in:\n{output}");
    }
}

#[test]
fn program_walks_from_ping_to_stats() {
    let mut broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    check(&cli.run(&["ping", "--count", "1"]), &["Ping sequence id: 1", "min/avg/max/mdev"]);
    check(&cli.run(&["me"]), &["127.0.0.1:", "TCP"]);
    check(&cli.run(&["stream", "list"]), &["No streams found!"]);

    check(&cli.run(&["stream", "create", "orders"]), &["Stream with name: orders", "created"]);
    check(
        &cli.run(&["topic", "create", "orders", "events", "3", "none"]),
        &["Topic with name: events", "created"],
    );
    check(&cli.run(&["stream", "list", "--list-mode", "list"]), &["|orders|"]);
    check(&cli.run(&["stream", "get", "orders"]), &["orders"]);
    check(&cli.run(&["topic", "list", "orders", "--list-mode", "list"]), &["|events|"]);
    check(&cli.run(&["topic", "get", "orders", "events"]), &["events", "3"]);

    let send =
        ["message", "send", "--partition-id", "1", "--headers", "kind:string:greeting", "orders", "events"];
    check(&cli.run(&[&send[..], &["hello", "world"]].concat()), &["Sent messages"]);
    let poll = cli.run(&["message", "poll", "--first", "--message-count", "10", "orders", "events", "1"]);
    check(&poll, &["hello", "world", "2 messages"]);
    let headers = ["message", "poll", "--offset", "1", "--show-headers", "orders", "events", "1"];
    check(&cli.run(&headers), &["world", "greeting", "1 message"]);

    send_and_poll_a_file(&cli);

    let stats = cli.run(&["stats", "--output", "json"]);
    check(&stats, &["\"streams_count\": 1", "\"partitions_count\": 3", "\"messages_count\": 4"]);
    check(&cli.run(&["partition", "create", "orders", "events", "2"]), &["Created 2 partitions"]);
    check(&cli.run(&["topic", "delete", "orders", "events"]), &["deleted"]);
    check(&cli.run(&["stream", "delete", "orders"]), &["deleted"]);
    check(&cli.run(&["stream", "get", "orders"]), &["was not found"]);
    assert!(broker.stop().success());
    broker.assert_no_panic();
}

/// Polls the two messages of partition 1 into a file and sends that file to partition 2.
fn send_and_poll_a_file(cli: &Cli) {
    let file = cli.home().join("messages.bin");
    let file = file.to_str().expect("a path of plain characters");
    let poll = ["message", "poll", "--first", "--message-count", "10", "--output-file", file];
    check(&cli.run(&[&poll[..], &["orders", "events", "1"]].concat()), &["Stored 2 messages"]);
    let send = ["message", "send", "--partition-id", "2", "--input-file", file, "orders", "events"];
    check(&cli.run(&send), &["Sent messages"]);
    let again = cli.run(&["message", "poll", "--first", "--message-count", "10", "orders", "events", "2"]);
    check(&again, &["hello", "world", "2 messages"]);
}

#[test]
fn program_says_what_was_refused() {
    let broker = Broker::start(Settings::default());
    let cli = Cli::new(&broker);
    let wrong = cli.output("wrong", &["stream", "list"]);
    assert!(!wrong.status.success());
    check(&text(&wrong).to_lowercase(), &["invalid credentials"]);
    cli.run(&["stream", "create", "orders"]);
    let twice = cli.output("iggy", &["stream", "create", "orders"]);
    assert!(!twice.status.success());
    check(&text(&twice).to_lowercase(), &["already exists"]);
}
