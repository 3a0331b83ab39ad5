//! From a byte stream to frames, without copying bodies. Sans-IO: the driver reads into the decoder's buffer.
//!
//! ```text
//! loop {
//!     while let Some(frame) = decoder.poll_frame()? { handle(frame) }
//!     let limit = decoder.spare_hint();           // receive at most this many bytes,
//!     let buffer = decoder.take_buffer();         // into the spare capacity of this buffer,
//!     let buffer = receive(buffer, limit).await?; // appended behind what it holds
//!     decoder.put_buffer(buffer);
//! }
//! ```
//!
//! Where the bytes of a frame live:
//!
//! - While the header of the next frame is unknown, a read brings at most [`READ_AHEAD_BYTES`]. Once it is known, a read
//!   that lacks a part of the body brings exactly the rest of it, straight into place. So the part of a frame that may
//!   have to move to a larger buffer is never above [`READ_AHEAD_BYTES`], and it moves at most once.
//! - A new buffer is as large as the largest of the last 64 to 128 frames of the connection (at least [`CHUNK_BYTES`],
//!   at most [`EXPECTED_BYTES_MAX`]). A connection that keeps sending frames of one size therefore copies nothing.
//! - The batch of a large send starts at a multiple of [`BLOCK_BYTES`] in memory, so that it can be written to a disk from
//!   where it lies. Where it starts in a frame is the same for all sends of a connection to one topic.
//! - Every body is split off and uniquely owned, so that its batch can be stamped in place and then frozen. Small frames
//!   share a chunk of [`CHUNK_BYTES`]: one that is kept pins at most that. Frames that would use less than a quarter of
//!   a larger buffer move to memory of their own size, so nothing pins more than four times its size or one chunk.

use bytes::{Buf, BytesMut};

use crate::header::{
    COMMAND_AT, COMMAND_EVICTION, COMMAND_REPLY, COMMAND_REQUEST, Eviction, FRAME_BYTES_MAX, HEADER_BYTES,
    HeaderBytes, HeaderError, OPERATION_AT, ReplyHeader, RequestHeader, SIZE_AT,
};
use crate::operation::Operation;

/// Size of a buffer for small traffic.
pub const CHUNK_BYTES: usize = 16 * 1024;
/// Most bytes that a read brings before the header of the next frame is known.
pub const READ_AHEAD_BYTES: usize = 64 * 1024;
/// Largest buffer that is made before the header of its frame is known. Larger frames get theirs when it is, at the
/// cost of moving at most [`READ_AHEAD_BYTES`].
pub const EXPECTED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What the memory of a large batch is a multiple of: the block of a disk.
pub const BLOCK_BYTES: usize = 4096;
/// Frames from this size on have their batch at a block.
const PLACED_BYTES_MIN: usize = 32 * 1024;
/// Most bytes of a send before its batch; what claims more is placed anywhere.
const BATCH_AT_MAX: usize = HEADER_BYTES + 4096;
/// Rest of a chunk that is still worth a read.
const REST_BYTES_MIN: usize = 2 * HEADER_BYTES;
/// Frames after which the memory of the largest one is renewed.
const WINDOW_FRAMES: u32 = 64;
/// A frame keeps its place in a larger buffer only if it fills at least one part of this many.
const WASTE_PARTS: usize = 4;

const _: () = assert!(HEADER_BYTES < CHUNK_BYTES && CHUNK_BYTES <= READ_AHEAD_BYTES);
const _: () = assert!(READ_AHEAD_BYTES < EXPECTED_BYTES_MAX && EXPECTED_BYTES_MAX <= FRAME_BYTES_MAX);

/// Why a byte stream cannot go on. The connection closes without an answer: nothing after this point can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The size field is below the header or above the limit.
    #[error("frame of {size} bytes, allowed are {HEADER_BYTES} to {max}")]
    Size {
        /// The size field.
        size: u32,
        /// The largest size allowed here.
        max: usize,
    },
    /// The command is not one that this side accepts.
    #[error("command {command} is not accepted here")]
    Command {
        /// The byte received.
        command: u8,
    },
    /// An eviction that breaks its layout.
    #[error(transparent)]
    Eviction(#[from] HeaderError),
}

