//! The broker as a library: reads the data directory, starts the shards, and stops them again. No logic of its own.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use laneway_config::{Config, ConfigError};
use laneway_encryption::{KeyRing, RingError};
use laneway_mailbox::{Capacity, Class, Stage, mailbox};
use laneway_metadata::options::OptionDefaults;
use laneway_metadata::options::settings::{NEVER, UNLIMITED};
use laneway_metadata::planner::PlanSettings;
use laneway_metadata::{Metadata, limits};
use laneway_reads::WaiterLimits;
use laneway_shard_metadata::MetadataLane;
use laneway_shard_partition::budgets::{UserConnections, UserLimits};
use laneway_shard_partition::connections::ConnectionLimits;
use laneway_shard_partition::core::LaneLimits;
use laneway_shard_partition::message::Message;
use laneway_shard_partition::passwords::{Methods, Passwords};
use laneway_shard_partition::shard::NodeAddress;
use laneway_shard_partition::snapshots::Snapshots;
use laneway_shard_partition::{
    Post, RestoredLane, RetentionSettings, ScrubSettings, ShardId, ShardSettings, clock,
};
use laneway_storage::{DataDirectory, GroupLimits, StorageCounters, StorageError};
use laneway_transport::{BindError, Bound};
use laneway_wire::{LaneId, Op};

use crate::cpus::Cores;
use crate::keys::{self, KeyMissing};
use crate::passwords::{PasswordError, Verifier};
use crate::probe::{self, EngineUnavailable, Report};
use crate::restore::{self, RestoreError};
use crate::root_user::{RootCredentials, RootError};
use crate::shard_thread::{self, Progress, ShardPlan, stage};
use crate::{descriptors, passwords, snapshot};

/// File of the data directory that says where the running broker listens.
pub const RUNTIME_FILE: &str = "runtime.toml";

/// File of the data directory with the configuration that the last start ran with, ports as they were bound.
pub const CURRENT_CONFIG_FILE: &str = "runtime/current_config.toml";

/// Shards of one node: connection numbers leave 8 bits for them.
const SHARDS_MAX: usize = 255;

/// How long a shard may take to come up. Reading a journal takes a second at most.
const START_MAX: Duration = Duration::from_secs(120);

/// How long the last checkpoint may take.
const FINISH_MAX: Duration = Duration::from_secs(60);

