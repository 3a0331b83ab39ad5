//! Bytes of the published protocol crate through our codecs and back.
//!
//! Each case is written by the published encoder, read by ours and written again by ours. What comes out must be what
//! went in, so both directions agree with the published crate without a broker in between.

use bytes::{Bytes, BytesMut};
use iggy_binary_protocol::requests::system::ResourceTarget;
use iggy_binary_protocol::requests::users::login_register::BindSecret;
use iggy_binary_protocol::responses::{
    clients, consumer_groups, consumer_offsets, messages, personal_access_tokens, streams, system, topics,
    users,
};
use iggy_binary_protocol::{
    AckLevel, ClientVersionInfo, PartitionContext, WireConsumer, WireEncode, WireGlobalPermissions,
    WireIdentifier, WireName, WireOptions, WirePermissions, WirePollingStrategy, WireStreamPermissions,
    WireTopicPermissions, requests as published,
};
use laneway_wire::Reader;
use laneway_wire::reply::{self as ours, Record};
use laneway_wire::request::{self, Request};

use crate::{PARTITION_MEMBERS, VERSION, partition};

fn bytes_of(published: &impl WireEncode) -> Bytes {
    let mut bytes = BytesMut::new();
    published.encode(&mut bytes);
    bytes.freeze()
}

/// Reads with one of our types and writes it again.
macro_rules! through {
    ($bytes:expr, $read:expr, $put:expr) => {{
        let bytes: &[u8] = $bytes;
        let value = $read(bytes).unwrap_or_else(|e| panic!("{e}: {}", stringify!($read)));
        let mut again = BytesMut::new();
        $put(&value, &mut again);
        assert_eq!(again, bytes, "{} changes the bytes", stringify!($put));
    }};
}

fn check_record<'a, T: Record<'a>>(bytes: &'a [u8]) {
    through!(bytes, |bytes: &'a [u8]| T::read(&mut Reader::new(bytes)), |value: &T, out: &mut BytesMut| {
        value.put(out)
    });
}

fn check_list<'a, T: Record<'a>>(bytes: &'a [u8]) {
    through!(bytes, ours::read_list::<T>, |values: &Vec<T>, out: &mut BytesMut| values
        .iter()
        .for_each(|value| value.put(out)));
}

macro_rules! check_request {
    ($published:expr, $ours:ident) => {
        through!(
            &bytes_of(&$published),
            request::$ours::parse,
            |value: &request::$ours, out: &mut BytesMut| {
                value.encode(out).expect("what was read can be written")
            }
        )
    };
}

fn name(text: &str) -> WireName {
    WireName::new(text).expect("a valid name")
}

fn stream_id() -> WireIdentifier {
    WireIdentifier::numeric(7)
}

fn topic_id() -> WireIdentifier {
    WireIdentifier::named("topic").expect("a valid name")
}

fn consumer() -> WireConsumer {
    WireConsumer::consumer(WireIdentifier::named("reader").expect("a valid name"))
}

/// One entry: `message_expiry` = a u64.
fn options() -> WireOptions {
    let mut block = vec![2, 14, 0, 0, 0];
    block.extend_from_slice(b"message_expiry");
    block.extend_from_slice(&[12, 8, 0, 0, 0]);
    block.extend_from_slice(&604_800_000_000u64.to_le_bytes());
    WireOptions::from_slice(&block).expect("a valid block")
}

fn permissions() -> WirePermissions {
    WirePermissions {
        global: WireGlobalPermissions {
            manage_servers: true,
            read_servers: false,
            manage_users: true,
            read_users: false,
            manage_streams: true,
            read_streams: false,
            manage_topics: false,
            read_topics: true,
            poll_messages: false,
            send_messages: true,
        },
        streams: vec![WireStreamPermissions {
            stream_id: 3,
            manage_stream: true,
            read_stream: false,
            manage_topics: true,
            read_topics: false,
            poll_messages: true,
            send_messages: false,
            topics: vec![WireTopicPermissions {
                topic_id: 9,
                manage_topic: false,
                read_topic: true,
                poll_messages: false,
                send_messages: true,
            }],
        }],
    }
}

fn version_info() -> ClientVersionInfo {
    ClientVersionInfo { protocol_version: VERSION.0, sdk_name: name("rust-sdk"), sdk_version: name("0.11.1") }
}

