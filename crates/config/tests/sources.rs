//! Where values come from, which one wins, and what each mistake is answered with.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use laneway_config::{Config, ConfigError, Durability, Engine, FlagValue, Resolved, Source, load, resolve};

fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

fn flag(flag: &str, key: &str, value: &str) -> FlagValue {
    FlagValue { flag: flag.into(), key: key.into(), value: value.into() }
}

fn run(file: &str, environment: &[(&str, &str)], flags: &[FlagValue]) -> Result<Resolved, ConfigError> {
    resolve(Some((Path::new("laneway.toml"), file)), variables(environment), flags)
}

fn refused(file: &str, environment: &[(&str, &str)], flags: &[FlagValue], message: &str) {
    let error = run(file, environment, flags).expect_err(message).to_string();
    assert_eq!(error, message);
}

fn source_of<'a>(resolved: &'a Resolved, name: &str) -> &'a Source {
    &resolved.effective.entries.iter().find(|entry| entry.key.name == name).unwrap().source
}

#[test]
fn without_any_source_the_defaults_of_the_table_hold() {
    let resolved = run("", &[], &[]).unwrap();
    assert_eq!(resolved.config, Config::default());
    let config = resolved.config;
    assert_eq!(config.data_dir, Path::new("./laneway-data"));
    assert_eq!(config.tcp.address, Some("127.0.0.1:8090".parse().unwrap()));
    assert_eq!((config.http.address, config.shards, config.connections.max), (None, None, None));
    assert_eq!(config.engine, Engine::Auto);
    assert_eq!(config.sessions.timeout, Duration::from_secs(900));
    assert_eq!(config.limits.frame_bytes_max, 64 << 20);
    assert_eq!(config.topic.durability, Durability::Persisted);
    assert_eq!(config.topic.segment_size, 1 << 30);
    assert_eq!((config.topic.message_expiry, config.topic.max_topic_size), (None, None));
    assert!(resolved.effective.entries.iter().all(|entry| entry.source == Source::Default));
}

/// S111: also an empty variable counts as not set.
#[test]
fn flag_wins_over_environment_over_file() {
    let file = "shards = 1\n\n[tcp]\naddress = '127.0.0.1:1'\n[sessions]\ntimeout = '50 s'\n";
    let environment =
        [("LANEWAY_SHARDS", "2"), ("LANEWAY_TCP_ADDRESS", "127.0.0.1:2"), ("LANEWAY_LOG_FILTER", "")];
    let resolved = run(file, &environment, &[flag("--tcp", "tcp.address", "127.0.0.1:3")]).unwrap();
    assert_eq!(resolved.config.tcp.address, Some("127.0.0.1:3".parse().unwrap()));
    assert_eq!(resolved.config.shards, Some(2));
    assert_eq!(resolved.config.sessions.timeout, Duration::from_secs(50));
    assert_eq!(source_of(&resolved, "tcp.address").to_string(), "--tcp");
    assert_eq!(source_of(&resolved, "shards").to_string(), "LANEWAY_SHARDS");
    assert_eq!(source_of(&resolved, "sessions.timeout").to_string(), "laneway.toml:6");
    assert_eq!(source_of(&resolved, "log.filter"), &Source::Default);
}

#[test]
fn variable_overrides_the_file_and_an_empty_one_does_not() {
    // S111
    for (value, shards) in [("3", 3), ("", 2)] {
        let resolved = run("shards = 2\n", &[("LANEWAY_SHARDS", value)], &[]).unwrap();
        assert_eq!(resolved.config.shards, Some(shards), "{value:?}");
    }
}

#[test]
fn unknown_keys_name_their_line_and_the_closest_key() {
    refused(
        "shards = 1\n[tcp]\nadress = 'off'\n",
        &[],
        &[],
        "laneway.toml:3: unknown key \"tcp.adress\"; did you mean \"tcp.address\"? (`laneway config --keys` lists them all)",
    );
    refused(
        "colour = 'red'",
        &[],
        &[],
        "laneway.toml:1: unknown key \"colour\" (`laneway config --keys` lists them all)",
    );
    refused(
        "",
        &[],
        &[flag("--set", "reads.wait", "1 s")],
        "--set: unknown key \"reads.wait\"; did you mean \"reads.wait_max\"? (`laneway config --keys` lists them all)",
    );
}

