//! Deferred reads that are pending on one shard: parked ones, and ones whose read runs.
//!
//! A request is admitted (and takes its quota unit), is then *running* while its owner evaluates it or reads from
//! disk, and *parked* while it waits for a commit. A commit looks only at the waiters of its partition whose threshold
//! it reached; a deadline looks only at the earliest. No waiter has a timer: [`Waiters::poll_timeout`] names the one
//! moment at which the shard has to call [`Waiters::take_expired`].
//!
//! Everything here is plain data. What the request wants is the caller's `T`.

use std::collections::{BTreeMap, BTreeSet};

use laneway_wire::{ClientId, Offset, PartitionKey, RequestNumber, SessionEpoch, Status, UserId};

use crate::deadlines::Deadlines;
use crate::invariants;
use laneway_wire::Nanos;

mod index;

use index::Index;

/// Deferred reads that may be pending on one shard unless configured otherwise. Source: reads specification, section
/// 10.
pub const PENDING_PER_SHARD_MAX: usize = 1024;
/// Deferred reads that may be pending for one client session on one shard unless configured otherwise. Source: reads
/// specification, section 10.
pub const PENDING_PER_SESSION_MAX: usize = 64;

/// A connection of this node; the number is the caller's and unique over all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// One life of a client session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The client's random identity.
    pub client: ClientId,
    /// Its session.
    pub session: SessionEpoch,
}

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The connection that the reply goes to.
    pub connection: ConnectionId,
    /// The session that the quota is charged to.
    pub session: SessionKey,
    /// The request, as a cancel names it.
    pub request: RequestNumber,
}

/// A pending request on this shard. Never used twice, so a late result cannot meet another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// A request to admit.
#[derive(Clone, Debug)]
pub struct Admission<T> {
    /// The partition that it reads.
    pub partition: PartitionKey,
    /// Who asks.
    pub requester: Requester,
    /// The user of the session; the quota is charged to it, too.
    pub user: UserId,
    /// When it ends.
    pub deadlines: Deadlines,
    /// What it wants.
    pub request: T,
}

/// A pending request.
#[derive(Clone, Debug)]
pub struct Waiter<T> {
    /// The partition that it reads.
    pub partition: PartitionKey,
    /// Who asks.
    pub requester: Requester,
    /// When it ends.
    pub deadlines: Deadlines,
    /// What it wants.
    pub request: T,
    user: UserId,
    parked: Option<WakeAt>,
    /// Its request timeout was reported: it only waits to be finished.
    timed_out: bool,
}

/// The commit that can complete a parked read. Too low costs an evaluation that finds nothing; too high would sleep
/// through data, so the caller rounds down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeAt {
    /// Wake when the head reaches this offset.
    pub head: Offset,
    /// Wake when the partition's running total of committed bytes reaches this number, because the byte limit may be
    /// full. `None` when only the head counts.
    pub bytes_total: Option<u64>,
}

/// What ended a wait without a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// A parked read's wait is over: evaluate it a last time and answer. It is running now.
    Wait(WaiterId),
    /// The request's own timeout passed. Take it with [`Waiters::finish`] and refuse it with 57; store nothing.
    Request(WaiterId),
}

/// Why a request was not admitted. Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParkRefused {
    /// The shard is full.
    #[error("{max} deferred reads are pending on this shard; retry later")]
    Shard {
        /// The limit.
        max: usize,
    },
    /// The user is full: the rest of the shard is for others.
    #[error("{max} deferred reads of this user are pending on this shard; retry when one was answered")]
    User {
        /// The limit.
        max: usize,
    },
    /// The session is full.
    #[error("{max} deferred reads of this session are pending; retry when one was answered")]
    Session {
        /// The limit.
        max: usize,
    },
}

impl ParkRefused {
    /// The status that answers it.
    pub fn status(self) -> Status {
        Status::DeferredPollCapacityExceeded
    }
}

/// How many requests may be pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterLimits {
    /// On the shard.
    pub shard_max: usize,
    /// Of all sessions of one user.
    pub user_max: usize,
    /// Of one session.
    pub session_max: usize,
}

impl Default for WaiterLimits {
    fn default() -> Self {
        Self {
            shard_max: PENDING_PER_SHARD_MAX,
            user_max: PENDING_PER_SHARD_MAX,
            session_max: PENDING_PER_SESSION_MAX,
        }
    }
}

