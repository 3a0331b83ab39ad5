//! Pages of the metadata change log. Source: wire protocol, section 5.1.2.

use bytes::{BufMut, BytesMut};

use super::Request;
use crate::code::Code;
use crate::ids::{Micros, Op};
use crate::primitive::{DecodeError, EncodeError, Reader};

/// Most records of a page. Source: wire protocol, section 5.1.2.
pub const CHANGES_LIMIT_MAX: u32 = 1000;
/// Longest key of a page token: a user and a token name.
const TOKEN_KEY_BYTES_MAX: usize = 4 + 1 + 255;
const CURSOR_BYTES: usize = 44;

/// A class of metadata changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ChangeGroup {
    /// Streams.
    Streams = 1,
    /// Topics.
    Topics = 2,
    /// Partitions.
    Partitions = 3,
    /// Consumer groups.
    Groups = 4,
    /// Members of consumer groups.
    Members = 5,
    /// Users.
    Users = 6,
    /// Personal access tokens.
    Tokens = 7,
    /// Sessions.
    Sessions = 8,
}

impl ChangeGroup {
    /// The group of a byte.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => ChangeGroup::Streams,
            2 => ChangeGroup::Topics,
            3 => ChangeGroup::Partitions,
            4 => ChangeGroup::Groups,
            5 => ChangeGroup::Members,
            6 => ChangeGroup::Users,
            7 => ChangeGroup::Tokens,
            8 => ChangeGroup::Sessions,
            _ => return None,
        })
    }

    /// Its bit in a set of groups.
    pub const fn bit(self) -> u8 {
        1 << (self as u8 - 1)
    }

    /// The groups that a scan of current state must ask for along with this one.
    const fn parents(self) -> u8 {
        match self {
            ChangeGroup::Streams | ChangeGroup::Users => 0,
            ChangeGroup::Topics => ChangeGroup::Streams.bit(),
            ChangeGroup::Partitions | ChangeGroup::Groups => ChangeGroup::Topics.bit(),
            ChangeGroup::Members => ChangeGroup::Groups.bit() | ChangeGroup::Partitions.bit(),
            ChangeGroup::Tokens | ChangeGroup::Sessions => ChangeGroup::Users.bit(),
        }
    }

    /// Whether `len` bytes can be a key of this group; a token's key ends in a name.
    fn fits_key(self, key: &[u8]) -> bool {
        let fixed = match self {
            ChangeGroup::Streams | ChangeGroup::Users => 4,
            ChangeGroup::Topics | ChangeGroup::Partitions | ChangeGroup::Sessions => 8,
            ChangeGroup::Groups => 12,
            ChangeGroup::Members => 16,
            ChangeGroup::Tokens => {
                let mut reader = Reader::new(key);
                return reader.u32("key").and_then(|_| reader.str8("key")).is_ok() && reader.is_empty();
            }
        };
        key.len() == fixed
    }
}

/// A place in the change log. Op 0 is the beginning and has neither checksum nor ordinal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCursor {
    /// Which log.
    pub log_id: u128,
    /// The op of the last record.
    pub op: Op,
    /// Checksum of that op.
    pub checksum: u128,
    /// The record among those of one op.
    pub ordinal: u32,
}

impl ChangeCursor {
    /// Reads 44 bytes.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let cursor = ChangeCursor {
            log_id: reader.u128("cursor")?,
            op: Op(reader.u64("cursor")?),
            checksum: reader.u128("cursor")?,
            ordinal: reader.u32("cursor")?,
        };
        if cursor.op.0 == 0 && (cursor.checksum != 0 || cursor.ordinal != 0) {
            return Err(DecodeError::Range { field: "cursor" });
        }
        Ok(cursor)
    }

    /// Appends 44 bytes.
    pub fn put(&self, out: &mut BytesMut) {
        out.put_u128_le(self.log_id);
        out.put_u64_le(self.op.0);
        out.put_u128_le(self.checksum);
        out.put_u32_le(self.ordinal);
    }
}

/// Where the next page of current state starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangePageToken<'a> {
    /// Where the scan began.
    pub anchor: ChangeCursor,
    /// Op that a node must have applied to continue; not below the anchor.
    pub required_head: Op,
    /// The groups of the scan, one bit each.
    pub groups_mask: u8,
    /// The group of the last item.
    pub group: ChangeGroup,
    /// The key of the last item.
    pub key: &'a [u8],
}

impl<'a> ChangePageToken<'a> {
    /// Reads a token that fills `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let field = "token";
        let mut reader = Reader::new(bytes);
        let anchor = ChangeCursor::read(&mut reader)?;
        let required_head = Op(reader.u64(field)?);
        let groups_mask = reader.u8(field)?;
        let byte = reader.u8(field)?;
        let group = ChangeGroup::from_byte(byte).ok_or(DecodeError::Kind { field, kind: byte.into() })?;
        let key_len = reader.u16(field)?;
        let key = reader.take(key_len.into(), field)?;
        reader.finish()?;
        if required_head < anchor.op || groups_mask & group.bit() == 0 || !group.fits_key(key) {
            return Err(DecodeError::Range { field });
        }
        Ok(ChangePageToken { anchor, required_head, groups_mask, group, key })
    }

    /// Appends the length and the token.
    ///
    /// # Panics
    /// When the key is longer than a key can be.
    pub fn put_prefixed(&self, out: &mut BytesMut) {
        assert!(self.key.len() <= TOKEN_KEY_BYTES_MAX, "a key is a few ids and a name");
        out.put_u16_le((CURSOR_BYTES + 12 + self.key.len()) as u16);
        self.anchor.put(out);
        out.put_u64_le(self.required_head.0);
        out.put_u8(self.groups_mask);
        out.put_u8(self.group as u8);
        out.put_u16_le(self.key.len() as u16);
        out.put_slice(self.key);
    }
}

