//! Reading several partitions of one topic. Source: wire protocol, section 5.6, and the read semantics, section 1.5.

use bytes::{BufMut, BytesMut};

use super::Request;
use super::poll::{POLL_BYTES_MIN, REPLY_MARGIN_US, TIMEOUT_US_MAX, WAIT_US_MAX};
use crate::code::Code;
use crate::field::Field;
use crate::ids::{Incarnation, OwnerGeneration, PartitionId};
use crate::primitive::{Consumer, DecodeError, EncodeError, Identifier, Reader, Strategy};

/// Most partitions of a fetch. Source: wire protocol, section 1.13.
pub const FETCH_TARGETS_MAX: usize = 1000;
/// Bytes of a target.
const TARGET_BYTES: usize = 33;

/// One partition to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchTarget {
    /// The partition; each once in a request.
    pub partition: PartitionId,
    /// Where to start: an offset or [`Strategy::Next`], nothing else.
    pub strategy: Strategy,
    /// Most bytes of records, [`POLL_BYTES_MIN`] to the limit of the request.
    pub max_bytes: u32,
    /// The life of the partition that the client means.
    pub incarnation: Incarnation,
    /// The group owner that the client believes to be, 0 for none.
    pub owner_generation: OwnerGeneration,
}

impl FetchTarget {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(FetchTarget {
            partition: PartitionId(reader.u32("target partition")?),
            strategy: reader.strategy()?,
            max_bytes: reader.u32("target max_bytes")?,
            incarnation: Incarnation(reader.u64("target incarnation")?),
            owner_generation: OwnerGeneration(reader.u64("target owner_generation")?),
        })
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u32_le(self.partition.0);
        self.strategy.put(out);
        out.put_u32_le(self.max_bytes);
        out.put_u64_le(self.incarnation.0);
        out.put_u64_le(self.owner_generation.0);
    }
}

/// The targets of a fetch: validated bytes of a body, or a list that a client made.
#[derive(Clone, Copy, Debug)]
pub enum FetchTargets<'a> {
    /// As they lie in a body.
    Encoded(&'a [u8]),
    /// As a client lists them.
    Listed(&'a [FetchTarget]),
}

impl<'a> FetchTargets<'a> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            FetchTargets::Encoded(bytes) => bytes.len() / TARGET_BYTES,
            FetchTargets::Listed(targets) => targets.len(),
        }
    }

    /// Whether there are none; never in a parsed request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The targets in the order of the request.
    pub fn iter(&self) -> impl Iterator<Item = FetchTarget> + use<'a> {
        let (encoded, listed) = match self {
            FetchTargets::Encoded(bytes) => (*bytes, &[][..]),
            FetchTargets::Listed(targets) => (&[][..], *targets),
        };
        // A body was validated when it was parsed, so no target of it is lost here.
        let encoded = encoded
            .chunks_exact(TARGET_BYTES)
            .filter_map(|bytes| FetchTarget::read(&mut Reader::new(bytes)).ok());
        encoded.chain(listed.iter().copied())
    }
}

impl PartialEq for FetchTargets<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

/// Reads messages of up to 1000 partitions and may wait for them (109). Every field is within its range.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchMessages<'a> {
    /// Who reads.
    pub consumer: Consumer<'a>,
    /// The stream.
    pub stream: Identifier<'a>,
    /// The topic.
    pub topic: Identifier<'a>,
    /// Longest wait, 0 to [`WAIT_US_MAX`] microseconds.
    pub wait_us: u64,
    /// Time from receipt to answer in microseconds: at least [`REPLY_MARGIN_US`] above the wait, also without one, at
    /// most [`TIMEOUT_US_MAX`].
    pub request_timeout_us: u64,
    /// Messages over all partitions that end the wait, 1 to `count`.
    pub min_count: u32,
    /// Most messages over all partitions.
    pub count: u32,
    /// Most bytes of records over all partitions, at least [`POLL_BYTES_MIN`].
    pub max_bytes: u32,
    /// Whether the last offset read of each partition is stored.
    pub auto_commit: bool,
    /// What to read.
    pub targets: FetchTargets<'a>,
}

