//! The state machines of a node, as the product has them: metadata on lane 0, partitions on the others. What a segment
//! store holds in the product is kept beside the partitions here.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use laneway_metadata::{Command, Metadata, Outcome, PartitionPlace};
use laneway_partition::{Applied, ApplyError, LaneLimits, LaneState, PartitionSettings};
use laneway_reads::StoredBatch;
use laneway_vsr::{Durability, Entry};
use laneway_wire::{Incarnation, LaneId, Micros, Nanos, Offset, Op, PartitionId, PartitionKey};
use xxhash_rust::xxh3::xxh3_64;

/// Bounds of the lanes of a run: small, so that they are met.
pub const LIMITS: LaneLimits = LaneLimits { consumer_offsets_max: 8, sessions_max: 16, producers_max: 4 };

/// The state of a lane as bytes: a checkpoint and everything that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image(pub Bytes);

impl Image {
    /// Hash of the bytes.
    pub fn hash(&self) -> u64 {
        xxh3_64(&self.0)
    }
}

/// A state machine of one lane.
#[derive(Debug)]
pub enum Machine {
    /// Lane 0.
    Metadata(Box<Metadata>),
    /// Any other lane.
    Data(Box<DataMachine>),
}

/// The partitions of a lane and their segments.
#[derive(Debug)]
pub struct DataMachine {
    /// The partitions.
    pub state: LaneState,
    /// The batches of each partition that left memory, oldest first.
    segments: BTreeMap<PartitionKey, Vec<Bytes>>,
}

/// What applying an entry did.
#[derive(Clone, Debug)]
pub enum Done {
    /// A metadata op.
    Metadata(Outcome),
    /// An op of a data lane.
    Data(Applied),
}

impl Machine {
    /// The state before the first op.
    pub fn new(lane: LaneId) -> Self {
        match lane {
            LaneId(0) => Machine::Metadata(Box::default()),
            lane => Machine::Data(Box::new(DataMachine {
                state: LaneState::new(lane, LIMITS),
                segments: BTreeMap::new(),
            })),
        }
    }

    /// The last op that was applied.
    pub fn applied(&self) -> Op {
        match self {
            Machine::Metadata(metadata) => metadata.applied(),
            Machine::Data(data) => data.state.applied(),
        }
    }

    /// The timestamp of that op.
    pub fn timestamp(&self) -> Micros {
        match self {
            Machine::Metadata(metadata) => metadata.applied_at(),
            Machine::Data(data) => data.state.timestamp_last(),
        }
    }

    /// Applies a committed entry.
    pub fn apply(&mut self, entry: &Entry, now: Nanos) -> Result<Done, ApplyError> {
        let (op, timestamp) = (entry.op(), entry.timestamp());
        match self {
            Machine::Metadata(metadata) => {
                let command = Command::from_bytes(&entry.body.prefix).expect("a node encoded the command");
                Ok(Done::Metadata(metadata.apply(op, timestamp, &command)))
            }
            Machine::Data(data) => {
                let batch = entry.body.batch.clone();
                let applied = data.state.apply(op, timestamp, &entry.body.prefix, batch, now)?;
                if let Applied::Fenced { key, .. } = &applied {
                    data.segments.remove(key);
                }
                Ok(Done::Data(applied))
            }
        }
    }

    /// Forgets what ran ahead of commit.
    pub fn discard_staged(&mut self) {
        if let Machine::Data(data) = self {
            data.state.discard_staged();
        }
    }

    /// The state as bytes. Moves batches from memory to segments first, as a checkpoint does.
    pub fn image(&mut self) -> Image {
        match self {
            Machine::Metadata(metadata) => Image(metadata.to_snapshot().into()),
            Machine::Data(data) => data.image(),
        }
    }

    /// The state of an image. `None` when the bytes are not one.
    pub fn restore(lane: LaneId, image: &Image) -> Option<Self> {
        match lane {
            LaneId(0) => Some(Machine::Metadata(Box::new(Metadata::from_snapshot(&image.0).ok()?))),
            _ => Some(Machine::Data(Box::new(DataMachine::restore(&image.0)?))),
        }
    }
}