/// A request frame. The header is parsed, not validated: see [`RequestHeader::validate`].
#[derive(Debug)]
pub struct Frame {
    /// The header.
    pub header: RequestHeader,
    /// The body, uniquely owned.
    pub body: BytesMut,
    /// Bytes of the whole frame, for budgets.
    pub bytes: usize,
}

/// What a client receives.
#[derive(Debug)]
pub enum ServerFrame {
    /// The answer to a request; check it with [`ReplyHeader::validate_for`].
    Reply {
        /// The header.
        header: ReplyHeader,
        /// The body, uniquely owned.
        body: BytesMut,
    },
    /// The end of the session binding.
    Eviction(Eviction),
}

/// Cuts a byte stream into frames. One per connection and direction; lives on the shard of the connection.
#[derive(Debug)]
pub struct FrameDecoder {
    /// Received and not yet given out; starts at a frame boundary.
    buffer: BytesMut,
    /// Capacity that the current allocation had when it was made.
    allocated: usize,
    frame_bytes_max: usize,
    recent: RecentLargest,
    /// Where the batch starts in a frame, by the last send that was seen.
    batch_at: usize,
    copied_bytes: u64,
}

/// Largest of the last 64 to 128 frames: two windows, so that a large frame is neither forgotten at once nor kept for
/// ever.
#[derive(Debug, Default)]
struct RecentLargest {
    current: usize,
    previous: usize,
    frames: u32,
}

impl RecentLargest {
    fn record(&mut self, bytes: usize) {
        self.current = self.current.max(bytes);
        self.frames += 1;
        if self.frames == WINDOW_FRAMES {
            self.previous = self.current;
            self.current = 0;
            self.frames = 0;
        }
    }

    fn bytes(&self) -> usize {
        self.current.max(self.previous)
    }
}

impl Default for FrameDecoder {
    fn default() -> Self {
        FrameDecoder::new()
    }
}

impl FrameDecoder {
    /// A decoder that accepts frames up to [`FRAME_BYTES_MAX`].
    pub fn new() -> Self {
        FrameDecoder::with_limit(FRAME_BYTES_MAX)
    }

    /// A decoder that accepts frames up to `frame_bytes_max`, header included.
    pub fn with_limit(frame_bytes_max: usize) -> Self {
        FrameDecoder {
            buffer: BytesMut::new(),
            allocated: 0,
            frame_bytes_max: frame_bytes_max.clamp(HEADER_BYTES, FRAME_BYTES_MAX),
            recent: RecentLargest::default(),
            batch_at: 0,
            copied_bytes: 0,
        }
    }

    /// Changes the limit from the next frame on. A connection without a session needs no large frames; memory for a
    /// frame is reserved when its header arrives, so the limit is also what a stranger can make the broker reserve.
    pub fn set_limit(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max.clamp(HEADER_BYTES, FRAME_BYTES_MAX);
    }

    /// Bytes of received frames that had to move. Stays still in a steady stream of frames of one size.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Received bytes that wait for the rest of their frame.
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Most bytes that the next read should receive, at least 1. The buffer has room for them.
    pub fn spare_hint(&mut self) -> usize {
        self.prepare();
        let room = self.buffer.capacity() - self.buffer.len();
        match self.next_size() {
            Some(size) if size > self.buffer.len() => room.min(size - self.buffer.len()),
            _ => room.min(READ_AHEAD_BYTES),
        }
        .max(1)
    }

