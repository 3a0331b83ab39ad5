//! Every method of the published client: signed in, each answers; not signed in, each that needs a user is refused.

use std::collections::BTreeSet;

use iggy::prelude::*;

use crate::suite::support::{
    TopicNames, anonymous, check_refused, connect, count, create_topic, named, numbered, numbered_messages,
    poll, run, send,
};

/// What a client answers or is answered with when nobody is signed in.
const NO_USER: [u32; 1] = [40];

#[test]
fn administration_answers() {
    run(async |broker| {
        let client = connect(broker).await;
        client.ping().await.expect("ping");
        assert!(!client.get_cluster_metadata().await.expect("cluster").nodes.is_empty());
        for (scope, key) in [
            (OptionsScope::Topic, "segment_size"),
            (OptionsScope::Stream, "encryption_key"),
            (OptionsScope::User, "status"),
        ] {
            let specs = client.describe_options(scope).await.expect("describe options");
            assert!(specs.iter().any(|spec| format!("{spec:?}").contains(key)), "{key} in {specs:?}");
        }
        let me = client.get_me().await.expect("get me");
        assert!(client.get_client(me.client_id).await.expect("get client").is_some());
        assert!(client.get_client(u32::MAX).await.expect("get client").is_none());
        assert_eq!(client.get_clients().await.expect("get clients").len(), 1);
        create_topic(&client, "counted", 3).await;
        let stats = client.get_stats().await.expect("get stats");
        assert_eq!((stats.streams_count, stats.topics_count, stats.partitions_count), (1, 1, 3));
        assert!(stats.memory_usage.as_bytes_u64() > 0 && stats.process_id > 0, "{stats:?}");
        let snapshot = client
            .snapshot(SnapshotCompression::Stored, vec![SystemSnapshotType::Test])
            .await
            .expect("snapshot");
        assert_eq!(&snapshot.0[..4], b"PK\x03\x04");
    });
}

#[test]
fn streams_and_topics_are_updated() {
    run(async |broker| {
        let client = connect(broker).await;
        create_topic(&client, "first", 1).await;
        let rename = StreamUpdateOptions { name: Some("second".into()), ..StreamUpdateOptions::default() };
        client.update_stream(&named("first"), &rename).await.expect("rename the stream");
        let stream = named("second");
        let topic = named("first");
        let hour = IggyDuration::new_from_secs(3600);
        let change = TopicUpdateOptions {
            name: Some("renamed".into()),
            message_expiry: Some(IggyExpiry::ExpireDuration(hour)),
            max_topic_size: Some(MaxTopicSize::Custom(IggyByteSize::from(20_000_000_000))),
            ..TopicUpdateOptions::default()
        };
        client.update_topic(&stream, &topic, &change).await.expect("change the topic");
        let topic = named("renamed");
        let details = client.get_topic(&stream, &topic).await.expect("get topic").expect("it is there");
        assert_eq!(details.resolved_options().message_expiry, IggyExpiry::ExpireDuration(hour));
        let reset = BTreeSet::from([OptionKey::MessageExpiry, OptionKey::MaxTopicSize]);
        let change = TopicUpdateOptions { reset, ..TopicUpdateOptions::default() };
        client.update_topic(&stream, &topic, &change).await.expect("reset the topic");
        let details = client.get_topic(&stream, &topic).await.expect("get topic").expect("it is there");
        assert_eq!(details.resolved_options().message_expiry, IggyExpiry::NeverExpire);
        client.create_partitions(&stream, &topic, 2).await.expect("add partitions");
        client.delete_partitions(&stream, &topic, 1).await.expect("delete a partition");
        client.delete_segments(&stream, &topic, 0, 1).await.expect("delete segments");
        check_refused(client.delete_segments(&stream, &topic, 9, 1).await, &[3007]);
        client.delete_topic(&stream, &topic).await.expect("delete the topic");
        client.delete_stream(&stream).await.expect("delete the stream");
        assert!(client.get_streams().await.expect("list").is_empty());
    });
}

