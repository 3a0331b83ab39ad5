//! Kills in the middle of every kind of metadata change. Afterwards the change is there as a whole or not at all, a
//! retry gets the original answer and takes effect once, numbers are what they were, and no secret lies anywhere on
//! disk.
//!
//! 20 kills by default; `LANEWAY_STRESS_CYCLES=200` for a long run.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use laneway_wire::options::{OptionMap, Options};
use laneway_wire::permissions::{Permissions, StreamFlags, StreamPermissions};
use laneway_wire::primitive::Secret;
use laneway_wire::reply::{ChangesPage, Record, StreamHeader, parse_token};
use laneway_wire::request::{
    ChangePageToken, ChangePassword, ChangeStart, CreatePartitions, CreatePersonalAccessToken, CreateStream,
    CreateTopic, CreateUser, DeletePartitions, DeletePersonalAccessToken, DeleteStream, DeleteTopic,
    DeleteUser, GetMetadataChanges, ResetNames, UpdatePermissions, UpdateResource, UpdateTarget, UserStatus,
};
use laneway_wire::{Identifier, ProtocolVersion, Reader};

use crate::client::{Answer, Client, Link, SECRET, Sent, new_client, register};
use crate::harness::{Broker, Settings};
use crate::serve::cycles;

const VERSION: ProtocolVersion = ProtocolVersion::V0_12_2;
/// Groups of resources, without sessions and members: a new connection changes nothing of them.
const RESOURCES: &[u8] = &[1, 2, 3, 4, 6, 7];
/// 32 bytes in base64, as an operator sets it.
const SERVER_KEY: &str = "bGFuZXdheS1raWxsLXRlc3Qtc2VydmVyLWtleS0zMi4=";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    CreateStream,
    CreateSealedStream,
    UpdateStream,
    DeleteStream,
    CreateTopic,
    UpdateTopic,
    DeleteTopic,
    CreatePartitions,
    DeletePartitions,
    CreateUser,
    RenameUser,
    DeactivateUser,
    ChangePassword,
    UpdatePermissions,
    DeleteUser,
    CreateToken,
    DeleteToken,
    Register,
}

const KINDS: [Kind; 18] = {
    use Kind::*;
    [
        CreateStream,
        CreateUser,
        CreateSealedStream,
        ChangePassword,
        DeleteStream,
        CreateToken,
        UpdateStream,
        DeleteUser,
        CreateTopic,
        RenameUser,
        UpdateTopic,
        DeactivateUser,
        DeleteTopic,
        UpdatePermissions,
        CreatePartitions,
        DeleteToken,
        DeletePartitions,
        Register,
    ]
};

impl Kind {
    /// Longest time from the request to the kill, in microseconds: a bit more than the change takes.
    fn patience_us(self) -> u64 {
        match self {
            Kind::CreateUser | Kind::ChangePassword | Kind::Register => 150_000,
            _ => 6_000,
        }
    }
}

fn name(text: &str) -> Identifier<'_> {
    Identifier::Name(text)
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// One change of a resource that is named after its cycle, and what it needs to be there.
struct Change {
    kind: Kind,
    stream: String,
    user: String,
    password: String,
    new_password: String,
    /// Key of the stream, if it has one.
    key: [u8; 32],
}

impl Change {
    fn new(kind: Kind, cycle: u64, seed: &mut u64) -> Self {
        let mut key = [0; 32];
        key.chunks_mut(8).for_each(|part| part.copy_from_slice(&random(seed).to_le_bytes()));
        Self {
            kind,
            stream: format!("stream-{cycle}"),
            user: format!("user-{cycle}"),
            password: format!("first-{:016x}", random(seed)),
            new_password: format!("second-{:016x}", random(seed)),
            key,
        }
    }

    fn user_frame(&self, client: &Client) -> Sent {
        client.frame(&CreateUser {
            username: &self.user,
            password: Secret(self.password.as_bytes()),
            status: UserStatus::Active,
            permissions: None,
            options: Options::EMPTY,
        })
    }

