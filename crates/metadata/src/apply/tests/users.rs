//! Rules of users, grants, passwords and tokens as requests see them.

use laneway_wire::permissions as wire;
use laneway_wire::primitive::Secret;
use laneway_wire::request::{
    CreatePersonalAccessToken, CreateUser, ResetNames, UpdatePermissions, UserStatus as WireUserStatus,
};

use super::*;
use crate::command::{ExpireTokens, PasswordChange};
use crate::tokens::TokenHash;

/// Another signed-in user than root.
struct Guest {
    client: ClientId,
    session: SessionEpoch,
    user: UserId,
    requests: u64,
}

fn user<'a>(name: &'a str, permissions: Option<wire::Permissions>) -> CreateUser<'a> {
    CreateUser {
        username: name,
        password: Secret(b"secret"),
        status: WireUserStatus::Active,
        permissions,
        options: Options::EMPTY,
    }
}

fn hash(text: &str) -> PasswordHash {
    PasswordHash::new(text)
}

impl Node {
    fn user(&mut self, name: &str) -> u32 {
        self.user_with(&user(name, None))
    }

    fn user_with(&mut self, user: &CreateUser<'_>) -> u32 {
        self.status(|planner| planner.create_user(user, Some(hash("$first"))))
    }

    fn sign_in(
        &mut self,
        name: &str,
        client: u128,
        token: Option<TokenHash>,
    ) -> Result<Guest, RegisterRefusal> {
        let user = self.metadata.users().find(name).expect("the user exists").clone();
        let register = Register {
            client: ClientId(client),
            user: user.id,
            user_created_at: user.created_at,
            verifier: Verifier([9; 32]),
            token,
        };
        match self.apply(&Command::Register(register)).answer {
            Answer::Registered { client, session, user } => Ok(Guest { client, session, user, requests: 0 }),
            Answer::NotRegistered(refusal) => Err(refusal),
            other => panic!("a registration is not answered with {other:?}"),
        }
    }

    fn as_guest(&mut self, guest: &mut Guest, mutation: Mutation) -> Outcome {
        guest.requests += 1;
        let identity = RequestIdentity {
            client: guest.client,
            session: guest.session,
            request: RequestNumber(guest.requests),
            request_checksum: 5,
            user: guest.user,
            operation: 141,
        };
        self.apply(&Command::Request(identity, mutation))
    }

    fn guest_status(&mut self, guest: &mut Guest, mutation: Mutation) -> u32 {
        committed(&self.as_guest(guest, mutation)).status.number()
    }

    fn grant(&mut self, name: &str, permissions: Option<wire::Permissions>) -> u32 {
        let user = Identifier::Name(name);
        self.status(|planner| planner.update_permissions(&UpdatePermissions { user, permissions }))
    }

    fn token(&mut self, name: &str, number: u16, expiry_us: u64) -> u32 {
        let mut hash = [0; 32];
        hash[..2].copy_from_slice(&number.to_le_bytes());
        self.status(|planner| {
            planner.create_token(&CreatePersonalAccessToken { name, expiry_us }, TokenHash(hash))
        })
    }
}

/// A grant of one flag on the whole server.
fn global(set: impl FnOnce(&mut wire::GlobalPermissions)) -> Option<wire::Permissions> {
    let mut permissions = wire::Permissions::default();
    set(&mut permissions.global);
    Some(permissions)
}

/// A grant on one stream, and on one topic of it.
fn grant_on(stream: u32, topic: Option<u32>) -> Option<wire::Permissions> {
    let topics = topic
        .iter()
        .map(|topic| (TopicId(*topic), wire::TopicPermissions { poll_messages: true, ..Default::default() }));
    let grant = wire::StreamPermissions {
        flags: wire::StreamFlags { read_stream: true, ..Default::default() },
        topics: topics.collect(),
    };
    Some(wire::Permissions { streams: [(StreamId(stream), grant)].into(), ..Default::default() })
}

