//! Streams: the top of the tree of resources.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use laneway_wire::{Micros, Op, StreamId};

use crate::id_space::IdSpace;
use crate::limits;
use crate::names::{Missing, RefKey};
use crate::options::StoredOptions;
use crate::topics::Topics;

/// One stream. A changed stream is a new value; who holds the old one keeps seeing it unchanged.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its number on the server.
    pub id: StreamId,
    /// The op that created it; with the number its identity over time.
    pub created_op: Op,
    /// When it was created.
    pub created_at: Micros,
    /// Its name, unique on the server.
    pub name: Arc<str>,
    /// What it stores.
    pub options: Arc<StoredOptions>,
    /// What it holds.
    pub topics: Topics,
}

/// All streams.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    by_id: OrdMap<StreamId, Arc<Stream>>,
    by_name: OrdMap<Arc<str>, StreamId>,
    ids: IdSpace,
    topics_count: u64,
    partitions_count: u64,
}

impl Streams {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Topics of all streams.
    pub fn topics_count(&self) -> u64 {
        self.topics_count
    }

    /// Partitions of all streams.
    pub fn partitions_count(&self) -> u64 {
        self.partitions_count
    }

    /// The streams, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.by_id.values()
    }

    /// The streams from a number on, by number.
    pub(crate) fn range(&self, from: Bound<StreamId>) -> impl Iterator<Item = &Arc<Stream>> {
        self.by_id.range((from, Bound::Unbounded)).map(|(_, stream)| stream)
    }

    /// Finds one by number or by its exact name.
    pub fn find<'a>(&self, target: impl Into<RefKey<'a>>) -> Result<&Arc<Stream>, Missing> {
        let target = target.into();
        let id = match target {
            RefKey::Id(id) => Some(StreamId(id)),
            RefKey::Name(name) => self.by_name.get(name).copied(),
        };
        id.and_then(|id| self.by_id.get(&id)).ok_or(Missing::stream(target))
    }

    /// The stream of a name.
    pub fn id_of(&self, name: &str) -> Option<StreamId> {
        self.by_name.get(name).copied()
    }

    /// The number that the next stream gets.
    pub fn next_id(&self) -> StreamId {
        StreamId(self.ids.lowest_free())
    }

    /// Adds a stream without topics under the number that [`Self::next_id`] gave.
    pub(crate) fn create(&mut self, stream: Stream) {
        assert_eq!(StreamId(self.ids.take_lowest()), stream.id, "the lowest free number is taken");
        assert_eq!(stream.topics.count(), 0, "a stream starts empty");
        let taken = self.by_name.insert(stream.name.clone(), stream.id);
        assert!(taken.is_none(), "the caller checked the name");
        self.by_id.insert(stream.id, Arc::new(stream));
    }

    /// Changes one stream in place.
    pub(crate) fn update<R>(&mut self, id: StreamId, change: impl FnOnce(&mut Stream) -> R) -> R {
        let mut stream = Stream::clone(self.by_id.get(&id).expect("the caller found the stream"));
        let old_name = stream.name.clone();
        self.uncount(&stream);
        let result = change(&mut stream);
        self.count_in(&stream);
        if stream.name != old_name {
            self.by_name.remove(&old_name);
            let taken = self.by_name.insert(stream.name.clone(), id);
            assert!(taken.is_none(), "the caller checked the name");
        }
        self.by_id.insert(id, Arc::new(stream));
        result
    }

    /// Removes a stream with all it holds; its number and name are free again.
    pub(crate) fn remove(&mut self, id: StreamId) -> Arc<Stream> {
        let stream = self.by_id.remove(&id).expect("the caller found the stream");
        self.by_name.remove(&stream.name);
        self.ids.release(id.0);
        self.uncount(&stream);
        stream
    }

    /// Rebuilds the streams of a snapshot; none unless numbers ascend below the limit and names are distinct.
    pub(crate) fn restore(streams: Vec<Stream>) -> Option<Self> {
        let ascend = streams.is_sorted_by(|left, right| left.id < right.id);
        // The lowest free number is given out, so none reaches the limit.
        if !ascend || streams.last().is_some_and(|last| last.id.0 as usize >= limits::STREAMS_MAX) {
            return None;
        }
        let mut restored =
            Self { ids: IdSpace::of_taken(streams.iter().map(|stream| stream.id.0)), ..Self::default() };
        for stream in streams {
            restored.count_in(&stream);
            if restored.by_name.insert(stream.name.clone(), stream.id).is_some() {
                return None;
            }
            restored.by_id.insert(stream.id, Arc::new(stream));
        }
        Some(restored)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&Arc<str>, StreamId)> {
        self.by_name.iter().map(|(name, id)| (name, *id))
    }

    pub(crate) fn ids(&self) -> &IdSpace {
        &self.ids
    }

    fn count_in(&mut self, stream: &Stream) {
        self.topics_count += stream.topics.count() as u64;
        self.partitions_count += stream.topics.partitions_count();
    }

    fn uncount(&mut self, stream: &Stream) {
        self.topics_count -= stream.topics.count() as u64;
        self.partitions_count -= stream.topics.partitions_count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: u32, name: &str) -> Stream {
        Stream {
            id: StreamId(id),
            created_op: Op(1),
            created_at: Micros(1),
            name: name.into(),
            options: Arc::default(),
            topics: Topics::default(),
        }
    }

    #[test]
    fn restored_numbers_ascend_below_the_limit_and_names_are_distinct() {
        assert!(Streams::restore(vec![stream(0, "a"), stream(5, "b")]).is_some());
        assert!(Streams::restore(vec![stream(0, "a"), stream(5, "a")]).is_none());
        assert!(Streams::restore(vec![stream(5, "a"), stream(5, "b")]).is_none());
        // A damaged number must not make the free ones below it fill the memory.
        assert!(Streams::restore(vec![stream(u32::MAX, "a")]).is_none());
    }
}
