//! Status numbers of the wire. Numbers travel in the reply header, in result sections and in fetch sections.
//!
//! This table is the protocol's and as long as the protocol's. Source: wire protocol, section 6 (and section 9 for
//! the five numbers that 0.12.2 added).

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Outcome of a request as the wire writes it. Unknown numbers decode to [`Status::Error`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Status {
            /// The request succeeded.
            Ok = 0,
            $($(#[$doc])* $name = $number,)*
        }

        impl Status {
            /// Every status, in the order of the table.
            pub const ALL: &[Status] = &[Status::Ok, $(Status::$name,)*];

            /// Decodes a status number; what this build does not know is [`Status::Error`], as clients do it.
            pub fn from_number(number: u32) -> Self {
                match number {
                    0 => Status::Ok,
                    $($number => Status::$name,)*
                    _ => Status::Error,
                }
            }

            /// Name of the status in the protocol.
            pub fn name(self) -> &'static str {
                match self {
                    Status::Ok => "Ok",
                    $(Status::$name => stringify!($name),)*
                }
            }
        }
    };
}

impl Status {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether the request succeeded.
    pub const fn is_ok(self) -> bool {
        matches!(self, Status::Ok)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}

statuses! {
    /// Unspecified; also what unknown numbers decode to.
    Error = 1,
    /// Bad configuration (produced by clients only).
    InvalidConfiguration = 2,
    /// Malformed body, unknown or retired command, invalid field.
    InvalidCommand = 3,
    /// Malformed text, login body or frame.
    InvalidFormat = 4,
    /// Feature not offered here (external-group poll, unsupported code).
    FeatureUnavailable = 5,
    /// Identifier malformed or unusable.
    InvalidIdentifier = 6,
    /// Version string invalid (produced by clients only).
    InvalidVersion = 7,
    /// Link lost (produced by clients only).
    Disconnected = 8,
    /// No endpoint reachable (produced by clients only).
    CannotEstablishConnection = 9,
    /// Cannot create base directory.
    CannotCreateBaseDirectory = 10,
    /// Cannot create runtime directory.
    CannotCreateRuntimeDirectory = 11,
    /// Cannot remove runtime directory.
    CannotRemoveRuntimeDirectory = 12,
    /// Cannot create state directory.
    CannotCreateStateDirectory = 13,
    /// State file not found.
    StateFileNotFound = 14,
    /// State file corrupted.
    StateFileCorrupted = 15,
    /// Invalid state entry checksum.
    InvalidStateEntryChecksum = 16,
    /// Cannot open database.
    CannotOpenDatabase = 19,
    /// User, token or other resource without its own code is missing.
    ResourceNotFound = 20,
    /// WebSocket close failed (produced by clients only).
    CannotCloseWebSocketConnection = 21,
    /// Connection considered stale (missed heartbeats).
    StaleClient = 30,
    /// TCP failure (produced by clients only).
    TcpError = 31,
    /// QUIC failure (produced by clients only).
    QuicError = 32,
    /// Server address invalid (produced by clients only).
    InvalidServerAddress = 33,
    /// Client address invalid (produced by clients only).
    InvalidClientAddress = 34,
    /// Ip:port invalid (produced by clients only).
    InvalidIpAddress = 35,
    /// Http error.
    HttpError = 36,
    /// Invalid api url.
    InvalidApiUrl = 37,
    /// No session on this connection.
    Unauthenticated = 40,
    /// Permission denied.
    Unauthorized = 41,
    /// Wrong user, password or current password.
    InvalidCredentials = 42,
    /// User name breaks its length rule.
    InvalidUsername = 43,
    /// Password breaks its length rule.
    InvalidPassword = 44,
    /// User status value unknown.
    InvalidUserStatus = 45,
    /// User name taken.
    UserAlreadyExists = 46,
    /// User inactive.
    UserInactive = 47,
    /// This user cannot be deleted (root).
    CannotDeleteUser = 48,
    /// Permissions of this user are fixed (root).
    CannotChangePermissions = 49,
    /// Token name breaks its rule.
    InvalidPersonalAccessTokenName = 50,
    /// Token name taken; also the replay of a successful create.
    PersonalAccessTokenAlreadyExists = 51,
    /// Too many tokens for this user.
    PersonalAccessTokensLimitReached = 52,
    /// Token unknown.
    InvalidPersonalAccessToken = 53,
    /// Token expired.
    PersonalAccessTokenExpired = 54,
    /// Too many users.
    UsersLimitReached = 55,
    /// Token expiry not representable.
    InvalidPersonalAccessTokenExpiry = 56,
    /// Outcome unknown, may have been applied.
    TransientNotCommitted = 57,
    /// Not accepted, certainly not applied; any replica may be tried.
    TransientNotAccepted = 58,
    /// Applied earlier, stored reply no longer available.
    RequestAlreadyApplied = 59,
    /// Client not connected (produced by clients only).
    NotConnected = 61,
    /// Client was shut down (produced by clients only).
    ClientShutdown = 63,
    /// TLS name invalid (produced by clients only).
    InvalidTlsDomain = 64,
    /// TLS certificate path invalid (produced by clients only).
    InvalidTlsCertificatePath = 65,
    /// TLS certificate invalid (produced by clients only).
    InvalidTlsCertificate = 66,
    /// Certificate not added to the trust store (produced by clients only).
    FailedToAddCertificate = 67,
    /// Encryption key invalid.
    InvalidEncryptionKey = 70,
    /// Encryption failed.
    CannotEncryptData = 71,
    /// Decryption failed.
    CannotDecryptData = 72,
    /// Invalid jwt algorithm.
    InvalidJwtAlgorithm = 73,
    /// Invalid jwt secret.
    InvalidJwtSecret = 74,
    /// Jwt missing.
    JwtMissing = 75,
    /// Cannot generate jwt.
    CannotGenerateJwt = 76,
    /// Access token missing.
    AccessTokenMissing = 77,
    /// Invalid access token.
    InvalidAccessToken = 78,
    /// Cannot fetch jwks.
    CannotFetchJwks = 79,
    /// Size invalid; first record too large for the reader.
    InvalidSizeBytes = 80,
    /// Invalid UTF-8.
    InvalidUtf8 = 81,
    /// Number encoding invalid.
    InvalidNumberEncoding = 82,
    /// Boolean invalid.
    InvalidBooleanValue = 83,
    /// Number invalid.
    InvalidNumberValue = 84,
    /// Request number below the duplicate window, outcome unknown.
    RequestTooOld = 85,
    /// Partition incarnation is gone; never replay this request.
    HistoryUnavailable = 87,
    /// A committed lifecycle operation blocks the mutation; repeat as a new request.
    LifecycleBusy = 88,
    /// Sent to a backup replica; use the primary.
    NotPrimary = 89,
    /// Waiting-poll quota exhausted on this replica; back off, keep the route.
    DeferredPollCapacityExceeded = 90,
    /// Session handed out all its producer ids (produced by clients only).
    ProducerIdsExhausted = 91,
    /// Gap in a producer sequence, nothing written.
    ProducerSequenceOutOfOrder = 92,
    /// A newer producer epoch exists, nothing written.
    ProducerEpochFenced = 93,
    /// No producer state and the sequence is not 0, nothing written.
    ProducerUnknown = 94,
    /// Idempotent send without an explicit partition (produced by clients only).
    ProducerPartitionRequired = 95,
    /// Connection id unknown.
    ClientNotFound = 100,
    /// Connection id invalid.
    InvalidClientId = 101,
    /// Connection closed (produced by clients only).
    ConnectionClosed = 206,
    /// Header kind text invalid (produced by clients only).
    CannotParseHeaderKind = 209,
    /// Http response error.
    HttpResponseError = 300,
    /// Invalid http request.
    InvalidHttpRequest = 301,
    /// Invalid json response.
    InvalidJsonResponse = 302,
    /// Invalid bytes response.
    InvalidBytesResponse = 303,
    /// Empty response (produced by clients only).
    EmptyResponse = 304,
    /// QUIC endpoint not created (produced by clients only).
    CannotCreateEndpoint = 305,
    /// URL not parsable (produced by clients only).
    CannotParseUrl = 306,
    /// WebSocket failure (produced by clients only).
    WebSocketError = 400,
    /// WebSocket connect failed (produced by clients only).
    WebSocketConnectionError = 401,
    /// WebSocket close failed (produced by clients only).
    WebSocketCloseError = 402,
    /// WebSocket receive failed (produced by clients only).
    WebSocketReceiveError = 403,
    /// WebSocket send failed (produced by clients only).
    WebSocketSendError = 404,
    /// Cannot create streams directory.
    CannotCreateStreamsDirectory = 1000,
    /// Cannot create stream directory.
    CannotCreateStreamDirectory = 1001,
    /// Cannot create stream info.
    CannotCreateStreamInfo = 1002,
    /// Cannot update stream info.
    CannotUpdateStreamInfo = 1003,
    /// Cannot open stream info.
    CannotOpenStreamInfo = 1004,
    /// Cannot read stream info.
    CannotReadStreamInfo = 1005,
    /// Cannot create stream.
    CannotCreateStream = 1006,
    /// Cannot delete stream.
    CannotDeleteStream = 1007,
    /// Cannot delete stream directory.
    CannotDeleteStreamDirectory = 1008,
    /// Stream missing (by id).
    StreamIdNotFound = 1009,
    /// Stream missing (by name).
    StreamNameNotFound = 1010,
    /// Stream directory not found.
    StreamDirectoryNotFound = 1011,
    /// Stream name taken.
    StreamNameAlreadyExists = 1012,
    /// Stream name invalid.
    InvalidStreamName = 1013,
    /// Stream id invalid.
    InvalidStreamId = 1014,
    /// Cannot read streams.
    CannotReadStreams = 1015,
    /// Max_topic_size below segment_size.
    InvalidTopicSize = 1019,
    /// Stream limit reached.
    TooManyStreams = 1020,
    /// Cannot create topics directory.
    CannotCreateTopicsDirectory = 2000,
    /// Cannot create topic directory.
    CannotCreateTopicDirectory = 2001,
    /// Cannot create topic info.
    CannotCreateTopicInfo = 2002,
    /// Cannot update topic info.
    CannotUpdateTopicInfo = 2003,
    /// Cannot open topic info.
    CannotOpenTopicInfo = 2004,
    /// Cannot read topic info.
    CannotReadTopicInfo = 2005,
    /// Cannot create topic.
    CannotCreateTopic = 2006,
    /// Cannot delete topic.
    CannotDeleteTopic = 2007,
    /// Cannot delete topic directory.
    CannotDeleteTopicDirectory = 2008,
    /// Topic cannot be polled.
    CannotPollTopic = 2009,
    /// Topic missing (by id).
    TopicIdNotFound = 2010,
    /// Topic missing (by name).
    TopicNameNotFound = 2011,
    /// Topic name taken.
    TopicNameAlreadyExists = 2013,
    /// Topic name invalid.
    InvalidTopicName = 2014,
    /// Too many partitions in one request.
    TooManyPartitions = 2015,
    /// Topic id invalid.
    InvalidTopicId = 2016,
    /// Cannot read topics.
    CannotReadTopics = 2017,
    /// Replication factor invalid (0.12.2 option).
    InvalidReplicationFactor = 2018,
    /// Partition count invalid.
    InvalidPartitionsCount = 2019,
    /// Topic directory not found.
    TopicDirectoryNotFound = 2020,
    /// Topic limit of the stream reached.
    TooManyTopics = 2021,
    /// Partition limit of the node reached.
    PartitionsLimitReached = 2022,
    /// Topic was created with fixed partitions.
    PartitionResizeDisabled = 2023,
    /// Cannot create partition.
    CannotCreatePartition = 3000,
    /// Cannot create partitions directory.
    CannotCreatePartitionsDirectory = 3001,
    /// Cannot create partition directory.
    CannotCreatePartitionDirectory = 3002,
    /// Cannot open partition log file.
    CannotOpenPartitionLogFile = 3003,
    /// Cannot read partitions.
    CannotReadPartitions = 3004,
    /// Cannot delete partition.
    CannotDeletePartition = 3005,
    /// Cannot delete partition directory.
    CannotDeletePartitionDirectory = 3006,
    /// Partition missing.
    PartitionNotFound = 3007,
    /// Topic has no partitions.
    NoPartitions = 3008,
    /// Topic is full.
    TopicFull = 3009,
    /// Cannot delete consumer offsets directory.
    CannotDeleteConsumerOffsetsDirectory = 3010,
    /// Cannot delete consumer offset file.
    CannotDeleteConsumerOffsetFile = 3011,
    /// Cannot create consumer offsets directory.
    CannotCreateConsumerOffsetsDirectory = 3012,
    /// Partition id space of the topic used up.
    PartitionIdSpaceExhausted = 3013,
    /// Partition was recreated while the request was resolved; resolve again.
    PartitionHistoryChanged = 3014,
    /// Cannot read consumer offsets.
    CannotReadConsumerOffsets = 3020,
    /// No stored offset for this consumer.
    ConsumerOffsetNotFound = 3021,
    /// Consumer cannot be resolved.
    NotResolvedConsumer = 3022,
    /// Cannot open consumer offsets file.
    CannotOpenConsumerOffsetsFile = 3023,
    /// Offset key limit of the partition reached.
    TooManyConsumerOffsets = 3024,
    /// Segment not found.
    SegmentNotFound = 4000,
    /// Segment closed.
    SegmentClosed = 4001,
    /// Invalid segment size.
    InvalidSegmentSize = 4002,
    /// Cannot create segment log file.
    CannotCreateSegmentLogFile = 4003,
    /// Cannot create segment index file.
    CannotCreateSegmentIndexFile = 4004,
    /// Cannot create segment time index file.
    CannotCreateSegmentTimeIndexFile = 4005,
    /// Cannot save messages to segment.
    CannotSaveMessagesToSegment = 4006,
    /// Cannot save index to segment.
    CannotSaveIndexToSegment = 4007,
    /// Cannot save time index to segment.
    CannotSaveTimeIndexToSegment = 4008,
    /// Message count does not match.
    InvalidMessagesCount = 4009,
    /// Cannot append message.
    CannotAppendMessage = 4010,
    /// Cannot read message.
    CannotReadMessage = 4011,
    /// Cannot read message id.
    CannotReadMessageId = 4012,
    /// Cannot read message state.
    CannotReadMessageState = 4013,
    /// Cannot read message timestamp.
    CannotReadMessageTimestamp = 4014,
    /// Cannot read headers length.
    CannotReadHeadersLength = 4015,
    /// Cannot read headers payload.
    CannotReadHeadersPayload = 4016,
    /// User headers too large.
    TooBigUserHeaders = 4017,
    /// Header key invalid.
    InvalidHeaderKey = 4018,
    /// Header value invalid.
    InvalidHeaderValue = 4019,
    /// Cannot read message length.
    CannotReadMessageLength = 4020,
    /// Cannot read message payload.
    CannotReadMessagePayload = 4021,
    /// Payload too large.
    TooBigMessagePayload = 4022,
    /// Too many messages.
    TooManyMessages = 4023,
    /// Payload empty.
    EmptyMessagePayload = 4024,
    /// Payload length invalid.
    InvalidMessagePayloadLength = 4025,
    /// Cannot read message checksum.
    CannotReadMessageChecksum = 4026,
    /// Message checksum mismatch.
    InvalidMessageChecksum = 4027,
    /// Key or value length invalid.
    InvalidKeyValueLength = 4028,
    /// Command length wrong.
    CommandLengthError = 4029,
    /// Invalid segments count.
    InvalidSegmentsCount = 4030,
    /// Non zero offset.
    NonZeroOffset = 4031,
    /// Non zero timestamp.
    NonZeroTimestamp = 4032,
    /// Missing index.
    MissingIndex = 4033,
    /// Invalid indexes byte size.
    InvalidIndexesByteSize = 4034,
    /// Invalid indexes count.
    InvalidIndexesCount = 4035,
    /// Message bytes do not match.
    InvalidMessagesSize = 4036,
    /// Message shorter than its header.
    TooSmallMessage = 4037,
    /// Timestamp spread of the batch too large (produced by clients only).
    InvalidMessageTimestampDelta = 4038,
    /// Batch checksum mismatch.
    InvalidBatchChecksum = 4039,
    /// TLV kind unknown.
    InvalidHeaderKind = 4040,
    /// Option key unknown for the scope.
    UnsupportedOptionKey = 4041,
    /// Option value invalid.
    InvalidOptionValue = 4042,
    /// Options block over its limits.
    OptionsBlockTooLarge = 4043,
    /// Send failed: disconnected (produced by clients only).
    CannotSendMessagesDueToClientDisconnection = 4050,
    /// Background send failed (produced by clients only).
    BackgroundSendError = 4051,
    /// Background send timed out (produced by clients only).
    BackgroundSendTimeout = 4052,
    /// Background buffer full (produced by clients only).
    BackgroundSendBufferFull = 4053,
    /// Background worker gone (produced by clients only).
    BackgroundWorkerDisconnected = 4054,
    /// Background buffer overflow (produced by clients only).
    BackgroundSendBufferOverflow = 4055,
    /// Producer send failed (produced by clients only).
    ProducerSendFailed = 4056,
    /// Producer closed (produced by clients only).
    ProducerClosed = 4057,
    /// Offset outside the valid range.
    InvalidOffset = 4100,
    /// Reserved field not zero.
    InvalidReservedField = 4101,
    /// Segment size mismatch at open.
    SegmentSizeMismatchAtOpen = 4102,
    /// Option is create-only.
    OptionNotUpdatable = 4103,
    /// Option cannot be reset.
    OptionNotResettable = 4104,
    /// Option is read-only.
    ReadOnlyOption = 4105,
    /// Stream key needs a server key.
    StreamEncryptionUnavailable = 4106,
    /// Stored critical option not supported.
    UnsupportedCriticalOption = 4107,
    /// Root user cannot be changed.
    CannotModifyRootUser = 4108,
    /// Group missing (by id).
    ConsumerGroupIdNotFound = 5000,
    /// Group id invalid.
    InvalidConsumerGroupId = 5002,
    /// Group missing (by name).
    ConsumerGroupNameNotFound = 5003,
    /// Group name taken.
    ConsumerGroupNameAlreadyExists = 5004,
    /// Group name invalid.
    InvalidConsumerGroupName = 5005,
    /// Caller is not a member.
    ConsumerGroupMemberNotFound = 5006,
    /// Cannot create consumer group info.
    CannotCreateConsumerGroupInfo = 5007,
    /// Cannot delete consumer group info.
    CannotDeleteConsumerGroupInfo = 5008,
    /// Caller does not own this partition (any more).
    ConsumerGroupPartitionNotOwned = 5009,
    /// Group limit of the topic reached.
    TooManyConsumerGroups = 5010,
    /// Missing base offset retained message batch.
    MissingBaseOffsetRetainedMessageBatch = 6000,
    /// Missing last offset delta retained message batch.
    MissingLastOffsetDeltaRetainedMessageBatch = 6001,
    /// Missing max timestamp retained message batch.
    MissingMaxTimestampRetainedMessageBatch = 6002,
    /// Missing length retained message batch.
    MissingLengthRetainedMessageBatch = 6003,
    /// Missing payload retained message batch.
    MissingPayloadRetainedMessageBatch = 6004,
    /// Cannot read batch base offset.
    CannotReadBatchBaseOffset = 7000,
    /// Cannot read batch length.
    CannotReadBatchLength = 7001,
    /// Cannot read last offset delta.
    CannotReadLastOffsetDelta = 7002,
    /// Cannot read max timestamp.
    CannotReadMaxTimestamp = 7003,
    /// Cannot read batch payload.
    CannotReadBatchPayload = 7004,
    /// Connection string invalid (produced by clients only).
    InvalidConnectionString = 8000,
    /// Snapshot archive failed or too large.
    SnapshotFileCompletionFailed = 9000,
    /// Cannot serialize resource.
    CannotSerializeResource = 10000,
    /// Cannot deserialize resource.
    CannotDeserializeResource = 10001,
    /// Cannot read file.
    CannotReadFile = 10002,
    /// Cannot read file metadata.
    CannotReadFileMetadata = 10003,
    /// Cannot seek file.
    CannotSeekFile = 10004,
    /// Cannot append to file.
    CannotAppendToFile = 10005,
    /// Cannot write to file.
    CannotWriteToFile = 10006,
    /// Cannot overwrite file.
    CannotOverwriteFile = 10007,
    /// Cannot delete file.
    CannotDeleteFile = 10008,
    /// Cannot sync file.
    CannotSyncFile = 10009,
    /// Cannot read index offset.
    CannotReadIndexOffset = 10010,
    /// Cannot read index position.
    CannotReadIndexPosition = 10011,
    /// Cannot read index timestamp.
    CannotReadIndexTimestamp = 10012,
    /// Timestamp out of range.
    TimestampOutOfRange = 10013,
    /// No shard serves this partition.
    ShardNotFound = 11000,
    /// Internal shard did not answer (watchdog).
    ShardCommunicationError = 11001,
    /// Socket cannot be bound.
    CannotBindToSocket = 12000,
    /// Task timed out.
    TaskTimeout = 12001,
    /// Generic input/output failure.
    IoError = 13000,
    /// Session already bound (produced by clients only).
    AlreadyAuthenticated = 14000,
    /// Session number zero (produced by clients only).
    InvalidSession = 14001,
    /// Version gate refused (decoded from eviction 14) (produced by clients only).
    IncompatibleProtocolVersion = 14003,
    /// Bind answered for another session (produced by clients only).
    SessionMismatch = 14004,
    /// Request numbers exhausted (produced by clients only).
    RequestIdExhausted = 14005,
    /// Named operation has an unknown outcome (produced by clients only).
    OperationUncertain = 14006,
    /// Lane blocked by an unknown outcome (produced by clients only).
    LaneBlocked = 14007,
    /// Operation no longer retained (produced by clients only).
    OperationNotRetained = 14008,
    /// Partition lane blocked by an unknown outcome (produced by clients only).
    PartitionLaneBlocked = 14009,
    /// Committing read with unknown progress (produced by clients only).
    FetchProgressUncertain = 14010,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for status in Status::ALL {
            assert_eq!(Status::from_number(status.number()), *status);
            assert!(seen.insert(status.number()), "{status} stands twice");
        }
    }

    #[test]
    fn unknown_number_decodes_to_error() {
        assert_eq!(Status::from_number(999_999), Status::Error);
    }
}
