//! Clients: frames in, each checked once and sent where it is served.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use compio::net::TcpStream;
use laneway_transport::{FrameReader, Listener, OutFrame, ReadError, write_frames};
use laneway_wire::header::HeaderError;
use laneway_wire::{Code, Eviction, EvictionReason, Frame, Operation, RequestHeader, SessionEpoch, Status};

use crate::connections::{Binding, Connection};
use crate::message::{Message, ReplyTo};
use crate::reply::Echo;
use crate::shard::{Shard, yield_now};

mod fetch;
pub mod fetches;
pub mod login;
pub mod metadata;
mod partitions;
mod reads;
mod secrets;
mod snapshots;
mod stats;
mod streams;
mod users;

/// Largest frame of a connection that nobody signed in on: a login fits many times, a stranger reserves little.
const UNBOUND_FRAME_BYTES_MAX: usize = 16 * 1024;

/// Frames of one connection that one turn serves, so that others get their turn.
const FRAMES_PER_TURN_MAX: usize = 64;

/// What the reader does after a frame.
enum Step {
    /// Reads the next one.
    Next,
    /// Signs in first, so that what follows finds the session.
    Login(Frame),
    /// Attaches to a session first.
    Bind(Frame),
    /// Checks and hashes passwords first, so that what follows is ordered behind it.
    Passwords(ReplyTo, Binding, Operation, Frame),
    /// Ends the connection.
    Close,
}

/// Accepts connections until the listener is dropped with the task.
pub async fn accept(shard: Rc<Shard>, listener: Listener) {
    loop {
        let (stream, peer) = listener.accept().await;
        let open = shard.settings.connections.fetch_add(1, Ordering::Relaxed);
        if open >= shard.settings.connections_max {
            shard.settings.connections.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%peer, max = shard.settings.connections_max, "too many connections: closed at accept");
            continue;
        }
        let shard = shard.clone();
        compio::runtime::spawn(async move {
            let connections = shard.settings.connections.clone();
            serve(shard, stream, peer).await;
            connections.fetch_sub(1, Ordering::Relaxed);
        })
        .detach();
    }
}

/// Serves one connection until it ends.
async fn serve(shard: Rc<Shard>, stream: TcpStream, peer: SocketAddr) {
    let connection = shard.connections.borrow_mut().insert(stream.clone(), peer);
    tracing::debug!(%peer, client = connection.number(), "connected");
    let writer = {
        let (stream, connection) = (stream.clone(), connection.clone());
        compio::runtime::spawn(async move {
            // A client that is gone is noticed by the reader, too, and is no error of ours.
            let _ = write_frames(stream, &connection.outbox).await;
            connection.close();
        })
    };
    read_frames(&shard, &connection, stream).await;
    shard.leave_session(&connection);
    shard.connection_lost(&connection);
    connection.close();
    let _ = writer.await;
    shard.connections.borrow_mut().remove(connection.id);
    tracing::debug!(%peer, client = connection.number(), "disconnected");
}

async fn read_frames(shard: &Rc<Shard>, connection: &Rc<Connection>, stream: TcpStream) {
    let mut reader = FrameReader::new(stream, UNBOUND_FRAME_BYTES_MAX);
    let mut served = 0;
    loop {
        connection.room(&shard.settings.connection_limits).await;
        if connection.outbox.is_closed() {
            return;
        }
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(error @ ReadError::Frame(_)) => {
                tracing::info!(peer = %connection.peer, %error, "closing the connection");
                return connection.abort();
            }
            Err(ReadError::Io(_)) => return,
        };
        match shard.handle_frame(connection, frame) {
            Step::Next => {}
            Step::Login(frame) => {
                shard.login(connection, frame).await;
                reader.set_limit(frame_limit(shard, connection));
            }
            Step::Bind(frame) => {
                shard.bind_session(connection, &frame);
                reader.set_limit(frame_limit(shard, connection));
            }
            Step::Passwords(reply_to, binding, operation, frame) => {
                shard.serve_password_write(connection, reply_to, binding, operation, frame).await;
            }
            Step::Close => return connection.abort(),
        }
        shard.pump();
        served += 1;
        if served % FRAMES_PER_TURN_MAX == 0 {
            yield_now().await;
        }
    }
}