    /// The buffer to append received bytes to, with room for [`FrameDecoder::spare_hint`] of them.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.prepare();
        &mut self.buffer
    }

    /// Lends the buffer to a read that needs to own it. Give it back with [`FrameDecoder::put_buffer`] before anything
    /// else is asked of the decoder.
    pub fn take_buffer(&mut self) -> BytesMut {
        self.prepare();
        std::mem::take(&mut self.buffer)
    }

    /// Takes the buffer back with the received bytes appended.
    pub fn put_buffer(&mut self, buffer: BytesMut) {
        debug_assert!(self.buffer.is_empty(), "only the lent buffer comes back");
        self.buffer = buffer;
    }

    /// The next complete request. `None` means: read more.
    pub fn poll_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((header, body)) = self.poll_raw(|command| command == COMMAND_REQUEST)? else {
            return Ok(None);
        };
        let bytes = HEADER_BYTES + body.len();
        Ok(Some(Frame { header: RequestHeader::parse(&header), body, bytes }))
    }

    /// The next complete reply or eviction, for clients. `None` means: read more.
    pub fn poll_server_frame(&mut self) -> Result<Option<ServerFrame>, FrameError> {
        let accepted = |command| matches!(command, COMMAND_REPLY | COMMAND_EVICTION);
        let Some((header, body)) = self.poll_raw(accepted)? else {
            return Ok(None);
        };
        if header[COMMAND_AT] == COMMAND_EVICTION {
            return Ok(Some(ServerFrame::Eviction(Eviction::parse(&header)?)));
        }
        Ok(Some(ServerFrame::Reply { header: ReplyHeader::parse(&header), body }))
    }

    fn poll_raw(
        &mut self,
        accepted: impl Fn(u8) -> bool,
    ) -> Result<Option<(HeaderBytes, BytesMut)>, FrameError> {
        // Both checks as early as the bytes are there: a stranger's bytes should not wait for a whole header.
        if let Some(size) = self.next_size()
            && !(HEADER_BYTES..=self.frame_bytes_max).contains(&size)
        {
            return Err(FrameError::Size { size: size as u32, max: self.frame_bytes_max });
        }
        if let Some(command) = self.buffer.get(COMMAND_AT)
            && !accepted(*command)
        {
            return Err(FrameError::Command { command: *command });
        }
        let Some(size) = self.next_size().filter(|size| *size <= self.buffer.len()) else {
            return Ok(None);
        };
        let header = self.buffer[..HEADER_BYTES].try_into().expect("a complete frame has its header");
        let body = self.split_body(size);
        self.recent.record(size);
        Ok(Some((header, body)))
    }

    /// The size field of the next frame, once it is there.
    fn next_size(&self) -> Option<usize> {
        let field = self.buffer.get(SIZE_AT..SIZE_AT + 4)?;
        Some(u32::from_le_bytes(field.try_into().expect("four bytes")) as usize)
    }

    /// Takes a complete frame out of the buffer and returns its body.
    fn split_body(&mut self, size: usize) -> BytesMut {
        if !self.wastes(size) {
            let mut frame = self.buffer.split_to(size);
            frame.advance(HEADER_BYTES);
            return frame;
        }
        // A small frame in a large buffer: the buffer stays for its next frame, the body moves.
        let body = BytesMut::from(&self.buffer[HEADER_BYTES..size]);
        self.copied_bytes += body.len() as u64;
        self.buffer.advance(size);
        body
    }

    /// Whether a frame of `size` would pin much more memory than it needs.
    fn wastes(&self, size: usize) -> bool {
        self.allocated > CHUNK_BYTES && size.saturating_mul(WASTE_PARTS) < self.allocated
    }

    /// Makes room for the next read.
    fn prepare(&mut self) {
        let pending = self.buffer.len();
        match self.next_size() {
            // The frame is known and incomplete: it needs a place of its whole size.
            Some(size) if size > pending && size <= self.frame_bytes_max => {
                let fits = self.buffer.capacity() >= size;
                let is_placed = size < PLACED_BYTES_MIN || self.is_batch_placed();
                if !fits || !is_placed || (size > READ_AHEAD_BYTES && self.wastes(size)) {
                    self.relocate(size.max(CHUNK_BYTES));
                }
            }
            // Nothing is known: room for what usually comes.
            _ if pending == 0 => {
                let expected = self.expected_bytes();
                let outgrown = self.allocated > CHUNK_BYTES && self.allocated > WASTE_PARTS * expected;
                let short = self.buffer.capacity() < expected && !self.reclaim(expected);
                if outgrown || (short && !self.rest_suffices()) {
                    self.relocate(expected);
                }
            }
            _ if self.buffer.capacity() < pending.max(HEADER_BYTES) + 1 => {
                self.relocate(self.expected_bytes().max(pending + CHUNK_BYTES));
            }
            _ => {}
        }
    }

    /// Whether the rest of a small chunk holds another frame like the recent ones. Frames that come one at a time then
    /// share a chunk, as those that come together do; a chunk for each would pin many times what they hold.
    fn rest_suffices(&self) -> bool {
        self.allocated <= CHUNK_BYTES && self.buffer.capacity() >= self.recent.bytes().max(REST_BYTES_MIN)
    }

    /// Size of a buffer for frames like the recent ones.
    fn expected_bytes(&self) -> usize {
        self.recent.bytes().clamp(CHUNK_BYTES, EXPECTED_BYTES_MAX.min(self.frame_bytes_max.max(CHUNK_BYTES)))
    }

    /// Starts again at the front of the allocation when no frame holds a part of it. Only for an empty buffer, so
    /// nothing moves.
    fn reclaim(&mut self, capacity: usize) -> bool {
        debug_assert!(self.buffer.is_empty());
        if self.allocated < PLACED_BYTES_MIN {
            return self.allocated >= capacity && self.buffer.try_reclaim(capacity);
        }
        let is_free = self.allocated >= capacity && self.buffer.try_reclaim(capacity + BLOCK_BYTES);
        if is_free {
            let skip = self.batch_skip(&self.buffer);
            self.buffer.resize(skip, 0);
            self.buffer.advance(skip);
        }
        is_free
    }

    /// Bytes to leave out at the front of a buffer so that the batch of the next frame lies at a block.
    fn batch_skip(&self, buffer: &BytesMut) -> usize {
        buffer.as_ptr().wrapping_add(self.batch_at).align_offset(BLOCK_BYTES).min(BLOCK_BYTES)
    }

    /// Whether the batch of the frame at the front lies at a block. Notes where it starts in the frame. A frame of which
    /// too little is known yet, and one without a batch, lie well anywhere.
    fn is_batch_placed(&mut self) -> bool {
        let is_send = self.buffer.get(COMMAND_AT) == Some(&COMMAND_REQUEST)
            && self.buffer.get(OPERATION_AT) == Some(&(Operation::SendMessages as u8));
        let Some(length) = self.buffer.get(HEADER_BYTES..HEADER_BYTES + 4).filter(|_| is_send) else {
            return true;
        };
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        let batch_at = (HEADER_BYTES + 4).saturating_add(length);
        if batch_at > BATCH_AT_MAX {
            return true;
        }
        self.batch_at = batch_at;
        self.buffer.as_ptr().wrapping_add(batch_at).align_offset(BLOCK_BYTES) == 0
    }

    /// An empty buffer in which the batch of the next frame lies at a block.
    fn placed_buffer(&self, capacity: usize) -> BytesMut {
        let mut buffer = BytesMut::with_capacity(capacity + BLOCK_BYTES);
        let skip = self.batch_skip(&buffer);
        buffer.resize(skip, 0);
        // What was skipped stays with nobody.
        buffer.split_off(skip)
    }

    /// Moves what is pending into a new buffer.
    fn relocate(&mut self, capacity: usize) {
        let mut buffer = match capacity >= PLACED_BYTES_MIN {
            true => self.placed_buffer(capacity),
            false => BytesMut::with_capacity(capacity),
        };
        buffer.extend_from_slice(&self.buffer);
        self.copied_bytes += self.buffer.len() as u64;
        self.allocated = buffer.capacity();
        self.buffer = buffer;
    }
}

#[cfg(test)]
mod tests;
