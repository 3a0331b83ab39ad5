//! A lane as bytes, as of one op.
//!
//! A checkpoint is taken in two steps, because the partitions' newest batches have to reach their segments in between
//! while the lane goes on: [`LaneState::draft_checkpoint`] freezes the state at the last applied op and names the
//! batches to flush; once they are in segments, [`CheckpointDraft::finish`] adds what storage wants to find again and
//! gives the bytes. Batches above that op belong to the journal, not to the checkpoint.
//!
//! Format, little endian: `magic "LWLC", version u16 = 3, lane u32, op u64, timestamp u64, partitions u32`, then per
//! partition `length u32` and that many bytes, then `segments length u32` and that many bytes; then `has_opened u8` and
//! the key of the highest partition that was ever opened, `incarnation u64, partition u32`; at the end `checksum u64`
//! (XxHash3-64 of all before it). A partition: `incarnation u64, partition u32, stream u32, topic u32, settings 10,
//! has_head u8, head u64, retained_start u64, timestamp_last u64, bytes_total u64, bytes_removed u64`, then segments,
//! stored offsets, receipts and producers, each as its module says. Version 1 has no segments, version 2 no highest key.

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway_reads::StoredBatch;
use laneway_wire::{LaneId, Micros, Offset, Op, PartitionKey, StreamId, TopicId};
use xxhash_rust::xxh3::xxh3_64;

use super::codec::{DecodeError, Put, Reader};
use super::lane::{LaneLimits, LaneState};
use super::lane_op::{NO_KEY, PartitionSettings, put_key, take_key};
use super::offsets::StoredOffsets;
use super::partition::Partition;
use super::producers::Producers;
use super::receipts::Receipts;
use super::segments::Segments;

const MAGIC: &[u8; 4] = b"LWLC";
const VERSION: u16 = 3;
/// The version before a lane wrote its segments down; still read.
const VERSION_WITHOUT_SEGMENTS: u16 = 1;
/// The version before a lane remembered what it had opened; still read.
const VERSION_WITHOUT_OPENED: u16 = 2;
const WHAT: &str = "lane checkpoint";
const CHECKSUM_BYTES: usize = 8;
/// The least that a partition takes: its length, its key, the length of its segments.
const PARTITION_BYTES_MIN: usize = 4 + 12 + 4;

/// Why a checkpoint cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Batches of the partition lie in memory only: a checkpoint would lose them.
    #[error("partition {key} has {bytes} bytes that no segment holds")]
    Unflushed {
        /// The partition.
        key: PartitionKey,
        /// Bytes of its batches.
        bytes: u64,
    },
}

/// The state of a lane at one op, before its newest batches are in segments.
#[derive(Clone, Debug)]
pub struct CheckpointDraft {
    lane: LaneId,
    op: Op,
    timestamp: Micros,
    partitions: BTreeMap<PartitionKey, PartitionDraft>,
    opened_max: Option<PartitionKey>,
}

#[derive(Clone, Debug)]
struct PartitionDraft {
    encoded: Vec<u8>,
    head: Option<Offset>,
    flush: Vec<StoredBatch>,
    segments: Bytes,
}

impl CheckpointDraft {
    /// The op that the checkpoint will cover.
    pub fn op(&self) -> Op {
        self.op
    }

    /// The partitions with batches that must reach their segments first, the head that they then reach, and those
    /// batches, oldest first.
    pub fn to_flush(&self) -> impl Iterator<Item = (PartitionKey, Offset, &[StoredBatch])> {
        let drafts = self.partitions.iter().filter(|(_, draft)| !draft.flush.is_empty());
        drafts.filter_map(|(key, draft)| Some((*key, draft.head?, draft.flush.as_slice())))
    }

    /// What storage wants to find again about a partition as of this draft. Without a call it is what the partition
    /// itself has: from the checkpoint it was restored from, or from [`Partition::set_segments`].
    pub fn set_segments(&mut self, key: PartitionKey, segments: Bytes) {
        if let Some(draft) = self.partitions.get_mut(&key) {
            draft.segments = segments;
        }
    }

    /// The checkpoint. The caller has flushed everything that [`Self::to_flush`] named.
    pub fn finish(self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.put_u16(VERSION);
        out.put_u32(self.lane.0);
        out.put_u64(self.op.0);
        out.put_u64(self.timestamp.0);
        out.put_count(self.partitions.len());
        for draft in self.partitions.values() {
            out.put_count(draft.encoded.len());
            out.extend_from_slice(&draft.encoded);
            out.put_count(draft.segments.len());
            out.extend_from_slice(&draft.segments);
        }
        out.put_u8(u8::from(self.opened_max.is_some()));
        put_key(&mut out, self.opened_max.unwrap_or(NO_KEY));
        let checksum = xxh3_64(&out);
        out.put_u64(checksum);
        out
    }
}

impl LaneState {
    /// Freezes the state at the last applied op.
    pub fn draft_checkpoint(&self) -> CheckpointDraft {
        let draft = |partition: &Partition| PartitionDraft {
            encoded: encode_partition(partition),
            head: partition.head(),
            flush: partition.head().map(|head| partition.tail_for_flush(head)).unwrap_or_default(),
            segments: partition.segments().clone(),
        };
        CheckpointDraft {
            lane: self.lane,
            op: self.applied,
            timestamp: self.timestamp_last,
            partitions: self.partitions.iter().map(|(key, partition)| (*key, draft(partition))).collect(),
            opened_max: self.opened_max,
        }
    }

