//! Signing in, what a connection says about itself, and how it ends.

use iggy::prelude::*;

use crate::suite::support::{check_refused, connect, connect_to, run};

#[test]
fn connection_string_signs_in() {
    run(async |broker| {
        let client = connect(broker).await;
        client.ping().await.expect("ping");
        let me = client.get_me().await.expect("get me");
        assert_eq!(me.user_id, Some(0), "the root user has id 0");
        assert_eq!(me.transport.to_lowercase(), "tcp");
        assert!(me.address.starts_with("127.0.0.1:"), "address {}", me.address);
    });
}

#[test]
fn connection_string_with_options_signs_in() {
    run(async |broker| {
        let options = "heartbeat_interval=1s&nodelay=true&reconnection_retries=3&reconnection_interval=100ms";
        let client = connect_to(&format!("{}?{options}", broker.connection_string())).await;
        client.ping().await.expect("ping");
    });
}

#[test]
fn wrong_password_is_refused_with_42() {
    run(async |broker| {
        for credentials in ["iggy:wrong", "nobody:iggy"] {
            let string = format!("iggy+tcp://{credentials}@{}", broker.address());
            let client = IggyClient::from_connection_string(&string).expect("a valid connection string");
            check_refused(client.connect().await, &[42]);
        }
        connect(broker).await.ping().await.expect("a good client is served after the refusals");
    });
}

#[test]
fn second_sign_in_replaces_the_first() {
    run(async |broker| {
        let client = connect(broker).await;
        check_refused(client.login_user("iggy", "wrong").await, &[42]);
        let identity = client.login_user("iggy", "iggy").await.expect("sign in again");
        assert_eq!(identity.user_id, 0);
        client.get_streams().await.expect("signed in");
    });
}

#[test]
fn logout_ends_the_rights_of_the_connection() {
    run(async |broker| {
        let client = connect(broker).await;
        client.logout_user().await.expect("log out");
        check_refused(client.get_streams().await, &[40]);
    });
}

#[test]
fn roster_names_one_leader_with_the_listening_port() {
    run(async |broker| {
        let client = connect(broker).await;
        let cluster = client.get_cluster_metadata().await.expect("cluster metadata");
        let [node] = &cluster.nodes[..] else { panic!("one node, not {:?}", cluster.nodes) };
        assert_eq!(node.endpoints.tcp, broker.address().port());
        assert_eq!(node.role, ClusterNodeRole::Leader);
        assert_eq!(node.status, ClusterNodeStatus::Healthy);
    });
}

#[test]
fn stats_count_what_is_there() {
    run(async |broker| {
        let client = connect(broker).await;
        let names = crate::suite::support::create_topic(&client, "stats", 3).await;
        let mut messages = crate::suite::support::numbered_messages(0, 7);
        crate::suite::support::send(&client, &names, 1, &mut messages).await;
        let stats = client.get_stats().await.expect("stats");
        assert_eq!(stats.process_id, broker.pid());
        assert_eq!((stats.streams_count, stats.topics_count, stats.partitions_count), (1, 1, 3));
        assert_eq!(stats.messages_count, 7);
        assert!(stats.clients_count >= 1);
        assert!(!stats.hostname.is_empty());
        assert!(stats.memory_usage.as_bytes_u64() > 0);
    });
}

#[test]
fn described_options_contain_the_topic_keys() {
    run(async |broker| {
        let client = connect(broker).await;
        let options = client.describe_options(OptionsScope::Topic).await.expect("describe options");
        let described = format!("{options:?}");
        for key in ["message_expiry", "max_topic_size", "segment_size", "durability"] {
            assert!(described.contains(key), "no {key} in {described}");
        }
    });
}
