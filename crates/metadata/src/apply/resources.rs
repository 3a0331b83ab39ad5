//! Changes of streams, topics and partitions. Source: resources, sections 3 to 6.

use std::sync::Arc;

use laneway_wire::reply::{PermissionsChanged, StreamLife};
use laneway_wire::{Incarnation, LaneId, PartitionId, Status, StreamId, UserId};

use super::{Effect, Moment, PartitionPlace, below, stored};
use crate::changes::notes::{Made, UserChange};
use crate::lanes::LaneClass;
use crate::limits;
use crate::metadata::Metadata;
use crate::names::{Missing, Ref};
use crate::options::set::OptionRecord;
use crate::options::{ResizePolicy, Scope, TopicSettings};
use crate::permissions::Rule;
use crate::replies::{ReplyBody, StreamCreated, TopicCreated};
use crate::streams::Stream;
use crate::topics::{Partition, Topic};

impl Metadata {
    pub(super) fn create_stream(
        &mut self,
        at: Moment,
        user: UserId,
        name: &str,
        options: &[OptionRecord],
    ) -> Result<ReplyBody, Status> {
        self.permit(user, Rule::CreateStream)?;
        if self.streams.id_of(name).is_some() {
            return Err(Status::StreamNameAlreadyExists);
        }
        below(self.streams.count(), limits::STREAMS_MAX, Status::TooManyStreams)?;
        let stream = Stream {
            id: self.streams.next_id(),
            created_op: at.op,
            created_at: at.timestamp,
            name: name.into(),
            options: stored(Scope::Stream, options),
            topics: Default::default(),
        };
        let created = StreamCreated {
            id: stream.id,
            created_at: stream.created_at,
            name: stream.name.clone(),
            options: stream.options.clone(),
        };
        self.note_stream(&stream, Made::Created);
        self.streams.create(stream);
        Ok(ReplyBody::StreamCreated(created))
    }

