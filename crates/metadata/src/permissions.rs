//! Who may do what. A rule is a row of flags on the server, on a stream and on a topic; any one of them is enough, and
//! nothing forbids. Source: resources, section 11.3; wire protocol, sections 3.10 and 5.0.

use std::collections::BTreeMap;

use laneway_wire::permissions as wire;
use laneway_wire::{StreamId, TopicId};
use rkyv::{Archive, Deserialize, Serialize};

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident($bits:ty) as $wire:ident {
        $($(#[$flag_doc:meta])* $flag:ident($field:ident) = $bit:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
        pub struct $name(pub $bits);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << $bit);)*
            /// No flag.
            pub const NONE: Self = Self(0);
            /// Every flag.
            pub const ALL: Self = Self(0 $(| 1 << $bit)*);

            /// Both rows of flags together.
            pub const fn or(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether any flag is in both rows.
            pub const fn any_of(self, row: Self) -> bool {
                self.0 & row.0 != 0
            }
        }

        impl From<wire::$wire> for $name {
            fn from(flags: wire::$wire) -> Self {
                Self(0 $(| <$bits>::from(flags.$field) << $bit)*)
            }
        }

        impl From<$name> for wire::$wire {
            fn from(flags: $name) -> Self {
                Self { $($field: flags.any_of($name::$flag),)* }
            }
        }
    };
}

flags! {
    /// What a user may do on the whole server. Bits are in the order of the wire.
    GlobalFlags(u16) as GlobalPermissions {
        /// See and manage nodes, connections and statistics.
        MANAGE_SERVERS(manage_servers) = 0,
        /// See connections and statistics.
        READ_SERVERS(read_servers) = 1,
        /// Create and change users.
        MANAGE_USERS(manage_users) = 2,
        /// See users.
        READ_USERS(read_users) = 3,
        /// Everything below streams.
        MANAGE_STREAMS(manage_streams) = 4,
        /// See and read everything below streams.
        READ_STREAMS(read_streams) = 5,
        /// Everything below topics.
        MANAGE_TOPICS(manage_topics) = 6,
        /// See and read all topics.
        READ_TOPICS(read_topics) = 7,
        /// Read messages everywhere.
        POLL_MESSAGES(poll_messages) = 8,
        /// Write messages everywhere.
        SEND_MESSAGES(send_messages) = 9,
    }
}

flags! {
    /// What a user may do in one stream. Bits are in the order of the wire.
    StreamFlags(u8) as StreamFlags {
        /// Everything in the stream.
        MANAGE_STREAM(manage_stream) = 0,
        /// See and read everything in the stream.
        READ_STREAM(read_stream) = 1,
        /// Everything in its topics.
        MANAGE_TOPICS(manage_topics) = 2,
        /// See and read its topics.
        READ_TOPICS(read_topics) = 3,
        /// Read its messages.
        POLL_MESSAGES(poll_messages) = 4,
        /// Write messages into it.
        SEND_MESSAGES(send_messages) = 5,
    }
}

flags! {
    /// What a user may do in one topic. Bits are in the order of the wire.
    TopicFlags(u8) as TopicPermissions {
        /// Everything in the topic.
        MANAGE_TOPIC(manage_topic) = 0,
        /// See and read the topic.
        READ_TOPIC(read_topic) = 1,
        /// Read its messages.
        POLL_MESSAGES(poll_messages) = 2,
        /// Write messages into it.
        SEND_MESSAGES(send_messages) = 3,
    }
}

/// The grants of one user in one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPermissions {
    /// Grants on the stream.
    pub flags: StreamFlags,
    /// Grants on single topics.
    pub topics: BTreeMap<TopicId, TopicFlags>,
}

/// The grants of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Grants on the whole server.
    pub global: GlobalFlags,
    /// Grants on single streams.
    pub streams: BTreeMap<StreamId, StreamPermissions>,
}

impl Permissions {
    /// What root has: every flag on the server.
    pub fn all() -> Self {
        Self { global: GlobalFlags::ALL, streams: BTreeMap::new() }
    }

    /// Whether the rule is granted. Pure: the answer depends on the grants alone.
    pub fn allow(&self, rule: Rule) -> bool {
        let row = rule.row();
        if self.global.any_of(row.global) {
            return true;
        }
        let Some(stream) = rule.stream().and_then(|stream| self.streams.get(&stream)) else { return false };
        if stream.flags.any_of(row.stream) {
            return true;
        }
        let topic = rule.topic().and_then(|topic| stream.topics.get(&topic));
        topic.is_some_and(|flags| flags.any_of(row.topic))
    }
}

