//! Topics and their partitions.

use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, Vector};
use laneway_wire::{Incarnation, LaneId, Micros, Op, PartitionId, PartitionKey, TopicId};

use crate::id_space::IdSpace;
use crate::limits;
use crate::names::{Missing, RefKey};
use crate::options::{StoredOptions, TopicSettings};

/// One partition. Its number is its place in the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The op that created it.
    pub incarnation: Incarnation,
    /// When it was created.
    pub created_at: Micros,
    /// The lane that orders its writes.
    pub lane: LaneId,
}

/// One topic. A changed topic is a new value; who holds the old one keeps seeing it unchanged.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its number in the stream.
    pub id: TopicId,
    /// The op that created it; with the number its identity over time.
    pub created_op: Op,
    /// When it was created.
    pub created_at: Micros,
    /// Its name, unique in the stream.
    pub name: Arc<str>,
    /// What it stores.
    pub options: Arc<StoredOptions>,
    /// What the shards read out of the options.
    pub settings: TopicSettings,
    pub(crate) partitions: Vector<Partition>,
}

impl Topic {
    /// Live partitions; their numbers are 0 up to this, exclusive.
    pub fn partitions_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("partition numbers are bounded by PARTITION_IDS_MAX")
    }

    /// One partition.
    pub fn partition(&self, partition: PartitionId) -> Option<Partition> {
        self.partitions.get(usize::try_from(partition.0).ok()?).copied()
    }

    /// The partitions, by number.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionKey, Partition)> + '_ {
        (0..).zip(self.partitions.iter()).map(|(id, partition)| {
            (PartitionKey { incarnation: partition.incarnation, partition: PartitionId(id) }, *partition)
        })
    }
}

/// The topics of one stream.
#[derive(Clone, Debug, Default)]
pub struct Topics {
    by_id: OrdMap<TopicId, Arc<Topic>>,
    by_name: OrdMap<Arc<str>, TopicId>,
    ids: IdSpace,
    partitions_count: u64,
}

impl Topics {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Partitions of all of them.
    pub fn partitions_count(&self) -> u64 {
        self.partitions_count
    }

    /// The topics, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_id.values()
    }

    /// The topics from a number on, by number.
    pub(crate) fn range(&self, from: Bound<TopicId>) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_id.range((from, Bound::Unbounded)).map(|(_, topic)| topic)
    }

    /// Finds one by number or by its exact name.
    pub fn find<'a>(&self, target: impl Into<RefKey<'a>>) -> Result<&Arc<Topic>, Missing> {
        let target = target.into();
        let id = match target {
            RefKey::Id(id) => Some(TopicId(id)),
            RefKey::Name(name) => self.by_name.get(name).copied(),
        };
        id.and_then(|id| self.by_id.get(&id)).ok_or(Missing::topic(target))
    }

    /// The topic of a name.
    pub fn id_of(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).copied()
    }

    /// The number that the next topic gets.
    pub fn next_id(&self) -> TopicId {
        TopicId(self.ids.lowest_free())
    }

    /// Adds a topic under the number that [`Self::next_id`] gave.
    pub(crate) fn create(&mut self, topic: Topic) {
        assert_eq!(TopicId(self.ids.take_lowest()), topic.id, "the lowest free number is taken");
        self.partitions_count += u64::from(topic.partitions_count());
        let taken = self.by_name.insert(topic.name.clone(), topic.id);
        assert!(taken.is_none(), "the caller checked the name");
        self.by_id.insert(topic.id, Arc::new(topic));
    }

    /// Puts a changed topic in the place of the old one of the same number.
    pub(crate) fn replace(&mut self, topic: Topic) {
        let old = self.by_id.get(&topic.id).expect("only a present topic changes").clone();
        self.partitions_count -= u64::from(old.partitions_count());
        self.partitions_count += u64::from(topic.partitions_count());
        if old.name != topic.name {
            self.by_name.remove(&old.name);
            let taken = self.by_name.insert(topic.name.clone(), topic.id);
            assert!(taken.is_none(), "the caller checked the name");
        }
        self.by_id.insert(topic.id, Arc::new(topic));
    }

    /// Removes a topic; its number and name are free again.
    pub(crate) fn remove(&mut self, id: TopicId) -> Arc<Topic> {
        let topic = self.by_id.remove(&id).expect("the caller found the topic");
        self.by_name.remove(&topic.name);
        self.ids.release(id.0);
        self.partitions_count -= u64::from(topic.partitions_count());
        topic
    }

    /// Rebuilds the topics of a snapshot; none unless numbers ascend below the limit and names are distinct.
    pub(crate) fn restore(topics: Vec<Topic>) -> Option<Self> {
        let ascend = topics.is_sorted_by(|left, right| left.id < right.id);
        // The lowest free number is given out, so none reaches the limit.
        if !ascend || topics.last().is_some_and(|last| last.id.0 as usize >= limits::TOPICS_MAX) {
            return None;
        }
        let mut restored =
            Self { ids: IdSpace::of_taken(topics.iter().map(|topic| topic.id.0)), ..Self::default() };
        for topic in topics {
            restored.partitions_count += u64::from(topic.partitions_count());
            if restored.by_name.insert(topic.name.clone(), topic.id).is_some() {
                return None;
            }
            restored.by_id.insert(topic.id, Arc::new(topic));
        }
        Some(restored)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&Arc<str>, TopicId)> {
        self.by_name.iter().map(|(name, id)| (name, *id))
    }

    pub(crate) fn ids(&self) -> &IdSpace {
        &self.ids
    }
}
