//! Users and what becomes of them. Source: resources, sections 11.1 and 11.2.

use laneway_wire::permissions::Permissions;
use laneway_wire::reply::{Record, UserDetails, UserHeader, read_list};
use laneway_wire::request::{GetMe, GetUsers, UserStatus};
use laneway_wire::{Identifier, Reader};

use crate::accounts::{PASSWORD, Refused, global, login, on_stream, on_topic, with_user};
use crate::client::{Client, u32_at};
use crate::node::{Node, SHARDS};

const WRONG: Refused = Refused::Evicted(9);

/// S1: root is 0, the next user is 1, and a number that is free is used again. S52: bounds and duplicates.
#[test]
fn users_are_created_listed_and_deleted() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut root = node.client();
        let reply = root.create_user("ann", global(|flags| flags.read_users = true));
        let payload = reply.payload();
        let mut reader = Reader::new(payload);
        let created = UserDetails::read(&mut reader).expect("a user");
        reader.finish().expect("nothing behind it");
        assert_eq!((created.header.id.0, created.header.username), (1, "ann"));
        assert_eq!(created.permissions, global(|flags| flags.read_users = true));
        assert_eq!(root.create_user("bob", None).outcome(), 0);

        let refused =
            [("ann", PASSWORD, 46), ("ab", PASSWORD, 43), ("carl", "pw", 44), ("iggy", PASSWORD, 46)];
        for (username, password, code) in refused {
            let reply = root.create_user_with(username, password, UserStatus::Active, None);
            assert_eq!(reply.outcome(), code, "{username} {password}");
        }
        assert_eq!(root.create_user_with(&"n".repeat(51), PASSWORD, UserStatus::Active, None).outcome(), 43);
        assert_eq!(root.create_user_with("carl", &"p".repeat(101), UserStatus::Active, None).outcome(), 44);
        assert_eq!(root.create_user_with("carl", PASSWORD, UserStatus::Unknown(3), None).outcome(), 45);
        assert_eq!(names(&mut root), [(0, "iggy".into()), (1, "ann".into()), (2, "bob".into())]);

        assert_eq!(root.delete_user("ann").outcome(), 0);
        root.delete_user("ann").assert_committed_refusal(20);
        assert_eq!(root.user(Identifier::Name("ann")), None, "S13");
        assert_eq!(root.create_user("dora", None).outcome(), 0);
        assert_eq!(names(&mut root), [(0, "iggy".into()), (1, "dora".into()), (2, "bob".into())]);
    }
}

fn names(client: &mut Client) -> Vec<(u32, String)> {
    let body = client.must(&GetUsers {});
    let users = read_list::<UserHeader<'_>>(&body).expect("users");
    users.iter().map(|user| (user.id.0, user.username.to_owned())).collect()
}

/// The answer of a repeated create is the first one, byte for byte, also after a restart; no second user appears.
#[test]
fn a_repeated_create_has_the_original_answer() {
    let mut node = Node::start(2);
    let mut root = node.client();
    let request = laneway_wire::request::CreateUser {
        username: "ann",
        password: laneway_wire::primitive::Secret(PASSWORD.as_bytes()),
        status: UserStatus::Active,
        permissions: Some(Permissions::root()),
        options: laneway_wire::options::Options::EMPTY,
    };
    let sent = root.frame(&request);
    let first = root.exchange(&sent);
    assert_eq!(first.outcome(), 0);
    assert_eq!(root.exchange(&sent), first);
    node.restart();
    let mut again = root.another();
    assert_eq!(again.exchange(&sent), first);
    assert_eq!(names(&mut again).len(), 2);
}

/// S50.
#[test]
fn root_is_neither_deleted_nor_restricted_nor_renamed() {
    let node = Node::start(2);
    let mut root = node.client();
    root.delete_user("iggy").assert_committed_refusal(48);
    root.grant("iggy", None).assert_committed_refusal(49);
    root.update_user(Identifier::Numeric(0), &[("status", "inactive")]).assert_committed_refusal(4108);
    root.update_user(Identifier::Name("iggy"), &[("username", "boss")]).assert_committed_refusal(4108);
    assert_eq!(root.user(Identifier::Numeric(0)), Some((0, true, "iggy".into(), Some(Permissions::root()))));
}

