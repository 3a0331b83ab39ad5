//! The table of keys: the only place where a setting is declared.
//!
//! A new key is one entry here and one line in `Config::from_values`; a test finds the one without the other. Names are
//! dotted as in the file (`[tcp] address` is `tcp.address`), units are in the values, bounds end in `_max`.

use std::time::Duration;

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// Dotted name, as in the file.
    pub name: &'static str,
    /// Form and range of the values.
    pub kind: Kind,
    /// The word that stands for "no value", such as `off` or `auto`. An empty word means that the key may be unset.
    pub word: Option<&'static str>,
    /// The default, as text that the same parser reads.
    pub default: &'static str,
    /// One line for a person.
    pub about: &'static str,
    /// The flag of `laneway serve` that sets this key, with its dashes. Every other key has `--set KEY=VALUE`.
    pub flag: Option<&'static str>,
    /// Other environment variable that sets this key, where one is established.
    pub variable_alias: Option<&'static str>,
    /// Where the key may be set.
    pub scope: Scope,
}

/// Where a key may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// File, environment and command line.
    Anywhere,
    /// Environment and command line: it concerns one start, not a deployment.
    NotInFile,
    /// Environment only: files and arguments are read by too many.
    Environment,
    /// File and environment: arguments are read by everybody on the machine.
    NotFlag,
}

impl Scope {
    /// Whether a file may set the key.
    pub fn in_file(self) -> bool {
        matches!(self, Scope::Anywhere | Scope::NotFlag)
    }

    /// Whether the command line may set the key.
    pub fn in_flags(self) -> bool {
        matches!(self, Scope::Anywhere | Scope::NotInFile)
    }
}

/// Form and range of a value. Bounds are inclusive.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// One of these words, in any letter case.
    Choice(&'static [&'static str]),
    /// A whole number.
    Count { min: u64, max: u64 },
    /// A size with a unit; see [`crate::units::parse_bytes`].
    Bytes { min: u64, max: u64, multiple_of: u64 },
    /// A duration with units; see [`crate::units::parse_duration`].
    Duration { min: Duration, max: Duration },
    /// `IP:PORT` to listen on.
    Address,
    /// `HOST` or `HOST:PORT` that clients can reach.
    Host,
    /// A path of a directory.
    Path,
    /// Text of so many bytes.
    Text { bytes_min: usize, bytes_max: usize },
    /// Text that is never shown.
    Secret { bytes_min: usize, bytes_max: usize },
}

/// The prefix of every environment name.
pub const VARIABLE_PREFIX: &str = "LANEWAY_";

/// `LANEWAY_*` names that are not keys: arguments of the command line that have a variable too.
pub const OTHER_VARIABLES: [(&str, &str); 4] = [
    ("LANEWAY_CONFIG", "path of the configuration file; the twin of --config"),
    ("LANEWAY_SERVER", "broker that the client subcommands connect to; the twin of --server"),
    ("LANEWAY_USERNAME", "user of the client subcommands; the twin of --username"),
    ("LANEWAY_PASSWORD", "password of the client subcommands; the twin of --password"),
];

impl Key {
    const fn new(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Self {
        Self {
            name,
            kind,
            word: None,
            default,
            about,
            flag: None,
            variable_alias: None,
            scope: Scope::Anywhere,
        }
    }

    const fn or(mut self, word: &'static str) -> Self {
        self.word = Some(word);
        self
    }

    const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    const fn alias(mut self, variable: &'static str) -> Self {
        self.variable_alias = Some(variable);
        self
    }

    const fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The environment name: `tcp.address` is `LANEWAY_TCP_ADDRESS`.
    pub fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    /// Whether values of this key are masked.
    pub fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret { .. })
    }
}

/// Looks a key up by its dotted name.
pub fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Looks a key up by the name of an environment variable, aliases included.
pub fn key_of_variable(variable: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.variable() == variable || key.variable_alias == Some(variable))
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max, multiple_of: 1 }
}

