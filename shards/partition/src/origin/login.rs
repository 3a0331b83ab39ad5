//! Signing in, attaching to a session, and leaving it.

use std::rc::Rc;

use laneway_mailbox::Class;
use laneway_metadata::sessions::{RegisterRefusal, Verifier};
use laneway_metadata::users::UserStatus;
use laneway_metadata::{Answer, Register, SessionId, TokenHash, limits};
use laneway_shard_metadata::Verdict;
use laneway_transport::OutFrame;
use laneway_wire::reply::{Record, Registered, put_success};
use laneway_wire::request::{
    BindSecret, BindSession, Login, LoginRegister, LoginRegisterWithPat, VersionPrefix,
};
use laneway_wire::{
    ClientId, Eviction, EvictionReason, Frame, Micros, Op, ProtocolVersion, ProtocolWindow, RequestHeader,
    SessionEpoch, Status, UserId,
};
use sha2::{Digest, Sha256};

use super::eviction;
use crate::clock;
use crate::connections::{Binding, Connection};
use crate::damping::Source;
use crate::message::{self, Message, Question, ShardId};
use crate::passwords::{Checked, Guess};
use crate::reply::Echo;
use crate::secret::Secret;
use crate::shard::Shard;

/// Version of the broker that clients are told.
pub const SERVER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Most bytes of a personal access token that are looked at. Source: resources, section 3.
const TOKEN_BYTES_MAX: usize = 100;

/// Why a sign-in ends the connection, or has to be tried again.
enum Refused {
    /// The connection ends.
    Evict(EvictionReason),
    /// Nothing happened.
    Retry,
}

impl Shard {
    /// Serves a registration. The connection's next frame waits for it.
    pub(super) async fn login(self: &Rc<Self>, connection: &Rc<Connection>, frame: Frame) {
        let header = frame.header;
        let version = match gate(&header, &frame.body) {
            Ok(version) => version,
            Err(evict) => {
                connection.outbox.push(evict);
                return connection.close();
            }
        };
        let answer = match Login::parse(&frame.body) {
            _ if self.is_stopping() => Err(Refused::Retry),
            Ok(login) => self.sign_in(connection, &header, &login).await,
            Err(_) => Err(Refused::Evict(EvictionReason::MalformedLogin)),
        };
        match answer {
            Ok((session, user)) => {
                let binding = Binding { client: header.client, session, user, protocol: version };
                let frame = match self.attach(connection, binding) {
                    Ok(()) => registered(&header, &binding),
                    Err(status) => Echo::new(&header).rejection(status),
                };
                connection.outbox.push(frame);
            }
            Err(Refused::Retry) => {
                connection.outbox.push(Echo::new(&header).rejection(Status::TransientNotAccepted));
            }
            Err(Refused::Evict(reason)) => {
                tracing::info!(peer = %connection.peer, ?reason, "sign-in refused");
                connection.outbox.push(eviction(&header, reason));
                connection.close();
            }
        }
    }

    async fn sign_in(
        self: &Rc<Self>,
        connection: &Connection,
        header: &RequestHeader,
        login: &Login<'_>,
    ) -> Result<(SessionEpoch, UserId), Refused> {
        // Whoever was told of a new password or token finds it.
        self.catch_up();
        let (user, user_created_at, token) = match login {
            Login::Password(login) => {
                let (user, created_at) = self.verify(connection, login).await?;
                (user, created_at, None)
            }
            Login::Token(login) => self.recognise(login)?,
        };
        let verifier = verifier(&login.bind_secret());
        let register = Register { client: header.client, user, user_created_at, verifier, token };
        let answer = self.ask(ShardId(0), Question::Register(register)).await;
        let Some(message::Answer::Registered(verdict)) = answer else { return Err(Refused::Retry) };
        match verdict {
            Verdict::Committed { answer: Answer::Registered { session, user, .. }, .. } => {
                Ok((session, user))
            }
            Verdict::Committed { answer: Answer::NotRegistered(refusal), .. } => Err(match refusal {
                RegisterRefusal::Taken => Refused::Evict(EvictionReason::SessionError),
                RegisterRefusal::TableFull { .. } => Refused::Retry,
                RegisterRefusal::UserGone => Refused::Evict(EvictionReason::InvalidCredentials),
                RegisterRefusal::TokenGone => Refused::Evict(EvictionReason::InvalidToken),
            }),
            Verdict::Committed { .. } | Verdict::NoSession | Verdict::StaleEpoch => {
                Err(Refused::Evict(EvictionReason::SessionError))
            }
            Verdict::Refused(_) => Err(Refused::Retry),
        }
    }

    /// Checks name and password. One answer, and the same time, for every way to be wrong.
    async fn verify(
        &self,
        connection: &Connection,
        login: &LoginRegister<'_>,
    ) -> Result<(UserId, Micros), Refused> {
        let metadata = self.metadata();
        let in_bounds = limits::USERNAME_BYTES.contains(&login.username.len())
            && limits::PASSWORD_BYTES.contains(&login.password.0.len());
        let user = metadata
            .users()
            .find(login.username)
            .ok()
            .filter(|user| in_bounds && user.status == UserStatus::Active);
        let guess = Guess {
            source: Source::new(connection.peer.ip(), login.username),
            password: Secret::new(login.password.0),
            stored: user.map(|user| user.password_hash.phc().to_owned()),
        };
        match (self.check_password(guess).await, user) {
            (Checked::Right(_), Some(user)) => Ok((user.id, user.created_at)),
            (Checked::Right(_) | Checked::Wrong, _) => {
                Err(Refused::Evict(EvictionReason::InvalidCredentials))
            }
            (Checked::Later, _) => Err(Refused::Retry),
        }
    }

