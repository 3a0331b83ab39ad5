//! Limits of resources. Source: resources, sections 2.2 and 3.

use std::ops::RangeInclusive;

/// Bytes of the name of a stream or topic.
pub const NAME_BYTES: RangeInclusive<usize> = 1..=255;
/// Bytes of a user name.
pub const USERNAME_BYTES: RangeInclusive<usize> = 3..=50;
/// Bytes of a password.
pub const PASSWORD_BYTES: RangeInclusive<usize> = 3..=100;
/// Bytes of the name of a personal access token.
pub const TOKEN_NAME_BYTES: RangeInclusive<usize> = 3..=30;
/// Default of `tokens.per_user_max`: most personal access tokens of one user.
pub const TOKENS_PER_USER_MAX_DEFAULT: u32 = 100;
/// Tokens that one op removes because their time is over.
pub const TOKENS_EXPIRED_PER_OP_MAX: usize = 256;
/// Most grants of one user, on streams and on topics together. The protocol leaves the number to the server.
pub const GRANTS_MAX: usize = 16_384;
/// Most streams on the server.
pub const STREAMS_MAX: usize = 1 << 20;
/// Most topics of one stream.
pub const TOPICS_MAX: usize = 4096;
/// Most users. The protocol leaves the number to the server.
pub const USERS_MAX: usize = 1 << 20;
/// Most partitions that one request creates or deletes.
pub const PARTITIONS_PER_REQUEST_MAX: u32 = 1000;
/// Partition numbers of one topic: 0 up to this, exclusive.
pub const PARTITION_IDS_MAX: u32 = 1_000_000;
/// Default of `metadata.clients_table_max`: most sessions the client table holds.
pub const SESSIONS_MAX_DEFAULT: u32 = 8192;
/// What `metadata.clients_table_max` may be.
pub const SESSIONS_MAX: RangeInclusive<u32> = 2..=65_536;
/// Default of `metadata.change_records_max`: most records of each class that the change log keeps.
pub const CHANGES_MAX_DEFAULT: u32 = 8192;
/// What `metadata.change_records_max` may be.
pub const CHANGES_MAX: RangeInclusive<u32> = 16..=1_048_576;
/// Most bytes of records of each class that the change log keeps. A record of a user with many grants is large.
pub const CHANGE_BYTES_MAX: usize = 16 << 20;
/// Committed replies that are kept per session. Fixed: every node must answer a repeated request alike.
pub const REPLIES_PER_SESSION: usize = 5;
/// Sessions that one server command ends at most; keeps the log entry small.
pub const SESSIONS_ENDED_PER_OP_MAX: usize = 1024;
/// Longest password hash (PHC string), in bytes. Argon2id with a 16-byte salt and a 32-byte hash takes about 100.
pub const PASSWORD_HASH_BYTES_MAX: usize = 255;
/// Streams that get other envelopes in one op; keeps the log entry small.
pub const REWRAPS_PER_OP_MAX: usize = 64;
