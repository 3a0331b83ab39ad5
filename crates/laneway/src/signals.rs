//! SIGTERM, SIGINT and SIGHUP: the first one drains, a second one ends the process at once.
//!
//! The signals are blocked before any other thread starts, so that every thread inherits the mask and only the waiting
//! thread takes them. Nothing runs in a signal handler.

use std::io;
use std::thread::{Builder, JoinHandle};

/// A request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
    /// The terminal closed.
    Hangup,
}

impl Signal {
    /// The exit code of a process that this signal ended, as shells report it.
    pub fn exit_code(self) -> i32 {
        128 + self.number()
    }

    fn number(self) -> i32 {
        match self {
            Self::Interrupt => libc::SIGINT,
            Self::Terminate => libc::SIGTERM,
            Self::Hangup => libc::SIGHUP,
        }
    }
}

/// The signals, blocked in this thread and in every thread started from now on.
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals. Call it in the main thread, before any other thread starts: a thread that exists already would
    /// still be ended by them.
    pub fn block() -> io::Result<Self> {
        let set = stop_set();
        // SAFETY: the kernel reads one set from `set`, which lives until the call returns; no old set is asked for.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if result == 0 { Ok(Self { set }) } else { Err(io::Error::from_raw_os_error(result)) }
    }

    /// Starts the thread that waits. The first signal calls `drain`, which should only pass the word on; the second ends
    /// the process with 128 plus its number, without running anything else.
    pub fn watch(self, drain: impl FnOnce(Signal) + Send + 'static) -> io::Result<JoinHandle<()>> {
        self.watch_with(drain, |signal| {
            // SAFETY: `_exit` takes no memory and does not return. It skips destructors on purpose: they may be what the
            // person did not want to wait for, and everything acknowledged is on disk.
            unsafe { libc::_exit(signal.exit_code()) }
        })
    }

    fn watch_with(
        self,
        drain: impl FnOnce(Signal) + Send + 'static,
        end: impl FnOnce(Signal) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        Builder::new().name("signals".to_owned()).spawn(move || {
            drain(self.wait());
            end(self.wait());
        })
    }

    fn wait(&self) -> Signal {
        loop {
            let mut number = 0;
            // SAFETY: the kernel reads one set and writes one integer, both alive until the call returns.
            let result = unsafe { libc::sigwait(&raw const self.set, &raw mut number) };
            match number {
                _ if result != 0 => {}
                libc::SIGINT => return Signal::Interrupt,
                libc::SIGTERM => return Signal::Terminate,
                libc::SIGHUP => return Signal::Hangup,
                _ => {}
            }
        }
    }
}

fn stop_set() -> libc::sigset_t {
    // SAFETY: all bytes zero is a valid `sigset_t`, a plain array of integers; `sigemptyset` then gives it its meaning,
    // and the calls write only into `set`.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGHUP);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_signal_drains_and_the_second_ends() {
        let (sender, receiver) = mpsc::channel();
        let second = sender.clone();
        let waiter = Signals::block()
            .unwrap()
            .watch_with(
                move |signal| sender.send(("drain", signal)).unwrap(),
                move |signal| second.send(("end", signal)).unwrap(),
            )
            .unwrap();
        // To the waiting thread and not to the process: the harness has threads that did not block the signals.
        let send = |signal: Signal| {
            // SAFETY: the thread is not joined yet, so its id is valid.
            assert_eq!(unsafe { libc::pthread_kill(waiter.as_pthread_t(), signal.number()) }, 0);
        };
        let next = || receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        send(Signal::Terminate);
        assert_eq!(next(), ("drain", Signal::Terminate));
        send(Signal::Interrupt);
        assert_eq!(next(), ("end", Signal::Interrupt));
        waiter.join().unwrap();
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!((Signal::Interrupt.exit_code(), Signal::Terminate.exit_code()), (130, 143));
    }
}