/// What a request needs to be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Statistics, connections, snapshots.
    Servers,
    /// The metadata change log.
    ChangeLog,
    /// See users.
    ReadUsers,
    /// Create, change and delete users.
    ManageUsers,
    /// List all streams.
    ListStreams,
    /// Create a stream.
    CreateStream,
    /// See one stream.
    ReadStream(StreamId),
    /// Change or delete one stream.
    ManageStream(StreamId),
    /// List the topics of a stream.
    ListTopics(StreamId),
    /// Create a topic.
    CreateTopic(StreamId),
    /// See one topic; all commands on its consumer groups.
    ReadTopic(StreamId, TopicId),
    /// Change or delete one topic, its partitions and segments.
    ManageTopic(StreamId, TopicId),
    /// Read messages, and the offsets of consumers.
    Poll(StreamId, TopicId),
    /// Write messages.
    Send(StreamId, TopicId),
}

/// The flags that grant a rule, by where they are granted.
struct Row {
    global: GlobalFlags,
    stream: StreamFlags,
    topic: TopicFlags,
}

const fn row(global: GlobalFlags, stream: StreamFlags, topic: TopicFlags) -> Row {
    Row { global, stream, topic }
}

mod rows {
    use super::{GlobalFlags as G, StreamFlags as S, TopicFlags as T};

    pub(super) const LIST_STREAMS: G = G::MANAGE_STREAMS.or(G::READ_STREAMS);
    pub(super) const LIST_TOPICS: G = LIST_STREAMS.or(G::MANAGE_TOPICS).or(G::READ_TOPICS);
    pub(super) const LIST_TOPICS_OF_STREAM: S =
        S::MANAGE_STREAM.or(S::READ_STREAM).or(S::MANAGE_TOPICS).or(S::READ_TOPICS);
    pub(super) const MANAGE_TOPICS: G = G::MANAGE_STREAMS.or(G::MANAGE_TOPICS);
    pub(super) const MANAGE_TOPICS_OF_STREAM: S = S::MANAGE_STREAM.or(S::MANAGE_TOPICS);
    pub(super) const READ_TOPIC: T = T::MANAGE_TOPIC.or(T::READ_TOPIC);
}

impl Rule {
    fn row(self) -> Row {
        use rows::*;
        use {GlobalFlags as G, StreamFlags as S, TopicFlags as T};
        match self {
            Rule::Servers => row(G::MANAGE_SERVERS.or(G::READ_SERVERS), S::NONE, T::NONE),
            Rule::ChangeLog => row(G::MANAGE_SERVERS, S::NONE, T::NONE),
            Rule::ReadUsers => row(G::MANAGE_USERS.or(G::READ_USERS), S::NONE, T::NONE),
            Rule::ManageUsers => row(G::MANAGE_USERS, S::NONE, T::NONE),
            Rule::ListStreams => row(LIST_STREAMS, S::NONE, T::NONE),
            Rule::CreateStream => row(G::MANAGE_STREAMS, S::NONE, T::NONE),
            Rule::ReadStream(_) => row(LIST_STREAMS, S::MANAGE_STREAM.or(S::READ_STREAM), T::NONE),
            Rule::ManageStream(_) => row(G::MANAGE_STREAMS, S::MANAGE_STREAM, T::NONE),
            Rule::ListTopics(_) => row(LIST_TOPICS, LIST_TOPICS_OF_STREAM, T::NONE),
            Rule::CreateTopic(_) => row(MANAGE_TOPICS, MANAGE_TOPICS_OF_STREAM, T::NONE),
            Rule::ReadTopic(..) => row(LIST_TOPICS, LIST_TOPICS_OF_STREAM, READ_TOPIC),
            Rule::ManageTopic(..) => row(MANAGE_TOPICS, MANAGE_TOPICS_OF_STREAM, T::MANAGE_TOPIC),
            Rule::Poll(..) => row(
                LIST_TOPICS.or(G::POLL_MESSAGES),
                LIST_TOPICS_OF_STREAM.or(S::POLL_MESSAGES),
                READ_TOPIC.or(T::POLL_MESSAGES),
            ),
            Rule::Send(..) => row(
                MANAGE_TOPICS.or(G::SEND_MESSAGES),
                MANAGE_TOPICS_OF_STREAM.or(S::SEND_MESSAGES),
                T::MANAGE_TOPIC.or(T::SEND_MESSAGES),
            ),
        }
    }

