//! What the metadata lane logs: prepared by the primary, so that applying it needs no clock, no randomness and no secret
//! in clear. How it is written: one version byte, then an archive that is checked before it is read.

use std::fmt;

use laneway_encryption::WrapSet;
use laneway_wire::{ClientId, LaneId, Micros, Op, RequestNumber, SessionEpoch, StreamId, UserId};
use rkyv::rancor;
use rkyv::util::AlignedVec;
use rkyv::with::Map;
use rkyv::{Archive, Deserialize, Serialize};

use crate::archive::AsNumber;
use crate::lanes::LANES_PER_CLASS_MAX;
use crate::limits;
use crate::names::Ref;
use crate::options::OptionSet;
use crate::options::set::OptionRecord;
use crate::permissions::PermissionsRecord;
use crate::sessions::{EndReason, Verifier};
use crate::tokens::{TokenHash, TokenId};
use crate::users::{PasswordHash, UserStatus};

/// Version of the encoding below.
const VERSION: u8 = 3;

/// One entry of the metadata lane.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum Command {
    /// First boot: fixes the settings and makes root. Without effect once root exists: the stored root wins.
    CreateRoot(CreateRoot),
    /// Makes a session, after the user was verified.
    Register(Register),
    /// Ends sessions that nobody asked to end. Lives that are over already are skipped.
    EndSessions(EndSessions),
    /// A request of a session.
    Request(RequestIdentity, Mutation),
    /// Removes tokens whose time is over.
    ExpireTokens(ExpireTokens),
    /// The keys of the node changed: streams get other envelopes of the same keys.
    RewrapStreams(Vec<Rewrap>),
}

/// See [`Command::CreateRoot`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct CreateRoot {
    /// Name of root, 3 to 50 bytes.
    pub username: String,
    /// Its password.
    pub password_hash: PasswordHash,
    /// What can never change afterwards.
    pub settings: Settings,
}

/// Settings that the first op fixes for the life of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Settings {
    /// Data lanes per class, 1 to [`LANES_PER_CLASS_MAX`].
    pub lanes_per_class: u32,
    /// Most sessions, 2 to 65536.
    pub sessions_max: u32,
    /// Most records of each class in the change log, 16 to 1048576.
    pub changes_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lanes_per_class: 4,
            sessions_max: limits::SESSIONS_MAX_DEFAULT,
            changes_max: limits::CHANGES_MAX_DEFAULT,
        }
    }
}

/// See [`Command::Register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Register {
    /// The identity that the client chose; never 0.
    #[rkyv(with = AsNumber)]
    pub client: ClientId,
    /// Who signed in.
    #[rkyv(with = AsNumber)]
    pub user: UserId,
    /// Which user of that number: a sign-in that comes late must not bind a number used again.
    #[rkyv(with = AsNumber)]
    pub user_created_at: Micros,
    /// SHA-256 of the bind secret.
    pub verifier: Verifier,
    /// The token that the user signed in with, if it was one: it may be gone by now.
    pub token: Option<TokenHash>,
}

/// See [`Command::EndSessions`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct EndSessions {
    /// Which lives, at most [`limits::SESSIONS_ENDED_PER_OP_MAX`].
    pub sessions: Vec<SessionId>,
    /// Why.
    pub reason: EndReason,
}

/// See [`Command::ExpireTokens`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ExpireTokens {
    /// Which, at most [`limits::TOKENS_EXPIRED_PER_OP_MAX`]. One whose time is not over when the op is applied stays.
    pub tokens: Vec<TokenId>,
}

/// New envelopes of one stream. See [`Command::RewrapStreams`].
#[derive(Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct Rewrap {
    /// Which stream.
    #[rkyv(with = AsNumber)]
    pub stream: StreamId,
    /// Which of that number: one that was deleted meanwhile is left alone.
    #[rkyv(with = AsNumber)]
    pub created_op: Op,
    /// The envelopes, 1 to 3.
    pub envelopes: Vec<u8>,
}

impl fmt::Debug for Rewrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rewrap(stream {} of op {})", self.stream.0, self.created_op.0)
    }
}

/// One life of a client's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub struct SessionId {
    /// The client.
    #[rkyv(with = AsNumber)]
    pub client: ClientId,
    /// The op of its registration.
    #[rkyv(with = AsNumber)]
    pub epoch: SessionEpoch,
}