/// S1, S52.
#[test]
fn users_get_the_lowest_free_number_and_bounded_unique_names() {
    let mut node = Node::new();
    assert_eq!([node.user("ann"), node.user("bob"), node.user("ann"), node.user("root")], [0, 0, 46, 46]);
    assert_eq!([node.user("ab"), node.user(&"n".repeat(51)), node.user(&"n".repeat(50))], [43, 43, 0]);
    let short = CreateUser { password: Secret(b"pw"), ..user("carl", None) };
    let long = CreateUser { password: Secret(&[b'p'; 101]), ..user("carl", None) };
    let no_text = CreateUser { password: Secret(&[0xff; 8]), ..user("carl", None) };
    assert_eq!([node.user_with(&short), node.user_with(&long), node.user_with(&no_text)], [44; 3]);
    let no_status = CreateUser { status: WireUserStatus::Unknown(3), ..user("carl", None) };
    assert_eq!(node.user_with(&no_status), 45);
    assert_eq!(node.status(|planner| Ok(planner.delete_user("ann"))), 0);
    assert_eq!(node.user("dora"), 0);
    assert_eq!(node.metadata.users().find("dora").map(|user| user.id), Ok(UserId(1)));
}

/// S50: root stays what it is, except for its password.
#[test]
fn root_is_neither_deleted_nor_changed() {
    let mut node = Node::new();
    assert_eq!(node.status(|planner| Ok(planner.delete_user(0))), 48);
    assert_eq!(node.grant("root", None), 49);
    let rename = options(&[("username", "other")]).encode().unwrap();
    let set = Options::parse(&rename).unwrap();
    assert_eq!(
        node.status(|planner| planner.update_user(Identifier::Numeric(0), ResetNames::NONE, set)),
        4108
    );
}

/// S56, S57: only the current password opens the way to a new one, for administrators, too.
#[test]
fn password_changes_need_the_current_one() {
    let mut node = Node::new();
    node.user("ann");
    let mut ann = node.sign_in("ann", 1, None).unwrap();
    let change = |verified: &str, new: &str| Mutation::ChangePassword {
        user: Ref::Name("ann".into()),
        change: Some(PasswordChange { verified: hash(verified), new: hash(new) }),
    };
    let wrong = Mutation::ChangePassword { user: Ref::Name("ann".into()), change: None };
    assert_eq!(node.guest_status(&mut ann, wrong.clone()), 42);
    assert_eq!(node.guest_status(&mut ann, change("$first", "$second")), 0);
    // Checked against a hash that was replaced meanwhile.
    assert_eq!(node.guest_status(&mut ann, change("$first", "$third")), 42);
    assert_eq!(committed(&node.request(wrong)).status.number(), 42);
    assert_eq!(committed(&node.request(change("$second", "$third"))).status.number(), 0);
    assert_eq!(node.metadata.users().find("ann").unwrap().password_hash, hash("$third"));
    let of_root = Mutation::ChangePassword { user: Ref::Id(0), change: None };
    assert_eq!(node.guest_status(&mut ann, of_root), 41);
    let of_nobody = Mutation::ChangePassword { user: Ref::Id(9), change: None };
    assert_eq!(node.guest_status(&mut ann, of_nobody), 20);
    assert!(node.metadata.sessions().live(ann.client, ann.session).is_some(), "sessions stay");
}

/// S58, S59.
#[test]
fn deactivation_and_deletion_end_every_session_of_the_user() {
    let mut node = Node::new();
    for name in ["ann", "bob"] {
        node.user(name);
    }
    let [first, second] = [1, 2].map(|client| node.sign_in("ann", client, None).unwrap());
    let bob = node.sign_in("bob", 3, None).unwrap();
    let inactive = options(&[("status", "inactive")]).encode().unwrap();
    let set = Options::parse(&inactive).unwrap();
    let mutation =
        node.plan(|planner| planner.update_user(Identifier::Name("ann"), ResetNames::NONE, set)).unwrap();
    let ended: Vec<ClientId> = node.request(mutation).effects.iter().filter_map(revoked).collect();
    assert_eq!(ended, [first.client, second.client]);
    assert!(node.metadata.sessions().live(bob.client, bob.session).is_some());
    assert_eq!(node.sign_in("ann", 4, None).err(), Some(RegisterRefusal::UserGone));
    let delete = node.plan(|planner| planner.delete_user("bob"));
    let ended: Vec<ClientId> = node.request(delete).effects.iter().filter_map(revoked).collect();
    assert_eq!(ended, [bob.client]);
}

