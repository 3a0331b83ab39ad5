//! Frames on their way to one client: a queue on the connection's shard and one task that writes it. Stored batches
//! are written from where they lie; nothing is copied.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use compio::BufResult;
use compio::io::{AsyncWrite, AsyncWriteExt};
use compio::net::TcpStream;

use crate::signal::Signal;

/// Parts of one write. Far below the kernel's limit of 1024.
const WRITE_PARTS_MAX: usize = 128;

/// Bytes of one write, so that a large queue does not become one huge call.
const WRITE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Queued bytes above which the connection is not read from: a client that does not take its replies must not be
/// able to fill the memory with them.
pub const OUTBOX_BYTES_HIGH: usize = 1024 * 1024;

/// One frame: a header with the start of the body, then stored bytes.
#[derive(Clone, Debug, Default)]
pub struct OutFrame {
    /// The parts, in order.
    pub parts: Vec<Bytes>,
}

impl OutFrame {
    /// A frame in one piece.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { parts: vec![bytes.into()] }
    }

    /// Length of the frame.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// The queue of one connection. Lives on the connection's shard and ends with it.
#[derive(Debug, Default)]
pub struct Outbox {
    parts: RefCell<VecDeque<Bytes>>,
    bytes: Cell<usize>,
    closed: Cell<bool>,
    filled: Signal,
    drained: Signal,
}

impl Outbox {
    /// Queues a frame. After [`Outbox::close`] frames are dropped.
    pub fn push(&self, frame: OutFrame) {
        if self.closed.get() {
            return;
        }
        self.bytes.set(self.bytes.get() + frame.bytes());
        self.parts.borrow_mut().extend(frame.parts);
        self.filled.ring();
    }

    /// Lets the writer finish what is queued and end.
    pub fn close(&self) {
        self.closed.set(true);
        self.filled.ring();
        self.drained.ring();
    }

    /// Whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Waits until the queue is below its high mark, or closed.
    pub async fn room(&self) {
        while self.bytes.get() > OUTBOX_BYTES_HIGH && !self.closed.get() {
            self.drained.wait().await;
        }
    }

    fn take(&self) -> (Vec<Bytes>, usize) {
        let mut queue = self.parts.borrow_mut();
        let mut parts = Vec::with_capacity(queue.len().min(WRITE_PARTS_MAX));
        let mut bytes = 0;
        while parts.len() < WRITE_PARTS_MAX && bytes < WRITE_BYTES_MAX {
            let Some(part) = queue.pop_front() else { break };
            bytes += part.len();
            parts.push(part);
        }
        (parts, bytes)
    }

    fn written(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        if self.bytes.get() <= OUTBOX_BYTES_HIGH {
            self.drained.ring();
        }
    }
}

/// Writes the frames of `outbox` until it is closed and empty, or the client is gone. Closes the outbox at the end.
pub async fn write_frames(mut stream: TcpStream, outbox: &Outbox) -> io::Result<()> {
    let result = write_until_closed(&mut stream, outbox).await;
    outbox.close();
    result
}

async fn write_until_closed(stream: &mut TcpStream, outbox: &Outbox) -> io::Result<()> {
    loop {
        let (mut parts, bytes) = outbox.take();
        match parts.len() {
            0 if outbox.is_closed() => return stream.shutdown().await,
            0 => {
                outbox.filled.wait().await;
                continue;
            }
            1 => {
                let BufResult(result, _) = stream.write_all(parts.swap_remove(0)).await;
                result?;
            }
            _ => {
                let BufResult(result, _) = stream.write_vectored_all(parts).await;
                result?;
            }
        }
        outbox.written(bytes);
    }
}
