//! The change log. Source: resources, section 20.

use bytes::BytesMut;
use laneway_wire::reply::{
    ChangeBody, ChangePhase, ChangesPage, ChangesStatus, PermissionsChanged, SessionClosed, StateBody,
};
use laneway_wire::request::{ChangeCursor, ChangeGroup, ChangePageToken, ChangeStart, GetMetadataChanges};

use super::*;
use crate::command::{EndSessions, NewToken, NewUser, PasswordChange};
use crate::limits;
use crate::permissions::{PermissionsRecord, StreamFlags, StreamPermissions};
use crate::tokens::TokenHash;
use crate::users::PasswordHash;

const ALL: GetMetadataChanges<'static> =
    GetMetadataChanges { start: ChangeStart::Earliest, since: None, until: None, limit: 1000, groups: &[] };

impl Node {
    fn page(&self, request: GetMetadataChanges<'_>) -> Vec<u8> {
        let mut out = BytesMut::new();
        self.metadata.put_changes(&request, &mut out);
        // What is answered can be read.
        ChangesPage::parse(&out).expect("a page");
        out.to_vec()
    }

    /// Every record: its op, its ordinal, its group and its kind.
    fn kinds(&self, request: GetMetadataChanges<'_>) -> Vec<(u64, u32, u8, u8)> {
        let bytes = self.page(request);
        let page = ChangesPage::parse(&bytes).unwrap();
        for record in &page.records {
            let known = ChangeBody::parse(record.group, record.kind, record.body).unwrap();
            assert!(known.is_some());
        }
        page.records.iter().map(|record| (record.op.0, record.ordinal, record.group, record.kind)).collect()
    }

    fn status_after(&self, cursor: ChangeCursor, groups: &[u8]) -> ChangesStatus {
        let bytes = self.page(GetMetadataChanges { start: ChangeStart::After(cursor), groups, ..ALL });
        ChangesPage::parse(&bytes).unwrap().status
    }

    fn latest(&self) -> ChangeCursor {
        let bytes = self.page(GetMetadataChanges { start: ChangeStart::Latest, ..ALL });
        let page = ChangesPage::parse(&bytes).unwrap();
        assert!(page.records.is_empty() && !page.has_more);
        page.next.unwrap()
    }

    /// What follows `cursor`.
    fn follow(&self, cursor: ChangeCursor) -> Vec<(u64, u32, u8, u8)> {
        self.kinds(GetMetadataChanges { start: ChangeStart::After(cursor), ..ALL })
    }

    fn ok(&mut self, mutation: Mutation) {
        let outcome = self.request(mutation);
        assert_eq!(committed(&outcome).status, Status::Ok);
    }

    fn give_user(&mut self, name: &str, grants: Option<PermissionsRecord>) {
        self.ok(Mutation::CreateUser(NewUser {
            username: name.into(),
            password_hash: Some(PasswordHash::new("$old")),
            status: UserStatus::Active,
            permissions: grants,
            options: Vec::new(),
        }));
    }

    fn give_token(&mut self, name: &str) {
        let hash = TokenHash([name.len() as u8; 32]);
        self.ok(Mutation::CreateToken(NewToken {
            name: name.into(),
            hash,
            lives_us: Some(5),
            tokens_max: 9,
        }));
    }
}

fn grant_on(stream: u32) -> PermissionsRecord {
    let mut permissions = Permissions::default();
    let grant = StreamPermissions { flags: StreamFlags::READ_STREAM, topics: Default::default() };
    permissions.streams.insert(StreamId(stream), grant);
    PermissionsRecord::from(&permissions)
}

