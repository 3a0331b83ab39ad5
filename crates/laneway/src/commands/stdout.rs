//! Standard output as a pipe: who still listens, and whether a person does.

use std::io;

/// Whether the reader of standard output is gone. A follower that has nothing to write would otherwise never notice
/// that `| head` has ended.
pub fn reader_is_gone() -> bool {
    let mut watched = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    // SAFETY: `watched` is one valid entry that this frame owns for the whole call, and a zero timeout never blocks.
    let ready = unsafe { libc::poll(&mut watched, 1, 0) };
    // A regular file or a terminal that works reports neither.
    ready > 0 && watched.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0
}

/// Whether an output error means that the reader has seen enough: no error for the command.
pub fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
