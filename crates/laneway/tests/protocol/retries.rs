//! Every operation that a log orders, sent again: on the same connection, on another one, after a restart. It takes
//! effect once, and its answer is the original one, refusals included. Source: wire protocol, section 2.8; resources,
//! section 14.

use laneway_wire::options::{OptionMap, Options};
use laneway_wire::primitive::Secret;
use laneway_wire::request::{
    ChangePassword, CreateConsumerGroup, CreatePartitions, CreatePersonalAccessToken, CreateStream,
    CreateTopic, CreateUser, DeleteConsumerGroup, DeletePartitions, DeletePersonalAccessToken, DeleteStream,
    DeleteTopic, DeleteUser, JoinConsumerGroup, LeaveConsumerGroup, ResetNames, UpdatePermissions,
    UpdateResource, UpdateTarget, UserStatus,
};
use laneway_wire::{Identifier, Operation};

use crate::client::{Client, Sent};
use crate::messages::numbered;
use crate::node::Node;

/// One operation, and what it has to be answered with.
struct Case {
    what: &'static str,
    frame: Sent,
    outcome: u32,
    /// What a repetition is answered with, where that is not the first answer.
    repeated: Option<u32>,
}

impl Case {
    fn new(what: &'static str, frame: Sent, outcome: u32) -> Self {
        Self { what, frame, outcome, repeated: None }
    }
}

fn user_frame(client: &Client, username: &str) -> Sent {
    client.frame(&CreateUser {
        username,
        password: Secret(b"password"),
        status: UserStatus::Active,
        permissions: None,
        options: Options::EMPTY,
    })
}

fn update_frame(client: &Client, target: UpdateTarget<'_>, key: &str, value: &str) -> Sent {
    let block = OptionMap::new().with(key, value).encode().expect("a block");
    let set = Options::parse(&block).expect("a block");
    client.frame(&UpdateResource { target, reset: ResetNames::NONE, set })
}