fn stream() -> streams::StreamResponse {
    streams::StreamResponse {
        id: 7,
        created_at: 1_700_000_000_000_000,
        topics_count: 2,
        size_bytes: 12_345,
        messages_count: 67,
        name: name("stream"),
        options: options(),
        derived_options: WireOptions::empty(),
    }
}

fn topic(partitions_count: u32) -> streams::TopicHeader {
    streams::TopicHeader {
        id: 9,
        created_at: 1_700_000_000_000_001,
        partitions_count,
        size_bytes: 2_345,
        messages_count: 7,
        name: name("topic"),
        options: options(),
        derived_options: options(),
    }
}

fn user() -> users::UserResponse {
    users::UserResponse {
        id: 4,
        created_at: 5,
        status: 1,
        username: name("somebody"),
        options: WireOptions::empty(),
        derived_options: WireOptions::empty(),
    }
}

#[test]
fn replies_about_resources_are_the_same_both_ways() {
    check_record::<ours::StreamHeader>(&bytes_of(&stream()));
    check_list::<ours::StreamHeader>(&bytes_of(&streams::GetStreamsResponse {
        streams: vec![stream(), stream()],
    }));
    let details = streams::GetStreamResponse { stream: stream(), topics: vec![topic(1), topic(2)] };
    check_record::<ours::StreamDetails>(&bytes_of(&details));
    let topics = bytes_of(&topics::GetTopicsResponse { topics: vec![topic(1), topic(2)] });
    through!(&topics, ours::parse_topics, |topics: &Vec<ours::TopicHeader>, out: &mut BytesMut| {
        ours::put_topics_count(out, topics.len());
        topics.iter().for_each(|topic| topic.put(out));
    });
}

#[test]
fn partitions_of_a_topic_are_the_same_both_ways() {
    let partitions = vec![partition(0), partition(1), partition(2)];
    let bytes = bytes_of(&topics::GetTopicResponse { topic: topic(3), partitions });
    through!(
        &bytes,
        |bytes| ours::TopicDetails::read(&mut Reader::new(bytes), VERSION),
        |topic: &ours::TopicDetails, out: &mut BytesMut| topic.put(out, VERSION)
    );
    let topic = ours::TopicDetails::read(&mut Reader::new(&bytes), VERSION).expect("read above");
    assert!(topic.partitions.iter().all(|partition| partition.members == PARTITION_MEMBERS));
    assert_eq!(topic.partitions[2].current_offset.0, 2);
}

#[test]
fn replies_about_users_and_groups_are_the_same_both_ways() {
    check_list::<ours::UserHeader>(&bytes_of(&users::GetUsersResponse { users: vec![user(), user()] }));
    for permissions in [None, Some(permissions())] {
        check_record::<ours::UserDetails>(&bytes_of(&users::UserDetailsResponse {
            user: user(),
            permissions,
        }));
    }
    let token = personal_access_tokens::PersonalAccessTokenResponse { name: name("tok"), expiry_at: 11 };
    check_list::<ours::TokenRecord>(&bytes_of(&personal_access_tokens::GetPersonalAccessTokensResponse {
        tokens: vec![token.clone(), token],
    }));
    let group = consumer_groups::ConsumerGroupResponse {
        id: 1,
        partitions_count: 3,
        members_count: 1,
        name: name("group"),
    };
    check_record::<ours::GroupHeader>(&bytes_of(&group));
    let member =
        consumer_groups::ConsumerGroupMemberResponse { id: 5, partitions_count: 2, partitions: vec![0, 2] };
    let details = consumer_groups::ConsumerGroupDetailsResponse { group, members: vec![member] };
    check_record::<ours::GroupDetails>(&bytes_of(&details));
    let sync = consumer_groups::SyncConsumerGroupResponse { generation: 8, partitions: vec![1, 2] };
    check_record::<ours::GroupSync>(&bytes_of(&sync));
    let offset =
        consumer_offsets::ConsumerOffsetResponse { partition_id: 1, current_offset: 2, stored_offset: 3 };
    check_record::<ours::ConsumerOffset>(&bytes_of(&offset));
}