/// Why the broker did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The engine that was asked for does not run here.
    #[error(transparent)]
    Engine(#[from] EngineUnavailable),
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The data directory cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// What the data directory holds cannot be brought back.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The root user cannot be made.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The keys of the configuration do not fit together.
    #[error(transparent)]
    Keys(#[from] RingError),
    /// Streams are encrypted, and there is no key.
    #[error(transparent)]
    KeyMissing(#[from] KeyMissing),
    /// A password cannot be hashed.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// A shard did not come up.
    #[error("shard {shard}: {what}")]
    Shard {
        /// The shard.
        shard: u16,
        /// Why.
        what: String,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// The broker did not stop as it should. What was acknowledged is on disk all the same.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// Requests were still open when the time to drain was over.
    #[error("requests were still open after {0:?}; their clients find out by asking again")]
    Undrained(Duration),
    /// A shard could not write its last checkpoint; the next start replays its journal.
    #[error("shard {shard} could not write its last checkpoint: {what}")]
    Checkpoint {
        /// The shard.
        shard: u16,
        /// Why.
        what: String,
    },
    /// A shard did not end.
    #[error("a shard did not end within {0:?}")]
    Stuck(Duration),
}

/// A running broker. Ends with [`Broker::shutdown`]; dropping it drains, too.
#[derive(Debug)]
pub struct Broker {
    tcp_address: Option<SocketAddr>,
    runtime_file: PathBuf,
    posts: Vec<Post>,
    drain_timeout: Duration,
    report: Report,
    stages: Vec<Stage>,
    progress: Receiver<(u16, Progress)>,
    threads: Vec<JoinHandle<()>>,
    /// Whether the start succeeded.
    serving: bool,
}

impl Broker {
    /// Starts a broker. Returns when it listens.
    ///
    /// Errors: every wrong setting, busy address or unusable data directory, before anything is served.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.validate()?;
        let ring = keys::ring(&config.encryption)?;
        let started = Instant::now();
        let report = probe::probe(config.engine)?;
        let cores = Cores::available();
        let shards = config.shards.map_or(cores.count(), usize::from).clamp(1, SHARDS_MAX) as u16;
        let descriptors = descriptors::raise_limit()
            .map_err(|source| StartError::Io { what: "raise the limit of descriptors", source })?;

        // Before anything is made: a wrong pair of variables is a wrong setting.
        let root = RootCredentials::decide(&config.root)?;
        let bound = config.tcp.address.map(Bound::new).transpose()?;
        let directory = DataDirectory::open(&config.data_dir)?;
        let runtime_file = config.data_dir.join(RUNTIME_FILE);
        remove_if_there(&runtime_file)?;
        let restored = restore::restore(&directory, lane_limits(&config))?;

        let plan = plan_settings(&config);
        let session_timeout_us = config.sessions.timeout.as_micros() as u64;
        let lane = MetadataLane::recover(
            restored.metadata_snapshot.as_deref(),
            restored.metadata_log.iter().map(|record| (record.op, record.timestamp, record.prefix.as_ref())),
            plan,
            shards,
            session_timeout_us,
            clock::now(),
        )
        .map_err(RestoreError::from)?;
        let metadata = Arc::new(lane.metadata().clone());
        keys::check_streams(&metadata, &ring)?;
        warn_of_fixed_settings(&metadata, &config);
        let root = metadata.root().is_none().then_some(root);
        if root.is_none() && (config.root.dev || config.root.password.is_some()) {
            tracing::warn!("the root user exists already: --dev and LANEWAY_ROOT_* change nothing");
        }
        let create_root = root.as_ref().map(|root| create_root(root, &config, shards)).transpose()?;

        let written = written(&config, bound.as_ref().map(Bound::address));
        let (posts, inboxes): (Vec<_>, Vec<_>) =
            (0..shards).map(|_| mailbox(mailbox_capacity(&config))).unzip();
        let (progress_in, progress) = channel();
        let verifier = Verifier::new()?;
        let settings = SettingsOfAll {
            config: &config,
            shards,
            address: node_address(&config, bound.as_ref().map(Bound::address)),
            connections_max: descriptors::connections_max(config.connections.max, descriptors) as usize,
            connections: Arc::default(),
            user_connections: UserConnections::new(
                config.limits.connections_per_user_max.unwrap_or(u32::MAX),
            ),
            passwords: check_passwords(verifier, cores.count())?,
            plan,
            keys: Arc::new(ring),
            snapshots: snapshots(written.clone()),
            free_bytes_min: free_bytes_min(&config, shards),
        };

        let mut broker = Broker {
            tcp_address: bound.as_ref().map(Bound::address),
            runtime_file,
            posts: posts.clone(),
            drain_timeout: config.shutdown.drain_timeout,
            report,
            stages: Vec::new(),
            progress,
            threads: Vec::new(),
            serving: false,
        };
        let mut lanes = split_lanes(restored.lanes, shards);
        let mut lane = Some(lane);
        let mut create_root = create_root;
        for (number, inbox) in inboxes.into_iter().enumerate() {
            let number = number as u16;
            let stage = Stage::default();
            let plan = ShardPlan {
                settings: settings.of(number),
                directory: directory.clone(),
                group_limits: group_limits(&config),
                lanes: lanes.remove(&number).unwrap_or_default(),
                lane: if number == 0 { lane.take() } else { None },
                create_root: if number == 0 { create_root.take() } else { None },
                metadata: metadata.clone(),
                posts: posts.clone(),
                inbox,
                listener: bound.as_ref().map(Bound::listen).transpose()?,
                engine: broker.report.engine,
                core: config.pin_cores.then(|| cores.of_shard(usize::from(number))),
                stage: stage.clone(),
                progress: progress_in.clone(),
            };
            broker.stages.push(stage);
            broker.threads.push(spawn(plan)?);
        }
        drop(progress_in);
        if let Some(bound) = bound {
            bound.release();
        }

        let covered = broker.wait_for_checkpoints()?;
        remove_old_journals(&directory, &restored.journals, &covered)?;
        broker.raise(stage::SERVE);
        broker.wait_for(|progress| matches!(progress, Progress::Serving))?;
        if let Some(root) = root {
            root.announce(&mut io::stdout())
                .map_err(|source| StartError::Io { what: "print the root user's password", source })?;
        }
        broker.raise(stage::ACCEPT);
        write_current_config(&config.data_dir, &written)?;
        broker.write_runtime_file()?;
        broker.serving = true;
        tracing::info!(
            tcp = broker.tcp_address.map_or_else(|| "off".to_owned(), |address| address.to_string()),
            shards,
            engine = %broker.report,
            data = %config.data_dir.display(),
            took_ms = started.elapsed().as_millis() as u64,
            "listening"
        );
        Ok(broker)
    }

    /// Where it listens; none when TCP is off.
    pub fn tcp_addr(&self) -> Option<SocketAddr> {
        self.tcp_address
    }

    /// What does the I/O, and why.
    pub fn engine(&self) -> &Report {
        &self.report
    }

    /// Asks every shard for a sign of life. The answer tells whether all gave one since it was last asked; the first time
    /// it is yes.
    pub fn pulse(&self) -> impl Fn() -> bool + Send + use<> {
        let posts = self.posts.clone();
        let flags: Vec<_> = posts.iter().map(|_| Arc::new(AtomicBool::new(true))).collect();
        move || {
            let alive = flags.iter().all(|flag| flag.swap(false, Ordering::Acquire));
            let asked = posts
                .iter()
                .zip(&flags)
                .all(|(post, flag)| post.send(Class::Control, Message::Alive(flag.clone())).is_ok());
            alive && asked
        }
    }

    /// Stops: refuses new work, finishes what is on its way, writes checkpoints, ends the shards.
    pub fn shutdown(mut self) -> Result<(), StopError> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), StopError> {
        if self.threads.is_empty() {
            return Ok(());
        }
        // Whoever looks for the address must not find one that is about to close.
        let _ = std::fs::remove_file(&self.runtime_file);
        if !self.serving {
            // A start that failed has nothing to drain, and a shard that failed reports no more.
            self.raise(stage::FINISH);
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
            return Ok(());
        }
        self.raise(stage::STOP);
        let drained = self.collect(self.drain_timeout + Duration::from_secs(1), |progress| match progress {
            Progress::Drained { clean } => Some(clean),
            _ => None,
        });
        self.raise(stage::FINISH);
        let finished = self.collect(FINISH_MAX, |progress| match progress {
            Progress::Finished(result) => Some(result),
            _ => None,
        });
        let all_ended = finished.len() == self.threads.len();
        for thread in self.threads.drain(..) {
            if all_ended {
                // A shard that panicked has ended the process already.
                let _ = thread.join();
            }
        }
        if !all_ended {
            return Err(StopError::Stuck(FINISH_MAX));
        }
        for (shard, result) in finished {
            if let Err(what) = result {
                return Err(StopError::Checkpoint { shard, what });
            }
        }
        match drained.values().all(|clean| *clean) && drained.len() == self.stages.len() {
            true => Ok(()),
            false => Err(StopError::Undrained(self.drain_timeout)),
        }
    }

    fn raise(&self, to: u8) {
        for stage in &self.stages {
            stage.raise(to);
        }
    }

    fn wait_for_checkpoints(&self) -> Result<BTreeMap<LaneId, Op>, StartError> {
        let mut covered = BTreeMap::new();
        for _ in 0..self.stages.len() {
            match self.next_progress()? {
                (_, Progress::Recovered(lanes)) => covered.extend(lanes),
                (shard, Progress::Failed(what)) => return Err(StartError::Shard { shard, what }),
                (shard, _) => {
                    return Err(StartError::Shard { shard, what: "reported out of order".to_owned() });
                }
            }
        }
        Ok(covered)
    }

    fn wait_for(&self, done: impl Fn(&Progress) -> bool) -> Result<(), StartError> {
        for _ in 0..self.stages.len() {
            match self.next_progress()? {
                (_, progress) if done(&progress) => {}
                (shard, Progress::Failed(what)) => return Err(StartError::Shard { shard, what }),
                (shard, _) => {
                    return Err(StartError::Shard { shard, what: "reported out of order".to_owned() });
                }
            }
        }
        Ok(())
    }

    fn next_progress(&self) -> Result<(u16, Progress), StartError> {
        self.progress.recv_timeout(START_MAX).map_err(|error| StartError::Shard {
            shard: 0,
            what: match error {
                RecvTimeoutError::Timeout => format!("not up after {START_MAX:?}"),
                RecvTimeoutError::Disconnected => "ended while starting".to_owned(),
            },
        })
    }

    /// One answer of each shard, as far as they come in time.
    fn collect<T>(&self, within: Duration, take: impl Fn(Progress) -> Option<T>) -> BTreeMap<u16, T> {
        let end = Instant::now() + within;
        let mut answers = BTreeMap::new();
        while answers.len() < self.stages.len() {
            let left = end.saturating_duration_since(Instant::now());
            let Ok((shard, progress)) = self.progress.recv_timeout(left) else { break };
            if let Some(answer) = take(progress) {
                answers.insert(shard, answer);
            }
        }
        answers
    }

    fn write_runtime_file(&self) -> Result<(), StartError> {
        let address = self.tcp_address.map_or_else(|| "off".to_owned(), |address| address.to_string());
        let text = format!(
            "# Written by the running broker, removed when it stops.\nprocess_id = {}\ntcp_address = \"{address}\"\n",
            std::process::id()
        );
        let part = self.runtime_file.with_extension("toml.new");
        let write = || {
            std::fs::write(&part, text)?;
            std::fs::rename(&part, &self.runtime_file)
        };
        write().map_err(|source| StartError::Io { what: "write the runtime file", source })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "the broker did not stop cleanly");
        }
    }
}

