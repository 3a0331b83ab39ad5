//! One TCP connection: frames out, frames in, with deadlines. No decisions.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use laneway_wire::{FrameDecoder, FrameError, ServerFrame};

/// Most bytes of one read. What a read may fill is zeroed first, so more would cost more than it saves.
const READ_BYTES_MAX: usize = 256 * 1024;
/// Shortest timeout that a socket accepts; zero would mean "for ever".
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Why nothing more can be read from a link.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// The connection broke; another may work.
    Broken(io::Error),
    /// The other end speaks something else; another connection would not help.
    Foreign(FrameError),
}

/// A connected socket and the bytes that arrived on it.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    decoder: FrameDecoder,
}

impl Link {
    /// Connects to the first address of `host:port` that answers within `timeout`.
    pub(crate) fn connect(address: &str, timeout: Duration) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for candidate in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&candidate, timeout.max(TIMEOUT_MIN)) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_write_timeout(Some(timeout.max(TIMEOUT_MIN)))?;
                    return Ok(Self { stream, decoder: FrameDecoder::new() });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Writes a whole frame.
    pub(crate) fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.stream.write_all(frame) {
            // A write timeout leaves a torn frame behind: the link is over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the broker does not take the request"))
            }
            result => result,
        }
    }

    /// The next frame, or `None` at the deadline. A deadline in the past only looks at what is there already.
    pub(crate) fn read(&mut self, deadline: Instant) -> Result<Option<ServerFrame>, LinkError> {
        loop {
            if let Some(frame) = self.decoder.poll_server_frame().map_err(LinkError::Foreign)? {
                return Ok(Some(frame));
            }
            if !self.fill(deadline).map_err(LinkError::Broken)? {
                return Ok(None);
            }
        }
    }

    /// Reads once; `false` at the deadline.
    fn fill(&mut self, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        // A timeout of zero cannot be expressed, so a look without a wait needs the other mode.
        let look_only = left.is_zero();
        if look_only {
            self.stream.set_nonblocking(true)?;
        } else {
            self.stream.set_read_timeout(Some(left.max(TIMEOUT_MIN)))?;
        }
        let bytes = self.decoder.spare_hint().min(READ_BYTES_MAX);
        let buffer = self.decoder.buffer();
        let held = buffer.len();
        buffer.resize(held + bytes, 0);
        let result = self.stream.read(buffer.get_mut(held..).unwrap_or_default());
        buffer.truncate(held + *result.as_ref().unwrap_or(&0));
        if look_only {
            self.stream.set_nonblocking(false)?;
        }
        match result {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the broker closed the connection")),
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Tell the broker at once; that the socket may be gone already is no news.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
