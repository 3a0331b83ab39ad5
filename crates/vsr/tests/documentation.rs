//! `docs/consensus.md` says what the code says: the tables of both are compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use laneway_vsr::durability::{Requirement, requirement};
use laneway_vsr::{
    CheckpointId, Draft, Durability, Entry, EntryBody, Epoch, Header, Identity, LogTrust, Message, Nonce,
    Progress, Quorums, StartView, TransferMessage, View, Vote,
};
use laneway_vsr::{ClusterId, DiskId};
use laneway_wire::{LaneId, Micros, Nanos, Op, ReplicaId};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/consensus.md")).expect("the page is part of the sources")
}

/// The cells of the table rows below a heading, up to the next heading.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let page = page();
    let below = page.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let rows: Vec<Vec<String>> = below
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    assert!(rows.len() > 2, "no table below {heading:?}");
    rows
}

/// V63.
#[test]
fn quorum_table_is_the_one_of_the_code() {
    let rows = rows("## Quorums");
    let column = |row: &str, members: usize| -> usize {
        let cells = rows.iter().find(|cells| cells[0] == row).expect("the row is there");
        cells[members].parse().expect("a number")
    };
    for members in 1..=9 {
        let quorums = Quorums::of(members).unwrap();
        assert_eq!(column("Members", members), members);
        assert_eq!(column("replication", members), quorums.replication());
        assert_eq!(column("view change", members), quorums.view_change());
        assert_eq!(column("nack", members), quorums.nack());
    }
}

/// The words for what the code asks.
fn words(asked: Requirement) -> (String, String) {
    let superblock = match (asked.view.is_some(), asked.log_view.is_some(), asked.vote) {
        (false, false, false) => "-",
        (true, true, false) => "view and log view",
        (true, false, true) => "view and this vote",
        other => panic!("no words for {other:?}"),
    };
    let log = match (asked.written, asked.synced) {
        (Op(0), Op(0)) => "-",
        (Op(7), Op(5)) => "written through `received`, flushed through `persisted`",
        other => panic!("no words for {other:?}"),
    };
    (superblock.to_owned(), log.to_owned())
}

fn samples() -> Vec<Message> {
    let (view, nonce) = (View(3), Nonce(1));
    let body = EntryBody::operation("x");
    let draft = Draft {
        op: Op(9),
        parent: Identity(1),
        view,
        commit: Op(4),
        timestamp: Micros(1),
        epoch: Epoch(0),
        primary: ReplicaId(0),
        durability: Durability::Persisted,
    };
    let entry = Entry { header: Header::seal(ClusterId(1), LaneId(1), draft, &body), body };
    let mut progress = Progress::default();
    progress.received.op = Op(7);
    progress.persisted.op = Op(5);
    let vote = Vote {
        view,
        log_view: View(2),
        op_head: Op(9),
        commit_max: Op(9),
        checkpoint: CheckpointId::default(),
        trust: LogTrust::Trusted,
        syncing: false,
        slots: Vec::new(),
    };
    let start = StartView {
        view,
        op_head: Op(9),
        commit_max: Op(9),
        checkpoint: CheckpointId::default(),
        headers: Vec::new(),
        nonce: None,
    };
    let reply = |start_view| Message::RecoveryReply {
        view,
        nonce,
        log_view: view,
        op_head: Op(9),
        commit_max: Op(9),
        start_view,
    };
    let chunk = TransferMessage::Chunk {
        nonce,
        checkpoint: CheckpointId::default(),
        artifact: 0,
        offset: 0,
        bytes: Bytes::new(),
    };
    vec![
        Message::Prepare { view, commit: Op(4), checkpoint: Op(0), entry: entry.clone() },
        Message::PrepareOk { view, progress },
        Message::Heartbeat {
            view,
            sequence: 1,
            sent_at: Nanos(1),
            commit: Op(4),
            op_head: Op(9),
            checkpoint: Op(0),
            checkpoint_quorum: Op(0),
        },
        Message::HeartbeatAck { view, sequence: 1, sent_at: Nanos(1), progress },
        Message::StartViewChange { view, target: View(4), commit_max: Op(4) },
        Message::DoViewChange(Box::new(vote)),
        Message::StartView(Box::new(start.clone())),
        Message::GetView { view, nonce, op_head: Op(9), recovering: true },
        Message::GetHeaders { view, nonce, first: Op(1), last: Op(9) },
        Message::Headers { view, nonce, headers: Vec::new() },
        Message::GetPrepare { view, nonce, wanted: Vec::new() },
        Message::RepairPrepare { view, nonce, settled: true, entry },
        Message::RangeEvicted { view, nonce, oldest: Op(5), checkpoint: Op(4) },
        Message::Transfer { view, message: chunk },
        Message::Recovery { view, nonce, disk: DiskId(1) },
        reply(None),
        reply(Some(Box::new(start))),
        Message::Ping { view, sent_at: Nanos(1) },
        Message::Pong { view, sent_at: Nanos(1), wall: Micros(1) },
    ]
}

