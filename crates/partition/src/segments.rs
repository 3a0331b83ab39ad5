//! The segments of one partition, as its log defines them: where one ends follows from the batches alone, so every
//! replica agrees on them, whatever of it has reached a file there. Retention removes the oldest sealed ones.
//!
//! Source: resources specification, sections 8.1 to 8.3; cluster specification, section 3.9.

use std::collections::VecDeque;

use laneway_wire::{Micros, Offset};

use super::codec::{DecodeError, Put, Reader};

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its first message.
    pub base: Offset,
    /// Offset after its last message.
    pub end: Offset,
    /// Bytes of its batches, framing included.
    pub bytes: u64,
    /// Append time of its newest batch.
    pub timestamp_last: Micros,
    /// Nothing is appended to it any more.
    pub sealed: bool,
}

/// What retention asks of a partition. Both limits may be there; each removes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// A sealed segment goes once its newest message is older, microseconds.
    pub expiry_us: Option<u64>,
    /// The oldest sealed segments go until the partition holds no more, bytes.
    pub bytes_max: Option<u64>,
}

impl RetentionPolicy {
    /// Whether nothing is ever removed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a policy means for a partition now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPlan {
    /// Remove everything below this offset.
    pub start: Option<Offset>,
    /// When the next sealed segment expires.
    pub due: Option<Micros>,
    /// A consumer's offset keeps a segment that would go.
    pub held: bool,
}

/// The segments of one partition, oldest first: contiguous, none empty, only the last may be open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    list: VecDeque<Segment>,
}

impl Segments {
    /// Bytes of an encoded segment.
    const BYTES: usize = 8 + 8 + 8 + 8 + 1;

    /// The segments that hold messages, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.list.iter()
    }

    /// Number of segments, the active one included, which is there even while it holds nothing.
    pub fn count(&self) -> usize {
        self.sealed().count() + 1
    }

    /// The sealed segments, oldest first.
    pub fn sealed(&self) -> impl Iterator<Item = &Segment> {
        self.list.iter().take_while(|segment| segment.sealed)
    }

    /// Adds a batch, and says whether it sealed its segment: the batch with which a segment reaches `segment_bytes` is
    /// its last.
    pub(crate) fn append(&mut self, batch: Segment, segment_bytes: u64) -> bool {
        let last = match self.list.back_mut().filter(|last| !last.sealed) {
            Some(last) => {
                assert!(last.end == batch.base, "a batch with a gap was appended");
                last.end = batch.end;
                last.bytes += batch.bytes;
                last.timestamp_last = last.timestamp_last.max(batch.timestamp_last);
                last
            }
            None => {
                self.list.push_back(batch);
                self.list.back_mut().expect("it was just pushed")
            }
        };
        last.sealed = last.bytes >= segment_bytes;
        last.sealed
    }

    /// Removes the sealed segments that end at or below `start`. Gives their bytes, and the end of the last of them.
    pub(crate) fn advance(&mut self, start: Offset) -> Option<(Offset, u64)> {
        let mut removed: Option<(Offset, u64)> = None;
        while let Some(first) = self.list.front().filter(|first| first.sealed && first.end <= start) {
            removed = Some((first.end, removed.map_or(0, |(_, bytes)| bytes) + first.bytes));
            self.list.pop_front();
        }
        removed
    }

    /// Where the log starts after the oldest `count` segments that may go. None when none may. `barrier`: the lowest
    /// offset that a consumer has committed.
    pub fn plan_delete(&self, count: u32, barrier: Option<Offset>) -> Option<Offset> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.free(barrier).take(count).last().map(|segment| segment.end)
    }

    /// What a policy removes at `now`.
    pub fn plan_retention(
        &self,
        policy: RetentionPolicy,
        barrier: Option<Offset>,
        now: Micros,
    ) -> RetentionPlan {
        let mut plan = RetentionPlan::default();
        let mut bytes: u64 = self.list.iter().map(|segment| segment.bytes).sum();
        for segment in self.sealed() {
            let expires = policy.expiry_us.map(|expiry| segment.timestamp_last.0.saturating_add(expiry));
            let expired = expires.is_some_and(|expires| now.0 > expires);
            let oversize = policy.bytes_max.is_some_and(|bytes_max| bytes > bytes_max);
            if !expired && !oversize {
                plan.due = expires.map(|expires| Micros(expires.saturating_add(1)));
                break;
            }
            if !is_free(segment, barrier) {
                plan.held = true;
                break;
            }
            plan.start = Some(segment.end);
            bytes -= segment.bytes;
        }
        plan
    }

    /// The sealed segments that no consumer keeps, oldest first.
    fn free(&self, barrier: Option<Offset>) -> impl Iterator<Item = &Segment> {
        self.sealed().take_while(move |segment| is_free(segment, barrier))
    }

    /// Whether the segments cover `start` to `end` without a gap, and hold `bytes`. Costs O(n).
    pub(crate) fn cover(&self, start: Offset, end: Offset, bytes: u64) -> bool {
        let mut next = start;
        let mut sum = 0_u64;
        for (index, segment) in self.list.iter().enumerate() {
            let last = index + 1 == self.list.len();
            if segment.base != next || segment.end <= segment.base || !(segment.sealed || last) {
                return false;
            }
            next = segment.end;
            sum = sum.saturating_add(segment.bytes);
        }
        next == end && sum == bytes
    }

    /// Appends `count u32`, then `base u64, end u64, bytes u64, timestamp u64, sealed u8` each.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_count(self.list.len());
        for segment in &self.list {
            out.put_u64(segment.base.0);
            out.put_u64(segment.end.0);
            out.put_u64(segment.bytes);
            out.put_u64(segment.timestamp_last.0);
            out.put_u8(u8::from(segment.sealed));
        }
    }

    /// Decodes what [`Self::encode`] wrote. What the segments cover is for the caller to check.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut list = VecDeque::new();
        for _ in 0..reader.count(Self::BYTES)? {
            list.push_back(Segment {
                base: Offset(reader.u64()?),
                end: Offset(reader.u64()?),
                bytes: reader.u64()?,
                timestamp_last: Micros(reader.u64()?),
                sealed: match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(reader.range("sealed")),
                },
            });
        }
        Ok(Self { list })
    }
}

