//! What an entry of a data lane's log does: the prefix of its body. The batch of an append follows it as separate
//! bytes and is no part of the prefix, so it is never copied.
//!
//! Format, little endian: `version u16 = 1, kind u8, key (incarnation u64, partition u32)`, then by kind:
//!
//! | kind | op | rest |
//! |---|---|---|
//! | 1 | open partition | `stream u32, topic u32, durability u8, offset durability u8, segment_bytes u64` |
//! | 2 | append batch | `identity 32, base_offset u64, has_producer u8, then 14 bytes of producer if 1` |
//! | 3 | store offset | `identity 32, consumer key, offset u64, mode u8` |
//! | 4 | delete offset | `identity 32, consumer key` |
//! | 5 | fence partition | nothing |
//! | 6 | retire session | `client u128, session u64`; its key is zero, it concerns the whole lane |
//!
//! An identity of zeros marks an op of the server itself. Durability is 1 replicated, 2 persisted. Mode is 1 explicit,
//! 2 automatic.

use laneway_reads::SessionKey;
use laneway_vsr::Durability;
use laneway_wire::batch::ProducerSection;
use laneway_wire::{
    ClientId, Incarnation, Offset, PartitionId, PartitionKey, SessionEpoch, StreamId, TopicId,
};

use super::codec::{DecodeError, Put, Reader};
use super::consumer::ConsumerKey;
use super::identity::{Identity, put_producer, take_producer};

/// Version of the format.
pub const LANE_OP_VERSION: u16 = 1;

/// What a partition needs to know of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// What an acknowledged append means.
    pub durability: Durability,
    /// What an acknowledged offset means.
    pub offset_durability: Durability,
    /// Where a segment is sealed, bytes.
    pub segment_bytes: u64,
}

/// Why an offset is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StoreMode {
    /// A client asked for it: overwrites, also backwards.
    Explicit = 1,
    /// A read did it: only forwards.
    Auto = 2,
}

/// One op of a data lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneOp {
    /// The partition begins to exist. Again for the same key, it changes nothing.
    OpenPartition {
        /// The partition.
        key: PartitionKey,
        /// Its stream.
        stream: StreamId,
        /// Its topic.
        topic: TopicId,
        /// Its settings.
        settings: PartitionSettings,
    },
    /// Appends the batch behind the prefix.
    AppendBatch {
        /// The partition.
        key: PartitionKey,
        /// Who asked.
        identity: Option<Identity>,
        /// Offset of the first message, as it is stamped into the batch.
        base_offset: Offset,
        /// The producer section that the batch came with.
        producer: Option<ProducerSection>,
    },
    /// Stores a consumer's offset.
    StoreOffset {
        /// The partition.
        key: PartitionKey,
        /// Who asked; nobody for a read.
        identity: Option<Identity>,
        /// Whose offset.
        consumer: ConsumerKey,
        /// The offset.
        offset: Offset,
        /// How it meets the one that is there.
        mode: StoreMode,
    },
    /// Deletes a consumer's offset.
    DeleteOffset {
        /// The partition.
        key: PartitionKey,
        /// Who asked.
        identity: Option<Identity>,
        /// Whose offset.
        consumer: ConsumerKey,
    },
    /// The partition ends: nothing is appended or read after it.
    FencePartition {
        /// The partition.
        key: PartitionKey,
    },
    /// A session ended for good: no resend of its requests can come, so their receipts go.
    RetireSession {
        /// The session.
        session: SessionKey,
    },
}

const WHAT: &str = "lane op";
const NO_KEY: PartitionKey = PartitionKey { incarnation: Incarnation(0), partition: PartitionId(0) };

impl LaneOp {
    /// The partition that the op concerns; `None` when it concerns the whole lane.
    pub fn key(&self) -> Option<PartitionKey> {
        match self {
            LaneOp::OpenPartition { key, .. }
            | LaneOp::AppendBatch { key, .. }
            | LaneOp::StoreOffset { key, .. }
            | LaneOp::DeleteOffset { key, .. }
            | LaneOp::FencePartition { key } => Some(*key),
            LaneOp::RetireSession { .. } => None,
        }
    }