impl DataMachine {
    fn image(&mut self) -> Image {
        let draft = self.state.draft_checkpoint();
        let flushed: Vec<(PartitionKey, Offset)> = draft
            .to_flush()
            .map(|(key, head, batches)| {
                let segment = self.segments.entry(key).or_default();
                segment.extend(batches.iter().map(|batch| batch.bytes.clone()));
                (key, head)
            })
            .collect();
        for (key, head) in flushed {
            let partition = self.state.get_mut(key).expect("a partition was just drafted");
            partition.flushed(head);
            partition.release_memory(0);
        }
        let checkpoint = draft.finish();
        let mut out = BytesMut::with_capacity(checkpoint.len() + 64);
        out.put_u32_le(checkpoint.len() as u32);
        out.put_slice(&checkpoint);
        for (key, segment) in &self.segments {
            out.put_u64_le(key.incarnation.0);
            out.put_u32_le(key.partition.0);
            out.put_u32_le(segment.len() as u32);
            for batch in segment {
                out.put_u32_le(batch.len() as u32);
                out.put_slice(batch);
            }
        }
        Image(out.freeze())
    }

    fn restore(bytes: &Bytes) -> Option<Self> {
        let mut left = bytes.clone();
        let length = take_u32(&mut left)? as usize;
        let state = LaneState::from_checkpoint(&take(&mut left, length)?, LIMITS).ok()?;
        let mut segments = BTreeMap::new();
        while !left.is_empty() {
            let incarnation = Incarnation(u64::from_le_bytes(take(&mut left, 8)?.as_ref().try_into().ok()?));
            let partition = PartitionId(take_u32(&mut left)?);
            let count = take_u32(&mut left)?;
            let mut segment = Vec::new();
            for _ in 0..count {
                let length = take_u32(&mut left)? as usize;
                segment.push(take(&mut left, length)?);
            }
            segments.insert(PartitionKey { incarnation, partition }, segment);
        }
        Some(Self { state, segments })
    }

    /// The messages of a partition from an offset, at most `max`, as their numbers.
    pub fn messages(&self, key: PartitionKey, from: Offset, max: usize) -> Option<Vec<u128>> {
        let partition = self.state.get(key)?;
        let mut messages = Vec::new();
        let stored = self.segments.get(&key).into_iter().flatten();
        let stored = stored.filter_map(|bytes| StoredBatch::parse(bytes.clone()));
        let view = partition.view();
        let disk_end = view.disk_end;
        let tail = view.tail.iter().filter(|batch| batch.base_offset >= disk_end).cloned();
        for batch in stored.chain(tail).filter(|batch| batch.end_offset() > from) {
            let parsed = laneway_wire::batch::Batch::parse(&batch.bytes).ok()?;
            for message in parsed.messages() {
                let message = message.ok()?;
                if parsed.offset_of(&message).is_some_and(|offset| offset >= from) && messages.len() < max {
                    messages.push(message.id);
                }
            }
        }
        Some(messages)
    }
}

fn take(left: &mut Bytes, length: usize) -> Option<Bytes> {
    (left.len() >= length).then(|| left.split_to(length))
}

fn take_u32(left: &mut Bytes) -> Option<u32> {
    Some(u32::from_le_bytes(take(left, 4)?.as_ref().try_into().ok()?))
}

/// What a partition needs to know of its topic.
pub fn settings_of(place: &PartitionPlace) -> PartitionSettings {
    PartitionSettings {
        durability: durability(place.settings.durability),
        offset_durability: durability(place.settings.consumer_offset_durability),
        segment_bytes: place.settings.segment_size,
    }
}

fn durability(durability: laneway_metadata::Durability) -> Durability {
    match durability {
        laneway_metadata::Durability::Replicated => Durability::Replicated,
        laneway_metadata::Durability::Persisted => Durability::Persisted,
    }
}