/// All pending deferred reads of one shard.
#[derive(Clone, Debug)]
pub struct Waiters<T> {
    limits: WaiterLimits,
    next_id: u64,
    waiters: BTreeMap<WaiterId, Waiter<T>>,
    index: Index,
}

impl<T> Waiters<T> {
    /// No request is pending.
    pub fn new(limits: WaiterLimits) -> Self {
        Self { limits, next_id: 0, waiters: BTreeMap::new(), index: Index::default() }
    }

    /// Takes a quota unit for a request, which is running from now on. The refused request comes back with the reason.
    pub fn admit(&mut self, admission: Admission<T>) -> Result<WaiterId, (T, ParkRefused)> {
        let Admission { partition, requester, user, deadlines, request } = admission;
        if self.waiters.len() >= self.limits.shard_max {
            return Err((request, ParkRefused::Shard { max: self.limits.shard_max }));
        }
        if self.index.of_user(user) >= self.limits.user_max {
            return Err((request, ParkRefused::User { max: self.limits.user_max }));
        }
        if self.index.of_session(requester.session) >= self.limits.session_max {
            return Err((request, ParkRefused::Session { max: self.limits.session_max }));
        }
        let id = WaiterId(self.next_id);
        self.next_id += 1;
        let waiter =
            Waiter { partition, requester, deadlines, request, user, parked: None, timed_out: false };
        self.index.insert(id, &waiter);
        self.waiters.insert(id, waiter);
        debug_assert!(invariants::within_limits(self));
        Ok(id)
    }

    /// Parks a running request until a commit reaches `wake` or its wait is over. `false` when it is gone, or when
    /// its request timeout was reported.
    ///
    /// The caller evaluates and parks in one turn, so no commit can fall between the two.
    pub fn park(&mut self, id: WaiterId, wake: WakeAt) -> bool {
        let Some(waiter) = self.waiters.get_mut(&id).filter(|waiter| !waiter.timed_out) else {
            return false;
        };
        self.index.unpark(id, waiter);
        waiter.parked = Some(wake);
        self.index.park(id, waiter);
        debug_assert!(invariants::within_limits(self));
        true
    }

    /// Takes the parked requests of a partition that its new head, or its new running total of committed bytes, can
    /// complete; at most `max`, the lowest thresholds first. They are running afterwards. Costs a lookup when there
    /// are none.
    pub fn take_satisfied(
        &mut self,
        partition: PartitionKey,
        head: Offset,
        bytes_total: u64,
        max: usize,
    ) -> Vec<WaiterId> {
        let ids = self.index.satisfied(partition, head, bytes_total, max);
        self.set_running(&ids);
        ids
    }

    /// Takes every parked request of a partition, because something other than a commit happened to it: a delete, a
    /// change of view, of ownership. They are running afterwards.
    pub fn take_partition(&mut self, partition: PartitionKey) -> Vec<WaiterId> {
        let ids = self.index.parked_of_partition(partition);
        self.set_running(&ids);
        ids
    }

    /// Every pending request of a partition, parked or running.
    pub fn of_partition(&self, partition: PartitionKey) -> Vec<WaiterId> {
        self.index.all_of_partition(partition)
    }

