//! The commands as a shell sees them: the real binary as broker and as client, pipes, exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "../../../conformance/harness/src/lib.rs"]
#[allow(dead_code, unused_imports)]
mod harness;

use harness::{Broker, Settings};

const LANEWAY: &str = env!("CARGO_BIN_EXE_laneway");
/// More than any command here should need on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a test against a broker of its own.
fn with_broker(test: impl FnOnce(&Client)) {
    let mut broker = Broker::start(Settings::new(LANEWAY));
    test(&Client { server: broker.connection_string() });
    broker.assert_healthy();
    assert!(broker.stop().success(), "the broker stops cleanly");
}

/// Runs commands against one broker.
struct Client {
    server: String,
}

impl Client {
    fn command(&self, line: &str) -> Command {
        let mut command = bare(line);
        command.env("LANEWAY_SERVER", &self.server);
        command
    }

    /// Runs a command with this standard input, to its end.
    fn run_with(&self, line: &str, input: &[u8]) -> Output {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A command that refuses does not read its input.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    fn run(&self, line: &str) -> Output {
        self.run_with(line, b"")
    }

    /// Runs a command that must succeed; gives its standard output.
    #[track_caller]
    fn out(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn send(&self, line: &str, input: &[u8]) -> String {
        let output = self.run_with(line, input);
        assert!(output.status.success(), "{line}: {}", errors(&output));
        errors(&output)
    }

    /// Runs a command that must fail with this code and these words.
    #[track_caller]
    fn refused(&self, line: &str, code: i32, words: &str) {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", errors(&output));
        assert!(errors(&output).contains(words), "{line}: {}", errors(&output));
    }
}

/// A command without a word about where the broker is.
fn bare(line: &str) -> Command {
    let mut command = Command::new(LANEWAY);
    command.args(line.split_whitespace());
    for name in ["LANEWAY_SERVER", "LANEWAY_USERNAME", "LANEWAY_PASSWORD"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits for a child that must end by itself.
#[track_caller]
fn ended(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the command does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn streams_and_topics_come_and_go() {
    with_broker(|client| {
        assert_eq!(client.out("streams list"), "");
        client.out("streams create logs");
        client.refused("streams create logs", 1, "a stream of this name exists already");
        client.out("streams create logs --if-missing");
        client.out("topics create logs/web --partitions 3");
        client.refused("topics create logs/web", 1, "a topic of this name exists already");
        client.refused("topics create none/web", 1, "there is no such stream");

        let streams = client.out("streams list");
        let columns: Vec<&str> = streams.trim_end().split('\t').collect();
        assert_eq!(columns[1..5], ["logs", "1", "0", "0"], "{streams}");
        let json = client.out("streams list --json");
        assert!(json.starts_with("{\"id\":0,\"name\":\"logs\",\"topics_count\":1,"), "{json}");
        assert!(client.out("topics list logs").contains("\tweb\t3\t0\t"));
        let plain = client.out("topics show logs/web");
        assert_eq!(plain.lines().count(), 1 + 3, "{plain}");
        assert!(plain.starts_with("0\tweb\t3\t"), "{plain}");
        let json = client.out("topics show logs/web --json");
        assert!(json.contains("\"partitions\":[{\"id\":0,"), "{json}");
        assert!(json.contains("\"current_offset\":null"), "{json}");
        assert!(json.contains("\"max_topic_size\":null"), "{json}");
        assert!(client.out("streams show logs").starts_with("0\tlogs\t1\t"));
        assert!(client.out("streams show logs --json").contains("\"topics\":[{\"id\":0,\"name\":\"web\""));

        client.refused("topics show logs/none", 1, "there is no topic logs/none: ");
        let said = client.out("topics delete-segments logs/web --partition 2 --all");
        assert!(said.is_empty(), "what is for people goes to the other stream: {said}");
        client.refused(
            "topics delete-segments logs/web --partition 3",
            1,
            "there is no partition 3 of topic logs/web: ",
        );
        client.out("topics update logs/web --name pages --message-expiry 5s");
        assert!(client.out("topics show logs/pages --json").contains("\"message_expiry\":"));
        client.refused("topics update logs/pages", 2, "nothing to change");
        client.refused("topics update logs/pages --name x --reset name", 2, "both set and reset");
        client.refused("topics update logs/web --name x", 1, "there is no such topic");
        client.out("topics update logs/pages --name web --reset message_expiry");
        let changes = client.out("changes --group topics");
        let told: Vec<&str> = changes.lines().filter_map(|line| line.split('\t').nth(3)).collect();
        assert_eq!(told, ["topic_created", "topic_updated", "topic_updated"], "{changes}");
        assert!(client.out("changes --json").contains("\"what\":\"session_registered\""));
        client.refused("streams show none", 1, "there is no stream none: ");
        client.refused("topics list none", 1, "there is no stream none: ");
        client.out("topics delete logs/web");
        client.refused("topics delete logs/web", 1, "there is no such topic");
        client.out("streams delete logs");
        client.refused("streams delete logs", 1, "there is no such stream");
        assert_eq!(client.out("streams list"), "");
    });
}

#[test]
fn lines_of_any_bytes_come_back_in_order() {
    with_broker(|client| {
        let summary = client.send("send logs/web --create", b"one\n\ntwo\r\n\xff\x00three\nlast");
        assert!(summary.contains("4 messages"), "{summary}");
        assert!(summary.contains("1 empty line was left out"), "{summary}");
        let output = client.run("tail logs/web --first");
        assert_eq!(output.stdout, b"one\ntwo\r\n\xff\x00three\nlast\n");
        let json = client.out("tail logs/web --offset 1 --count 2 --format json");
        let lines: Vec<&str> = json.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("{\"partition\":0,\"offset\":1,\"timestamp\":"), "{json}");
        assert!(lines[0].contains("\"payload\":\"two\\r\",\"headers\":{}"), "{json}");
        assert!(lines[1].contains("\"payload_base64\":\"/wB0aHJlZQ==\""), "{json}");
        assert_eq!(client.out("tail logs/web --last 1"), "last\n");
        assert_eq!(client.out("tail logs/web --last 0"), "");
        assert_eq!(client.run("tail logs/web --since 0").stdout, output.stdout);
        assert_eq!(client.out("tail logs/web --last 1 --follow --count 1"), "last\n");
    });
}

#[test]
fn many_lines_over_partitions_keep_their_order() {
    with_broker(|client| {
        let input: String = (0..20_000).map(|i| format!("user{} {i}\n", i % 7)).collect();
        let summary =
            client.send("send logs/web --create --partitions 3 --key-column 1 --batch 100", input.as_bytes());
        assert!(summary.contains("20,000 messages"), "{summary}");
        let mut found = Vec::new();
        for partition in 0..3 {
            let text = client.out(&format!("tail logs/web --first --partition {partition}"));
            let mut last = std::collections::BTreeMap::new();
            for line in text.lines() {
                let (user, number) = line.split_once(' ').unwrap();
                let number: u32 = number.parse().unwrap();
                assert!(last.insert(user.to_owned(), number).is_none_or(|before| before < number), "{line}");
                found.push((user.to_owned(), number));
            }
        }
        // Every line once, and every key in one partition: its numbers are then all in one ascending run.
        found.sort_by_key(|(_, number)| *number);
        assert!(found.iter().map(|(_, number)| *number).eq(0..20_000));
        client.out("topics show logs/web");
    });
}

#[test]
fn keys_decide_the_partition() {
    with_broker(|client| {
        // The key of the protocol's own example goes to partition 1 of 3.
        client.send(
            "send a/b --create --partitions 3 --key-regex id=(\\S+)",
            b"id=order-42 x\nid=order-42 y\n",
        );
        assert_eq!(client.out("tail a/b --first --partition 1"), "id=order-42 x\nid=order-42 y\n");
        let summary = client.send("send a/b --key-regex id=(\\S+)", b"nothing\n");
        assert!(summary.contains("1 line had no key and was spread"), "{summary}");
        let summary = client.send("send a/b --partition 2", b"here\n");
        assert!(
            summary.contains("1 message (4 B)") && summary.contains("over 1 of 3 partitions"),
            "{summary}"
        );
        assert_eq!(client.out("tail a/b --last 1 --partition 2"), "here\n");
    });
}

#[test]
fn follower_sees_what_arrives_and_ends_with_its_pipe() {
    with_broker(|client| {
        client.send("send logs/web --create --partitions 2", b"before\n");
        let mut follower = client.command("tail logs/web --last 0 -f").spawn().unwrap();
        let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
        // The follower may still be connecting; send until it is there.
        let (seen, done) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let line = lines.next().unwrap().unwrap();
            seen.send(line).unwrap();
            lines
        });
        let deadline = Instant::now() + PATIENCE;
        let line = loop {
            client.send("send logs/web", b"arrives\n");
            match done.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => break line,
                Err(_) => assert!(Instant::now() < deadline, "nothing arrives"),
            }
        };
        assert_eq!(line, "arrives");
        // As `| head -1` does it: the pipe closes, and nothing more arrives.
        drop(reader.join().unwrap());
        assert_eq!(ended(&mut follower), Some(0));
        let mut errors = String::new();
        follower.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(errors, "");
    });
}

#[test]
fn pipe_that_closes_early_is_no_error() {
    with_broker(|client| {
        let input = "a line that is long enough to fill every buffer on the way\n".repeat(50_000);
        client.send("send logs/web --create", input.as_bytes());
        let mut tail = client.command("tail logs/web --first").spawn().unwrap();
        let mut first = String::new();
        BufReader::new(tail.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("a line"));
        assert_eq!(ended(&mut tail), Some(0));
        let mut errors = String::new();
        tail.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(errors, "");
    });
}

#[test]
fn slow_input_is_sent_while_it_comes() {
    with_broker(|client| {
        client.out("streams create logs");
        client.out("topics create logs/web");
        let mut sender = client.command("send logs/web").stdin(Stdio::piped()).spawn().unwrap();
        let mut input = sender.stdin.take().unwrap();
        input.write_all(b"first\nsecond ha").unwrap();
        let deadline = Instant::now() + PATIENCE;
        while client.out("tail logs/web --first") != "first\n" {
            assert!(Instant::now() < deadline, "the line waits for more input");
        }
        input.write_all(b"lf\n").unwrap();
        drop(input);
        assert_eq!(ended(&mut sender), Some(0));
        assert_eq!(client.out("tail logs/web --first"), "first\nsecond half\n");
    });
}

#[test]
fn send_that_is_interrupted_says_what_is_stored() {
    with_broker(|client| {
        client.out("streams create logs");
        client.out("topics create logs/web");
        let mut sender = client.command("send logs/web").stdin(Stdio::piped()).spawn().unwrap();
        let mut input = sender.stdin.take().unwrap();
        input.write_all(b"first\n\nsecond\n").unwrap();
        let deadline = Instant::now() + PATIENCE;
        while client.out("tail logs/web --first") != "first\nsecond\n" {
            assert!(Instant::now() < deadline, "the lines wait for more input");
        }
        // SAFETY: the process is a child that nobody has waited for, so its id is still its own.
        assert_eq!(unsafe { libc::kill(sender.id() as i32, libc::SIGINT) }, 0);
        assert_eq!(ended(&mut sender), Some(130));
        let mut errors = String::new();
        sender.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        // The lines are stored; whether the sender has seen that yet is a matter of luck.
        assert!(errors.starts_with("stopped: ") && errors.contains(" of 2 lines read "), "{errors}");
        drop(input);
    });
}

#[test]
fn large_lines_travel_whole() {
    with_broker(|client| {
        let input = [&b"x".repeat(10 << 20)[..], b"\n", &b"y".repeat(3 << 20)].concat();
        client.send("send logs/web --create", &input);
        let output = client.run("tail logs/web --first");
        assert!(output.status.success());
        assert!(output.stdout == [&input[..], b"\n"].concat(), "{} bytes came back", output.stdout.len());
    });
}

#[test]
fn ping_measures_and_needs_no_password() {
    with_broker(|client| {
        let address = client.server.rsplit('@').next().unwrap();
        let output = bare(&format!("ping --count 2 --interval 10ms --server {address}")).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 3);
    });
}

