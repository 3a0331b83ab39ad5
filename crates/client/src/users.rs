//! Users and personal access tokens: what the broker says about them, and the calls on them. Source: wire protocol,
//! section 5.3.

use laneway_wire::options::{OptionMap, Options};
use laneway_wire::permissions::Permissions;
use laneway_wire::primitive::Secret;
use laneway_wire::reply::{
    Record, TokenRecord, UserDetails as Details, UserHeader, parse_token, read_list, read_optional,
};
use laneway_wire::request::{self, ResetNames, UpdateTarget, UserStatus};
use laneway_wire::{Identifier, Micros, Reader, UserId};

use crate::client::Client;
use crate::error::ClientError;
use crate::session::Call;

/// A user as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSummary {
    pub id: UserId,
    pub username: String,
    pub created_at: Micros,
    /// Whether it may sign in.
    pub active: bool,
}

/// A user and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDetails {
    pub summary: UserSummary,
    /// `None` is the same as no grant at all.
    pub permissions: Option<Permissions>,
}

/// A personal access token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSummary {
    pub name: String,
    /// `None`: never.
    pub expires_at: Option<Micros>,
}

/// A user to make. `Debug` is not derived: it holds a password.
#[derive(Clone)]
pub struct NewUser<'a> {
    /// 3 to 50 bytes.
    pub username: &'a str,
    /// 3 to 100 bytes.
    pub password: &'a str,
    /// Whether it may sign in.
    pub active: bool,
    pub permissions: Option<Permissions>,
}

impl Client {
    /// All users.
    pub fn users(&mut self) -> Result<Vec<UserSummary>, ClientError> {
        let answer = self.call(Call::of(&request::GetUsers {})?)?;
        let users: Vec<UserHeader<'_>> = read_list(&answer.payload)?;
        Ok(users.iter().map(UserSummary::from).collect())
    }

    /// One user; `None` when there is none.
    pub fn user(&mut self, user: &Identifier<'_>) -> Result<Option<UserDetails>, ClientError> {
        let answer = self.call(Call::of(&request::GetUser { user: *user })?)?;
        let details: Option<Details<'_>> = read_optional(&answer.payload)?;
        Ok(details.map(|details| UserDetails {
            summary: UserSummary::from(&details.header),
            permissions: details.permissions,
        }))
    }

    /// Creates a user.
    pub fn create_user(&mut self, user: &NewUser<'_>) -> Result<UserSummary, ClientError> {
        let request = request::CreateUser {
            username: user.username,
            password: Secret(user.password.as_bytes()),
            status: if user.active { UserStatus::Active } else { UserStatus::Inactive },
            permissions: user.permissions.clone(),
            options: Options::EMPTY,
        };
        let answer = self.call(Call::of(&request)?)?;
        Ok(UserSummary::from(&Details::read(&mut Reader::new(&answer.payload))?.header))
    }

    /// Deletes a user with its tokens; its sessions end.
    pub fn delete_user(&mut self, user: &Identifier<'_>) -> Result<(), ClientError> {
        self.call(Call::of(&request::DeleteUser { user: *user })?).map(drop)
    }

    /// Gives a user another name.
    pub fn rename_user(&mut self, user: &Identifier<'_>, username: &str) -> Result<(), ClientError> {
        self.update_user(user, "username", username)
    }

    /// Lets a user sign in, or not any more; then its sessions end.
    pub fn set_user_active(&mut self, user: &Identifier<'_>, active: bool) -> Result<(), ClientError> {
        self.update_user(user, "status", if active { "active" } else { "inactive" })
    }

    fn update_user(&mut self, user: &Identifier<'_>, key: &str, value: &str) -> Result<(), ClientError> {
        let block = OptionMap::new().with(key, value).encode()?;
        let update = request::UpdateResource {
            target: UpdateTarget::User { user: *user },
            reset: ResetNames::NONE,
            set: Options::parse(&block)?,
        };
        self.call(Call::of(&update)?).map(drop)
    }

    /// Replaces what a user may do.
    pub fn update_permissions(
        &mut self,
        user: &Identifier<'_>,
        permissions: Option<Permissions>,
    ) -> Result<(), ClientError> {
        self.call(Call::of(&request::UpdatePermissions { user: *user, permissions })?).map(drop)
    }

    /// Changes a password; the current one is always needed.
    pub fn change_password(
        &mut self,
        user: &Identifier<'_>,
        current: &str,
        new: &str,
    ) -> Result<(), ClientError> {
        let [current_password, new_password] = [current, new].map(|text| Secret(text.as_bytes()));
        self.call(Call::of(&request::ChangePassword { user: *user, current_password, new_password })?)
            .map(drop)
    }

    /// The caller's tokens, by name.
    pub fn tokens(&mut self) -> Result<Vec<TokenSummary>, ClientError> {
        let answer = self.call(Call::of(&request::GetPersonalAccessTokens {})?)?;
        let tokens: Vec<TokenRecord<'_>> = read_list(&answer.payload)?;
        Ok(tokens.iter().map(TokenSummary::from).collect())
    }

    /// Makes a token for the caller. Nobody can read it again.
    ///
    /// `lives_us`: microseconds from now; `None`: for ever.
    pub fn create_token(&mut self, name: &str, lives_us: Option<u64>) -> Result<String, ClientError> {
        let request = request::CreatePersonalAccessToken { name, expiry_us: lives_us.unwrap_or(0) };
        let answer = self.call(Call::of(&request)?)?;
        Ok(parse_token(&answer.payload)?.to_owned())
    }

    /// Deletes a token of the caller.
    pub fn delete_token(&mut self, name: &str) -> Result<(), ClientError> {
        self.call(Call::of(&request::DeletePersonalAccessToken { name })?).map(drop)
    }
}

impl From<&UserHeader<'_>> for UserSummary {
    fn from(header: &UserHeader<'_>) -> Self {
        Self {
            id: header.id,
            username: header.username.to_owned(),
            created_at: header.created_at,
            active: header.status == UserStatus::Active,
        }
    }
}

impl From<&TokenRecord<'_>> for TokenSummary {
    fn from(token: &TokenRecord<'_>) -> Self {
        let expires_at = (token.expires_at != Micros(0)).then_some(token.expires_at);
        Self { name: token.name.to_owned(), expires_at }
    }
}