fn frame_limit(shard: &Shard, connection: &Connection) -> usize {
    match connection.binding() {
        Some(_) => shard.settings.frame_bytes_max,
        None => UNBOUND_FRAME_BYTES_MAX,
    }
}

impl Shard {
    fn handle_frame(self: &Rc<Self>, connection: &Rc<Connection>, frame: Frame) -> Step {
        let header = frame.header;
        let operation = match header.validate() {
            Ok(operation) => operation,
            Err(error) => return self.refuse_header(connection, &header, error),
        };
        match operation {
            Operation::Register => Step::Login(frame),
            Operation::NonReplicated => self.handle_read(connection, frame),
            operation => self.handle_write(connection, operation, frame),
        }
    }

    fn refuse_header(&self, connection: &Rc<Connection>, header: &RequestHeader, error: HeaderError) -> Step {
        match error.status() {
            Some(status) => {
                connection.outbox.push(Echo::new(header).refusal(status));
                Step::Next
            }
            None => {
                tracing::info!(peer = %connection.peer, %error, "closing the connection");
                Step::Close
            }
        }
    }

    /// A request that is not replicated: reads, polls, and what works without a session.
    fn handle_read(self: &Rc<Self>, connection: &Rc<Connection>, frame: Frame) -> Step {
        let header = frame.header;
        let echo = Echo::new(&header);
        let code = Code::from_number(header.code);
        match code {
            Some(Code::Ping) => {
                connection.outbox.push(echo.read(self.metadata().applied(), |_| {}));
                return Step::Next;
            }
            Some(Code::BindSession) => return Step::Bind(frame),
            Some(code) if code.is_legacy_login() => {
                connection.outbox.push(eviction(&header, EvictionReason::MalformedLogin));
                connection.close();
                return Step::Next;
            }
            _ => {}
        }
        let Some(binding) = connection.binding() else {
            connection.outbox.push(echo.refusal(Status::Unauthenticated));
            return Step::Next;
        };
        let Some(code) = code else {
            connection.outbox.push(echo.refusal(Status::InvalidCommand));
            return Step::Next;
        };
        if code == Code::CancelDeferredRequest {
            // It has no answer of its own, so one of another identity does nothing at all.
            if (header.client, header.session) == (binding.client, binding.session) {
                self.cancel(connection, &binding, &header);
            }
            return Step::Next;
        }
        self.catch_up();
        if let Err(status) = self.check_session(&header, &binding) {
            connection.outbox.push(echo.refusal(status));
            return Step::Next;
        }
        if header.minimum_metadata_op > self.metadata().applied() {
            connection.outbox.push(echo.refusal(Status::TransientNotAccepted));
            return Step::Next;
        }
        self.serve_read(connection, binding, code, frame);
        Step::Next
    }

    /// A replicated request.
    fn handle_write(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        operation: Operation,
        frame: Frame,
    ) -> Step {
        let header = frame.header;
        self.catch_up();
        let live = connection.binding().filter(|binding| self.check_session(&header, binding).is_ok());
        let Some(binding) = live else {
            let reason = self.session_reason(connection, &header);
            match reason {
                Some(reason) => {
                    connection.outbox.push(eviction(&header, reason));
                    connection.close();
                }
                None => connection.outbox.push(Echo::new(&header).refusal(Status::InvalidCommand)),
            }
            return Step::Next;
        };
        let reply_to = self.reply_to(connection, &header);
        connection.begin(header.request, frame.bytes);
        if !connection.user_is_within(&self.settings.user_limits) {
            self.refuse_here(reply_to, Status::TransientNotAccepted);
            return Step::Next;
        }
        if operation.is_partition() || operation == Operation::DeleteSegments {
            self.serve_partition_write(connection, reply_to, binding, operation, frame);
        } else if secrets::carries_password(operation) {
            return Step::Passwords(reply_to, binding, operation, frame);
        } else {
            self.serve_metadata_write(reply_to, binding, operation, frame);
        }
        Step::Next
    }

