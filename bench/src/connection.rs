//! One blocking connection with one request in flight: the session core of the client on a plain socket.
//!
//! The frame of an answered request comes back to the caller, so that a producer sends the same megabyte again and
//! again without copying it, and the load generator takes as little as it can from the cores that it shares.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use laneway_client::{Answer, Call, Client, Credentials, Event, Identity, Session, Settings};
use laneway_wire::FrameDecoder;

use crate::Result;

/// Longest wait for an answer. Nothing here takes so long unless the broker hangs.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Pause before a request that the broker put off is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// A signed-in connection.
pub struct Connection {
    stream: TcpStream,
    session: Session,
    decoder: FrameDecoder,
    retries: u64,
}

/// The root user of a broker started with `--dev`.
fn credentials() -> Credentials {
    Credentials { username: "iggy".into(), password: "iggy".into() }
}

/// The ordinary client, for everything that is not measured.
pub fn open_client(address: SocketAddr) -> Result<Client> {
    let settings =
        Settings { address: address.to_string(), credentials: Some(credentials()), timeout: ANSWER_MAX };
    Ok(Client::connect(settings)?)
}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let mut random = [0; Identity::RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let session = Session::new(Identity::from_random(&random));
        let mut connection = Self { stream, session, decoder: FrameDecoder::new(), retries: 0 };
        connection.session.register(&credentials())?;
        connection.transmit()?;
        match connection.receive()? {
            Event::Bound(_) => Ok(connection),
            other => Err(format!("sign-in ended as {other:?}").into()),
        }
    }

    /// Answers that asked for the same request again.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Sends a call and waits for its answer. Also returns the frame that was sent; nobody else holds it any more.
    pub fn exchange(&mut self, call: Call) -> Result<(Answer, Bytes)> {
        self.session.submit(call)?;
        let mut frame = self.transmit()?;
        loop {
            match self.receive()? {
                Event::Done(_, answer) => return Ok((answer?, frame)),
                Event::Retry(number, _) => {
                    self.retries += 1;
                    std::thread::sleep(RETRY_PAUSE);
                    self.session.resend(number);
                    frame = self.transmit()?;
                }
                other => return Err(format!("instead of an answer: {other:?}").into()),
            }
        }
    }

    fn transmit(&mut self) -> Result<Bytes> {
        let frame = self.session.poll_transmit().ok_or("nothing to send")?;
        self.stream.write_all(&frame)?;
        Ok(frame)
    }

    fn receive(&mut self) -> Result<Event> {
        loop {
            if let Some(frame) = self.decoder.poll_server_frame()? {
                return Ok(self.session.handle_frame(frame)?);
            }
            let limit = self.decoder.spare_hint();
            let buffer = self.decoder.buffer();
            let held = buffer.len();
            let spare = buffer.spare_capacity_mut();
            let room = limit.min(spare.len());
            let (received, _) = rustix::io::read(&self.stream, &mut spare[..room])?;
            let bytes = received.len();
            if bytes == 0 {
                return Err("the broker closed the connection".into());
            }
            // SAFETY: the read initialized exactly `bytes` bytes behind the `held` ones, within the capacity.
            unsafe { buffer.set_len(held + bytes) };
        }
    }
}
