//! Every command as every kind of caller, against the table of `docs/permissions.md`: nobody signed in, no grant, each
//! grant alone, root. S55, S60, and the rows behind S61 to S65.

use std::collections::{BTreeMap, BTreeSet};

use laneway_wire::options::{OptionMap, Options};
use laneway_wire::permissions::{GlobalPermissions, Permissions, StreamFlags, TopicPermissions};
use laneway_wire::primitive::Secret;
use laneway_wire::request::{self, ChangeStart, OptionScope, Request, ResetNames, UpdateTarget, UserStatus};
use laneway_wire::{ClientId, Code, Identifier, Operation, PartitionId};

use crate::accounts::{PASSWORD, global, login, on_stream, on_topic};
use crate::client::{AT_CODE, AT_OPERATION, AT_SESSION, Answer, Client, Link, Place, Sent, new_client};
use crate::messages::{Poll, numbered};
use crate::node::Node;
use crate::request as fetch_request;

/// Commands that the broker may still answer with 5, whoever asks. A command that is served leaves this list.
const NOT_SERVED: &[Code] = &[
    Code::GetConsumerGroup,
    Code::GetConsumerGroups,
    Code::CreateConsumerGroup,
    Code::DeleteConsumerGroup,
    Code::JoinConsumerGroup,
    Code::LeaveConsumerGroup,
    Code::SyncConsumerGroup,
];

/// Commands that no table can hold: what opens a session, and what is never served.
const APART: &[Code] = &[
    Code::BindSession,
    Code::LoginRegister,
    Code::LoginRegisterWithPat,
    Code::LoginUser,
    Code::LoginWithPersonalAccessToken,
];

const STREAM: Identifier<'static> = Identifier::Name("matrix");
const TOPIC: Identifier<'static> = Identifier::Name("matrix");

/// The flags of a row, any of which is enough.
#[derive(Debug, Default)]
struct Row {
    anybody: bool,
    signed_in: bool,
    server: BTreeSet<String>,
    stream: BTreeSet<String>,
    topic: BTreeSet<String>,
}