    pub(super) fn delete_stream(
        &mut self,
        user: UserId,
        stream: &Ref,
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let id = self.stream(stream).map_err(Missing::committed_status)?.id;
        self.permit(user, Rule::ManageStream(id))?;
        let stream = self.streams.remove(id);
        for topic in stream.topics.iter() {
            self.partitions_deleted(id, topic, 0, effects);
        }
        self.note_stream_deleted(&stream, None);
        let holders = self.users.forget_stream(id);
        self.note_lost_grants(holders);
        Ok(ReplyBody::Empty)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one command, taken apart once")]
    pub(super) fn create_topic(
        &mut self,
        at: Moment,
        user: UserId,
        stream: &Ref,
        name: &str,
        options: &[OptionRecord],
        planned: &[LaneId],
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let stream = self.stream(stream).map_err(Missing::committed_status)?.clone();
        self.permit(user, Rule::CreateTopic(stream.id))?;
        if stream.topics.id_of(name).is_some() {
            return Err(Status::TopicNameAlreadyExists);
        }
        below(stream.topics.count(), limits::TOPICS_MAX, Status::TooManyTopics)?;
        let options = stored(Scope::Topic, options);
        let settings = TopicSettings::of(options.set());
        let mut topic = Topic {
            id: stream.topics.next_id(),
            created_op: at.op,
            created_at: at.timestamp,
            name: name.into(),
            options,
            settings,
            partitions: Default::default(),
        };
        self.partitions_created(at, stream.id, &mut topic, planned, effects);
        let created = TopicCreated {
            id: topic.id,
            created_at: topic.created_at,
            partitions_count: topic.partitions_count(),
            name: topic.name.clone(),
            options: topic.options.clone(),
        };
        self.note_topic(stream.life(), &topic, Made::Created);
        self.streams.update(stream.id, |stream| stream.topics.create(topic));
        Ok(ReplyBody::TopicCreated(created))
    }

    pub(super) fn delete_topic(
        &mut self,
        user: UserId,
        stream: &Ref,
        topic: &Ref,
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let (stream, topic) = self.managed_topic(user, stream, topic)?;
        let life = self.stream_life(stream);
        self.partitions_deleted(stream, &topic, 0, effects);
        self.streams.update(stream, |stream| stream.topics.remove(topic.id));
        self.note_topic_deleted(life, &topic, None);
        let holders = self.users.forget_topic(stream, topic.id);
        self.note_lost_grants(holders);
        Ok(ReplyBody::Empty)
    }

    pub(super) fn create_partitions(
        &mut self,
        at: Moment,
        user: UserId,
        stream: &Ref,
        topic: &Ref,
        planned: &[LaneId],
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let (stream, topic) = self.managed_topic(user, stream, topic)?;
        refuse_fixed(&topic)?;
        let room = limits::PARTITION_IDS_MAX - topic.partitions_count();
        if planned.len() > room as usize {
            return Err(Status::PartitionIdSpaceExhausted);
        }
        let mut topic = Topic::clone(&topic);
        let before = topic.partitions_count();
        self.partitions_created(at, stream, &mut topic, planned, effects);
        effects.push(Effect::TopicChanged { stream, topic: topic.id });
        self.note_partitions(self.stream_life(stream), &topic, before, None);
        self.streams.update(stream, |stream| stream.topics.replace(topic));
        Ok(ReplyBody::Empty)
    }

    pub(super) fn delete_partitions(
        &mut self,
        user: UserId,
        stream: &Ref,
        topic: &Ref,
        count: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let (stream, topic) = self.managed_topic(user, stream, topic)?;
        refuse_fixed(&topic)?;
        let kept = topic.partitions_count().checked_sub(count).ok_or(Status::InvalidPartitionsCount)?;
        self.partitions_deleted(stream, &topic, kept, effects);
        let mut topic = Topic::clone(&topic);
        let before = topic.partitions_count();
        topic.partitions.truncate(kept as usize);
        self.note_partitions(self.stream_life(stream), &topic, before, None);
        self.streams.update(stream, |stream| stream.topics.replace(topic));
        Ok(ReplyBody::Empty)
    }

    fn note_lost_grants(&mut self, holders: Vec<UserId>) {
        for holder in holders {
            self.note_user_of(holder, UserChange::Permissions(PermissionsChanged::ResourceDeleted));
        }
    }

    pub(super) fn stream_life(&self, stream: StreamId) -> StreamLife {
        self.stream(stream.0).expect("the caller found the stream").life()
    }

    pub(super) fn managed_topic(
        &self,
        user: UserId,
        stream: &Ref,
        topic: &Ref,
    ) -> Result<(StreamId, Arc<Topic>), Status> {
        let (stream, topic) = self.topic(stream, topic).map_err(Missing::committed_status)?;
        self.permit(user, Rule::ManageTopic(stream.id, topic.id))?;
        Ok((stream.id, topic.clone()))
    }

    /// Appends partitions to a topic that is not stored yet, on the planned lanes or, when the plan was made for a topic
    /// of another class, on lanes chosen now.
    fn partitions_created(
        &mut self,
        at: Moment,
        stream: StreamId,
        topic: &mut Topic,
        planned: &[LaneId],
        effects: &mut Vec<Effect>,
    ) {
        let class = LaneClass { durability: topic.settings.durability };
        for lane in self.lanes.confirm(class, planned) {
            let id = PartitionId(topic.partitions_count());
            let partition = Partition { incarnation: Incarnation(at.op.0), created_at: at.timestamp, lane };
            topic.partitions.push_back(partition);
            self.lanes.add_partition(lane);
            effects.push(Effect::PartitionCreated(PartitionPlace::of(stream, topic, id, partition)));
        }
    }

    /// Gives up the partitions of a topic from number `first` on. The caller removes them from the topic.
    fn partitions_deleted(&mut self, stream: StreamId, topic: &Topic, first: u32, effects: &mut Vec<Effect>) {
        for (key, partition) in topic.partitions().skip(first as usize) {
            self.lanes.remove_partition(partition.lane);
            let place = PartitionPlace::of(stream, topic, key.partition, partition);
            effects.push(Effect::PartitionDeleted(place));
        }
    }
}

fn refuse_fixed(topic: &Topic) -> Result<(), Status> {
    match topic.settings.resize_policy {
        ResizePolicy::Mutable => Ok(()),
        ResizePolicy::Fixed => Err(Status::PartitionResizeDisabled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_below_a_limit_is_given_and_the_next_is_not() {
        let status = Status::TooManyStreams;
        assert_eq!(below(limits::STREAMS_MAX - 1, limits::STREAMS_MAX, status), Ok(()));
        assert_eq!(below(limits::STREAMS_MAX, limits::STREAMS_MAX, status), Err(status));
    }
}