#[test]
fn each_change_is_told_once_and_a_refusal_not_at_all() {
    // S106, S107
    let mut node = Node::new();
    assert_eq!(node.kinds(ALL), [(1, 0, 6, 50), (2, 0, 8, 70)], "root and its session");
    let mut expected = Vec::new();
    let mut check = |node: &mut Node, kinds: &[(u8, u8)], cursor: ChangeCursor| {
        let op = node.metadata.applied().0;
        let told: Vec<_> =
            (0..).zip(kinds).map(|(ordinal, (group, kind))| (op, ordinal, *group, *kind)).collect();
        assert_eq!(node.follow(cursor), told);
        expected.extend(told);
        node.latest()
    };
    let mut at = node.latest();
    node.stream("s");
    at = check(&mut node, &[(1, 1)], at);
    assert_eq!(node.stream("s"), 1012);
    at = check(&mut node, &[], at);
    node.plain_topic(0, 2, "t");
    at = check(&mut node, &[(2, 10)], at);
    node.add_partitions(2);
    at = check(&mut node, &[(3, 20)], at);
    node.delete_partitions(3);
    at = check(&mut node, &[(3, 20)], at);
    node.give_user("alice", Some(grant_on(0)));
    at = check(&mut node, &[(6, 50)], at);
    let alice = || Ref::Name("alice".into());
    node.ok(Mutation::UpdatePermissions { user: alice(), permissions: Some(grant_on(0)) });
    at = check(&mut node, &[(6, 54)], at);
    let change = PasswordChange { verified: PasswordHash::new("$old"), new: PasswordHash::new("$new") };
    node.ok(Mutation::ChangePassword { user: alice(), change: Some(change) });
    at = check(&mut node, &[(6, 53)], at);
    node.ok(Mutation::UpdateUser { user: alice(), username: Some("bob".into()), status: None });
    at = check(&mut node, &[(6, 51)], at);
    node.give_token("one");
    at = check(&mut node, &[(7, 60)], at);
    node.ok(Mutation::DeleteToken { name: "one".into() });
    at = check(&mut node, &[(7, 61)], at);
    node.ok(Mutation::UpdateStream { stream: Ref::Id(0), name: "r".into() });
    at = check(&mut node, &[(1, 2)], at);
    node.ok(Mutation::UpdateTopic {
        stream: Ref::Id(0),
        topic: Ref::Id(0),
        name: Some("u".into()),
        options: vec![],
    });
    at = check(&mut node, &[(2, 11)], at);
    node.delete_stream("r");
    at = check(&mut node, &[(1, 3), (6, 54)], at);
    node.ok(Mutation::DeleteUser { user: Ref::Name("bob".into()) });
    at = check(&mut node, &[(6, 52)], at);
    let session = node.session;
    let client = ClientId(78);
    node.register(client);
    at = check(&mut node, &[(8, 70)], at);
    let epoch = SessionEpoch(node.metadata.applied().0);
    let sessions = vec![SessionId { client, epoch }, SessionId { client: CLIENT, epoch: SessionEpoch(99) }];
    node.apply(&Command::EndSessions(EndSessions { sessions, reason: EndReason::Expired }));
    at = check(&mut node, &[(8, 71)], at);
    assert!(node.metadata.sessions().live(CLIENT, session).is_some());
    node.ok(Mutation::Logout);
    check(&mut node, &[(8, 71)], at);
    assert_eq!(node.kinds(ALL)[2..], expected);
}

#[test]
fn records_say_who_and_what() {
    let mut node = Node::new();
    node.stream("s");
    node.give_user("alice", Some(grant_on(0)));
    let at = node.latest();
    node.delete_stream("s");
    let bytes = node.page(GetMetadataChanges { start: ChangeStart::After(at), ..ALL });
    let page = ChangesPage::parse(&bytes).unwrap();
    assert_eq!(page.records.iter().map(|record| record.actor).collect::<Vec<_>>(), [Some(ROOT); 2]);
    let body = |index: usize| {
        let record = page.records[index];
        ChangeBody::parse(record.group, record.kind, record.body).unwrap().unwrap()
    };
    let ChangeBody::StreamDeleted { life, name, requested_op, .. } = body(0) else {
        panic!("a stream is gone")
    };
    assert_eq!((life.stream, life.created_op, name, requested_op.0), (StreamId(0), Op(3), "s", None));
    let ChangeBody::PermissionsUpdated { permissions, reason, .. } = body(1) else {
        panic!("a grant is gone")
    };
    assert_eq!(reason, PermissionsChanged::ResourceDeleted);
    assert!(permissions.0.is_some_and(|permissions| permissions.streams.is_empty()));
    let client = ClientId(5);
    node.register(client);
    node.ok(Mutation::Logout);
    let bytes = node.page(GetMetadataChanges { groups: &[8], ..ALL });
    let page = ChangesPage::parse(&bytes).unwrap();
    let last = page.records.last().unwrap();
    let closed = ChangeBody::parse(last.group, last.kind, last.body).unwrap().unwrap();
    assert!(matches!(
        closed,
        ChangeBody::SessionClosed { reason: SessionClosed::Logout, client: CLIENT, .. }
    ));
}

#[test]
fn pages_of_any_size_tell_everything_once() {
    let mut node = Node::new();
    for index in 0..20 {
        node.stream(&format!("s{index}"));
        node.register(ClientId(1000 + index % 3));
        if index % 3 == 0 {
            node.delete_stream(&format!("s{index}"));
        }
    }
    let groups: [&[u8]; 4] = [&[], &[1], &[8], &[6, 8, 8]];
    for groups in groups {
        let whole = node.kinds(GetMetadataChanges { groups, ..ALL });
        for limit in [1, 2, 7, 1000] {
            let (mut told, mut start, mut pages) = (Vec::new(), ChangeStart::Earliest, 0);
            loop {
                let request = GetMetadataChanges { start, limit, groups, ..ALL };
                told.extend(node.kinds(request));
                let bytes = node.page(request);
                let page = ChangesPage::parse(&bytes).unwrap();
                assert!(page.records.len() <= limit as usize);
                assert_eq!((page.status, page.phase), (ChangesStatus::Ok, ChangePhase::Changes));
                start = ChangeStart::After(page.next.unwrap());
                pages += 1;
                if !page.has_more {
                    break;
                }
            }
            assert_eq!(told, whole, "{groups:?} by {limit}");
            assert_eq!(pages, whole.len().div_ceil(limit as usize).max(1), "no page is empty");
        }
    }
}