const fn milliseconds(min: u64, max: u64) -> Kind {
    Kind::Duration { min: Duration::from_millis(min), max: Duration::from_millis(max) }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000;
const DAY: u64 = 86_400 * SECOND;

/// Every key, in the order in which people read them.
pub const KEYS: &[Key] = &[
    Key::new("data_dir", Kind::Path, "./laneway-data", "Directory of all data. Created when missing; a relative path starts at the working directory.")
        .flag("--data-dir"),
    Key::new("tcp.address", Kind::Address, "127.0.0.1:8090", "Where the TCP listener binds. Port 0 picks a free port.")
        .or("off")
        .flag("--tcp"),
    Key::new("tcp.advertised_address", Kind::Host, "", "Host that clients are told to connect to, where it differs from the bound one. Without a port, the bound port.")
        .or(""),
    Key::new("http.address", Kind::Address, "off", "Where the HTTP listener binds. Not there yet: anything but off is refused at start.")
        .or("off")
        .flag("--http"),
    Key::new("shards", count(1, 255), "auto", "Number of shards, each one thread. auto: one for each core that the process may use.")
        .or("auto")
        .flag("--shards"),
    Key::new("pin_cores", Kind::Bool, "true", "Pin each shard to its core."),
    Key::new("lanes_per_shard", count(1, 64), "4", "Data lanes of each shard. The first start of a data directory fixes it; later starts keep the lanes that are there."),
    Key::new("engine", Kind::Choice(&["auto", "io_uring", "polling"]), "auto", "I/O engine. auto: io_uring where the kernel allows it, else polling."),
    Key::new("log.filter", Kind::Text { bytes_min: 1, bytes_max: 1024 }, "info", "What to log: a level (error, warn, info, debug, trace) or a filter such as info,laneway_storage=debug.")
        .flag("--log"),
    Key::new("dev", Kind::Bool, "false", "For development: a new root user gets the well-known password iggy/iggy.")
        .flag("--dev")
        .scope(Scope::NotInFile),
    Key::new("root.username", Kind::Text { bytes_min: 3, bytes_max: 50 }, "", "Name of the root user, read only when it is created.")
        .or("")
        .alias("IGGY_ROOT_USERNAME")
        .scope(Scope::NotInFile),
    Key::new("root.password", Kind::Secret { bytes_min: 3, bytes_max: 100 }, "", "Password of the root user, read only when it is created.")
        .or("")
        .alias("IGGY_ROOT_PASSWORD")
        .scope(Scope::Environment),
    Key::new("sessions.timeout", milliseconds(10 * SECOND, 7 * DAY), "15 m", "How long a session without a connection lives, so that a client can come back to it."),
    Key::new("sessions.max", count(2, 65_536), "8192", "Most sessions at a time; a full table refuses new ones and ends none. Fixed by the first start of a data directory."),
    Key::new("tokens.per_user_max", count(1, 10_000), "100", "Most personal access tokens of one user."),
    Key::new("metadata.partitions_max", count(1, 4_000_000), "unlimited", "Most partitions of the server. Creates that are on their way may go beyond it by what is on its way.").or("unlimited"),
    Key::new("metadata.change_records_max", count(16, 1_048_576), "8192", "Records that the metadata change log keeps of changes of resources, and as many of sessions. Fixed by the first start of a data directory."),
    Key::new("connections.max", count(1, 1_000_000), "auto", "Most client connections at a time; one more is closed at accept. auto: half of the descriptor limit.")
        .or("auto"),
    Key::new("limits.frame_bytes_max", bytes(MIB, 64 * MIB), "64 MiB", "Largest frame that a client may send, header included."),
    Key::new("limits.requests_per_connection_max", count(1, 4096), "256", "Most requests of one connection at a time; the connection is not read further until one is answered."),
    Key::new("limits.inflight_bytes_per_connection_max", bytes(MIB, 16 * GIB), "128 MiB", "Most bytes of open requests of one connection, and of the answers that they ask for; the connection is not read further above it."),
    Key::new("limits.requests_per_user_max", count(1, 1_048_576), "16384", "Most requests of one user at a time on one shard, of all its connections; one more is refused with 58."),
    Key::new("limits.inflight_bytes_per_user_max", bytes(MIB, 64 * GIB), "512 MiB", "Most bytes of requests of one user at a time on one shard; one more is refused with 58."),
    Key::new("limits.connections_per_user_max", count(1, 1_000_000), "unlimited", "Most signed-in connections of one user on the node; a sign-in above it is refused with 58.")
        .or("unlimited"),
    Key::new("limits.mailbox_capacity", count(64, 65_536), "4096", "Requests that wait for one shard. A full mailbox refuses new ones before anything happened."),
    Key::new("partition.dedup_sessions_max", count(1, 65_536), "4096", "Sessions of which a partition remembers the last send, so that a retry is stored once."),
    Key::new("partition.consumer_offsets_max", count(1, 262_144), "4096", "Stored offsets of one partition, for each kind of consumer."),
    Key::new("reads.wait_max", milliseconds(0, 600 * SECOND), "30 s", "Longest wait of a poll; a longer one is cut to this."),
    Key::new("reads.pending_per_shard_max", count(1, 65_536), "1024", "Most polls that wait on one shard."),
    Key::new("reads.pending_per_user_max", count(1, 65_536), "auto", "Most polls of one user that wait on one shard, of all its sessions. auto: three quarters of reads.pending_per_shard_max.")
        .or("auto"),
    Key::new("reads.pending_per_session_max", count(1, 4096), "64", "Most polls of one session that wait."),
    Key::new("reads.read_bytes_max", bytes(64 * KIB, 64 * MIB), "16 MiB", "Most bytes that one read returns (a single larger message is still returned whole)."),
    Key::new("reads.inflight_bytes_max", bytes(MIB, 16 * GIB), "64 MiB", "Memory of one shard for reads of segments: so many run at once as answers of read_bytes_max fit in, at least one."),
    Key::new("storage.journal_bytes_max", Kind::Bytes { min: 4 * MIB, max: 4 * GIB, multiple_of: 4 * KIB }, "64 MiB", "Size of a shard's journal at which a checkpoint starts a new one."),
    Key::new("storage.free_bytes_min", bytes(0, 1 << 60), "auto", "Free disk space below which messages are refused, so that what was accepted fits. auto: two journals for each shard, at most a quarter of the disk.")
        .or("auto"),
    Key::new("storage.cache_bytes_max", bytes(4 * MIB, 64 * GIB), "64 MiB", "Batches of one shard that stay in memory after a checkpoint wrote them to their segments; reads of them need no disk."),
    Key::new("data_maintenance.messages.cleaner_enabled", Kind::Bool, "true", "Remove old segments by the message_expiry and max_topic_size of their topics. Deleting segments by command always works."),
    Key::new("data_maintenance.messages.interval", milliseconds(10, DAY), "1 m", "Least time between two passes of the cleaner; a pass looks only at partitions in which something can go."),
    Key::new("encryption.enabled", Kind::Bool, "false", "Encrypt the messages of every new stream that brings no key of its own. Needs encryption.key; a stream that exists stays as it is."),
    Key::new("encryption.key", Kind::Secret { bytes_min: 1, bytes_max: 64 }, "", "Key that wraps the keys of streams: 32 random bytes in base64.")
        .or("")
        .scope(Scope::NotFlag),
    Key::new("encryption.previous_keys", Kind::Secret { bytes_min: 1, bytes_max: 256 }, "", "Keys before encryption.key, at most two, separated by commas. They still open streams while these move to the current key.")
        .or("")
        .scope(Scope::NotFlag),
    Key::new("encryption.retired_keys", Kind::Text { bytes_min: 1, bytes_max: 1024 }, "", "Fingerprints of keys that are configured no more, separated by commas. What they wrapped is dropped.")
        .or(""),
    Key::new("data_maintenance.scrub.interval", milliseconds(10, 365 * DAY), "1 d", "Time from one verification of all sealed segments to the next."),
    Key::new("data_maintenance.scrub.bytes_per_second", bytes(KIB, 64 * GIB), "8 MiB", "Rate at which a shard reads sealed segments to verify them; damage is logged with the offsets that it concerns.")
        .or("off"),
    Key::new("topic.durability", Kind::Choice(&["persisted", "replicated"]), "persisted", "What an acknowledgement of a new topic means. persisted: on stable storage. replicated: survives a killed process, not a power loss."),
    Key::new("topic.consumer_offset_durability", Kind::Choice(&["persisted", "replicated"]), "persisted", "What the acknowledgement of a stored offset of a new topic means; values as for topic.durability."),
    Key::new("topic.segment_size", Kind::Bytes { min: MIB, max: GIB, multiple_of: 512 }, "1 GiB", "Size of a segment file of a new topic."),
    Key::new("topic.message_expiry", milliseconds(1, 36_500 * DAY), "never", "Age at which messages of a new topic may be removed.").or("never"),
    Key::new("topic.max_topic_size", bytes(MIB, 1 << 60), "unlimited", "Size of a new topic above which its oldest segments may be removed. At least topic.segment_size.").or("unlimited"),
    Key::new("shutdown.drain_timeout", milliseconds(0, 3_600 * SECOND), "10 s", "Longest time that a stop waits for requests in progress."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_variables_are_unique() {
        let names: BTreeSet<_> = KEYS.iter().map(|key| key.name).collect();
        let variables: BTreeSet<_> = KEYS.iter().map(Key::variable).collect();
        assert_eq!((names.len(), variables.len()), (KEYS.len(), KEYS.len()));
        for (name, _) in OTHER_VARIABLES {
            assert!(!variables.contains(name), "{name}");
        }
    }

    #[test]
    fn no_key_is_also_the_table_of_another() {
        for key in KEYS {
            let prefix = format!("{}.", key.name);
            assert!(KEYS.iter().all(|other| !other.name.starts_with(&prefix)), "{}", key.name);
        }
    }

    #[test]
    fn every_default_is_a_valid_value() {
        for key in KEYS {
            crate::value::parse(key, key.default).unwrap_or_else(|error| panic!("{}: {error}", key.name));
        }
    }

    #[test]
    fn every_key_says_in_one_sentence_what_it_is() {
        for key in KEYS {
            assert!(
                key.about.ends_with('.') && key.about.len() < 160 && !key.about.contains('|'),
                "{}",
                key.name
            );
        }
    }
}