    /// The earliest moment at which [`Self::take_expired`] finds something.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.index.earliest()
    }

    /// Takes what is due at `now`, earliest first, at most `max`.
    ///
    /// A wait that ends while its read runs is not cut off: the read's result becomes the answer if it arrives before
    /// the request's timeout.
    pub fn take_expired(&mut self, now: Nanos, max: usize) -> Vec<Expired> {
        let mut expired = Vec::new();
        while expired.len() < max {
            let Some(id) = self.index.due(now) else { break };
            let waiter = self.waiters.get_mut(&id).expect("an indexed waiter exists");
            self.index.unpark(id, waiter);
            waiter.parked = None;
            if waiter.deadlines.request <= now {
                self.index.forget_deadline(id, waiter);
                waiter.timed_out = true;
                expired.push(Expired::Request(id));
            } else {
                expired.push(Expired::Wait(id));
            }
        }
        expired
    }

    /// A pending request.
    pub fn get(&self, id: WaiterId) -> Option<&Waiter<T>> {
        self.waiters.get(&id)
    }

    /// A pending request, to change what it wants.
    pub fn get_mut(&mut self, id: WaiterId) -> Option<&mut T> {
        self.waiters.get_mut(&id).map(|waiter| &mut waiter.request)
    }

    /// Removes a request that is about to be answered, and frees its quota unit. `None` when it is gone already: its
    /// result is late and must be dropped.
    pub fn finish(&mut self, id: WaiterId) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(&id)?;
        self.index.remove(id, &waiter);
        debug_assert!(invariants::within_limits(self));
        Some(waiter)
    }

    /// Removes the request that a cancel frame names: the same connection, session and number. `None` when there is no
    /// such request.
    pub fn cancel(&mut self, requester: Requester) -> Option<Waiter<T>> {
        let id = self.index.of_request(requester.connection, requester.request)?;
        if self.waiters.get(&id)?.requester != requester {
            return None;
        }
        self.finish(id)
    }

    /// Finds the request that a cancel frame names without removing it.
    pub fn find(&self, connection: ConnectionId, request: RequestNumber) -> Option<WaiterId> {
        self.index.of_request(connection, request)
    }

    /// Removes the requests of a connection that closed. No reply is owed.
    pub fn remove_connection(&mut self, connection: ConnectionId) -> Vec<Waiter<T>> {
        let ids = self.index.of_connection(connection);
        self.finish_all(ids)
    }

    /// Removes the requests of a session that ended. Each is owed [`Status::StaleClient`].
    pub fn remove_session(&mut self, session: SessionKey) -> Vec<Waiter<T>> {
        let ids = self.index.requests_of_session(session);
        self.finish_all(ids)
    }

    /// Removes the requests of a deleted partition. Each is owed [`Status::HistoryUnavailable`].
    pub fn remove_partition(&mut self, partition: PartitionKey) -> Vec<Waiter<T>> {
        let ids = self.index.all_of_partition(partition);
        self.finish_all(ids)
    }

    /// Removes the requests that something rare concerns, which no index lists. Looks at every pending request.
    pub fn remove_matching(&mut self, concerned: impl Fn(&Waiter<T>) -> bool) -> Vec<Waiter<T>> {
        let ids = self.waiters.iter().filter(|(_, waiter)| concerned(waiter)).map(|(id, _)| *id).collect();
        self.finish_all(ids)
    }

    /// Removes everything, for a shutdown. Each is owed [`Status::TransientNotAccepted`].
    pub fn drain(&mut self) -> Vec<Waiter<T>> {
        let ids = self.waiters.keys().copied().collect();
        self.finish_all(ids)
    }

    /// Pending requests, parked and running.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether none is pending.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Parked requests of a partition; 0 means that a commit has nothing to wake.
    pub fn parked(&self, partition: PartitionKey) -> usize {
        self.index.parked_of_partition(partition).len()
    }

    fn set_running(&mut self, ids: &[WaiterId]) {
        for id in ids {
            let waiter = self.waiters.get_mut(id).expect("an indexed waiter exists");
            self.index.unpark(*id, waiter);
            waiter.parked = None;
        }
        debug_assert!(invariants::within_limits(self));
    }

    fn finish_all(&mut self, ids: Vec<WaiterId>) -> Vec<Waiter<T>> {
        ids.into_iter().filter_map(|id| self.finish(id)).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&WaiterId, &Waiter<T>)> {
        self.waiters.iter()
    }

    pub(crate) fn index_is_exact(&self) -> bool {
        let mut rebuilt = Index::default();
        for (id, waiter) in self.iter() {
            rebuilt.insert(*id, waiter);
        }
        rebuilt.same_but_deadlines(&self.index)
    }

    pub(crate) fn limits(&self) -> WaiterLimits {
        self.limits
    }
}

impl<T> Waiter<T> {
    /// Whether it waits for a commit.
    pub fn is_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Whether its wait is over at `now`: whatever an evaluation finds is the answer.
    pub fn wait_is_over(&self, now: Nanos) -> bool {
        now >= self.deadlines.wait
    }

    /// Whether its request timeout passed at `now`: it may store nothing any more.
    pub fn request_is_over(&self, now: Nanos) -> bool {
        now >= self.deadlines.request
    }

    pub(crate) fn wake_at(&self) -> Option<WakeAt> {
        self.parked
    }

    /// The moment at which something must happen to it.
    pub(crate) fn deadline(&self) -> Nanos {
        match self.parked {
            Some(_) => self.deadlines.wait.min(self.deadlines.request),
            None => self.deadlines.request,
        }
    }
}
