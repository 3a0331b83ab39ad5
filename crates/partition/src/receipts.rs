//! What was answered to whom, so that a resend is answered again and never executed again.
//!
//! Receipts are made when an op is applied, so every replica has the same. A session keeps the newest few in each
//! partition. When a partition holds too many sessions, the one that was quiet longest is evicted and leaves a floor
//! behind: its requests at or below are refused, never repeated.
//!
//! Source: cluster specification, section 1.9.

use std::collections::BTreeMap;

use laneway_reads::SessionKey;
use laneway_wire::{Micros, RequestNumber, SessionEpoch, Status};

use super::codec::{DecodeError, Put, Reader};
use super::identity::{Admit, Identity, Receipt, ReceiptKind};
use super::lane_op::{put_session, take_session};

/// Receipts of one session in one partition: the last and three before it. Source: cluster specification, section 1.9.
pub const RECEIPTS_PER_SESSION: usize = 4;
/// Sessions with receipts in one partition unless configured otherwise.
pub const SESSIONS_MAX: usize = 4096;
/// A session that wrote within this time is not evicted: its client may still resend. Microseconds. Source: cluster
/// specification, section 1.9.
pub const YOUNG_US: u64 = 120_000_000;
/// Floors of evicted sessions, as a multiple of the sessions. A floor is 32 bytes and lives until its session ends.
const FLOORS_PER_SESSION: usize = 16;

/// The receipts of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipts {
    sessions_max: usize,
    /// Each in ascending order of the request, at least one.
    sessions: BTreeMap<SessionKey, Vec<Receipt>>,
    floors: BTreeMap<SessionKey, RequestNumber>,
    /// Floors below this session were dropped: a session up to it that is unknown here is refused.
    floor_session: SessionEpoch,
}

impl Receipts {
    /// No receipts yet.
    pub fn new(sessions_max: usize) -> Self {
        assert!(sessions_max > 0, "a partition must remember at least one session");
        Self {
            sessions_max,
            sessions: BTreeMap::new(),
            floors: BTreeMap::new(),
            floor_session: SessionEpoch(0),
        }
    }

    /// What to do with a request. `in_flight` is the number of requests that are proposed here: each may bring a new
    /// session.
    pub fn admit(&self, identity: &Identity, kind: ReceiptKind, now: Micros, in_flight: usize) -> Admit {
        let session = identity.session_key();
        let Some(receipts) = self.sessions.get(&session) else {
            return self.admit_session(session, identity.request, now, in_flight);
        };
        let found = receipts.iter().find(|receipt| receipt.request == identity.request);
        match found {
            // A number that was used for something else must not get the other's answer.
            Some(receipt) if receipt.kind != kind => Admit::Refuse(Status::InvalidCommand),
            Some(receipt) => Admit::Replay(*receipt),
            None if last(receipts).is_some_and(|last| identity.request > last.request) => Admit::New,
            None => Admit::Refuse(Status::RequestTooOld),
        }
    }

    fn admit_session(
        &self,
        session: SessionKey,
        request: RequestNumber,
        now: Micros,
        in_flight: usize,
    ) -> Admit {
        let evicted = match self.floors.get(&session) {
            Some(floor) => request <= *floor,
            None => session.session <= self.floor_session,
        };
        if evicted {
            return Admit::Refuse(Status::RequestTooOld);
        }
        let full = self.sessions.len() + in_flight >= self.sessions_max;
        if full && self.oldest().is_none_or(|(_, last)| is_young(last.timestamp, now)) {
            return Admit::Refuse(Status::TransientNotAccepted);
        }
        Admit::New
    }

    /// Keeps the receipt of an applied op. Returns the session that had to go for it.
    pub fn record(&mut self, session: SessionKey, receipt: Receipt) -> Option<SessionKey> {
        let mut evicted = None;
        if !self.sessions.contains_key(&session) && self.sessions.len() >= self.sessions_max {
            evicted = self.evict_oldest();
        }
        let receipts = self.sessions.entry(session).or_default();
        let place = receipts.partition_point(|other| other.request < receipt.request);
        if receipts.get(place).is_some_and(|other| other.request == receipt.request) {
            return evicted;
        }
        receipts.insert(place, receipt);
        if receipts.len() > RECEIPTS_PER_SESSION {
            receipts.remove(0);
        }
        evicted
    }

