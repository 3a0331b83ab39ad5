//! Command codes: what a client asks for. A table, as long as the protocol's. Source: wire protocol, section 5.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// A command a client may send today.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Code {
            $($(#[$doc])* $name = $number,)*
        }

        impl Code {
            /// Every command, in ascending order of its number.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The command of a number; none for retired and unknown numbers.
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Code::$name),)*
                    _ => None,
                }
            }

            /// Name of the command in the protocol.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Code::$name => stringify!($name),)*
                }
            }
        }
    };
}

codes! {
    /// Liveness; also served before login.
    Ping = 1,
    /// Counters of the node.
    GetStats = 10,
    /// Diagnostic archive.
    GetSnapshot = 11,
    /// Roster of the cluster.
    GetClusterMetadata = 12,
    /// Options that a scope accepts.
    DescribeOptions = 13,
    /// Attaches a connection to a live session.
    BindSession = 15,
    /// Sets and resets options of one resource.
    UpdateResource = 16,
    /// Page of the metadata change log.
    GetMetadataChanges = 17,
    /// The calling connection.
    GetMe = 20,
    /// One connection.
    GetClient = 21,
    /// Every connection.
    GetClients = 22,
    /// One user.
    GetUser = 31,
    /// Every user.
    GetUsers = 32,
    /// Creates a user.
    CreateUser = 33,
    /// Deletes a user.
    DeleteUser = 34,
    /// Replaces the permissions of a user.
    UpdatePermissions = 36,
    /// Changes a password.
    ChangePassword = 37,
    /// Legacy login; never served, answered with an eviction.
    LoginUser = 38,
    /// Ends the session.
    Logout = 39,
    /// Registers a session with a password.
    LoginRegister = 40,
    /// Tokens of the caller.
    GetPersonalAccessTokens = 41,
    /// Creates a token for the caller.
    CreatePersonalAccessToken = 42,
    /// Deletes a token of the caller.
    DeletePersonalAccessToken = 43,
    /// Legacy login; never served, answered with an eviction.
    LoginWithPersonalAccessToken = 44,
    /// Registers a session with a token.
    LoginRegisterWithPat = 45,
    /// Reads messages.
    PollMessages = 100,
    /// Appends messages.
    SendMessages = 101,
    /// Which node serves a partition.
    GetPartitionRoute = 105,
    /// Reads messages, may wait.
    PollMessagesDeferred = 106,
    /// Cancels a waiting read; has no reply.
    CancelDeferredRequest = 108,
    /// Reads several partitions, may wait.
    FetchMessages = 109,
    /// Reads a stored offset.
    GetConsumerOffset = 120,
    /// Stores an offset.
    StoreConsumerOffset = 121,
    /// Deletes a stored offset.
    DeleteConsumerOffset = 122,
    /// One stream.
    GetStream = 200,
    /// Every stream.
    GetStreams = 201,
    /// Creates a stream.
    CreateStream = 202,
    /// Deletes a stream.
    DeleteStream = 203,
    /// One topic.
    GetTopic = 300,
    /// Every topic of a stream.
    GetTopics = 301,
    /// Creates a topic.
    CreateTopic = 302,
    /// Deletes a topic.
    DeleteTopic = 303,
    /// Adds partitions to a topic.
    CreatePartitions = 402,
    /// Deletes the highest partitions of a topic.
    DeletePartitions = 403,
    /// Deletes the oldest sealed segments of a partition.
    DeleteSegments = 503,
    /// One consumer group.
    GetConsumerGroup = 600,
    /// Every consumer group of a topic.
    GetConsumerGroups = 601,
    /// Creates a consumer group.
    CreateConsumerGroup = 602,
    /// Deletes a consumer group.
    DeleteConsumerGroup = 603,
    /// Joins a consumer group.
    JoinConsumerGroup = 604,
    /// Leaves a consumer group.
    LeaveConsumerGroup = 605,
    /// Partitions assigned to the caller.
    SyncConsumerGroup = 606,
}

impl Code {
    /// Numbers that earlier releases used and that are never assigned again. Source: wire protocol, section 5.7.
    pub const RETIRED: &[u32] = &[14, 35, 102, 103, 104, 107, 123, 124, 204, 205, 304, 305];

    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether this is one of the two logins without a session, which are answered with a malformed-login eviction.
    pub const fn is_legacy_login(self) -> bool {
        matches!(self, Code::LoginUser | Code::LoginWithPersonalAccessToken)
    }

    /// Whether `number` was a command once.
    pub fn is_retired(number: u32) -> bool {
        Self::RETIRED.contains(&number)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_retired_ones_are_no_commands() {
        for code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), Some(*code));
            assert!(!Code::is_retired(code.number()));
        }
        assert!(Code::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        for number in Code::RETIRED {
            assert_eq!(Code::from_number(*number), None);
        }
        assert_eq!(Code::from_number(0), None);
        assert_eq!(Code::from_number(9999), None);
    }
}
