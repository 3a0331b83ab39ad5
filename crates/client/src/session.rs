//! The client's side of a session: identity, epoch, request numbers, metadata watermark, and what waits for an answer.
//!
//! Sans-IO. A driver asks for frames with [`Session::poll_transmit`], gives back what arrives with
//! [`Session::handle_frame`], and says when a link is lost. The core never reads a clock, draws a random number or
//! opens a socket: the driver gives it an [`Identity`] and decides when to retry.
//!
//! The life of a request: `submit` gives it a number and a frame, `poll_transmit` hands out the frame, a reply ends it.
//! If the link dies in between, the same bytes go out again once the session is bound to a new link, so the broker can
//! tell the repetition from a new request. If the session itself dies, a change that was sent ends as
//! [`ClientError::Uncertain`]: nobody knows whether it was made.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use laneway_wire::reply;
use laneway_wire::request::Request;
use laneway_wire::{
    ClientId, Code, FRAME_BYTES_MAX, HEADER_BYTES, Op, Operation, PartitionContext, ReplyHeader,
    RequestHeader, RequestNumber, ServerFrame, SessionEpoch, Status,
};

use crate::error::{ClientError, action};
use crate::handshake::{self, Credentials, Identity, SignedIn};

/// Requests that may wait for an answer on one connection. Source: wire protocol, section 2.9.
pub const PENDING_MAX: usize = 256;

/// A request before it has a number: its command, the partition it means, and its frame with room for the header.
#[derive(Debug)]
pub struct Call {
    code: Code,
    context: PartitionContext,
    frame: BytesMut,
}

impl Call {
    /// A call without a body yet; `body_bytes` is how many are about to follow.
    pub fn new(code: Code, body_bytes: usize) -> Self {
        let mut frame = BytesMut::with_capacity(HEADER_BYTES + body_bytes);
        frame.resize(HEADER_BYTES, 0);
        Self { code, context: PartitionContext::default(), frame }
    }

    /// The partition that the call means. Source: wire protocol, section 3.8.
    pub fn with_context(mut self, context: PartitionContext) -> Self {
        self.context = context;
        self
    }

    /// A call of the wire's own request types.
    pub fn of<R: Request>(request: &R) -> Result<Self, ClientError> {
        let mut call = Self::new(R::CODE, 0);
        request.encode(call.body())?;
        Ok(call)
    }

    /// A call whose frame is complete but for its header.
    pub fn from_frame(code: Code, frame: BytesMut) -> Self {
        assert!(frame.len() >= HEADER_BYTES, "a frame starts with room for its header");
        Self { code, context: PartitionContext::default(), frame }
    }

    /// The frame: room for the header, then the body.
    pub fn into_frame(self) -> BytesMut {
        self.frame
    }

    /// Where the body is appended.
    pub fn body(&mut self) -> &mut BytesMut {
        &mut self.frame
    }

    /// The command.
    pub fn code(&self) -> Code {
        self.code
    }
}

/// The successful answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The header, checked against the request.
    pub header: ReplyHeader,
    /// The payload, behind the result section where the operation has one.
    pub payload: Bytes,
}

/// What became of a request.
#[derive(Debug)]
pub enum Event {
    /// The session is bound to the link; pending requests go out again by themselves.
    Bound(SignedIn),
    /// Registration or binding failed. A session that the broker no longer knows is reset: register again.
    NotBound(ClientError),
    /// The request is over.
    Done(RequestNumber, Result<Answer, ClientError>),
    /// The broker asks to wait a moment. Either [`Session::resend`] or [`Session::abandon`] the request.
    Retry(RequestNumber, Status),
    /// The broker ended the binding of this link: drop it and bind again.
    Evicted(ClientError),
    /// An answer nobody waits for any more.
    Unclaimed,
}

#[derive(Debug)]
struct Pending {
    code: Code,
    header: RequestHeader,
    frame: Bytes,
    /// Written to a link that may have delivered it.
    sent: bool,
    /// An earlier attempt has an unknown outcome, so only a committed answer proves anything.
    uncertain: bool,
}

#[derive(Debug)]
enum Handshake {
    Register,
    Bind { session: SessionEpoch },
}

/// One logical session. Lives as long as the client; one link at a time carries it.
#[derive(Debug)]
pub struct Session {
    identity: Identity,
    epoch: Option<SessionEpoch>,
    last_request: u64,
    watermark: Op,
    bound: bool,
    handshake: Option<(Handshake, RequestHeader)>,
    /// A handshake frame goes before everything else and alone.
    handshake_frame: Option<Bytes>,
    pending: BTreeMap<RequestNumber, Pending>,
    outbox: VecDeque<RequestNumber>,
}