#[test]
fn short_sends_without_keys_share_the_partitions() {
    with_broker(|client| {
        client.out("streams create logs");
        client.out("topics create logs/web --partitions 1000");
        // All ten in one of a thousand partitions: once in 10^27 runs.
        for _ in 0..10 {
            client.send("send logs/web", b"line\n");
        }
        let partitions = client.out("topics show logs/web");
        let used = partitions.lines().skip(1).filter(|line| line.split('\t').nth(1) != Some("0")).count();
        assert!(used > 1, "{used} partitions hold everything");
    });
}

#[test]
fn refusals_name_cause_and_fix() {
    with_broker(|client| {
        client.refused("send none/none", 1, "there is no stream none: create it with --create");
        client.refused("tail none/none", 1, "there is no stream none: see `laneway streams list`");
        client.refused("streams list --password wrong", 1, "wrong user name or password");
        client.send("send logs/web --create", b"line\n");
        client.refused("send logs/none", 1, "there is no topic logs/none: create it with --create");
        client.refused("tail logs/web --partition 1", 1, "logs/web has no partition 1");
        client.refused("send logs/web --partition 9", 1, "logs/web has no partition 9");
        client.refused("send logs/web --key-regex (", 2, "--key-regex");
        client.refused("topics create logs/5", 2, "choose another name");
        client.refused("tail logs", 2, "STREAM/TOPIC");
    });
}

