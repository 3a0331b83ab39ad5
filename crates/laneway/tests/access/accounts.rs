//! Users as tests make them, and what they may do.

use std::net::SocketAddr;

use laneway_wire::options::{OptionMap, Options};
use laneway_wire::permissions::{
    GlobalPermissions, Permissions, StreamFlags, StreamPermissions, TopicPermissions,
};
use laneway_wire::primitive::Secret;
use laneway_wire::reply::{Record, TokenRecord, UserDetails, parse_token, read_list};
use laneway_wire::request::{
    ChangePassword, CreatePersonalAccessToken, CreateUser, DeletePersonalAccessToken, DeleteUser,
    GetPersonalAccessTokens, GetUser, LoginRegisterWithPat, ResetNames, UpdatePermissions, UpdateResource,
    UpdateTarget, UserStatus,
};
use laneway_wire::{Identifier, ProtocolVersion, Reader, StreamId, TopicId};

use crate::client::{Answer, Client, Reply, SECRET, Sent, new_client, register, stranger, version_prefix};
use crate::node::Node;

pub const VERSION: ProtocolVersion = ProtocolVersion::V0_12_2;
/// Password of every user that a test does not give another one.
pub const PASSWORD: &str = "a-common-secret";

/// What a sign-in came to when it was refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The connection was evicted, with this reason.
    Evicted(u8),
    /// Nothing happened; with this code.
    Rejected(u32),
}

pub fn login(address: SocketAddr, username: &str, password: &str) -> Result<Client, Refused> {
    signed_in(address, &register(new_client(), SECRET, VERSION, username, password))
}

pub fn token_login(address: SocketAddr, token: &str) -> Result<Client, Refused> {
    let token = Secret(token.as_bytes());
    let login =
        LoginRegisterWithPat { version: version_prefix(VERSION), bind_secret: SECRET, token, context: &[] };
    let client = new_client();
    signed_in(address, &registration(client, &login))
}

/// A registration goes with operation 1 whatever its form.
fn registration(client: laneway_wire::ClientId, login: &LoginRegisterWithPat<'_>) -> Sent {
    stranger(client, login)
}

fn signed_in(address: SocketAddr, login: &Sent) -> Result<Client, Refused> {
    Client::sign_in_by(address, VERSION, login).map_err(|answer| match answer {
        Answer::Eviction(bytes) => Refused::Evicted(bytes[255]),
        Answer::Reply(reply) => Refused::Rejected(reply.outcome()),
        Answer::Closed => panic!("the connection closed without a word"),
    })
}

/// A node with this user, who may do `permissions`; root's client and the user's.
pub fn with_user(shards: u16, permissions: Option<Permissions>) -> (Node, Client, Client) {
    let node = Node::start(shards);
    let mut root = node.client();
    root.create_user("ann", permissions).payload();
    let ann = login(node.address(), "ann", PASSWORD).expect("a new user signs in");
    (node, root, ann)
}

impl Client {
    #[track_caller]
    pub fn create_user(&mut self, username: &str, permissions: Option<Permissions>) -> Reply {
        self.create_user_with(username, PASSWORD, UserStatus::Active, permissions)
    }

    #[track_caller]
    pub fn create_user_with(
        &mut self,
        username: &str,
        password: &str,
        status: UserStatus,
        permissions: Option<Permissions>,
    ) -> Reply {
        let password = Secret(password.as_bytes());
        self.ask(&CreateUser { username, password, status, permissions, options: Options::EMPTY })
    }

    #[track_caller]
    pub fn delete_user(&mut self, username: &str) -> Reply {
        self.ask(&DeleteUser { user: Identifier::Name(username) })
    }

    #[track_caller]
    pub fn grant(&mut self, username: &str, permissions: Option<Permissions>) -> Reply {
        self.ask(&UpdatePermissions { user: Identifier::Name(username), permissions })
    }

    #[track_caller]
    pub fn change_password(&mut self, username: &str, current: &str, new: &str) -> Reply {
        let [current_password, new_password] = [current, new].map(|text| Secret(text.as_bytes()));
        self.ask(&ChangePassword { user: Identifier::Name(username), current_password, new_password })
    }

    #[track_caller]
    pub fn update_user(&mut self, user: Identifier<'_>, options: &[(&str, &str)]) -> Reply {
        let map = options.iter().fold(OptionMap::new(), |map, (key, value)| map.with(key, *value));
        let block = map.encode().expect("a block of options");
        let set = Options::parse(&block).expect("a block of options");
        self.ask(&UpdateResource { target: UpdateTarget::User { user }, reset: ResetNames::NONE, set })
    }

    /// The user as a read shows it: number, active, name, permissions. None when it is missing.
    #[track_caller]
    pub fn user(&mut self, user: Identifier<'_>) -> Option<(u32, bool, String, Option<Permissions>)> {
        let body = self.must(&GetUser { user });
        let mut reader = Reader::new(&body);
        (!body.is_empty()).then(|| {
            let details = UserDetails::read(&mut reader).expect("a user");
            reader.finish().expect("nothing behind it");
            let header = details.header;
            let active = header.status == UserStatus::Active;
            (header.id.0, active, header.username.to_owned(), details.permissions)
        })
    }

    #[track_caller]
    pub fn create_token(&mut self, name: &str, expiry_us: u64) -> Reply {
        self.ask(&CreatePersonalAccessToken { name, expiry_us })
    }

    #[track_caller]
    pub fn token(&mut self, name: &str) -> String {
        let reply = self.create_token(name, 0);
        parse_token(reply.payload()).expect("a token").to_owned()
    }

    #[track_caller]
    pub fn delete_token(&mut self, name: &str) -> u32 {
        self.ask(&DeletePersonalAccessToken { name }).outcome()
    }

    /// The caller's tokens: names and when they end, in the order of the answer.
    #[track_caller]
    pub fn tokens(&mut self) -> Vec<(String, u64)> {
        let body = self.must(&GetPersonalAccessTokens {});
        let tokens = read_list::<TokenRecord<'_>>(&body).expect("tokens");
        tokens.iter().map(|token| (token.name.to_owned(), token.expires_at.0)).collect()
    }
}

pub fn global(set: impl FnOnce(&mut GlobalPermissions)) -> Option<Permissions> {
    let mut permissions = Permissions::default();
    set(&mut permissions.global);
    Some(permissions)
}

pub fn on_stream(stream: u32, set: impl FnOnce(&mut StreamFlags)) -> Option<Permissions> {
    let mut grant = StreamPermissions::default();
    set(&mut grant.flags);
    Some(Permissions { streams: [(StreamId(stream), grant)].into(), ..Permissions::default() })
}

pub fn on_topic(stream: u32, topic: u32, set: impl FnOnce(&mut TopicPermissions)) -> Option<Permissions> {
    let mut flags = TopicPermissions::default();
    set(&mut flags);
    let grant = StreamPermissions { topics: [(TopicId(topic), flags)].into(), ..Default::default() };
    Some(Permissions { streams: [(StreamId(stream), grant)].into(), ..Permissions::default() })
}