/// Free space below which messages are refused. What was accepted fits in twice its journal: once there, once in
/// segments. A small disk keeps a quarter.
fn free_bytes_min(config: &Config, shards: u16) -> u64 {
    config.storage.free_bytes_min.unwrap_or_else(|| {
        let accepted = config.storage.journal_bytes_max.saturating_mul(2 * u64::from(shards));
        let total =
            laneway_shard_partition::process::disk(&config.data_dir).map_or(u64::MAX, |(_, total)| total);
        accepted.min(total / 4)
    })
}

/// Settings that all shards share.
struct SettingsOfAll<'a> {
    config: &'a Config,
    shards: u16,
    address: NodeAddress,
    connections_max: usize,
    connections: Arc<AtomicUsize>,
    user_connections: UserConnections,
    passwords: Passwords,
    plan: PlanSettings,
    keys: Arc<KeyRing>,
    snapshots: Snapshots,
    free_bytes_min: u64,
}

impl SettingsOfAll<'_> {
    fn of(&self, shard: u16) -> ShardSettings {
        let config = self.config;
        let maintenance = &config.data_maintenance;
        ShardSettings {
            id: ShardId(shard),
            shards: self.shards,
            frame_bytes_max: config.limits.frame_bytes_max as usize,
            connection_limits: connection_limits(config),
            user_limits: user_limits(config),
            user_connections: self.user_connections.clone(),
            connections_max: self.connections_max,
            connections: self.connections.clone(),
            wait_us_max: config.reads.wait_max.as_micros() as u64,
            waiters: WaiterLimits {
                shard_max: config.reads.pending_per_shard_max as usize,
                user_max: config.reads.pending_per_user() as usize,
                session_max: config.reads.pending_per_session_max as usize,
            },
            read_bytes_max: config.reads.read_bytes_max,
            reads_at_once: reads_at_once(config),
            lane_limits: lane_limits(config),
            cache_bytes: config.storage.cache_bytes_max,
            address: self.address.clone(),
            passwords: self.passwords.clone(),
            plan: self.plan,
            free_bytes_min: self.free_bytes_min,
            scrub: ScrubSettings {
                interval: maintenance.scrub_interval,
                bytes_per_second: maintenance.scrub_bytes_per_second,
            },
            retention: RetentionSettings {
                interval_us: maintenance
                    .cleaner_enabled
                    .then_some(maintenance.cleaner_interval.as_micros() as u64),
                message_bytes_max: u64::from(config.limits.frame_bytes_max),
            },
            keys: self.keys.clone(),
            snapshots: self.snapshots.clone(),
        }
    }
}

