//! Changes of users, their grants, passwords and tokens. Source: resources, sections 11 and 12.
//!
//! Passwords and tokens come as hashes: whoever proposed the op has seen the secret, the log never does.

use std::sync::Arc;

use laneway_wire::reply::{PermissionsChanged, TokenGone};
use laneway_wire::{Micros, Status, UserId};

use super::{Effect, Moment, below, stored};
use crate::changes::notes::UserChange;
use crate::command::{ExpireTokens, NewToken, NewUser, PasswordChange, SessionId};
use crate::limits;
use crate::metadata::Metadata;
use crate::names::{Missing, Ref};
use crate::options::Scope;
use crate::permissions::{Permissions, PermissionsRecord, Rule};
use crate::replies::{ReplyBody, UserCreated};
use crate::sessions::EndReason;
use crate::tokens::Token;
use crate::users::{ROOT, User, UserStatus};

impl Metadata {
    pub(super) fn create_user(
        &mut self,
        at: Moment,
        caller: UserId,
        new: &NewUser,
    ) -> Result<ReplyBody, Status> {
        self.permit(caller, Rule::ManageUsers)?;
        // Nothing was hashed for a caller who had no right when it asked; that it has one by now does not help.
        let password_hash = new.password_hash.clone().ok_or(Status::Unauthorized)?;
        if self.users.find(new.username.as_str()).is_ok() {
            return Err(Status::UserAlreadyExists);
        }
        below(self.users.count(), limits::USERS_MAX, Status::UsersLimitReached)?;
        let permissions = new.permissions.clone().map(Permissions::from);
        self.check_grants(permissions.as_ref())?;
        let user = User {
            id: self.users.next_id(),
            created_at: at.timestamp,
            status: new.status,
            username: new.username.as_str().into(),
            password_hash,
            permissions,
            options: stored(Scope::User, &new.options),
            tokens: Default::default(),
        };
        let created = UserCreated {
            id: user.id,
            created_at: user.created_at,
            status: user.status,
            username: user.username.clone(),
            permissions: user.permissions.clone(),
            options: user.options.clone(),
        };
        self.note_user(&user, UserChange::Created);
        self.users.create(user);
        Ok(ReplyBody::UserCreated(created))
    }

    pub(super) fn delete_user(
        &mut self,
        at: Moment,
        caller: UserId,
        user: &Ref,
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let user = self.managed_user(caller, user)?;
        if user.id == ROOT {
            return Err(Status::CannotDeleteUser);
        }
        self.revoke_sessions(at, &user, effects);
        self.users.remove(user.id);
        self.note_user_deleted(&user);
        Ok(ReplyBody::Empty)
    }

    pub(super) fn update_user(
        &mut self,
        at: Moment,
        caller: UserId,
        user: &Ref,
        username: Option<&str>,
        status: Option<UserStatus>,
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let user = self.managed_user(caller, user)?;
        if user.id == ROOT {
            return Err(Status::CannotModifyRootUser);
        }
        if let Some(name) = username
            && self.users.find(name).is_ok_and(|holder| holder.id != user.id)
        {
            return Err(Status::UserAlreadyExists);
        }
        self.users.update(user.id, |user| {
            if let Some(name) = username {
                user.username = name.into();
            }
            user.status = status.unwrap_or(user.status);
        });
        self.note_user_of(user.id, UserChange::Updated);
        if status == Some(UserStatus::Inactive) {
            self.revoke_sessions(at, &user, effects);
        }
        Ok(ReplyBody::Empty)
    }

    pub(super) fn update_permissions(
        &mut self,
        caller: UserId,
        user: &Ref,
        permissions: Option<&PermissionsRecord>,
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let user = self.managed_user(caller, user)?;
        if user.id == ROOT {
            return Err(Status::CannotChangePermissions);
        }
        let permissions = permissions.cloned().map(Permissions::from);
        self.check_grants(permissions.as_ref())?;
        self.users.update(user.id, |user| user.permissions = permissions);
        self.note_user_of(user.id, UserChange::Permissions(PermissionsChanged::Updated));
        effects.push(Effect::GrantsChanged { user: user.id });
        Ok(ReplyBody::Empty)
    }

