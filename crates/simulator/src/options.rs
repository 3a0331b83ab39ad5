//! What one run is: everything follows from a seed and a profile, and a few numbers can be set to make a run smaller.

use crate::clock::ClockSettings;
use crate::faults::Mask;
use crate::network::NetworkSettings;
use crate::queue::{MILLISECOND, SECOND, Time};
use crate::random::{Ppm, Random};
use crate::trace::Verbosity;

/// How long runs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Short runs, every kind of fault: what a soak of many seeds uses.
    #[default]
    Lite,
    /// Long runs with more clients and more lanes.
    Swarm,
}

/// What is asked of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// The profile.
    pub profile: Profile,
    /// Fault decisions that are taken back.
    pub mask: Mask,
    /// Nodes, when not drawn: 1 to 6.
    pub nodes: Option<usize>,
    /// Clients, when not drawn.
    pub clients: Option<usize>,
    /// Requests of each client, when not drawn.
    pub requests: Option<u32>,
    /// A bug that is planted into every replica; see [`crate::mutations`].
    pub mutation: Option<usize>,
    /// What becomes of the trace.
    pub verbosity: Verbosity,
}

impl Options {
    /// A run of a seed with everything drawn.
    pub fn of(seed: u64, profile: Profile) -> Self {
        Self { seed, profile, ..Self::default() }
    }
}

/// Which faults a run has, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSettings {
    /// Mean time between two events of the environment (crashes, partitions and so on).
    pub every: Time,
    /// Weights of the kinds of events; see [`EventKind`].
    pub weights: [u32; EVENT_KINDS],
    /// A crash between two effects of a core.
    pub crash_at_effect: Ppm,
    /// Writes that take long.
    pub slow_write: Ppm,
    /// Mean latency of a write.
    pub write_mean: Time,
    /// Mean latency of a flush.
    pub flush_mean: Time,
    /// Writes that are acknowledged and never happen.
    pub lost_write: Ppm,
    /// Writes that go elsewhere.
    pub misdirect: Ppm,
    /// Flushes that lie.
    pub lost_sync: Ppm,
    /// Writes that find the disk full.
    pub full_disk: Ppm,
    /// Replies to clients that are lost.
    pub lost_reply: Ppm,
}

/// Events of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventKind {
    /// A process is killed and started again.
    Crash,
    /// All processes are killed.
    CrashAll,
    /// A machine loses power.
    PowerLoss,
    /// Nodes are cut off from each other.
    Cut,
    /// A cut ends.
    Join,
    /// A link is clogged.
    Clog,
    /// A process stands still.
    Pause,
    /// A shard is slow.
    Slow,
    /// A record of a log is damaged at rest.
    Corrupt,
    /// A copy of a superblock is damaged at rest.
    CorruptSuperblock,
    /// A disk does nothing for a while.
    Stuck,
    /// A wall clock jumps.
    ClockStep,
    /// A directory is emptied.
    Wipe,
    /// A directory goes back to an older copy.
    Rollback,
}

/// Number of kinds.
pub const EVENT_KINDS: usize = 14;

impl EventKind {
    /// All kinds in the order of their numbers.
    pub const ALL: [EventKind; EVENT_KINDS] = [
        EventKind::Crash,
        EventKind::CrashAll,
        EventKind::PowerLoss,
        EventKind::Cut,
        EventKind::Join,
        EventKind::Clog,
        EventKind::Pause,
        EventKind::Slow,
        EventKind::Corrupt,
        EventKind::CorruptSuperblock,
        EventKind::Stuck,
        EventKind::ClockStep,
        EventKind::Wipe,
        EventKind::Rollback,
    ];
}

/// Everything about a run that is decided before it starts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// Lanes: 0, then as many of the replicated class as of the persisted one.
    pub lanes: usize,
    /// Clients.
    pub clients: usize,
    /// Requests of each client.
    pub requests: u32,
    /// When faults end.
    pub fault_end: Time,
    /// How long after that everything must be done.
    pub heal_within: Time,
    /// Links.
    pub network: NetworkSettings,
    /// Clocks.
    pub clocks: ClockSettings,
    /// The rest of the faults.
    pub faults: FaultSettings,
    /// Ops between two checkpoints of a lane.
    pub checkpoint_ops: u64,
    /// Whether whole directories may be lost.
    pub lose_directories: bool,
    /// Whether damage is placed without regard to what can be survived.
    pub beyond_model: bool,
    /// Nodes that stay down when faults end.
    pub left_dead: usize,
    /// Mean pause of a client between two requests.
    pub think_mean: Time,
}

