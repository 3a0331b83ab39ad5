//! Pages of the current state, for clients that start to follow the log, or have lost their place in it.
//!
//! A scan is not a snapshot: each page shows the state at its time, and the place from which the client follows lies
//! before the first page, so that it is told of every change in between.

use std::ops::Bound;

use bytes::{BufMut, BytesMut};
use laneway_wire::reply::{ChangeItem, StateBody};
use laneway_wire::request::ChangeGroup;
use laneway_wire::{Reader, SessionEpoch, StreamId, TopicId, UserId};

use super::notes::options;
use super::page::PAGE_BYTES_MAX;
use crate::metadata::Metadata;
use crate::sessions::Session;

/// One item, its group, and its key among those of the group.
pub(super) struct Item {
    pub(super) group: ChangeGroup,
    pub(super) key: Vec<u8>,
    pub(super) body: BytesMut,
}

impl Item {
    pub(super) fn as_wire(&self) -> ChangeItem<'_> {
        ChangeItem { group: self.group as u8, body: &self.body }
    }
}

/// A page of items.
#[derive(Default)]
pub(super) struct Items {
    pub(super) items: Vec<Item>,
    pub(super) has_more: bool,
    limit: usize,
    bytes: usize,
}

impl Items {
    /// Takes one more item. False when the page is full; then it was not taken, and the scan is over.
    fn take(&mut self, key: Vec<u8>, body: &StateBody<'_>) -> bool {
        if self.items.len() == self.limit || self.bytes >= PAGE_BYTES_MAX {
            self.has_more = true;
            return false;
        }
        let mut bytes = BytesMut::new();
        body.put(&mut bytes);
        self.bytes += bytes.len();
        self.items.push(Item { group: body.kind().0, key, body: bytes });
        true
    }
}

/// Where a group goes on: behind a key of it, or at its start.
type After<K> = Bound<K>;

impl Metadata {
    /// Items of the groups behind `last`, groups in their order, at most `limit`.
    pub(super) fn state_items(&self, groups: u8, last: Option<(ChangeGroup, &[u8])>, limit: usize) -> Items {
        let mut items = Items { items: Vec::new(), has_more: false, limit, bytes: 0 };
        let first = last.map_or(1, |(group, _)| group as u8);
        for group in (first..=8).filter_map(ChangeGroup::from_byte) {
            if group.bit() & groups == 0 {
                continue;
            }
            let key = last.filter(|(of, _)| *of == group).map(|(_, key)| key);
            if !self.scan(&mut items, group, key) {
                break;
            }
        }
        items
    }

    fn scan(&self, items: &mut Items, group: ChangeGroup, key: Option<&[u8]>) -> bool {
        match group {
            ChangeGroup::Streams => self.scan_streams(items, key),
            ChangeGroup::Topics | ChangeGroup::Partitions => self.scan_topics(items, group, key),
            ChangeGroup::Users => self.scan_users(items, key),
            ChangeGroup::Tokens => self.scan_tokens(items, key),
            ChangeGroup::Sessions => self.scan_sessions(items, key),
            // Nothing of the kind exists here.
            ChangeGroup::Groups | ChangeGroup::Members => true,
        }
    }

    fn scan_streams(&self, items: &mut Items, key: Option<&[u8]>) -> bool {
        let after = after(key, |reader| reader.u32("key").ok().map(StreamId));
        self.streams.range(after).all(|stream| {
            let body = StateBody::Stream {
                life: stream.life(),
                created_at: stream.created_at,
                name: &stream.name,
                options: options(&stream.options),
            };
            items.take(stream.id.0.to_le_bytes().to_vec(), &body)
        })
    }

    fn scan_topics(&self, items: &mut Items, group: ChangeGroup, key: Option<&[u8]>) -> bool {
        let last = key.and_then(|key| {
            let mut reader = Reader::new(key);
            Some((StreamId(reader.u32("key").ok()?), TopicId(reader.u32("key").ok()?)))
        });
        let streams = last.map_or(Bound::Unbounded, |(stream, _)| Bound::Included(stream));
        self.streams.range(streams).all(|stream| {
            let topics = match last {
                Some((of, topic)) if of == stream.id => Bound::Excluded(topic),
                _ => Bound::Unbounded,
            };
            stream.topics.range(topics).all(|topic| {
                let life = topic.life(stream.life());
                let body = match group {
                    ChangeGroup::Partitions => {
                        StateBody::Partitions { life, partitions_count: topic.partitions_count() }
                    }
                    _ => StateBody::Topic {
                        life,
                        created_at: topic.created_at,
                        name: &topic.name,
                        options: options(&topic.options),
                    },
                };
                items.take([stream.id.0.to_le_bytes(), topic.id.0.to_le_bytes()].concat(), &body)
            })
        })
    }

    fn scan_users(&self, items: &mut Items, key: Option<&[u8]>) -> bool {
        let after = after(key, |reader| reader.u32("key").ok().map(UserId));
        self.users.range(after).all(|user| {
            let body = StateBody::User {
                life: user.life(),
                username: &user.username,
                status: user.status.into(),
                permissions: user.change_permissions(),
                options: options(&user.options),
            };
            items.take(user.id.0.to_le_bytes().to_vec(), &body)
        })
    }

    fn scan_tokens(&self, items: &mut Items, key: Option<&[u8]>) -> bool {
        let last = key.and_then(|key| {
            let mut reader = Reader::new(key);
            Some((UserId(reader.u32("key").ok()?), reader.str8("key").ok()?))
        });
        let users = last.map_or(Bound::Unbounded, |(user, _)| Bound::Included(user));
        self.users.range(users).all(|user| {
            // A user has few tokens, so those before the last one are passed over.
            let passed = |name: &str| last.is_some_and(|(of, last)| of == user.id && name <= last);
            user.tokens.values().filter(|token| !passed(&token.name)).all(|token| {
                let mut key = BytesMut::new();
                key.put_u32_le(user.id.0);
                laneway_wire::primitive::put_str8(&mut key, &token.name);
                let (life, expires_at) = (user.life(), token.change_expiry());
                items.take(key.to_vec(), &StateBody::Token { life, name: &token.name, expires_at })
            })
        })
    }

    /// Sessions are found by client and told by epoch: the next ones of the page are picked out of all.
    fn scan_sessions(&self, items: &mut Items, key: Option<&[u8]>) -> bool {
        let last = key.and_then(|key| Reader::new(key).u64("key").ok()).map(SessionEpoch);
        let wanted = items.limit.saturating_sub(items.items.len()) + 1;
        let mut left: Vec<&Session> = self
            .sessions
            .iter()
            .map(AsRef::as_ref)
            .filter(|session| session.is_live() && last.is_none_or(|last| session.epoch > last))
            .collect();
        if left.len() > wanted {
            left.select_nth_unstable_by_key(wanted, |session| session.epoch);
            left.truncate(wanted);
        }
        left.sort_unstable_by_key(|session| session.epoch);
        left.into_iter().all(|session| {
            let body = StateBody::Session {
                life: session.user_life(),
                client: session.client,
                session: session.epoch,
            };
            items.take(session.epoch.0.to_le_bytes().to_vec(), &body)
        })
    }
}

fn after<K>(key: Option<&[u8]>, read: impl FnOnce(&mut Reader<'_>) -> Option<K>) -> After<K> {
    match key.and_then(|key| read(&mut Reader::new(key))) {
        Some(key) => Bound::Excluded(key),
        None => Bound::Unbounded,
    }
}
