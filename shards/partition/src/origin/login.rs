//! Signing in, attaching to a session, and leaving it.

use std::rc::Rc;

use laneway_mailbox::Class;
use laneway_metadata::sessions::{RegisterRefusal, Verifier};
use laneway_metadata::users::UserStatus;
use laneway_metadata::{Answer, Register, SessionId};
use laneway_shard_metadata::Verdict;
use laneway_transport::OutFrame;
use laneway_wire::reply::{Record, Registered, put_success};
use laneway_wire::request::{BindSecret, BindSession, Login, LoginRegister, VersionPrefix};
use laneway_wire::{
    ClientId, Eviction, EvictionReason, Frame, Micros, Op, ProtocolVersion, ProtocolWindow, RequestHeader,
    SessionEpoch, Status, UserId,
};
use sha2::{Digest, Sha256};

use super::eviction;
use crate::clock;
use crate::connections::{Binding, Connection};
use crate::message::{self, Message, Question, ShardId};
use crate::reply::Echo;
use crate::shard::Shard;

/// Version of the broker that clients are told.
pub const SERVER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Bytes of a user name that can exist.
const USERNAME_BYTES: std::ops::RangeInclusive<usize> = 3..=50;

/// Bytes of a password that can exist.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 3..=100;

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
            Ok(Login::Password(login)) => self.sign_in(&header, &login).await,
            Ok(Login::Token(_)) => Err(Refused::Evict(EvictionReason::InvalidToken)),
            Err(_) => Err(Refused::Evict(EvictionReason::MalformedLogin)),
        };
        match answer {
            Ok((session, user)) => {
                let binding = Binding { client: header.client, session, user, protocol: version };
                self.attach(connection, binding);
                connection.outbox.push(registered(&header, &binding));
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
        header: &RequestHeader,
        login: &LoginRegister<'_>,
    ) -> Result<(SessionEpoch, UserId), Refused> {
        if self.is_stopping() {
            return Err(Refused::Retry);
        }
        let (user, user_created_at) = self.verify(login).await?;
        let register = Register {
            client: header.client,
            user,
            user_created_at,
            verifier: verifier(&login.bind_secret),
            token: None,
        };
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
    async fn verify(&self, login: &LoginRegister<'_>) -> Result<(UserId, Micros), Refused> {
        let metadata = self.metadata();
        let in_bounds = USERNAME_BYTES.contains(&login.username.len())
            && PASSWORD_BYTES.contains(&login.password.0.len());
        let user = metadata
            .users()
            .find(login.username)
            .ok()
            .filter(|user| in_bounds && user.status == UserStatus::Active);
        let stored = user.map(|user| user.password_hash.phc().to_owned());
        let password = login.password.0.to_owned();
        let matches = self.check_password(password, stored).await.ok_or(Refused::Retry)?;
        match user {
            Some(user) if matches => Ok((user.id, user.created_at)),
            _ => Err(Refused::Evict(EvictionReason::InvalidCredentials)),
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
                self.attach(connection, binding);
                let commit = self.metadata().applied();
                connection.outbox.push(echo.read(commit, |out| payload(&binding).put(out)));
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

    fn attach(self: &Rc<Self>, connection: &Connection, binding: Binding) {
        self.leave_session(connection);
        connection.bind(Some(binding));
        self.note_attached(&binding, true);
    }

    /// The connection leaves its session, which lives on until its time is over.
    pub(super) fn leave_session(self: &Rc<Self>, connection: &Connection) {
        if let Some(binding) = connection.binding() {
            connection.bind(None);
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
