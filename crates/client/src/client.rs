//! A blocking client: the session core, one TCP connection, and the patience to restore it.
//!
//! One thread uses one client; requests may be pipelined on it. There is no background thread and no runtime, so a
//! command starts at once, and a fault of the broker's runtime cannot hide in both ends.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use laneway_wire::{RequestNumber, Status};

use crate::error::ClientError;
use crate::handshake::{Credentials, Identity, SignedIn};
use crate::link::{Link, LinkError};
use crate::session::{Answer, Call, Event, Session};

/// First pause before the same request or connection is tried again; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Longest pause. Source: wire protocol, section 7.7.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Bindings that may end without one answer in between before the reason is reported.
const EVICTIONS_MAX: u32 = 3;

/// Where to connect, as whom, and with how much patience.
#[derive(Clone)]
pub struct Settings {
    /// `host:port`, an IPv6 address in brackets.
    pub address: String,
    /// Whom to sign in as; without, only a ping is possible.
    pub credentials: Option<Credentials>,
    /// Longest wait for a connection, for its restoration, and for the answer to one request.
    pub timeout: Duration,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.credentials.as_ref().map_or("nobody", |credentials| &credentials.username);
        write!(f, "{user}@{} within {:?}", self.address, self.timeout)
    }
}

/// A request whose answer can be waited for once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(RequestNumber);

/// A request that is over, and how.
pub type Finished = (Ticket, Result<Answer, ClientError>);

/// A request that the broker asked to repeat later.
#[derive(Clone, Copy, Debug)]
struct Delayed {
    status: Status,
    attempts: u32,
    /// When to send it again; none while it is on its way.
    due: Option<Instant>,
}

/// A connected client. Dropping it closes the connection; the session stays on the broker until it expires.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    session: Session,
    link: Option<Link>,
    signed_in: Option<SignedIn>,
    finished: BTreeMap<RequestNumber, Result<Answer, ClientError>>,
    delayed: BTreeMap<RequestNumber, Delayed>,
    evictions: u32,
    reconnects: u64,
}

impl Client {
    /// Connects and, with credentials, signs in. Fails at once when nothing listens.
    pub fn connect(settings: Settings) -> Result<Self, ClientError> {
        let session = Session::new(new_identity()?);
        let mut client = Self {
            settings,
            session,
            link: None,
            signed_in: None,
            finished: BTreeMap::new(),
            delayed: BTreeMap::new(),
            evictions: 0,
            reconnects: 0,
        };
        let deadline = Instant::now() + client.settings.timeout;
        client.link = Some(client.dial(deadline)?);
        client.sign_in(deadline)?;
        Ok(client)
    }

    /// The settings that the client was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the broker said at sign-in; none without credentials.
    pub fn signed_in(&self) -> Option<&SignedIn> {
        self.signed_in.as_ref()
    }

    /// The session behind the client.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// How often a lost connection was restored.
    pub fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Sends a call and waits for its answer.
    pub fn call(&mut self, call: Call) -> Result<Answer, ClientError> {
        let ticket = self.submit(call)?;
        self.wait(ticket)
    }

    /// Queues a call. It is written by the next wait, or now by [`Client::transmit`].
    pub fn submit(&mut self, call: Call) -> Result<Ticket, ClientError> {
        self.session.submit(call).map(Ticket)
    }

    /// Writes what is queued, without looking for answers. A connection that turns out to be lost is restored by the
    /// next wait.
    pub fn transmit(&mut self) {
        let Some(link) = &mut self.link else { return };
        while let Some(frame) = self.session.poll_transmit() {
            if link.write(&frame).is_err() {
                return self.drop_link();
            }
        }
    }

