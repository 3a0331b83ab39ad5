//! What always holds of a state. Asserted after every op in debug builds, and on every snapshot that is read.

use std::collections::{BTreeMap, BTreeSet};

use laneway_wire::{LaneId, UserId};

use crate::id_space::IdSpace;
use crate::limits;
use crate::metadata::Metadata;
use crate::options::TopicSettings;
use crate::tokens::Token;
use crate::users::{ROOT, ROOT_CREATED_AT, User, UserStatus};

/// Which invariant is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invariant broken: {0}")]
pub struct Broken(pub &'static str);

/// Checks everything, in time proportional to the state.
pub fn check(metadata: &Metadata) -> Result<(), Broken> {
    resources(metadata)?;
    lanes(metadata)?;
    users(metadata)?;
    sessions(metadata)?;
    metadata.changes().check(metadata.applied())?;
    holds(
        "change log limit is the setting",
        metadata.changes().records_max() == metadata.settings().changes_max,
    )
}

fn holds(what: &'static str, condition: bool) -> Result<(), Broken> {
    if condition { Ok(()) } else { Err(Broken(what)) }
}

/// Counts equal a recount, and each index agrees with what it indexes.
fn resources(metadata: &Metadata) -> Result<(), Broken> {
    let streams = metadata.streams();
    let names: BTreeMap<_, _> = streams.iter().map(|stream| (&stream.name, stream.id)).collect();
    holds("stream names index", names.into_iter().eq(streams.names()))?;
    holds("stream numbers", ids_agree(streams.ids(), streams.iter().map(|stream| stream.id.0)))?;
    holds("streams limit", streams.count() <= limits::STREAMS_MAX)?;
    let topics: u64 = streams.iter().map(|stream| stream.topics.iter().count() as u64).sum();
    holds("topics count", topics == streams.topics_count())?;
    holds("partitions count", metadata.partitions().count() as u64 == streams.partitions_count())?;

    for stream in streams.iter() {
        holds("stream created later than applied", stream.created_op <= metadata.applied())?;
        holds("stream name length", limits::NAME_BYTES.contains(&stream.name.len()))?;
        let topics = &stream.topics;
        let names: BTreeMap<_, _> = topics.iter().map(|topic| (&topic.name, topic.id)).collect();
        holds("topic names index", names.into_iter().eq(topics.names()))?;
        holds("topic numbers", ids_agree(topics.ids(), topics.iter().map(|topic| topic.id.0)))?;
        holds("topics limit", topics.count() <= limits::TOPICS_MAX)?;
        let partitions: u64 = topics.iter().map(|topic| topic.partitions().count() as u64).sum();
        holds("partitions count of a stream", partitions == topics.partitions_count())?;
        for topic in topics.iter() {
            holds("topic created before its stream", topic.created_op > stream.created_op)?;
            holds("topic name length", limits::NAME_BYTES.contains(&topic.name.len()))?;
            holds("partition numbers limit", topic.partitions_count() <= limits::PARTITION_IDS_MAX)?;
            holds("settings follow the options", topic.settings == TopicSettings::of(topic.options.set()))?;
            let incarnations = topic.partitions().map(|(key, _)| key.incarnation);
            holds("incarnations ascend with numbers", incarnations.is_sorted())?;
            let lives = topic.created_op.0..=metadata.applied().0;
            holds(
                "incarnations of a topic",
                topic.partitions().all(|(key, _)| lives.contains(&key.incarnation.0)),
            )?;
        }
    }
    // One op creates partitions of one topic only; that makes a partition's key unique for ever.
    let keys: BTreeSet<_> = metadata.partitions().map(|place| place.key).collect();
    holds("partition keys are unique", keys.len() as u64 == streams.partitions_count())
}

/// Every lane carries as many partitions as it counts, all of its class.
fn lanes(metadata: &Metadata) -> Result<(), Broken> {
    let mut counted: BTreeMap<LaneId, u32> = BTreeMap::new();
    for place in metadata.partitions() {
        let class = metadata.lanes().class_of(place.lane);
        holds("lane class", class.is_some_and(|class| class.durability == place.settings.durability))?;
        *counted.entry(place.lane).or_default() += 1;
    }
    for (id, lane) in metadata.lanes().iter() {
        holds("lane numbers", metadata.lanes().class_of(id) == Some(lane.class))?;
        holds("lane partitions count", counted.remove(&id).unwrap_or_default() == lane.partitions_count)?;
    }
    holds("a used lane is known", counted.is_empty())
}

fn users(metadata: &Metadata) -> Result<(), Broken> {
    let users = metadata.users();
    let names: BTreeMap<_, _> = users.iter().map(|user| (&user.username, user.id)).collect();
    holds("user names index", names.into_iter().eq(users.names()))?;
    holds("user numbers", ids_agree(users.ids(), users.iter().map(|user| user.id.0)))?;
    holds("users limit", users.count() <= limits::USERS_MAX)?;
    holds("root comes first", users.count() == 0 || users.user(ROOT).is_some())?;
    holds("root's age", users.user(ROOT).is_none_or(|root| root.created_at == ROOT_CREATED_AT))?;
    let tokens = || users.iter().flat_map(|user| user.tokens.iter());
    holds("token names", tokens().all(|(name, token)| *name == token.name))?;
    holds("token name length", tokens().all(|(name, _)| limits::TOKEN_NAME_BYTES.contains(&name.len())))?;
    let ending = tokens().filter(|(_, token)| token.expires_at.is_some()).count();
    holds("tokens indexes", users.listed_tokens() == (tokens().count(), ending))?;
    let recognised = |user: &User| {
        let own = |token: &Token| users.by_token(&token.hash).is_some_and(|(owner, _)| owner.id == user.id);
        user.tokens.values().all(own)
    };
    holds("tokens are recognised", users.iter().all(|user| recognised(user)))?;
    for permissions in users.iter().filter_map(|user| user.permissions.as_ref()) {
        for (stream, grant) in &permissions.streams {
            let found = metadata.stream(stream.0);
            holds("grant on a missing stream", found.is_ok())?;
            let has = |topic: u32| found.is_ok_and(|stream| stream.topics.find(topic).is_ok());
            holds("grant on a missing topic", grant.topics.keys().all(|topic| has(topic.0)))?;
        }
    }
    Ok(())
}

fn sessions(metadata: &Metadata) -> Result<(), Broken> {
    let sessions = metadata.sessions();
    holds("sessions limit", sessions.count() <= sessions.max() as usize)?;
    holds("sessions limit is the setting", sessions.max() == metadata.settings().sessions_max)?;
    holds(
        "lanes per class is the setting",
        metadata.lanes().per_class() == metadata.settings().lanes_per_class,
    )?;
    let ended: BTreeSet<_> = sessions
        .iter()
        .filter(|session| !session.is_live())
        .map(|session| (session.latest_commit, session.client))
        .collect();
    holds("ended sessions index", ended.into_iter().eq(sessions.ended().iter().copied()))?;
    for session in sessions.iter() {
        let user = |id: UserId| metadata.users().user(id).map(|user| user.created_at);
        let has_user = user(session.user) == Some(session.user_created_at);
        holds("a live session has its user", has_user || !session.is_live())?;
        let active =
            metadata.users().user(session.user).is_some_and(|user| user.status == UserStatus::Active);
        holds("a live session has an active user", active || !session.is_live())?;
        holds("session changed after its epoch", session.latest_commit.0 >= session.epoch.0)?;
        holds("session changed later than applied", session.latest_commit <= metadata.applied())?;
        holds("replies kept", session.replies.len() <= limits::REPLIES_PER_SESSION)?;
        let in_order = session
            .replies
            .windows(2)
            .all(|pair| pair[0].request < pair[1].request && pair[0].op < pair[1].op);
        holds("replies ascend", in_order)?;
    }
    Ok(())
}

fn ids_agree(space: &IdSpace, taken: impl Iterator<Item = u32>) -> bool {
    let mut next = 0;
    let mut lowest_free = None;
    for id in taken {
        if id != next && lowest_free.is_none() {
            lowest_free = Some(next);
        }
        if !space.is_taken(id) {
            return false;
        }
        next = id + 1;
    }
    space.lowest_free() == lowest_free.unwrap_or(next)
}