#[test]
fn replies_about_the_node_are_the_same_both_ways() {
    let registered = users::LoginRegisterResponse {
        user_id: 0,
        session: 7,
        server_protocol_version: VERSION.0,
        server_version: name("0.1.0"),
    };
    check_record::<ours::Registered>(&bytes_of(&registered));
    let node = system::ClusterNodeResponse {
        replica_id: 0,
        name: "node".into(),
        ip: "127.0.0.1".into(),
        tcp_port: 8090,
        quic_port: 1,
        http_port: 2,
        websocket_port: 3,
        role: 0,
        status: 0,
    };
    let cluster = system::ClusterMetadataResponse { name: "cluster".into(), nodes: vec![node] };
    check_record::<ours::ClusterMetadata>(&bytes_of(&cluster));
    let client = clients::ClientResponse {
        client_id: 1,
        user_id: u32::MAX,
        transport: 1,
        address: "127.0.0.1:1".into(),
        consumer_groups_count: 1,
    };
    check_list::<ours::ClientHeader>(&bytes_of(&clients::GetClientsResponse {
        clients: vec![client.clone()],
    }));
    let group = clients::ConsumerGroupInfoResponse { stream_id: 1, topic_id: 2, group_id: 3 };
    check_record::<ours::ClientDetails>(&bytes_of(&clients::ClientDetailsResponse {
        client,
        consumer_groups: vec![group],
    }));
    let descriptor = system::OptionDescriptor {
        key: name("message_expiry"),
        kind: 12,
        flags: 3,
        default_value: Bytes::from_static(&[255; 8]),
        description: "how long".into(),
    };
    let described = bytes_of(&system::DescribeOptionsResponse { entries: vec![descriptor] });
    through!(&described, ours::parse_option_descriptors, |value: &Vec<_>, out: &mut BytesMut| {
        ours::put_option_descriptors(out, value)
    });
    check_record::<ours::Stats>(&bytes_of(&stats()));
}

fn stats() -> system::StatsResponse {
    system::StatsResponse {
        process_id: 1,
        cpu_usage: 0.5,
        total_cpu_usage: 1.5,
        memory_usage: 2,
        total_memory: 3,
        available_memory: 4,
        run_time: 5,
        start_time: 6,
        read_bytes: 7,
        written_bytes: 8,
        messages_size_bytes: 9,
        streams_count: 10,
        topics_count: 11,
        partitions_count: 12,
        segments_count: 13,
        messages_count: 14,
        clients_count: 15,
        consumer_groups_count: 16,
        hostname: "host".into(),
        os_name: "os".into(),
        os_version: "1".into(),
        kernel_version: "2".into(),
        iggy_server_version: "0.1.0".into(),
        iggy_server_semver: Some(VERSION.0),
        cache_metrics: vec![system::get_stats::CacheMetricEntry {
            stream_id: 1,
            topic_id: 2,
            partition_id: 3,
            hits: 4,
            misses: 5,
            hit_ratio: 0.25,
        }],
        threads_count: 17,
        free_disk_space: 18,
        total_disk_space: 19,
        open_files_count: 20,
        open_files_limit: 21,
    }
}

#[test]
fn replies_about_messages_are_the_same_both_ways() {
    let context = PartitionContext { incarnation: 11, owner_generation: 12, metadata_op: 13 };
    let confirmation = messages::SendMessagesConfirmationResponse {
        stream_id: 1,
        topic_id: 2,
        partition_id: 3,
        base_offset: 4,
    };
    let sent = bytes_of(&messages::SendMessagesResponse { confirmations: vec![confirmation] });
    through!(&sent, ours::parse_confirmations, |value: &Vec<_>, out: &mut BytesMut| {
        ours::put_confirmations(out, value)
    });
    let route = messages::PartitionRouteResponse {
        incarnation: 11,
        metadata_op: 13,
        view: 1,
        partitions_count: 3,
        primary_replica: 0,
    };
    check_record::<ours::PartitionRoute>(&bytes_of(&route));
    let head = messages::PollMessagesResponseHeader {
        partition_id: 1,
        current_offset: 99,
        messages_count: 0,
        context,
    };
    check_record::<ours::PollHead>(&bytes_of(&head));
}

