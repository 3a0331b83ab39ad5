//! One frame or more of everything that exists: every request, every reply in both protocol versions where they differ,
//! refusals, evictions and records.

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use laneway_wire::batch::{self, BatchBuilder, ProducerSection};
use laneway_wire::header::EvictionReason;
use laneway_wire::options::{Block, OptionMap, Options, Value, put_user_header};
use laneway_wire::permissions::{
    GlobalPermissions, Permissions, StreamFlags, StreamPermissions, TopicPermissions,
};
use laneway_wire::primitive::{AckLevel, PartitionContext, Secret};
use laneway_wire::reply::*;
use laneway_wire::request::*;
use laneway_wire::*;

use super::recode::{self, Recoded};

/// How a sample is decoded.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Request,
    Reply(Code, ProtocolVersion),
    Eviction,
    Record,
    RequestBody(Code),
    PartitionRecord,
    UserHeaders,
}

/// A golden file: its name, its bytes as this build encodes them, and how to decode them.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub bytes: Vec<u8>,
    pub kind: Kind,
}

impl Sample {
    /// Decodes `bytes` as this sample is decoded, and encodes the outcome.
    pub fn recode(&self, bytes: &[u8]) -> Recoded {
        match self.kind {
            Kind::Request => recode::request_frame(bytes),
            Kind::Reply(code, version) => recode::reply_frame(code, version, bytes),
            Kind::Eviction => recode::eviction(bytes),
            Kind::Record => recode::record(bytes),
            Kind::RequestBody(code) => recode::request_body(code, bytes),
            Kind::PartitionRecord => recode::partition_record(bytes),
            Kind::UserHeaders => recode::user_headers(bytes),
        }
    }
}

pub const CLIENT: ClientId = ClientId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const CHECKSUM: u128 = 0xa1a2_a3a4_a5a6_a7a8_b1b2_b3b4_b5b6_b7b8;
const ORIGIN: u64 = 1_700_000_000_000_000;
const V1: ProtocolVersion = ProtocolVersion::V0_12_1;
const V2: ProtocolVersion = ProtocolVersion::V0_12_2;

/// The header that a client of session 7 makes for its request 5.
fn header(code: Code) -> RequestHeader {
    let operation = Operation::for_code(code);
    let mut header = RequestHeader::new(operation, CLIENT, 0);
    header.session = SessionEpoch(7);
    header.request = RequestNumber(5);
    match operation {
        Operation::Register => {
            header.session = SessionEpoch(0);
            header.request = RequestNumber(0);
            header.request_checksum = CHECKSUM;
        }
        Operation::NonReplicated => header.minimum_metadata_op = Op(9),
        _ if operation.is_partition() => {
            header.partition_incarnation = Incarnation(11);
            header.owner_generation = OwnerGeneration(4);
            header.minimum_metadata_op = Op(9);
        }
        _ => header.request_checksum = CHECKSUM,
    }
    if operation == Operation::NonReplicated {
        header.code = code.number();
    }
    header
}

fn request<R: Request>(request: &R) -> Sample {
    named_request("", request)
}

fn named_request<R: Request>(case: &str, request: &R) -> Sample {
    let bytes = encode_frame(&header(R::CODE), request).expect("samples are valid").to_vec();
    Sample { name: name("request", R::CODE, case), bytes, kind: Kind::Request }
}

use laneway_wire::request::encode_frame;

fn name(direction: &str, code: Code, case: &str) -> String {
    let mut name = format!("{:03}-{direction}-{}", code.number(), code.name());
    if !case.is_empty() {
        name.push('-');
        name.push_str(case);
    }
    name
}

fn reply(code: Code, case: &str, version: ProtocolVersion, payload: impl FnOnce(&mut BytesMut)) -> Sample {
    let request = header(code);
    let operation = Operation::for_code(code);
    let mut header = ReplyHeader { commit: Op(9), ..ReplyHeader::to(&request, 0) };
    if operation.is_replicated() {
        header = ReplyHeader::committed(&request, Op(12), 0);
    }
    let bytes = laneway_wire::reply::encode_frame(&header, |out| {
        if operation.is_result_framed() {
            put_success(out);
        }
        payload(out);
    });
    Sample { name: name("reply", code, case), bytes: bytes.to_vec(), kind: Kind::Reply(code, version) }
}

fn numeric(id: u32) -> Identifier<'static> {
    Identifier::Numeric(id)
}

fn named(name: &str) -> Identifier<'_> {
    Identifier::Name(name)
}

fn version(protocol: ProtocolVersion) -> VersionPrefix<'static> {
    VersionPrefix { protocol, sdk_name: "rust-sdk", sdk_version: "0.11.1-edge.6" }
}