/// S51, S56, S57: who changes a password, and what it takes.
#[test]
fn passwords_change_with_the_current_one_only() {
    for shards in SHARDS {
        let (node, mut root, mut ann) = with_user(shards, None);
        let address = node.address();
        ann.change_password("ann", "wrong", "changed").assert_committed_refusal(42);
        assert_eq!(ann.change_password("ann", PASSWORD, "pw").outcome(), 44);
        assert_eq!(ann.change_password("ann", PASSWORD, "changed").outcome(), 0);
        assert_eq!(login(address, "ann", PASSWORD).err(), Some(WRONG));
        assert!(login(address, "ann", "changed").is_ok());
        ann.assert_no_right_is_needed();

        root.create_user("bob", global(|flags| flags.manage_users = true)).payload();
        let mut bob = login(address, "bob", PASSWORD).expect("bob signs in");
        ann.change_password("bob", PASSWORD, "changed").assert_committed_refusal(41);
        ann.change_password("nobody", PASSWORD, "changed").assert_committed_refusal(20);
        bob.change_password("ann", PASSWORD, "again").assert_committed_refusal(42);
        assert_eq!(bob.change_password("ann", "changed", "again").outcome(), 0);
        assert!(login(address, "ann", "again").is_ok());

        assert_eq!(root.change_password("iggy", "iggy", "bigger").outcome(), 0);
        assert_eq!(login(address, "iggy", "iggy").err(), Some(WRONG));
        assert!(login(address, "iggy", "bigger").is_ok());
    }
}

impl Client {
    /// The session lives.
    #[track_caller]
    fn assert_no_right_is_needed(&mut self) {
        self.ask(&GetMe {}).payload();
    }
}

/// S58, and deletion: sessions end, new sign-ins fail, and activation opens the way again.
#[test]
fn deactivation_and_deletion_end_sessions() {
    for shards in SHARDS {
        let (node, mut root, mut ann) = with_user(shards, Some(Permissions::root()));
        let address = node.address();
        let mut second = ann.another();
        assert_eq!(root.update_user(Identifier::Name("ann"), &[("status", "inactive")]).outcome(), 0);
        assert_eq!([ann.ask(&GetMe {}).status(), second.ask(&GetMe {}).status()], [30, 30]);
        assert_eq!(ann.link.ask(&ann.bind_frame(|_| {})).reply().status(), 40, "nobody binds to it");
        let write = second.frame(&laneway_wire::request::CreateStream {
            name: "s",
            options: laneway_wire::options::Options::EMPTY,
        });
        second.link.ask(&write).assert_eviction(1, second.session.client);
        assert_eq!(login(address, "ann", PASSWORD).err(), Some(WRONG));
        assert_eq!(root.user(Identifier::Name("ann")).map(|(_, active, ..)| active), Some(false));

        assert_eq!(root.update_user(Identifier::Name("ann"), &[("status", "active")]).outcome(), 0);
        let mut ann = login(address, "ann", PASSWORD).expect("an active user signs in");
        assert_eq!(root.delete_user("ann").outcome(), 0);
        assert_eq!(ann.ask(&GetMe {}).status(), 30);
        assert_eq!(login(address, "ann", PASSWORD).err(), Some(WRONG));
        // Somebody else gets the number, and nothing of the old one.
        root.create_user("bob", None).payload();
        assert_eq!(root.user(Identifier::Name("bob")).map(|(id, ..)| id), Some(1));
        assert_eq!(ann.ask(&GetMe {}).status(), 30);
    }
}

