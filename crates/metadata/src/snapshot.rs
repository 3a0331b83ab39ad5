//! The whole state as bytes, and back.
//!
//! ```text
//! 0   8  magic "LWMETAS1"
//! 8   4  format version, u32 little-endian
//! 12  4  zero
//! 16  8  XxHash3-64 of everything after this field
//! 24  .. archive of the records below
//! ```
//!
//! Only what cannot be worked out again is written: indexes, counts and free numbers follow from the rest, so two nodes
//! with the same history write the same bytes. Reading trusts nothing: the archive is checked before it is read, the
//! state is rebuilt through the same types that apply uses, and all invariants are checked at the end.

use std::sync::Arc;

use imbl::OrdMap;
use laneway_wire::{ClientId, Incarnation, LaneId, Micros, Op, SessionEpoch, StreamId, TopicId, UserId};
use rkyv::rancor;
use rkyv::util::AlignedVec;
use rkyv::with::Map;
use rkyv::{Archive, Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::archive::AsNumber;
use crate::changes::records::ChangeLogRecord;
use crate::command::Settings;
use crate::invariants::{self, Broken};
use crate::lanes::{LANES_PER_CLASS_MAX, Lanes};
use crate::metadata::Metadata;
use crate::options::set::OptionRecord;
use crate::options::{Scope, StoredOptions, TopicSettings};
use crate::permissions::{Permissions, PermissionsRecord};
use crate::replies::{CommittedReply, ReplyRecord};
use crate::sessions::{EndReason, Session, Sessions, Verifier};
use crate::streams::{Stream, Streams};
use crate::tokens::{Token, TokenRecord};
use crate::topics::{Partition, Topic, Topics};
use crate::users::{PasswordHash, User, UserStatus, Users};

const MAGIC: [u8; 8] = *b"LWMETAS1";
const FORMAT: u32 = 3;
const HEADER_BYTES: usize = 24;

/// Why bytes are not a snapshot that this build may continue from.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not a snapshot, or cut short.
    #[error("not a metadata snapshot")]
    Magic,
    /// Written by another build.
    #[error("snapshot format {found} is unknown, this build reads {FORMAT}")]
    Format {
        /// The format number found.
        found: u32,
    },
    /// The bytes changed since they were written.
    #[error("snapshot checksum does not match")]
    Checksum,
    /// Not an archive of a state.
    #[error("the snapshot is damaged")]
    Archive(#[source] rancor::Error),
    /// The records do not make a state.
    #[error("the {what} of the snapshot do not fit together")]
    Records {
        /// Which.
        what: &'static str,
    },
    /// The state breaks an invariant.
    #[error(transparent)]
    Invariant(#[from] Broken),
}

#[derive(Archive, Serialize, Deserialize)]
struct MetadataRecord {
    #[rkyv(with = AsNumber)]
    applied: Op,
    #[rkyv(with = AsNumber)]
    applied_at: Micros,
    settings: Settings,
    #[rkyv(with = Map<AsNumber>)]
    lanes: Vec<LaneId>,
    streams: Vec<StreamRecord>,
    users: Vec<UserRecord>,
    sessions: Vec<SessionRecord>,
    changes: ChangeLogRecord,
}

#[derive(Archive, Serialize, Deserialize)]
struct StreamRecord {
    #[rkyv(with = AsNumber)]
    id: StreamId,
    #[rkyv(with = AsNumber)]
    created_op: Op,
    #[rkyv(with = AsNumber)]
    created_at: Micros,
    name: String,
    options: Vec<OptionRecord>,
    topics: Vec<TopicRecord>,
}

#[derive(Archive, Serialize, Deserialize)]
struct TopicRecord {
    #[rkyv(with = AsNumber)]
    id: TopicId,
    #[rkyv(with = AsNumber)]
    created_op: Op,
    #[rkyv(with = AsNumber)]
    created_at: Micros,
    name: String,
    options: Vec<OptionRecord>,
    partitions: Vec<PartitionRecord>,
}

#[derive(Archive, Serialize, Deserialize)]
struct PartitionRecord {
    #[rkyv(with = AsNumber)]
    incarnation: Incarnation,
    #[rkyv(with = AsNumber)]
    created_at: Micros,
    #[rkyv(with = AsNumber)]
    lane: LaneId,
}

#[derive(Archive, Serialize, Deserialize)]
struct UserRecord {
    #[rkyv(with = AsNumber)]
    id: UserId,
    #[rkyv(with = AsNumber)]
    created_at: Micros,
    status: UserStatus,
    username: String,
    password_hash: PasswordHash,
    permissions: Option<PermissionsRecord>,
    options: Vec<OptionRecord>,
    tokens: Vec<TokenRecord>,
}

#[derive(Archive, Serialize, Deserialize)]
struct SessionRecord {
    #[rkyv(with = AsNumber)]
    client: ClientId,
    #[rkyv(with = AsNumber)]
    epoch: SessionEpoch,
    #[rkyv(with = AsNumber)]
    user: UserId,
    #[rkyv(with = AsNumber)]
    user_created_at: Micros,
    ended: Option<EndReason>,
    verifier: Verifier,
    #[rkyv(with = AsNumber)]
    latest_commit: Op,
    replies: Vec<ReplyRecord>,
}

impl Metadata {
    /// Writes the state. Equal states give equal bytes.
    pub fn to_snapshot(&self) -> Vec<u8> {
        let archive =
            rkyv::to_bytes::<rancor::Error>(&self.to_record()).expect("writing to memory cannot fail");
        let mut bytes = Vec::with_capacity(HEADER_BYTES + archive.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&xxh3_64(&archive).to_le_bytes());
        bytes.extend_from_slice(&archive);
        bytes
    }

    /// Reads a state that [`Self::to_snapshot`] wrote.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let (header, archive) = bytes.split_at_checked(HEADER_BYTES).ok_or(SnapshotError::Magic)?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let (format, checksum) = rest.split_at(8);
        if magic != MAGIC {
            return Err(SnapshotError::Magic);
        }
        match format {
            [a, b, c, d, 0, 0, 0, 0] => match u32::from_le_bytes([*a, *b, *c, *d]) {
                FORMAT => {}
                found => return Err(SnapshotError::Format { found }),
            },
            _ => return Err(SnapshotError::Magic),
        }
        if checksum != xxh3_64(archive).to_le_bytes() {
            return Err(SnapshotError::Checksum);
        }
        // Archives are read in place and want alignment, which a slice of a file does not have.
        let mut aligned: AlignedVec = AlignedVec::with_capacity(archive.len());
        aligned.extend_from_slice(archive);
        let record =
            rkyv::from_bytes::<MetadataRecord, rancor::Error>(&aligned).map_err(SnapshotError::Archive)?;
        let metadata = record.restore()?;
        invariants::check(&metadata)?;
        Ok(metadata)
    }

    fn to_record(&self) -> MetadataRecord {
        MetadataRecord {
            applied: self.applied,
            applied_at: self.applied_at,
            settings: self.settings,
            lanes: self.lanes.iter().map(|(id, _)| id).collect(),
            streams: self.streams.iter().map(|stream| StreamRecord::of(stream)).collect(),
            users: self.users.iter().map(|user| UserRecord::of(user)).collect(),
            sessions: self.sessions.iter().map(|session| SessionRecord::of(session)).collect(),
            changes: ChangeLogRecord::from(&self.changes),
        }
    }
}

impl MetadataRecord {
    fn restore(self) -> Result<Metadata, SnapshotError> {
        let broken = |what| SnapshotError::Records { what };
        if !(1..=LANES_PER_CLASS_MAX).contains(&self.settings.lanes_per_class) {
            return Err(broken("lanes"));
        }
        let mut lanes = Lanes::new(self.settings.lanes_per_class);
        for lane in self.lanes {
            lanes.restore(lane).ok_or(broken("lanes"))?;
        }
        let streams = self.streams.into_iter().map(StreamRecord::restore).collect::<Option<Vec<_>>>();
        let streams = streams.and_then(Streams::restore).ok_or(broken("streams"))?;
        let users = self.users.into_iter().map(UserRecord::restore).collect::<Option<Vec<_>>>();
        let users = users.and_then(Users::restore).ok_or(broken("users"))?;
        let sessions = self.sessions.into_iter().map(SessionRecord::restore).collect::<Option<Vec<_>>>();
        let sessions = sessions
            .and_then(|sessions| Sessions::restore(self.settings.sessions_max, sessions))
            .ok_or(broken("sessions"))?;
        let changes = self.changes.restore(self.settings.changes_max).ok_or(broken("change records"))?;
        let mut metadata = Metadata {
            applied: self.applied,
            applied_at: self.applied_at,
            settings: self.settings,
            streams,
            users,
            sessions,
            lanes,
            changes,
        };
        metadata.recount_lanes().ok_or(broken("lanes"))?;
        Ok(metadata)
    }
}

impl Metadata {
    /// Counts the partitions of each lane again; none when a partition names a lane that was never used.
    fn recount_lanes(&mut self) -> Option<()> {
        let mut lanes = self.lanes.clone();
        for place in self.partitions() {
            lanes.lane(place.lane)?;
            lanes.add_partition(place.lane);
        }
        self.lanes = lanes;
        Some(())
    }
}

impl StreamRecord {
    fn of(stream: &Stream) -> Self {
        Self {
            id: stream.id,
            created_op: stream.created_op,
            created_at: stream.created_at,
            name: stream.name.as_ref().to_owned(),
            options: stream.options.to_records(),
            topics: stream.topics.iter().map(|topic| TopicRecord::of(topic)).collect(),
        }
    }

    fn restore(self) -> Option<Stream> {
        let topics = self.topics.into_iter().map(TopicRecord::restore).collect::<Option<Vec<_>>>()?;
        Some(Stream {
            id: self.id,
            created_op: self.created_op,
            created_at: self.created_at,
            name: self.name.into(),
            options: Arc::new(StoredOptions::from_records(Scope::Stream, self.options)?),
            topics: Topics::restore(topics)?,
        })
    }
}

impl TopicRecord {
    fn of(topic: &Topic) -> Self {
        let partitions = topic.partitions().map(|(_, partition)| PartitionRecord {
            incarnation: partition.incarnation,
            created_at: partition.created_at,
            lane: partition.lane,
        });
        Self {
            id: topic.id,
            created_op: topic.created_op,
            created_at: topic.created_at,
            name: topic.name.as_ref().to_owned(),
            options: topic.options.to_records(),
            partitions: partitions.collect(),
        }
    }

    fn restore(self) -> Option<Topic> {
        let options = StoredOptions::from_records(Scope::Topic, self.options)?;
        u32::try_from(self.partitions.len()).ok()?;
        let partitions = self.partitions.into_iter().map(|partition| Partition {
            incarnation: partition.incarnation,
            created_at: partition.created_at,
            lane: partition.lane,
        });
        Some(Topic {
            id: self.id,
            created_op: self.created_op,
            created_at: self.created_at,
            name: self.name.into(),
            settings: TopicSettings::of(options.set()),
            options: Arc::new(options),
            partitions: partitions.collect(),
        })
    }
}

impl UserRecord {
    fn of(user: &User) -> Self {
        Self {
            id: user.id,
            created_at: user.created_at,
            status: user.status,
            username: user.username.as_ref().to_owned(),
            password_hash: user.password_hash.clone(),
            permissions: user.permissions.as_ref().map(PermissionsRecord::from),
            options: user.options.to_records(),
            tokens: user.tokens.values().map(TokenRecord::from).collect(),
        }
    }

    fn restore(self) -> Option<User> {
        let count = self.tokens.len();
        let tokens = self.tokens.into_iter().map(Token::from).map(|token| (token.name.clone(), token));
        let tokens: OrdMap<_, _> = tokens.collect();
        (tokens.len() == count).then_some(())?;
        Some(User {
            id: self.id,
            created_at: self.created_at,
            status: self.status,
            username: self.username.into(),
            password_hash: self.password_hash,
            permissions: self.permissions.map(Permissions::from),
            options: Arc::new(StoredOptions::from_records(Scope::User, self.options)?),
            tokens,
        })
    }
}

impl SessionRecord {
    fn of(session: &Session) -> Self {
        Self {
            client: session.client,
            epoch: session.epoch,
            user: session.user,
            user_created_at: session.user_created_at,
            ended: session.ended,
            verifier: session.verifier,
            latest_commit: session.latest_commit,
            replies: session.replies.iter().map(ReplyRecord::from).collect(),
        }
    }

    fn restore(self) -> Option<Session> {
        let replies =
            self.replies.into_iter().map(ReplyRecord::restore).collect::<Option<Vec<CommittedReply>>>()?;
        Some(Session {
            client: self.client,
            epoch: self.epoch,
            user: self.user,
            user_created_at: self.user_created_at,
            ended: self.ended,
            verifier: self.verifier,
            latest_commit: self.latest_commit,
            replies,
        })
    }
}
