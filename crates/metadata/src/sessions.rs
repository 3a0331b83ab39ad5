//! The client table: who is signed in, and what each session's latest requests answered. It makes metadata requests
//! take effect once, however often a client sends them.
//!
//! The table changes by applied ops only. A live session is never pushed out; a full table refuses new ones until an
//! ended session gives up its place. Source: cluster, sections 1.7 and 1.8; wire protocol, section 2.8.

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use laneway_wire::{ClientId, Micros, Op, RequestNumber, SessionEpoch, Status, UserId};
use rkyv::{Archive, Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::command::SessionId;
use crate::limits;
use crate::replies::CommittedReply;

/// SHA-256 of the bind secret of a session. `Debug` hides it.
#[derive(Clone, Copy, Archive, Serialize, Deserialize)]
pub struct Verifier(pub [u8; 32]);

impl PartialEq for Verifier {
    /// Takes the same time wherever the two differ.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Verifier {}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

/// Why a session ended. The change log reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub enum EndReason {
    /// The client signed out.
    Logout,
    /// Nobody used it for too long.
    Expired,
    /// Its user was deleted or made inactive.
    Revoked,
}

/// One session: created by a committed registration, ended by a committed logout, expiry or revocation. An ended one
/// stays for the sake of repeated requests until its place is needed.
#[derive(Clone, Debug)]
pub struct Session {
    /// The identity that the client chose.
    pub client: ClientId,
    /// The op of its registration.
    pub epoch: SessionEpoch,
    /// Whose session it is.
    pub user: UserId,
    /// Which user of that number: numbers are used again.
    pub user_created_at: Micros,
    /// Why it ended, once it has.
    pub ended: Option<EndReason>,
    pub(crate) verifier: Verifier,
    /// The op that last changed it: its registration, its latest request, or its end.
    pub(crate) latest_commit: Op,
    /// The latest committed replies, oldest first, at most [`limits::REPLIES_PER_SESSION`]. Their request numbers grow.
    pub(crate) replies: Vec<CommittedReply>,
}

impl Session {
    /// The highest committed request number; 0 before the first.
    pub fn watermark(&self) -> RequestNumber {
        self.replies.last().map_or(RequestNumber(0), |reply| reply.request)
    }

    /// Whether the secret behind this verifier belongs to the session. Takes the same time wherever the two differ.
    pub fn verifies(&self, verifier: &Verifier) -> bool {
        self.verifier == *verifier
    }

    /// Whether requests of it are served.
    pub fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    fn same_registration(&self, user: UserId, user_created_at: Micros, verifier: &Verifier) -> bool {
        self.user == user && self.user_created_at == user_created_at && self.verifies(verifier)
    }

    fn admit(&self, request: RequestNumber, request_checksum: u128) -> Admit {
        if let Some(reply) = self.replies.iter().find(|reply| reply.request == request) {
            // A client that sends no checksum is taken at its word; a different one is another request.
            return match request_checksum {
                0 => Admit::Replay(reply.clone()),
                checksum if checksum == reply.request_checksum => Admit::Replay(reply.clone()),
                _ => Admit::ChecksumMismatch,
            };
        }
        if !self.is_live() {
            return Admit::NoSession;
        }
        if request > self.watermark() {
            return Admit::New;
        }
        let oldest = self.replies.first().map_or(RequestNumber(0), |reply| reply.request);
        // Only while older replies may have been dropped, and only below the oldest one kept, can the request have
        // been executed. Anything else was overtaken: saying "applied" there would report success for nothing.
        match request.0 != 0 && request < oldest && self.replies.len() == limits::REPLIES_PER_SESSION {
            true => Admit::AlreadyApplied,
            false => Admit::TooOld,
        }
    }
}

/// What to do with a request of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Execute it.
    New,
    /// It was executed; answer this again.
    Replay(CommittedReply),
    /// It may have been executed and its reply is no longer held.
    AlreadyApplied,
    /// Its number was overtaken by a later request; it was not executed and never will be.
    TooOld,
    /// Its number belongs to another request. The client is wrong; never answer it with the other one's reply.
    ChecksumMismatch,
    /// The client has a newer session: evict the connection.
    StaleEpoch,
    /// No op ever created this session here: this node may be behind.
    UnknownEpoch,
    /// The client has no session: evict the connection.
    NoSession,
}