impl Session {
    /// A session that is not registered yet.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            epoch: None,
            last_request: 0,
            watermark: Op(0),
            bound: false,
            handshake: None,
            handshake_frame: None,
            pending: BTreeMap::new(),
            outbox: VecDeque::new(),
        }
    }

    /// Whether the session lives on the broker, as far as this side knows.
    pub fn is_registered(&self) -> bool {
        self.epoch.is_some()
    }

    /// Whether the current link carries the session.
    pub fn is_bound(&self) -> bool {
        self.bound
    }

    /// The session epoch, once registered.
    pub fn epoch(&self) -> Option<SessionEpoch> {
        self.epoch
    }

    /// The client id of the session.
    pub fn client(&self) -> ClientId {
        self.identity.client
    }

    /// Highest metadata op that the broker told this session.
    pub fn watermark(&self) -> Op {
        self.watermark
    }

    /// Requests that wait for an answer.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Asks for a registration. The same bytes while the identity is the same, so a lost answer is harmless.
    pub fn register(&mut self, credentials: &Credentials) -> Result<(), ClientError> {
        let mut frame = BytesMut::new();
        frame.resize(HEADER_BYTES, 0);
        handshake::register(&self.identity, credentials).encode(&mut frame)?;
        let mut header = self.header(Operation::Register, frame.len());
        header.request_checksum = self.identity.request_checksum(RequestNumber(0));
        self.start_handshake(Handshake::Register, header, frame);
        Ok(())
    }

    /// Asks for this link to carry the registered session.
    pub fn bind(&mut self) -> Result<(), ClientError> {
        let session = self.epoch.ok_or(ClientError::NotLoggedIn)?;
        let mut frame = BytesMut::new();
        frame.resize(HEADER_BYTES, 0);
        handshake::bind(&self.identity, session, self.watermark).encode(&mut frame)?;
        let request = self.next_number();
        let mut header = self.header(Operation::NonReplicated, frame.len());
        header.code = Code::BindSession.number();
        header.session = session;
        header.request = request;
        header.minimum_metadata_op = self.watermark;
        self.start_handshake(Handshake::Bind { session }, header, frame);
        Ok(())
    }

    /// Gives a call its number and queues its frame. `Ping` needs no session; everything else does.
    pub fn submit(&mut self, call: Call) -> Result<RequestNumber, ClientError> {
        if self.pending.len() >= PENDING_MAX {
            return Err(ClientError::TooManyPending { max: PENDING_MAX });
        }
        let Call { code, context, mut frame } = call;
        if frame.len() > FRAME_BYTES_MAX {
            return Err(ClientError::TooLarge { code, bytes: frame.len() });
        }
        let operation = Operation::for_code(code);
        let number = match self.epoch {
            Some(_) => self.next_number(),
            // At most one unbound request is in flight, under number 0.
            None if code == Code::Ping && self.pending.is_empty() => RequestNumber(0),
            None => return Err(ClientError::NotLoggedIn),
        };
        let mut header = self.header(operation, frame.len());
        header.request = number;
        header.session = self.epoch.unwrap_or_default();
        if operation.is_metadata() || operation.is_session() || operation == Operation::DeleteSegments {
            header.request_checksum = self.identity.request_checksum(number);
        }
        if operation == Operation::NonReplicated {
            header.code = code.number();
            header.minimum_metadata_op = self.watermark;
        }
        if context != PartitionContext::default() {
            header.partition_incarnation = context.incarnation;
            header.owner_generation = context.owner_generation;
            header.minimum_metadata_op = header.minimum_metadata_op.max(context.metadata_op);
        }
        write_header(&header, &mut frame);
        let pending = Pending { code, header, frame: frame.freeze(), sent: false, uncertain: false };
        self.pending.insert(number, pending);
        self.outbox.push_back(number);
        Ok(number)
    }

    /// The next frame to write, whole and in order. `None`: nothing to write on this link now.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        if let Some(frame) = self.handshake_frame.take() {
            return Some(frame);
        }
        // While a handshake is under way only its answer can be expected, and without a session only a ping.
        if self.handshake.is_some() || (self.epoch.is_some() && !self.bound) {
            return None;
        }
        loop {
            let number = self.outbox.pop_front()?;
            if let Some(pending) = self.pending.get_mut(&number) {
                pending.sent = true;
                return Some(pending.frame.clone());
            }
        }
    }

    /// Takes a frame from the broker. An error means that the link must be dropped, as after a lost link.
    pub fn handle_frame(&mut self, frame: ServerFrame) -> Result<Event, ClientError> {
        match frame {
            ServerFrame::Eviction(eviction) => Ok(self.handle_eviction(&eviction)),
            ServerFrame::Reply { header, body } => self.handle_reply(header, body.freeze()),
        }
    }

    /// The link is gone. What was sent and not answered may have been done; everything pending goes out again once the
    /// session is bound to another link.
    pub fn handle_link_lost(&mut self) {
        self.bound = false;
        self.handshake = None;
        self.handshake_frame = None;
        for pending in self.pending.values_mut() {
            pending.uncertain |= pending.sent && pending.header.operation() != Some(Operation::NonReplicated);
            pending.sent = false;
        }
        self.outbox = self.pending.keys().copied().collect();
    }

    /// Forgets the session and takes another identity. Ends every pending request: a change that may have been made is
    /// [`ClientError::Uncertain`], the rest [`ClientError::SessionLost`].
    pub fn reset(&mut self, identity: Identity) -> Vec<(RequestNumber, ClientError)> {
        self.handle_link_lost();
        self.identity = identity;
        self.epoch = None;
        self.outbox.clear();
        let pending = std::mem::take(&mut self.pending);
        pending.into_iter().map(|(number, pending)| (number, lost_session(&pending))).collect()
    }

    /// Sends the same bytes again, after [`Event::Retry`].
    pub fn resend(&mut self, number: RequestNumber) {
        if self.pending.contains_key(&number) && !self.outbox.contains(&number) {
            self.outbox.push_back(number);
        }
    }

    /// Stops waiting for a request. The error says whether it may have been done; `status` is the last refusal, if any.
    pub fn abandon(&mut self, number: RequestNumber, status: Option<Status>) -> Option<ClientError> {
        let pending = self.pending.remove(&number)?;
        let code = pending.code;
        let is_change = pending.header.operation() != Some(Operation::NonReplicated);
        Some(match status {
            Some(status) if !pending.uncertain => ClientError::Refused { code, status },
            None if !pending.sent && !pending.uncertain => {
                ClientError::Refused { code, status: Status::TransientNotAccepted }
            }
            _ if is_change => ClientError::Uncertain { code },
            _ => ClientError::Refused { code, status: status.unwrap_or(Status::TransientNotCommitted) },
        })
    }

    fn start_handshake(&mut self, handshake: Handshake, header: RequestHeader, mut frame: BytesMut) {
        write_header(&header, &mut frame);
        self.bound = false;
        self.handshake = Some((handshake, header));
        self.handshake_frame = Some(frame.freeze());
    }

    fn handle_reply(&mut self, header: ReplyHeader, body: Bytes) -> Result<Event, ClientError> {
        if let Some((handshake, request)) = self.handshake.take() {
            if header.request == request.request {
                return self.handle_handshake(handshake, &request, header, body);
            }
            self.handshake = Some((handshake, request));
        }
        let Some(pending) = self.pending.get_mut(&header.request) else { return Ok(Event::Unclaimed) };
        let operation = header.operation().ok_or_else(|| ClientError::Protocol {
            what: format!("operation {} in a reply", header.operation),
        })?;
        let request_operation = operation.request_operation();
        if request_operation != Operation::NonReplicated && !request_operation.is_partition() {
            self.watermark = self.watermark.max(header.commit);
        }
        let number = header.request;
        let code = pending.code;
        let status = header.status();
        if !status.is_ok() {
            return Ok(self.handle_refusal(number, status));
        }
        header.validate_for(&pending.header).map_err(|error| ClientError::Protocol {
            what: format!("answer to the request to {}: {error}", action(code)),
        })?;
        let (result, payload) = split_result(operation, body)?;
        if !result.is_ok() {
            return Ok(self.handle_refusal(number, result));
        }
        let is_change = request_operation.is_replicated() && !request_operation.is_session();
        if is_change && pending.uncertain && !header.is_committed() {
            // An earlier attempt may have been applied; a plain OK does not prove that this answer speaks of it.
            return Ok(Event::Retry(number, Status::TransientNotCommitted));
        }
        self.pending.remove(&number);
        if request_operation == Operation::Logout {
            self.bound = false;
            self.epoch = None;
        }
        Ok(Event::Done(number, Ok(Answer { header, payload })))
    }

    fn handle_refusal(&mut self, number: RequestNumber, status: Status) -> Event {
        let Some(pending) = self.pending.get_mut(&number) else { return Event::Unclaimed };
        let is_change = pending.header.operation() != Some(Operation::NonReplicated);
        match status {
            Status::TransientNotCommitted | Status::ShardCommunicationError if is_change => {
                pending.uncertain = true;
                Event::Retry(number, status)
            }
            Status::TransientNotCommitted
            | Status::TransientNotAccepted
            | Status::NotPrimary
            | Status::DeferredPollCapacityExceeded => Event::Retry(number, status),
            _ => {
                let code = pending.code;
                self.pending.remove(&number);
                Event::Done(number, Err(ClientError::Refused { code, status }))
            }
        }
    }

    fn handle_handshake(
        &mut self,
        handshake: Handshake,
        request: &RequestHeader,
        header: ReplyHeader,
        body: Bytes,
    ) -> Result<Event, ClientError> {
        let code = match handshake {
            Handshake::Register => Code::LoginRegister,
            Handshake::Bind { .. } => Code::BindSession,
        };
        let mut status = header.status();
        let mut payload = Bytes::new();
        if status.is_ok() {
            header.validate_for(request).map_err(|error| ClientError::Protocol {
                what: format!("answer to the request to {}: {error}", action(code)),
            })?;
            (status, payload) = match handshake {
                Handshake::Register => split_result(Operation::Register, body)?,
                Handshake::Bind { .. } => (Status::Ok, body),
            };
        }
        if !status.is_ok() {
            return Ok(self.refused_handshake(&handshake, code, status));
        }
        let signed_in = SignedIn::parse(&payload)?;
        match handshake {
            Handshake::Register if header.commit.0 < signed_in.session.0 => {
                return Err(ClientError::Protocol { what: "a registration commits before its epoch".into() });
            }
            Handshake::Bind { session } if session != signed_in.session => {
                return Err(ClientError::Protocol {
                    what: "the bind was answered for another session".into(),
                });
            }
            Handshake::Register => self.watermark = self.watermark.max(header.commit),
            Handshake::Bind { .. } => {}
        }
        self.epoch = Some(signed_in.session);
        self.bound = true;
        Ok(Event::Bound(signed_in))
    }

    fn refused_handshake(&mut self, handshake: &Handshake, code: Code, status: Status) -> Event {
        let dead = matches!(status, Status::Unauthenticated | Status::TransientNotCommitted);
        if matches!(handshake, Handshake::Bind { .. }) && dead {
            return Event::NotBound(ClientError::SessionLost { code });
        }
        Event::NotBound(ClientError::Refused { code, status })
    }

    fn handle_eviction(&mut self, eviction: &laneway_wire::Eviction) -> Event {
        let code = match &self.handshake {
            Some((Handshake::Register, _)) => Code::LoginRegister,
            Some((Handshake::Bind { .. }, _)) => Code::BindSession,
            None => {
                self.pending.values().find(|pending| pending.sent).map_or(Code::Ping, |pending| pending.code)
            }
        };
        let status = eviction.reason.status();
        let error = match status {
            Status::IncompatibleProtocolVersion => ClientError::Incompatible { window: eviction.window },
            status => ClientError::Refused { code, status },
        };
        match self.handshake.take() {
            Some(_) => Event::NotBound(error),
            None => Event::Evicted(error),
        }
    }

    fn header(&self, operation: Operation, frame_bytes: usize) -> RequestHeader {
        RequestHeader::new(operation, self.identity.client, frame_bytes - HEADER_BYTES)
    }

    fn next_number(&mut self) -> RequestNumber {
        self.last_request = self.last_request.checked_add(1).expect("a session never makes 2^64 requests");
        RequestNumber(self.last_request)
    }
}

/// What a pending request ends as when its session is gone.
fn lost_session(pending: &Pending) -> ClientError {
    let code = pending.code;
    if pending.uncertain { ClientError::Uncertain { code } } else { ClientError::SessionLost { code } }
}

fn write_header(header: &RequestHeader, frame: &mut BytesMut) {
    let bytes = header.encode();
    frame.get_mut(..HEADER_BYTES).expect("a frame starts with room for its header").copy_from_slice(&bytes);
}

/// Takes the result section off a reply that has one. Source: wire protocol, section 1.8.
fn split_result(operation: Operation, body: Bytes) -> Result<(Status, Bytes), ClientError> {
    if !operation.is_result_framed() {
        return Ok((Status::Ok, body));
    }
    let (status, payload) = reply::split_result(&body)?;
    let payload = body.slice_ref(payload);
    Ok((status, payload))
}

#[cfg(test)]
mod tests;