    /// The prefix of the entry's body.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.put_u16(LANE_OP_VERSION);
        out.put_u8(self.kind());
        put_key(&mut out, self.key().unwrap_or(NO_KEY));
        match self {
            LaneOp::OpenPartition { stream, topic, settings, .. } => {
                out.put_u32(stream.0);
                out.put_u32(topic.0);
                settings.encode(&mut out);
            }
            LaneOp::AppendBatch { identity, base_offset, producer, .. } => {
                Identity::encode_option(identity.as_ref(), &mut out);
                out.put_u64(base_offset.0);
                out.put_u8(u8::from(producer.is_some()));
                if let Some(producer) = producer {
                    put_producer(&mut out, producer);
                }
            }
            LaneOp::StoreOffset { identity, consumer, offset, mode, .. } => {
                Identity::encode_option(identity.as_ref(), &mut out);
                consumer.encode(&mut out);
                out.put_u64(offset.0);
                out.put_u8(*mode as u8);
            }
            LaneOp::DeleteOffset { identity, consumer, .. } => {
                Identity::encode_option(identity.as_ref(), &mut out);
                consumer.encode(&mut out);
            }
            LaneOp::FencePartition { .. } => {}
            LaneOp::RetireSession { session } => put_session(&mut out, *session),
        }
        out
    }

    /// Decodes a prefix. Nothing may follow it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(WHAT, bytes);
        let version = reader.u16()?;
        if version != LANE_OP_VERSION {
            return Err(DecodeError::Version { what: WHAT, version });
        }
        let kind = reader.u8()?;
        let key = take_key(&mut reader)?;
        let op = match kind {
            1 => LaneOp::OpenPartition {
                key,
                stream: StreamId(reader.u32()?),
                topic: TopicId(reader.u32()?),
                settings: PartitionSettings::decode(&mut reader)?,
            },
            2 => LaneOp::AppendBatch {
                key,
                identity: Identity::decode_option(&mut reader)?,
                base_offset: Offset(reader.u64()?),
                producer: match reader.u8()? {
                    0 => None,
                    1 => Some(take_producer(&mut reader)?),
                    _ => return Err(reader.range("has_producer")),
                },
            },
            3 => LaneOp::StoreOffset {
                key,
                identity: Identity::decode_option(&mut reader)?,
                consumer: ConsumerKey::decode(&mut reader)?,
                offset: Offset(reader.u64()?),
                mode: match reader.u8()? {
                    1 => StoreMode::Explicit,
                    2 => StoreMode::Auto,
                    _ => return Err(reader.range("mode")),
                },
            },
            4 => LaneOp::DeleteOffset {
                key,
                identity: Identity::decode_option(&mut reader)?,
                consumer: ConsumerKey::decode(&mut reader)?,
            },
            5 => LaneOp::FencePartition { key },
            6 if key == NO_KEY => LaneOp::RetireSession { session: take_session(&mut reader)? },
            _ => return Err(reader.range("kind")),
        };
        reader.finish()?;
        Ok(op)
    }

    fn kind(&self) -> u8 {
        match self {
            LaneOp::OpenPartition { .. } => 1,
            LaneOp::AppendBatch { .. } => 2,
            LaneOp::StoreOffset { .. } => 3,
            LaneOp::DeleteOffset { .. } => 4,
            LaneOp::FencePartition { .. } => 5,
            LaneOp::RetireSession { .. } => 6,
        }
    }
}

impl PartitionSettings {
    /// Appends `durability u8, offset durability u8, segment_bytes u64`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(durability_byte(self.durability));
        out.put_u8(durability_byte(self.offset_durability));
        out.put_u64(self.segment_bytes);
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            durability: take_durability(reader)?,
            offset_durability: take_durability(reader)?,
            segment_bytes: reader.u64()?,
        })
    }
}

fn durability_byte(durability: Durability) -> u8 {
    match durability {
        Durability::Replicated => 1,
        Durability::Persisted => 2,
    }
}

fn take_durability(reader: &mut Reader<'_>) -> Result<Durability, DecodeError> {
    match reader.u8()? {
        1 => Ok(Durability::Replicated),
        2 => Ok(Durability::Persisted),
        _ => Err(reader.range("durability")),
    }
}

pub(super) fn put_key(out: &mut Vec<u8>, key: PartitionKey) {
    out.put_u64(key.incarnation.0);
    out.put_u32(key.partition.0);
}

pub(super) fn take_key(reader: &mut Reader<'_>) -> Result<PartitionKey, DecodeError> {
    Ok(PartitionKey { incarnation: Incarnation(reader.u64()?), partition: PartitionId(reader.u32()?) })
}

pub(super) fn put_session(out: &mut Vec<u8>, session: SessionKey) {
    out.put_u128(session.client.0);
    out.put_u64(session.session.0);
}

pub(super) fn take_session(reader: &mut Reader<'_>) -> Result<SessionKey, DecodeError> {
    Ok(SessionKey { client: ClientId(reader.u128()?), session: SessionEpoch(reader.u64()?) })
}