impl Plan {
    /// Draws the plan of a run.
    pub fn draw(options: &Options) -> Self {
        // A stream of its own: what a run is made of must not move what happens in it.
        let mut random = Random::new(options.seed, 100);
        let nodes = *random.pick(&[1, 2, 3, 3, 3, 3, 4, 5, 5, 6]);
        let nodes = options.nodes.unwrap_or(nodes);
        let swarm = options.profile == Profile::Swarm;
        let lanes_per_class = if swarm { random.between(1, 3) as usize } else { 1 };
        let clients = random.between(1, if swarm { 6 } else { 3 }) as usize;
        let requests = random.between(4, if swarm { 120 } else { 16 }) as u32;
        let fault_end =
            if swarm { random.between(5, 40) * SECOND } else { random.between(500, 4_000) * MILLISECOND };
        let network =
            if random.below(4) == 0 { NetworkSettings::GOOD } else { NetworkSettings::draw(&mut random) };
        let clocks = ClockSettings {
            offset_us_max: if random.flip() { random.below(5_000_000) } else { 0 },
            drift_ppm_max: if random.flip() { random.below(10_000) } else { 0 },
        };
        let storage_faults = random.below(3) == 0;
        let lose_directories = nodes > 1 && random.below(4) == 0;
        let beyond_model = random.below(40) == 0;
        let checkpoint_ops = if random.flip() { random.between(3, 12) } else { 1_000 };
        let faults =
            Self::draw_faults(&mut random, nodes, swarm, storage_faults, lose_directories, beyond_model);
        let left_dead = match random.below(4) {
            0 if !storage_faults && !lose_directories && !beyond_model => {
                let quorums =
                    laneway_vsr::Quorums::of(nodes).expect("a run has a number of nodes that has quorums");
                let spare = nodes - quorums.replication().max(quorums.view_change());
                random.below(spare as u64 + 1) as usize
            }
            _ => 0,
        };
        Self {
            seed: options.seed,
            nodes,
            lanes: 1 + 2 * lanes_per_class,
            clients: options.clients.unwrap_or(clients),
            requests: options.requests.unwrap_or(requests),
            fault_end,
            heal_within: 120 * SECOND,
            network,
            clocks,
            faults,
            checkpoint_ops,
            lose_directories,
            beyond_model,
            left_dead,
            think_mean: random.between(1, 60) * MILLISECOND,
        }
    }

    /// Whether members may lose the end of a log, or all of it.
    pub fn lose_ends(&self) -> bool {
        self.lose_directories || self.faults.lost_write.0 > 0 || self.faults.misdirect.0 > 0
    }

    fn draw_faults(
        random: &mut Random,
        nodes: usize,
        swarm: bool,
        storage_faults: bool,
        lose_directories: bool,
        beyond_model: bool,
    ) -> FaultSettings {
        let mut weights = [0; EVENT_KINDS];
        for kind in EventKind::ALL {
            // A random subset of the kinds, each with its own weight.
            let weight = if random.flip() { random.between(1, 10) as u32 } else { 0 };
            let rare = |weight: u32| if weight > 7 { 1 } else { 0 };
            weights[kind as usize] = match kind {
                EventKind::CrashAll => rare(weight),
                EventKind::PowerLoss | EventKind::Wipe | EventKind::Rollback => {
                    if lose_directories {
                        weight.div_ceil(3)
                    } else {
                        0
                    }
                }
                EventKind::Corrupt => {
                    if storage_faults || beyond_model {
                        weight
                    } else {
                        0
                    }
                }
                EventKind::CorruptSuperblock => {
                    if storage_faults {
                        weight
                    } else {
                        0
                    }
                }
                EventKind::Cut | EventKind::Join | EventKind::Clog if nodes == 1 => 0,
                EventKind::Stuck => weight.div_ceil(3),
                _ => weight,
            };
        }
        let some = |random: &mut Random, on: bool, max: u64| {
            let chance = Ppm(random.below(max) as u32);
            if on && random.flip() { chance } else { Ppm::ZERO }
        };
        let quiet = random.below(10) == 0;
        let every = if swarm { random.between(200, 3_000) } else { random.between(100, 1_000) } * MILLISECOND;
        FaultSettings {
            every: if quiet { 3_600 * SECOND } else { every },
            weights,
            crash_at_effect: some(random, !quiet, if swarm { 300 } else { 2_000 }),
            slow_write: some(random, true, 50_000),
            write_mean: random.between(20, 5_000) * 1_000,
            flush_mean: random.between(20, 8_000) * 1_000,
            lost_write: some(random, storage_faults && nodes > 1, 20_000),
            misdirect: some(random, storage_faults && nodes > 1, 20_000),
            lost_sync: some(random, lose_directories, 100_000),
            full_disk: some(random, !quiet, 5_000),
            lost_reply: some(random, true, 200_000),
        }
    }
}
