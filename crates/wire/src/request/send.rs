//! Appending a batch. Source: wire protocol, section 5.6.

use bytes::{BufMut, BytesMut};

use super::Request;
use crate::code::Code;
use crate::field::Field;
use crate::primitive::{DecodeError, EncodeError, Identifier, Partitioning, Reader};

/// Where a batch goes (101). The batch follows the metadata in the body; [`crate::batch::verify_producer_batch`] checks
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendMessages<'a> {
    /// The stream.
    pub stream: Identifier<'a>,
    /// The topic.
    pub topic: Identifier<'a>,
    /// The partition; reference clients always name it.
    pub partitioning: Partitioning<'a>,
    /// Messages in the batch, as the request says.
    pub messages_count: u32,
    /// Where the batch starts in the body. Split there to keep the batch without copying it. Ignored by `encode`.
    pub batch_at: usize,
}

impl<'a> SendMessages<'a> {
    /// Reads the metadata, which its length field must describe exactly.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let mut metadata = Reader::new(reader.bytes32("metadata")?);
        let send = SendMessages {
            stream: Field::read(&mut metadata, "stream")?,
            topic: Field::read(&mut metadata, "topic")?,
            partitioning: Field::read(&mut metadata, "partitioning")?,
            messages_count: metadata.u32("messages_count")?,
            batch_at: reader.position(),
        };
        metadata.finish()?;
        Ok(send)
    }
}

impl Request for SendMessages<'_> {
    const CODE: Code = Code::SendMessages;

    /// Appends the metadata; the batch comes behind it, see [`crate::batch::BatchBuilder::append_to`].
    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let at = out.len();
        out.put_u32_le(0);
        self.stream.put(out, "stream")?;
        self.topic.put(out, "topic")?;
        self.partitioning.put(out)?;
        out.put_u32_le(self.messages_count);
        let len = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        Ok(())
    }
}
