//! Pages of the metadata change log. Bodies of records and items stay bytes here. Source: wire protocol, section
//! 5.1.3.

use bytes::{BufMut, BytesMut};

use super::{Record, count32, read_counted};
use crate::ids::{Micros, Op, UserId};
use crate::primitive::{DecodeError, Reader, put_bytes32};
use crate::request::{ChangeCursor, ChangePageToken};

/// Whether a page could be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChangesStatus {
    /// It was.
    Ok = 0,
    /// This node is behind what was asked for.
    Behind = 1,
    /// The place asked for is no longer retained.
    Expired = 2,
    /// The place asked for belongs to another log.
    Reset = 3,
}

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChangePhase {
    /// Records of the log.
    Changes = 0,
    /// Items of the current state.
    Current = 1,
}

/// One record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRecord<'a> {
    /// The op.
    pub op: Op,
    /// The record among those of its op.
    pub ordinal: u32,
    /// Checksum of the op.
    pub checksum: u128,
    /// When it was committed.
    pub timestamp: Micros,
    /// Who caused it.
    pub actor: Option<UserId>,
    /// Its group, a [`crate::request::ChangeGroup`] if this build knows it.
    pub group: u8,
    /// Its kind in the group.
    pub kind: u8,
    /// What happened.
    pub body: &'a [u8],
}

impl<'a> Record<'a> for ChangeRecord<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(ChangeRecord {
            op: Op(reader.u64("op")?),
            ordinal: reader.u32("ordinal")?,
            checksum: reader.u128("checksum")?,
            timestamp: Micros(reader.u64("timestamp")?),
            actor: if reader.flag("actor")? { Some(UserId(reader.u32("actor")?)) } else { None },
            group: reader.u8("group")?,
            kind: reader.u8("kind")?,
            body: reader.bytes32("record body")?,
        })
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.op.0);
        out.put_u32_le(self.ordinal);
        out.put_u128_le(self.checksum);
        out.put_u64_le(self.timestamp.0);
        out.put_u8(self.actor.is_some().into());
        if let Some(actor) = self.actor {
            out.put_u32_le(actor.0);
        }
        out.put_u8(self.group);
        out.put_u8(self.kind);
        put_bytes32(out, self.body);
    }
}

/// One item of the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeItem<'a> {
    /// Its group.
    pub group: u8,
    /// What it is.
    pub body: &'a [u8],
}

impl<'a> Record<'a> for ChangeItem<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(ChangeItem { group: reader.u8("group")?, body: reader.bytes32("item body")? })
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u8(self.group);
        put_bytes32(out, self.body);
    }
}

/// A page. A page of changes has records only, a page of current state has items and maybe a token only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangesPage<'a> {
    /// Whether it could be served.
    pub status: ChangesStatus,
    /// What it holds.
    pub phase: ChangePhase,
    /// Which log.
    pub log_id: Option<u128>,
    /// The oldest op that is retained.
    pub oldest_op: Op,
    /// Since when records are retained.
    pub retained_since: Micros,
    /// The newest op.
    pub head_op: Op,
    /// Where the next page starts.
    pub next: Option<ChangeCursor>,
    /// Whether there is more.
    pub has_more: bool,
    /// Records of the log.
    pub records: Vec<ChangeRecord<'a>>,
    /// Items of the current state.
    pub items: Vec<ChangeItem<'a>>,
    /// Where the next page of current state starts.
    pub token: Option<ChangePageToken<'a>>,
}

impl<'a> ChangesPage<'a> {
    /// Reads a page, which must be consumed exactly.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let status = match reader.u8("status")? {
            0 => ChangesStatus::Ok,
            1 => ChangesStatus::Behind,
            2 => ChangesStatus::Expired,
            3 => ChangesStatus::Reset,
            kind => return Err(DecodeError::Kind { field: "status", kind: kind.into() }),
        };
        let phase = if reader.flag("phase")? { ChangePhase::Current } else { ChangePhase::Changes };
        let log_id = if reader.flag("log_id")? { Some(reader.u128("log_id")?) } else { None };
        let oldest_op = Op(reader.u64("oldest_op")?);
        let retained_since = Micros(reader.u64("retained_since")?);
        let head_op = Op(reader.u64("head_op")?);
        let next = if reader.flag("next")? { Some(ChangeCursor::read(&mut reader)?) } else { None };
        let has_more = reader.flag("has_more")?;
        let records_count = reader.u32("records")?;
        let records = read_counted(&mut reader, records_count)?;
        let items_count = reader.u32("items")?;
        let items = read_counted(&mut reader, items_count)?;
        let token_len = reader.u16("token")?;
        let token = match reader.take(token_len.into(), "token")? {
            [] => None,
            token => Some(ChangePageToken::parse(token)?),
        };
        reader.finish()?;
        let page = ChangesPage {
            status,
            phase,
            log_id,
            oldest_op,
            retained_since,
            head_op,
            next,
            has_more,
            records,
            items,
            token,
        };
        if !page.holds_only_its_phase() {
            return Err(DecodeError::Range { field: "phase" });
        }
        Ok(page)
    }

    /// Appends the page.
    ///
    /// # Panics
    /// When the page holds what belongs to the other phase.
    pub fn put(&self, out: &mut BytesMut) {
        assert!(self.holds_only_its_phase(), "a page is of one phase");
        out.put_u8(self.status as u8);
        out.put_u8(self.phase as u8);
        out.put_u8(self.log_id.is_some().into());
        if let Some(log_id) = self.log_id {
            out.put_u128_le(log_id);
        }
        out.put_u64_le(self.oldest_op.0);
        out.put_u64_le(self.retained_since.0);
        out.put_u64_le(self.head_op.0);
        out.put_u8(self.next.is_some().into());
        if let Some(next) = &self.next {
            next.put(out);
        }
        out.put_u8(self.has_more.into());
        out.put_u32_le(count32(self.records.len()));
        self.records.iter().for_each(|record| record.put(out));
        out.put_u32_le(count32(self.items.len()));
        self.items.iter().for_each(|item| item.put(out));
        match &self.token {
            Some(token) => token.put_prefixed(out),
            None => out.put_u16_le(0),
        }
    }

    fn holds_only_its_phase(&self) -> bool {
        match self.phase {
            ChangePhase::Changes => self.items.is_empty() && self.token.is_none(),
            ChangePhase::Current => self.records.is_empty(),
        }
    }
}
