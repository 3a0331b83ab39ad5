//! What one user may hold, so that no tenant starves another: connections on the node, and requests that are open on one
//! shard. Who is above a budget is refused with a status that clients retry; nothing happened then.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use laneway_wire::UserId;

/// Budgets of one user on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// Open requests of all its connections.
    pub requests_max: usize,
    /// Bytes of their frames. One request is always taken, however large.
    pub bytes_max: usize,
}

/// What a user holds on one shard. Shared by its connections there.
#[derive(Debug, Default)]
pub struct UserUse {
    requests: Cell<usize>,
    bytes: Cell<usize>,
}

impl UserUse {
    /// Whether what is open, the newest request included, is within the budget.
    pub fn is_within(&self, limits: &UserLimits) -> bool {
        let (requests, bytes) = (self.requests.get(), self.bytes.get());
        requests <= limits.requests_max && (requests <= 1 || bytes <= limits.bytes_max)
    }
}

/// A request that counts for its user until it is dropped: with its answer, or with its connection.
#[derive(Debug)]
pub struct UserCharge {
    of: Rc<UserUse>,
    bytes: usize,
}

impl UserCharge {
    /// Counts a request with the bytes of its frame.
    pub fn new(of: Rc<UserUse>, bytes: usize) -> Self {
        of.requests.set(of.requests.get() + 1);
        of.bytes.set(of.bytes.get() + bytes);
        Self { of, bytes }
    }
}

impl Drop for UserCharge {
    fn drop(&mut self) {
        self.of.requests.set(self.of.requests.get() - 1);
        self.of.bytes.set(self.of.bytes.get() - self.bytes);
    }
}

/// The users that have a connection on a shard.
#[derive(Debug, Default)]
pub struct Users(BTreeMap<UserId, Rc<UserUse>>);

impl Users {
    /// What a user holds. Users that are gone are forgotten on the way.
    pub fn of(&mut self, user: UserId) -> Rc<UserUse> {
        self.0.retain(|known, use_of| *known == user || Rc::strong_count(use_of) > 1);
        self.0.entry(user).or_default().clone()
    }
}

/// Signed-in connections of each user on the node. Looked at when somebody signs in or leaves, never by a request.
#[derive(Clone, Debug)]
pub struct UserConnections {
    max: u32,
    open: Arc<Mutex<BTreeMap<UserId, u32>>>,
}

impl UserConnections {
    /// At most `max` for each user.
    pub fn new(max: u32) -> Self {
        Self { max, open: Arc::default() }
    }

    /// Counts a connection; false when the user has as many as it may.
    pub fn join(&self, user: UserId) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(user).or_default();
        let joined = *count < self.max;
        *count += u32::from(joined);
        joined
    }

    /// A connection that was counted is gone.
    pub fn leave(&self, user: UserId) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_within_its_budget_again_when_something_ends() {
        let limits = UserLimits { requests_max: 2, bytes_max: 100 };
        let mut users = Users::default();
        let first = UserCharge::new(users.of(UserId(1)), 500);
        assert!(users.of(UserId(1)).is_within(&limits), "one request is always taken");
        let second = UserCharge::new(users.of(UserId(1)), 1);
        assert!(!users.of(UserId(1)).is_within(&limits), "too many bytes");
        assert!(users.of(UserId(2)).is_within(&limits), "of one user only");
        drop(first);
        let third = UserCharge::new(users.of(UserId(1)), 1);
        assert!(users.of(UserId(1)).is_within(&limits));
        let fourth = UserCharge::new(users.of(UserId(1)), 1);
        assert!(!users.of(UserId(1)).is_within(&limits), "too many requests");
        drop((second, third, fourth));
        let of = users.of(UserId(1));
        assert_eq!((of.requests.get(), of.bytes.get()), (0, 0));
    }

    #[test]
    fn users_without_connections_are_forgotten() {
        let mut users = Users::default();
        let held = users.of(UserId(1));
        for user in 2..100 {
            users.of(UserId(user));
        }
        assert_eq!(users.0.len(), 2, "the one that is held and the newest");
        drop(held);
        users.of(UserId(100));
        assert_eq!(users.0.len(), 1);
    }

    #[test]
    fn connections_of_a_user_are_counted_over_the_node() {
        let connections = UserConnections::new(2);
        let elsewhere = connections.clone();
        assert!(connections.join(UserId(1)) && elsewhere.join(UserId(1)));
        assert!(!connections.join(UserId(1)) && connections.join(UserId(2)));
        elsewhere.leave(UserId(1));
        assert!(connections.join(UserId(1)));
        for _ in 0..5 {
            connections.leave(UserId(1));
        }
        assert!(!connections.open.lock().unwrap().contains_key(&UserId(1)));
    }
}