fn plan_settings(config: &Config) -> PlanSettings {
    let topic = &config.topic;
    PlanSettings {
        option_defaults: OptionDefaults {
            message_expiry: topic.message_expiry.map_or(NEVER, |expiry| expiry.as_micros() as u64),
            max_topic_size: topic.max_topic_size.unwrap_or(UNLIMITED),
            segment_size: topic.segment_size,
            durability: durability(topic.durability),
            consumer_offset_durability: durability(topic.consumer_offset_durability),
            ..OptionDefaults::default()
        },
        tokens_max: config.tokens.per_user_max,
        partitions_max: config.metadata.partitions_max.map_or(0, u64::from),
        ..PlanSettings::default()
    }
}

fn durability(configured: laneway_config::Durability) -> laneway_metadata::Durability {
    match configured {
        laneway_config::Durability::Persisted => laneway_metadata::Durability::Persisted,
        laneway_config::Durability::Replicated => laneway_metadata::Durability::Replicated,
    }
}

/// The first start wrote these down; every node of a log has to agree on them.
fn warn_of_fixed_settings(metadata: &Metadata, config: &Config) {
    if metadata.root().is_none() {
        return;
    }
    let settings = metadata.settings();
    for (key, fixed, configured) in [
        ("sessions.max", settings.sessions_max, config.sessions.max),
        ("metadata.change_records_max", settings.changes_max, config.metadata.change_records_max),
    ] {
        if fixed != configured {
            tracing::warn!(
                key,
                fixed,
                configured,
                "fixed by the first start of this data directory: the configured value has no effect"
            );
        }
    }
}

