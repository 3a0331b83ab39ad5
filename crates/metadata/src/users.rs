//! Users, their password hashes and their grants.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use laneway_wire::{Micros, StreamId, TopicId, UserId};
use rkyv::{Archive, Deserialize, Serialize};

use crate::id_space::IdSpace;
use crate::limits;
use crate::names::{Missing, RefKey};
use crate::options::StoredOptions;
use crate::permissions::Permissions;
use crate::tokens::{Token, TokenHash, TokenId};

/// The user that always exists and may do everything.
pub const ROOT: UserId = UserId(0);
/// When root was created: a fixed time, so that every node of a cluster makes the same root.
pub const ROOT_CREATED_AT: Micros = Micros(1);

/// A password as a PHC string: algorithm, parameters, salt and hash. `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct PasswordHash(String);

impl PasswordHash {
    /// Takes the PHC string that the node which saw the password made.
    pub fn new(phc: impl Into<String>) -> Self {
        Self(phc.into())
    }

    /// The PHC string, for checking a password against it.
    pub fn phc(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// Whether a user may sign in. The numbers are the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum UserStatus {
    /// May sign in.
    Active = 1,
    /// May not, and has no sessions.
    Inactive = 2,
}

/// One user.
#[derive(Clone, Debug)]
pub struct User {
    /// Its number; 0 is root.
    pub id: UserId,
    /// When it was created; with the number its identity over time.
    pub created_at: Micros,
    /// Whether it may sign in.
    pub status: UserStatus,
    /// Its name, unique on the server.
    pub username: Arc<str>,
    /// What its password is checked against.
    pub password_hash: PasswordHash,
    /// What it may do. None is the same as no grant at all.
    pub permissions: Option<Permissions>,
    /// What it stores.
    pub options: Arc<StoredOptions>,
    /// What it signs in with besides its password, by name.
    pub tokens: OrdMap<Arc<str>, Token>,
}

impl User {
    /// Whether this is root.
    pub fn is_root(&self) -> bool {
        self.id == ROOT
    }
}

/// All users.
#[derive(Clone, Debug, Default)]
pub struct Users {
    by_id: OrdMap<UserId, Arc<User>>,
    by_name: OrdMap<Arc<str>, UserId>,
    by_token: OrdMap<TokenHash, (UserId, Arc<str>)>,
    /// The tokens that end, by the moment at which they do.
    expiries: OrdSet<(Micros, UserId, Arc<str>)>,
    ids: IdSpace,
}

impl Users {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The users, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.by_id.values()
    }

    /// The users from a number on, by number.
    pub(crate) fn range(&self, from: Bound<UserId>) -> impl Iterator<Item = &Arc<User>> {
        self.by_id.range((from, Bound::Unbounded)).map(|(_, user)| user)
    }

    /// One user.
    pub fn user(&self, id: UserId) -> Option<&Arc<User>> {
        self.by_id.get(&id)
    }

