//! The grouped fetches that run on a shard, and what they are told meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use laneway_metadata::{Metadata, SessionId};
use laneway_transport::Signal;
use laneway_wire::{Offset, PartitionKey, RequestNumber, Status, UserId};

use crate::message::{Access, WatchId};

/// Numbers of the reads of fetches, apart from those of clients, which a session counts from 1.
const READ_NUMBERS: u64 = 1 << 63;

/// What a running fetch is told.
#[derive(Debug, Default)]
pub struct FetchState {
    /// Newest heads, and partitions that cannot be read any more.
    pub(super) news: RefCell<BTreeMap<PartitionKey, Result<Offset, Status>>>,
    pub(super) cancelled: Cell<bool>,
    /// Why the fetch may not be answered any more.
    pub(super) lost: Cell<Option<Status>>,
    pub(super) bell: Signal,
}

impl FetchState {
    /// The client takes the fetch back, or is gone.
    pub fn cancel(&self) {
        self.cancelled.set(true);
        self.bell.ring();
    }

    fn lose(&self, status: Status) {
        self.lost.set(Some(status));
        self.bell.ring();
    }

    pub(super) fn is_over(&self) -> bool {
        self.cancelled.get() || self.lost.get().is_some()
    }
}

/// The fetches of one shard's connections.
#[derive(Debug, Default)]
pub struct Fetches {
    next: Cell<u64>,
    open: RefCell<BTreeMap<WatchId, (Access, Rc<FetchState>)>>,
}

impl Fetches {
    pub(super) fn begin(&self, access: Access) -> (WatchId, Rc<FetchState>) {
        let watch = WatchId(self.next.get());
        self.next.set(watch.0 + 1);
        let state = Rc::new(FetchState::default());
        self.open.borrow_mut().insert(watch, (access, state.clone()));
        (watch, state)
    }

    /// News of a partition. A fetch that is over takes none.
    pub fn note(&self, watch: WatchId, key: PartitionKey, head: Result<Offset, Status>) {
        if let Some((_, state)) = self.open.borrow().get(&watch) {
            state.news.borrow_mut().insert(key, head);
            state.bell.ring();
        }
    }

    /// Sessions ended: their fetches wait no longer.
    pub fn end_sessions(&self, sessions: &[SessionId]) {
        for (access, state) in self.open.borrow().values() {
            let session = access.session;
            let ended = |id: &SessionId| (id.client, id.epoch) == (session.client, session.session);
            if sessions.iter().any(ended) {
                state.lose(Status::StaleClient);
            }
        }
    }

    /// A user may do something else from now on: what it may not read any more, its fetches wait for no longer.
    pub fn look_again(&self, user: UserId, metadata: &Metadata) {
        for (access, state) in self.open.borrow().values().filter(|(access, _)| access.user == user) {
            if let Err(status) = access.check(metadata) {
                state.lose(status);
            }
        }
    }

    pub(super) fn end(&self, watch: WatchId) {
        self.open.borrow_mut().remove(&watch);
    }

    pub(super) fn read_number(&self) -> RequestNumber {
        let number = self.next.get();
        self.next.set(number + 1);
        RequestNumber(READ_NUMBERS | number)
    }
}
