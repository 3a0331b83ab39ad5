//! Who asked for an op, and what was answered.

use laneway_reads::SessionKey;
use laneway_wire::batch::ProducerSection;
use laneway_wire::{ClientId, Micros, Offset, Op, RequestNumber, SessionEpoch, Status};

use super::codec::{DecodeError, Put, Reader};

/// Identity of a client's request. A resend carries the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The client.
    pub client: ClientId,
    /// Its session.
    pub session: SessionEpoch,
    /// The number of the request in it.
    pub request: RequestNumber,
}

impl Identity {
    /// The session that the request belongs to.
    pub fn session_key(&self) -> SessionKey {
        SessionKey { client: self.client, session: self.session }
    }

    /// Appends `client u128, session u64, request u64`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u128(self.client.0);
        out.put_u64(self.session.0);
        out.put_u64(self.request.0);
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            client: ClientId(reader.u128()?),
            session: SessionEpoch(reader.u64()?),
            request: RequestNumber(reader.u64()?),
        })
    }

    /// Appends an identity or, for an op that the server made itself, zeros: no client and no request has number 0.
    pub fn encode_option(identity: Option<&Identity>, out: &mut Vec<u8>) {
        let server = Identity { client: ClientId(0), session: SessionEpoch(0), request: RequestNumber(0) };
        identity.unwrap_or(&server).encode(out);
    }

    /// Decodes what [`Self::encode_option`] wrote.
    pub fn decode_option(reader: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        let identity = Self::decode(reader)?;
        Ok((identity.client.0 != 0).then_some(identity))
    }
}

/// What an op did, as far as its receipt tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ReceiptKind {
    /// Appended a batch.
    Append = 1,
    /// Stored a consumer's offset.
    StoreOffset = 2,
    /// Deleted a consumer's offset.
    DeleteOffset = 3,
    /// Deleted the oldest segments.
    DeleteSegments = 4,
}

impl ReceiptKind {
    /// Decodes the byte of a checkpoint.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Append, Self::StoreOffset, Self::DeleteOffset, Self::DeleteSegments]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The answer to a request, as every replica derives it from the op. A resend gets the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What the op did.
    pub kind: ReceiptKind,
    /// The request it answers.
    pub request: RequestNumber,
    /// The op.
    pub op: Op,
    /// Offset of the first message that was appended; the stored offset for a store; 0 for a delete of one; where the
    /// log starts after a delete of segments.
    pub base_offset: Offset,
    /// Messages that were appended; 0 otherwise.
    pub message_count: u32,
    /// When the op was taken.
    pub timestamp: Micros,
    /// The outcome.
    pub status: Status,
}

impl Receipt {
    /// Bytes of an encoded receipt.
    pub const BYTES: usize = 1 + 8 + 8 + 8 + 4 + 8 + 4;

    /// Appends the receipt, [`Self::BYTES`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind as u8);
        out.put_u64(self.request.0);
        out.put_u64(self.op.0);
        out.put_u64(self.base_offset.0);
        out.put_u32(self.message_count);
        out.put_u64(self.timestamp.0);
        out.put_u32(self.status.number());
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            kind: ReceiptKind::from_byte(reader.u8()?).ok_or_else(|| reader.range("receipt kind"))?,
            request: RequestNumber(reader.u64()?),
            op: Op(reader.u64()?),
            base_offset: Offset(reader.u64()?),
            message_count: reader.u32()?,
            timestamp: Micros(reader.u64()?),
            status: Status::from_number(reader.u32()?),
        })
    }
}

/// What to do with a request that arrives at the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Never seen: stage it and propose it.
    New,
    /// Done before: answer with this receipt, marked as a replay.
    Replay(Receipt),
    /// The same request is on its way as this op: answer when it is applied.
    InFlight(Op),
    /// Answer this status. Nothing happened now.
    Refuse(Status),
}

/// Bytes of an encoded producer section.
pub const PRODUCER_BYTES: usize = 8 + 2 + 4;

/// Appends `producer_id u64, epoch u16, base_sequence u32`.
pub(crate) fn put_producer(out: &mut Vec<u8>, producer: &ProducerSection) {
    out.put_u64(producer.producer_id);
    out.put_u16(producer.epoch);
    out.put_u32(producer.base_sequence);
}

/// Decodes what [`put_producer`] wrote.
pub(crate) fn take_producer(reader: &mut Reader<'_>) -> Result<ProducerSection, DecodeError> {
    let producer =
        ProducerSection { producer_id: reader.u64()?, epoch: reader.u16()?, base_sequence: reader.u32()? };
    if !producer.is_valid() {
        return Err(reader.range("producer"));
    }
    Ok(producer)
}
