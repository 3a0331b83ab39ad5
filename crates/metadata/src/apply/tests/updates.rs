//! Updates of streams and topics. Source: resources, sections 10.4 and 10.5.

use laneway_wire::request::ResetNames;

use super::*;

impl Node {
    fn rename(&mut self, stream: &str, name: &str) -> u32 {
        let set = options(&[("name", name)]).encode().unwrap();
        let stream = Identifier::from_text(stream);
        self.status(|planner| planner.update_stream(stream, ResetNames::NONE, Options::parse(&set).unwrap()))
    }

    fn update_topic(&mut self, topic: &str, set: &[(&str, &str)], reset: &[&str]) -> u32 {
        let set = options(set).encode().unwrap();
        let set = Options::parse(&set).unwrap();
        self.status(|planner| {
            planner.update_topic(0, Identifier::from_text(topic), ResetNames::Listed(reset), set)
        })
    }

    /// A stored value of topic 0 and whether the client chose it.
    fn stored(&self, key: &str) -> (Option<u64>, bool) {
        let (_, topic) = self.metadata.topic(0, 0).unwrap();
        let entry = topic.options.set().entry(key).unwrap();
        (entry.value.as_u64(), entry.explicit)
    }
}

#[test]
fn a_stream_takes_a_free_name_or_its_own() {
    let mut node = Node::new();
    node.stream("a");
    node.stream("b");
    assert_eq!([node.rename("a", "b"), node.rename("a", "a"), node.rename("a", "c")], [1012, 0, 0]);
    assert_eq!(node.ids(), [(0, "c".into()), (1, "b".into())]);
    let longest = "n".repeat(255);
    assert_eq!([node.rename("a", "d"), node.rename("c", &longest), node.stream("a")], [1009, 0, 0]);
}

#[test]
fn a_topic_changes_its_name_and_its_settings_at_once() {
    let mut node = Node::new();
    node.stream("s");
    node.plain_topic(0, 1, "t");
    node.plain_topic(0, 1, "u");
    assert_eq!(node.update_topic("t", &[("message_expiry", "5 s"), ("name", "u")], &[]), 2013);
    assert_eq!(node.stored("message_expiry"), (Some(u64::MAX), false), "all or nothing");
    let set = [("message_expiry", "5 s"), ("name", "v"), ("max_topic_size", "2 GiB")];
    assert_eq!(node.update_topic("t", &set, &[]), 0);
    let (_, topic) = node.metadata.topic(0, "v").unwrap();
    assert_eq!((topic.settings.message_expiry, topic.settings.max_topic_size), (5_000_000, 2 << 30));
    assert_eq!(node.stored("message_expiry"), (Some(5_000_000), true));
    assert!(node.metadata.topic(0, "t").is_err());
    let place = node.metadata.partition(0, 0, PartitionId(0)).unwrap();
    assert_eq!(place.settings.message_expiry, 5_000_000, "what the shards read");
}

#[test]
fn a_reset_gives_the_default_of_the_server_and_is_derived() {
    let mut node = Node::new();
    node.stream("s");
    node.topic(0, 1, "t", &options(&[("max_topic_size", "2 GiB"), ("message_expiry", "1 s")]));
    node.settings.option_defaults.max_topic_size = 7 << 30;
    assert_eq!(node.update_topic("t", &[("message_expiry", "2 s")], &["max_topic_size"]), 0);
    assert_eq!(node.stored("max_topic_size"), (Some(7 << 30), false));
    assert_eq!(node.stored("message_expiry"), (Some(2_000_000), true));
}

#[test]
fn what_cannot_change_is_refused_in_order() {
    let mut node = Node::new();
    node.stream("s");
    node.plain_topic(0, 1, "t");
    let mut update = |set: &[(&str, &str)], reset: &[&str]| node.update_topic("t", set, reset);
    assert_eq!([update(&[], &[]), update(&[("message_expiry", "0")], &[])], [3, 3]);
    assert_eq!(update(&[("flavour", "x")], &["critical_keys"]), 4041);
    assert_eq!(update(&[("segment_size", "1 MiB")], &["critical_keys"]), 4105);
    assert_eq!([update(&[("segment_size", "1 MiB")], &["name"]), update(&[], &["segment_size"])], [4103; 2]);
    assert_eq!(
        [update(&[("max_topic_size", "x")], &["name"]), update(&[("max_topic_size", "x")], &[])],
        [4104, 4042]
    );
    assert_eq!(update(&[("max_topic_size", "10 KiB")], &[]), 1019);
    assert_eq!([node.update_topic("gone", &[("name", "x")], &[]), node.rename("9", "x")], [2010, 1009]);
}

#[test]
fn a_plan_for_a_topic_that_was_replaced_is_checked_against_the_new_one() {
    let mut node = Node::new();
    node.stream("s");
    node.topic(0, 1, "t", &options(&[("segment_size", "1 MiB")]));
    let set = options(&[("max_topic_size", "1 MiB")]).encode().unwrap();
    let set = Options::parse(&set).unwrap();
    let planned = node.plan(|planner| planner.update_topic(0, "t", ResetNames::NONE, set)).unwrap();
    let delete = node.plan(|planner| planner.delete_topic(0, "t"));
    node.request(delete);
    node.plain_topic(0, 1, "t");
    let outcome = node.request(planned);
    assert_eq!(committed(&outcome).status, Status::InvalidTopicSize);
}
