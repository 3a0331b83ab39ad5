//! The orders in which waiters are found. Each is a sorted set that ends in the waiter's id, so insert and remove are
//! O(log n) and every answer has one order.

use super::*;

/// Every way to find a waiter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    by_partition: BTreeSet<(PartitionKey, WaiterId)>,
    by_head: BTreeSet<(PartitionKey, Offset, WaiterId)>,
    by_bytes: BTreeSet<(PartitionKey, u64, WaiterId)>,
    by_deadline: BTreeSet<(Nanos, WaiterId)>,
    by_request: BTreeSet<(ConnectionId, RequestNumber, WaiterId)>,
    by_session: BTreeMap<SessionKey, BTreeSet<WaiterId>>,
    by_user: BTreeMap<UserId, usize>,
}

const FIRST: WaiterId = WaiterId(0);
const LAST: WaiterId = WaiterId(u64::MAX);

impl Index {
    pub(super) fn insert<T>(&mut self, id: WaiterId, waiter: &Waiter<T>) {
        let Requester { connection, session, request } = waiter.requester;
        self.by_partition.insert((waiter.partition, id));
        self.by_request.insert((connection, request, id));
        self.by_session.entry(session).or_default().insert(id);
        *self.by_user.entry(waiter.user).or_default() += 1;
        self.by_deadline.insert((waiter.deadline(), id));
        self.insert_thresholds(id, waiter);
    }

    pub(super) fn remove<T>(&mut self, id: WaiterId, waiter: &Waiter<T>) {
        let Requester { connection, session, request } = waiter.requester;
        self.by_partition.remove(&(waiter.partition, id));
        self.by_request.remove(&(connection, request, id));
        if let Some(ids) = self.by_session.get_mut(&session) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_session.remove(&session);
            }
        }
        if let Some(count) = self.by_user.get_mut(&waiter.user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&waiter.user);
            }
        }
        self.by_deadline.remove(&(waiter.deadline(), id));
        self.remove_thresholds(id, waiter);
    }

    /// Called with the waiter's old state: takes it out of the orders that parking put it into, and leaves the
    /// deadline of a running request.
    pub(super) fn unpark<T>(&mut self, id: WaiterId, waiter: &Waiter<T>) {
        if waiter.wake_at().is_some() {
            self.by_deadline.remove(&(waiter.deadline(), id));
            self.by_deadline.insert((waiter.deadlines.request, id));
            self.remove_thresholds(id, waiter);
        }
    }

    /// Called with the waiter's new state, which is parked.
    pub(super) fn park<T>(&mut self, id: WaiterId, waiter: &Waiter<T>) {
        self.by_deadline.remove(&(waiter.deadlines.request, id));
        self.by_deadline.insert((waiter.deadline(), id));
        self.insert_thresholds(id, waiter);
    }

    /// A request whose timeout was reported is not reported again.
    pub(super) fn forget_deadline<T>(&mut self, id: WaiterId, waiter: &Waiter<T>) {
        self.by_deadline.remove(&(waiter.deadline(), id));
    }

    pub(super) fn satisfied(
        &self,
        partition: PartitionKey,
        head: Offset,
        bytes_total: u64,
        max: usize,
    ) -> Vec<WaiterId> {
        let by_head = self
            .by_head
            .range((partition, Offset(0), FIRST)..=(partition, head, LAST))
            .map(|(_, _, id)| *id)
            .take(max);
        let mut ids: Vec<WaiterId> = by_head.collect();
        let by_bytes = self.by_bytes.range((partition, 0, FIRST)..=(partition, bytes_total, LAST));
        for (_, _, id) in by_bytes {
            if ids.len() >= max {
                break;
            }
            // At most `max` ids are searched, a service turn's worth.
            if !ids.contains(id) {
                ids.push(*id);
            }
        }
        ids
    }

    pub(super) fn parked_of_partition(&self, partition: PartitionKey) -> Vec<WaiterId> {
        self.by_head
            .range((partition, Offset(0), FIRST)..=(partition, Offset(u64::MAX), LAST))
            .map(|(_, _, id)| *id)
            .collect()
    }

    pub(super) fn all_of_partition(&self, partition: PartitionKey) -> Vec<WaiterId> {
        self.by_partition.range((partition, FIRST)..=(partition, LAST)).map(|(_, id)| *id).collect()
    }

    pub(super) fn earliest(&self) -> Option<Nanos> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    pub(super) fn due(&self, now: Nanos) -> Option<WaiterId> {
        self.by_deadline.first().filter(|(deadline, _)| *deadline <= now).map(|(_, id)| *id)
    }

    pub(super) fn of_request(&self, connection: ConnectionId, request: RequestNumber) -> Option<WaiterId> {
        self.by_request
            .range((connection, request, FIRST)..=(connection, request, LAST))
            .map(|(_, _, id)| *id)
            .next()
    }

    pub(super) fn of_connection(&self, connection: ConnectionId) -> Vec<WaiterId> {
        self.by_request
            .range((connection, RequestNumber(0), FIRST)..=(connection, RequestNumber(u64::MAX), LAST))
            .map(|(_, _, id)| *id)
            .collect()
    }

    pub(super) fn of_session(&self, session: SessionKey) -> usize {
        self.by_session.get(&session).map_or(0, BTreeSet::len)
    }

    pub(super) fn of_user(&self, user: UserId) -> usize {
        self.by_user.get(&user).copied().unwrap_or(0)
    }

    pub(super) fn requests_of_session(&self, session: SessionKey) -> Vec<WaiterId> {
        self.by_session.get(&session).map(|ids| ids.iter().copied().collect()).unwrap_or_default()
    }

    /// Equality without the deadlines, which forget what was reported.
    pub(super) fn same_but_deadlines(&self, other: &Index) -> bool {
        self.by_partition == other.by_partition
            && self.by_head == other.by_head
            && self.by_bytes == other.by_bytes
            && self.by_request == other.by_request
            && self.by_session == other.by_session
            && self.by_user == other.by_user
            && other.by_deadline.is_subset(&self.by_deadline)
    }

    fn insert_thresholds<T>(&mut self, id: WaiterId, waiter: &Waiter<T>) {
        let Some(wake) = waiter.wake_at() else { return };
        self.by_head.insert((waiter.partition, wake.head, id));
        if let Some(bytes_total) = wake.bytes_total {
            self.by_bytes.insert((waiter.partition, bytes_total, id));
        }
    }

    fn remove_thresholds<T>(&mut self, id: WaiterId, waiter: &Waiter<T>) {
        let Some(wake) = waiter.wake_at() else { return };
        self.by_head.remove(&(waiter.partition, wake.head, id));
        if let Some(bytes_total) = wake.bytes_total {
            self.by_bytes.remove(&(waiter.partition, bytes_total, id));
        }
    }
}
