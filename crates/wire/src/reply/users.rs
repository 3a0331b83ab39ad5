//! Users and personal access tokens. Source: wire protocol, section 5.3.

use bytes::{BufMut, BytesMut};

use super::{Record, records};
use crate::ids::{Micros, UserId};
use crate::options::Block;
use crate::permissions::Permissions;
use crate::primitive::{DecodeError, Reader, put_str8};
use crate::request::UserStatus;

records! {
    /// A user.
    UserHeader<'a> {
        /// Its number.
        id: UserId,
        /// When it was created.
        created_at: Micros,
        /// Whether it may sign in.
        status: UserStatus,
        /// Its name.
        username: &'a str,
        /// Options that a client set.
        explicit: Block<'a>,
        /// Options that the broker filled in.
        derived: Block<'a>,
    }
    /// A personal access token, without its secret.
    TokenRecord<'a> {
        /// Its name.
        name: &'a str,
        /// When it expires, 0 for never.
        expires_at: Micros,
    }
}

/// A user and what it may do.
#[derive(Clone, Debug, PartialEq)]
pub struct UserDetails<'a> {
    /// The user.
    pub header: UserHeader<'a>,
    /// What it may do.
    pub permissions: Option<Permissions>,
}

impl<'a> Record<'a> for UserDetails<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let header = UserHeader::read(reader)?;
        let permissions = if reader.flag("permissions")? {
            Some(Permissions::parse(reader.bytes32("permissions")?)?)
        } else {
            // Absent permissions take four bytes, present ones start with one: the protocol is asymmetric here.
            reader.take(3, "permissions")?;
            None
        };
        Ok(UserDetails { header, permissions })
    }

    fn put(&self, out: &mut BytesMut) {
        self.header.put(out);
        match &self.permissions {
            Some(permissions) => {
                out.put_u8(1);
                permissions.put_prefixed(out);
            }
            None => out.put_u32_le(0),
        }
    }
}

/// Appends the answer to CreatePersonalAccessToken: the secret, shown once.
///
/// # Panics
/// When the token is empty or longer than 255 bytes.
pub fn put_token(out: &mut BytesMut, token: &str) {
    put_str8(out, token);
}

/// Reads the answer to CreatePersonalAccessToken.
pub fn parse_token(body: &[u8]) -> Result<&str, DecodeError> {
    Reader::new(body).str8("token")
}