fn revoked(effect: &Effect) -> Option<ClientId> {
    match effect {
        Effect::SessionEnded { client, reason: EndReason::Revoked, .. } => Some(*client),
        _ => None,
    }
}

#[test]
fn renames_keep_the_user_and_free_the_old_name() {
    let mut node = Node::new();
    node.user("ann");
    node.user("bob");
    let mut rename = |name: &str| {
        let block = options(&[("username", name)]).encode().unwrap();
        let set = Options::parse(&block).unwrap();
        node.status(|planner| planner.update_user(Identifier::Numeric(1), ResetNames::NONE, set))
    };
    assert_eq!([rename("ann"), rename("bob"), rename("xy"), rename("anna")], [0, 46, 43, 0]);
    let users = node.metadata.users();
    assert_eq!(users.find("anna").map(|user| user.id), Ok(UserId(1)));
    assert_eq!(users.find("ann").map(|user| user.id), Err(crate::Missing::User));
}

/// S69, S68.
#[test]
fn grants_name_what_exists_and_go_with_it() {
    let mut node = Node::new();
    node.user("ann");
    assert_eq!([node.grant("ann", grant_on(0, None)), node.grant("nobody", None)], [1009, 20]);
    node.stream("a");
    node.plain_topic(0, 1, "t");
    assert_eq!([node.grant("ann", grant_on(0, Some(1))), node.grant("ann", grant_on(0, Some(0)))], [2010, 0]);
    assert_eq!(node.user_with(&user("bob", grant_on(3, None))), 1009);
    assert_eq!(node.metadata.permit(UserId(1), Rule::ReadStream(StreamId(0))), Ok(()));
    assert_eq!([node.delete_stream("a"), node.stream("b")], [0, 0]);
    assert_eq!(node.metadata.stream("b").map(|stream| stream.id), Ok(StreamId(0)));
    assert_eq!(node.metadata.permit(UserId(1), Rule::ReadStream(StreamId(0))), Err(Status::Unauthorized));
}

/// S66, and the same for users: what is missing is said first, then what is not allowed.
#[test]
fn missing_comes_before_not_allowed() {
    let mut node = Node::new();
    node.user("ann");
    node.stream("a");
    let mut ann = node.sign_in("ann", 1, None).unwrap();
    let stream = |name: &str| Mutation::DeleteStream { stream: Ref::Name(name.into()) };
    assert_eq!(
        [node.guest_status(&mut ann, stream("none")), node.guest_status(&mut ann, stream("a"))],
        [1009, 41]
    );
    let delete = |user| Mutation::DeleteUser { user: Ref::Id(user) };
    assert_eq!([node.guest_status(&mut ann, delete(7)), node.guest_status(&mut ann, delete(0))], [20, 41]);
}

/// A right that came after the password was not hashed does not make a user without a password.
#[test]
fn a_user_whose_password_was_not_hashed_is_not_made() {
    let mut node = Node::new();
    node.user_with(&user("ann", global(|flags| flags.manage_users = true)));
    let mut ann = node.sign_in("ann", 1, None).unwrap();
    let planned = node.plan(|planner| planner.create_user(&user("bob", None), None)).unwrap();
    assert_eq!(node.guest_status(&mut ann, planned), 41);
}

