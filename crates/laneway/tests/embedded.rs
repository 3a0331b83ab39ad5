//! The broker as a library: other people's tests start it in their process, on a free port, as often as they like.

use std::path::Path;
use std::time::Duration;

use laneway::{Broker, Config, StartError};
use laneway_client::{Client, ClientError, Credentials, Settings};
use laneway_config::Engine;

fn config(directory: &Path, shards: u16) -> Config {
    let mut config = Config { data_dir: directory.to_owned(), shards: Some(shards), ..Config::default() };
    config.tcp.address = Some(([127, 0, 0, 1], 0).into());
    config.root.dev = true;
    config
}

fn connect(broker: &Broker) -> Result<Client, ClientError> {
    Client::connect(Settings {
        address: broker.tcp_addr().expect("TCP is on").to_string(),
        credentials: Some(Credentials { username: "iggy".to_owned(), password: "iggy".to_owned() }),
        timeout: Duration::from_secs(10),
    })
}

#[test]
fn two_brokers_live_in_one_process_and_keep_apart() {
    let (left_directory, right_directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let left = Broker::start(config(left_directory.path(), 1)).unwrap();
    let right = Broker::start(config(right_directory.path(), 2)).unwrap();
    assert_ne!(left.tcp_addr(), right.tcp_addr());

    let mut client = connect(&left).unwrap();
    client.create_stream("only-left").unwrap();
    assert_eq!(client.streams().unwrap().len(), 1);
    assert_eq!(connect(&right).unwrap().streams().unwrap().len(), 0);

    right.shutdown().unwrap();
    assert_eq!(client.streams().unwrap().len(), 1, "stopping one broker leaves the other alone");
    left.shutdown().unwrap();
}

#[test]
fn broker_comes_back_with_another_number_of_shards() {
    let directory = tempfile::tempdir().unwrap();
    for (round, shards) in [1, 3, 2].into_iter().enumerate() {
        let broker = Broker::start(config(directory.path(), shards)).unwrap();
        let mut client = connect(&broker).unwrap();
        assert_eq!(client.streams().unwrap().len(), round, "with {shards} shards");
        client.create_stream(&format!("round-{round}")).unwrap();
        broker.shutdown().unwrap();
    }
}

#[test]
fn polling_engine_serves_and_comes_back_as_io_uring() {
    let directory = tempfile::tempdir().unwrap();
    for (round, engine) in [Engine::Polling, Engine::Auto, Engine::Polling].into_iter().enumerate() {
        let broker = Broker::start(Config { engine, ..config(directory.path(), 2) }).unwrap();
        let polling = broker.engine().to_string().starts_with("polling");
        assert!(polling || engine != Engine::Polling, "{}", broker.engine());
        let mut client = connect(&broker).unwrap();
        assert_eq!(client.streams().unwrap().len(), round);
        client.create_stream(&format!("round-{round}")).unwrap();
        broker.shutdown().unwrap();
    }
}

#[test]
fn directory_in_use_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let broker = Broker::start(config(directory.path(), 1)).unwrap();
    let error = Broker::start(config(directory.path(), 1)).unwrap_err();
    assert!(matches!(error, StartError::Storage(_)), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    connect(&broker).unwrap().create_stream("still-served").unwrap();
    broker.shutdown().unwrap();
}

#[test]
fn dropped_broker_stops_and_lets_its_directory_go() {
    let directory = tempfile::tempdir().unwrap();
    let address = {
        let broker = Broker::start(config(directory.path(), 2)).unwrap();
        connect(&broker).unwrap().create_stream("kept").unwrap();
        broker.tcp_addr().unwrap()
    };
    assert!(std::net::TcpStream::connect(address).is_err(), "nothing listens after the drop");
    let broker = Broker::start(config(directory.path(), 2)).unwrap();
    assert_eq!(connect(&broker).unwrap().streams().unwrap().len(), 1);
    broker.shutdown().unwrap();
}

#[test]
fn http_is_refused_by_name_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), 1);
    config.http.address = Some(([127, 0, 0, 1], 0).into());
    let error = Broker::start(config).unwrap_err();
    assert!(matches!(error, StartError::Config(_)), "{error}");
    assert!(error.to_string().contains("http"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the directory was not touched");
}