fn secret() -> BindSecret {
    BindSecret(std::array::from_fn(|at| at as u8))
}

fn permissions() -> Permissions {
    let topic = TopicPermissions { manage_topic: true, send_messages: true, ..TopicPermissions::default() };
    let flags = StreamFlags { read_stream: true, poll_messages: true, ..StreamFlags::default() };
    let topics = BTreeMap::from([(TopicId(0), topic), (TopicId(3), TopicPermissions::default())]);
    let streams = BTreeMap::from([
        (StreamId(1), StreamPermissions { flags, topics }),
        (StreamId(8), StreamPermissions::default()),
    ]);
    let global =
        GlobalPermissions { read_servers: true, manage_topics: true, ..GlobalPermissions::default() };
    Permissions { global, streams }
}

/// The batch of section 4.6.
fn example_batch(out: BytesMut, producer: Option<ProducerSection>) -> BytesMut {
    let mut headers = BytesMut::new();
    put_user_header(&mut headers, Value::text("k"), Value::text("v")).expect("short");
    let mut builder = BatchBuilder::append_to(out);
    builder.push(1, Micros(ORIGIN), b"hello", &headers).expect("fits");
    builder.push(2, Micros(ORIGIN + 250), b"hi", b"").expect("fits");
    producer.iter().for_each(|producer| builder.producer(*producer).expect("valid"));
    builder.finish().expect("two messages")
}

fn send_body(producer: Option<ProducerSection>) -> BytesMut {
    let send = SendMessages {
        stream: numeric(0),
        topic: numeric(0),
        partitioning: Partitioning::Partition(PartitionId(0)),
        messages_count: 2,
        batch_at: 0,
    };
    let mut out = BytesMut::new();
    send.encode(&mut out).expect("valid");
    example_batch(out, producer)
}

fn stamped() -> Vec<u8> {
    let mut batch = example_batch(BytesMut::new(), None);
    batch::stamp(&mut batch, PartitionId(0), Offset(100), Micros(ORIGIN + 900)).expect("valid");
    batch.to_vec()
}

fn sliced() -> Vec<u8> {
    let batch = stamped();
    let slice = batch::slice(&batch, Offset(101), 1, usize::MAX).expect("the second message");
    [&slice.header[..], &batch[slice.range]].concat()
}

fn send_frame(case: &str, producer: Option<ProducerSection>) -> Sample {
    let mut out = BytesMut::zeroed(HEADER_BYTES);
    out.put_slice(&send_body(producer));
    finish_frame(&header(Code::SendMessages), Code::SendMessages, &mut out).expect("fits");
    Sample { name: name("request", Code::SendMessages, case), bytes: out.to_vec(), kind: Kind::Request }
}

fn producer() -> ProducerSection {
    ProducerSection { producer_id: 4711 << 20, epoch: 0, base_sequence: 0 }
}

fn context() -> PartitionContext {
    PartitionContext {
        incarnation: Incarnation(11),
        owner_generation: OwnerGeneration(4),
        metadata_op: Op(101),
    }
}

/// Every sample.
pub fn all() -> Vec<Sample> {
    let mut all = Vec::new();
    all.extend(of_the_reference());
    all.extend(system_requests());
    all.extend(resource_requests());
    all.extend(user_requests());
    all.extend(group_requests());
    all.extend(message_requests());
    all.extend(system_replies());
    all.extend(resource_replies());
    all.extend(user_replies());
    all.extend(group_replies());
    all.extend(message_replies());
    all.extend(refusals_and_evictions());
    all
}