/// A new name and a new status come together, and the user may sign in under the new name only.
#[test]
fn renamed_users_sign_in_under_the_new_name() {
    let (node, mut root, mut ann) = with_user(2, None);
    root.create_user("bob", None).payload();
    let user = Identifier::Numeric(1);
    assert_eq!(root.update_user(user, &[("username", "bob")]).outcome(), 46);
    assert_eq!(root.update_user(user, &[("username", "xy")]).outcome(), 43);
    assert_eq!(root.update_user(user, &[("status", "asleep")]).outcome(), 45);
    assert_eq!(root.update_user(user, &[("username", "anna"), ("status", "active")]).outcome(), 0);
    ann.ask(&GetMe {}).payload();
    assert_eq!(login(node.address(), "ann", PASSWORD).err(), Some(WRONG));
    assert!(login(node.address(), "anna", PASSWORD).is_ok());
}

/// S67: oneself without a right, others only with one, and what is missing is missing for everybody.
#[test]
fn users_read_themselves() {
    let (_node, mut root, mut ann) = with_user(2, None);
    let own = ann.user(Identifier::Name("ann"));
    assert_eq!(own, Some((1, true, "ann".into(), None)));
    assert_eq!(ann.user(Identifier::Numeric(1)), own);
    assert_eq!(ann.user(Identifier::Name("nobody")), None);
    let of_root = laneway_wire::request::GetUser { user: Identifier::Numeric(0) };
    ann.ask(&of_root).assert_refused(41);
    root.grant("ann", global(|flags| flags.read_users = true)).payload();
    assert_eq!(ann.user(Identifier::Numeric(0)).map(|(id, ..)| id), Some(0));
}

/// S69, S68: grants name what exists and go with it; the next holder of the number is not reached through them.
#[test]
fn grants_go_with_their_stream_and_topic() {
    for shards in SHARDS {
        let (_node, mut root, mut ann) = with_user(shards, None);
        root.grant("ann", on_stream(0, |flags| flags.read_stream = true)).assert_committed_refusal(1009);
        root.create_stream("first");
        root.grant("ann", on_topic(0, 0, |flags| flags.read_topic = true)).assert_committed_refusal(2010);
        root.create_topic("first", "topic", 1);
        let mut grant = on_stream(0, |flags| flags.read_stream = true).unwrap();
        let topic = on_topic(0, 0, |flags| flags.read_topic = true).unwrap();
        grant.streams.entry(laneway_wire::StreamId(0)).or_default().topics =
            topic.streams[&laneway_wire::StreamId(0)].topics.clone();
        root.grant("ann", Some(grant.clone())).payload();
        assert_eq!(root.user(Identifier::Name("ann")).and_then(|(.., permissions)| permissions), Some(grant));
        assert_eq!(get_stream(&mut ann, 0), 0);

        root.must(&laneway_wire::request::DeleteTopic {
            stream: Identifier::Numeric(0),
            topic: Identifier::Numeric(0),
        });
        let left = on_stream(0, |flags| flags.read_stream = true);
        assert_eq!(root.user(Identifier::Name("ann")).and_then(|(.., permissions)| permissions), left);
        root.must(&laneway_wire::request::DeleteStream { stream: Identifier::Numeric(0) });
        let left = root.user(Identifier::Name("ann")).and_then(|(.., permissions)| permissions);
        assert_eq!(left, Some(Permissions::default()));
        root.create_stream("second");
        assert_eq!(get_stream(&mut ann, 0), 41);
    }
}

fn get_stream(client: &mut Client, stream: u32) -> u32 {
    client.ask(&laneway_wire::request::GetStream { stream: Identifier::Numeric(stream) }).outcome()
}

/// S66: what is missing is said before what is not allowed.
#[test]
fn missing_comes_before_not_allowed() {
    let (_node, mut root, mut ann) = with_user(2, None);
    root.create_stream("there");
    let delete = |name| laneway_wire::request::DeleteStream { stream: Identifier::Name(name) };
    ann.ask(&delete("none")).assert_committed_refusal(1009);
    ann.ask(&delete("there")).assert_committed_refusal(41);
    ann.delete_user("nobody").assert_committed_refusal(20);
    ann.delete_user("iggy").assert_committed_refusal(41);
    assert!(u32_at(&root.must(&GetUsers {}), 0) == 0, "root is still there");
}