/// Which request this is, so that it takes effect once. All of it comes from the request's header; the user is the
/// session's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct RequestIdentity {
    /// The client.
    #[rkyv(with = AsNumber)]
    pub client: ClientId,
    /// Its session.
    #[rkyv(with = AsNumber)]
    pub session: SessionEpoch,
    /// The request's number in the session, from 1.
    #[rkyv(with = AsNumber)]
    pub request: RequestNumber,
    /// The request's identity as the client chose it; 0 for none.
    pub request_checksum: u128,
    /// Who asks.
    #[rkyv(with = AsNumber)]
    pub user: UserId,
    /// The operation byte of the request, which the reply carries again.
    pub operation: u8,
}

/// What a request changes. Identifiers are resolved when it is applied.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum Mutation {
    /// Ends the session that asks.
    Logout,
    /// Makes a stream.
    CreateStream {
        /// Its name.
        name: String,
        /// All it stores.
        options: Vec<OptionRecord>,
    },
    /// Deletes a stream with all it holds.
    DeleteStream {
        /// Which.
        stream: Ref,
    },
    /// Makes a topic.
    CreateTopic {
        /// In which stream.
        stream: Ref,
        /// Its name.
        name: String,
        /// All it stores.
        options: Vec<OptionRecord>,
        /// The lane of each of its partitions, 0 to 1000.
        #[rkyv(with = Map<AsNumber>)]
        lanes: Vec<LaneId>,
    },
    /// Deletes a topic with all it holds.
    DeleteTopic {
        /// In which stream.
        stream: Ref,
        /// Which.
        topic: Ref,
    },
    /// Adds partitions after the highest number.
    CreatePartitions {
        /// In which stream.
        stream: Ref,
        /// Of which topic.
        topic: Ref,
        /// The lane of each of them, 1 to 1000.
        #[rkyv(with = Map<AsNumber>)]
        lanes: Vec<LaneId>,
    },
    /// Deletes the partitions with the highest numbers.
    DeletePartitions {
        /// In which stream.
        stream: Ref,
        /// Of which topic.
        topic: Ref,
        /// How many, 1 to 1000.
        count: u32,
    },
    /// Renames a stream.
    UpdateStream {
        /// Which.
        stream: Ref,
        /// Its new name.
        name: String,
    },
    /// Renames a topic and changes what it stores, all or nothing.
    UpdateTopic {
        /// In which stream.
        stream: Ref,
        /// Which.
        topic: Ref,
        /// Its new name.
        name: Option<String>,
        /// The entries that change. One that was reset comes with the default of the planning node, and not explicit.
        options: Vec<OptionRecord>,
    },
    /// Makes a user.
    CreateUser(NewUser),
    /// Deletes a user with its tokens, and ends its sessions.
    DeleteUser {
        /// Which.
        user: Ref,
    },
    /// Renames a user, or lets it sign in or not.
    UpdateUser {
        /// Which.
        user: Ref,
        /// Its new name, 3 to 50 bytes.
        username: Option<String>,
        /// Whether it may sign in.
        status: Option<UserStatus>,
    },
    /// Replaces what a user may do.
    UpdatePermissions {
        /// Which user.
        user: Ref,
        /// Its grants from now on.
        permissions: Option<PermissionsRecord>,
    },
    /// Changes a password.
    ChangePassword {
        /// Whose.
        user: Ref,
        /// The change; none when the current password that the request named was wrong, or its caller may not ask.
        change: Option<PasswordChange>,
    },
    /// Gives the caller a token.
    CreateToken(NewToken),
    /// Takes a token from the caller.
    DeleteToken {
        /// Its name.
        name: String,
    },
}

/// A user to make. See [`Mutation::CreateUser`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct NewUser {
    /// Its name, 3 to 50 bytes.
    pub username: String,
    /// Its password. None when the caller may not make users, so that nothing was hashed for it.
    pub password_hash: Option<PasswordHash>,
    /// Whether it may sign in.
    pub status: UserStatus,
    /// What it may do.
    pub permissions: Option<PermissionsRecord>,
    /// All it stores.
    pub options: Vec<OptionRecord>,
}

/// A password that was checked and one that replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct PasswordChange {
    /// What the current password was checked against. A change in between makes it a wrong one.
    pub verified: PasswordHash,
    /// The new one.
    pub new: PasswordHash,
}

/// A token to make. See [`Mutation::CreateToken`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct NewToken {
    /// Its name, 3 to 30 bytes.
    pub name: String,
    /// What it is recognised by.
    pub hash: TokenHash,
    /// Microseconds that it lives from the op on; none for ever.
    pub lives_us: Option<u64>,
    /// Most tokens of one user, as the node that planned it was set to.
    pub tokens_max: u32,
}

