//! The thread of one shard, from its start to its end.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use compio::driver::{DriverType, ProactorBuilder};
use compio::runtime::Runtime;
use laneway_mailbox::Stage;
use laneway_metadata::{CreateRoot, Metadata};
use laneway_shard_metadata::MetadataLane;
use laneway_shard_partition::origin::{self, metadata::Ticket};
use laneway_shard_partition::shard::yield_now;
use laneway_shard_partition::{
    Inbox, Owner, Post, RestoredLane, Shard, ShardSettings, checkpoint, clock, journal, rotation,
};
use laneway_storage::{
    DataDirectory, GroupCommit, GroupLimits, JournalWriter, SegmentStore, StorageCounters,
};
use laneway_transport::Listener;
use laneway_wire::{LaneId, Op};

use crate::broker::ProgressSender;
use crate::descriptors;
use crate::probe::ChosenEngine;

/// Files of segments that a shard keeps open, if the process may have that many descriptors.
const DESCRIPTORS_MAX: usize = 256;

/// An eighth of the descriptors of the process is for open segments of all shards; at least this many for each.
const DESCRIPTORS_MIN: usize = 4;

fn descriptors_max(shards: u16) -> usize {
    let limit = descriptors::raise_limit().unwrap_or(0);
    let share = limit / 8 / u64::from(shards.max(1));
    usize::try_from(share).unwrap_or(usize::MAX).clamp(DESCRIPTORS_MIN, DESCRIPTORS_MAX)
}

/// How often a stopping shard looks whether it is done. Only then; a running shard waits for events.
const DRAIN_PAUSE: Duration = Duration::from_millis(5);

/// Threads of the runtime for file operations that the ring does not have, or where there is no ring.
const BLOCKING_THREADS_MAX: usize = 4;

/// How far the broker lets its shards go.
pub mod stage {
    /// Old journals are gone: lanes may be changed.
    pub const SERVE: u8 = 1;
    /// All shards serve: clients may come.
    pub const ACCEPT: u8 = 2;
    /// No new work.
    pub const STOP: u8 = 3;
    /// All shards are drained: write the last checkpoint and end.
    pub const FINISH: u8 = 4;
}

/// What a shard reports.
#[derive(Debug)]
pub enum Progress {
    /// Its lanes are back, and a checkpoint covers what the old journals held.
    Recovered(BTreeMap<LaneId, Op>),
    /// Its lanes agree with the metadata.
    Serving,
    /// It has no open work; `clean` unless time ran out.
    Drained {
        /// Whether everything was finished.
        clean: bool,
    },
    /// It ended.
    Finished(Result<(), String>),
    /// It could not start.
    Failed(String),
}

/// Everything that a shard's thread starts with.
pub struct ShardPlan {
    pub settings: ShardSettings,
    pub directory: DataDirectory,
    pub group_limits: GroupLimits,
    pub lanes: BTreeMap<LaneId, RestoredLane>,
    pub lane: Option<MetadataLane<Ticket>>,
    pub create_root: Option<CreateRoot>,
    pub metadata: Arc<Metadata>,
    pub posts: Vec<Post>,
    pub inbox: Inbox,
    pub listener: Option<std::net::TcpListener>,
    pub engine: ChosenEngine,
    pub core: Option<usize>,
    pub stage: Stage,
    pub progress: ProgressSender,
}

/// Runs a shard until the broker ends it.
pub fn run(plan: ShardPlan) {
    let (number, progress) = (plan.settings.id.0, plan.progress.clone());
    if let Some(id) = plan.core
        && !core_affinity::set_for_current(core_affinity::CoreId { id })
    {
        tracing::warn!(shard = number, core = id, "the shard cannot be pinned to its core");
    }
    let report = |what: Progress| {
        // A broker that no longer listens is being dropped.
        let _ = progress.send((number, what));
    };
    let runtime = match make_runtime(plan.engine) {
        Ok(runtime) => runtime,
        Err(error) => return report(Progress::Failed(format!("cannot make a runtime: {error}"))),
    };
    if let Err(what) = runtime.block_on(serve(plan)) {
        report(Progress::Failed(what));
    }
}

fn make_runtime(engine: ChosenEngine) -> std::io::Result<Runtime> {
    let mut proactor = ProactorBuilder::new();
    proactor.thread_pool_limit(BLOCKING_THREADS_MAX);
    proactor.driver_type(match engine {
        ChosenEngine::IoUring => DriverType::IoUring,
        ChosenEngine::Polling => DriverType::Poll,
    });
    Runtime::builder().with_proactor(proactor).build()
}