/// The worked examples, whose files were written from the pages of the reference and not by this code.
fn of_the_reference() -> Vec<Sample> {
    let sample =
        |name: &str, bytes: &[u8], kind| Sample { name: name.to_owned(), bytes: bytes.to_vec(), kind };
    let mut register = header(Code::LoginRegister);
    let login = LoginRegister {
        version: version(V1),
        bind_secret: secret(),
        username: "iggy",
        password: Secret(b"iggy"),
        context: b"",
    };
    let login = encode_frame(&register, &login).expect("valid");
    register.size = login.len() as u32;
    let registered =
        Registered { user_id: UserId(0), session: SessionEpoch(7), protocol: V1, server_version: "0.1.0" };
    let mut committed = ReplyHeader::committed(&register, Op(7), 0);
    committed.timestamp = ORIGIN;
    let login_reply = laneway_wire::reply::encode_frame(&committed, |out| {
        put_success(out);
        registered.put(out);
    });
    let mut create = header(Code::CreateStream);
    create.request = RequestNumber(1);
    let mut committed = ReplyHeader::committed(&create, Op(9), 0);
    committed.timestamp = ORIGIN;
    let rejected = laneway_wire::reply::encode_frame(&committed, |out| {
        put_rejection(out, Status::StreamNameAlreadyExists);
    });
    let mut ping = RequestHeader::new(Operation::NonReplicated, CLIENT, 0);
    ping.code = Code::Ping.number();
    let window = ProtocolWindow { min: V1, max: V1 };
    let mut headers = BytesMut::new();
    put_user_header(&mut headers, Value::text("k"), Value::text("v")).expect("short");
    let set = OptionMap::new().with("message_expiry", 604_800_000_000u64).encode().expect("short");
    let update = UpdateResource {
        target: UpdateTarget::Topic { stream: numeric(1), topic: numeric(2) },
        reset: ResetNames::Listed(&["max_topic_size"]),
        set: Options::parse(&set).expect("valid"),
    };
    let targets = [fetch_target(1, Strategy::Offset(Offset(41)), 11), fetch_target(3, Strategy::Next, 11)];
    let fetch = FetchMessages {
        consumer: Consumer { kind: ConsumerKind::Consumer, id: numeric(1) },
        stream: numeric(1),
        topic: numeric(2),
        wait_us: 5_000_000,
        request_timeout_us: 6_000_000,
        min_count: 1,
        count: 1000,
        max_bytes: 1 << 20,
        auto_commit: false,
        targets: FetchTargets::Listed(&targets),
    };
    let poll = DeferredPoll {
        poll: PollMessages {
            consumer: Consumer { kind: ConsumerKind::Consumer, id: numeric(5) },
            stream: numeric(2),
            topic: numeric(3),
            partition: Some(PartitionId(4)),
            strategy: Strategy::Offset(Offset(10)),
            count: 8,
            auto_commit: false,
        },
        wait_us: 250_000,
        min_count: 2,
        max_bytes: 4096,
        request_timeout_us: 2_000_000,
    };
    let body = |encode: &dyn Fn(&mut BytesMut) -> Result<(), EncodeError>| {
        let mut out = BytesMut::new();
        encode(&mut out).expect("valid");
        out
    };
    let mut partition = BytesMut::new();
    PartitionRecord {
        id: PartitionId(1),
        created_at: Micros(0x0000_018e_23f1_4c00),
        segments_count: 2,
        current_offset: Offset(99),
        size_bytes: 1024,
        messages_count: 100,
        context: PartitionContext {
            incarnation: Incarnation(23),
            owner_generation: OwnerGeneration(0),
            metadata_op: Op(101),
        },
        members: &[1, 3, 4],
        in_sync: &[1, 4],
    }
    .put(&mut partition, V2);
    vec![
        sample("spec-1.14-a-login-request", &login, Kind::Request),
        sample("spec-1.14-b-login-reply", &login_reply, Kind::Reply(Code::LoginRegister, V1)),
        sample("spec-1.14-c-create-stream-rejected", &rejected, Kind::Reply(Code::CreateStream, V1)),
        sample("spec-1.14-d-ping-request", &ping.encode(), Kind::Request),
        sample("spec-1.14-d-ping-reply", &ReplyHeader::to(&ping, 0).encode(), Kind::Reply(Code::Ping, V1)),
        sample("spec-1.14-e-eviction", &Eviction::incompatible(CLIENT, window).encode(), Kind::Eviction),
        sample("spec-3.6-user-header", &headers, Kind::UserHeaders),
        sample("spec-4.6-send-body", &send_body(None), Kind::RequestBody(Code::SendMessages)),
        sample("spec-4.6-stamped-batch", &stamped(), Kind::Record),
        sample("spec-4.6-slice", &sliced(), Kind::Record),
        sample(
            "spec-5.2.1-update-resource-body",
            &body(&|out| update.encode(out)),
            Kind::RequestBody(Code::UpdateResource),
        ),
        sample(
            "spec-5.6-fetch-body",
            &body(&|out| fetch.encode(out)),
            Kind::RequestBody(Code::FetchMessages),
        ),
        sample("spec-9-partition-record", &partition, Kind::PartitionRecord),
        sample("spec-9-producer-batch", &example_batch(BytesMut::new(), Some(producer())), Kind::Record),
        sample(
            "spec-reads-1.4-deferred-poll-body",
            &body(&|out| poll.encode(out)),
            Kind::RequestBody(Code::PollMessagesDeferred),
        ),
    ]
}

fn fetch_target(partition: u32, strategy: Strategy, incarnation: u64) -> FetchTarget {
    FetchTarget {
        partition: PartitionId(partition),
        strategy,
        max_bytes: 512 << 10,
        incarnation: Incarnation(incarnation),
        owner_generation: OwnerGeneration(0),
    }
}

