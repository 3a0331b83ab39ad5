//! A configuration as a file: what a running broker writes down, so that tools find its bound ports.

use std::fmt::Write;

use crate::config::{Config, Durability, Engine};
use crate::keys::{KEYS, Key};
use crate::value::{self, Value};

impl Config {
    /// Every key that a file may set, with its value; secrets are masked. Reads back as this configuration, apart from
    /// the secrets.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        for key in KEYS.iter().filter(|key| key.scope.in_file()) {
            let Some(value) = self.value(key) else { continue };
            let shown = value::format(key, &value);
            let line = match value {
                Value::Absent if key.word == Some("") => writeln!(out, "# {} is not set", key.name),
                Value::Bool(_) | Value::Count(_) => writeln!(out, "{} = {shown}", key.name),
                _ => writeln!(out, "{} = {}", key.name, quoted(&shown)),
            };
            line.expect("a string takes every write");
        }
        out
    }

    /// The value of a key. None for a key that this function does not know; a test finds it.
    fn value(&self, key: &Key) -> Option<Value> {
        let count = |number: u32| Value::Count(number.into());
        let maybe = |value: Option<Value>| value.unwrap_or(Value::Absent);
        let durability = |durability: Durability| {
            Value::Choice(match durability {
                Durability::Persisted => "persisted",
                Durability::Replicated => "replicated",
            })
        };
        let (limits, reads, storage, topic) = (&self.limits, &self.reads, &self.storage, &self.topic);
        let (encryption, maintenance) = (&self.encryption, &self.data_maintenance);
        Some(match key.name {
            "data_dir" => Value::Path(self.data_dir.clone()),
            "tcp.address" => maybe(self.tcp.address.map(Value::Address)),
            "tcp.advertised_address" => maybe(self.tcp.advertised_address.clone().map(Value::Host)),
            "http.address" => maybe(self.http.address.map(Value::Address)),
            "shards" => maybe(self.shards.map(|shards| Value::Count(shards.into()))),
            "pin_cores" => Value::Bool(self.pin_cores),
            "lanes_per_shard" => Value::Count(self.lanes_per_shard.into()),
            "engine" => Value::Choice(match self.engine {
                Engine::Auto => "auto",
                Engine::IoUring => "io_uring",
                Engine::Polling => "polling",
            }),
            "log.filter" => Value::Text(self.log.filter.clone()),
            "sessions.timeout" => Value::Duration(self.sessions.timeout),
            "sessions.max" => count(self.sessions.max),
            "tokens.per_user_max" => count(self.tokens.per_user_max),
            "metadata.partitions_max" => maybe(self.metadata.partitions_max.map(count)),
            "metadata.change_records_max" => count(self.metadata.change_records_max),
            "connections.max" => maybe(self.connections.max.map(count)),
            "limits.frame_bytes_max" => Value::Bytes(limits.frame_bytes_max.into()),
            "limits.requests_per_connection_max" => count(limits.requests_per_connection_max),
            "limits.inflight_bytes_per_connection_max" => {
                Value::Bytes(limits.inflight_bytes_per_connection_max)
            }
            "limits.requests_per_user_max" => count(limits.requests_per_user_max),
            "limits.inflight_bytes_per_user_max" => Value::Bytes(limits.inflight_bytes_per_user_max),
            "limits.connections_per_user_max" => maybe(limits.connections_per_user_max.map(count)),
            "limits.mailbox_capacity" => count(limits.mailbox_capacity),
            "partition.dedup_sessions_max" => count(self.partition.dedup_sessions_max),
            "partition.consumer_offsets_max" => count(self.partition.consumer_offsets_max),
            "reads.wait_max" => Value::Duration(reads.wait_max),
            "reads.pending_per_shard_max" => count(reads.pending_per_shard_max),
            "reads.pending_per_user_max" => maybe(reads.pending_per_user_max.map(count)),
            "reads.pending_per_session_max" => count(reads.pending_per_session_max),
            "reads.read_bytes_max" => Value::Bytes(reads.read_bytes_max.into()),
            "reads.inflight_bytes_max" => Value::Bytes(reads.inflight_bytes_max),
            "storage.journal_bytes_max" => Value::Bytes(storage.journal_bytes_max),
            "storage.cache_bytes_max" => Value::Bytes(storage.cache_bytes_max),
            "storage.free_bytes_min" => maybe(storage.free_bytes_min.map(Value::Bytes)),
            "encryption.enabled" => Value::Bool(encryption.enabled),
            "encryption.key" => maybe(encryption.key.clone().map(Value::Secret)),
            "encryption.previous_keys" => maybe(encryption.previous_keys.clone().map(Value::Secret)),
            "encryption.retired_keys" => maybe(encryption.retired_keys.clone().map(Value::Text)),
            "data_maintenance.messages.cleaner_enabled" => Value::Bool(maintenance.cleaner_enabled),
            "data_maintenance.messages.interval" => Value::Duration(maintenance.cleaner_interval),
            "data_maintenance.scrub.interval" => Value::Duration(maintenance.scrub_interval),
            "data_maintenance.scrub.bytes_per_second" => {
                maybe(maintenance.scrub_bytes_per_second.map(Value::Bytes))
            }
            "topic.durability" => durability(topic.durability),
            "topic.consumer_offset_durability" => durability(topic.consumer_offset_durability),
            "topic.segment_size" => Value::Bytes(topic.segment_size),
            "topic.message_expiry" => maybe(topic.message_expiry.map(Value::Duration)),
            "topic.max_topic_size" => maybe(topic.max_topic_size.map(Value::Bytes)),
            "shutdown.drain_timeout" => Value::Duration(self.shutdown.drain_timeout),
            _ => return None,
        })
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            control if control.is_control() => {
                write!(out, "\\u{:04x}", u32::from(control)).expect("a string takes every write");
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::{Secret, resolve};

    fn read_back(config: &Config) -> Config {
        let text = config.to_toml();
        resolve(Some((Path::new("written.toml"), &text)), [], &[])
            .unwrap_or_else(|error| panic!("{error}"))
            .config
    }

    #[test]
    fn every_key_of_a_file_is_written() {
        for key in KEYS.iter().filter(|key| key.scope.in_file()) {
            assert!(Config::default().value(key).is_some(), "{} has no line in Config::value", key.name);
        }
    }

    #[test]
    fn what_is_written_reads_back_as_itself() {
        assert_eq!(read_back(&Config::default()), Config::default());
        let data_dir = "with \"quotes\" and \\ in it".into();
        let mut config = Config { data_dir, ..Config::default() };
        config.tcp.address = Some("[::1]:4711".parse().unwrap());
        config.shards = Some(3);
        config.connections.max = Some(9);
        config.topic.message_expiry = Some(Duration::from_secs(90));
        config.encryption.retired_keys = Some("39e4f0f95c3693c7".into());
        assert_eq!(read_back(&config), config);
    }

    #[test]
    fn no_secret_is_written() {
        let mut config = Config::default();
        config.encryption.key = Some(Secret::new("very secret"));
        config.root.password = Some(Secret::new("very secret"));
        let text = config.to_toml();
        assert!(!text.contains("very secret"), "{text}");
        assert!(text.contains("encryption.key = \"********\""), "{text}");
    }
}
