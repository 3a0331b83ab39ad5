//! The grouped fetches that run on a shard, and what they are told meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use laneway_metadata::SessionId;
use laneway_reads::SessionKey;
use laneway_transport::Signal;
use laneway_wire::{Offset, PartitionKey, RequestNumber, Status};

use crate::message::WatchId;

/// Numbers of the reads of fetches, apart from those of clients, which a session counts from 1.
const READ_NUMBERS: u64 = 1 << 63;

/// What a running fetch is told.
#[derive(Debug, Default)]
pub struct FetchState {
    /// Newest heads, and partitions that cannot be read any more.
    pub(super) news: RefCell<BTreeMap<PartitionKey, Result<Offset, Status>>>,
    pub(super) cancelled: Cell<bool>,
    pub(super) session_ended: Cell<bool>,
    pub(super) bell: Signal,
}

impl FetchState {
    /// The client takes the fetch back, or is gone.
    pub fn cancel(&self) {
        self.cancelled.set(true);
        self.bell.ring();
    }

    pub(super) fn is_over(&self) -> bool {
        self.cancelled.get() || self.session_ended.get()
    }
}

/// The fetches of one shard's connections.
#[derive(Debug, Default)]
pub struct Fetches {
    next: Cell<u64>,
    open: RefCell<BTreeMap<WatchId, (SessionKey, Rc<FetchState>)>>,
}

impl Fetches {
    pub(super) fn begin(&self, session: SessionKey) -> (WatchId, Rc<FetchState>) {
        let watch = WatchId(self.next.get());
        self.next.set(watch.0 + 1);
        let state = Rc::new(FetchState::default());
        self.open.borrow_mut().insert(watch, (session, state.clone()));
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
        for (session, state) in self.open.borrow().values() {
            let ended = |id: &SessionId| (id.client, id.epoch) == (session.client, session.session);
            if sessions.iter().any(ended) {
                state.session_ended.set(true);
                state.bell.ring();
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