    /// Makes what the change is about. Gives the tokens that were shown.
    fn prepare(&self, client: &mut Client) -> Option<String> {
        let stream = name(&self.stream);
        match self.kind {
            Kind::CreateStream
            | Kind::CreateSealedStream
            | Kind::CreateUser
            | Kind::CreateToken
            | Kind::Register => {}
            Kind::UpdateStream => drop(client.create_stream(&self.stream)),
            Kind::DeleteStream
            | Kind::CreateTopic
            | Kind::UpdateTopic
            | Kind::DeleteTopic
            | Kind::CreatePartitions
            | Kind::DeletePartitions
            | Kind::UpdatePermissions => {
                client.create_stream(&self.stream);
                client.create_topic(&self.stream, "topic", 3);
            }
            Kind::RenameUser | Kind::DeactivateUser | Kind::ChangePassword | Kind::DeleteUser => {}
            Kind::DeleteToken => {
                let body = client.must(&CreatePersonalAccessToken { name: &self.user, expiry_us: 0 });
                return Some(parse_token(&body).expect("a token").to_owned());
            }
        }
        if matches!(
            self.kind,
            Kind::RenameUser
                | Kind::DeactivateUser
                | Kind::ChangePassword
                | Kind::DeleteUser
                | Kind::UpdatePermissions
        ) {
            let frame = self.user_frame(client);
            client.exchange(&frame).payload();
        }
        if self.kind == Kind::DeleteStream {
            // A grant goes with the stream: one change of two resources.
            let frame = self.user_frame(client);
            client.exchange(&frame).payload();
            let body = client.must(&laneway_wire::request::GetStream { stream });
            let id = StreamHeader::read(&mut Reader::new(&body)).expect("a stream").id;
            let flags = StreamFlags { read_stream: true, ..StreamFlags::default() };
            let mut permissions = Permissions::default();
            permissions.streams.insert(id, StreamPermissions { flags, topics: Default::default() });
            client.must(&UpdatePermissions { user: name(&self.user), permissions: Some(permissions) });
        }
        None
    }

    fn frame(&self, client: &Client) -> Sent {
        let (stream, topic, user) = (name(&self.stream), name("topic"), name(&self.user));
        let update = |target, set: &OptionMap| {
            let block = set.encode().expect("a block");
            let set = Options::parse(&block).expect("a block");
            client.frame(&UpdateResource { target, reset: ResetNames::NONE, set })
        };
        let renamed = format!("{}-renamed", self.stream);
        match self.kind {
            Kind::CreateStream => client.frame(&CreateStream { name: &self.stream, options: Options::EMPTY }),
            Kind::CreateSealedStream => {
                let block =
                    OptionMap::new().with("encryption_key", self.key.as_slice()).encode().expect("a block");
                let options = Options::parse(&block).expect("a block");
                client.frame(&CreateStream { name: &self.stream, options })
            }
            Kind::UpdateStream => {
                update(UpdateTarget::Stream { stream }, &OptionMap::new().with("name", renamed.as_str()))
            }
            Kind::DeleteStream => client.frame(&DeleteStream { stream }),
            Kind::CreateTopic => client.frame(&CreateTopic {
                stream,
                partitions_count: 4,
                name: "another",
                options: Options::EMPTY,
            }),
            Kind::UpdateTopic => update(
                UpdateTarget::Topic { stream, topic },
                &OptionMap::new()
                    .with("name", "renamed")
                    .with("message_expiry", "5 s")
                    .with("max_topic_size", "2 GiB"),
            ),
            Kind::DeleteTopic => client.frame(&DeleteTopic { stream, topic }),
            Kind::CreatePartitions => client.frame(&CreatePartitions { stream, topic, partitions_count: 5 }),
            Kind::DeletePartitions => client.frame(&DeletePartitions { stream, topic, partitions_count: 2 }),
            Kind::CreateUser => self.user_frame(client),
            Kind::RenameUser => {
                let renamed = format!("{}-renamed", self.user);
                update(UpdateTarget::User { user }, &OptionMap::new().with("username", renamed.as_str()))
            }
            Kind::DeactivateUser => {
                update(UpdateTarget::User { user }, &OptionMap::new().with("status", "inactive"))
            }
            Kind::ChangePassword => client.frame(&ChangePassword {
                user,
                current_password: Secret(self.password.as_bytes()),
                new_password: Secret(self.new_password.as_bytes()),
            }),
            Kind::UpdatePermissions => {
                let permissions = Some(Permissions::root());
                client.frame(&UpdatePermissions { user, permissions })
            }
            Kind::DeleteUser => client.frame(&DeleteUser { user }),
            Kind::CreateToken => client.frame(&CreatePersonalAccessToken { name: &self.user, expiry_us: 0 }),
            Kind::DeleteToken => client.frame(&DeletePersonalAccessToken { name: &self.user }),
            Kind::Register => register(new_client(), SECRET, VERSION, "iggy", "iggy"),
        }
    }
}