#[test]
fn headings_without_lines_are_fine_where_the_table_is_known() {
    assert_eq!(run("[tcp]\n[reads]\n", &[], &[]).unwrap().config, Config::default());
    refused(
        "[tpc]\n",
        &[],
        &[],
        "laneway.toml:1: unknown key \"tpc\" (`laneway config --keys` lists them all)",
    );
}

#[test]
fn unknown_variables_name_the_closest_one() {
    refused(
        "",
        &[("PATH", "/bin"), ("LANEWAY_TCP_ADRESS", "off")],
        &[],
        "unknown environment variable LANEWAY_TCP_ADRESS; did you mean \"LANEWAY_TCP_ADDRESS\"? \
         (`laneway config --keys` lists them all)",
    );
}

#[test]
fn variables_of_the_client_commands_and_foreign_ones_are_left_alone() {
    let environment =
        [("LANEWAY_SERVER", "h:1"), ("LANEWAY_PASSWORD", "x"), ("IGGY_TCP_ADDRESS", "x"), ("LANEWAYX", "")];
    assert_eq!(run("", &environment, &[]).unwrap().config, Config::default());
}

#[test]
fn bad_values_name_the_place_and_the_accepted_forms() {
    refused(
        "[topic]\nsegment_size = 64\n",
        &[],
        &[],
        "laneway.toml:2: topic.segment_size: \"64\" is not a size (the unit is missing); write a whole number and a unit, \
         such as \"512 KiB\", \"64 MiB\" or \"1 GB\" (units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)",
    );
    refused(
        "",
        &[("LANEWAY_SESSIONS_MAX", "1")],
        &[],
        "LANEWAY_SESSIONS_MAX: sessions.max: \"1\" is out of range; write a whole number from 2 to 65536",
    );
    refused(
        "",
        &[],
        &[flag("--tcp", "tcp.address", "localhost:8090")],
        "--tcp: tcp.address: \"localhost:8090\" is not accepted; write IP:PORT such as 127.0.0.1:8090 or [::]:8090, or off",
    );
    refused(
        "shards = [1]",
        &[],
        &[],
        "laneway.toml:1: shards: a single value is needed here, not a list, a table or a date",
    );
    let error = FlagValue::parse_set("shards").unwrap_err().to_string();
    assert_eq!(error, "--set: write --set KEY=VALUE, for example --set sessions.timeout=30m");
}

#[test]
fn root_credentials_come_from_both_spellings_and_never_from_a_file() {
    let resolved =
        run("", &[("IGGY_ROOT_USERNAME", "admin"), ("IGGY_ROOT_PASSWORD", "secret-1")], &[]).unwrap();
    assert_eq!(resolved.config.root.username.as_deref(), Some("admin"));
    assert_eq!(resolved.config.root.password.as_ref().unwrap().reveal(), "secret-1");
    let environment = [("LANEWAY_ROOT_USERNAME", "boss"), ("IGGY_ROOT_USERNAME", "admin")];
    let resolved = run("", &environment, &[]).unwrap();
    assert_eq!(resolved.config.root.username.as_deref(), Some("boss"));
    refused(
        "root.password = 'secret-1'",
        &[],
        &[],
        "laneway.toml:1: root.password cannot be set here; set LANEWAY_ROOT_PASSWORD in the environment",
    );
    refused(
        "",
        &[],
        &[flag("--set", "root.password", "secret-1")],
        "--set: root.password cannot be set here; set LANEWAY_ROOT_PASSWORD in the environment",
    );
}

#[test]
fn secrets_are_masked_in_every_output() {
    let resolved = run("", &[("LANEWAY_ROOT_PASSWORD", "hunter22")], &[]).unwrap();
    assert!(resolved.effective.table().contains("********"));
    for shown in
        [resolved.effective.table(), format!("{:?}", resolved.config), format!("{:?}", resolved.effective)]
    {
        assert!(!shown.contains("hunter22"), "{shown}");
    }
}