#[test]
fn broker_that_is_not_there_is_explained() {
    let output = bare("ping --server 127.0.0.1:1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = errors(&output);
    let expected =
        "cannot reach 127.0.0.1:1: connection refused; is the broker running? start it with `laneway serve`";
    assert!(text.contains(expected), "{text}");
    let output = bare("streams list").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("LANEWAY_PASSWORD"), "{}", errors(&output));
}

#[test]
fn quickstart_verifies_the_built_in_text() {
    let output = bare("quickstart").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", errors(&output));
    for word in ["verified", "throughput", "p99", "What to try next"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn quickstart_verifies_files_of_any_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bytes");
    // Empty lines, all byte values, a line longer than a piece, no newline at the end.
    let mut bytes = b"\n\n".to_vec();
    bytes.extend((0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8));
    bytes.extend(vec![b'z'; 9 << 20]);
    for content in [&bytes[..], b"", b"\n", b"x"] {
        std::fs::write(&path, content).unwrap();
        let line = format!("quickstart {} --producers 3 --partitions 5 --batch 50", path.display());
        let output = bare(&line).output().unwrap();
        assert!(output.status.success(), "{} bytes: {}", content.len(), errors(&output));
    }
    let output = bare("quickstart /no/such/file").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("cannot read /no/such/file"), "{}", errors(&output));
}