fn system_requests() -> Vec<Sample> {
    let login = LoginRegister {
        version: version(V2),
        bind_secret: secret(),
        username: "alice",
        password: Secret(b"s3cret-pass"),
        context: b"ctx",
    };
    let token_login = LoginRegisterWithPat {
        version: version(V2),
        bind_secret: secret(),
        token: Secret(b"a-token-of-the-user"),
        context: b"",
    };
    let bind = BindSession {
        version: version(V2),
        client: CLIENT,
        session: SessionEpoch(7),
        metadata_watermark: Op(9),
        bind_secret: secret(),
    };
    let set = OptionMap::new().with("name", "orders-v2").encode().expect("short");
    let set = Options::parse(&set).expect("valid");
    let rename = UpdateResource {
        target: UpdateTarget::Stream { stream: named("orders") },
        reset: ResetNames::NONE,
        set,
    };
    let reset = UpdateResource {
        target: UpdateTarget::User { user: numeric(3) },
        reset: ResetNames::Listed(&["a", "b"]),
        set: Options::EMPTY,
    };
    let cursor = ChangeCursor { log_id: 77, op: Op(9), checksum: 11, ordinal: 2 };
    let after = GetMetadataChanges {
        start: ChangeStart::After(cursor),
        since: Some(Micros(ORIGIN)),
        until: None,
        limit: 500,
        groups: &[1, 2],
    };
    let token = ChangePageToken {
        anchor: cursor,
        required_head: Op(12),
        groups_mask: 3,
        group: ChangeGroup::Topics,
        key: &[1, 0, 0, 0, 2, 0, 0, 0],
    };
    let current = GetMetadataChanges {
        start: ChangeStart::Current(Some(token)),
        since: None,
        until: None,
        limit: 1000,
        groups: &[1, 2],
    };
    let earliest = GetMetadataChanges { start: ChangeStart::Earliest, since: None, groups: &[], ..after };
    vec![
        request(&Ping {}),
        request(&GetStats {}),
        request(&GetSnapshot {
            compression: SnapshotCompression::Zstd,
            types: vec![SnapshotType::Logs, SnapshotType::All],
        }),
        request(&GetClusterMetadata {}),
        request(&DescribeOptions { scope: OptionScope::Topic }),
        request(&bind),
        named_request("rename-stream", &rename),
        named_request("reset-user", &reset),
        named_request("after", &after),
        named_request("current", &current),
        named_request("earliest", &earliest),
        request(&GetMe {}),
        request(&GetClient { client_id: 42 }),
        request(&GetClients {}),
        request(&Logout {}),
        request(&login),
        // The wire has one form for both logins; this file is found by the name of the token login.
        request(&token_login),
    ]
}

fn resource_requests() -> Vec<Sample> {
    let options = OptionMap::new().with("durability", "persisted").with("segment_size", 1u64 << 20);
    let options = options.encode().expect("short");
    let options = Options::parse(&options).expect("valid");
    let (stream, topic) = (numeric(1), named("events"));
    vec![
        request(&GetStream { stream: named("orders") }),
        request(&GetStreams {}),
        request(&CreateStream { name: "orders", options: Options::EMPTY }),
        request(&DeleteStream { stream }),
        request(&GetTopic { stream, topic }),
        request(&GetTopics { stream }),
        request(&CreateTopic { stream, partitions_count: 3, name: "events", options }),
        request(&DeleteTopic { stream, topic }),
        request(&CreatePartitions { stream, topic, partitions_count: 2 }),
        request(&DeletePartitions { stream, topic, partitions_count: 1 }),
        request(&DeleteSegments { stream, topic, partition: PartitionId(1), segments_count: 4 }),
        request(&GetPartitionRoute { stream, topic, partition: PartitionId(2) }),
    ]
}

fn user_requests() -> Vec<Sample> {
    let user = named("alice");
    let create = CreateUser {
        username: "alice",
        password: Secret(b"s3cret-pass"),
        status: UserStatus::Active,
        permissions: Some(permissions()),
        options: Options::EMPTY,
    };
    let plain = CreateUser { permissions: None, status: UserStatus::Inactive, ..create.clone() };
    let change = ChangePassword { user, current_password: Secret(b"old"), new_password: Secret(b"new") };
    vec![
        request(&GetUser { user }),
        request(&GetUsers {}),
        request(&create),
        named_request("without-permissions", &plain),
        request(&DeleteUser { user }),
        request(&UpdatePermissions { user, permissions: Some(permissions()) }),
        named_request("none", &UpdatePermissions { user, permissions: None }),
        request(&change),
        request(&GetPersonalAccessTokens {}),
        request(&CreatePersonalAccessToken { name: "laptop", expiry_us: 3_600_000_000 }),
        request(&DeletePersonalAccessToken { name: "laptop" }),
    ]
}