/// Where a page starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeStart<'a> {
    /// At the oldest record.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// Behind this place.
    After(ChangeCursor),
    /// Not the log but the current state; from the start, or where a page ended.
    Current(Option<ChangePageToken<'a>>),
}

/// A page of the metadata change log (17). Every rule of section 5.1.2 holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMetadataChanges<'a> {
    /// Where the page starts.
    pub start: ChangeStart<'a>,
    /// Not before this time.
    pub since: Option<Micros>,
    /// Not after this time.
    pub until: Option<Micros>,
    /// Most records, 1 to [`CHANGES_LIMIT_MAX`].
    pub limit: u32,
    /// Bytes of the groups asked for; none means all. See [`GetMetadataChanges::groups_mask`].
    pub groups: &'a [u8],
}

impl<'a> GetMetadataChanges<'a> {
    /// Reads the body, which must be consumed exactly.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let mode = reader.u8("start")?;
        let cursor = reader.take(CURSOR_BYTES, "cursor")?;
        let since = read_time(&mut reader, "since")?;
        let until = read_time(&mut reader, "until")?;
        let limit = reader.u32("limit")?;
        let groups = reader.bytes8("groups")?;
        let token_len = reader.u16("token")?;
        let token = reader.take(token_len.into(), "token")?;
        reader.finish()?;
        if mode != 2 && cursor.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::Range { field: "cursor" });
        }
        if mode != 3 && !token.is_empty() {
            return Err(DecodeError::Range { field: "token" });
        }
        let start = match mode {
            0 => ChangeStart::Earliest,
            1 => ChangeStart::Latest,
            2 => ChangeStart::After(ChangeCursor::read(&mut Reader::new(cursor))?),
            3 if token.is_empty() => ChangeStart::Current(None),
            3 => ChangeStart::Current(Some(ChangePageToken::parse(token)?)),
            kind => return Err(DecodeError::Kind { field: "start", kind: kind.into() }),
        };
        let changes = GetMetadataChanges { start, since, until, limit, groups };
        match changes.broken_field() {
            None => Ok(changes),
            Some(field) => Err(DecodeError::Range { field }),
        }
    }

    /// The groups asked for, one bit each; none when a byte is no group.
    pub fn groups_mask(&self) -> Option<u8> {
        if self.groups.is_empty() {
            return Some(u8::MAX);
        }
        self.groups.iter().try_fold(0, |mask, byte| Some(mask | ChangeGroup::from_byte(*byte)?.bit()))
    }

    fn broken_field(&self) -> Option<&'static str> {
        if !(1..=CHANGES_LIMIT_MAX).contains(&self.limit) {
            return Some("limit");
        }
        let Some(mask) = self.groups_mask() else {
            return Some("groups");
        };
        let bounded = self.since.is_some() || self.until.is_some();
        match self.start {
            ChangeStart::Latest | ChangeStart::Current(_) if bounded => return Some("since"),
            ChangeStart::Current(token) => {
                let orphan = (1..=8)
                    .filter_map(ChangeGroup::from_byte)
                    .any(|group| mask & group.bit() != 0 && mask & group.parents() != group.parents());
                if orphan {
                    return Some("groups");
                }
                if token.is_some_and(|token| token.groups_mask != mask) {
                    return Some("token");
                }
            }
            _ => {}
        }
        let reversed = matches!((self.since, self.until), (Some(since), Some(until)) if since > until);
        reversed.then_some("since")
    }
}

impl Request for GetMetadataChanges<'_> {
    const CODE: Code = Code::GetMetadataChanges;

    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        if let Some(field) = self.broken_field() {
            return Err(EncodeError::Range { field });
        }
        let (mode, cursor, token) = match self.start {
            ChangeStart::Earliest => (0, ChangeCursor::default(), None),
            ChangeStart::Latest => (1, ChangeCursor::default(), None),
            ChangeStart::After(cursor) => (2, cursor, None),
            ChangeStart::Current(token) => (3, ChangeCursor::default(), token),
        };
        out.put_u8(mode);
        cursor.put(out);
        put_time(out, self.since);
        put_time(out, self.until);
        out.put_u32_le(self.limit);
        crate::primitive::put_checked_bytes8(out, self.groups, "groups")?;
        match token {
            Some(token) if token.key.len() > TOKEN_KEY_BYTES_MAX => {
                return Err(EncodeError::Range { field: "token" });
            }
            Some(token) => token.put_prefixed(out),
            None => out.put_u16_le(0),
        }
        Ok(())
    }
}

fn read_time(reader: &mut Reader<'_>, field: &'static str) -> Result<Option<Micros>, DecodeError> {
    Ok(if reader.flag(field)? { Some(Micros(reader.u64(field)?)) } else { None })
}

fn put_time(out: &mut BytesMut, time: Option<Micros>) {
    out.put_u8(time.is_some().into());
    if let Some(time) = time {
        out.put_u64_le(time.0);
    }
}
