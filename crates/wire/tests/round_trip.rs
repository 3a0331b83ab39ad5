//! Any value that a client or the broker can make comes back from its bytes.

use std::collections::BTreeMap;

use bytes::BytesMut;
use laneway_wire::options::{Block, OptionMap, OptionValue, Options};
use laneway_wire::permissions::{
    GlobalPermissions, Permissions, StreamFlags, StreamPermissions, TopicPermissions,
};
use laneway_wire::primitive::{AckLevel, PartitionContext, Secret};
use laneway_wire::reply::*;
use laneway_wire::request::*;
use laneway_wire::*;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

/// A proptest strategy; the protocol has a `Strategy` of its own.
trait Any<T>: proptest::strategy::Strategy<Value = T> {}
impl<T, S: proptest::strategy::Strategy<Value = T>> Any<T> for S {}

fn name() -> impl Any<String> {
    prop_oneof![Just("a".to_owned()), "[a-z0-9 _-]{1,255}", "\\PC{1,60}"]
        .prop_filter("a name", |name| (1..=255).contains(&name.len()))
}

fn encoded(request: &impl Request) -> BytesMut {
    let mut out = BytesMut::new();
    request.encode(&mut out).expect("valid");
    out
}

fn put(record: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    record(&mut out);
    out
}

fn identifier<'a>(numeric: bool, number: u32, name: &'a str) -> Identifier<'a> {
    if numeric { Identifier::Numeric(number) } else { Identifier::Name(name) }
}

fn option_value() -> impl Any<OptionValue> {
    prop_oneof![
        any::<bool>().prop_map(OptionValue::from),
        any::<u8>().prop_map(OptionValue::from),
        any::<u32>().prop_map(OptionValue::from),
        any::<u64>().prop_map(OptionValue::from),
        any::<i128>().prop_map(OptionValue::from),
        any::<f64>().prop_map(OptionValue::from),
        name().prop_map(|name| OptionValue::from(name.as_str())),
        (1u8.., prop::collection::vec(any::<u8>(), 1..=255))
            .prop_map(|(kind, bytes)| OptionValue { kind, bytes: bytes.into() }),
    ]
}

fn options() -> impl Any<OptionMap> {
    prop::collection::btree_map(name(), option_value(), 0..12).prop_map(OptionMap)
}

fn permissions() -> impl Any<Permissions> {
    let topic = any::<[bool; 4]>().prop_map(|[manage_topic, read_topic, poll_messages, send_messages]| {
        TopicPermissions { manage_topic, read_topic, poll_messages, send_messages }
    });
    let topics = prop::collection::btree_map(any::<u32>().prop_map(TopicId), topic, 0..5);
    let stream = (any::<[bool; 2]>(), topics).prop_map(|([read_stream, send_messages], topics)| {
        StreamPermissions { flags: StreamFlags { read_stream, send_messages, ..Default::default() }, topics }
    });
    let streams = prop::collection::btree_map(any::<u32>().prop_map(StreamId), stream, 0..5);
    (any::<[bool; 2]>(), streams).prop_map(|([manage_users, read_topics], streams)| Permissions {
        global: GlobalPermissions { manage_users, read_topics, ..Default::default() },
        streams,
    })
}