fn group_requests() -> Vec<Sample> {
    let (stream, topic, group) = (numeric(1), named("events"), named("billing"));
    let consumer = Consumer { kind: ConsumerKind::Group, id: group };
    let partition = Some(PartitionId(2));
    vec![
        request(&GetConsumerGroup { stream, topic, group }),
        request(&GetConsumerGroups { stream, topic }),
        request(&CreateConsumerGroup { stream, topic, name: "billing" }),
        request(&DeleteConsumerGroup { stream, topic, group }),
        request(&JoinConsumerGroup { stream, topic, group }),
        request(&LeaveConsumerGroup { stream, topic, group }),
        request(&SyncConsumerGroup { stream, topic, group }),
        request(&GetConsumerOffset { consumer, stream, topic, partition: None }),
        request(&StoreConsumerOffset {
            consumer: Consumer { kind: ConsumerKind::ExternalGroup, id: group },
            stream,
            topic,
            partition,
            offset: Offset(41),
            ack: AckLevel::Quorum,
        }),
        request(&DeleteConsumerOffset { consumer, stream, topic, partition, ack: AckLevel::NoAck }),
    ]
}

fn message_requests() -> Vec<Sample> {
    let poll = PollMessages {
        consumer: Consumer { kind: ConsumerKind::Group, id: named("billing") },
        stream: numeric(1),
        topic: named("events"),
        partition: Some(PartitionId(2)),
        strategy: Strategy::Next,
        count: 100,
        auto_commit: true,
    };
    let deferred = DeferredPoll {
        poll: PollMessages { strategy: Strategy::Timestamp(ORIGIN), partition: None, ..poll.clone() },
        wait_us: WAIT_US_MAX,
        min_count: 100,
        max_bytes: POLL_BYTES_MIN,
        request_timeout_us: TIMEOUT_US_MAX,
    };
    let targets = [
        FetchTarget { owner_generation: OwnerGeneration(4), ..fetch_target(9, Strategy::Next, 11) },
        fetch_target(2, Strategy::Offset(Offset(0)), 12),
    ];
    let fetch = FetchMessages {
        consumer: Consumer { kind: ConsumerKind::Group, id: numeric(9) },
        stream: numeric(1),
        topic: numeric(2),
        wait_us: 0,
        request_timeout_us: REPLY_MARGIN_US,
        min_count: u32::MAX,
        count: u32::MAX,
        max_bytes: 1 << 20,
        auto_commit: true,
        targets: FetchTargets::Listed(&targets),
    };
    vec![
        request(&poll),
        request(&deferred),
        request(&fetch),
        request(&CancelDeferredRequest {}),
        send_frame("", None),
        send_frame("producer", Some(producer())),
    ]
}

