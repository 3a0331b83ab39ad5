//! How long a session lives that no connection is attached to. One deadline structure; no loop walks the sessions.

use std::collections::{BTreeMap, BTreeSet};

use laneway_metadata::SessionId;
use laneway_reads::Nanos;

/// Attachments and deadlines of all live sessions.
#[derive(Debug)]
pub struct Lifetimes {
    timeout_us: u64,
    attached: BTreeMap<SessionId, u32>,
    idle: BTreeMap<SessionId, Nanos>,
    deadlines: BTreeSet<(Nanos, SessionId)>,
}

impl Lifetimes {
    /// `timeout_us`: how long an unattached session lives, microseconds.
    pub fn new(timeout_us: u64) -> Self {
        Self { timeout_us, attached: BTreeMap::new(), idle: BTreeMap::new(), deadlines: BTreeSet::new() }
    }

    /// A session began, or was there when the node started: it is unattached until a connection joins.
    pub fn begin(&mut self, now: Nanos, session: SessionId) {
        if !self.attached.contains_key(&session) {
            self.wait_from(now, session);
        }
    }

    /// A connection joined a session.
    pub fn join(&mut self, session: SessionId) {
        *self.attached.entry(session).or_default() += 1;
        self.stop_waiting(session);
    }

    /// A connection left a session.
    pub fn leave(&mut self, now: Nanos, session: SessionId) {
        let Some(count) = self.attached.get_mut(&session) else { return };
        *count -= 1;
        if *count == 0 {
            self.attached.remove(&session);
            self.wait_from(now, session);
        }
    }

    /// A session ended.
    pub fn end(&mut self, session: SessionId) {
        self.attached.remove(&session);
        self.stop_waiting(session);
    }

    /// The earliest deadline.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Sessions whose time is over, at most `max`. They stay listed, one timeout later, until their end is applied.
    pub fn take_expired(&mut self, now: Nanos, max: usize) -> Vec<SessionId> {
        let due: Vec<SessionId> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .take(max)
            .map(|(_, session)| *session)
            .collect();
        for session in &due {
            self.stop_waiting(*session);
            self.wait_from(now, *session);
        }
        due
    }

    fn wait_from(&mut self, now: Nanos, session: SessionId) {
        let deadline = now.after_us(self.timeout_us.max(1));
        self.stop_waiting(session);
        self.idle.insert(session, deadline);
        self.deadlines.insert((deadline, session));
    }

    fn stop_waiting(&mut self, session: SessionId) {
        if let Some(deadline) = self.idle.remove(&session) {
            self.deadlines.remove(&(deadline, session));
        }
    }
}

#[cfg(test)]
mod tests {
    use laneway_wire::{ClientId, SessionEpoch};

    use super::*;

    fn session(number: u64) -> SessionId {
        SessionId { client: ClientId(u128::from(number)), epoch: SessionEpoch(number) }
    }

    #[test]
    fn attached_session_never_expires_and_expires_a_timeout_after_the_last_leaves() {
        let mut lifetimes = Lifetimes::new(10);
        lifetimes.begin(Nanos(0), session(1));
        lifetimes.join(session(1));
        lifetimes.join(session(1));
        assert_eq!(lifetimes.poll_timeout(), None);
        lifetimes.leave(Nanos(5_000), session(1));
        assert_eq!(lifetimes.poll_timeout(), None);
        lifetimes.leave(Nanos(7_000), session(1));
        assert_eq!(lifetimes.poll_timeout(), Some(Nanos(17_000)));
        assert_eq!(lifetimes.take_expired(Nanos(16_999), 8), []);
        assert_eq!(lifetimes.take_expired(Nanos(17_000), 8), [session(1)]);
        lifetimes.end(session(1));
        assert_eq!(lifetimes.poll_timeout(), None);
    }

    #[test]
    fn expired_session_is_named_again_when_its_end_did_not_commit() {
        let mut lifetimes = Lifetimes::new(10);
        lifetimes.begin(Nanos(0), session(1));
        lifetimes.begin(Nanos(1), session(2));
        assert_eq!(lifetimes.take_expired(Nanos(20_000), 1), [session(1)]);
        assert_eq!(lifetimes.take_expired(Nanos(20_000), 8), [session(2)]);
        assert_eq!(lifetimes.take_expired(Nanos(30_000), 8), [session(1), session(2)]);
    }
}
