//! The root user of a new data directory. Source: resources, section 11.1. S47 is in `start_and_stop.rs`, because it looks
//! at what the program prints.

use laneway::{Broker, Config};
use laneway_config::Secret;
use tempfile::TempDir;

use crate::accounts::{Refused, login};

const WRONG: Refused = Refused::Evicted(9);

fn config(directory: &TempDir, username: Option<&str>, password: Option<&str>, dev: bool) -> Config {
    let mut config = Config { data_dir: directory.path().join("data"), ..Config::default() };
    config.tcp.address = Some(([127, 0, 0, 1], 0).into());
    config.shards = Some(1);
    config.pin_cores = false;
    config.root.username = username.map(str::to_owned);
    config.root.password = password.map(Secret::new);
    config.root.dev = dev;
    config
}

/// Starts, signs in with each pair, and stops. Gives what each came to.
fn sign_ins(config: Config, pairs: &[(&str, &str)]) -> Vec<Option<Refused>> {
    let broker = Broker::start(config).expect("the broker starts");
    let address = broker.tcp_addr().expect("it listens");
    let outcomes = pairs.iter().map(|(username, password)| login(address, username, password).err());
    let outcomes = outcomes.collect();
    broker.shutdown().expect("the broker stops");
    outcomes
}

/// S44, S48: the first start decides, and later ones change nothing.
#[test]
fn given_credentials_are_those_of_the_first_start_for_ever() {
    let directory = TempDir::new().unwrap();
    let pairs = [("boss", "first"), ("iggy", "iggy"), ("chief", "second")];
    let expected = [None, Some(WRONG), Some(WRONG)];
    assert_eq!(sign_ins(config(&directory, Some("boss"), Some("first"), false), &pairs), expected);
    assert_eq!(sign_ins(config(&directory, Some("chief"), Some("second"), false), &pairs), expected);
    assert_eq!(sign_ins(config(&directory, None, None, true), &pairs), expected);
    assert_eq!(sign_ins(config(&directory, None, None, false), &pairs), expected);
}

/// S46, and what `--dev` fills in where one of the two is given.
#[test]
fn development_fills_in_what_is_not_given() {
    for (username, password, expected) in [
        (None, None, ("iggy", "iggy")),
        (Some("boss"), None, ("boss", "iggy")),
        (None, Some("first"), ("iggy", "first")),
        (Some("boss"), Some("first"), ("boss", "first")),
    ] {
        let directory = TempDir::new().unwrap();
        assert_eq!(sign_ins(config(&directory, username, password, true), &[expected]), [None]);
    }
}

/// S45, S49: nothing is made by a start that fails for its credentials.
#[test]
fn wrong_credentials_stop_the_start() {
    for (username, password) in
        [(Some("boss"), None), (None, Some("first")), (Some("ab"), Some("first")), (Some("boss"), Some("pw"))]
    {
        let directory = TempDir::new().unwrap();
        let config = config(&directory, username, password, false);
        assert!(Broker::start(config).is_err(), "{username:?} {password:?}");
        assert!(!directory.path().join("data").exists());
    }
}