fn system_replies() -> Vec<Sample> {
    let registered =
        Registered { user_id: UserId(3), session: SessionEpoch(7), protocol: V2, server_version: "0.1.0" };
    let node = ClusterNode {
        replica_id: ReplicaId(1),
        name: "node-1",
        ip: "127.0.0.1",
        tcp: 8090,
        quic: 8080,
        http: 3000,
        websocket: 8092,
        role: NodeRole::Leader,
        status: NodeStatus::Healthy,
    };
    let follower = ClusterNode {
        replica_id: ReplicaId(2),
        ip: "::1",
        role: NodeRole::Follower,
        status: NodeStatus::Maintenance,
        ..node
    };
    let roster = ClusterMetadata { name: "laneway", nodes: vec![node, follower] };
    let client = ClientHeader {
        client_id: 42,
        user_id: Some(UserId(3)),
        transport: Transport::Tcp,
        address: "127.0.0.1:50000",
        groups_count: 1,
    };
    let group = ClientGroup { stream: StreamId(1), topic: TopicId(2), group: 3 };
    let unbound = ClientHeader { user_id: None, groups_count: 0, transport: Transport::WebSocket, ..client };
    let descriptors = [
        OptionDescriptor { key: "name", kind: 2, flags: 1, default: b"", description: "Name of the topic" },
        OptionDescriptor { key: "segment_size", kind: 12, flags: 0, default: &[0; 8], description: "" },
    ];
    let cursor = ChangeCursor { log_id: 77, op: Op(9), checksum: 11, ordinal: 2 };
    let changes = ChangesPage {
        status: ChangesStatus::Ok,
        phase: ChangePhase::Changes,
        log_id: Some(77),
        oldest_op: Op(1),
        retained_since: Micros(ORIGIN),
        head_op: Op(12),
        next: Some(cursor),
        has_more: true,
        records: vec![
            ChangeRecord {
                op: Op(9),
                ordinal: 2,
                checksum: 11,
                timestamp: Micros(ORIGIN),
                actor: Some(UserId(3)),
                group: 1,
                kind: 3,
                body: b"body",
            },
            ChangeRecord {
                op: Op(10),
                ordinal: 0,
                checksum: 12,
                timestamp: Micros(ORIGIN),
                actor: None,
                group: 9,
                kind: 200,
                body: b"",
            },
        ],
        items: Vec::new(),
        token: None,
    };
    let token = ChangePageToken {
        anchor: cursor,
        required_head: Op(12),
        groups_mask: 0b0110_0000,
        group: ChangeGroup::Tokens,
        key: b"\x03\0\0\0\x06laptop",
    };
    let current = ChangesPage {
        phase: ChangePhase::Current,
        records: Vec::new(),
        items: vec![ChangeItem { group: 6, body: b"user" }, ChangeItem { group: 7, body: b"" }],
        token: Some(token),
        next: None,
        log_id: None,
        ..changes.clone()
    };
    vec![
        reply(Code::Ping, "", V1, |_| {}),
        reply(Code::GetStats, "", V1, |out| stats(None).put(out)),
        reply(Code::GetStats, "with-open-files", V1, |out| stats(Some((30, 1024))).put(out)),
        reply(Code::GetSnapshot, "", V1, |out| out.put_slice(b"PK\x03\x04")),
        reply(Code::GetClusterMetadata, "", V1, |out| roster.put(out)),
        reply(Code::DescribeOptions, "", V1, |out| put_option_descriptors(out, &descriptors)),
        reply(Code::BindSession, "", V2, |out| registered.put(out)),
        reply(Code::UpdateResource, "", V1, |_| {}),
        reply(Code::GetMetadataChanges, "changes", V1, |out| changes.put(out)),
        reply(Code::GetMetadataChanges, "current", V1, |out| current.put(out)),
        reply(Code::GetMe, "", V1, |out| ClientDetails { header: client, groups: vec![group] }.put(out)),
        reply(Code::GetClient, "missing", V1, |_| {}),
        reply(Code::GetClients, "", V1, |out| {
            client.put(out);
            unbound.put(out);
        }),
        reply(Code::LoginRegister, "", V2, |out| registered.put(out)),
        reply(Code::Logout, "", V1, |_| {}),
    ]
}

fn stats(open_files: Option<(u64, u64)>) -> Stats<'static> {
    Stats {
        process_id: 4711,
        cpu_usage: 12.5,
        total_cpu_usage: 50.25,
        memory_usage: 1 << 28,
        total_memory: 1 << 34,
        available_memory: 1 << 33,
        run_time_us: 5_000_000,
        start_time: Micros(ORIGIN),
        read_bytes: 1,
        written_bytes: 2,
        messages_size_bytes: 3,
        streams_count: 4,
        topics_count: 5,
        partitions_count: 6,
        segments_count: 7,
        messages_count: 8,
        clients_count: 9,
        consumer_groups_count: 10,
        hostname: "host",
        os_name: "Linux",
        os_version: "",
        kernel_version: "6.18",
        server_version: "0.1.0",
        server_semver: 1024,
        caches: vec![CacheMetrics {
            stream: StreamId(1),
            topic: TopicId(2),
            partition: 3,
            hits: 4,
            misses: 5,
            hit_ratio: 0.5,
        }],
        threads_count: 3,
        free_disk_space: 1 << 40,
        total_disk_space: 1 << 41,
        open_files,
    }
}