impl FromIterator<Segment> for Segments {
    fn from_iter<T: IntoIterator<Item = Segment>>(segments: T) -> Self {
        Self { list: segments.into_iter().collect() }
    }
}

/// A consumer keeps what it has not read: a segment is free when every committed offset has reached its last message.
fn is_free(segment: &Segment, barrier: Option<Offset>) -> bool {
    barrier.is_none_or(|barrier| barrier.0.saturating_add(1) >= segment.end.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Messages, bytes and time since the one before, for each batch.
    type Batches = Vec<(u64, u64, u64)>;

    const SEGMENT_BYTES: u64 = 100;

    fn segments(batches: &Batches) -> Segments {
        let mut segments = Segments::default();
        let (mut base, mut time) = (0, 0);
        for (messages, bytes, later) in batches {
            time += later;
            let batch = Segment {
                base: Offset(base),
                end: Offset(base + messages),
                bytes: *bytes,
                timestamp_last: Micros(time),
                sealed: false,
            };
            base += messages;
            segments.append(batch, SEGMENT_BYTES);
        }
        segments
    }

    fn any_batches() -> impl Strategy<Value = Batches> {
        prop::collection::vec((1_u64..5, 1_u64..150, 0_u64..10), 0..40)
    }

    /// The rules of section 8.2, one segment at a time, from nothing but the list.
    fn model(all: &[Segment], policy: RetentionPolicy, barrier: Option<Offset>, now: u64) -> Option<Offset> {
        let mut left = all.to_vec();
        let mut start = None;
        while let Some(first) = left.first().filter(|first| first.sealed) {
            let total: u64 = left.iter().map(|segment| segment.bytes).sum();
            let too_old = policy.expiry_us.is_some_and(|expiry| now > first.timestamp_last.0 + expiry);
            let too_large = policy.bytes_max.is_some_and(|max| total > max);
            let kept = barrier.is_some_and(|barrier| barrier.0 < first.end.0 - 1);
            if kept || !(too_old || too_large) {
                break;
            }
            start = Some(first.end);
            left.remove(0);
        }
        start
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// S77, S79, S80.
        #[test]
        fn policy_removes_what_the_model_removes(
            batches in any_batches(),
            expiry_us in prop::option::of(0_u64..200),
            bytes_max in prop::option::of(0_u64..3_000),
            barrier in prop::option::of((0_u64..100).prop_map(Offset)),
            now in 0_u64..400,
        ) {
            let mut segments = segments(&batches);
            let all: Vec<Segment> = segments.iter().copied().collect();
            let policy = RetentionPolicy { expiry_us, bytes_max };
            let plan = segments.plan_retention(policy, barrier, Micros(now));
            prop_assert_eq!(plan.start, model(&all, policy, barrier, now));
            if let Some(start) = plan.start {
                let bytes: u64 = all.iter().filter(|each| each.end <= start).map(|each| each.bytes).sum();
                prop_assert_eq!(segments.advance(start), Some((start, bytes)));
            }
            // Once it is done nothing is left to do until the time that the plan names.
            let then = plan.due.map_or(now, |due| due.0 - 1).max(now);
            let again = segments.plan_retention(policy, barrier, Micros(then));
            prop_assert_eq!(again.start, None);
            if let Some(due) = plan.due {
                let later = segments.plan_retention(policy, None, due);
                prop_assert!(later.start.is_some(), "what is due goes");
            }
        }

        /// S82, S83, S84.
        #[test]
        fn deletes_count_sealed_segments_up_to_the_barrier(
            batches in any_batches(),
            count in prop_oneof![0_u32..8, Just(u32::MAX)],
            barrier in prop::option::of((0_u64..100).prop_map(Offset)),
        ) {
            let mut segments = segments(&batches);
            let all: Vec<Segment> = segments.iter().copied().collect();
            let free = all.iter().filter(|each| {
                each.sealed && barrier.is_none_or(|barrier| barrier.0 >= each.end.0 - 1)
            });
            let expected = free.take(count as usize).last().map(|each| each.end);
            let start = segments.plan_delete(count, barrier);
            prop_assert_eq!(start, expected);
            if let Some(start) = start {
                segments.advance(start);
                let end = all.last().map_or(Offset(0), |last| last.end);
                let bytes = all.iter().filter(|each| each.base >= start).map(|each| each.bytes).sum();
                prop_assert!(segments.cover(start, end, bytes));
            }
        }

        #[test]
        fn list_round_trips(batches in any_batches()) {
            let segments = segments(&batches);
            let mut bytes = Vec::new();
            segments.encode(&mut bytes);
            let mut reader = Reader::new("segments", &bytes);
            prop_assert_eq!(Segments::decode(&mut reader), Ok(segments));
            prop_assert!(reader.finish().is_ok());
        }
    }

    #[test]
    fn offset_inside_a_segment_does_not_cut_it() {
        let mut segments = segments(&vec![(5, 100, 1), (5, 100, 1), (1, 1, 1)]);
        assert_eq!(segments.advance(Offset(4)), None);
        assert_eq!(segments.advance(Offset(9)), Some((Offset(5), 100)));
        assert_eq!(segments.advance(Offset(u64::MAX)), Some((Offset(10), 100)), "the active one stays");
        assert_eq!(segments.count(), 1);
    }
}