#[test]
fn users_come_with_rights_and_go() {
    with_broker(|client| {
        client.out("streams create logs");
        client.out("topics create logs/web");
        let made =
            client.run("users create ann --grant read_servers --grant logs/web:poll_messages,send_messages");
        assert!(made.status.success(), "{}", errors(&made));
        let password = String::from_utf8(made.stdout).unwrap();
        assert_eq!(password.trim_end().len(), 24, "a random password and nothing else");
        client.refused("users create ann", 1, "a user of this name exists already");
        client.refused("users create bob --grant logs:fly", 2, "use manage_stream, read_stream");
        client.refused("users create bob --grant none:all", 1, "stream none");
        client.send("users create bob --password-stdin", b"bobs secret\n");
        client.refused("users create carl --password-stdin", 2, "fewer than 1 line");

        let users = client.out("users list");
        let names: Vec<&str> = users.lines().filter_map(|line| line.split('\t').nth(1)).collect();
        assert_eq!(names, ["iggy", "ann", "bob"]);
        let shown = client.out("users show ann");
        let grants: Vec<&str> = shown.lines().skip(1).collect();
        assert_eq!(grants, ["read_servers", "0/0:poll_messages,send_messages"]);
        let as_bob = |line: &str, password: &str| {
            let mut command = client.command(line);
            command.args(["--username", "bob"]).env("LANEWAY_PASSWORD", password).output().unwrap()
        };
        assert!(as_bob("users show bob", "bobs secret").status.success());
        assert!(errors(&as_bob("streams list", "bobs secret")).contains("this user may not do that"));
        client.out("users permissions bob --grant read_streams");
        assert!(as_bob("streams list", "bobs secret").status.success());

        let mut none = client.command("users permissions bob --none");
        assert!(errors(&none.output().unwrap()).contains("user bob has no permissions now"));
        client.out("users permissions bob --grant read_streams");
        let wrong = client.run_with("users password bob", b"not bobs\nanother secret\n");
        assert!(errors(&wrong).contains("not the current password of user bob"), "{}", errors(&wrong));
        client.refused("users delete bob --json", 2, "--json");
        client.refused("streams create 42", 2, "choose another name");
        client.refused("topics update logs/web --name 7", 2, "choose another name");
        client.refused("topics update logs/web --message-expiry 7", 2, "has no unit");
        client.refused("topics create logs/mail --segment-size 1048576", 2, "has no unit");
        client.out("topics update logs/web --message-expiry never");
        client.send("users password bob", b"bobs secret\nanother secret\n");
        assert!(!as_bob("streams list", "bobs secret").status.success());
        assert!(as_bob("streams list", "another secret").status.success());
        client.out("users deactivate bob");
        assert!(errors(&as_bob("streams list", "another secret")).contains("wrong user name or password"));
        client.out("users activate bob");
        client.out("users rename bob robert");
        client.refused("users show bob", 1, "laneway users list");
        client.out("users delete robert");
        client.refused("users delete iggy", 1, "the root user cannot be deleted");
    });
}

#[test]
fn tokens_are_printed_once() {
    with_broker(|client| {
        let token = client.out("tokens create forever");
        assert_eq!(token.trim_end().len(), 68);
        client.refused("tokens create forever", 1, "a token of this name already");
        client.refused("tokens create no", 1, "3 to 30 bytes");
        let mut command = client.command("tokens create short --expires");
        assert!(command.arg("90 d").output().unwrap().status.success());
        let listed = client.out("tokens list");
        let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!((rows.len(), rows[0][0], rows[0][1], rows[1][0]), (2, "forever", "never", "short"));
        assert!(!listed.contains(token.trim_end()));
        client.out("tokens delete forever");
        client.refused("tokens delete forever", 1, "no such token");
    });
}