    fn stream(self) -> Option<StreamId> {
        match self {
            Rule::ReadStream(stream)
            | Rule::ManageStream(stream)
            | Rule::ListTopics(stream)
            | Rule::CreateTopic(stream)
            | Rule::ReadTopic(stream, _)
            | Rule::ManageTopic(stream, _)
            | Rule::Poll(stream, _)
            | Rule::Send(stream, _) => Some(stream),
            Rule::Servers
            | Rule::ChangeLog
            | Rule::ReadUsers
            | Rule::ManageUsers
            | Rule::ListStreams
            | Rule::CreateStream => None,
        }
    }

    fn topic(self) -> Option<TopicId> {
        match self {
            Rule::ReadTopic(_, topic)
            | Rule::ManageTopic(_, topic)
            | Rule::Poll(_, topic)
            | Rule::Send(_, topic) => Some(topic),
            _ => None,
        }
    }
}

/// The grants of a user as logs and snapshots hold them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct PermissionsRecord {
    global: GlobalFlags,
    streams: Vec<StreamRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
struct StreamRecord {
    stream: u32,
    flags: StreamFlags,
    topics: Vec<(u32, TopicFlags)>,
}

impl PermissionsRecord {
    /// Grants on streams and on topics.
    pub fn grants(&self) -> usize {
        self.streams.len() + self.streams.iter().map(|stream| stream.topics.len()).sum::<usize>()
    }
}

impl From<&Permissions> for PermissionsRecord {
    fn from(permissions: &Permissions) -> Self {
        let streams = permissions.streams.iter().map(|(id, stream)| StreamRecord {
            stream: id.0,
            flags: stream.flags,
            topics: stream.topics.iter().map(|(id, flags)| (id.0, *flags)).collect(),
        });
        Self { global: permissions.global, streams: streams.collect() }
    }
}

impl From<PermissionsRecord> for Permissions {
    fn from(record: PermissionsRecord) -> Self {
        let streams = record.streams.into_iter().map(|stream| {
            let topics = stream.topics.into_iter().map(|(id, flags)| (TopicId(id), flags)).collect();
            (StreamId(stream.stream), StreamPermissions { flags: stream.flags, topics })
        });
        Self { global: record.global, streams: streams.collect() }
    }
}

impl From<&wire::Permissions> for Permissions {
    fn from(permissions: &wire::Permissions) -> Self {
        let streams = permissions.streams.iter().map(|(id, stream)| {
            let topics = stream.topics.iter().map(|(id, flags)| (*id, (*flags).into())).collect();
            (*id, StreamPermissions { flags: stream.flags.into(), topics })
        });
        Self { global: permissions.global.into(), streams: streams.collect() }
    }
}