/// Why bytes are not a command, or a command is not one that a primary may log.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Nothing there.
    #[error("an empty entry holds no command")]
    Empty,
    /// Written by another build.
    #[error("command encoding {found} is unknown, this build reads {VERSION}")]
    Version {
        /// The version byte.
        found: u8,
    },
    /// Not an archive of a command.
    #[error("the command is damaged")]
    Archive(#[source] rancor::Error),
    /// A field breaks its bound.
    #[error("{field} is out of bounds")]
    Bounds {
        /// Which.
        field: &'static str,
    },
}

impl Command {
    /// Writes the command for the log.
    pub fn to_bytes(&self) -> Vec<u8> {
        let archive = rkyv::to_bytes::<rancor::Error>(self).expect("writing to memory cannot fail");
        let mut bytes = Vec::with_capacity(1 + archive.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&archive);
        bytes
    }

    /// Reads a command of the log. Nothing in the bytes is trusted.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CommandError> {
        let (version, archive) = bytes.split_first().ok_or(CommandError::Empty)?;
        if *version != VERSION {
            return Err(CommandError::Version { found: *version });
        }
        // Archives are read in place and want alignment, which a slice of a journal does not have.
        let mut aligned: AlignedVec = AlignedVec::with_capacity(archive.len());
        aligned.extend_from_slice(archive);
        let command = rkyv::from_bytes::<Self, rancor::Error>(&aligned).map_err(CommandError::Archive)?;
        command.check()?;
        Ok(command)
    }

    /// Whether every field is within its bound. Applying relies on it.
    pub fn check(&self) -> Result<(), CommandError> {
        match self {
            Command::CreateRoot(root) => {
                let settings = &root.settings;
                bound("username", limits::USERNAME_BYTES.contains(&root.username.len()))?;
                check_hash(&root.password_hash)?;
                bound("lanes_per_class", (1..=LANES_PER_CLASS_MAX).contains(&settings.lanes_per_class))?;
                bound("sessions_max", limits::SESSIONS_MAX.contains(&settings.sessions_max))?;
                bound("changes_max", limits::CHANGES_MAX.contains(&settings.changes_max))
            }
            Command::Register(register) => bound("client", register.client.0 != 0),
            Command::EndSessions(end) => {
                bound("sessions", end.sessions.len() <= limits::SESSIONS_ENDED_PER_OP_MAX)
            }
            Command::Request(identity, mutation) => {
                bound("client", identity.client.0 != 0)?;
                bound("request", identity.request.0 != 0)?;
                mutation.check()
            }
            Command::RewrapStreams(rewraps) => {
                bound("rewraps", rewraps.len() <= limits::REWRAPS_PER_OP_MAX)?;
                let sets = |rewrap: &Rewrap| WrapSet::parse(&rewrap.envelopes).is_ok();
                bound("envelopes", rewraps.iter().all(sets))
            }
            Command::ExpireTokens(expire) => {
                bound("tokens", expire.tokens.len() <= limits::TOKENS_EXPIRED_PER_OP_MAX)?;
                expire.tokens.iter().try_for_each(|token| check_token_name(&token.name))
            }
        }
    }
}

impl Mutation {
    fn check(&self) -> Result<(), CommandError> {
        match self {
            Mutation::Logout => Ok(()),
            Mutation::CreateStream { name, options } => check_named(name, options),
            Mutation::DeleteStream { stream } => check_ref(stream),
            Mutation::CreateTopic { stream, name, options, lanes } => {
                check_ref(stream)?;
                check_named(name, options)?;
                bound("lanes", lanes.len() <= limits::PARTITIONS_PER_REQUEST_MAX as usize)
            }
            Mutation::DeleteTopic { stream, topic } => {
                check_ref(stream)?;
                check_ref(topic)
            }
            Mutation::CreatePartitions { stream, topic, lanes } => {
                check_ref(stream)?;
                check_ref(topic)?;
                bound("lanes", (1..=limits::PARTITIONS_PER_REQUEST_MAX as usize).contains(&lanes.len()))
            }
            Mutation::DeletePartitions { stream, topic, count } => {
                check_ref(stream)?;
                check_ref(topic)?;
                bound("count", (1..=limits::PARTITIONS_PER_REQUEST_MAX).contains(count))
            }
            Mutation::UpdateStream { stream, name } => {
                check_ref(stream)?;
                bound("name", limits::NAME_BYTES.contains(&name.len()))
            }
            Mutation::UpdateTopic { stream, topic, name, options } => {
                check_ref(stream)?;
                check_ref(topic)?;
                bound("name", name.as_ref().is_none_or(|name| limits::NAME_BYTES.contains(&name.len())))?;
                bound("options", OptionSet::from_records(options.clone()).is_some())
            }
            Mutation::CreateUser(user) => {
                bound("username", limits::USERNAME_BYTES.contains(&user.username.len()))?;
                user.password_hash.iter().try_for_each(check_hash)?;
                check_grants(user.permissions.as_ref())?;
                bound("options", OptionSet::from_records(user.options.clone()).is_some())
            }
            Mutation::DeleteUser { user } => check_ref(user),
            Mutation::UpdateUser { user, username, .. } => {
                check_ref(user)?;
                let in_bounds = |name: &String| limits::USERNAME_BYTES.contains(&name.len());
                bound("username", username.as_ref().is_none_or(in_bounds))
            }
            Mutation::UpdatePermissions { user, permissions } => {
                check_ref(user)?;
                check_grants(permissions.as_ref())
            }
            Mutation::ChangePassword { user, change } => {
                check_ref(user)?;
                let hashes = change.iter().flat_map(|change| [&change.verified, &change.new]);
                hashes.into_iter().try_for_each(check_hash)
            }
            Mutation::CreateToken(token) => check_token_name(&token.name),
            Mutation::DeleteToken { name } => bound("name", limits::NAME_BYTES.contains(&name.len())),
        }
    }
}

