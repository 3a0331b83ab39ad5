//! How an answer is put into a frame. Everything that the client checks is echoed here and nowhere else.
//! Source: wire protocol, sections 1.4, 1.8, 1.10 and 1.12.

use bytes::{BufMut, Bytes, BytesMut};
use laneway_transport::OutFrame;
use laneway_wire::header::{HEADER_BYTES, ReplyHeader, RequestHeader};
use laneway_wire::reply::put_rejection;
use laneway_wire::{Incarnation, Micros, Op, Status};

/// The parts of a request that its answer repeats. Travels with the request between shards.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    header: RequestHeader,
}

impl Echo {
    /// What an answer to `header` repeats.
    pub fn new(header: &RequestHeader) -> Self {
        Self { header: *header }
    }

    /// The request's header.
    pub fn header(&self) -> &RequestHeader {
        &self.header
    }

    /// A refusal: nothing was committed, the body is empty.
    pub fn refusal(&self, status: Status) -> OutFrame {
        debug_assert!(!status.is_ok(), "a success is not a refusal");
        OutFrame::whole(Bytes::copy_from_slice(&ReplyHeader::refusal(&self.header, status).encode()))
    }

    /// The answer to a read. `commit` is the metadata op that this shard has applied; `payload` writes the body.
    pub fn read(&self, commit: Op, payload: impl FnOnce(&mut BytesMut)) -> OutFrame {
        let mut frame = body(payload);
        let mut header = ReplyHeader::to(&self.header, frame.len() - HEADER_BYTES);
        header.commit = commit;
        put_header(&mut frame, &header);
        OutFrame::whole(frame.freeze())
    }

    /// The answer to a poll: the head of the body, then stored records as they lie.
    pub fn records(
        &self,
        commit: Op,
        served: Incarnation,
        head: impl FnOnce(&mut BytesMut),
        records: Vec<Bytes>,
    ) -> OutFrame {
        let mut frame = body(head);
        let stored: usize = records.iter().map(Bytes::len).sum();
        let mut header = ReplyHeader::to(&self.header, frame.len() - HEADER_BYTES + stored);
        header.commit = commit;
        header.partition_incarnation = served;
        put_header(&mut frame, &header);
        let mut parts = Vec::with_capacity(1 + records.len());
        parts.push(frame.freeze());
        parts.extend(records);
        OutFrame { parts }
    }

    /// The final result of an operation that committed at `op`. `payload` writes the body, with the result section
    /// where the operation has one.
    pub fn committed(&self, op: Op, timestamp: Micros, payload: impl FnOnce(&mut BytesMut)) -> OutFrame {
        let mut frame = body(payload);
        let mut header = ReplyHeader::committed(&self.header, op, frame.len() - HEADER_BYTES);
        header.timestamp = timestamp.0;
        put_header(&mut frame, &header);
        OutFrame::whole(frame.freeze())
    }

    /// A refusal in the result section, without the committed marker: what a registration gets that may be tried
    /// again.
    pub fn rejection(&self, status: Status) -> OutFrame {
        let mut frame = body(|out| put_rejection(out, status));
        let header = ReplyHeader::to(&self.header, frame.len() - HEADER_BYTES);
        put_header(&mut frame, &header);
        OutFrame::whole(frame.freeze())
    }
}

fn body(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut frame = BytesMut::with_capacity(2 * HEADER_BYTES);
    frame.put_bytes(0, HEADER_BYTES);
    write(&mut frame);
    frame
}

fn put_header(frame: &mut BytesMut, header: &ReplyHeader) {
    frame[..HEADER_BYTES].copy_from_slice(&header.encode());
}