async fn serve(plan: ShardPlan) -> Result<(), String> {
    let ShardPlan {
        settings,
        directory,
        group_limits,
        lanes,
        lane,
        create_root,
        metadata,
        posts,
        inbox,
        listener,
        stage,
        progress,
        ..
    } = plan;
    let number = settings.id.0;
    let report = |what: Progress| {
        // A broker that no longer listens is being dropped.
        let _ = progress.send((number, what));
    };
    let counters = Rc::new(StorageCounters::default());
    let segments =
        Rc::new(SegmentStore::new(directory.clone(), counters.clone(), descriptors_max(settings.shards)));
    let file_bytes = group_limits.journal_bytes_max;
    let writer =
        JournalWriter::create(directory.clone(), number, file_bytes, counters.clone(), segments.clone())
            .await
            .map_err(|error| error.to_string())?;
    let commit = GroupCommit::new(writer.place(), group_limits);
    let mut owner =
        Owner::new(settings.lane_limits, settings.waiters, settings.read_bytes_max, settings.retention);
    for (lane, restored) in lanes {
        owner.restore(lane, restored, &directory).map_err(|error| format!("lane {lane}: {error}"))?;
    }
    let shard =
        Shard::new(settings, directory, counters, segments, commit, owner, lane, metadata, posts, inbox);

    // What the old journals held goes into segments and checkpoints first, so that they can be removed.
    let draft = checkpoint::freeze(&shard);
    let gone = draft.gone();
    let covered = match checkpoint::complete(&shard, draft, None).await {
        Ok(covered) => covered,
        Err(error) if error.is_exhausted() => {
            // Reads and deletes work all the same, and a delete is how space comes back.
            tracing::warn!(shard = number, %error, "no first checkpoint; the journals of the last run stay");
            gone.keep(&shard);
            BTreeMap::new()
        }
        Err(error) => return Err(error.to_string()),
    };
    report(Progress::Recovered(covered));
    stage.reached(stage::SERVE).await;

    spawn_services(&shard, writer);
    if let Some(root) = create_root {
        if let Some(lane) = shard.lane.borrow_mut().as_mut() {
            lane.create_root(clock::wall(), root, Ticket::Nobody);
        }
        shard.pump();
    }
    let metadata = shard.metadata();
    shard
        .owner
        .borrow_mut()
        .reconcile(clock::wall(), &metadata, |lane| shard.owner_of(lane) == shard.settings.id);
    shard.pump();
    while !shard.is_idle() {
        compio::time::sleep(Duration::from_millis(1)).await;
    }
    report(Progress::Serving);
    if number == 0 {
        compio::runtime::spawn(rotation::rotate(shard.clone())).detach();
    }

    stage.reached(stage::ACCEPT).await;
    let acceptor = match listener {
        Some(listener) if stage.get() < stage::STOP => {
            let listener = Listener::new(listener).map_err(|error| error.to_string())?;
            Some(compio::runtime::spawn(origin::accept(shard.clone(), listener)))
        }
        _ => None,
    };
    stage.reached(stage::STOP).await;
    drop(acceptor);
    let clean = drain(&shard, &stage).await;
    report(Progress::Drained { clean });

    stage.reached(stage::FINISH).await;
    close_connections(&shard).await;
    let result = finish(&shard).await.map_err(|error| error.to_string());
    report(Progress::Finished(result));
    Ok(())
}

fn spawn_services(shard: &Rc<Shard>, writer: JournalWriter) {
    compio::runtime::spawn(shard.clone().serve_mailbox()).detach();
    compio::runtime::spawn(shard.clone().serve_timers()).detach();
    compio::runtime::spawn(shard.clone().serve_scrub()).detach();
    let broken = shard.clone();
    let journal = journal::serve(shard.clone(), writer);
    compio::runtime::spawn(async move {
        let failed = journal.await;
        // What the journal holds is unknown: nothing that was on its way may be acknowledged any more.
        broken.journal_broke(&failed.source);
    })
    .detach();
}

/// Waits until nothing is on its way. False when the broker lost patience.
async fn drain(shard: &Rc<Shard>, stage: &Stage) -> bool {
    shard.stop();
    loop {
        if shard.is_idle() && !shard.checkpointing.get() {
            return true;
        }
        if shard.trouble.is_stuck() && !shard.checkpointing.get() {
            // Nothing more will come of waiting: clients learn that it is unknown, and the journal has what it has.
            shard.answer_unknown();
            return true;
        }
        if stage.get() >= stage::FINISH {
            return false;
        }
        compio::time::sleep(DRAIN_PAUSE).await;
    }
}

/// Lets every client have its answers, and ends the connections.
async fn close_connections(shard: &Rc<Shard>) {
    // Every shard is drained: answers that they sent to clients of this one are in its mailbox.
    while shard.take_messages() {}
    let open: Vec<_> = shard.connections.borrow().iter().cloned().collect();
    for connection in &open {
        connection.close();
    }
    for _ in 0..20 {
        if open.iter().all(|connection| connection.outbox.bytes() == 0) {
            break;
        }
        compio::time::sleep(DRAIN_PAUSE).await;
    }
    for connection in open {
        connection.abort();
    }
    yield_now().await;
}

/// The last checkpoint: the next start has nothing to replay.
async fn finish(shard: &Rc<Shard>) -> Result<(), laneway_storage::StorageError> {
    while shard.checkpointing.get() {
        shard.checkpoint_bell.wait().await;
    }
    let draft = checkpoint::freeze(shard);
    match checkpoint::complete(shard, draft, None).await {
        Err(error) if error.is_exhausted() => {
            // Nothing is lost: the next start replays the journal.
            tracing::warn!(shard = shard.settings.id.0, %error, "no last checkpoint; the journals stay");
            Ok(())
        }
        result => result.map(drop),
    }
}