fn check_hash(hash: &PasswordHash) -> Result<(), CommandError> {
    bound("password_hash", (1..=limits::PASSWORD_HASH_BYTES_MAX).contains(&hash.phc().len()))
}

fn check_grants(permissions: Option<&PermissionsRecord>) -> Result<(), CommandError> {
    bound("permissions", permissions.is_none_or(|record| record.grants() <= limits::GRANTS_MAX))
}

fn check_token_name(name: &str) -> Result<(), CommandError> {
    bound("token name", limits::TOKEN_NAME_BYTES.contains(&name.len()))
}

fn check_ref(target: &Ref) -> Result<(), CommandError> {
    match target {
        Ref::Id(_) => Ok(()),
        Ref::Name(name) => bound("identifier", limits::NAME_BYTES.contains(&name.len())),
    }
}

fn check_named(name: &str, options: &[OptionRecord]) -> Result<(), CommandError> {
    bound("name", limits::NAME_BYTES.contains(&name.len()))?;
    bound("options", OptionSet::from_records(options.to_vec()).is_some())
}

fn bound(field: &'static str, holds: bool) -> Result<(), CommandError> {
    if holds { Ok(()) } else { Err(CommandError::Bounds { field }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn create_topic() -> Command {
        Command::Request(
            RequestIdentity {
                client: ClientId(1 << 100),
                session: SessionEpoch(3),
                request: RequestNumber(9),
                request_checksum: u128::MAX,
                user: UserId(0),
                operation: 132,
            },
            Mutation::CreateTopic {
                stream: Ref::Name("orders".into()),
                name: "new".into(),
                options: OptionSet::created(crate::options::Scope::Topic, [], &Default::default())
                    .to_records(),
                lanes: vec![LaneId(5), LaneId(6)],
            },
        )
    }

    #[test]
    fn commands_round_trip_at_any_alignment() {
        let command = create_topic();
        for shift in 0..16 {
            let mut bytes = vec![0; shift];
            bytes.extend(command.to_bytes());
            assert_eq!(Command::from_bytes(&bytes[shift..]).unwrap(), command);
        }
    }

    #[test]
    fn other_versions_and_bounds_are_refused() {
        let mut bytes = create_topic().to_bytes();
        bytes[0] = VERSION + 1;
        assert!(matches!(Command::from_bytes(&bytes), Err(CommandError::Version { .. })));
        assert!(matches!(Command::from_bytes(&[]), Err(CommandError::Empty)));
        let Command::Request(identity, _) = create_topic() else { unreachable!() };
        let none = Mutation::CreatePartitions { stream: Ref::Id(0), topic: Ref::Id(0), lanes: vec![] };
        let bytes = Command::Request(identity, none).to_bytes();
        assert!(matches!(Command::from_bytes(&bytes), Err(CommandError::Bounds { field: "lanes" })));
    }

    #[test]
    fn secrets_do_not_show_in_debug() {
        let root = Command::CreateRoot(CreateRoot {
            username: "root".into(),
            password_hash: PasswordHash::new("$argon2id$x"),
            settings: Settings::default(),
        });
        assert!(!format!("{root:?}").contains("argon2id"));
    }

    proptest! {
        #[test]
        fn damaged_bytes_are_refused_or_read_within_bounds(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = create_topic().to_bytes();
            for (index, byte) in damage {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            if let Ok(command) = Command::from_bytes(&bytes) {
                prop_assert!(command.check().is_ok());
            }
        }

        #[test]
        fn any_bytes_are_refused_or_read_within_bounds(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            bytes.insert(0, VERSION);
            if let Ok(command) = Command::from_bytes(&bytes) {
                prop_assert!(command.check().is_ok());
            }
        }
    }
}