impl Admit {
    /// The status that refuses the request. None for what is not refused by a status: a new request, a repeated one, and
    /// the two that end the connection.
    pub fn status(&self) -> Option<Status> {
        match self {
            Admit::New | Admit::Replay(_) | Admit::StaleEpoch | Admit::NoSession => None,
            Admit::AlreadyApplied => Some(Status::RequestAlreadyApplied),
            Admit::TooOld => Some(Status::RequestTooOld),
            Admit::ChecksumMismatch => Some(Status::InvalidCommand),
            Admit::UnknownEpoch => Some(Status::TransientNotAccepted),
        }
    }
}

/// Why a registration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterRefusal {
    /// The client identity is taken: by another user, or by a session with another secret. Terminal (eviction 12).
    #[error("the client identity belongs to another session")]
    Taken,
    /// No place in the table, and no ended session to reclaim. Nothing happened; retry (58).
    #[error("the client table holds {max} live sessions")]
    TableFull {
        /// Its size.
        max: u32,
    },
    /// The user that was verified is gone or inactive. Terminal (eviction 9).
    #[error("the user is gone or inactive")]
    UserGone,
    /// The token that the user signed in with was deleted, or its time is over. Terminal (eviction 10).
    #[error("the token is gone or expired")]
    TokenGone,
}

/// The sessions of all clients.
#[derive(Clone, Debug)]
pub struct Sessions {
    by_client: OrdMap<ClientId, Arc<Session>>,
    /// The ended ones, by the op that last changed them: the first is reclaimed first.
    ended: OrdSet<(Op, ClientId)>,
    max: u32,
}

impl Sessions {
    /// An empty table of a fixed size.
    pub fn new(max: u32) -> Self {
        assert!(limits::SESSIONS_MAX.contains(&max), "checked where the number came in");
        Self { by_client: OrdMap::new(), ended: OrdSet::new(), max }
    }

    /// Most sessions, ended ones included.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Sessions in the table, ended ones included.
    pub fn count(&self) -> usize {
        self.by_client.len()
    }

    /// Sessions that are served.
    pub fn live_count(&self) -> usize {
        self.by_client.len() - self.ended.len()
    }