#[test]
fn keys_that_contradict_each_other_are_both_named() {
    refused(
        "[reads]\nread_bytes_max = '32 MiB'\ninflight_bytes_max = '16 MiB'\n",
        &[],
        &[],
        "reads.read_bytes_max (32 MiB) must not exceed reads.inflight_bytes_max (16 MiB); change one of them",
    );
    refused(
        "topic.max_topic_size = '1 MiB'",
        &[],
        &[],
        "topic.segment_size (1 GiB) must not exceed topic.max_topic_size (1 MiB); change one of them",
    );
    refused(
        "",
        &[],
        &[flag("--tcp", "tcp.address", "off")],
        "tcp.address is off and there is no other listener; set tcp.address, for example to 127.0.0.1:8090",
    );
}

#[test]
fn ranges_hold_for_a_configuration_made_in_code_too() {
    let check = |change: fn(&mut Config), message: &str| {
        let mut config = Config::default();
        change(&mut config);
        assert_eq!(config.validate().map_err(|error| error.to_string()), Err(message.to_owned()));
    };
    assert!(Config::default().validate().is_ok());
    check(
        |config| config.topic.segment_size = (1 << 20) + 1,
        "configuration in code: topic.segment_size: \"1048577 B\" is out of range; \
         write a size from 1 MiB to 1 GiB, a multiple of 512 B",
    );
    check(
        |config| config.reads.read_bytes_max = 0,
        "configuration in code: reads.read_bytes_max: \"0 B\" is out of range; write a size from 64 KiB to 64 MiB",
    );
    check(
        |config| config.topic.message_expiry = Some(Duration::ZERO),
        "configuration in code: topic.message_expiry: \"0 us\" is out of range; \
         write a duration from 1 ms to 36500 d, or never",
    );
    check(
        |config| config.topic.max_topic_size = Some(1 << 29),
        "topic.segment_size (1 GiB) must not exceed topic.max_topic_size (512 MiB); change one of them",
    );
}

#[test]
fn defaults_of_topics_are_read() {
    let file = "[topic]\ndurability = 'replicated'\nconsumer_offset_durability = 'Replicated'\nsegment_size = '2 MiB'\n\
                message_expiry = '7 d'\nmax_topic_size = '2 MiB'\n";
    let topic = run(file, &[], &[]).unwrap().config.topic;
    assert_eq!(
        (topic.durability, topic.consumer_offset_durability),
        (Durability::Replicated, Durability::Replicated)
    );
    assert_eq!((topic.segment_size, topic.max_topic_size), (2 << 20, Some(2 << 20)));
    assert_eq!(topic.message_expiry, Some(Duration::from_secs(7 * 86_400)));
}

#[test]
fn http_is_refused_with_its_place() {
    refused(
        "",
        &[("LANEWAY_HTTP_ADDRESS", "127.0.0.1:3000")],
        &[],
        "LANEWAY_HTTP_ADDRESS: HTTP is not there yet; set http.address to off (the default) and use TCP",
    );
}

#[test]
fn auto_values_show_what_they_came_to() {
    let mut effective = run("connections.max = 10", &[], &[]).unwrap().effective;
    effective.note_auto("shards", 2);
    effective.note_auto("connections.max", 512);
    let table = effective.table();
    let row = |key: &str| {
        let line = table.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("shards"), "shards auto (2) number default");
    assert_eq!(row("connections.max"), "connections.max 10 number laneway.toml:1");
    assert_eq!(row("storage.journal_bytes_max"), "storage.journal_bytes_max 64 MiB size default");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error =
        load(Some(Path::new("/nonexistent/laneway.toml")), variables(&[]), &[]).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the configuration file /nonexistent/laneway.toml: "), "{error}");
}

#[test]
fn a_file_is_read_from_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l.toml");
    std::fs::write(&path, "shards = 3\n").unwrap();
    assert_eq!(load(Some(&path), variables(&[]), &[]).unwrap().config.shards, Some(3));
}