#[test]
fn times_bound_a_page_on_both_sides() {
    let mut node = Node::new();
    (0..10).for_each(|index| assert_eq!(node.stream(&format!("s{index}")), 0));
    // Op n has the time n ms.
    let between = |since: Option<u64>, until: Option<u64>| {
        let (since, until) = (since.map(Micros), until.map(Micros));
        let told = node.kinds(GetMetadataChanges { since, until, groups: &[1], ..ALL });
        told.iter().map(|(op, ..)| *op).collect::<Vec<_>>()
    };
    assert_eq!(between(Some(5_000), Some(7_000)), [5, 6, 7]);
    assert_eq!(between(Some(11_001), None), [12]);
    assert_eq!(between(None, Some(3_999)), [3]);
    assert_eq!(between(Some(20_000), None), [0; 0]);
}

#[test]
fn what_was_pushed_out_is_expired_and_the_classes_do_not_push_each_other() {
    // S108
    let mut node = Node::with(Settings { lanes_per_class: 1, sessions_max: 8, changes_max: 16 });
    let start = ChangeCursor { log_id: node.latest().log_id, ..ChangeCursor::default() };
    node.stream("kept");
    let kept = node.latest();
    for round in 0..40 {
        node.register(ClientId(500));
        let session = SessionId { client: ClientId(500), epoch: SessionEpoch(node.metadata.applied().0) };
        node.apply(&Command::EndSessions(EndSessions {
            sessions: vec![session],
            reason: EndReason::Expired,
        }));
        assert!(node.kinds(ALL).len() <= 16 + 2, "round {round}");
    }
    assert_eq!(node.status_after(start, &[1, 6]), ChangesStatus::Ok, "resources are all there");
    assert_eq!(node.kinds(GetMetadataChanges { groups: &[1], ..ALL }), [(3, 0, 1, 1)]);
    assert_eq!(node.status_after(start, &[8]), ChangesStatus::Expired);
    assert_eq!(node.status_after(kept, &[]), ChangesStatus::Expired);
    assert_eq!(node.status_after(kept, &[1]), ChangesStatus::Ok);
    let bytes = node.page(GetMetadataChanges { groups: &[8], ..ALL });
    let page = ChangesPage::parse(&bytes).unwrap();
    assert_eq!((page.status, page.records.len()), (ChangesStatus::Ok, 16), "earliest is what is left");
    assert_eq!(page.oldest_op, page.records[0].op);
    assert_eq!(page.retained_since.0, (page.oldest_op.0 - 1) * 1000);
    let bytes = node.page(GetMetadataChanges { groups: &[1], ..ALL });
    let page = ChangesPage::parse(&bytes).unwrap();
    assert_eq!((page.oldest_op, page.retained_since), (Op(1), Micros(0)));
    assert_eq!(page.head_op, node.metadata.applied());
}

#[test]
fn places_of_other_histories_are_told_apart() {
    // S108
    let mut node = Node::new();
    node.stream("s");
    let cursor = node.latest();
    let other = ChangeCursor { log_id: cursor.log_id ^ 1, ..cursor };
    let forged = ChangeCursor { checksum: cursor.checksum ^ 1, ..cursor };
    let ahead = ChangeCursor { op: Op(99), ..cursor };
    let statuses = [cursor, other, forged, ahead].map(|cursor| node.status_after(cursor, &[]));
    use ChangesStatus::*;
    assert_eq!(statuses, [Ok, Reset, Reset, Behind]);
    // Put back to an older state, and gone on from there.
    let mut again = Node::new();
    let snapshot = again.metadata.to_snapshot();
    again.stream("one");
    let lost = again.latest();
    again.metadata = Metadata::from_snapshot(&snapshot).unwrap();
    assert_eq!(again.status_after(lost, &[]), Behind);
    again.stream("two");
    assert_eq!(again.latest().op, lost.op);
    assert_eq!(again.status_after(lost, &[]), Reset);
}