/// The configuration in effect, as a file: with the bound address, without secrets.
fn written(config: &Config, bound: Option<SocketAddr>) -> String {
    let mut effective = config.clone();
    effective.tcp.address = bound;
    let head = "# The configuration that the broker runs with, ports as they were bound. Written at start; secrets are masked.\n";
    format!("{head}{}", effective.to_toml())
}

/// Writes the configuration down and flushes it: a tool that finds the file finds all of it. Source: resources, section
/// 22.3.
fn write_current_config(data_dir: &Path, text: &str) -> Result<(), StartError> {
    let file = data_dir.join(CURRENT_CONFIG_FILE);
    let part = file.with_extension("toml.new");
    let write = || {
        let directory = file.parent().expect("the file lies in a directory");
        std::fs::create_dir_all(directory)?;
        let mut writer = std::fs::File::create(&part)?;
        writer.write_all(text.as_bytes())?;
        writer.sync_all()?;
        std::fs::rename(&part, &file)?;
        std::fs::File::open(directory)?.sync_all()
    };
    write().map_err(|source| StartError::Io { what: "write the current configuration", source })
}

/// Archives for bug reports.
fn snapshots(config: String) -> Snapshots {
    let sources = snapshot::Sources { config };
    Snapshots::new(Arc::new(move |request| snapshot::make(request, &sources)))
}

/// Threads that check passwords: half of the cores, at most four. A check takes 19 MiB and some ten milliseconds.
fn check_passwords(verifier: Verifier, cores: usize) -> Result<Passwords, StartError> {
    let check = move |password: &str, stored: Option<&str>| verifier.verify(password, stored);
    let hash = |password: &str| match passwords::hash(password) {
        Ok(hash) => Some(hash),
        Err(error) => {
            tracing::error!(%error, "a password could not be hashed");
            None
        }
    };
    let methods = Methods { check: Arc::new(check), hash: Arc::new(hash) };
    Passwords::start(cores.div_ceil(2).min(4), methods)
        .map_err(|source| StartError::Io { what: "start a thread for password checks", source })
}

fn lane_limits(config: &Config) -> LaneLimits {
    LaneLimits {
        consumer_offsets_max: config.partition.consumer_offsets_max as usize,
        sessions_max: config.partition.dedup_sessions_max as usize,
        ..LaneLimits::default()
    }
}

/// Reads that fit into the memory for answers. One always may: the largest answer is no larger than that memory.
fn reads_at_once(config: &Config) -> usize {
    let reads = config.reads.inflight_bytes_max / u64::from(config.reads.read_bytes_max);
    usize::try_from(reads).unwrap_or(usize::MAX).max(1)
}

fn connection_limits(config: &Config) -> ConnectionLimits {
    ConnectionLimits {
        requests_max: config.limits.requests_per_connection_max as usize,
        bytes_max: as_usize(config.limits.inflight_bytes_per_connection_max),
    }
}