impl From<&Permissions> for wire::Permissions {
    fn from(permissions: &Permissions) -> Self {
        let streams = permissions.streams.iter().map(|(id, stream)| {
            let topics = stream.topics.iter().map(|(id, flags)| (*id, (*flags).into())).collect();
            (*id, wire::StreamPermissions { flags: stream.flags.into(), topics })
        });
        Self { global: permissions.global.into(), streams: streams.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: StreamId = StreamId(7);
    const T: TopicId = TopicId(3);
    const RULES: [Rule; 14] = [
        Rule::Servers,
        Rule::ChangeLog,
        Rule::ReadUsers,
        Rule::ManageUsers,
        Rule::ListStreams,
        Rule::CreateStream,
        Rule::ReadStream(S),
        Rule::ManageStream(S),
        Rule::ListTopics(S),
        Rule::CreateTopic(S),
        Rule::ReadTopic(S, T),
        Rule::ManageTopic(S, T),
        Rule::Poll(S, T),
        Rule::Send(S, T),
    ];

    /// `matrix` has one letter per rule of `RULES`: x allowed, - not.
    fn check(name: &str, permissions: &Permissions, matrix: &str) {
        let got: String = RULES.iter().map(|rule| if permissions.allow(*rule) { 'x' } else { '-' }).collect();
        assert_eq!(got, matrix, "{name}");
    }

    fn in_stream(stream: StreamId, flags: StreamFlags) -> Permissions {
        let grant = StreamPermissions { flags, topics: BTreeMap::new() };
        Permissions { global: GlobalFlags::NONE, streams: BTreeMap::from([(stream, grant)]) }
    }

    fn in_topic(stream: StreamId, topic: TopicId, flags: TopicFlags) -> Permissions {
        let grant = StreamPermissions { flags: StreamFlags::NONE, topics: BTreeMap::from([(topic, flags)]) };
        Permissions { global: GlobalFlags::NONE, streams: BTreeMap::from([(stream, grant)]) }
    }

    #[test]
    fn each_global_flag_grants_its_column() {
        let global = |flags| Permissions { global: flags, streams: BTreeMap::new() };
        check("none", &Permissions::default(), "--------------");
        check("all", &Permissions::all(), "xxxxxxxxxxxxxx");
        check("manage_servers", &global(GlobalFlags::MANAGE_SERVERS), "xx------------");
        check("read_servers", &global(GlobalFlags::READ_SERVERS), "x-------------");
        check("manage_users", &global(GlobalFlags::MANAGE_USERS), "--xx----------");
        check("read_users", &global(GlobalFlags::READ_USERS), "--x-----------");
        check("manage_streams", &global(GlobalFlags::MANAGE_STREAMS), "----xxxxxxxxxx");
        check("read_streams", &global(GlobalFlags::READ_STREAMS), "----x-x-x-x-x-");
        check("manage_topics", &global(GlobalFlags::MANAGE_TOPICS), "--------xxxxxx");
        check("read_topics", &global(GlobalFlags::READ_TOPICS), "--------x-x-x-");
        check("poll_messages", &global(GlobalFlags::POLL_MESSAGES), "------------x-");
        check("send_messages", &global(GlobalFlags::SEND_MESSAGES), "-------------x");
    }

    #[test]
    fn each_stream_flag_grants_its_column_in_its_stream_only() {
        check("manage_stream", &in_stream(S, StreamFlags::MANAGE_STREAM), "------xxxxxxxx");
        check("read_stream", &in_stream(S, StreamFlags::READ_STREAM), "------x-x-x-x-");
        check("manage_topics", &in_stream(S, StreamFlags::MANAGE_TOPICS), "--------xxxxxx");
        check("read_topics", &in_stream(S, StreamFlags::READ_TOPICS), "--------x-x-x-");
        check("poll_messages", &in_stream(S, StreamFlags::POLL_MESSAGES), "------------x-");
        check("send_messages", &in_stream(S, StreamFlags::SEND_MESSAGES), "-------------x");
        check("other stream", &in_stream(StreamId(8), StreamFlags::ALL), "--------------");
    }

    #[test]
    fn each_topic_flag_grants_its_column_in_its_topic_only() {
        check("manage_topic", &in_topic(S, T, TopicFlags::MANAGE_TOPIC), "----------xxxx");
        check("read_topic", &in_topic(S, T, TopicFlags::READ_TOPIC), "----------x-x-");
        check("poll_messages", &in_topic(S, T, TopicFlags::POLL_MESSAGES), "------------x-");
        check("send_messages", &in_topic(S, T, TopicFlags::SEND_MESSAGES), "-------------x");
        check("other topic", &in_topic(S, TopicId(4), TopicFlags::ALL), "--------------");
        check("other stream", &in_topic(StreamId(8), T, TopicFlags::ALL), "--------------");
    }

    #[test]
    fn wire_permissions_round_trip_flag_by_flag() {
        for bit in 0..10 {
            let mut permissions = in_topic(S, T, TopicFlags(1 << (bit % 4)));
            permissions.global = GlobalFlags(1 << bit);
            permissions.streams.entry(S).or_default().flags = StreamFlags(1 << (bit % 6));
            let on_wire = wire::Permissions::from(&permissions);
            assert_eq!(Permissions::from(&on_wire), permissions);
        }
        assert_eq!(wire::Permissions::from(&Permissions::all()), wire::Permissions::root());
    }

    #[test]
    fn records_keep_every_grant() {
        let mut permissions = in_topic(S, T, TopicFlags::SEND_MESSAGES);
        permissions.global = GlobalFlags::READ_USERS;
        assert_eq!(Permissions::from(PermissionsRecord::from(&permissions)), permissions);
    }
}