#[test]
fn requests_about_resources_are_the_same_both_ways() {
    use published::{partitions, segments, streams, topics};
    check_request!(streams::GetStreamRequest { stream_id: stream_id() }, GetStream);
    check_request!(streams::CreateStreamRequest { name: name("s"), options: options() }, CreateStream);
    check_request!(streams::DeleteStreamRequest { stream_id: topic_id() }, DeleteStream);
    check_request!(topics::GetTopicRequest { stream_id: stream_id(), topic_id: topic_id() }, GetTopic);
    check_request!(topics::GetTopicsRequest { stream_id: stream_id() }, GetTopics);
    check_request!(
        topics::CreateTopicRequest {
            stream_id: stream_id(),
            partitions_count: 3,
            name: name("t"),
            options: options()
        },
        CreateTopic
    );
    check_request!(topics::DeleteTopicRequest { stream_id: stream_id(), topic_id: topic_id() }, DeleteTopic);
    check_request!(
        partitions::CreatePartitionsRequest {
            stream_id: stream_id(),
            topic_id: topic_id(),
            partitions_count: 3
        },
        CreatePartitions
    );
    check_request!(
        partitions::DeletePartitionsRequest {
            stream_id: stream_id(),
            topic_id: topic_id(),
            partitions_count: 3
        },
        DeletePartitions
    );
    check_request!(
        segments::DeleteSegmentsRequest {
            stream_id: stream_id(),
            topic_id: topic_id(),
            partition_id: 1,
            segments_count: 2
        },
        DeleteSegments
    );
    let target = ResourceTarget::Topic { stream_id: stream_id(), topic_id: topic_id() };
    let reset = vec![name("max_topic_size")].try_into().expect("a valid key");
    check_request!(
        published::system::UpdateResourceRequest { target, reset, options: options() },
        UpdateResource
    );
}

#[test]
fn requests_about_sessions_are_the_same_both_ways() {
    let login = published::users::LoginRegisterRequest {
        version_info: version_info(),
        bind_secret: BindSecret::new(Box::new([7; 32])),
        username: name("iggy"),
        password: "iggy".to_owned().into(),
        client_context: None,
    };
    check_request!(login, LoginRegister);
    let login = published::users::LoginRegisterWithPatRequest {
        version_info: version_info(),
        bind_secret: BindSecret::new(Box::new([7; 32])),
        token: "token".to_owned().into(),
        client_context: None,
    };
    check_request!(login, LoginRegisterWithPat);
    let user = || WireIdentifier::numeric(4);
    check_request!(published::users::GetUserRequest { user_id: user() }, GetUser);
    check_request!(published::users::DeleteUserRequest { user_id: user() }, DeleteUser);
    for permissions in [None, Some(permissions())] {
        let create = published::users::CreateUserRequest {
            username: name("somebody"),
            password: "secret".into(),
            status: 1,
            permissions: permissions.clone(),
            options: options(),
        };
        check_request!(create, CreateUser);
        check_request!(
            published::users::UpdatePermissionsRequest { user_id: user(), permissions },
            UpdatePermissions
        );
    }
    let change = published::users::ChangePasswordRequest {
        user_id: user(),
        current_password: "old".into(),
        new_password: "new".into(),
    };
    check_request!(change, ChangePassword);
}