    /// The sessions, by client.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.by_client.values()
    }

    /// The session of a client, ended or not.
    pub fn session(&self, client: ClientId) -> Option<&Arc<Session>> {
        self.by_client.get(&client)
    }

    /// The live session of a client in exactly this epoch.
    pub fn live(&self, client: ClientId, epoch: SessionEpoch) -> Option<&Arc<Session>> {
        self.session(client).filter(|session| session.epoch == epoch && session.is_live())
    }

    /// The live sessions of a user.
    pub fn live_of(&self, user: UserId) -> impl Iterator<Item = SessionId> {
        let live = self.iter().filter(move |session| session.user == user && session.is_live());
        live.map(|session| SessionId { client: session.client, epoch: session.epoch })
    }

    /// Whether a connection may attach to a session. `epoch` 0 asks for the client's current one.
    ///
    /// Errors: [`Status::Unauthenticated`] without a live session of that epoch and secret; the answer does not tell
    /// which. The caller first waits until it has applied the epoch's op.
    pub fn bind(
        &self,
        client: ClientId,
        epoch: SessionEpoch,
        verifier: &Verifier,
    ) -> Result<&Arc<Session>, Status> {
        self.session(client)
            .filter(|session| session.verifies(verifier) && session.is_live())
            .filter(|session| epoch == SessionEpoch(0) || epoch == session.epoch)
            .ok_or(Status::Unauthenticated)
    }

    /// Decides what to do with a request. The epoch is checked before the number. The caller has checked that the same
    /// request is not already on its way through the log.
    pub fn admit(
        &self,
        client: ClientId,
        epoch: SessionEpoch,
        request: RequestNumber,
        request_checksum: u128,
    ) -> Admit {
        let Some(session) = self.session(client) else { return Admit::NoSession };
        match epoch.cmp(&session.epoch) {
            std::cmp::Ordering::Less => Admit::StaleEpoch,
            std::cmp::Ordering::Greater => Admit::UnknownEpoch,
            std::cmp::Ordering::Equal => session.admit(request, request_checksum),
        }
    }

    /// Registers a session, or finds the one that the same registration made before.
    pub(crate) fn register(
        &mut self,
        op: Op,
        client: ClientId,
        user: UserId,
        user_created_at: Micros,
        verifier: Verifier,
    ) -> Result<Registered, RegisterRefusal> {
        if let Some(session) = self.session(client).filter(|session| session.is_live()) {
            return match session.same_registration(user, user_created_at, &verifier) {
                true => Ok(Registered { epoch: session.epoch, is_new: false }),
                false => Err(RegisterRefusal::Taken),
            };
        }
        self.make_room_for(client)?;
        let epoch = SessionEpoch(op.0);
        assert!(epoch.0 < EPOCH_END, "producer ids leave 43 bits for the epoch");
        self.put(Session {
            client,
            epoch,
            user,
            user_created_at,
            ended: None,
            verifier,
            latest_commit: op,
            replies: Vec::new(),
        });
        Ok(Registered { epoch, is_new: true })
    }

    /// Keeps the reply of a request that [`Self::admit`] called new.
    pub(crate) fn record(&mut self, client: ClientId, reply: CommittedReply) {
        let mut session = self.copy_of(client);
        assert!(reply.request > session.watermark(), "only a new request is executed");
        if session.replies.len() == limits::REPLIES_PER_SESSION {
            session.replies.remove(0);
        }
        self.ended.remove(&(session.latest_commit, client));
        session.latest_commit = reply.op;
        session.replies.push(reply);
        self.put(session);
    }

    /// Ends one life of a client's session. Nothing happens when that life is over already.
    pub(crate) fn end(
        &mut self,
        op: Op,
        client: ClientId,
        epoch: SessionEpoch,
        reason: EndReason,
    ) -> Option<Arc<Session>> {
        self.live(client, epoch)?;
        let mut session = self.copy_of(client);
        session.ended = Some(reason);
        session.latest_commit = op;
        self.put(session);
        self.session(client).cloned()
    }

    /// Rebuilds the table of a snapshot; none unless clients ascend and fit.
    pub(crate) fn restore(max: u32, sessions: Vec<Session>) -> Option<Self> {
        let ascend = sessions.is_sorted_by(|left, right| left.client < right.client);
        if !ascend || !limits::SESSIONS_MAX.contains(&max) || sessions.len() > max as usize {
            return None;
        }
        let mut restored = Self::new(max);
        for session in sessions {
            let requests_grow = session.replies.is_sorted_by(|left, right| left.request < right.request);
            if session.replies.len() > limits::REPLIES_PER_SESSION || !requests_grow {
                return None;
            }
            restored.put(session);
        }
        Some(restored)
    }

    pub(crate) fn ended(&self) -> &OrdSet<(Op, ClientId)> {
        &self.ended
    }

    fn copy_of(&self, client: ClientId) -> Session {
        Session::clone(self.session(client).expect("the caller found the session"))
    }

    fn put(&mut self, session: Session) {
        if !session.is_live() {
            self.ended.insert((session.latest_commit, session.client));
        }
        self.by_client.insert(session.client, Arc::new(session));
    }

    /// Gives up the client's own ended session, or else the one that ended to be reclaimed first when the table is full.
    fn make_room_for(&mut self, client: ClientId) -> Result<(), RegisterRefusal> {
        let reclaimed = match self.session(client) {
            Some(own) => (own.latest_commit, client),
            None if self.by_client.len() < self.max as usize => return Ok(()),
            None => *self.ended.get_min().ok_or(RegisterRefusal::TableFull { max: self.max })?,
        };
        self.ended.remove(&reclaimed);
        self.by_client.remove(&reclaimed.1);
        Ok(())
    }
}

/// Epochs stay below this, so that clients can build producer ids from them. Source: wire protocol, section 9.
const EPOCH_END: u64 = 1 << 43;

/// The session of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) epoch: SessionEpoch,
    pub(crate) is_new: bool,
}

#[cfg(test)]
mod tests;