fn resource_replies() -> Vec<Sample> {
    let explicit = OptionMap::new().with("durability", "persisted");
    let derived = OptionMap::new().with("message_expiry", u64::MAX).with("preallocate_segments", false);
    let stream = StreamHeader {
        id: StreamId(1),
        created_at: Micros(ORIGIN),
        topics_count: 1,
        size_bytes: 4096,
        messages_count: 100,
        name: "orders",
        explicit: Block::EMPTY,
        derived: Block::Map(&derived),
    };
    let topic = TopicHeader {
        id: TopicId(2),
        created_at: Micros(ORIGIN + 1),
        partitions_count: 2,
        size_bytes: 4096,
        messages_count: 100,
        name: "events",
        explicit: Block::Map(&explicit),
        derived: Block::Map(&derived),
    };
    let partition = PartitionRecord {
        id: PartitionId(0),
        created_at: Micros(ORIGIN + 2),
        segments_count: 1,
        current_offset: Offset(99),
        size_bytes: 4096,
        messages_count: 100,
        context: PartitionContext { owner_generation: OwnerGeneration(0), ..context() },
        members: &[1],
        in_sync: &[1],
    };
    let second = PartitionRecord { id: PartitionId(1), members: &[], in_sync: &[], ..partition };
    let details = TopicDetails { header: topic, partitions: vec![partition, second] };
    // What 0.12.1 cannot carry is not there when it is read again, so its samples start without it.
    let plain = PartitionRecord { members: &[], in_sync: &[], ..partition };
    let plain = TopicDetails { header: topic, partitions: vec![plain, second] };
    let created = StreamDetails { header: StreamHeader { topics_count: 0, ..stream }, topics: Vec::new() };
    vec![
        reply(Code::GetStream, "", V1, |out| StreamDetails { header: stream, topics: vec![topic] }.put(out)),
        reply(Code::GetStream, "missing", V1, |_| {}),
        reply(Code::GetStreams, "", V1, |out| {
            stream.put(out);
            created.header.put(out);
        }),
        reply(Code::CreateStream, "", V1, |out| created.put(out)),
        reply(Code::DeleteStream, "", V1, |_| {}),
        reply(Code::GetTopic, "0.12.1", V1, |out| plain.put(out, V1)),
        reply(Code::GetTopic, "0.12.2", V2, |out| details.put(out, V2)),
        reply(Code::GetTopic, "missing", V2, |_| {}),
        reply(Code::GetTopics, "", V1, |out| {
            put_topics_count(out, 1);
            topic.put(out);
        }),
        reply(Code::CreateTopic, "0.12.1", V1, |out| plain.put(out, V1)),
        reply(Code::CreateTopic, "0.12.2", V2, |out| details.put(out, V2)),
        reply(Code::DeleteTopic, "", V1, |_| {}),
        reply(Code::CreatePartitions, "", V1, |_| {}),
        reply(Code::DeletePartitions, "", V1, |_| {}),
        reply(Code::DeleteSegments, "raw", V1, |_| {}),
        truncated(),
    ]
}

/// DeleteSegments answered under the operation that carries a result section.
fn truncated() -> Sample {
    let request = header(Code::DeleteSegments);
    let mut header = ReplyHeader::committed(&request, Op(12), 0);
    header.operation = Operation::TruncatePartition.byte();
    let bytes = laneway_wire::reply::encode_frame(&header, put_success).to_vec();
    let kind = Kind::Reply(Code::DeleteSegments, V1);
    Sample { name: name("reply", Code::DeleteSegments, "resolved"), bytes, kind }
}

fn user_replies() -> Vec<Sample> {
    let header = UserHeader {
        id: UserId(3),
        created_at: Micros(ORIGIN),
        status: UserStatus::Active,
        username: "alice",
        explicit: Block::EMPTY,
        derived: Block::EMPTY,
    };
    let with = UserDetails { header, permissions: Some(permissions()) };
    let without = UserDetails { header, permissions: None };
    vec![
        reply(Code::GetUser, "", V1, |out| with.put(out)),
        reply(Code::GetUser, "without-permissions", V1, |out| without.put(out)),
        reply(Code::GetUser, "missing", V1, |_| {}),
        reply(Code::GetUsers, "", V1, |out| {
            header.put(out);
            UserHeader { id: UserId(4), status: UserStatus::Inactive, ..header }.put(out);
        }),
        reply(Code::CreateUser, "", V1, |out| without.put(out)),
        reply(Code::DeleteUser, "", V1, |_| {}),
        reply(Code::UpdatePermissions, "", V1, |_| {}),
        reply(Code::ChangePassword, "", V1, |_| {}),
        reply(Code::GetPersonalAccessTokens, "", V1, |out| {
            TokenRecord { name: "laptop", expires_at: Micros(ORIGIN) }.put(out);
            TokenRecord { name: "ci", expires_at: Micros(0) }.put(out);
        }),
        reply(Code::CreatePersonalAccessToken, "", V1, |out| put_token(out, "secret-shown-once")),
        reply(Code::DeletePersonalAccessToken, "", V1, |_| {}),
    ]
}