/// Every resource there is, and every change that the log tells of: what a change must have done as a whole.
fn dump(client: &mut Client) -> Vec<u8> {
    let mut all = Vec::new();
    let mut token = None::<Vec<u8>>;
    loop {
        let parsed = token.as_deref().map(|bytes| ChangePageToken::parse(bytes).expect("a token"));
        let body = client.must(&page_from(ChangeStart::Current(parsed)));
        let page = ChangesPage::parse(&body).expect("a page");
        page.items.iter().for_each(|item| all.extend_from_slice(item.body));
        let Some(next) = page.token else { break };
        let mut bytes = bytes::BytesMut::new();
        next.put_prefixed(&mut bytes);
        token = Some(bytes[2..].to_vec());
    }
    let mut start = ChangeStart::Earliest;
    loop {
        let body = client.must(&page_from(start));
        let page = ChangesPage::parse(&body).expect("a page");
        for record in &page.records {
            all.extend_from_slice(&record.op.0.to_le_bytes());
            all.extend_from_slice(&[record.group, record.kind]);
            all.extend_from_slice(record.body);
        }
        if !page.has_more {
            return all;
        }
        start = ChangeStart::After(page.next.expect("a place"));
    }
}

fn page_from(start: ChangeStart<'_>) -> GetMetadataChanges<'_> {
    GetMetadataChanges { start, since: None, until: None, limit: 1000, groups: RESOURCES }
}

fn signs_in(address: SocketAddr, user: &str, password: &str) -> bool {
    let answer = Link::open(address).ask(&register(new_client(), SECRET, VERSION, user, password));
    matches!(answer, Answer::Reply(reply) if reply.outcome() == 0)
}

/// Fails when one of the secrets lies in a file.
fn assert_no_secret(directory: &Path, secrets: &[Vec<u8>]) {
    for entry in fs::read_dir(directory).expect("the data directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            assert_no_secret(&path, secrets);
            continue;
        }
        let bytes = fs::read(&path).unwrap_or_default();
        // Secrets begin in many ways, so look at each place once and compare those that begin there.
        for secret in secrets {
            let (first, len) = (secret[0], secret.len());
            let mut from = 0;
            while let Some(at) = bytes[from..].iter().position(|byte| *byte == first).map(|at| from + at) {
                let found = bytes.get(at..at + len) == Some(secret);
                assert!(!found, "a secret of {len} bytes in {}", path.display());
                from = at + 1;
            }
        }
    }
}