#[test]
fn durability_table_is_the_one_of_the_code() {
    let mut table: BTreeMap<String, (String, String)> = rows("## What must be durable")
        .into_iter()
        .skip(1)
        .filter(|cells| cells.len() == 3)
        .map(|cells| (cells[0].clone(), (cells[1].clone(), cells[2].clone())))
        .collect();
    let mut missing: Vec<&str> = Vec::new();
    for message in samples() {
        let (mut superblock, log) = words(requirement(&message));
        let kind = message.kind();
        match &message {
            Message::RecoveryReply { start_view: None, .. } => {
                assert_eq!((superblock.as_str(), log.as_str()), ("-", "-"));
                continue;
            }
            Message::RecoveryReply { .. } => superblock.push_str(", when it carries the start of the view"),
            _ => {}
        }
        match table.remove(kind) {
            Some(row) => assert_eq!(row, (superblock, log), "{kind}"),
            None => missing.push(kind),
        }
    }
    assert!(
        missing.is_empty() && table.is_empty(),
        "not in the page: {missing:?}; not in the code: {table:?}"
    );
}

/// Fields follow each other, and none reaches into the next.
#[test]
fn fields_of_the_formats_do_not_overlap() {
    let formats = [
        ("## Superblock", laneway_vsr::superblock::RECORD_BYTES),
        ("### Member list", laneway_vsr::roster::ROSTER_BYTES),
        ("### Vote", 64),
        ("### Entry header", laneway_vsr::header::HEADER_BYTES),
    ];
    for (heading, bytes) in formats {
        let mut end = 0;
        let fields = rows(heading);
        let numbers =
            fields.iter().filter_map(|cells| Some((cells[0].parse().ok()?, cells[1].parse().ok()?)));
        for (offset, size) in numbers.collect::<Vec<(usize, usize)>>() {
            assert!(offset >= end, "{heading}: the field at {offset} begins before {end}");
            end = offset + size;
        }
        assert!(end <= bytes, "{heading}: {end} of {bytes} bytes");
    }
}

/// The Rust sources below a directory.
fn sources(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("a source directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|ending| ending == "rs") => {
                found.push(fs::read_to_string(&path).expect("a source file"));
            }
            false => {}
        }
    }
}

/// Every rule from V28 to V67 has its row, and every test that the table names is there.
#[test]
fn every_rule_of_the_core_has_a_test_that_exists() {
    let mut texts = Vec::new();
    for directory in ["crates/vsr", "crates/storage", "crates/simulator"] {
        sources(&root().join(directory), &mut texts);
    }
    let is_test = |name: &str| {
        let definition = format!("fn {name}(");
        texts.iter().any(|text| text.contains(&definition))
    };
    let rules: BTreeMap<String, String> = rows("## How it is tested")
        .into_iter()
        .skip(1)
        .map(|cells| (cells[0].clone(), cells[2].clone()))
        .collect();
    for rule in 28..=67 {
        assert!(rules.contains_key(&format!("V{rule}")), "V{rule} has no row");
    }
    for (rule, shown_by) in rules {
        let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{rule} names no test");
        for name in names {
            assert!(is_test(name), "{rule}: there is no `{name}`");
        }
    }
}