fn user_limits(config: &Config) -> UserLimits {
    UserLimits {
        requests_max: config.limits.requests_per_user_max as usize,
        bytes_max: as_usize(config.limits.inflight_bytes_per_user_max),
    }
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn group_limits(config: &Config) -> GroupLimits {
    GroupLimits { journal_bytes_max: config.storage.journal_bytes_max, ..GroupLimits::default() }
}

fn mailbox_capacity(config: &Config) -> Capacity {
    let requests = config.limits.mailbox_capacity as usize;
    Capacity { control: requests, reply: requests, request: requests }
}

fn node_address(config: &Config, bound: Option<SocketAddr>) -> NodeAddress {
    let advertised = config.tcp.advertised_address.as_ref();
    let port = advertised.and_then(|advertised| advertised.port);
    NodeAddress {
        ip: advertised.map_or_else(
            || bound.map_or_else(|| "127.0.0.1".to_owned(), |bound| bound.ip().to_string()),
            |advertised| advertised.host.clone(),
        ),
        tcp_port: port.or(bound.map(|bound| bound.port())).unwrap_or(0),
    }
}

fn create_root(
    root: &RootCredentials,
    config: &Config,
    shards: u16,
) -> Result<laneway_metadata::CreateRoot, StartError> {
    let lanes = u32::from(shards) * u32::from(config.lanes_per_shard);
    Ok(laneway_metadata::CreateRoot {
        username: root.username.clone(),
        password_hash: laneway_metadata::users::PasswordHash::new(passwords::hash(root.password.reveal())?),
        settings: laneway_metadata::Settings {
            lanes_per_class: lanes.clamp(1, laneway_metadata::lanes::LANES_PER_CLASS_MAX),
            sessions_max: config
                .sessions
                .max
                .clamp(*limits::SESSIONS_MAX.start(), *limits::SESSIONS_MAX.end()),
            changes_max: config.metadata.change_records_max,
        },
    })
}

fn split_lanes(
    lanes: BTreeMap<LaneId, RestoredLane>,
    shards: u16,
) -> BTreeMap<u16, BTreeMap<LaneId, RestoredLane>> {
    let mut of_shard: BTreeMap<u16, BTreeMap<LaneId, RestoredLane>> = BTreeMap::new();
    for (lane, restored) in lanes {
        let owner = laneway_shard_metadata::settling::owner(lane, shards);
        of_shard.entry(owner).or_default().insert(lane, restored);
    }
    of_shard
}

fn spawn(plan: ShardPlan) -> Result<JoinHandle<()>, StartError> {
    Builder::new()
        .name(format!("shard-{}", plan.settings.id.0))
        .spawn(move || shard_thread::run(plan))
        .map_err(|source| StartError::Io { what: "start a shard's thread", source })
}

fn remove_if_there(path: &Path) -> Result<(), StartError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StartError::Io { what: "remove the runtime file of an earlier run", source })
        }
        _ => Ok(()),
    }
}

/// The journals of earlier runs go once every lane in them has a checkpoint of this run.
fn remove_old_journals(
    directory: &DataDirectory,
    journals: &[laneway_storage::journal::JournalMarks],
    covered: &BTreeMap<LaneId, Op>,
) -> Result<(), StartError> {
    let old: Vec<_> =
        journals.iter().filter(|marks| marks.covered_by(covered)).map(|marks| marks.journal).collect();
    if old.is_empty() {
        return Ok(());
    }
    let remove = || {
        let runtime = compio::runtime::Runtime::builder()
            .with_proactor(compio::driver::ProactorBuilder::new())
            .build()
            .map_err(|source| StartError::Io { what: "make a runtime", source })?;
        Ok(runtime.block_on(directory.remove_journals(&old, &StorageCounters::default()))?)
    };
    // The kernel takes a closed ring apart later and interrupts the thread that made it. That must not be the thread of
    // the program that embeds the broker: its own reads would end with EINTR.
    std::thread::scope(|scope| scope.spawn(remove).join()).expect("removing files does not panic")
}

/// How shards report; the receiving end is the broker's.
pub type ProgressSender = Sender<(u16, Progress)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_segments_share_the_memory_for_answers() {
        let check = |inflight: u64, answer: u32, expected: usize| {
            let mut config = Config::default();
            (config.reads.inflight_bytes_max, config.reads.read_bytes_max) = (inflight, answer);
            assert_eq!(reads_at_once(&config), expected);
        };
        check(64 << 20, 16 << 20, 4);
        check((32 << 20) - 1, 16 << 20, 1);
        check(1 << 20, 1 << 20, 1);
        check(1 << 20, 64 << 20, 1);
    }
}