/// Requests of one operation: one that succeeds and one that is refused when it is applied. No wildcard: a new operation
/// has to say here how it is repeated.
fn cases(operation: Operation, client: &mut Client) -> Vec<Case> {
    let stream_name = format!("{operation:?}");
    let user_name = format!("user-{}", operation.byte());
    let (stream, topic) = (Identifier::Name(&stream_name), Identifier::Name(&stream_name));
    let (user, missing) = (Identifier::Name(&user_name), Identifier::Name("missing"));
    let place = client.topic(&stream_name, 2).remove(0);
    client.append(&place, &["a", "b"]);
    let make_user = |client: &mut Client| {
        let frame = user_frame(client, &user_name);
        assert_eq!(client.exchange(&frame).outcome(), 0);
    };
    match operation {
        // Sessions have tests of their own: `sessions`.
        Operation::Register | Operation::Logout | Operation::NonReplicated => vec![],
        // A client may not send what only servers originate.
        Operation::CreateTopicWithAssignments
        | Operation::CreatePartitionsWithAssignments
        | Operation::RemoveConsumerGroupMember
        | Operation::CompleteConsumerGroupRevocation
        | Operation::TruncatePartition
        | Operation::FinalizeSession
        | Operation::CompleteLifecycle
        | Operation::UpdateStreamResolved
        | Operation::UpdateTopicResolved
        | Operation::UpdateUserResolved
        | Operation::RewrapStreamKeys
        | Operation::RetireSession
        | Operation::InstallConsumerGroupOwner
        | Operation::TransitionPartitionHistory
        | Operation::RetireConsumerGroupOwners => vec![],
        // See `retention::repeated_delete_of_segments_removes_once`.
        Operation::DeleteSegments => vec![],
        Operation::CreateStream => {
            let create = |name| CreateStream { name, options: Options::EMPTY };
            vec![
                Case::new("a new stream", client.frame(&create("another")), 0),
                Case::new("a name that is taken", client.frame(&create(&stream_name)), 1012),
            ]
        }
        Operation::DeleteStream => vec![
            Case::new("a stream", client.frame(&DeleteStream { stream }), 0),
            Case::new("a missing stream", client.frame(&DeleteStream { stream: missing }), 1009),
        ],
        Operation::CreateTopic => {
            let create = |name| CreateTopic { stream, partitions_count: 2, name, options: Options::EMPTY };
            vec![
                Case::new("a new topic", client.frame(&create("another")), 0),
                Case::new("a name that is taken", client.frame(&create(&stream_name)), 2013),
            ]
        }
        Operation::DeleteTopic => vec![
            Case::new("a topic", client.frame(&DeleteTopic { stream, topic }), 0),
            Case::new("a missing topic", client.frame(&DeleteTopic { stream, topic: missing }), 2010),
        ],
        Operation::CreatePartitions => {
            let create = |topic| CreatePartitions { stream, topic, partitions_count: 2 };
            vec![
                Case::new("two more", client.frame(&create(topic)), 0),
                Case::new("of a missing topic", client.frame(&create(missing)), 2010),
            ]
        }
        Operation::DeletePartitions => {
            let delete = |partitions_count| DeletePartitions { stream, topic, partitions_count };
            vec![
                Case::new("one less", client.frame(&delete(1)), 0),
                Case::new("more than there are", client.frame(&delete(9)), 2019),
            ]
        }
        Operation::UpdateResource => {
            make_user(client);
            let of_topic = UpdateTarget::Topic { stream, topic };
            vec![
                Case::new("a topic's expiry", update_frame(client, of_topic, "message_expiry", "5 s"), 0),
                Case::new("a topic's size", update_frame(client, of_topic, "max_topic_size", "10 KiB"), 1019),
                Case::new(
                    "a user's name",
                    update_frame(client, UpdateTarget::User { user }, "username", "renamed"),
                    0,
                ),
                Case::new(
                    "a user that had another name",
                    update_frame(client, UpdateTarget::User { user }, "username", "again"),
                    20,
                ),
                Case::new(
                    "a stream's name",
                    update_frame(client, UpdateTarget::Stream { stream }, "name", "renamed"),
                    0,
                ),
            ]
        }
        Operation::CreateUser => vec![
            Case::new("a new user", user_frame(client, &user_name), 0),
            Case::new("a name that is taken", user_frame(client, &user_name), 46),
        ],
        Operation::DeleteUser => {
            make_user(client);
            vec![
                Case::new("a user", client.frame(&DeleteUser { user }), 0),
                Case::new("root", client.frame(&DeleteUser { user: Identifier::Numeric(0) }), 48),
            ]
        }
        Operation::ChangePassword => {
            make_user(client);
            let change = |user, current: &'static [u8]| ChangePassword {
                user,
                current_password: Secret(current),
                new_password: Secret(b"another one"),
            };
            vec![
                Case::new("a password", client.frame(&change(user, b"password")), 0),
                Case::new("with the password from before", client.frame(&change(user, b"password")), 42),
            ]
        }
        Operation::UpdatePermissions => {
            make_user(client);
            let update = |user| UpdatePermissions { user, permissions: None };
            vec![
                Case::new("of a user", client.frame(&update(user)), 0),
                Case::new("of root", client.frame(&update(Identifier::Numeric(0))), 49),
            ]
        }
        Operation::CreatePersonalAccessToken => {
            let create = CreatePersonalAccessToken { name: &user_name, expiry_us: 0 };
            vec![
                // The token was shown once and is kept nowhere.
                Case { repeated: Some(51), ..Case::new("a new token", client.frame(&create), 0) },
                Case::new("a name that is taken", client.frame(&create), 51),
            ]
        }
        Operation::DeletePersonalAccessToken => {
            client.must(&CreatePersonalAccessToken { name: &user_name, expiry_us: 0 });
            let delete = DeletePersonalAccessToken { name: &user_name };
            vec![
                Case::new("a token", client.frame(&delete), 0),
                Case::new("a token that is gone", client.frame(&delete), 20),
            ]
        }
        Operation::SendMessages => vec![Case::new("a batch", client.send_frame(&place, &["c"]), 0)],
        Operation::StoreConsumerOffset => {
            vec![Case::new("an offset", client.store_frame(&place, numbered(1), 1), 0)]
        }
        Operation::DeleteConsumerOffset => {
            client.store(&place, numbered(1), 1);
            vec![Case::new("an offset", client.delete_offset_frame(&place, numbered(1)), 0)]
        }
        // Refused before anything happened, until the broker serves them.
        Operation::CreateConsumerGroup => {
            vec![Case::new("a group", client.frame(&CreateConsumerGroup { stream, topic, name: "group" }), 5)]
        }
        Operation::DeleteConsumerGroup => {
            vec![Case::new(
                "a group",
                client.frame(&DeleteConsumerGroup { stream, topic, group: missing }),
                5,
            )]
        }
        Operation::JoinConsumerGroup => {
            vec![Case::new("a group", client.frame(&JoinConsumerGroup { stream, topic, group: missing }), 5)]
        }
        Operation::LeaveConsumerGroup => {
            vec![Case::new("a group", client.frame(&LeaveConsumerGroup { stream, topic, group: missing }), 5)]
        }
    }
}

#[test]
fn every_replicated_operation_is_repeated_with_its_original_answer() {
    // S90
    let mut node = Node::start(2);
    let mut kept = Vec::new();
    for operation in Operation::ALL.iter().copied().filter(|operation| operation.is_replicated()) {
        // A session of its own: a session remembers its last five answers.
        let mut client = node.client();
        let mut second = client.another();
        let mut answers = Vec::new();
        for Case { what, frame, outcome, repeated } in cases(operation, &mut client) {
            let what = format!("{operation:?} of {what}");
            let first = client.exchange(&frame);
            assert_eq!(first.outcome(), outcome, "{what}");
            if outcome == 5 {
                assert!(!first.is_committed(), "{what}");
                continue;
            }
            assert!(first.is_committed(), "{what}");
            let again = client.exchange(&frame);
            match repeated {
                None => assert_eq!(again, first, "{what}, on the same connection"),
                Some(code) => again.assert_committed_refusal(code),
            }
            assert_eq!(second.exchange(&frame), again, "{what}, on another connection");
            answers.push((what, frame, again));
        }
        if !answers.is_empty() {
            kept.push((client, answers));
        }
    }
    assert!(kept.len() >= 16, "{} operations are served", kept.len());
    let streams = kept[0].0.must(&laneway_wire::request::GetStreams {});
    for restart in 1..=2 {
        node.restart();
        for (client, answers) in &mut kept {
            *client = client.another();
            for (what, frame, answer) in answers.iter() {
                assert_eq!(client.exchange(frame), *answer, "{what}, after restart {restart}");
            }
        }
    }
    assert_eq!(kept[0].0.must(&laneway_wire::request::GetStreams {}), streams, "nothing took effect twice");
}