    /// Finds one by number or by its exact name.
    pub fn find<'a>(&self, target: impl Into<RefKey<'a>>) -> Result<&Arc<User>, Missing> {
        let id = match target.into() {
            RefKey::Id(id) => Some(UserId(id)),
            RefKey::Name(name) => self.by_name.get(name).copied(),
        };
        id.and_then(|id| self.by_id.get(&id)).ok_or(Missing::User)
    }

    /// Whose token this is.
    pub fn by_token(&self, hash: &TokenHash) -> Option<(&Arc<User>, &Token)> {
        let (id, name) = self.by_token.get(hash)?;
        let user = self.by_id.get(id)?;
        Some((user, user.tokens.get(name)?))
    }

    /// The earliest moment at which a token ends.
    pub fn next_token_expiry(&self) -> Option<Micros> {
        self.expiries.get_min().map(|(expires_at, ..)| *expires_at)
    }

    /// The tokens whose time is over at `now`, earliest first, at most `max`.
    pub fn expired_tokens(&self, now: Micros, max: usize) -> Vec<TokenId> {
        let due = self.expiries.iter().take_while(|(expires_at, ..)| *expires_at <= now).take(max);
        due.filter_map(|(_, id, name)| {
            let user = self.by_id.get(id)?;
            let name = name.as_ref().to_owned();
            Some(TokenId { user: *id, user_created_at: user.created_at, name })
        })
        .collect()
    }

    /// The number that the next user gets.
    pub fn next_id(&self) -> UserId {
        UserId(self.ids.lowest_free())
    }

    /// Adds a user under the number that [`Self::next_id`] gave.
    pub(crate) fn create(&mut self, user: User) {
        assert_eq!(UserId(self.ids.take_lowest()), user.id, "the lowest free number is taken");
        let taken = self.by_name.insert(user.username.clone(), user.id);
        assert!(taken.is_none(), "the caller checked the name");
        assert!(user.tokens.is_empty(), "a new user has no tokens");
        self.by_id.insert(user.id, Arc::new(user));
    }

    /// Changes a user. Its number, its age and its tokens stay.
    pub(crate) fn update(&mut self, id: UserId, change: impl FnOnce(&mut User)) {
        let before = self.by_id.get(&id).expect("the caller found the user").clone();
        let mut user = User::clone(&before);
        change(&mut user);
        assert!(user.id == before.id && user.created_at == before.created_at, "a user keeps its identity");
        assert!(user.tokens.len() == before.tokens.len(), "tokens change one by one");
        if user.username != before.username {
            self.by_name.remove(&before.username);
            let taken = self.by_name.insert(user.username.clone(), id);
            assert!(taken.is_none(), "the caller checked the name");
        }
        self.by_id.insert(id, Arc::new(user));
    }

    /// Removes a user with its tokens. Its number is free again.
    pub(crate) fn remove(&mut self, id: UserId) -> Arc<User> {
        assert!(id != ROOT, "root stays");
        let user = self.by_id.remove(&id).expect("the caller found the user");
        self.by_name.remove(&user.username);
        self.ids.release(id.0);
        for token in user.tokens.values() {
            self.unlist_token(id, token);
        }
        user
    }

    /// Gives a user a token whose name it does not use. Two tokens of one hash cannot be told apart, so the second is
    /// not taken; that takes 400 equal random bits.
    pub(crate) fn add_token(&mut self, id: UserId, token: Token) -> bool {
        if self.by_token.contains_key(&token.hash) {
            return false;
        }
        let mut user = User::clone(self.by_id.get(&id).expect("the caller found the user"));
        let taken = user.tokens.insert(token.name.clone(), token.clone());
        assert!(taken.is_none(), "the caller checked the name");
        self.list_token(id, &token);
        self.by_id.insert(id, Arc::new(user));
        true
    }

    /// Takes a token from a user, if it has it.
    pub(crate) fn remove_token(&mut self, id: UserId, name: &str) -> Option<Token> {
        let mut user = User::clone(self.by_id.get(&id)?);
        let token = user.tokens.remove(name)?;
        self.unlist_token(id, &token);
        self.by_id.insert(id, Arc::new(user));
        Some(token)
    }

    fn list_token(&mut self, id: UserId, token: &Token) {
        self.by_token.insert(token.hash, (id, token.name.clone()));
        if let Some(expires_at) = token.expires_at {
            self.expiries.insert((expires_at, id, token.name.clone()));
        }
    }

    fn unlist_token(&mut self, id: UserId, token: &Token) {
        self.by_token.remove(&token.hash);
        if let Some(expires_at) = token.expires_at {
            self.expiries.remove(&(expires_at, id, token.name.clone()));
        }
    }

    /// Takes away every grant on a stream that is gone: its number may be given to another one. Gives whose.
    pub(crate) fn forget_stream(&mut self, stream: StreamId) -> Vec<UserId> {
        self.change_grants(
            |permissions| permissions.streams.contains_key(&stream),
            |permissions| {
                permissions.streams.remove(&stream);
            },
        )
    }

    /// Takes away every grant on a topic that is gone. Gives whose.
    pub(crate) fn forget_topic(&mut self, stream: StreamId, topic: TopicId) -> Vec<UserId> {
        self.change_grants(
            |permissions| {
                permissions.streams.get(&stream).is_some_and(|grant| grant.topics.contains_key(&topic))
            },
            |permissions| {
                if let Some(grant) = permissions.streams.get_mut(&stream) {
                    grant.topics.remove(&topic);
                }
            },
        )
    }

    /// Rebuilds the users of a snapshot; none unless numbers ascend below the limit and names are distinct.
    pub(crate) fn restore(users: Vec<User>) -> Option<Self> {
        let ascend = users.is_sorted_by(|left, right| left.id < right.id);
        // The lowest free number is given out, so none reaches the limit.
        if !ascend || users.last().is_some_and(|last| last.id.0 as usize >= limits::USERS_MAX) {
            return None;
        }
        let mut restored =
            Self { ids: IdSpace::of_taken(users.iter().map(|user| user.id.0)), ..Self::default() };
        for user in users {
            if restored.by_name.insert(user.username.clone(), user.id).is_some() {
                return None;
            }
            for token in user.tokens.values() {
                if restored.by_token.contains_key(&token.hash) {
                    return None;
                }
                restored.list_token(user.id, token);
            }
            restored.by_id.insert(user.id, Arc::new(user));
        }
        Some(restored)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&Arc<str>, UserId)> {
        self.by_name.iter().map(|(name, id)| (name, *id))
    }

    pub(crate) fn ids(&self) -> &IdSpace {
        &self.ids
    }

    /// How many tokens the two indexes list: all, and those that end.
    pub(crate) fn listed_tokens(&self) -> (usize, usize) {
        (self.by_token.len(), self.expiries.len())
    }

    fn change_grants(
        &mut self,
        concerned: impl Fn(&Permissions) -> bool,
        change: impl Fn(&mut Permissions),
    ) -> Vec<UserId> {
        let holders: Vec<Arc<User>> =
            self.iter().filter(|user| user.permissions.as_ref().is_some_and(&concerned)).cloned().collect();
        for holder in &holders {
            let mut user = User::clone(holder);
            user.permissions.as_mut().map(&change);
            self.by_id.insert(user.id, Arc::new(user));
        }
        holders.iter().map(|holder| holder.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::{StreamFlags, StreamPermissions, TopicFlags};

    #[test]
    fn grants_on_a_deleted_resource_go_and_others_stay() {
        let mut permissions = Permissions::default();
        for stream in [1, 2] {
            let topics = [(TopicId(0), TopicFlags::ALL), (TopicId(1), TopicFlags::ALL)].into();
            permissions
                .streams
                .insert(StreamId(stream), StreamPermissions { flags: StreamFlags::READ_STREAM, topics });
        }
        let mut users = Users::default();
        users.create(User {
            id: ROOT,
            created_at: ROOT_CREATED_AT,
            status: UserStatus::Active,
            username: "alice".into(),
            password_hash: PasswordHash::new("$"),
            permissions: Some(permissions),
            options: Arc::default(),
            tokens: OrdMap::new(),
        });
        users.forget_stream(StreamId(1));
        users.forget_topic(StreamId(2), TopicId(0));
        let grants = users.user(ROOT).and_then(|user| user.permissions.clone()).unwrap();
        assert_eq!(grants.streams.keys().collect::<Vec<_>>(), [&StreamId(2)]);
        assert_eq!(grants.streams[&StreamId(2)].topics.keys().collect::<Vec<_>>(), [&TopicId(1)]);
    }

    #[test]
    fn debug_hides_the_hash() {
        assert_eq!(format!("{:?}", PasswordHash::new("$argon2id$secret")), "PasswordHash(..)");
    }
}