fn group_replies() -> Vec<Sample> {
    let header = GroupHeader { id: 3, partitions_count: 4, members_count: 2, name: "billing" };
    let members = vec![
        GroupMember { id: 0, partitions: vec![PartitionId(0), PartitionId(2)] },
        GroupMember { id: 1, partitions: Vec::new() },
    ];
    let empty = GroupHeader { members_count: 0, ..header };
    let offset =
        ConsumerOffset { partition: PartitionId(2), current_offset: Offset(99), stored_offset: Offset(41) };
    vec![
        reply(Code::GetConsumerGroup, "", V1, |out| GroupDetails { header, members }.put(out)),
        reply(Code::GetConsumerGroup, "missing", V1, |_| {}),
        reply(Code::GetConsumerGroups, "", V1, |out| {
            header.put(out);
            empty.put(out);
        }),
        reply(Code::CreateConsumerGroup, "", V1, |out| {
            GroupDetails { header: empty, members: Vec::new() }.put(out);
        }),
        reply(Code::DeleteConsumerGroup, "", V1, |_| {}),
        reply(Code::JoinConsumerGroup, "", V1, |_| {}),
        reply(Code::LeaveConsumerGroup, "", V1, |_| {}),
        reply(Code::SyncConsumerGroup, "", V1, |out| {
            GroupSync { generation: 5, partitions: vec![PartitionId(0), PartitionId(2)] }.put(out);
        }),
        reply(Code::SyncConsumerGroup, "no-partitions", V1, |out| {
            GroupSync { generation: 6, partitions: Vec::new() }.put(out);
        }),
        reply(Code::SyncConsumerGroup, "no-member", V1, |_| {}),
        reply(Code::GetConsumerOffset, "", V1, |out| offset.put(out)),
        reply(Code::GetConsumerOffset, "missing", V1, |_| {}),
        reply(Code::StoreConsumerOffset, "", V1, |_| {}),
        reply(Code::DeleteConsumerOffset, "", V1, |_| {}),
    ]
}

fn message_replies() -> Vec<Sample> {
    let head = PollHead {
        partition: PartitionId(0),
        current_offset: Offset(101),
        messages_count: 3,
        context: context(),
    };
    let confirmation = SendConfirmation {
        stream: StreamId(1),
        topic: TopicId(1),
        partition: PartitionId(0),
        base_offset: Offset(100),
    };
    let route = PartitionRoute {
        incarnation: Incarnation(11),
        metadata_op: Op(101),
        view: 1,
        partitions_count: 3,
        primary_replica: ReplicaId(1),
    };
    let (whole, part) = (stamped(), sliced());
    let records = [&whole[..], &part[..]].concat();
    let read = FetchSection {
        partition: PartitionId(9),
        status: Status::Ok,
        current_offset: Offset(101),
        messages_count: 2,
        context: context(),
        next_offset: Offset(102),
        records_len: whole.len() as u32,
    };
    let sections = [
        read,
        FetchSection::failed(PartitionId(2), Status::NotPrimary),
        FetchSection { partition: PartitionId(1), messages_count: 1, records_len: part.len() as u32, ..read },
        FetchSection { partition: PartitionId(0), messages_count: 0, records_len: 0, ..read },
    ];
    let empty = PollHead::empty(PartitionId(0), Offset(0), context());
    let fenced = PollHead::empty(PartitionId(u32::MAX), Offset(0), PartitionContext::default());
    vec![
        reply(Code::PollMessages, "", V1, |out| {
            head.put(out);
            out.put_slice(&records);
        }),
        reply(Code::PollMessages, "empty", V1, |out| empty.put(out)),
        reply(Code::PollMessages, "fenced", V1, |out| fenced.put(out)),
        reply(Code::PollMessagesDeferred, "", V1, |out| {
            head.put(out);
            out.put_slice(&records);
        }),
        reply(Code::SendMessages, "", V1, |out| put_confirmations(out, &[confirmation])),
        reply(Code::GetPartitionRoute, "", V1, |out| route.put(out)),
        reply(Code::FetchMessages, "", V1, |out| {
            put_fetch_table(out, &sections);
            out.put_slice(&records);
        }),
        reply(Code::FetchMessages, "no-sections", V1, |out| put_fetch_table(out, &[])),
    ]
}

fn refusals_and_evictions() -> Vec<Sample> {
    let mut all = Vec::new();
    let refused = header(Code::PollMessages);
    let bytes = ReplyHeader::refusal(&refused, Status::HistoryUnavailable).encode().to_vec();
    let kind = Kind::Reply(Code::PollMessages, V1);
    all.push(Sample { name: name("reply", Code::PollMessages, "refused"), bytes, kind });
    let refused = header(Code::CreateTopic);
    let bytes = laneway_wire::reply::encode_frame(&ReplyHeader::to(&refused, 0), |out| {
        put_rejection(out, Status::TransientNotAccepted);
    });
    let kind = Kind::Reply(Code::CreateTopic, V1);
    all.push(Sample { name: name("reply", Code::CreateTopic, "not-accepted"), bytes: bytes.to_vec(), kind });
    for byte in 1..=15 {
        let reason = EvictionReason::from_byte(byte).expect("declared");
        let eviction = match reason {
            EvictionReason::IncompatibleProtocol => Eviction::incompatible(CLIENT, ProtocolWindow::LANEWAY),
            _ => Eviction::new(CLIENT, reason),
        };
        let name = format!("eviction-{byte:02}-{reason:?}");
        all.push(Sample { name, bytes: eviction.encode().to_vec(), kind: Kind::Eviction });
    }
    all
}