impl<'a> FetchMessages<'a> {
    /// Reads the body, which must be consumed exactly. Errors: [`DecodeError::Range`] names the first field out of
    /// range. Allocates only when the targets are not in ascending order, to find one that repeats.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let mut fetch = FetchMessages {
            consumer: Field::read(&mut reader, "consumer")?,
            stream: Field::read(&mut reader, "stream")?,
            topic: Field::read(&mut reader, "topic")?,
            wait_us: reader.u64("wait_us")?,
            request_timeout_us: reader.u64("request_timeout_us")?,
            min_count: reader.u32("min_count")?,
            count: reader.u32("count")?,
            max_bytes: reader.u32("max_bytes")?,
            auto_commit: reader.boolean("auto_commit")?,
            targets: FetchTargets::Encoded(&[]),
        };
        let targets = reader.u32("targets")? as usize;
        if !(1..=FETCH_TARGETS_MAX).contains(&targets) {
            return Err(DecodeError::Range { field: "targets" });
        }
        let bytes = reader.take(targets * TARGET_BYTES, "targets")?;
        reader.finish()?;
        for target in bytes.chunks_exact(TARGET_BYTES) {
            FetchTarget::read(&mut Reader::new(target))?;
        }
        fetch.targets = FetchTargets::Encoded(bytes);
        match fetch.broken_rule() {
            None => Ok(fetch),
            Some(Rule::Range(field)) => Err(DecodeError::Range { field }),
            Some(Rule::Duplicate(field)) => Err(DecodeError::Duplicate { field }),
        }
    }

    /// The first rule that is broken.
    fn broken_rule(&self) -> Option<Rule> {
        if self.wait_us > WAIT_US_MAX {
            return Some(Rule::Range("wait_us"));
        }
        if !(self.wait_us + REPLY_MARGIN_US..=TIMEOUT_US_MAX).contains(&self.request_timeout_us) {
            return Some(Rule::Range("request_timeout_us"));
        }
        if !(1..=self.count).contains(&self.min_count) {
            return Some(Rule::Range("min_count"));
        }
        if self.max_bytes < POLL_BYTES_MIN {
            return Some(Rule::Range("max_bytes"));
        }
        if !(1..=FETCH_TARGETS_MAX).contains(&self.targets.len()) {
            return Some(Rule::Range("targets"));
        }
        let (mut ascending, mut previous) = (true, None);
        for target in self.targets.iter() {
            if !matches!(target.strategy, Strategy::Offset(_) | Strategy::Next) {
                return Some(Rule::Range("target strategy"));
            }
            if !(POLL_BYTES_MIN..=self.max_bytes).contains(&target.max_bytes) {
                return Some(Rule::Range("target max_bytes"));
            }
            ascending &= previous.is_none_or(|previous| previous < target.partition);
            previous = Some(target.partition);
        }
        (!ascending && self.repeats_a_partition()).then_some(Rule::Duplicate("target partition"))
    }

    fn repeats_a_partition(&self) -> bool {
        let mut partitions: Vec<PartitionId> = self.targets.iter().map(|target| target.partition).collect();
        partitions.sort_unstable();
        partitions.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// What a fetch breaks.
enum Rule {
    Range(&'static str),
    Duplicate(&'static str),
}

impl Request for FetchMessages<'_> {
    const CODE: Code = Code::FetchMessages;

    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        match self.broken_rule() {
            None => {}
            Some(Rule::Range(field)) => return Err(EncodeError::Range { field }),
            Some(Rule::Duplicate(field)) => return Err(EncodeError::Duplicate { field }),
        }
        self.consumer.put(out)?;
        self.stream.put(out, "stream")?;
        self.topic.put(out, "topic")?;
        out.put_u64_le(self.wait_us);
        out.put_u64_le(self.request_timeout_us);
        out.put_u32_le(self.min_count);
        out.put_u32_le(self.count);
        out.put_u32_le(self.max_bytes);
        out.put_u8(self.auto_commit.into());
        out.put_u32_le(self.targets.len() as u32);
        self.targets.iter().for_each(|target| target.put(out));
        Ok(())
    }
}
