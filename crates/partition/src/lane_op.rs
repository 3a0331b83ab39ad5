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
//! | 7 | advance start | `identity 32, start u64` |
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
    /// The sealed segments that end at or below an offset go: retention, or a client that deletes segments. Only
    /// forwards; one that is behind changes nothing.
    AdvanceStart {
        /// The partition.
        key: PartitionKey,
        /// Who asked; nobody for retention.
        identity: Option<Identity>,
        /// Where the log starts after it.
        start: Offset,
    },
    /// A session ended for good: no resend of its requests can come, so their receipts go.
    RetireSession {
        /// The session.
        session: SessionKey,
    },
}

const WHAT: &str = "lane op";
pub(crate) const NO_KEY: PartitionKey =
    PartitionKey { incarnation: Incarnation(0), partition: PartitionId(0) };

impl LaneOp {
    /// The partition that the op concerns; `None` when it concerns the whole lane.
    pub fn key(&self) -> Option<PartitionKey> {
        match self {
            LaneOp::OpenPartition { key, .. }
            | LaneOp::AppendBatch { key, .. }
            | LaneOp::StoreOffset { key, .. }
            | LaneOp::DeleteOffset { key, .. }
            | LaneOp::AdvanceStart { key, .. }
            | LaneOp::FencePartition { key } => Some(*key),
            LaneOp::RetireSession { .. } => None,
        }
    }