#[test]
fn kills_in_every_kind_of_change_leave_it_whole_or_absent() {
    let mut settings = Settings::new(env!("CARGO_BIN_EXE_laneway"));
    settings.environment = [
        ("LANEWAY_ENCRYPTION_KEY", SERVER_KEY),
        // Some kills meet a checkpoint of the metadata lane, too.
        ("LANEWAY_STORAGE_JOURNAL_BYTES_MAX", "4 MiB"),
        ("LANEWAY_METADATA_CHANGE_RECORDS_MAX", "100000"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    let mut broker = Broker::start(settings);
    let mut client = Client::sign_in(broker.address());
    let mut seed = 0x9e37_79b9_7f4a_7c15 ^ (u64::from(std::process::id()) << 20);
    println!("seed {seed}");
    let mut secrets =
        vec![SERVER_KEY.as_bytes().to_vec(), SECRET.0.to_vec(), b"laneway-kill-test-server-key-32.".to_vec()];
    let (mut acknowledged, mut whole, mut absent) = (0, 0, 0);
    let count = cycles(20);
    for cycle in 0..count {
        let kind = KINDS[cycle as usize % KINDS.len()];
        let change = Change::new(kind, cycle, &mut seed);
        secrets.extend(change.prepare(&mut client).map(String::into_bytes));
        for secret in [change.password.as_bytes(), change.new_password.as_bytes(), &change.key] {
            secrets.push(secret.to_vec());
        }
        let before = dump(&mut client);
        let frame = change.frame(&client);
        let mut link = Link::open(broker.address());
        if kind == Kind::Register {
            link.send(&frame);
        } else {
            client.send(&frame);
        }
        sleep(Duration::from_micros(random(&mut seed) % change.kind.patience_us()));
        broker.kill();
        let answering = if kind == Kind::Register { &mut link } else { &mut client.link };
        let first = match answering.read_within(Duration::from_millis(500)) {
            Some(Answer::Reply(reply)) => Some(reply),
            Some(Answer::Closed) | None => None,
            other => panic!("{kind:?}: {other:?}"),
        };
        if let Some(first) = &first {
            assert_eq!(first.outcome(), 0, "{kind:?}");
        }

        broker.restart();
        broker.assert_healthy();
        client = client.another();
        let found = dump(&mut client);
        if kind == Kind::Register {
            let retried = Link::open(broker.address()).ask(&frame).reply();
            assert_eq!(retried.outcome(), 0);
            // The epoch stands in the answer: the same life of the session, if it was told of.
            if let Some(first) = &first {
                assert_eq!(retried.payload(), first.payload());
                acknowledged += 1;
            }
            assert_eq!(found, before);
            continue;
        }
        let mut retried = client.exchange(&frame);
        assert!(retried.is_committed(), "{kind:?}");
        match (kind, found == before) {
            (_, true) => {
                assert_eq!(retried.outcome(), 0, "{kind:?} runs when it did not");
                assert!(first.is_none(), "{kind:?} was acknowledged and is lost");
                absent += 1;
            }
            // The token was shown once, or to nobody.
            (Kind::CreateToken, false) => {
                retried.assert_committed_refusal(51);
                whole += 1;
            }
            (_, false) => {
                assert_eq!(retried.outcome(), 0, "{kind:?} has its answer");
                if let Some(first) = &first {
                    assert_eq!(&retried, first, "{kind:?}: the original answer");
                }
                whole += 1;
            }
        }
        acknowledged += u64::from(first.is_some());
        for reply in first.iter().chain([&retried]) {
            if kind == Kind::CreateToken && reply.outcome() == 0 {
                secrets.push(parse_token(reply.payload()).expect("a token").as_bytes().to_vec());
            }
        }
        let after = dump(&mut client);
        assert_ne!(after, before, "{kind:?} is seen");
        assert!(found == before || found == after, "{kind:?} is whole or absent");
        // A token's answer differs from the second time on; all others are repeated as they are.
        if kind == Kind::CreateToken {
            retried = client.exchange(&frame);
        }
        assert_eq!(client.exchange(&frame), retried, "{kind:?}: repeated");
        assert_eq!(dump(&mut client), after, "{kind:?} takes effect once");
        if kind == Kind::ChangePassword {
            assert!(!signs_in(broker.address(), &change.user, &change.password), "the old password");
            assert!(signs_in(broker.address(), &change.user, &change.new_password), "the new password");
        }
        if kind == Kind::CreateUser {
            assert!(signs_in(broker.address(), &change.user, &change.password));
        }
        if cycle % 20 == 19 {
            assert_no_secret(&broker.data_dir(), &secrets);
        }
    }
    assert!(broker.stop().success());
    assert_no_secret(&broker.data_dir(), &secrets);
    println!(
        "{count} kills: {acknowledged} acknowledged, {whole} whole, {absent} absent; {} secrets",
        secrets.len()
    );
    assert!(count < 100 || (whole > 0 && absent > 0), "the kills met both sides of the commit");
}