    /// Whose token this is. The metadata lane looks again, at the time of the registration.
    fn recognise(
        &self,
        login: &LoginRegisterWithPat<'_>,
    ) -> Result<(UserId, Micros, Option<TokenHash>), Refused> {
        let unknown = Refused::Evict(EvictionReason::InvalidToken);
        if login.token.0.len() > TOKEN_BYTES_MAX {
            return Err(unknown);
        }
        let hash = token_hash(login.token.0);
        let metadata = self.metadata();
        match metadata.users().by_token(&hash) {
            Some((_, token)) if token.has_expired(clock::wall()) => Err(unknown),
            Some((user, _)) if user.status != UserStatus::Active => {
                Err(Refused::Evict(EvictionReason::UserInactive))
            }
            Some((user, _)) => Ok((user.id, user.created_at, Some(hash))),
            None => Err(unknown),
        }
    }

    /// Attaches a connection to a session that another connection registered.
    pub(super) fn bind_session(self: &Rc<Self>, connection: &Rc<Connection>, frame: &Frame) {
        let header = frame.header;
        let version = match gate(&header, &frame.body) {
            Ok(version) => version,
            Err(evict) => {
                connection.outbox.push(evict);
                return connection.close();
            }
        };
        let echo = Echo::new(&header);
        match self.find_session(&frame.body) {
            Ok((client, session, user)) => {
                let binding = Binding { client, session, user, protocol: version };
                let commit = self.metadata().applied();
                let frame = match self.attach(connection, binding) {
                    Ok(()) => echo.read(commit, |out| payload(&binding).put(out)),
                    Err(status) => echo.refusal(status),
                };
                connection.outbox.push(frame);
            }
            Err(status) => connection.outbox.push(echo.refusal(status)),
        }
    }

    fn find_session(&self, body: &[u8]) -> Result<(ClientId, SessionEpoch, UserId), Status> {
        let bind = BindSession::parse(body).map_err(|error| error.status())?;
        self.catch_up();
        let metadata = self.metadata();
        if bind.metadata_watermark.max(Op(bind.session.0)) > metadata.applied() {
            return Err(Status::TransientNotAccepted);
        }
        let session = metadata.sessions().bind(bind.client, bind.session, &verifier(&bind.bind_secret))?;
        let user = metadata.users().user(session.user).ok_or(Status::Unauthenticated)?;
        if user.created_at != session.user_created_at || user.status != UserStatus::Active {
            return Err(Status::Unauthenticated);
        }
        Ok((session.client, session.epoch, session.user))
    }

    /// Errors: [`Status::TransientNotAccepted`] when the user has as many connections as it may.
    fn attach(self: &Rc<Self>, connection: &Connection, binding: Binding) -> Result<(), Status> {
        self.leave_session(connection);
        if !self.settings.user_connections.join(binding.user) {
            tracing::warn!(peer = %connection.peer, user = binding.user.0, "the user has too many connections");
            return Err(Status::TransientNotAccepted);
        }
        connection.bind(Some((binding, self.users.borrow_mut().of(binding.user))));
        self.note_attached(&binding, true);
        Ok(())
    }

    /// The connection leaves its session, which lives on until its time is over.
    pub(super) fn leave_session(self: &Rc<Self>, connection: &Connection) {
        if let Some(binding) = connection.binding() {
            connection.bind(None);
            self.settings.user_connections.leave(binding.user);
            self.note_attached(&binding, false);
        }
    }

    fn note_attached(self: &Rc<Self>, binding: &Binding, joined: bool) {
        let session = SessionId { client: binding.client, epoch: binding.session };
        self.send(ShardId(0), Class::Control, Message::Attached { session, joined });
    }
}

/// Decides by the version alone whether anything else of the body is looked at.
fn gate(header: &RequestHeader, body: &[u8]) -> Result<ProtocolVersion, OutFrame> {
    let Ok(prefix) = VersionPrefix::parse(body) else {
        return Err(eviction(header, EvictionReason::MalformedLogin));
    };
    let window = ProtocolWindow::LANEWAY;
    if !window.contains(prefix.protocol) {
        tracing::info!(
            protocol = %prefix.protocol,
            sdk = prefix.sdk_name,
            sdk_version = prefix.sdk_version,
            accepted = %format_args!("{} to {}", window.min, window.max),
            "a client speaks a protocol that is not served"
        );
        let evict = Eviction::incompatible(header.client, window);
        return Err(OutFrame::whole(bytes::Bytes::copy_from_slice(&evict.encode())));
    }
    Ok(prefix.protocol)
}

/// What a token is kept as.
pub(super) fn token_hash(token: &[u8]) -> TokenHash {
    TokenHash(Sha256::digest(token).into())
}

fn verifier(secret: &BindSecret) -> Verifier {
    Verifier(Sha256::digest(secret.0).into())
}

fn payload(binding: &Binding) -> Registered<'static> {
    Registered {
        user_id: binding.user,
        session: binding.session,
        protocol: binding.protocol,
        server_version: SERVER_VERSION,
    }
}

fn registered(header: &RequestHeader, binding: &Binding) -> OutFrame {
    // The epoch is the op at which the registration committed; a resend gets the same.
    Echo::new(header).committed(Op(binding.session.0), clock::wall(), |out| {
        put_success(out);
        payload(binding).put(out);
    })
}