    /// Waits for the answer to one request, as long as the settings say.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Answer, ClientError> {
        self.wait_for(ticket, self.settings.timeout)
    }

    /// Waits for the answer to one request. At the end of `patience` the request is given up; the error says whether
    /// it may have been done.
    pub fn wait_for(&mut self, ticket: Ticket, patience: Duration) -> Result<Answer, ClientError> {
        match self.wait_any(&[ticket], patience)? {
            Some((_, result)) => result,
            None => Err(self.give_up(ticket.0, patience)),
        }
    }

    /// Gives a request up that was waited for in vain, unless its answer has arrived by now. `waited`: how long, for the
    /// error, which says whether the request may have been done.
    pub fn take_or_give_up(&mut self, ticket: Ticket, waited: Duration) -> Result<Answer, ClientError> {
        match self.wait_any(&[ticket], Duration::ZERO)? {
            Some((_, result)) => result,
            None => Err(self.give_up(ticket.0, waited)),
        }
    }

    /// Waits until one of the requests has an answer; `None` when `patience` ends first, which gives up none of them.
    pub fn wait_any(
        &mut self,
        tickets: &[Ticket],
        patience: Duration,
    ) -> Result<Option<Finished>, ClientError> {
        let deadline = Instant::now() + patience;
        let mut looked = false;
        loop {
            for ticket in tickets {
                if let Some(result) = self.finished.remove(&ticket.0) {
                    return Ok(Some((*ticket, result)));
                }
            }
            // Without patience, what has arrived already still counts.
            if looked && Instant::now() >= deadline {
                return Ok(None);
            }
            looked = true;
            self.step(deadline)?;
        }
    }

    fn give_up(&mut self, number: RequestNumber, after: Duration) -> ClientError {
        let status = self.delayed.remove(&number).map(|delayed| delayed.status);
        match self.session.abandon(number, status) {
            // Waited for in vain, and nothing but a read: simply too slow.
            Some(ClientError::Refused { code, .. }) if status.is_none() => {
                ClientError::Timeout { code, after }
            }
            Some(error) => error,
            None => ClientError::NotLoggedIn,
        }
    }

    /// One turn: restore the link if need be, write what is queued, take at most one frame before the deadline.
    fn step(&mut self, deadline: Instant) -> Result<(), ClientError> {
        if self.link.is_none() {
            // Requests may have ended on the way: the caller looks before it waits for more.
            return self.restore();
        }
        let now = Instant::now();
        let mut wake = deadline;
        for (number, delayed) in &mut self.delayed {
            match delayed.due {
                Some(due) if due <= now => {
                    delayed.due = None;
                    self.session.resend(*number);
                }
                Some(due) => wake = wake.min(due),
                None => {}
            }
        }
        let frame = match self.exchange(wake) {
            Ok(None) => return Ok(()),
            Ok(Some(frame)) => frame,
            Err(LinkError::Broken(_)) => {
                self.drop_link();
                return Ok(());
            }
            Err(LinkError::Foreign(error)) => {
                self.drop_link();
                return Err(error.into());
            }
        };
        match self.session.handle_frame(frame) {
            Ok(event) => self.handle_event(event),
            Err(error) => {
                // The stream of replies cannot be trusted any more. A caller learns why.
                self.drop_link();
                Err(error)
            }
        }
    }

    fn exchange(&mut self, deadline: Instant) -> Result<Option<laneway_wire::ServerFrame>, LinkError> {
        let Some(link) = &mut self.link else { return Ok(None) };
        while let Some(frame) = self.session.poll_transmit() {
            link.write(&frame).map_err(LinkError::Broken)?;
        }
        link.read(deadline)
    }

    fn handle_event(&mut self, event: Event) -> Result<(), ClientError> {
        match event {
            Event::Done(number, result) => {
                self.evictions = 0;
                self.delayed.remove(&number);
                self.finished.insert(number, result);
            }
            Event::Retry(number, status) => {
                let attempts = self.delayed.get(&number).map_or(0, |delayed| delayed.attempts) + 1;
                let due = Some(Instant::now() + backoff(attempts));
                self.delayed.insert(number, Delayed { status, attempts, due });
            }
            Event::Evicted(error) => {
                self.drop_link();
                self.evictions += 1;
                if self.evictions >= EVICTIONS_MAX || matches!(error, ClientError::Incompatible { .. }) {
                    return Err(error);
                }
            }
            Event::Bound(_) | Event::NotBound(_) | Event::Unclaimed => {}
        }
        Ok(())
    }

    fn drop_link(&mut self) {
        self.link = None;
        self.session.handle_link_lost();
        // Everything goes out again when the session is bound; pauses start anew.
        self.delayed.values_mut().for_each(|delayed| delayed.due = None);
    }

    /// Connects again and binds the session, within the timeout of the settings. If it cannot, every pending request
    /// ends; an error when there was none to end.
    fn restore(&mut self) -> Result<(), ClientError> {
        let deadline = Instant::now() + self.settings.timeout;
        let mut attempts = 0;
        loop {
            let result = self.dial(deadline).and_then(|link| {
                self.link = Some(link);
                self.sign_in(deadline)
            });
            let error = match result {
                Ok(()) => {
                    self.reconnects += 1;
                    return Ok(());
                }
                Err(error) => error,
            };
            self.drop_link();
            let hopeless = !matches!(
                &error,
                ClientError::Unreachable { .. } | ClientError::Lost { .. } | ClientError::Timeout { .. }
            );
            attempts += 1;
            let pause = backoff(attempts);
            if hopeless || Instant::now() + pause >= deadline {
                let ended = self.session.reset(new_identity()?);
                self.delayed.clear();
                let any = !ended.is_empty();
                for (number, ended) in ended {
                    let result = match ended {
                        ClientError::Uncertain { .. } => ended,
                        ClientError::SessionLost { code } if hopeless => ClientError::SessionLost { code },
                        _ => ClientError::Lost {
                            address: self.settings.address.clone(),
                            source: as_io(&error),
                        },
                    };
                    self.finished.insert(number, Err(result));
                }
                return if any { Ok(()) } else { Err(error) };
            }
            std::thread::sleep(pause);
        }
    }

    fn dial(&self, deadline: Instant) -> Result<Link, ClientError> {
        let left = deadline.saturating_duration_since(Instant::now());
        Link::connect(&self.settings.address, left)
            .map_err(|source| ClientError::Unreachable { address: self.settings.address.clone(), source })
    }

    /// Registers or binds on the link that is there.
    fn sign_in(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let Some(credentials) = self.settings.credentials.clone() else { return Ok(()) };
        let mut attempts = 0;
        loop {
            if self.session.is_registered() {
                self.session.bind()?;
            } else {
                self.session.register(&credentials)?;
            }
            match self.await_handshake(deadline)? {
                Event::Bound(signed_in) => {
                    self.signed_in = Some(signed_in);
                    return Ok(());
                }
                // The broker does not know the session any more. What was pending ends; the next requests work.
                Event::NotBound(ClientError::SessionLost { .. }) => {
                    for (number, error) in self.session.reset(new_identity()?) {
                        self.finished.insert(number, Err(error));
                    }
                    self.delayed.clear();
                }
                Event::NotBound(ClientError::Refused { code, status })
                    if matches!(status, Status::TransientNotAccepted | Status::TransientNotCommitted) =>
                {
                    attempts += 1;
                    let pause = backoff(attempts);
                    if Instant::now() + pause >= deadline {
                        return Err(ClientError::Refused { code, status });
                    }
                    std::thread::sleep(pause);
                }
                Event::NotBound(error) | Event::Evicted(error) => return Err(error),
                Event::Done(..) | Event::Retry(..) | Event::Unclaimed => {}
            }
        }
    }

    /// Writes the handshake and waits for its outcome.
    fn await_handshake(&mut self, deadline: Instant) -> Result<Event, ClientError> {
        loop {
            let frame = match self.exchange(deadline) {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    let code = laneway_wire::Code::LoginRegister;
                    return Err(ClientError::Timeout { code, after: self.settings.timeout });
                }
                Err(LinkError::Broken(source)) => {
                    return Err(ClientError::Lost { address: self.settings.address.clone(), source });
                }
                Err(LinkError::Foreign(error)) => return Err(error.into()),
            };
            match self.session.handle_frame(frame)? {
                Event::Unclaimed => {}
                event => return Ok(event),
            }
        }
    }
}

fn new_identity() -> Result<Identity, ClientError> {
    let mut random = [0; Identity::RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|_| ClientError::NoRandomness)?;
    Ok(Identity::from_random(&random))
}

/// Pause before attempt number `attempts` is repeated.
fn backoff(attempts: u32) -> Duration {
    (BACKOFF_MIN * 2u32.saturating_pow(attempts.saturating_sub(1).min(10))).min(BACKOFF_MAX)
}

/// The cause to name when a connection could not be restored.
fn as_io(error: &ClientError) -> io::Error {
    match error {
        ClientError::Unreachable { source, .. } | ClientError::Lost { source, .. } => {
            match source.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(source.kind(), source.to_string()),
            }
        }
        other => io::Error::other(other.to_string()),
    }
}