fn strategy() -> impl Any<laneway_wire::Strategy> {
    (1u8..=5, any::<u64>()).prop_map(|(kind, value)| {
        let value = if kind <= 2 { value } else { 0 };
        laneway_wire::Strategy::from_parts(kind, value).expect("declared")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn headers(words in prop::collection::vec(any::<u64>(), 12), bytes: [u8; 3], size: u32) {
        let header = RequestHeader {
            size,
            command: bytes[0],
            client: ClientId(u128::from(words[0]) << 64 | u128::from(words[1])),
            request_checksum: u128::from(words[2]) << 64 | u128::from(words[3]),
            timestamp: words[4],
            request: RequestNumber(words[5]),
            operation: bytes[1],
            session: SessionEpoch(words[6]),
            user_id: words[7] as u32,
            code: words[8] as u32,
            partition_incarnation: Incarnation(words[9]),
            owner_generation: OwnerGeneration(words[10]),
            minimum_metadata_op: Op(words[11]),
        };
        prop_assert_eq!(RequestHeader::parse(&header.encode()), header);
        let reply = ReplyHeader {
            op: Op(words[4]),
            commit: Op(words[6]),
            timestamp: words[7],
            status: words[8] as u32,
            marker: bytes[2],
            ..ReplyHeader::to(&header, 0)
        };
        prop_assert_eq!(ReplyHeader::parse(&reply.encode()), reply);
    }

    #[test]
    fn resources(numeric: bool, number: u32, name in name(), other in name(), count: u32, options in options()) {
        let stream = identifier(numeric, number, &name);
        let topic = identifier(!numeric, count, &other);
        let block = options.encode().expect("within the limits");
        let options = Options::parse(&block).expect("valid");
        let create = CreateTopic { stream, partitions_count: count, name: &other, options };
        let body = encoded(&create);
        prop_assert_eq!(CreateTopic::parse(&body), Ok(create));
        let segments = DeleteSegments { stream, topic, partition: PartitionId(number), segments_count: count };
        let body = encoded(&segments);
        prop_assert_eq!(DeleteSegments::parse(&body), Ok(segments));
        let group = SyncConsumerGroup { stream, topic, group: Identifier::Name(&name) };
        let body = encoded(&group);
        prop_assert_eq!(SyncConsumerGroup::parse(&body), Ok(group));
    }

    #[test]
    fn offsets(kind in 1u8..=3, number: u32, name in name(), partition: Option<u32>, offset: u64, quorum: bool) {
        let kind = ConsumerKind::from_byte(kind).expect("declared");
        let store = StoreConsumerOffset {
            consumer: Consumer { kind, id: Identifier::Name(&name) },
            stream: Identifier::Numeric(number),
            topic: Identifier::Name(&name),
            partition: partition.map(PartitionId),
            offset: Offset(offset),
            ack: if quorum { AckLevel::Quorum } else { AckLevel::NoAck },
        };
        let body = encoded(&store);
        prop_assert_eq!(StoreConsumerOffset::parse(&body), Ok(store));
    }

    #[test]
    fn users(name in name(), password in prop::collection::vec(any::<u8>(), 0..=255), status: u8, permissions in prop::option::of(permissions())) {
        let create = CreateUser {
            username: &name,
            password: Secret(&password),
            status: UserStatus::from_byte(status),
            permissions: permissions.clone(),
            options: Options::EMPTY,
        };
        let body = encoded(&create);
        prop_assert_eq!(CreateUser::parse(&body), Ok(create));
        let header = UserHeader {
            id: UserId(3),
            created_at: Micros(4),
            status: UserStatus::from_byte(status),
            username: &name,
            explicit: Block::EMPTY,
            derived: Block::EMPTY,
        };
        let details = UserDetails { header, permissions };
        let body = put(|out| details.put(out));
        prop_assert!(read_optional::<UserDetails<'_>>(&body[..body.len() - 1]).is_err(), "no byte is optional");
        prop_assert_eq!(read_optional::<UserDetails<'_>>(&body), Ok(Some(details)));
    }

    #[test]
    fn logins(name in name(), secret in prop::collection::vec(any::<u8>(), 0..=255), bind: [u8; 32], protocol: u32) {
        let version = VersionPrefix { protocol: ProtocolVersion(protocol), sdk_name: &name, sdk_version: "1" };
        let bind_secret = BindSecret(bind);
        let password = LoginRegister { version, bind_secret, username: &name, password: Secret(&secret), context: b"" };
        let body = encoded(&password);
        prop_assert_eq!(Login::parse(&body), Ok(Login::Password(password)));
        // Without a context the token form is never taken for the password form, whatever the token.
        let token = LoginRegisterWithPat { version, bind_secret, token: Secret(&secret), context: b"" };
        let body = encoded(&token);
        prop_assert_eq!(Login::parse(&body), Ok(Login::Token(token)));
        let longer = [&encoded(&password)[..], &[0]].concat();
        prop_assert!(Login::parse(&longer).is_err(), "trailing bytes are refused");
        prop_assert_eq!(VersionPrefix::parse(&longer), Ok(version));
    }

    #[test]
    fn polls(strategy in strategy(), count in 1u32.., wait_us in 0..=WAIT_US_MAX, name in name(), partition: Option<u32>) {
        let poll = PollMessages {
            consumer: Consumer { kind: ConsumerKind::Group, id: Identifier::Name(&name) },
            stream: Identifier::Numeric(1),
            topic: Identifier::Name(&name),
            partition: partition.map(PartitionId),
            strategy,
            count,
            auto_commit: true,
        };
        let body = encoded(&poll);
        prop_assert_eq!(PollMessages::parse(&body), Ok(poll.clone()));
        let deferred = DeferredPoll {
            poll,
            wait_us,
            min_count: count,
            max_bytes: POLL_BYTES_MIN,
            request_timeout_us: wait_us + REPLY_MARGIN_US,
        };
        let body = encoded(&deferred);
        prop_assert_eq!(DeferredPoll::parse(&body), Ok(deferred.clone()));
        // Each field one step out of its range is refused, by the reader too.
        let body = encoded(&deferred);
        let at = body.len() - 24;
        for (place, bytes, field) in [
            (at, (WAIT_US_MAX + 1).to_le_bytes().to_vec(), "wait_us"),
            (at + 8, 0u32.to_le_bytes().to_vec(), "min_count"),
            (at + 12, (POLL_BYTES_MIN - 1).to_le_bytes().to_vec(), "max_bytes"),
            (at + 16, (TIMEOUT_US_MAX + 1).to_le_bytes().to_vec(), "request_timeout_us"),
            (at + 16, 0u64.to_le_bytes().to_vec(), "request_timeout_us"),
        ] {
            let mut bad = body.to_vec();
            bad[place..place + bytes.len()].copy_from_slice(&bytes);
            prop_assert_eq!(DeferredPoll::parse(&bad), Err(DecodeError::Range { field }));
        }
    }

    #[test]
    fn fetches(partitions in prop::collection::btree_set(any::<u32>(), 1..40).prop_map(|set| set.into_iter().collect::<Vec<_>>()).prop_shuffle(), next: bool, offset: u64) {
        let targets: Vec<FetchTarget> = partitions
            .iter()
            .map(|partition| FetchTarget {
                partition: PartitionId(*partition),
                strategy: if next { laneway_wire::Strategy::Next } else { laneway_wire::Strategy::Offset(Offset(offset)) },
                max_bytes: POLL_BYTES_MIN,
                incarnation: Incarnation(offset),
                owner_generation: OwnerGeneration(1),
            })
            .collect();
        let fetch = FetchMessages {
            consumer: Consumer { kind: ConsumerKind::Consumer, id: Identifier::Numeric(1) },
            stream: Identifier::Numeric(1),
            topic: Identifier::Numeric(1),
            wait_us: 0,
            request_timeout_us: REPLY_MARGIN_US,
            min_count: 1,
            count: 1,
            max_bytes: POLL_BYTES_MIN,
            auto_commit: next,
            targets: FetchTargets::Listed(&targets),
        };
        let body = encoded(&fetch);
        prop_assert_eq!(FetchMessages::parse(&body), Ok(fetch.clone()));
        let twice = [&targets[..], &targets[..1]].concat();
        let twice = FetchMessages { targets: FetchTargets::Listed(&twice), ..fetch };
        let mut out = BytesMut::new();
        prop_assert_eq!(twice.encode(&mut out), Err(EncodeError::Duplicate { field: "target partition" }));
        // The same body made by hand: one more target, the first again.
        let mut bad = body.to_vec();
        let table = body.len() - targets.len() * 33;
        bad[table - 4..table].copy_from_slice(&(targets.len() as u32 + 1).to_le_bytes());
        bad.extend_from_slice(&body[table..table + 33]);
        prop_assert_eq!(FetchMessages::parse(&bad), Err(DecodeError::Duplicate { field: "target partition" }));
    }

    #[test]
    fn topics(name in name(), explicit in options(), derived in options(), partitions in prop::collection::vec((any::<[u64; 6]>(), prop::collection::vec(any::<u8>(), 0..=32)), 0..6)) {
        let header = TopicHeader {
            id: TopicId(7),
            created_at: Micros(8),
            partitions_count: partitions.len() as u32,
            size_bytes: 9,
            messages_count: 10,
            name: &name,
            explicit: Block::Map(&explicit),
            derived: Block::Map(&derived),
        };
        let records = |lists: bool| -> Vec<PartitionRecord<'_>> {
            partitions
                .iter()
                .map(|(words, replicas)| PartitionRecord {
                    id: PartitionId(words[0] as u32),
                    created_at: Micros(words[1]),
                    segments_count: words[2] as u32,
                    current_offset: Offset(words[3]),
                    size_bytes: words[4],
                    messages_count: words[5],
                    context: PartitionContext { incarnation: Incarnation(words[0]), ..PartitionContext::default() },
                    members: if lists { replicas } else { &[] },
                    in_sync: &[],
                })
                .collect()
        };
        for (version, lists) in [(ProtocolVersion::V0_12_1, false), (ProtocolVersion::V0_12_2, true)] {
            let body = put(|out| TopicDetails { header, partitions: records(true) }.put(out, version));
            let expected = TopicDetails { header, partitions: records(lists) };
            prop_assert_eq!(TopicDetails::parse_optional(&body, version), Ok(Some(expected)));
        }
    }

    #[test]
    fn option_blocks(options in options(), key in name()) {
        let block = options.encode().expect("within the limits");
        let parsed = Options::parse(&block).expect("valid");
        prop_assert_eq!(parsed.to_map(), options.clone());
        prop_assert_eq!(parsed.len(), options.0.len());
        prop_assert_eq!(parsed.get(&key), options.get(&key));
        // The same block in another order is valid, a key twice is not.
        if let Some((first, value)) = options.0.iter().next() {
            let again = OptionMap(BTreeMap::from([(first.clone(), value.clone())])).encode().expect("one entry");
            let twice = [&block[..], &again[..]].concat();
            prop_assert_eq!(Options::parse(&twice), Err(DecodeError::Duplicate { field: "option key" }));
            let rotated = [&block[again.len()..], &again[..]].concat();
            prop_assert_eq!(Options::parse(&rotated).expect("any order").to_map(), options);
        }
    }
}

#[test]
fn option_blocks_stop_at_their_limits() {
    let map =
        |entries: usize| OptionMap((0..entries).map(|at| (format!("key-{at:05}"), true.into())).collect());
    assert_eq!(
        Options::parse(&map(1024).encode().expect("at the limit")).map(|options| options.len()),
        Ok(1024)
    );
    assert!(map(1025).encode().is_err());
    let entry = map(1).encode().expect("one entry");
    let many: Vec<u8> = (0..1025).flat_map(|_| entry.to_vec()).collect();
    let error = Options::parse(&many).expect_err("one entry too many");
    assert_eq!(error.status(), Status::OptionsBlockTooLarge);
    let long: OptionMap = OptionMap(
        (0..200)
            .map(|at| (format!("{at:0255}"), OptionValue { kind: 1, bytes: vec![1; 255].into() }))
            .collect(),
    );
    assert!(matches!(long.encode(), Err(EncodeError::TooLong { field: "options", .. })));
    assert!(matches!(Options::parse(&vec![0; 100_001]), Err(DecodeError::OptionsTooLarge { .. })));
}

#[test]
fn names_out_of_their_range_are_errors_and_not_panics() {
    let mut out = BytesMut::new();
    let long = "x".repeat(256);
    let create = CreateStream { name: &long, options: Options::EMPTY };
    assert_eq!(create.encode(&mut out), Err(EncodeError::TooLong { field: "name", len: 256, max: 255 }));
    let get = GetStream { stream: Identifier::Name("") };
    assert_eq!(get.encode(&mut out), Err(EncodeError::Empty { field: "stream" }));
    assert_eq!(GetStream::parse(&[2, 0]), Err(DecodeError::Empty { field: "stream" }));
    assert_eq!(GetStream::parse(&[1, 3, 0, 0, 0]), Err(DecodeError::Range { field: "stream" }));
    assert_eq!(GetStream::parse(&[3, 1, 0]), Err(DecodeError::Kind { field: "stream", kind: 3 }));
    assert_eq!(GetStream::parse(&[2, 1, 0xff]), Err(DecodeError::Utf8 { field: "stream" }));
}

#[test]
fn headers_that_cannot_be_answered_close_and_the_others_are_refused() {
    let valid = RequestHeader {
        session: SessionEpoch(1),
        request: RequestNumber(1),
        ..RequestHeader::new(Operation::CreateStream, ClientId(1), 0)
    };
    assert_eq!(valid.validate(), Ok(Operation::CreateStream));
    let answered = |header: RequestHeader| header.validate().expect_err("refused").status();
    for operation in [129, 131, 163, 250] {
        assert_eq!(
            answered(RequestHeader { operation, ..valid }),
            Some(Status::InvalidCommand),
            "{operation}"
        );
    }
    for operation in [64, 75, 166] {
        assert_eq!(
            answered(RequestHeader { operation, ..valid }),
            Some(Status::InvalidCommand),
            "{operation}"
        );
    }
    for broken in [
        RequestHeader { command: 8, ..valid },
        RequestHeader { client: ClientId(0), ..valid },
        RequestHeader { operation: 0, ..valid },
        RequestHeader { session: SessionEpoch(0), ..valid },
        RequestHeader { request: RequestNumber(0), ..valid },
        RequestHeader { operation: Operation::Register.byte(), ..valid },
        RequestHeader { size: 255, ..valid },
    ] {
        assert_eq!(answered(broken), None, "{broken:?}");
    }
    let read = RequestHeader::new(Operation::NonReplicated, ClientId(1), 0);
    assert_eq!(read.validate(), Ok(Operation::NonReplicated), "a read needs no session");
}

#[test]
fn clients_trust_only_replies_that_echo_their_request() {
    let request = RequestHeader {
        request_checksum: 5,
        session: SessionEpoch(1),
        request: RequestNumber(9),
        partition_incarnation: Incarnation(3),
        ..RequestHeader::new(Operation::CreateTopic, ClientId(1), 0)
    };
    let reply = ReplyHeader::committed(&request, Op(4), 0);
    assert_eq!(reply.validate_for(&request), Ok(()));
    let resolved = ReplyHeader { operation: Operation::CreateTopicWithAssignments.byte(), ..reply };
    assert_eq!(resolved.validate_for(&request), Ok(()));
    for broken in [
        ReplyHeader { request: RequestNumber(8), ..reply },
        ReplyHeader { client: ClientId(2), ..reply },
        ReplyHeader { request_checksum: 6, ..reply },
        ReplyHeader { partition_incarnation: Incarnation(4), ..reply },
        ReplyHeader { operation: Operation::DeleteTopic.byte(), ..reply },
        ReplyHeader { operation: 129, ..reply },
        ReplyHeader { commit: Op(5), ..reply },
        ReplyHeader { op: Op(0), commit: Op(0), ..reply },
        ReplyHeader { command: 5, ..reply },
    ] {
        assert!(broken.validate_for(&request).is_err(), "{broken:?}");
    }
    let unproven = ReplyHeader { marker: 0, client: ClientId(2), op: Op(0), ..reply };
    assert_eq!(unproven.validate_for(&request), Ok(()), "without the marker nothing but the number counts");
}
