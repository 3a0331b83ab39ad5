//! What a node is set to decides the options of the topics that it creates from then on, and of no other.

use bytes::BytesMut;
use laneway_metadata::options::{OptionDefaults, Scope};
use laneway_metadata::views::put_descriptions;
use laneway_metadata::{
    Answer, Command, CreateRoot, Durability, Metadata, Mutation, PasswordHash, PlanSettings, Planner, ROOT,
    ROOT_CREATED_AT, Register, RequestIdentity, Settings, Topic, Verifier,
};
use laneway_wire::options::{OptionMap, Options};
use laneway_wire::reply::parse_option_descriptors;
use laneway_wire::{ClientId, Micros, ProtocolVersion, RequestNumber, SessionEpoch};

const SMALL: OptionDefaults = OptionDefaults {
    message_expiry: 5_000_000,
    max_topic_size: 8 << 20,
    segment_size: 2 << 20,
    durability: Durability::Replicated,
    consumer_offset_durability: Durability::Replicated,
    replication_factor: 1,
};

/// A node with root signed in.
struct Node {
    metadata: Metadata,
    settings: PlanSettings,
}

impl Node {
    fn new(option_defaults: OptionDefaults) -> Self {
        let settings = PlanSettings { option_defaults, ..PlanSettings::default() };
        let mut node = Self { metadata: Metadata::new(), settings };
        node.apply(&Command::CreateRoot(CreateRoot {
            username: "root".into(),
            password_hash: PasswordHash::new("$phc"),
            settings: Settings::default(),
        }));
        node.apply(&Command::Register(Register {
            client: ClientId(1),
            user: ROOT,
            user_created_at: ROOT_CREATED_AT,
            verifier: Verifier([1; 32]),
            token: None,
        }));
        let planned = node.planner().create_stream("s", Options::EMPTY).unwrap();
        node.request(planned);
        node
    }

    fn planner(&self) -> Planner<'_> {
        Planner { metadata: &self.metadata, settings: &self.settings, user: ROOT }
    }

    fn apply(&mut self, command: &Command) -> Answer {
        let op = self.metadata.applied().next();
        self.metadata.apply(op, Micros(op.0), command).answer
    }

    fn request(&mut self, mutation: Mutation) {
        let identity = RequestIdentity {
            client: ClientId(1),
            session: SessionEpoch(2),
            request: RequestNumber(self.metadata.applied().0),
            request_checksum: 0,
            user: ROOT,
            operation: 128,
        };
        match self.apply(&Command::Request(identity, mutation)) {
            Answer::Committed(reply) => assert!(reply.status.is_ok(), "{:?}", reply.status),
            other => panic!("not executed: {other:?}"),
        }
    }

    fn create_topic(&mut self, name: &str, options: &OptionMap) -> Result<(), u32> {
        let block = options.encode().unwrap();
        let planned = self.planner().create_topic("s", 1, name, Options::parse(&block).unwrap());
        self.request(planned.map_err(|refusal| refusal.status.number())?);
        Ok(())
    }

    fn topic(&self, name: &str) -> &Topic {
        self.metadata.topic("s", name).unwrap().1
    }
}

fn limits(topic: &Topic) -> [u64; 3] {
    [topic.settings.message_expiry, topic.settings.max_topic_size, topic.settings.segment_size]
}

fn durabilities(topic: &Topic) -> [Durability; 2] {
    [topic.settings.durability, topic.settings.consumer_offset_durability]
}

#[test]
fn a_new_topic_gets_what_the_node_is_set_to_as_derived_options() {
    let mut node = Node::new(SMALL);
    node.create_topic("plain", &OptionMap::new()).unwrap();
    let topic = node.topic("plain");
    assert_eq!(limits(topic), [5_000_000, 8 << 20, 2 << 20]);
    assert_eq!(durabilities(topic), [Durability::Replicated; 2]);
    assert_eq!(topic.options.explicit().iter().count(), 0);
    let derived = topic.options.derived();
    assert_eq!(derived.get("durability").and_then(|value| value.as_text()), Some("replicated"));
    // The lane is one of the class that the default asks for.
    let (_, partition) = topic.partitions().next().unwrap();
    let class = node.metadata.lanes().class_of(partition.lane);
    assert_eq!(class.map(|class| class.durability), Some(Durability::Replicated));
}

#[test]
fn what_the_creator_names_wins_and_is_checked_against_the_rest() {
    let mut node = Node::new(SMALL);
    let persisted = OptionMap::new().with("durability", "persisted").with("segment_size", "4 MiB");
    node.create_topic("own", &persisted).unwrap();
    assert_eq!(limits(node.topic("own")), [5_000_000, 8 << 20, 4 << 20]);
    assert_eq!(durabilities(node.topic("own")), [Durability::Persisted, Durability::Replicated]);
    // A topic of 8 MiB cannot hold a segment of 16 MiB; 0 asks for the default, which holds none either.
    let large = OptionMap::new().with("segment_size", "16 MiB");
    assert_eq!(node.create_topic("large", &large), Err(1019));
    assert_eq!(node.create_topic("large", &large.with("max_topic_size", "0")), Err(1019));
}

#[test]
fn another_default_changes_no_topic_that_exists() {
    let mut node = Node::new(SMALL);
    node.create_topic("before", &OptionMap::new()).unwrap();
    let before = node.topic("before").clone();

    // As after a restart with another configuration: the state comes from disk, the settings do not.
    let metadata = Metadata::from_snapshot(&node.metadata.to_snapshot()).unwrap();
    let mut node = Node { metadata, settings: PlanSettings::default() };
    node.create_topic("after", &OptionMap::new()).unwrap();
    let kept = node.topic("before");
    assert_eq!((kept.settings, &kept.options), (before.settings, &before.options));
    assert_eq!(limits(node.topic("after")), [u64::MAX, u64::MAX, 1 << 30]);
    assert_eq!(durabilities(node.topic("after")), [Durability::Persisted; 2]);
}

#[test]
fn descriptions_name_the_defaults_of_the_node() {
    let mut body = BytesMut::new();
    put_descriptions(&mut body, Scope::Topic, ProtocolVersion::V0_12_2, &SMALL);
    let rows = parse_option_descriptors(&body).unwrap();
    let default = |key: &str| rows.iter().find(|row| row.key == key).unwrap().default;
    assert_eq!(default("message_expiry"), 5_000_000u64.to_le_bytes());
    assert_eq!(default("max_topic_size"), (8u64 << 20).to_le_bytes());
    assert_eq!(default("segment_size"), (2u64 << 20).to_le_bytes());
    assert_eq!(default("durability"), b"replicated");
    assert_eq!(default("consumer_offset_durability"), b"replicated");
    assert_eq!(default("replication_factor"), 1u32.to_le_bytes());
    assert_eq!(default("partition_resize_policy"), b"mutable");
}