/// One flag, and where it is held.
#[derive(Debug)]
enum Caller {
    Nothing,
    Root,
    Server(&'static str),
    Stream(&'static str),
    Topic(&'static str),
}

impl Caller {
    fn is_allowed(&self, row: &Row) -> bool {
        let holds = match self {
            Caller::Nothing => false,
            Caller::Root => true,
            Caller::Server(flag) => row.server.contains(*flag),
            Caller::Stream(flag) => row.stream.contains(*flag),
            Caller::Topic(flag) => row.topic.contains(*flag),
        };
        row.anybody || row.signed_in || holds
    }
}

/// Flags by name, so that the test states which flag is which without the code that it tests.
macro_rules! flags {
    ($type:ty: $($flag:ident),*) => {
        [$((stringify!($flag), (|flags: &mut $type| flags.$flag = true) as fn(&mut $type))),*]
    };
}

/// Every caller with a session, and what it is granted. The stream and the topic have number 0.
fn callers() -> Vec<(Caller, Option<Permissions>)> {
    let server = flags!(GlobalPermissions: manage_servers, read_servers, manage_users, read_users, manage_streams,
        read_streams, manage_topics, read_topics, poll_messages, send_messages);
    let stream = flags!(StreamFlags: manage_stream, read_stream, manage_topics, read_topics, poll_messages,
        send_messages);
    let topic = flags!(TopicPermissions: manage_topic, read_topic, poll_messages, send_messages);
    let mut callers = vec![(Caller::Nothing, None), (Caller::Nothing, Some(Permissions::default()))];
    callers.extend(server.map(|(name, set)| (Caller::Server(name), global(set))));
    callers.extend(stream.map(|(name, set)| (Caller::Stream(name), on_stream(0, set))));
    callers.extend(topic.map(|(name, set)| (Caller::Topic(name), on_topic(0, 0, set))));
    callers.push((Caller::Root, Some(Permissions::root())));
    callers
}

/// One command as a test asks for it, and the code that an allowed caller gets.
struct Case {
    row: &'static str,
    code: Code,
    allowed: u32,
    frame: Sent,
}

/// Asks in the order in which it stands: what changes the stream and the topic comes last, and nothing else changes them.
fn cases(client: &Client, place: &Place, own_name: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |row, code, allowed, frame: Sent| cases.push(Case { row, code, allowed, frame });
    macro_rules! ask {
        ($row:literal, $allowed:literal, $request:expr) => {{
            let request = $request;
            case($row, code_of(&request), $allowed, client.frame(&request))
        }};
    }
    let (stream, topic, group) = (STREAM, TOPIC, Identifier::Name("group"));
    let other = Identifier::Numeric(0);
    let [password, wrong] = [PASSWORD, "wrong"].map(|text| Secret(text.as_bytes()));

    ask!("Ping (1)", 0, request::Ping {});
    ask!("GetClusterMetadata (12)", 0, request::GetClusterMetadata {});
    ask!("DescribeOptions (13)", 0, request::DescribeOptions { scope: OptionScope::Topic });
    ask!("GetMe (20)", 0, request::GetMe {});
    ask!("GetPersonalAccessTokens (41)", 0, request::GetPersonalAccessTokens {});
    let short = request::CreatePersonalAccessToken { name: "xy", expiry_us: 0 };
    ask!("CreatePersonalAccessToken (42)", 50, short);
    ask!("DeletePersonalAccessToken (43)", 20, request::DeletePersonalAccessToken { name: "missing" });
    ask!("GetUser (31), oneself", 0, request::GetUser { user: Identifier::Name(own_name) });
    let change = request::ChangePassword {
        user: Identifier::Name(own_name),
        current_password: password,
        new_password: password,
    };
    ask!("ChangePassword (37), one's own", 0, change);

    ask!("GetStats (10)", 0, request::GetStats {});
    let types = vec![request::SnapshotType::Test];
    let snapshot = request::GetSnapshot { compression: request::SnapshotCompression::Stored, types };
    ask!("GetSnapshot (11)", 0, snapshot);
    ask!("GetClient (21)", 0, request::GetClient { client_id: u32::MAX });
    ask!("GetClients (22)", 0, request::GetClients {});
    let changes = request::GetMetadataChanges {
        start: ChangeStart::Latest,
        since: None,
        until: None,
        limit: 1,
        groups: &[],
    };
    ask!("GetMetadataChanges (17)", 0, changes);

    ask!("GetUser (31), another", 0, request::GetUser { user: other });
    ask!("GetUsers (32)", 0, request::GetUsers {});
    let taken = request::CreateUser {
        username: "iggy",
        password,
        status: UserStatus::Active,
        permissions: None,
        options: Options::EMPTY,
    };
    ask!("CreateUser (33)", 46, taken);
    ask!("DeleteUser (34)", 48, request::DeleteUser { user: other });
    ask!("UpdatePermissions (36)", 49, request::UpdatePermissions { user: other, permissions: None });
    let active = OptionMap::new().with("status", "active").encode().expect("a block of options");
    let name = OptionMap::new().with("name", "matrix").encode().expect("a block of options");
    let [active, name] = [&active, &name].map(|block| Options::parse(block).expect("a block of options"));
    let update = |target, set| request::UpdateResource { target, reset: ResetNames::NONE, set };
    ask!("UpdateResource (16), a user", 4108, update(UpdateTarget::User { user: other }, active));
    let change = request::ChangePassword {
        user: Identifier::Name("other"),
        current_password: wrong,
        new_password: password,
    };
    ask!("ChangePassword (37), another's", 42, change);

    ask!("GetStreams (201)", 0, request::GetStreams {});
    ask!("CreateStream (202)", 1012, request::CreateStream { name: "matrix", options: Options::EMPTY });
    ask!("GetStream (200)", 0, request::GetStream { stream });
    ask!("UpdateResource (16), a stream", 0, update(UpdateTarget::Stream { stream }, name));
    ask!("GetTopics (301)", 0, request::GetTopics { stream });
    let taken = request::CreateTopic { stream, partitions_count: 1, name: "matrix", options: Options::EMPTY };
    ask!("CreateTopic (302)", 2013, taken);
    ask!("GetTopic (300)", 0, request::GetTopic { stream, topic });
    ask!("UpdateResource (16), a topic", 0, update(UpdateTarget::Topic { stream, topic }, name));
    ask!("CreatePartitions (402)", 0, request::CreatePartitions { stream, topic, partitions_count: 1 });
    ask!("DeletePartitions (403)", 2019, request::DeletePartitions { stream, topic, partitions_count: 900 });
    let partition = PartitionId(0);
    let segments = request::DeleteSegments { stream, topic, partition, segments_count: 1 };
    ask!("DeleteSegments (503)", 0, segments);
    ask!("GetConsumerGroup (600)", 0, request::GetConsumerGroup { stream, topic, group });
    ask!("GetConsumerGroups (601)", 0, request::GetConsumerGroups { stream, topic });
    ask!("CreateConsumerGroup (602)", 0, request::CreateConsumerGroup { stream, topic, name: "group" });
    ask!("JoinConsumerGroup (604)", 0, request::JoinConsumerGroup { stream, topic, group });
    ask!("SyncConsumerGroup (606)", 0, request::SyncConsumerGroup { stream, topic, group });
    ask!("LeaveConsumerGroup (605)", 0, request::LeaveConsumerGroup { stream, topic, group });
    ask!("DeleteConsumerGroup (603)", 0, request::DeleteConsumerGroup { stream, topic, group });

    ask!("GetPartitionRoute (105)", 0, request::GetPartitionRoute { stream, topic, partition });
    case("SendMessages (101)", Code::SendMessages, 0, client.send_frame(place, &["message"]));
    case("PollMessages (100)", Code::PollMessages, 0, client.poll_frame(place, Poll::offset(0)));
    let deferred = client.poll_frame(place, Poll::offset(0).wait_ms(1));
    case("PollMessagesDeferred (106)", Code::PollMessagesDeferred, 0, deferred);
    let fetch = fetch_request::fetch(std::slice::from_ref(place), |place| fetch_request::offset(place, 0));
    let fetch = client.raw(Code::FetchMessages.number(), &fetch.body());
    case("FetchMessages (109)", Code::FetchMessages, 0, fetch);
    let store = client.store_frame(place, numbered(1), 0);
    case("StoreConsumerOffset (121)", Code::StoreConsumerOffset, 0, store);
    let get = client.get_offset_frame(place, numbered(1));
    case("GetConsumerOffset (120)", Code::GetConsumerOffset, 0, get);
    let delete = client.delete_offset_frame(place, numbered(1));
    case("DeleteConsumerOffset (122)", Code::DeleteConsumerOffset, 0, delete);

    ask!("DeleteTopic (303)", 0, request::DeleteTopic { stream, topic });
    ask!("DeleteStream (203)", 0, request::DeleteStream { stream });
    let cancel = client.frame(&request::GetMe {});
    let cancel = cancel.with(AT_CODE, &Code::CancelDeferredRequest.number().to_le_bytes());
    case("CancelDeferredRequest (108)", Code::CancelDeferredRequest, 0, cancel);
    ask!("Logout (39)", 0, request::Logout {});
    cases
}

fn code_of<R: Request>(_: &R) -> Code {
    R::CODE
}

/// The table of the documentation.
fn table() -> BTreeMap<String, Row> {
    let page = include_str!("../../../../docs/permissions.md");
    let lines = page.lines().skip_while(|line| !line.starts_with("| command |")).skip(2);
    let lines = lines.take_while(|line| line.starts_with('|'));
    lines
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let name = cells.next().expect("a row has a name").to_owned();
            let mut flags = || -> BTreeSet<String> {
                let cell = cells.next().unwrap_or_default();
                cell.split(',').map(|flag| flag.trim().to_owned()).filter(|flag| !flag.is_empty()).collect()
            };
            let (server, stream, topic) = (flags(), flags(), flags());
            let (anybody, signed_in) = (server.contains("anybody"), server.contains("signed in"));
            (name, Row { anybody, signed_in, server, stream, topic })
        })
        .collect()
}

/// A stream and a topic with number 0, a message in it, and the user that asks.
fn prepare(root: &mut Client, name: &str, grant: Option<Permissions>) -> Place {
    let place = root.topic("matrix", 1).remove(0);
    root.append(&place, &["first"]);
    root.create_user(name, grant).payload();
    place
}

fn clean_up(root: &mut Client, name: &str) {
    root.delete_user(name).payload();
    let gone = root.ask(&request::DeleteStream { stream: STREAM }).outcome();
    assert!(gone == 0 || gone == 1009);
}

/// c of the permission matrix: one request for each cell.
#[test]
fn every_command_is_allowed_to_whom_the_table_says() {
    let table = table();
    let node = Node::start(2);
    let mut root = node.client();
    root.create_user("other", None).payload();
    let mut wrong = Vec::new();
    for (number, (caller, grant)) in callers().into_iter().enumerate() {
        let name = format!("caller{number}");
        let place = prepare(&mut root, &name, grant);
        // Root asks as itself; its own name and password are what tests everywhere use.
        let mut client = match caller {
            Caller::Root => login(node.address(), "iggy", "iggy").expect("root signs in"),
            _ => login(node.address(), &name, PASSWORD).expect("the caller signs in"),
        };
        let own_name = if matches!(caller, Caller::Root) { "iggy" } else { &name };
        let mut asked = BTreeSet::new();
        for Case { row, code, allowed, frame } in cases(&client, &place, own_name) {
            asked.insert(row);
            let rights = table.get(row).unwrap_or_else(|| panic!("no row {row}"));
            if code == Code::CancelDeferredRequest {
                client.link.send(&frame);
                client.must(&request::GetMe {});
                continue;
            }
            // Root's password is not the one of the others.
            let is_roots_change = matches!(caller, Caller::Root) && row == "ChangePassword (37), one's own";
            let allowed = if is_roots_change { 42 } else { allowed };
            let outcome = client.exchange(&frame).outcome();
            let expected = if caller.is_allowed(rights) { allowed } else { 41 };
            let is_open = outcome == 5 && NOT_SERVED.contains(&code);
            if outcome != expected && !is_open {
                wrong.push(format!("{row} as {caller:?}: {outcome}, not {expected}"));
            }
        }
        let rows: BTreeSet<&str> = table.keys().map(String::as_str).collect();
        let apart = |row: &&&str| APART.iter().any(|code| row.contains(&format!("({})", code.number())));
        assert_eq!(
            rows.difference(&asked).filter(|row| !apart(row)).collect::<Vec<_>>(),
            Vec::<&&str>::new()
        );
        clean_up(&mut root, &name);
    }
    assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every command of the protocol has its row, or is named as one that has none.
#[test]
fn every_command_has_a_row() {
    let table = table();
    for code in Code::ALL {
        let number = format!("{} ({})", code.name(), code.number());
        let rows = table.keys().filter(|row| row.starts_with(&number)).count();
        assert_eq!(rows > 0, !code.is_legacy_login(), "{number}");
    }
}

/// S55: without a session there is ping, and what opens one.
#[test]
fn nobody_is_served_without_a_session() {
    let table = table();
    let node = Node::start(2);
    let mut root = node.client();
    let place = root.topic("matrix", 1).remove(0);
    for Case { row, code, frame, .. } in cases(&root, &place, "iggy") {
        let client = new_client();
        let frame = strange(&frame, client);
        let mut link = Link::open(node.address());
        if code == Code::CancelDeferredRequest {
            link.send(&frame);
            continue;
        }
        let operation = Operation::from_byte(frame.bytes[AT_OPERATION]).expect("a declared operation");
        match (link.ask(&frame), operation) {
            (Answer::Reply(reply), Operation::NonReplicated) => {
                let expected = if table[row].anybody { 0 } else { 40 };
                assert_eq!((reply.status(), reply.body().len()), (expected, 0), "{row}");
            }
            (answer, operation) => {
                assert!(operation.is_replicated(), "{row}: {answer:?}");
                answer.assert_eviction(1, client);
            }
        }
    }
    for code in [Code::LoginUser, Code::LoginWithPersonalAccessToken] {
        let client = new_client();
        let frame = crate::client::stranger_with_code(client, code.number());
        Link::open(node.address()).ask(&frame).assert_eviction(15, client);
    }
    root.assert_alive();
}

/// The request as somebody sends it who has no session. A change needs a session in its header, or it is no request.
fn strange(frame: &Sent, client: ClientId) -> Sent {
    let is_read = frame.header().operation == Operation::NonReplicated.byte();
    let session = if is_read { 0u64 } else { 1 };
    frame.with(crate::client::AT_CLIENT, &client.0.to_le_bytes()).with(AT_SESSION, &session.to_le_bytes())
}