    /// The session ended for good.
    pub fn retire(&mut self, session: SessionKey) {
        self.sessions.remove(&session);
        self.floors.remove(&session);
    }

    /// Sessions with receipts or floors, in order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionKey> {
        let mut keys: Vec<SessionKey> = self.sessions.keys().chain(self.floors.keys()).copied().collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
    }

    /// Number of sessions with receipts.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether no session has receipts.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The session that was quiet longest. A scan: it is needed only when a new session meets a full table.
    fn oldest(&self) -> Option<(SessionKey, &Receipt)> {
        self.sessions
            .iter()
            .filter_map(|(session, receipts)| Some((*session, newest(receipts)?)))
            .min_by_key(|(session, newest)| (newest.op, *session))
    }

    fn evict_oldest(&mut self) -> Option<SessionKey> {
        let (session, _) = self.oldest()?;
        let receipts = self.sessions.remove(&session)?;
        let floor = last(&receipts)?.request;
        self.floors.insert(session, floor);
        if self.floors.len() > self.sessions_max.saturating_mul(FLOORS_PER_SESSION) {
            self.drop_oldest_floor();
        }
        Some(session)
    }

    /// A floor is dropped by refusing every unknown session of its age: too much is refused, nothing is repeated.
    fn drop_oldest_floor(&mut self) {
        let oldest = self.floors.keys().copied().min_by_key(|session| (session.session, session.client));
        if let Some(oldest) = oldest {
            self.floors.remove(&oldest);
            self.floor_session = self.floor_session.max(oldest.session);
        }
    }

    /// Appends `floor session u64`, `sessions u32` with `session 24, receipts u8, receipts`, `floors u32` with
    /// `session 24, request u64`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.floor_session.0);
        out.put_count(self.sessions.len());
        for (session, receipts) in &self.sessions {
            put_session(out, *session);
            out.put_u8(u8::try_from(receipts.len()).expect("a session keeps few receipts"));
            for receipt in receipts {
                receipt.encode(out);
            }
        }
        out.put_count(self.floors.len());
        for (session, floor) in &self.floors {
            put_session(out, *session);
            out.put_u64(floor.0);
        }
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>, sessions_max: usize) -> Result<Self, DecodeError> {
        let mut all = Self::new(sessions_max);
        all.floor_session = SessionEpoch(reader.u64()?);
        for _ in 0..reader.count(25 + Receipt::BYTES)? {
            let session = take_session(reader)?;
            let count = usize::from(reader.u8()?);
            if !(1..=RECEIPTS_PER_SESSION).contains(&count) {
                return Err(reader.range("receipts"));
            }
            let receipts = (0..count).map(|_| Receipt::decode(reader)).collect::<Result<Vec<_>, _>>()?;
            if !receipts.is_sorted_by(|a, b| a.request < b.request) {
                return Err(reader.range("receipt order"));
            }
            if all.sessions.insert(session, receipts).is_some() {
                return Err(reader.range("receipt session"));
            }
        }
        for _ in 0..reader.count(32)? {
            let session = take_session(reader)?;
            all.floors.insert(session, RequestNumber(reader.u64()?));
        }
        Ok(all)
    }
}

/// The receipt of the highest request.
fn last(receipts: &[Receipt]) -> Option<&Receipt> {
    receipts.last()
}

/// The receipt of the highest op: requests may be applied out of order.
fn newest(receipts: &[Receipt]) -> Option<&Receipt> {
    receipts.iter().max_by_key(|receipt| receipt.op)
}

/// Whether something last written at `then` may not be evicted at `now`.
pub(crate) fn is_young(then: Micros, now: Micros) -> bool {
    now.0.saturating_sub(then.0) < YOUNG_US
}

#[cfg(test)]
#[path = "receipts_tests.rs"]
mod tests;