    pub(super) fn change_password(
        &mut self,
        caller: UserId,
        user: &Ref,
        change: Option<&PasswordChange>,
    ) -> Result<ReplyBody, Status> {
        let user = self.users.find(user).map_err(Missing::committed_status)?.clone();
        if user.id != caller {
            self.permit(caller, Rule::ManageUsers)?;
        }
        // A password that was checked against another hash was right once, and is not now.
        let change = change.filter(|change| change.verified == user.password_hash);
        let change = change.ok_or(Status::InvalidCredentials)?;
        self.users.update(user.id, |user| user.password_hash = change.new.clone());
        self.note_user(&user, UserChange::Password);
        Ok(ReplyBody::Empty)
    }

    pub(super) fn create_token(
        &mut self,
        at: Moment,
        caller: UserId,
        new: &NewToken,
    ) -> Result<ReplyBody, Status> {
        let owner = self.users.user(caller).expect("the session's user exists");
        if owner.tokens.len() >= new.tokens_max as usize {
            return Err(Status::PersonalAccessTokensLimitReached);
        }
        if owner.tokens.contains_key(new.name.as_str()) {
            return Err(Status::PersonalAccessTokenAlreadyExists);
        }
        let expires_at = match new.lives_us {
            None => None,
            Some(lives_us) => {
                let end = at.timestamp.0.checked_add(lives_us).filter(|end| *end > at.timestamp.0);
                Some(Micros(end.ok_or(Status::InvalidPersonalAccessTokenExpiry)?))
            }
        };
        let token = Token { name: new.name.as_str().into(), hash: new.hash, expires_at };
        let life = owner.life();
        if !self.users.add_token(caller, token.clone()) {
            return Err(Status::PersonalAccessTokenAlreadyExists);
        }
        self.note_token(life, &token);
        Ok(ReplyBody::TokenCreated)
    }

    pub(super) fn delete_token(&mut self, caller: UserId, name: &str) -> Result<ReplyBody, Status> {
        let life = self.users.user(caller).expect("the session's user exists").life();
        self.users.remove_token(caller, name).ok_or(Status::ResourceNotFound)?;
        self.note_token_deleted(life, name, TokenGone::Deleted);
        Ok(ReplyBody::Empty)
    }

    /// Removes the named tokens whose time is over at the time of the op.
    pub(super) fn expire_tokens(&mut self, at: Moment, expire: &ExpireTokens) {
        for id in &expire.tokens {
            let user = self.users.user(id.user).filter(|user| user.created_at == id.user_created_at);
            let Some(user) = user else { continue };
            let token = user.tokens.get(id.name.as_str());
            if token.is_some_and(|token| token.has_expired(at.timestamp)) {
                let life = user.life();
                self.users.remove_token(id.user, &id.name);
                self.note_token_deleted(life, &id.name, TokenGone::Expired);
            }
        }
    }

    fn managed_user(&self, caller: UserId, user: &Ref) -> Result<Arc<User>, Status> {
        let user = self.users.find(user).map_err(Missing::committed_status)?;
        self.permit(caller, Rule::ManageUsers)?;
        Ok(user.clone())
    }

    /// A grant names what exists: numbers are given out again, and a grant must not wait for the next holder.
    fn check_grants(&self, permissions: Option<&Permissions>) -> Result<(), Status> {
        for (stream, grant) in permissions.iter().flat_map(|permissions| &permissions.streams) {
            let stream = self.stream(stream.0).map_err(Missing::committed_status)?;
            for topic in grant.topics.keys() {
                self.topic(stream.id.0, topic.0).map_err(Missing::committed_status)?;
            }
        }
        Ok(())
    }

    fn revoke_sessions(&mut self, at: Moment, user: &User, effects: &mut Vec<Effect>) {
        let live: Vec<SessionId> = self.sessions.live_of(user.id).collect();
        for SessionId { client, epoch } in live {
            self.end_session(at, client, epoch, EndReason::Revoked, effects);
        }
    }
}