/// S71, S72, S73.
#[test]
fn tokens_belong_to_their_user_and_are_counted() {
    let mut node = Node::new();
    node.settings.tokens_max = 3;
    assert_eq!([node.token("zz", 0, 0), node.token(&"n".repeat(31), 0, 0)], [50, 50]);
    assert_eq!([node.token("two", 2, 0), node.token("one", 1, 5), node.token("two", 3, 0)], [0, 0, 51]);
    assert_eq!([node.token("late", 4, u64::MAX - 1), node.token("max", 5, u64::MAX)], [56, 0]);
    // The limit comes before the duplicate, as the order of checks says.
    assert_eq!([node.token("four", 6, 0), node.token("two", 7, 0)], [52, 52]);
    let root = node.metadata.root().unwrap();
    let names: Vec<_> = root.tokens.values().map(|token| (token.name.as_ref(), token.expires_at)).collect();
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["max", "one", "two"]);
    assert_eq!(names.iter().filter(|(_, expires_at)| expires_at.is_none()).count(), 2);

    node.user("ann");
    let mut ann = node.sign_in("ann", 1, None).unwrap();
    let delete = || Mutation::DeleteToken { name: "one".into() };
    assert_eq!(node.guest_status(&mut ann, delete()), 20);
    assert_eq!(committed(&node.request(delete())).status.number(), 0);
    assert_eq!(committed(&node.request(delete())).status.number(), 20);
}

/// Cluster, section 1.1: the secret is shown once, so a repeated request hears that the token exists.
#[test]
fn a_repeated_request_for_a_token_does_not_show_it_again() {
    let mut node = Node::new();
    let request = CreatePersonalAccessToken { name: "token", expiry_us: 0 };
    let planned = node.plan(|planner| planner.create_token(&request, TokenHash([1; 32]))).unwrap();
    let first = node.request(planned);
    let mut shown = bytes::BytesMut::new();
    committed(&first).put_token_body(&mut shown, "secret");
    assert_eq!(shown.as_ref(), b"\0\0\0\0\x06secret");
    let mut repeated = bytes::BytesMut::new();
    let version = laneway_wire::ProtocolVersion::V0_12_2;
    committed(&first).put_body(&mut repeated, version, crate::views::Replicas::default());
    assert_eq!(repeated.as_ref(), laneway_wire::reply::rejection(Status::PersonalAccessTokenAlreadyExists));
}

/// S74, S75.
#[test]
fn tokens_end_when_their_time_is_over() {
    let mut node = Node::new();
    node.user("ann");
    let mut ann = node.sign_in("ann", 1, None).unwrap();
    let request = CreatePersonalAccessToken { name: "token", expiry_us: 2_500 };
    let hash = TokenHash([1; 32]);
    let planned = node.plan(|planner| planner.create_token(&request, hash)).unwrap();
    assert_eq!(node.guest_status(&mut ann, planned), 0);
    let ends = node.metadata.users().next_token_expiry().unwrap();
    assert_eq!(ends, Micros(node.metadata.applied_at().0 + 2_500));
    assert!(node.sign_in("ann", 2, Some(hash)).is_ok());
    let due = node.metadata.users().expired_tokens(ends, 8);
    assert_eq!(due.len(), 1);
    let expire = Command::ExpireTokens(ExpireTokens { tokens: due });
    // Two ops later by the clock of the log, not yet over; then it is.
    node.apply(&expire);
    assert!(node.metadata.users().next_token_expiry().is_some());
    let refused = node.sign_in("ann", 3, Some(hash)).err();
    assert_eq!(refused, Some(RegisterRefusal::TokenGone));
    node.apply(&expire);
    assert_eq!(node.metadata.users().next_token_expiry(), None);
    assert!(node.metadata.users().by_token(&hash).is_none());
}

/// S59, S76: a token signs in for its own user only, and not after it is deleted.
#[test]
fn a_token_that_is_gone_signs_nobody_in() {
    let mut node = Node::new();
    node.user("ann");
    assert_eq!(node.token("token", 1, 0), 0);
    let (_, token) = node.metadata.users().by_token(&TokenHash(first_hash())).unwrap();
    let hash = token.hash;
    let gone = Some(RegisterRefusal::TokenGone);
    assert_eq!(node.sign_in("ann", 1, Some(hash)).err(), gone);
    assert!(node.sign_in("root", 2, Some(hash)).is_ok());
    node.request(Mutation::DeleteToken { name: "token".into() });
    assert_eq!(node.sign_in("root", 3, Some(hash)).err(), gone);
}

fn first_hash() -> [u8; 32] {
    let mut hash = [0; 32];
    hash[0] = 1;
    hash
}
