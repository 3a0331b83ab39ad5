//! Rules of resources as requests see them: planned, applied, answered.

use laneway_wire::options::{OptionMap, Options};
use laneway_wire::{Identifier, Incarnation, RequestNumber};

use super::*;
use crate::command::{SessionId, Settings};
use crate::names::Ref;
use crate::options::Durability;
use crate::permissions::Rule;
use crate::planner::{PlanSettings, Planner};
use crate::sessions::Verifier;
use crate::users::PasswordHash;

mod changes;
mod encryption;
mod updates;

const CLIENT: ClientId = ClientId(77);

/// A node with root signed in, which plans and applies one request after the other.
struct Node {
    metadata: Metadata,
    settings: PlanSettings,
    session: SessionEpoch,
    requests: u64,
}

impl Node {
    fn new() -> Self {
        Self::with(Settings { lanes_per_class: 2, sessions_max: 8, ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        let root = CreateRoot { username: "root".into(), password_hash: PasswordHash::new("$phc"), settings };
        let mut node = Self {
            metadata: Metadata::new(),
            settings: PlanSettings::default(),
            session: SessionEpoch(0),
            requests: 0,
        };
        node.apply(&Command::CreateRoot(root));
        node.session = SessionEpoch(2);
        assert_eq!(
            node.register(CLIENT).answer,
            Answer::Registered { client: CLIENT, session: SessionEpoch(2), user: ROOT }
        );
        node
    }

    fn apply(&mut self, command: &Command) -> Outcome {
        let op = self.metadata.applied().next();
        // What is applied is what a log gives back.
        let command = Command::from_bytes(&command.to_bytes()).unwrap();
        self.metadata.apply(op, Micros(op.0 * 1000), &command)
    }

    fn register(&mut self, client: ClientId) -> Outcome {
        let register = Register {
            client,
            user: ROOT,
            user_created_at: ROOT_CREATED_AT,
            verifier: Verifier([1; 32]),
            token: None,
        };
        self.apply(&Command::Register(register))
    }

    fn identity(&mut self) -> RequestIdentity {
        self.requests += 1;
        RequestIdentity {
            client: CLIENT,
            session: self.session,
            request: RequestNumber(self.requests),
            request_checksum: u128::from(self.requests) << 64,
            user: ROOT,
            operation: 128,
        }
    }

    fn request(&mut self, mutation: Mutation) -> Outcome {
        let identity = self.identity();
        self.apply(&Command::Request(identity, mutation))
    }

    fn plan<T>(&self, plan: impl FnOnce(Planner<'_>) -> T) -> T {
        plan(Planner { metadata: &self.metadata, settings: &self.settings, user: ROOT })
    }

    /// The status of a request, whether planning or applying refuses it.
    fn status(&mut self, plan: impl FnOnce(Planner<'_>) -> Result<Mutation, crate::Refusal>) -> u32 {
        match self.plan(plan) {
            Ok(mutation) => {
                let before = self.metadata.clone();
                let outcome = self.request(mutation);
                let reply = committed(&outcome);
                if !reply.status.is_ok() {
                    assert!(outcome.effects.is_empty(), "a refusal has no effects");
                    assert!(same_resources(&self.metadata, &before), "a refusal changes no resource");
                }
                reply.status.number()
            }
            Err(refusal) => refusal.status.number(),
        }
    }

    fn stream(&mut self, name: &str) -> u32 {
        self.status(|planner| planner.create_stream(name, Options::EMPTY))
    }

    fn delete_stream(&mut self, stream: &str) -> u32 {
        self.status(|planner| Ok(planner.delete_stream(Identifier::from_text(stream))))
    }

    fn topic(&mut self, stream: u32, partitions: u32, name: &str, options: &OptionMap) -> u32 {
        let block = options.encode().unwrap();
        self.status(|planner| planner.create_topic(stream, partitions, name, Options::parse(&block).unwrap()))
    }

    fn plain_topic(&mut self, stream: u32, partitions: u32, name: &str) -> u32 {
        self.topic(stream, partitions, name, &OptionMap::new())
    }

    fn add_partitions(&mut self, count: u32) -> u32 {
        self.status(|planner| planner.create_partitions(0, 0, count))
    }

    fn delete_partitions(&mut self, count: u32) -> u32 {
        self.status(|planner| planner.delete_partitions(0, 0, count))
    }

    fn ids(&self) -> Vec<(u32, String)> {
        self.metadata.streams().iter().map(|stream| (stream.id.0, stream.name.to_string())).collect()
    }
}

fn committed(outcome: &Outcome) -> &CommittedReply {
    match &outcome.answer {
        Answer::Committed(reply) => reply,
        other => panic!("not executed: {other:?}"),
    }
}

/// Whether no stream was even replaced: a changed one is a new value.
fn same_resources(left: &Metadata, right: &Metadata) -> bool {
    let streams = left.streams.iter().zip(right.streams.iter()).all(|(left, right)| Arc::ptr_eq(left, right));
    streams && left.streams.count() == right.streams.count() && left.lanes.iter().eq(right.lanes.iter())
}

fn options(entries: &[(&str, &str)]) -> OptionMap {
    entries.iter().fold(OptionMap::new(), |map, (key, value)| map.with(key, *value))
}

#[test]
fn stream_numbers_start_at_zero_and_the_lowest_free_is_used_again() {
    let mut node = Node::new();
    assert_eq!([node.stream("a"), node.stream("b"), node.stream("c")], [0; 3]);
    assert_eq!([node.delete_stream("a"), node.stream("d")], [0, 0]);
    assert_eq!(node.ids(), [(0, "d".into()), (1, "b".into()), (2, "c".into())]);
}

#[test]
fn names_are_exact_and_unique() {
    let mut node = Node::new();
    assert_eq!([node.stream("a"), node.stream("A"), node.stream("a")], [0, 0, 1012]);
    assert_eq!(
        [node.stream(""), node.stream(&"n".repeat(256)), node.stream(&"n".repeat(255))],
        [1013, 1013, 0]
    );
    assert_eq!(node.delete_stream("b"), 1009);
    assert_eq!(node.delete_stream("9"), 1009);
    // A stream named like a number is reached by name only.
    assert_eq!(node.stream("7"), 0);
    assert_eq!(node.metadata.stream("7").map(|stream| stream.id), Ok(StreamId(3)));
    assert_eq!(node.metadata.stream(7).map(|_| ()), Err(crate::Missing::Stream { by_name: false }));
}

#[test]
fn topic_numbers_and_names_belong_to_their_stream() {
    let mut node = Node::new();
    node.stream("a");
    node.stream("b");
    assert_eq!(
        [node.plain_topic(0, 1, "t"), node.plain_topic(1, 1, "t"), node.plain_topic(0, 1, "t")],
        [0, 0, 2013]
    );
    assert_eq!(
        [node.plain_topic(0, 0, "empty"), node.plain_topic(5, 1, "t"), node.plain_topic(0, 1, "")],
        [0, 1009, 2014]
    );
    let topic = |stream: u32, name| node.metadata.topic(stream, name).map(|(_, topic)| topic.id.0);
    assert_eq!([topic(0, "t"), topic(1, "t"), topic(0, "empty")], [Ok(0), Ok(0), Ok(1)]);
    let missing = node.metadata.topic("a", "none").map(|_| ()).unwrap_err();
    assert_eq!([missing.committed_status().number(), missing.admission_status().number()], [2010, 2011]);
    let missing = node.metadata.partition(0, 0, PartitionId(1)).unwrap_err();
    assert_eq!(missing.admission_status().number(), 3007);
}

#[test]
fn partition_counts_of_a_request_are_bounded() {
    let mut node = Node::new();
    node.stream("a");
    assert_eq!([node.plain_topic(0, 1001, "over"), node.plain_topic(0, 1000, "most")], [2015, 0]);
    assert_eq!(
        [node.add_partitions(0), node.add_partitions(1001), node.add_partitions(1000)],
        [2015, 2015, 0]
    );
    assert_eq!([node.delete_partitions(0), node.delete_partitions(1001)], [2015, 2015]);
    assert_eq!(node.metadata.streams().partitions_count(), 2000);
}

#[test]
fn partitions_go_from_the_end_and_come_back_as_new_lives() {
    let mut node = Node::new();
    node.stream("a");
    node.plain_topic(0, 1, "t");
    let first = node.metadata.partition(0, 0, PartitionId(0)).unwrap();
    assert_eq!(node.add_partitions(2), 0);
    let ids =
        |node: &Node| -> Vec<u32> { node.metadata.partitions().map(|place| place.key.partition.0).collect() };
    assert_eq!(ids(&node), [0, 1, 2]);
    assert_eq!(node.delete_partitions(4), 2019);
    assert_eq!([node.delete_partitions(2), node.add_partitions(1)], [0, 0]);
    let again = node.metadata.partition(0, 0, PartitionId(1)).unwrap();
    assert_eq!(Op(again.key.incarnation.0), node.metadata.applied());
    assert_eq!(node.metadata.partition(0, 0, PartitionId(0)), Ok(first), "the others live on");
    assert_eq!(node.delete_partitions(2), 0);
    assert_eq!(node.metadata.topic(0, 0).map(|(_, topic)| topic.partitions_count()), Ok(0));
}

#[test]
fn a_fixed_topic_keeps_its_partitions() {
    let mut node = Node::new();
    node.stream("a");
    node.topic(0, 2, "t", &options(&[("partition_resize_policy", "fixed")]));
    assert_eq!([node.add_partitions(1), node.delete_partitions(1), node.delete_partitions(9)], [2023; 3]);
}

#[test]
fn the_cap_counts_the_partitions_of_the_server() {
    let mut node = Node::new();
    node.settings.partitions_max = 3;
    node.stream("a");
    assert_eq!(
        [node.plain_topic(0, 2, "t"), node.plain_topic(0, 2, "u"), node.plain_topic(0, 0, "u")],
        [0, 2022, 0]
    );
    assert_eq!([node.add_partitions(2), node.add_partitions(1), node.add_partitions(1)], [2022, 0, 2022]);
    // A missing parent is reported as missing, whatever the cap.
    assert_eq!(node.plain_topic(9, 5, "t"), 1009);
}

#[test]
fn the_number_space_of_partitions_ends() {
    let mut node = Node::new();
    node.stream("a");
    node.plain_topic(0, 0, "t");
    let partition = Partition { incarnation: Incarnation(4), created_at: Micros(1), lane: LaneId(3) };
    node.metadata.streams.update(StreamId(0), |stream| {
        let mut topic = Topic::clone(stream.topics.find(0).unwrap());
        topic.partitions = std::iter::repeat_n(partition, 999_999).collect();
        stream.topics.replace(topic);
    });
    (0..999_999).for_each(|_| node.metadata.lanes.add_partition(LaneId(3)));
    assert_eq!([node.add_partitions(2), node.add_partitions(1), node.add_partitions(1)], [3013, 0, 3013]);
}

#[test]
fn topics_of_a_stream_are_bounded() {
    let mut node = Node::new();
    node.stream("a");
    node.plain_topic(0, 0, "t");
    node.metadata.streams.update(StreamId(0), |stream| {
        for id in 1..4095 {
            let topic = Topic::clone(stream.topics.find(0).unwrap());
            stream.topics.create(Topic { id: TopicId(id), name: format!("t{id}").into(), ..topic });
        }
    });
    assert_eq!([node.plain_topic(0, 0, "last"), node.plain_topic(0, 0, "over")], [0, 2021]);
}

#[test]
fn options_that_do_not_fit_together_are_refused() {
    let mut node = Node::new();
    node.stream("a");
    assert_eq!(node.topic(0, 1, "t", &options(&[("max_topic_size", "10 KiB")])), 1019);
    assert_eq!(node.topic(0, 1, "t", &options(&[("max_topic_size", "1 GiB")])), 0);
    assert_eq!(node.topic(0, 65, "u", &options(&[("preallocate_segments", "true")])), 4042);
    assert_eq!(node.topic(0, 64, "u", &options(&[("preallocate_segments", "true")])), 0);
    assert_eq!(node.topic(0, 1, "v", &options(&[("replication_factor", "2")])), 2018);
    assert_eq!(node.topic(0, 1, "v", &options(&[("flavour", "x")])), 4041);
    let key = OptionMap::new().with("encryption_key", [9u8; 32].as_slice()).encode().unwrap();
    assert_eq!(node.status(|planner| planner.create_stream("s", Options::parse(&key).unwrap())), 4106);
}

#[test]
fn defaults_are_derived_and_given_values_explicit() {
    let mut node = Node::new();
    node.stream("a");
    node.topic(0, 1, "t", &options(&[("segment_size", "128MiB"), ("message_expiry", "0")]));
    let (_, topic) = node.metadata.topic(0, 0).unwrap();
    let header = topic.header(Default::default());
    let explicit: Vec<_> = header.explicit.iter().collect();
    assert_eq!(explicit.len(), 1);
    assert_eq!(explicit[0].1.as_unsigned(), Some(134_217_728));
    for key in ["message_expiry", "max_topic_size"] {
        assert_eq!(header.derived.get(key).unwrap().as_unsigned(), Some(u64::MAX.into()), "{key}");
    }
    assert_eq!(header.derived.iter().count(), 10);
    assert_eq!(topic.settings.durability, Durability::Persisted);
}

#[test]
fn partitions_are_placed_on_the_lanes_of_their_class() {
    let mut node = Node::new();
    node.stream("a");
    node.plain_topic(0, 3, "persisted");
    node.topic(0, 3, "replicated", &options(&[("durability", "replicated")]));
    let lanes: Vec<u32> = node.metadata.partitions().map(|place| place.lane.0).collect();
    assert_eq!(lanes, [3, 4, 3, 1, 2, 1]);
    let counts: Vec<_> =
        node.metadata.lanes().iter().map(|(id, lane)| (id.0, lane.partitions_count)).collect();
    assert_eq!(counts, [(1, 2), (2, 1), (3, 2), (4, 1)]);
}

#[test]
fn a_plan_for_a_topic_that_was_replaced_is_made_again() {
    let mut node = Node::new();
    node.stream("a");
    node.topic(0, 1, "t", &options(&[("durability", "replicated")]));
    let planned = node.plan(|planner| planner.create_partitions("a", "t", 2)).unwrap();
    let delete = node.plan(|planner| planner.delete_topic("a", "t"));
    node.request(delete);
    node.plain_topic(0, 1, "t");
    let outcome = node.request(planned);
    assert_eq!(committed(&outcome).status, Status::Ok);
    assert!(node.metadata.partitions().all(|place| place.lane.0 >= 3));
}

#[test]
fn deletes_tell_the_shards_every_partition() {
    let mut node = Node::new();
    node.stream("a");
    node.plain_topic(0, 2, "t");
    node.plain_topic(0, 1, "u");
    let before: Vec<_> = node.metadata.partitions().map(Effect::PartitionDeleted).collect();
    let delete = node.plan(|planner| planner.delete_stream("a"));
    assert_eq!(node.request(delete).effects, before);
    assert_eq!(node.metadata.streams().partitions_count() + node.metadata.streams().topics_count(), 0);
    assert!(node.metadata.lanes().iter().all(|(_, lane)| lane.partitions_count == 0));
}

#[test]
fn creates_tell_the_shards_every_partition() {
    let mut node = Node::new();
    node.stream("a");
    let create = node.plan(|planner| planner.create_topic("a", 2, "t", Options::EMPTY)).unwrap();
    let outcome = node.request(create);
    let places: Vec<_> = node.metadata.partitions().map(Effect::PartitionCreated).collect();
    assert_eq!(outcome.effects, places);
}

#[test]
fn a_repeated_request_answers_the_same_and_changes_nothing() {
    let mut node = Node::new();
    let create = node.plan(|planner| planner.create_stream("a", Options::EMPTY)).unwrap();
    let identity = node.identity();
    let first = node.apply(&Command::Request(identity, create.clone()));
    let again = node.apply(&Command::Request(identity, create.clone()));
    assert_eq!(again.answer, Answer::Replayed(committed(&first).clone()));
    assert_eq!(node.metadata.streams().count(), 1);
    // A refusal is kept as well: after the stream is gone, the repeated create is still refused.
    let identity = node.identity();
    let refused = node.apply(&Command::Request(identity, create.clone()));
    node.delete_stream("a");
    let again = node.apply(&Command::Request(identity, create));
    assert_eq!(again.answer, Answer::Replayed(committed(&refused).clone()));
    assert_eq!(committed(&refused).status.number(), 1012);
}

#[test]
fn a_request_outside_its_session_executes_nothing() {
    let mut node = Node::new();
    let create = node.plan(|planner| planner.create_stream("a", Options::EMPTY)).unwrap();
    let identity = node.identity();
    for (client, session, admit) in [
        (CLIENT, SessionEpoch(1), Admit::StaleEpoch),
        (CLIENT, SessionEpoch(99), Admit::UnknownEpoch),
        (ClientId(5), SessionEpoch(2), Admit::NoSession),
    ] {
        let command = Command::Request(RequestIdentity { client, session, ..identity }, create.clone());
        assert_eq!(node.apply(&command), Outcome { answer: Answer::NotExecuted(admit), effects: vec![] });
    }
    assert_eq!(node.metadata.streams().count(), 0);
}

#[test]
fn logout_ends_the_session_and_its_repeat_is_answered() {
    let mut node = Node::new();
    let identity = node.identity();
    let logout = Command::Request(identity, Mutation::Logout);
    let outcome = node.apply(&logout);
    let ended = Effect::SessionEnded {
        client: CLIENT,
        session: SessionEpoch(2),
        user: ROOT,
        reason: EndReason::Logout,
    };
    assert_eq!(outcome.effects, [ended]);
    let again = node.apply(&logout);
    assert_eq!(again.answer, Answer::Replayed(committed(&outcome).clone()));
    let identity = node.identity();
    let after = node.apply(&Command::Request(identity, Mutation::Logout));
    assert_eq!(after.answer, Answer::NotExecuted(Admit::NoSession));
}

#[test]
fn expired_sessions_end_once_and_only_in_their_epoch() {
    let mut node = Node::new();
    let end = |epoch| {
        let sessions = vec![SessionId { client: CLIENT, epoch: SessionEpoch(epoch) }];
        Command::EndSessions(EndSessions { sessions, reason: EndReason::Expired })
    };
    assert_eq!(node.apply(&end(1)).effects, []);
    assert_eq!(node.apply(&end(2)).effects.len(), 1);
    assert_eq!(node.apply(&end(2)).effects, []);
}

#[test]
fn a_registration_needs_the_user_that_was_verified() {
    let mut node = Node::new();
    let register = |user, born| {
        Command::Register(Register {
            client: ClientId(5),
            user: UserId(user),
            user_created_at: Micros(born),
            verifier: Verifier([1; 32]),
            token: None,
        })
    };
    let refused = Answer::NotRegistered(RegisterRefusal::UserGone);
    assert_eq!(node.apply(&register(0, 2)).answer, refused);
    assert_eq!(node.apply(&register(1, 1)).answer, refused);
    assert_eq!(node.metadata.sessions().count(), 1);
}

#[test]
fn a_full_table_refuses_and_an_ended_session_makes_room() {
    let mut node = Node::with(Settings { lanes_per_class: 1, sessions_max: 2, ..Settings::default() });
    node.register(ClientId(2));
    let refused = Answer::NotRegistered(RegisterRefusal::TableFull { max: 2 });
    assert_eq!(node.register(ClientId(3)).answer, refused);
    node.request(Mutation::Logout);
    assert!(matches!(node.register(ClientId(3)).answer, Answer::Registered { .. }));
    assert!(node.metadata.sessions().session(CLIENT).is_none());
}

/// Puts a user beside root who may do only what is granted, and signs it in as the node's client.
fn sign_in_as_guest(node: &mut Node, permissions: Permissions) -> SessionEpoch {
    let root = node.metadata.root().unwrap();
    let guest = User {
        id: UserId(1),
        created_at: Micros(5),
        username: "guest".into(),
        permissions: Some(permissions),
        ..User::clone(root)
    };
    node.metadata.users.create(guest);
    let client = ClientId(900);
    let register = Register {
        client,
        user: UserId(1),
        user_created_at: Micros(5),
        verifier: Verifier([2; 32]),
        token: None,
    };
    match node.apply(&Command::Register(register)).answer {
        Answer::Registered { session, .. } => session,
        other => panic!("{other:?}"),
    }
}

#[test]
fn denial_is_committed_and_a_missing_target_comes_first() {
    let mut node = Node::new();
    node.stream("a");
    node.plain_topic(0, 1, "t");
    let session = sign_in_as_guest(&mut node, Permissions::default());
    let mut requests = 0;
    let mut check = |mutation: Mutation, expected: u32| {
        requests += 1;
        let identity = RequestIdentity {
            client: ClientId(900),
            session,
            request: RequestNumber(requests),
            request_checksum: 0,
            user: UserId(1),
            operation: 128,
        };
        let outcome = node.apply(&Command::Request(identity, mutation));
        assert_eq!(committed(&outcome).status.number(), expected);
    };
    let (a, t, missing) = (|| Ref::Name("a".into()), || Ref::Id(0), || Ref::Id(9));
    check(Mutation::CreateStream { name: "b".into(), options: vec![] }, 41);
    check(Mutation::CreateStream { name: "a".into(), options: vec![] }, 41);
    check(Mutation::DeleteStream { stream: a() }, 41);
    check(Mutation::DeleteStream { stream: missing() }, 1009);
    check(Mutation::CreateTopic { stream: a(), name: "u".into(), options: vec![], lanes: vec![] }, 41);
    check(
        Mutation::CreateTopic { stream: missing(), name: "u".into(), options: vec![], lanes: vec![] },
        1009,
    );
    check(Mutation::DeleteTopic { stream: a(), topic: t() }, 41);
    check(Mutation::DeleteTopic { stream: a(), topic: missing() }, 2010);
    check(Mutation::CreatePartitions { stream: a(), topic: t(), lanes: vec![LaneId(3)] }, 41);
    check(Mutation::DeletePartitions { stream: a(), topic: t(), count: 5 }, 41);
    check(Mutation::DeletePartitions { stream: missing(), topic: t(), count: 5 }, 1009);
    check(Mutation::Logout, 0);
}

#[test]
fn grants_go_with_the_resource() {
    use crate::permissions::{StreamFlags, StreamPermissions, TopicFlags};
    let mut node = Node::new();
    node.stream("a");
    node.stream("b");
    node.plain_topic(0, 1, "t");
    let topics = [(TopicId(0), TopicFlags::ALL)].into();
    let mut permissions = Permissions::default();
    permissions.streams.insert(StreamId(0), StreamPermissions { flags: StreamFlags::NONE, topics });
    permissions
        .streams
        .insert(StreamId(1), StreamPermissions { flags: StreamFlags::ALL, ..Default::default() });
    sign_in_as_guest(&mut node, permissions);
    let guest = UserId(1);
    assert!(node.metadata.permit(guest, Rule::Poll(StreamId(0), TopicId(0))).is_ok());
    let delete = node.plan(|planner| planner.delete_topic(0, 0));
    node.request(delete);
    node.plain_topic(0, 1, "new");
    assert!(node.metadata.permit(guest, Rule::Poll(StreamId(0), TopicId(0))).is_err());
    node.delete_stream("b");
    node.stream("c");
    assert!(node.metadata.permit(guest, Rule::ReadStream(StreamId(1))).is_err());
    assert!(node.metadata.permit(ROOT, Rule::ReadStream(StreamId(1))).is_ok());
    assert!(node.metadata.permit(UserId(7), Rule::Servers).is_err());
}

#[test]
fn a_second_root_changes_nothing() {
    let mut node = Node::new();
    let root = CreateRoot {
        username: "other".into(),
        password_hash: PasswordHash::new("$other"),
        settings: Settings { lanes_per_class: 9, sessions_max: 9, changes_max: 99 },
    };
    let outcome = node.apply(&Command::CreateRoot(root));
    assert_eq!(outcome, Outcome { answer: Answer::Done, effects: vec![] });
    let root = node.metadata.root().unwrap();
    assert_eq!((root.username.as_ref(), root.password_hash.phc()), ("root", "$phc"));
    assert_eq!(node.metadata.settings().lanes_per_class, 2);
}

#[test]
fn replies_encode_the_same_whenever_they_are_repeated() {
    use crate::views::Replicas;
    use bytes::BytesMut;
    use laneway_wire::reply::{TopicDetails, split_result};
    use laneway_wire::{ProtocolVersion, Reader};

    let mut node = Node::new();
    node.stream("a");
    let create = node.plan(|planner| planner.create_topic("a", 3, "t", Options::EMPTY)).unwrap();
    let outcome = node.request(create);
    let replicas = Replicas { members: &[1], in_sync: &[1] };
    for version in [ProtocolVersion::V0_12_1, ProtocolVersion::V0_12_2] {
        let mut body = BytesMut::new();
        committed(&outcome).put_body(&mut body, version, replicas);
        let (status, payload) = split_result(&body).unwrap();
        assert_eq!(status, Status::Ok);
        let details = TopicDetails::read(&mut Reader::new(payload), version).unwrap();
        let (_, topic) = node.metadata.topic("a", "t").unwrap();
        assert_eq!(details.header, topic.header(Default::default()));
        assert_eq!(details.partitions.len(), 3);
        let context = details.partitions[2].context;
        assert_eq!((context.incarnation.0, context.metadata_op), (4, Op(4)));
        node.delete_partitions(1);
        node.add_partitions(1);
        let mut repeated = BytesMut::new();
        committed(&outcome).put_body(&mut repeated, version, replicas);
        assert_eq!(body, repeated);
    }
}

mod users;
