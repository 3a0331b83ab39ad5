//! The state, and how it is looked up.

use std::sync::Arc;

use laneway_wire::{Micros, Op, PartitionId, Status, UserId};

use crate::apply::PartitionPlace;
use crate::changes::ChangeLog;
use crate::command::Settings;
use crate::lanes::Lanes;
use crate::names::{Missing, RefKey};
use crate::permissions::Rule;
use crate::sessions::Sessions;
use crate::streams::{Stream, Streams};
use crate::topics::Topic;
use crate::users::{User, UserStatus, Users};

/// All metadata as of one op. Copying it takes a fixed number of reference counts, however much it holds.
#[derive(Clone, Debug)]
pub struct Metadata {
    pub(crate) applied: Op,
    pub(crate) applied_at: Micros,
    pub(crate) settings: Settings,
    pub(crate) streams: Streams,
    pub(crate) users: Users,
    pub(crate) sessions: Sessions,
    pub(crate) lanes: Lanes,
    pub(crate) changes: ChangeLog,
}

impl Default for Metadata {
    fn default() -> Self {
        Self::new()
    }
}

impl Metadata {
    /// The state before the first op. It has no users: the first op makes root and fixes the settings.
    pub fn new() -> Self {
        let settings = Settings::default();
        Self {
            applied: Op(0),
            applied_at: Micros(0),
            settings,
            streams: Streams::default(),
            users: Users::default(),
            sessions: Sessions::new(settings.sessions_max),
            lanes: Lanes::new(settings.lanes_per_class),
            changes: ChangeLog::new(settings.changes_max),
        }
    }

    /// The op that made this state; 0 before the first.
    pub fn applied(&self) -> Op {
        self.applied
    }

    /// The timestamp of that op.
    pub fn applied_at(&self) -> Micros {
        self.applied_at
    }

    /// What the first op fixed.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The streams.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The users.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The client table.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The data lanes.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The change log.
    pub fn changes(&self) -> &ChangeLog {
        &self.changes
    }

    /// Root; none before the first op.
    pub fn root(&self) -> Option<&Arc<User>> {
        self.users.user(crate::users::ROOT)
    }

    /// Finds a stream.
    pub fn stream<'a>(&self, stream: impl Into<RefKey<'a>>) -> Result<&Arc<Stream>, Missing> {
        self.streams.find(stream)
    }

    /// Finds a topic. A missing stream is reported before a missing topic.
    pub fn topic<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        topic: impl Into<RefKey<'a>>,
    ) -> Result<(&Arc<Stream>, &Arc<Topic>), Missing> {
        let stream = self.streams.find(stream)?;
        Ok((stream, stream.topics.find(topic)?))
    }

    /// Finds a partition: whose it is, which life of it, which lane orders it, and the settings it lives by.
    pub fn partition<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        topic: impl Into<RefKey<'a>>,
        partition: PartitionId,
    ) -> Result<PartitionPlace, Missing> {
        let (stream, topic) = self.topic(stream, topic)?;
        let found = topic.partition(partition).ok_or(Missing::Partition)?;
        Ok(PartitionPlace::of(stream.id, topic, partition, found))
    }

    /// Every partition with its place, by stream, topic and number: what the shards open at boot.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionPlace> + '_ {
        self.streams.iter().flat_map(|stream| {
            stream.topics.iter().flat_map(|topic| {
                topic
                    .partitions()
                    .map(|(key, partition)| PartitionPlace::of(stream.id, topic, key.partition, partition))
            })
        })
    }

    /// Whether the user may do this now.
    ///
    /// Errors: [`Status::Unauthorized`], also for a user that is gone or inactive. Check that the target exists first: a
    /// missing target is answered as missing, whatever the caller may do.
    pub fn permit(&self, user: UserId, rule: Rule) -> Result<(), Status> {
        let user = self.users.user(user).filter(|user| user.status == UserStatus::Active);
        let allowed = user.is_some_and(|user| {
            user.is_root() || user.permissions.as_ref().is_some_and(|permissions| permissions.allow(rule))
        });
        if allowed { Ok(()) } else { Err(Status::Unauthorized) }
    }
}

const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Metadata>();
};
