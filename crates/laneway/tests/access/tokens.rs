//! Personal access tokens. Source: resources, section 12.

use std::thread::sleep;
use std::time::{Duration, Instant};

use laneway_wire::Identifier;
use laneway_wire::request::CreatePersonalAccessToken;

use crate::accounts::{Refused, global, token_login, with_user};
use crate::node::{Node, SHARDS};

const UNKNOWN: Refused = Refused::Evicted(10);
const INACTIVE: Refused = Refused::Evicted(11);

/// S70, S72, S73: made once, shown once, listed by name, and nobody else's.
#[test]
fn tokens_sign_in_and_belong_to_their_user() {
    for shards in SHARDS {
        let (node, mut root, mut ann) = with_user(shards, global(|flags| flags.read_streams = true));
        let token = ann.token("work");
        assert!(token.len() == 68 && token.is_ascii());
        let week_us = 7 * 86_400 * 1_000_000;
        ann.create_token("also", week_us).payload();
        let listed = ann.tokens();
        assert_eq!(listed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["also", "work"]);
        assert!(listed[0].1 > week_us && listed[1].1 == 0, "{listed:?}");

        let mut by_token = token_login(node.address(), &token).expect("the token signs in");
        assert_eq!(by_token.user(Identifier::Numeric(1)).map(|(id, ..)| id), Some(1), "as its owner");
        by_token.assert_alive();
        assert_eq!(token_login(node.address(), &token[1..]).err(), Some(UNKNOWN));
        assert_eq!(token_login(node.address(), &"x".repeat(101)).err(), Some(UNKNOWN));

        assert_eq!((root.tokens(), root.delete_token("work")), (Vec::new(), 20));
        assert_eq!(ann.delete_token("work"), 0);
        assert_eq!(ann.delete_token("work"), 20);
        assert_eq!(token_login(node.address(), &token).err(), Some(UNKNOWN));
        by_token.assert_alive();
    }
}

/// S71.
#[test]
fn tokens_of_a_user_are_counted_and_their_names_checked() {
    let node = Node::start_with(2, |config| config.tokens.per_user_max = 3);
    let mut root = node.client();
    assert_eq!(root.create_token("xy", 0).outcome(), 50);
    assert_eq!(root.create_token(&"n".repeat(31), 0).outcome(), 50);
    root.token("one");
    root.create_token("one", 0).assert_committed_refusal(51);
    root.create_token("two", u64::MAX - 1).assert_committed_refusal(56);
    root.token("two");
    root.token(&"n".repeat(30));
    root.create_token("four", 0).assert_committed_refusal(52);
    root.create_token("one", 0).assert_committed_refusal(52);
    assert_eq!(root.delete_token("two"), 0);
    root.token("four");
}

/// S71, with the default limit.
#[test]
fn the_101st_token_is_one_too_many() {
    let node = Node::start(1);
    let mut root = node.client();
    for number in 0..100 {
        root.token(&format!("token {number}"));
    }
    root.create_token("one more", 0).assert_committed_refusal(52);
}

/// Cluster, section 1.1: the secret of a token is not shown again, and no second token is made.
#[test]
fn a_repeated_create_says_that_the_token_exists() {
    for shards in SHARDS {
        let mut node = Node::start(shards);
        let mut root = node.client();
        let sent = root.frame(&CreatePersonalAccessToken { name: "token", expiry_us: 0 });
        root.exchange(&sent).payload();
        root.exchange(&sent).assert_committed_refusal(51);
        node.restart();
        root.another().exchange(&sent).assert_committed_refusal(51);
        assert_eq!(root.another().tokens().len(), 1);
    }
}

/// S74, S75: refused from its last moment on, and gone soon after without anybody asking.
#[test]
fn expired_tokens_are_refused_and_removed() {
    for shards in SHARDS {
        let (node, _root, mut ann) = with_user(shards, None);
        let reply = ann.create_token("short", 300_000);
        let token = laneway_wire::reply::parse_token(reply.payload()).expect("a token").to_owned();
        ann.token("long");
        assert!(token_login(node.address(), &token).is_ok());
        sleep(Duration::from_millis(310));
        assert_eq!(token_login(node.address(), &token).err(), Some(UNKNOWN));
        let patience = Instant::now() + Duration::from_secs(10);
        while ann.tokens().len() > 1 {
            assert!(Instant::now() < patience, "nobody removed it");
            sleep(Duration::from_millis(20));
        }
        assert_eq!(ann.tokens()[0].0, "long");
    }
}

/// A token that ended while the node was down is removed after its start.
#[test]
fn tokens_expire_across_a_restart() {
    let mut node = Node::start(2);
    node.client().create_token("short", 200_000).payload();
    node.client().token("long");
    node.restart();
    let mut root = node.client();
    let patience = Instant::now() + Duration::from_secs(10);
    while root.tokens().len() > 1 {
        assert!(Instant::now() < patience, "nobody removed it");
        sleep(Duration::from_millis(20));
    }
}

/// S59, S76.
#[test]
fn tokens_go_with_their_user_and_rest_while_it_is_inactive() {
    for shards in SHARDS {
        let (node, mut root, mut ann) = with_user(shards, None);
        let token = ann.token("token");
        assert_eq!(root.update_user(Identifier::Name("ann"), &[("status", "inactive")]).outcome(), 0);
        assert_eq!(token_login(node.address(), &token).err(), Some(INACTIVE));
        assert_eq!(root.update_user(Identifier::Name("ann"), &[("status", "active")]).outcome(), 0);
        assert!(token_login(node.address(), &token).is_ok());
        assert_eq!(root.delete_user("ann").outcome(), 0);
        assert_eq!(token_login(node.address(), &token).err(), Some(UNKNOWN));
        root.create_user("bob", None).payload();
        assert_eq!(token_login(node.address(), &token).err(), Some(UNKNOWN));
    }
}
