//! Commands about users and personal access tokens. Source: wire protocol, section 5.3.

use bytes::{BufMut, BytesMut};

use super::requests;
use crate::field::Field;
use crate::options::Options;
use crate::permissions::Permissions;
use crate::primitive::{DecodeError, EncodeError, Identifier, Reader, Secret};

/// Whether a user may sign in. Numbers outside of the table are kept, so that they can be refused with their own
/// status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UserStatus {
    /// May sign in (1).
    Active,
    /// May not (2).
    Inactive,
    /// Not declared; answer with invalid user status.
    Unknown(u8),
}

impl UserStatus {
    /// The status of a byte.
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            1 => UserStatus::Active,
            2 => UserStatus::Inactive,
            other => UserStatus::Unknown(other),
        }
    }

    /// The byte on the wire.
    pub const fn byte(self) -> u8 {
        match self {
            UserStatus::Active => 1,
            UserStatus::Inactive => 2,
            UserStatus::Unknown(other) => other,
        }
    }
}

impl Field<'_> for UserStatus {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        reader.u8(field).map(UserStatus::from_byte)
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u8(self.byte());
        Ok(())
    }
}

requests! {
    /// One user (31).
    GetUser<'a> {
        /// The user.
        user: Identifier<'a>,
    }
    /// Every user (32).
    GetUsers {}
    /// Creates a user (33).
    CreateUser<'a> {
        /// The user name; its length rule of 3 to 50 bytes is not checked here.
        username: &'a str,
        /// The password; its length rule of 3 to 100 bytes is not checked here.
        password: Secret<'a>,
        /// Whether the user may sign in.
        status: UserStatus,
        /// What the user may do.
        permissions: Option<Permissions>,
        /// Options, to the end of the body.
        options: Options<'a>,
    }
    /// Deletes a user (34).
    DeleteUser<'a> {
        /// The user.
        user: Identifier<'a>,
    }
    /// Replaces the permissions of a user (36).
    UpdatePermissions<'a> {
        /// The user.
        user: Identifier<'a>,
        /// What the user may do from now on.
        permissions: Option<Permissions>,
    }
    /// Changes a password (37).
    ChangePassword<'a> {
        /// The user.
        user: Identifier<'a>,
        /// The password until now.
        current_password: Secret<'a>,
        /// The password from now on.
        new_password: Secret<'a>,
    }
    /// Tokens of the caller (41).
    GetPersonalAccessTokens {}
    /// Creates a token for the caller (42).
    CreatePersonalAccessToken<'a> {
        /// Its name; the length rule of 3 to 30 bytes is not checked here.
        name: &'a str,
        /// Microseconds from now; 0 and `u64::MAX` mean never.
        expiry_us: u64,
    }
    /// Deletes a token of the caller (43).
    DeletePersonalAccessToken<'a> {
        /// Its name.
        name: &'a str,
    }
}
