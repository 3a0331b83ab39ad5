//! From a parsed request to the command that the log orders, on the primary, before anything happened.
//!
//! Refused here is what does not depend on the order of ops: names and counts out of range, options that the catalogue
//! does not admit, and the cap on partitions, which counts committed ones only. All else is decided at apply.

use laneway_wire::options::Options;
use laneway_wire::{Status, UserId};

use crate::command::Mutation;
use crate::lanes::LaneClass;
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::metadata::Metadata;
use crate::names::RefKey;
use crate::options::admission::{RawOption, Refusal, admit_create};
use crate::options::{Key, OptionDefaults, OptionSet, Scope, TopicSettings};
use crate::permissions::Rule;

/// What the node was set to. May differ between nodes and change over time: its effect is written into the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSettings {
    /// `metadata.partitions_max`: most partitions on the server, 0 for no cap.
    pub partitions_max: u64,
    /// Nodes of the cluster; the most that `replication_factor` may be.
    pub nodes: u32,
    /// What topics get for the options that their creator left out.
    pub option_defaults: OptionDefaults,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self { partitions_max: 0, nodes: 1, option_defaults: OptionDefaults::default() }
    }
}

/// Plans the commands of requests on one applied state.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    /// The state that the plan is made on. Ops in between may change it; apply copes with that.
    pub metadata: &'a Metadata,
    /// What the node was set to.
    pub settings: &'a PlanSettings,
    /// Who asks.
    pub user: UserId,
}

impl Planner<'_> {
    /// CreateStream (202).
    pub fn create_stream(&self, name: &str, options: Options<'_>) -> Result<Mutation, Refusal> {
        let admitted = admit_create(Scope::Stream, name, &RawOption::of_block(options))?;
        if admitted.stream_key {
            // No node of this build holds a server key, so there is nothing to wrap a stream key with.
            return Err(Refusal::of_key(Status::StreamEncryptionUnavailable, Key::EncryptionKey.name()));
        }
        let options = OptionSet::created(Scope::Stream, admitted.explicit, &self.settings.option_defaults);
        Ok(Mutation::CreateStream { name: name.to_owned(), options: options.to_records() })
    }

    /// DeleteStream (203).
    pub fn delete_stream<'a>(&self, stream: impl Into<RefKey<'a>>) -> Mutation {
        Mutation::DeleteStream { stream: stream.into().to_owned() }
    }

    /// CreateTopic (302).
    pub fn create_topic<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        partitions_count: u32,
        name: &str,
        options: Options<'_>,
    ) -> Result<Mutation, Refusal> {
        if partitions_count > PARTITIONS_PER_REQUEST_MAX {
            return Err(Status::TooManyPartitions.into());
        }
        let admitted = admit_create(Scope::Topic, name, &RawOption::of_block(options))?;
        let options = OptionSet::created(Scope::Topic, admitted.explicit, &self.settings.option_defaults);
        let settings = TopicSettings::of(&options);
        self.check_topic(&settings, partitions_count)?;

        let stream = stream.into();
        let may = |found: &crate::streams::Stream| {
            self.metadata.permit(self.user, Rule::CreateTopic(found.id)).is_ok()
        };
        if self.metadata.stream(stream).is_ok_and(|found| may(found)) {
            self.check_partitions_cap(partitions_count)?;
        }
        let class = LaneClass { durability: settings.durability };
        Ok(Mutation::CreateTopic {
            stream: stream.to_owned(),
            name: name.to_owned(),
            options: options.to_records(),
            lanes: self.metadata.lanes().plan(class, partitions_count),
        })
    }

    /// DeleteTopic (303).
    pub fn delete_topic<'a>(&self, stream: impl Into<RefKey<'a>>, topic: impl Into<RefKey<'a>>) -> Mutation {
        Mutation::DeleteTopic { stream: stream.into().to_owned(), topic: topic.into().to_owned() }
    }

    /// CreatePartitions (402).
    pub fn create_partitions<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        topic: impl Into<RefKey<'a>>,
        count: u32,
    ) -> Result<Mutation, Refusal> {
        check_count(count)?;
        let (stream, topic) = (stream.into(), topic.into());
        let class = match self.metadata.topic(stream, topic) {
            Ok((stream, topic)) => {
                if self.metadata.permit(self.user, Rule::ManageTopic(stream.id, topic.id)).is_ok() {
                    self.check_partitions_cap(count)?;
                }
                LaneClass { durability: topic.settings.durability }
            }
            // Apply will find the topic missing, or one that an op on its way makes; then it plans again.
            Err(_) => LaneClass { durability: crate::options::Durability::Persisted },
        };
        Ok(Mutation::CreatePartitions {
            stream: stream.to_owned(),
            topic: topic.to_owned(),
            lanes: self.metadata.lanes().plan(class, count),
        })
    }

    /// DeletePartitions (403).
    pub fn delete_partitions<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        topic: impl Into<RefKey<'a>>,
        count: u32,
    ) -> Result<Mutation, Refusal> {
        check_count(count)?;
        Ok(Mutation::DeletePartitions {
            stream: stream.into().to_owned(),
            topic: topic.into().to_owned(),
            count,
        })
    }

    /// Step 9 of option admission: what depends on several options at once, or on the cluster.
    fn check_topic(&self, settings: &TopicSettings, partitions_count: u32) -> Result<(), Refusal> {
        if settings.replication_factor > self.settings.nodes {
            return Err(Refusal::of_key(Status::InvalidReplicationFactor, Key::ReplicationFactor.name()));
        }
        if !settings.fits_one_segment() {
            return Err(Refusal::of_key(Status::InvalidTopicSize, Key::MaxTopicSize.name()));
        }
        if !settings.may_preallocate(partitions_count) {
            return Err(Refusal::of_key(Status::InvalidOptionValue, Key::PreallocateSegments.name()));
        }
        Ok(())
    }

    fn check_partitions_cap(&self, added: u32) -> Result<(), Refusal> {
        let max = self.settings.partitions_max;
        let after = self.metadata.streams().partitions_count() + u64::from(added);
        if added > 0 && max > 0 && after > max { Err(Status::PartitionsLimitReached.into()) } else { Ok(()) }
    }
}

fn check_count(count: u32) -> Result<(), Refusal> {
    if (1..=PARTITIONS_PER_REQUEST_MAX).contains(&count) {
        Ok(())
    } else {
        Err(Status::TooManyPartitions.into())
    }
}