#[test]
fn current_state_is_paged_in_order_and_followed_from_before_it() {
    // S110 is the wire's
    let mut node = Node::new();
    for stream in 0..3 {
        node.stream(&format!("s{stream}"));
        for topic in 0..3 {
            node.plain_topic(stream, topic, &format!("t{topic}"));
        }
    }
    node.give_user("alice", None);
    ["one", "second"].into_iter().for_each(|name| node.give_token(name));
    (0..4).for_each(|client| drop(node.register(ClientId(50 - client))));
    let request = GetMetadataChanges { start: ChangeStart::Current(None), ..ALL };
    let bytes = node.page(request);
    let whole = ChangesPage::parse(&bytes).unwrap();
    assert!(!whole.has_more && whole.token.is_none());
    let counts = |group: u8| whole.items.iter().filter(|item| item.group == group).count();
    assert_eq!([1, 2, 3, 4, 5, 6, 7, 8].map(counts), [3, 9, 9, 0, 0, 2, 2, 5]);
    assert!(whole.items.is_sorted_by_key(|item| item.group));
    for item in &whole.items {
        assert!(StateBody::parse(item.group, item.group, item.body).unwrap().is_some());
    }
    let groups: Vec<u8> = (1..=8).collect();
    for limit in [1, 2, 5, 30] {
        let mut items = Vec::new();
        let mut token_bytes = BytesMut::new();
        loop {
            let token = token_bytes.get(2..).map(|bytes| ChangePageToken::parse(bytes).unwrap());
            let request =
                GetMetadataChanges { start: ChangeStart::Current(token), limit, groups: &groups, ..ALL };
            let bytes = node.page(request);
            let page = ChangesPage::parse(&bytes).unwrap();
            assert_eq!(
                (page.status, page.next, page.has_more),
                (ChangesStatus::Ok, whole.next, page.token.is_some())
            );
            items.extend(page.items.iter().map(|item| (item.group, item.body.to_vec())));
            token_bytes.clear();
            match page.token {
                Some(token) => token.put_prefixed(&mut token_bytes),
                None => break,
            }
        }
        let expected: Vec<_> = whole.items.iter().map(|item| (item.group, item.body.to_vec())).collect();
        assert_eq!(items, expected, "by {limit}");
    }
    node.stream("later");
    assert_eq!(node.follow(whole.next.unwrap()), [(node.metadata.applied().0, 0, 1, 1)]);
    let groups = [ChangeGroup::Streams as u8];
    let token = ChangePageToken {
        anchor: whole.next.unwrap(),
        required_head: Op(10_000),
        groups_mask: 1,
        group: ChangeGroup::Streams,
        key: &[1, 0, 0, 0],
    };
    let request = GetMetadataChanges { start: ChangeStart::Current(Some(token)), groups: &groups, ..ALL };
    let bytes = node.page(request);
    let page = ChangesPage::parse(&bytes).unwrap();
    assert_eq!((page.status, page.token, page.has_more), (ChangesStatus::Behind, Some(token), false));
}

#[test]
fn a_snapshot_holds_the_log() {
    let mut node = Node::with(Settings { lanes_per_class: 1, sessions_max: 8, changes_max: 16 });
    (0..30).for_each(|index| assert_eq!(node.stream(&format!("s{index}")), 0));
    let before = node.page(ALL);
    node.metadata = Metadata::from_snapshot(&node.metadata.to_snapshot()).unwrap();
    assert_eq!(node.page(ALL), before);
}

#[test]
fn large_records_push_out_by_bytes() {
    let mut node = Node::new();
    let mut permissions = Permissions::default();
    node.stream("s");
    let grant = StreamPermissions { flags: StreamFlags::READ_STREAM, topics: Default::default() };
    permissions.streams.insert(StreamId(0), grant);
    node.give_user("alice", None);
    let user = || Ref::Name("alice".into());
    node.ok(Mutation::UpdatePermissions {
        user: user(),
        permissions: Some(PermissionsRecord::from(&permissions)),
    });
    for _ in 0..40 {
        let mut alice = User::clone(node.metadata.users.find("alice").unwrap());
        let topics =
            (0..100_000).map(|topic| (TopicId(topic), crate::permissions::TopicFlags::ALL)).collect();
        let grant = StreamPermissions { flags: StreamFlags::READ_STREAM, topics };
        alice.permissions.as_mut().unwrap().streams.insert(StreamId(0), grant);
        node.metadata.note_user(&alice, crate::changes::notes::UserChange::Updated);
        node.metadata.changes.seal(
            Op(99),
            Micros(1),
            &Command::EndSessions(EndSessions { sessions: vec![], reason: EndReason::Expired }),
        );
    }
    let bytes: usize = node.metadata.changes.after((Op(0), 0)).map(|entry| entry.body.len()).sum();
    assert!(bytes <= limits::CHANGE_BYTES_MAX && bytes > limits::CHANGE_BYTES_MAX / 2, "{bytes}");
    let mut out = BytesMut::new();
    node.metadata.put_changes(&ALL, &mut out);
    assert!(out.len() < 8 << 20, "a page ends by its bytes, too: {}", out.len());
}