#[test]
fn users_and_tokens_answer() {
    run(async |broker| {
        let client = connect(broker).await;
        let options = UserCreateOptions::default();
        client.create_user("guest", "secret123", UserStatus::Active, None, &options).await.expect("create");
        check_refused(
            client.create_user("guest", "secret123", UserStatus::Active, None, &options).await,
            &[46],
        );
        let guest = named("guest");
        let renamed = UserUpdateOptions { username: Some("visitor".into()), ..UserUpdateOptions::default() };
        client.update_user(&guest, &renamed).await.expect("rename");
        let visitor = named("visitor");
        let permissions = Permissions {
            global: GlobalPermissions { read_streams: true, ..GlobalPermissions::default() },
            streams: None,
        };
        client.update_permissions(&visitor, Some(permissions)).await.expect("grant");
        let details = client.get_user(&visitor).await.expect("get user").expect("it is there");
        assert!(details.permissions.is_some_and(|permissions| permissions.global.read_streams));
        client.change_password(&visitor, "secret123", "secret456").await.expect("change the password");
        assert_eq!(client.get_users().await.expect("list").len(), 2);

        let token =
            client.create_personal_access_token("forever", IggyExpiry::NeverExpire).await.expect("token");
        assert_eq!(token.token.len(), 68);
        assert_eq!(client.get_personal_access_tokens().await.expect("list").len(), 1);
        let other = connect(broker).await;
        other.logout_user().await.expect("log out");
        let identity =
            other.login_with_personal_access_token(&token.token).await.expect("sign in with the token");
        assert_eq!(identity.user_id, 0);
        other.get_streams().await.expect("signed in");
        client.delete_personal_access_token("forever").await.expect("delete the token");
        check_refused(client.delete_personal_access_token("forever").await, &[20]);

        let inactive =
            UserUpdateOptions { status: Some(UserStatus::Inactive), ..UserUpdateOptions::default() };
        client.update_user(&visitor, &inactive).await.expect("deactivate");
        check_refused(other.login_user("visitor", "secret456").await, &[42]);
        client.delete_user(&visitor).await.expect("delete the user");
        assert!(client.get_user(&visitor).await.expect("get user").is_none());
    });
}

/// The change log tells of what was done, from a cursor on.
#[test]
fn metadata_changes_are_followed() {
    run(async |broker| {
        let client = connect(broker).await;
        let latest =
            MetadataChangesQuery { start: MetadataChangeStart::Latest, ..MetadataChangesQuery::default() };
        let before = client.get_metadata_changes(&latest).await.expect("the newest position");
        assert!(before.records.is_empty());
        client.create_stream("noted", &StreamCreateOptions::default()).await.expect("create");
        let cursor = before.next.expect("a cursor to go on from");
        let after = MetadataChangesQuery { start: MetadataChangeStart::After(cursor), ..latest };
        let changes = client.get_metadata_changes(&after).await.expect("changes");
        let text = format!("{:?}", changes.records);
        assert!(text.contains("noted"), "{text}");
        check_refused(
            client.get_metadata_changes(&MetadataChangesQuery { limit: 1001, ..Default::default() }).await,
            &[3],
        );
    });
}

/// Consumer groups are refused by name until they are served.
#[test]
fn consumer_groups_are_unavailable() {
    run(async |broker| {
        let client = connect(broker).await;
        let TopicNames { stream, topic } = create_topic(&client, "grouped", 1).await;
        let group = named("group");
        check_refused(client.create_consumer_group(&stream, &topic, "group").await, &[5]);
        check_refused(client.get_consumer_group(&stream, &topic, &group).await, &[5]);
        check_refused(client.get_consumer_groups(&stream, &topic).await, &[5]);
        check_refused(client.join_consumer_group(&stream, &topic, &group).await, &[5]);
        check_refused(client.leave_consumer_group(&stream, &topic, &group).await, &[5]);
        check_refused(client.delete_consumer_group(&stream, &topic, &group).await, &[5]);
        client.ping().await.expect("the connection goes on");
    });
}