    /// The checkpoint at once, when every batch is in a segment already.
    pub fn to_checkpoint(&self) -> Result<Vec<u8>, CheckpointError> {
        let unflushed = self.iter().find(|partition| partition.unflushed_bytes() > 0);
        match unflushed {
            Some(partition) => {
                Err(CheckpointError::Unflushed { key: partition.key(), bytes: partition.unflushed_bytes() })
            }
            None => Ok(self.draft_checkpoint().finish()),
        }
    }

    /// Restores a lane. What was in memory is in segments now, and no op is applied twice: entries at or below the
    /// checkpoint's op are skipped by [`LaneState::apply`].
    pub fn from_checkpoint(bytes: &[u8], limits: LaneLimits) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(WHAT, checked_body(bytes)?);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(reader.range("magic"));
        }
        let version = reader.u16()?;
        if !(VERSION_WITHOUT_SEGMENTS..=VERSION).contains(&version) {
            return Err(DecodeError::Version { what: WHAT, version });
        }
        let mut lane = LaneState::new(LaneId(reader.u32()?), limits);
        lane.applied = Op(reader.u64()?);
        lane.timestamp_last = Micros(reader.u64()?);
        for _ in 0..reader.count(PARTITION_BYTES_MIN)? {
            let length = reader.count(1)?;
            let encoded = reader.take(length)?;
            let mut partition = decode_partition(version, encoded, &limits)?;
            let length = reader.count(1)?;
            partition.set_segments(Bytes::copy_from_slice(reader.take(length)?));
            if lane.partitions.insert(partition.key(), partition).is_some() {
                return Err(reader.range("partition key"));
            }
        }
        // At least what is here was opened.
        lane.opened_max = lane.partitions.keys().next_back().copied();
        if version > VERSION_WITHOUT_OPENED {
            let has_opened = reader.u8()?;
            let opened = (has_opened == 1).then_some(take_key(&mut reader)?);
            if has_opened > 1 || opened < lane.opened_max {
                return Err(reader.range("opened"));
            }
            lane.opened_max = opened;
        }
        reader.finish()?;
        lane.index_sessions();
        Ok(lane)
    }
}

fn checked_body(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let at = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(DecodeError::Short { what: WHAT })?;
    let (body, checksum) = bytes.split_at(at);
    if Reader::new(WHAT, checksum).u64()? != xxh3_64(body) {
        return Err(DecodeError::Checksum { what: WHAT });
    }
    Ok(body)
}

fn encode_partition(partition: &Partition) -> Vec<u8> {
    let log = &partition.log;
    let mut out = Vec::new();
    put_key(&mut out, partition.key);
    out.put_u32(partition.stream.0);
    out.put_u32(partition.topic.0);
    partition.settings.encode(&mut out);
    out.put_u8(u8::from(log.head.is_some()));
    out.put_u64(log.head.unwrap_or_default().0);
    out.put_u64(log.retained_start.0);
    out.put_u64(log.timestamp_last.0);
    out.put_u64(log.bytes_total);
    out.put_u64(log.bytes_removed);
    log.spans.encode(&mut out);
    partition.offsets.encode(&mut out);
    partition.receipts.encode(&mut out);
    partition.producers.encode(&mut out);
    out
}

fn decode_partition(version: u16, bytes: &[u8], limits: &LaneLimits) -> Result<Partition, DecodeError> {
    let mut reader = Reader::new(WHAT, bytes);
    let key = take_key(&mut reader)?;
    let stream = StreamId(reader.u32()?);
    let topic = TopicId(reader.u32()?);
    let settings = PartitionSettings::decode(&mut reader)?;
    let mut partition = Partition::new(key, stream, topic, settings, limits);
    let log = &mut partition.log;
    let has_head = reader.u8()?;
    let head = Offset(reader.u64()?);
    log.head = match has_head {
        0 => None,
        1 if head.0 < u64::MAX => Some(head),
        _ => return Err(reader.range("head")),
    };
    log.disk_end = log.end();
    log.retained_start = Offset(reader.u64()?);
    log.timestamp_last = Micros(reader.u64()?);
    log.bytes_total = reader.u64()?;
    log.bytes_removed = reader.u64()?;
    if log.retained_start > log.disk_end {
        return Err(reader.range("retained start"));
    }
    if log.bytes_removed > log.bytes_total {
        return Err(reader.range("removed bytes"));
    }
    if version >= VERSION {
        let spans = Segments::decode(&mut reader)?;
        if !partition.adopt_spans(spans) {
            return Err(reader.range("segments"));
        }
    }
    partition.offsets = StoredOffsets::decode(&mut reader, limits.consumer_offsets_max)?;
    partition.receipts = Receipts::decode(&mut reader, limits.sessions_max)?;
    partition.producers = Producers::decode(&mut reader, limits.producers_max)?;
    reader.finish()?;
    Ok(partition)
}
