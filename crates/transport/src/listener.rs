//! Listeners. Every shard has its own on the same address, so that the kernel spreads connections and no shard hands
//! sockets to another.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use compio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Connections that the kernel holds before they are accepted.
const BACKLOG: i32 = 1024;

/// Pause after an accept that failed for want of descriptors or memory: long enough not to spin, short enough to
/// recover at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a busy address is tried again. The sockets of a killed process stay for a moment, because the kernel ends
/// the operations of its rings after it ends the process; a restart must not fail on them.
const BUSY_MAX: Duration = Duration::from_secs(2);

/// Pause between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error(
        "{address} is already in use: stop what listens there, or choose another address with --tcp ADDRESS:PORT"
    )]
    Busy {
        /// The address.
        address: SocketAddr,
    },
    /// The kernel refused for another reason.
    #[error("cannot listen on {address}: {source}{}", advice(source))]
    Refused {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// What to do about a refusal, where the kernel's words do not say it.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "; choose an address of this machine (`ip address` lists them), or 0.0.0.0 for all, with --tcp ADDRESS:PORT"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE: choose another with --tcp"
        }
        _ => "",
    }
}

/// A bound address, not yet listening on any shard. Made once at start, before any thread, so that a busy port ends
/// the start with one clear error.
#[derive(Debug)]
pub struct Bound {
    address: SocketAddr,
    probe: Socket,
}

impl Bound {
    /// Binds `address`; port 0 lets the kernel choose. Blocks for up to two seconds while the address is busy.
    ///
    /// The first socket is bound without port sharing: two brokers of one user on one port would otherwise silently
    /// share its connections.
    pub fn new(address: SocketAddr) -> Result<Self, BindError> {
        let exclusive = bind_patiently(address).map_err(|source| refused(address, source))?;
        let address = local_address(&exclusive).map_err(|source| refused(address, source))?;
        drop(exclusive);
        let probe = bind(address, true).map_err(|source| refused(address, source))?;
        Ok(Self { address, probe })
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A listening socket of one shard. Plain, so that it can travel to the shard's thread.
    pub fn listen(&self) -> Result<std::net::TcpListener, BindError> {
        let listen = || -> io::Result<std::net::TcpListener> {
            let socket = bind(self.address, true)?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        };
        listen().map_err(|source| refused(self.address, source))
    }

    /// Closes the socket that held the port while the shards were made.
    pub fn release(self) {
        drop(self.probe);
    }
}

fn bind_patiently(address: SocketAddr) -> io::Result<Socket> {
    let end = Instant::now() + BUSY_MAX;
    loop {
        match bind(address, false) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart binds the same port while old connections still linger.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    if !shared {
        // SO_REUSEADDR alone lets a bind succeed beside another bound socket; listening is what tells.
        socket.listen(1)?;
    }
    Ok(socket)
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("the socket has no internet address"))
}

fn refused(address: SocketAddr, source: io::Error) -> BindError {
    match source.kind() {
        io::ErrorKind::AddrInUse => BindError::Busy { address },
        _ => BindError::Refused { address, source },
    }
}

/// A listener of one shard.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
}

impl Listener {
    /// Takes the socket over into the shard's runtime.
    pub fn new(socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        Ok(Self { inner: TcpListener::from_std(socket)? })
    }

    /// The next connection, with Nagle's delay off: the client leaves it on and waits for answers.
    pub async fn accept(&self) -> (TcpStream, SocketAddr) {
        let mut warned = false;
        loop {
            match self.inner.accept().await {
                Ok((stream, peer)) => {
                    // A socket whose peer is already gone may refuse the option; reading will tell.
                    let _ = stream.set_nodelay(true);
                    return (stream, peer);
                }
                Err(error) => {
                    if !warned {
                        tracing::warn!(%error, "accept failed; connections wait");
                        warned = true;
                    }
                    compio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Ends both directions of a connection; a read or write in progress returns.
pub fn close(stream: &TcpStream) {
    // The peer may have closed first; then there is nothing left to end.
    let _ = SockRef::from(stream).shutdown(std::net::Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_zero_is_replaced_by_the_chosen_port() {
        let bound = Bound::new("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_ne!(bound.address().port(), 0);
        let first = bound.listen().unwrap();
        let second = bound.listen().unwrap();
        assert_eq!(first.local_addr().unwrap(), second.local_addr().unwrap());
    }

    #[test]
    fn busy_port_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = Bound::new(address).unwrap_err();
        assert!(matches!(error, BindError::Busy { .. }), "{error}");
        assert!(error.to_string().contains("--tcp"), "{error}");
    }

    #[test]
    fn port_shared_by_another_broker_is_refused() {
        let first = Bound::new("127.0.0.1:0".parse().unwrap()).unwrap();
        let _listener = first.listen().unwrap();
        assert!(matches!(Bound::new(first.address()), Err(BindError::Busy { .. })));
    }
}