    /// Whether a request's identity is the connection's, and its session lives.
    fn check_session(&self, header: &RequestHeader, binding: &Binding) -> Result<(), Status> {
        if header.client != binding.client {
            return Err(Status::InvalidCommand);
        }
        if header.session != SessionEpoch(0) && header.session != binding.session {
            return Err(Status::StaleClient);
        }
        match self.metadata().sessions().live(binding.client, binding.session) {
            Some(_) => Ok(()),
            None => Err(Status::StaleClient),
        }
    }

    /// Why a replicated request without a live session ends the connection; none when it only names another client.
    fn session_reason(&self, connection: &Connection, header: &RequestHeader) -> Option<EvictionReason> {
        let Some(binding) = connection.binding() else { return Some(EvictionReason::NoSession) };
        if header.client != binding.client {
            return None;
        }
        match header.session < binding.session {
            true => Some(EvictionReason::SessionTooLow),
            false => Some(EvictionReason::NoSession),
        }
    }

    fn reply_to(&self, connection: &Connection, header: &RequestHeader) -> ReplyTo {
        ReplyTo { origin: self.settings.id, connection: connection.id, echo: Echo::new(header) }
    }

    /// Puts an answer into the outbox of a connection of this shard.
    pub(crate) fn deliver_here(self: &Rc<Self>, to: ReplyTo, frame: Option<OutFrame>) {
        let connection = self.connections.borrow().get(to.connection).cloned();
        let Some(connection) = connection else { return };
        connection.undefer(to.request());
        if to.echo.header().operation() == Some(Operation::Logout) && self.has_ended(&connection) {
            self.leave_session(&connection);
        }
        match frame {
            Some(frame) => connection.finish(to.request(), frame),
            None => connection.settle(to.request()),
        }
        let next = connection.progress.borrow_mut().leave(to.request());
        if let Some(next) = next {
            self.serve_next(&connection, next);
        }
    }

    /// Whether the session that a connection is bound to is over.
    fn has_ended(&self, connection: &Connection) -> bool {
        self.catch_up();
        let metadata = self.metadata();
        let live = |binding: Binding| metadata.sessions().live(binding.client, binding.session).is_some();
        connection.binding().is_some_and(|binding| !live(binding))
    }

    /// Evicts a connection of this shard.
    pub(crate) fn evict_here(&self, to: ReplyTo, reason: EvictionReason) {
        let connection = self.connections.borrow().get(to.connection).cloned();
        let Some(connection) = connection else { return };
        connection.finish(to.request(), eviction(to.echo.header(), reason));
        connection.close();
    }

    /// Refuses a counted request of this shard's connection.
    pub(crate) fn refuse_here(self: &Rc<Self>, to: ReplyTo, status: Status) {
        self.deliver_here(to, Some(to.echo.refusal(status)));
    }

    /// Drops the deferred reads of a connection that ended, on every shard that holds some.
    fn connection_lost(self: &Rc<Self>, connection: &Connection) {
        for fetch in connection.fetches.borrow().values() {
            fetch.cancel();
        }
        let mut shards = connection.take_deferring_shards();
        if !connection.fetches.borrow().is_empty() {
            // Any shard may run a read of a fetch.
            shards = self.shard_ids().collect();
        }
        for shard in shards {
            if shard == self.settings.id {
                self.owner.borrow_mut().handle_connection_lost(connection.id);
            } else {
                self.send(shard, laneway_mailbox::Class::Control, Message::ConnectionLost(connection.id));
            }
        }
        self.pump();
    }
}

/// The frame that ends a session binding.
pub fn eviction(header: &RequestHeader, reason: EvictionReason) -> OutFrame {
    OutFrame::whole(bytes::Bytes::copy_from_slice(&Eviction::new(header.client, reason).encode()))
}
