//! Personal access tokens: what a user signs in with instead of its password. Only the hash of a token is kept.
//! Source: resources, section 12.

use std::fmt;
use std::sync::Arc;

use laneway_wire::{Micros, UserId};
use rkyv::{Archive, Deserialize, Serialize};

use crate::archive::AsNumber;

/// SHA-256 of the token as its owner holds it. A token is 50 random bytes, so that a plain hash keeps it. `Debug`
/// hides it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub struct TokenHash(pub [u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

/// One token of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name, unique for its user.
    pub name: Arc<str>,
    /// What it is recognised by.
    pub hash: TokenHash,
    /// When it ends; none for never. From that moment on it signs nobody in.
    pub expires_at: Option<Micros>,
}

impl Token {
    /// Whether its time is over.
    pub fn has_expired(&self, now: Micros) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}

/// A token as a command names it: of one life of a user.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TokenId {
    /// Whose it is.
    #[rkyv(with = AsNumber)]
    pub user: UserId,
    /// Which user of that number.
    #[rkyv(with = AsNumber)]
    pub user_created_at: Micros,
    /// Its name.
    pub name: String,
}

/// A token as snapshots hold it.
#[derive(Debug, Archive, Serialize, Deserialize)]
pub struct TokenRecord {
    name: String,
    hash: TokenHash,
    /// 0 for never.
    #[rkyv(with = AsNumber)]
    expires_at: Micros,
}

impl From<&Token> for TokenRecord {
    fn from(token: &Token) -> Self {
        let expires_at = token.expires_at.unwrap_or(Micros(0));
        Self { name: token.name.as_ref().to_owned(), hash: token.hash, expires_at }
    }
}

impl From<TokenRecord> for Token {
    fn from(record: TokenRecord) -> Self {
        let expires_at = (record.expires_at != Micros(0)).then_some(record.expires_at);
        Self { name: record.name.into(), hash: record.hash, expires_at }
    }
}
