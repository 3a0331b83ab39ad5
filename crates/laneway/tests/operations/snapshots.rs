//! Snapshots. Rules S103, S104.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use laneway_config::Secret;
use laneway_wire::request::{GetSnapshot, SnapshotCompression, SnapshotType};

use crate::client::{Client, Reply};
use crate::node::{Node, SHARDS};

const KEY: &str = "/rvT1xP4V8u1EAhk4xDdqzqM2UOPXyy9XYkl4uRShgE=";

fn snapshot(types: &[SnapshotType]) -> GetSnapshot {
    GetSnapshot { compression: SnapshotCompression::Deflated, types: types.to_vec() }
}

fn files(reply: &Reply) -> BTreeMap<String, String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(reply.payload())).expect("an archive");
    (0..archive.len())
        .map(|at| {
            let mut file = archive.by_index(at).expect("a file");
            let mut text = String::new();
            file.read_to_string(&mut text).expect("text with the right checksum");
            (file.name().expect("a name").into_owned(), text)
        })
        .collect()
}

#[test]
fn s103_test_holds_the_word_and_all_comes_alone() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let reply = client.ask(&snapshot(&[SnapshotType::Test]));
        assert_eq!(files(&reply), [("test.txt".to_owned(), "test".to_owned())].into());
        client.ask(&snapshot(&[SnapshotType::All, SnapshotType::Test])).assert_refused(3);
        client.ask(&snapshot(&[SnapshotType::Test, SnapshotType::All])).assert_refused(3);
        client.ask(&snapshot(&[])).assert_refused(3);
        // Codes that nobody knows.
        for body in [&[9, 1, 4][..], &[2, 1, 7], &[2, 2, 4], &[2]] {
            let sent = client.raw(11, body);
            client.exchange(&sent).assert_refused(3);
        }
    }
}

#[test]
fn s103_a_snapshot_of_everything_says_what_is_set_and_no_secret() {
    let node = Node::start_with(1, |config| {
        config.encryption.key = Some(Secret::new(KEY));
        config.encryption.enabled = true;
    });
    let mut client = node.client();
    let files = files(&client.ask(&snapshot(&[SnapshotType::All])));
    assert_eq!(files.len(), 5, "{:?}", files.keys());
    let config = &files["server_config.txt"];
    assert!(config.contains(&format!("tcp.address = \"{}\"", node.address())), "{config}");
    assert!(config.contains("encryption.key = \"********\""), "{config}");
    for (name, text) in &files {
        assert!(!text.is_empty() || name == "server_logs.txt", "{name} says something");
        for secret in [KEY, "argon2id", "iggy:iggy"] {
            assert!(!text.contains(secret), "{name} holds {secret}");
        }
    }
}

#[test]
fn s104_of_two_snapshots_at_once_one_is_made() {
    let node = Node::start(2);
    let mut clients: Vec<Client> = (0..4).map(|_| node.client()).collect();
    // Small ones may be over before the next arrives: of several large ones at once some meet.
    let mut refused = 0;
    for _ in 0..20 {
        let sent: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let sent = client.frame(&snapshot(&[SnapshotType::All]));
                client.send(&sent);
                sent
            })
            .collect();
        let outcomes: Vec<u32> =
            clients.iter_mut().zip(&sent).map(|(client, sent)| client.reply_to(sent).outcome()).collect();
        assert!(outcomes.iter().all(|outcome| [0, 9000].contains(outcome)), "{outcomes:?}");
        assert!(outcomes.contains(&0), "one of them is made: {outcomes:?}");
        refused += outcomes.iter().filter(|outcome| **outcome == 9000).count();
        if refused > 0 {
            break;
        }
    }
    assert!(refused > 0, "no two ever met");
    // The turn was given back.
    assert_eq!(clients[0].ask(&snapshot(&[SnapshotType::Test])).outcome(), 0);
}