#[test]
fn requests_about_messages_are_the_same_both_ways() {
    use published::{consumer_groups, consumer_offsets, messages};
    for partition_id in [None, Some(3)] {
        let poll = messages::PollMessagesRequest {
            consumer: consumer(),
            stream_id: stream_id(),
            topic_id: topic_id(),
            partition_id,
            strategy: WirePollingStrategy::offset(17),
            count: 10,
            auto_commit: true,
        };
        check_request!(poll, PollMessages);
        let get = consumer_offsets::GetConsumerOffsetRequest {
            consumer: consumer(),
            stream_id: stream_id(),
            topic_id: topic_id(),
            partition_id,
        };
        check_request!(get, GetConsumerOffset);
        let store = consumer_offsets::StoreConsumerOffsetRequest {
            consumer: consumer(),
            stream_id: stream_id(),
            topic_id: topic_id(),
            partition_id,
            offset: 17,
            ack: AckLevel::Quorum,
        };
        check_request!(store, StoreConsumerOffset);
        let delete = consumer_offsets::DeleteConsumerOffsetRequest {
            consumer: consumer(),
            stream_id: stream_id(),
            topic_id: topic_id(),
            partition_id,
            ack: AckLevel::Quorum,
        };
        check_request!(delete, DeleteConsumerOffset);
    }
    let poll = messages::PollMessagesRequest {
        consumer: WireConsumer::consumer_group(stream_id()),
        stream_id: stream_id(),
        topic_id: topic_id(),
        partition_id: Some(1),
        strategy: WirePollingStrategy::next(),
        count: 10,
        auto_commit: false,
    };
    let deferred = messages::DeferredPollMessagesRequest {
        poll,
        wait_us: 5_000_000,
        min_count: 3,
        max_bytes: 1 << 20,
        request_timeout_us: 15_000_000,
    };
    check_request!(deferred, DeferredPoll);
    let target = |partition_id| messages::FetchMessagesTarget {
        partition_id,
        strategy: WirePollingStrategy::offset(41),
        max_bytes: 1 << 19,
        incarnation: 11,
        owner_generation: 0,
    };
    let fetch = messages::FetchMessagesRequest {
        consumer: consumer(),
        stream_id: stream_id(),
        topic_id: topic_id(),
        wait_us: 5_000_000,
        request_timeout_us: 6_000_000,
        min_count: 1,
        count: 1_000,
        max_bytes: 1 << 20,
        auto_commit: false,
        targets: vec![target(1), target(3)],
    };
    check_request!(fetch, FetchMessages);
    let route =
        messages::GetPartitionRouteRequest { stream_id: stream_id(), topic_id: topic_id(), partition_id: 2 };
    check_request!(route, GetPartitionRoute);
    let create = consumer_groups::CreateConsumerGroupRequest {
        stream_id: stream_id(),
        topic_id: topic_id(),
        name: name("group"),
    };
    check_request!(create, CreateConsumerGroup);
}

#[test]
fn published_batches_verify_and_build_the_same() {
    use iggy_binary_protocol::requests::messages::{RawMessage, SendMessagesEncoder};
    let headers = [2, 1, 0, 0, 0, b'k', 2, 1, 0, 0, 0, b'v'];
    let messages = [
        RawMessage {
            id: 1,
            origin_timestamp: 1_700_000_000_000_000,
            headers: Some(&headers),
            payload: b"hello",
        },
        RawMessage { id: 2, origin_timestamp: 1_700_000_000_000_250, headers: None, payload: b"hi" },
    ];
    let mut body = BytesMut::new();
    let partitioning = iggy_binary_protocol::WirePartitioning::PartitionId(2);
    SendMessagesEncoder::encode(&mut body, &stream_id(), &topic_id(), &partitioning, &messages)
        .expect("a valid batch");
    let send = request::SendMessages::parse(&body).expect("the metadata is read");
    let batch = &body[send.batch_at..];
    laneway_wire::batch::verify_producer_batch(batch, send.messages_count).expect("the batch verifies");
    let mut builder = laneway_wire::batch::BatchBuilder::new();
    for message in &messages {
        let time = laneway_wire::Micros(message.origin_timestamp);
        builder.push(message.id, time, message.payload, message.headers.unwrap_or_default()).expect("valid");
    }
    assert_eq!(builder.finish().expect("a batch"), batch);
}

#[test]
fn declared_operations_have_the_published_numbers() {
    use bytemuck::checked::try_from_bytes;
    for byte in 0..=u8::MAX {
        let ours = laneway_wire::Operation::from_byte(byte);
        let published = try_from_bytes::<iggy_binary_protocol::Operation>(std::slice::from_ref(&byte));
        assert!(ours.is_none() || published.is_ok(), "operation {byte} is unknown to the published crate");
    }
}

#[test]
fn statuses_have_the_published_numbers_and_names() {
    use laneway_wire::Status;
    // What only the newer release knows is decoded as the general error by the older one.
    let newer = |status: Status| {
        VERSION == laneway_wire::ProtocolVersion::V0_12_1 && (91..=95).contains(&status.number())
    };
    for status in Status::ALL.iter().filter(|status| !status.is_ok() && !newer(**status)) {
        let published = iggy_common::IggyError::from_code(status.number());
        assert_eq!(
            published.as_code(),
            status.number(),
            "{} is unknown to the published crate",
            status.name()
        );
        let snake: &str = (&published).into();
        assert_eq!(snake.replace('_', ""), status.name().to_lowercase());
    }
}