#[test]
fn without_a_user_only_the_door_answers() {
    run(async |broker| {
        let root = connect(broker).await;
        let names = create_topic(&root, "closed", 1).await;
        send(&root, &names, 0, &mut numbered_messages(0, 3)).await;
        let TopicNames { stream, topic } = &names;
        let client = connect(broker).await;
        client.logout_user().await.expect("log out");
        check_refused(client.get_stats().await, &NO_USER);
        check_refused(client.get_me().await, &NO_USER);
        check_refused(client.get_client(1).await, &NO_USER);
        check_refused(client.get_clients().await, &NO_USER);
        check_refused(client.describe_options(OptionsScope::Topic).await, &NO_USER);
        check_refused(
            client.snapshot(SnapshotCompression::Stored, vec![SystemSnapshotType::Test]).await,
            &NO_USER,
        );
        check_refused(client.get_metadata_changes(&MetadataChangesQuery::default()).await, &NO_USER);

        check_refused(client.get_streams().await, &NO_USER);
        check_refused(client.get_stream(stream).await, &NO_USER);
        check_refused(client.create_stream("x", &StreamCreateOptions::default()).await, &NO_USER);
        let rename = StreamUpdateOptions { name: Some("x".into()), ..StreamUpdateOptions::default() };
        check_refused(client.update_stream(stream, &rename).await, &NO_USER);
        check_refused(client.delete_stream(stream).await, &NO_USER);
        check_refused(client.get_topics(stream).await, &NO_USER);
        check_refused(client.get_topic(stream, topic).await, &NO_USER);
        check_refused(client.create_topic(stream, "x", &TopicCreateOptions::default()).await, &NO_USER);
        let rename = TopicUpdateOptions { name: Some("x".into()), ..TopicUpdateOptions::default() };
        check_refused(client.update_topic(stream, topic, &rename).await, &NO_USER);
        check_refused(client.delete_topic(stream, topic).await, &NO_USER);
        check_refused(client.create_partitions(stream, topic, 1).await, &NO_USER);
        check_refused(client.delete_partitions(stream, topic, 1).await, &NO_USER);
        check_refused(client.delete_segments(stream, topic, 0, 1).await, &NO_USER);

        let guest = numbered(1);
        check_refused(client.get_users().await, &NO_USER);
        check_refused(client.get_user(&guest).await, &NO_USER);
        let options = UserCreateOptions::default();
        check_refused(
            client.create_user("guest", "secret", UserStatus::Active, None, &options).await,
            &NO_USER,
        );
        let rename = UserUpdateOptions { username: Some("other".into()), ..UserUpdateOptions::default() };
        check_refused(client.update_user(&guest, &rename).await, &NO_USER);
        check_refused(client.update_permissions(&guest, None).await, &NO_USER);
        check_refused(client.change_password(&guest, "secret", "secret2").await, &NO_USER);
        check_refused(client.delete_user(&guest).await, &NO_USER);
        check_refused(client.get_personal_access_tokens().await, &NO_USER);
        check_refused(client.create_personal_access_token("tok", IggyExpiry::NeverExpire).await, &NO_USER);
        check_refused(client.delete_personal_access_token("tok").await, &NO_USER);

        let consumer = anonymous();
        let start = PollingStrategy::first();
        check_refused(client.poll_messages(stream, topic, 0, &consumer, &start, count(1)).await, &NO_USER);
        let partitioning = Partitioning::partition_id(0);
        let mut batch = numbered_messages(3, 1);
        check_refused(client.send_messages(stream, topic, &partitioning, &mut batch).await, &NO_USER);
        check_refused(client.store_consumer_offset(&consumer, stream, topic, Some(0), 0).await, &NO_USER);
        check_refused(client.get_consumer_offset(&consumer, stream, topic, Some(0)).await, &NO_USER);
        check_refused(client.delete_consumer_offset(&consumer, stream, topic, Some(0)).await, &NO_USER);
        let group = named("group");
        check_refused(client.create_consumer_group(stream, topic, "group").await, &NO_USER);
        check_refused(client.get_consumer_groups(stream, topic).await, &NO_USER);
        check_refused(client.get_consumer_group(stream, topic, &group).await, &NO_USER);
        check_refused(client.join_consumer_group(stream, topic, &group).await, &NO_USER);
        check_refused(client.leave_consumer_group(stream, topic, &group).await, &NO_USER);
        check_refused(client.delete_consumer_group(stream, topic, &group).await, &NO_USER);

        let polled = poll(&root, &names, 0, &consumer, start, count(10)).await;
        assert_eq!(polled.messages.len(), 3, "nothing of it did anything");
    });
}
