//! Word to the service manager: ready, stopping, still alive. Without `NOTIFY_SOCKET` nothing is sent.
//! Source: resources, section 22.3; the datagrams are those of sd_notify(3).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

/// The service manager, if there is one.
#[derive(Debug)]
pub struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How often it wants to hear from the process; a service that is silent longer is restarted.
    watchdog: Option<Duration>,
}

/// Proves now and then that the process works. Ends when it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    _stop: Sender<()>,
}

impl Manager {
    /// Reads the environment of the process.
    ///
    /// Errors: a `NOTIFY_SOCKET` that cannot be one.
    pub fn from_environment() -> io::Result<Option<Arc<Self>>> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let Some(socket) = variable("NOTIFY_SOCKET") else { return Ok(None) };
        let own =
            variable("WATCHDOG_PID").is_none_or(|pid| pid == OsString::from(std::process::id().to_string()));
        let watchdog = variable("WATCHDOG_USEC").filter(|_| own).and_then(|us| us.to_str()?.parse().ok());
        Self::new(&socket, watchdog.map(Duration::from_micros)).map(|manager| Some(Arc::new(manager)))
    }

    /// A manager that listens at `path`; a leading `@` means the abstract name space.
    fn new(path: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not hold up the broker.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address, watchdog: watchdog.filter(|period| !period.is_zero()) })
    }

    /// Every enabled listener accepts connections.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// The process began to stop.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=draining\n");
    }

    /// How the process ends, where that is worth a line.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}\n"));
    }

    /// Starts to send a sign of life at half of the time that the manager allows, as long as `is_alive` says so. Nothing
    /// when the manager does not ask for it.
    pub fn watch(
        self: &Arc<Self>,
        is_alive: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<Option<Watchdog>> {
        let Some(period) = self.watchdog else { return Ok(None) };
        let (stop, stopped) = channel();
        let manager = self.clone();
        Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || manager.keep_alive(period / 2, &stopped, is_alive))?;
        Ok(Some(Watchdog { _stop: stop }))
    }

    fn keep_alive(&self, pause: Duration, stopped: &Receiver<()>, is_alive: impl Fn() -> bool) {
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            match is_alive() {
                true => self.tell("WATCHDOG=1\n"),
                false => tracing::error!(
                    "a shard does not answer: the service manager is not told that all is well"
                ),
            }
        }
    }

    fn tell(&self, message: &str) {
        if let Err(error) = self.socket.send_to_addr(message.as_bytes(), &self.address) {
            tracing::warn!(%error, "cannot tell the service manager");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let received = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..received].to_vec()).unwrap()
    }

    #[test]
    fn words_arrive_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("@laneway-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        for (socket, path) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().to_owned()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), OsString::from(name)),
        ] {
            let manager = Manager::new(&path, None).unwrap();
            manager.ready("listening on x");
            assert_eq!(receive(&socket), "READY=1\nSTATUS=listening on x\n");
            manager.stopping();
            assert!(receive(&socket).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn a_sign_of_life_comes_only_while_the_shards_live() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = Arc::new(Manager::new(path.as_os_str(), Some(Duration::from_millis(20))).unwrap());
        let (asked_in, asked) = channel();
        let watchdog = manager.watch(move || {
            // Dead from the second question on.
            let _ = asked_in.send(());
            false
        });
        let watchdog = watchdog.unwrap().unwrap();
        for _ in 0..2 {
            asked.recv().unwrap();
        }
        drop(watchdog);
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_err(), "nothing is sent for a dead process");
        let watchdog = manager.watch(|| true).unwrap().unwrap();
        socket.set_nonblocking(false).unwrap();
        assert_eq!(receive(&socket), "WATCHDOG=1\n");
        drop(watchdog);
        let silent = Arc::new(Manager::new(path.as_os_str(), None).unwrap());
        assert!(silent.watch(|| true).unwrap().is_none(), "nobody asked");
    }
}