    /// The partition that an encoded op appends to; `None` when it is another op, or none.
    pub fn appends_to(prefix: &[u8]) -> Option<PartitionKey> {
        let mut reader = Reader::new(WHAT, prefix);
        let is_append = reader.u16() == Ok(LANE_OP_VERSION) && reader.u8() == Ok(2);
        is_append.then(|| take_key(&mut reader).ok()).flatten()
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
            LaneOp::AdvanceStart { identity, start, .. } => {
                Identity::encode_option(identity.as_ref(), &mut out);
                out.put_u64(start.0);
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
            7 => LaneOp::AdvanceStart {
                key,
                identity: Identity::decode_option(&mut reader)?,
                start: Offset(reader.u64()?),
            },
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
            LaneOp::AdvanceStart { .. } => 7,
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

pub(crate) fn put_key(out: &mut Vec<u8>, key: PartitionKey) {
    out.put_u64(key.incarnation.0);
    out.put_u32(key.partition.0);
}

pub(crate) fn take_key(reader: &mut Reader<'_>) -> Result<PartitionKey, DecodeError> {
    Ok(PartitionKey { incarnation: Incarnation(reader.u64()?), partition: PartitionId(reader.u32()?) })
}

pub(crate) fn put_session(out: &mut Vec<u8>, session: SessionKey) {
    out.put_u128(session.client.0);
    out.put_u64(session.session.0);
}

pub(crate) fn take_session(reader: &mut Reader<'_>) -> Result<SessionKey, DecodeError> {
    Ok(SessionKey { client: ClientId(reader.u128()?), session: SessionEpoch(reader.u64()?) })
}

#[cfg(test)]
mod tests {
    use laneway_wire::RequestNumber;
    use proptest::prelude::*;

    use super::*;
    use crate::consumer::ConsumerKind;

    fn any_key() -> impl Strategy<Value = PartitionKey> {
        (any::<u64>(), any::<u32>()).prop_map(|(incarnation, partition)| PartitionKey {
            incarnation: Incarnation(incarnation),
            partition: PartitionId(partition),
        })
    }

    fn any_identity() -> impl Strategy<Value = Option<Identity>> {
        prop::option::of((1_u128.., any::<u64>(), any::<u64>()).prop_map(|(client, session, request)| {
            Identity {
                client: ClientId(client),
                session: SessionEpoch(session),
                request: RequestNumber(request),
            }
        }))
    }

    fn any_consumer() -> impl Strategy<Value = ConsumerKey> {
        let kind = prop::sample::select(ConsumerKind::ALL.to_vec());
        let name = prop::collection::vec(any::<u8>(), 1..=255);
        prop_oneof![
            (kind.clone(), any::<u64>()).prop_map(|(kind, number)| ConsumerKey::number(kind, number)),
            (kind, name).prop_map(|(kind, name)| ConsumerKey::name(kind, &name).unwrap()),
        ]
    }

    fn any_durability() -> impl Strategy<Value = Durability> {
        prop_oneof![Just(Durability::Replicated), Just(Durability::Persisted)]
    }

    fn any_producer() -> impl Strategy<Value = Option<ProducerSection>> {
        prop::option::of((0..1_u64 << 63, 0..1_u16 << 15, 0..1_u32 << 31).prop_map(
            |(producer_id, epoch, base_sequence)| ProducerSection { producer_id, epoch, base_sequence },
        ))
    }

    fn any_op() -> impl Strategy<Value = LaneOp> {
        let mode = prop_oneof![Just(StoreMode::Explicit), Just(StoreMode::Auto)];
        prop_oneof![
            (any_key(), any::<u32>(), any::<u32>(), any_durability(), any_durability(), any::<u64>())
                .prop_map(|(key, stream, topic, durability, offset_durability, segment_bytes)| {
                    LaneOp::OpenPartition {
                        key,
                        stream: StreamId(stream),
                        topic: TopicId(topic),
                        settings: PartitionSettings { durability, offset_durability, segment_bytes },
                    }
                }),
            (any_key(), any_identity(), any::<u64>(), any_producer()).prop_map(
                |(key, identity, base_offset, producer)| LaneOp::AppendBatch {
                    key,
                    identity,
                    base_offset: Offset(base_offset),
                    producer,
                }
            ),
            (any_key(), any_identity(), any_consumer(), any::<u64>(), mode).prop_map(
                |(key, identity, consumer, offset, mode)| LaneOp::StoreOffset {
                    key,
                    identity,
                    consumer,
                    offset: Offset(offset),
                    mode,
                }
            ),
            (any_key(), any_identity(), any_consumer())
                .prop_map(|(key, identity, consumer)| LaneOp::DeleteOffset { key, identity, consumer }),
            any_key().prop_map(|key| LaneOp::FencePartition { key }),
            (any_key(), any_identity(), any::<u64>()).prop_map(|(key, identity, start)| {
                LaneOp::AdvanceStart { key, identity, start: Offset(start) }
            }),
            (any::<u128>(), any::<u64>()).prop_map(|(client, session)| LaneOp::RetireSession {
                session: SessionKey { client: ClientId(client), session: SessionEpoch(session) },
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn op_round_trips_and_no_shorter_or_longer_form_does(op in any_op()) {
            let bytes = op.encode();
            prop_assert_eq!(LaneOp::decode(&bytes), Ok(op));
            for len in 0..bytes.len() {
                prop_assert!(LaneOp::decode(&bytes[..len]).is_err());
            }
            let longer = [&bytes[..], &[0]].concat();
            prop_assert!(LaneOp::decode(&longer).is_err());
        }

        #[test]
        fn any_bytes_decode_to_an_op_or_an_error(
            mut bytes in prop::collection::vec(any::<u8>(), 0..120),
            kind in 0_u8..9,
        ) {
            if let Some(header) = bytes.get_mut(..3) {
                header.copy_from_slice(&[1, 0, kind]);
            }
            if let Ok(op) = LaneOp::decode(&bytes) {
                prop_assert_eq!(LaneOp::decode(&op.encode()), Ok(op));
            }
        }
    }

    #[test]
    fn unknown_version_is_named() {
        let mut bytes = LaneOp::FencePartition { key: NO_KEY }.encode();
        bytes[0] = 2;
        assert_eq!(LaneOp::decode(&bytes), Err(DecodeError::Version { what: WHAT, version: 2 }));
    }

    #[test]
    fn store_offset_v1_is_these_bytes() {
        let op = LaneOp::StoreOffset {
            key: PartitionKey { incarnation: Incarnation(5), partition: PartitionId(2) },
            identity: Some(Identity {
                client: ClientId(9),
                session: SessionEpoch(8),
                request: RequestNumber(7),
            }),
            consumer: ConsumerKey::name(ConsumerKind::Consumer, b"ab").unwrap(),
            offset: Offset(6),
            mode: StoreMode::Explicit,
        };
        let mut golden = vec![1, 0, 3, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
        golden.extend_from_slice(&9_u128.to_le_bytes());
        golden.extend_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        golden.extend_from_slice(&[1, 2, 2, b'a', b'b', 6, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(op.encode(), golden);
    }
}
