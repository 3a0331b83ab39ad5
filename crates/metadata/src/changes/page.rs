//! Answers to GetMetadataChanges (17). Source: resources, section 20.2; wire protocol, section 5.1.3.

use bytes::BytesMut;
use laneway_wire::reply::{ChangePhase, ChangeRecord, ChangesPage, ChangesStatus};
use laneway_wire::request::{ChangeCursor, ChangePageToken, ChangeStart, GetMetadataChanges};
use laneway_wire::{Micros, Op};

use super::scan::{Item, Items};
use super::{ChangeEntry, Place};
use crate::metadata::Metadata;

/// Bytes of bodies after which a page ends, however many records were asked for. One body always fits.
pub(super) const PAGE_BYTES_MAX: usize = 4 << 20;

impl Metadata {
    /// Appends the page that a request asks for. Its caller was checked.
    pub fn put_changes(&self, request: &GetMetadataChanges<'_>, out: &mut BytesMut) {
        let groups = request.groups_mask().expect("the request was parsed");
        let mut page = self.empty_page(groups);
        match request.start {
            ChangeStart::Current(token) => return self.put_current(groups, request.limit, token, out),
            ChangeStart::Latest => page.next = Some(self.changes.head()),
            ChangeStart::Earliest => self.fill(&mut page, request, groups, self.changes.beginning()),
            ChangeStart::After(cursor) => match self.place(&cursor, groups) {
                ChangesStatus::Ok => self.fill(&mut page, request, groups, cursor),
                status => {
                    page.status = status;
                    page.next = (status == ChangesStatus::Behind).then_some(cursor);
                }
            },
        }
        page.put(out);
    }

    /// A page without records: where the log stands.
    fn empty_page(&self, groups: u8) -> ChangesPage<'_> {
        let evicted = self.changes.evicted(groups);
        let first = if self.applied == Op(0) { Op(0) } else { Op(1) };
        ChangesPage {
            status: if self.applied == Op(0) { ChangesStatus::Behind } else { ChangesStatus::Ok },
            phase: ChangePhase::Changes,
            log_id: self.changes.log_id(),
            oldest_op: evicted.map_or(first, |evicted| evicted.op.next()),
            retained_since: evicted.map_or(Micros(0), |evicted| evicted.timestamp),
            head_op: self.applied,
            next: None,
            has_more: false,
            records: Vec::new(),
            items: Vec::new(),
            token: None,
        }
    }

    /// What a place in the log is good for.
    fn place(&self, cursor: &ChangeCursor, groups: u8) -> ChangesStatus {
        let place: Place = (cursor.op, cursor.ordinal);
        match self.changes.log_id() {
            None => ChangesStatus::Behind,
            Some(log_id) if log_id != cursor.log_id => ChangesStatus::Reset,
            Some(_) if cursor.op > self.applied => ChangesStatus::Behind,
            // A history that was put back to an older state and went on from there has other records.
            Some(_) if !self.changes.knows(cursor) => ChangesStatus::Reset,
            Some(_) if self.changes.evicted(groups).is_some_and(|evicted| place < evicted.place()) => {
                ChangesStatus::Expired
            }
            Some(_) => ChangesStatus::Ok,
        }
    }

    fn fill<'a>(
        &'a self,
        page: &mut ChangesPage<'a>,
        request: &GetMetadataChanges<'_>,
        groups: u8,
        start: ChangeCursor,
    ) {
        let (since, until) = (request.since.unwrap_or(Micros(0)), request.until.unwrap_or(Micros(u64::MAX)));
        let mut bytes = 0;
        page.next = Some(start);
        for entry in self.changes.after((start.op, start.ordinal)) {
            // Timestamps never go back, so nothing that comes later is asked for.
            if entry.timestamp > until {
                break;
            }
            if entry.group.bit() & groups != 0 && entry.timestamp >= since {
                let full = page.records.len() == request.limit as usize || bytes >= PAGE_BYTES_MAX;
                if full {
                    page.has_more = true;
                    return;
                }
                bytes += entry.body.len();
                page.records.push(record(entry));
            }
            // Behind a full page, the place stays at its last record: more may come of what was asked for.
            page.next = Some(self.changes.cursor(entry));
        }
    }

    fn put_current(&self, groups: u8, limit: u32, token: Option<ChangePageToken<'_>>, out: &mut BytesMut) {
        let anchor = token.map_or_else(|| self.changes.head(), |token| token.anchor);
        let status = match (token, self.place(&anchor, groups)) {
            // Another node gave the token, and has come further.
            (Some(token), ChangesStatus::Ok) if token.required_head > self.applied => ChangesStatus::Behind,
            (_, status) => status,
        };
        let items = match status {
            ChangesStatus::Ok => {
                let last = token.map(|token| (token.group, token.key));
                self.state_items(groups, last, limit as usize)
            }
            _ => Items::default(),
        };
        let next_page = items.items.last().filter(|_| items.has_more).map(|item| ChangePageToken {
            anchor,
            required_head: self.applied,
            groups_mask: groups,
            group: item.group,
            key: &item.key,
        });
        let page = ChangesPage {
            status,
            phase: ChangePhase::Current,
            next: (status == ChangesStatus::Ok).then_some(anchor),
            has_more: items.has_more,
            items: items.items.iter().map(Item::as_wire).collect(),
            token: if status == ChangesStatus::Behind { token } else { next_page },
            ..self.empty_page(groups)
        };
        page.put(out);
    }
}

fn record(entry: &ChangeEntry) -> ChangeRecord<'_> {
    ChangeRecord {
        op: entry.op,
        ordinal: entry.ordinal,
        checksum: entry.checksum,
        timestamp: entry.timestamp,
        actor: entry.actor,
        group: entry.group as u8,
        kind: entry.kind,
        body: &entry.body,
    }
}
