//! Batches, records and runtimes for the tests of this crate.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::{future::Future, path::Path, rc::Rc};

use bytes::Bytes;
use laneway_storage::{
    DataDirectory, GroupCommit, GroupLimits, JournalWriter, PartitionLog, Placing, Progress, Record, Route,
    SegmentStore, StorageCounters, SyncClass,
};
use laneway_wire::{
    Incarnation, LaneId, Micros, Offset, Op, PartitionId, PartitionKey,
    batch::{BatchBuilder, stamp},
};

pub fn run<T>(future: impl Future<Output = T>) -> T {
    compio::runtime::Runtime::new().unwrap().block_on(future)
}

pub fn partition(number: u32) -> PartitionKey {
    PartitionKey { incarnation: Incarnation(9), partition: PartitionId(number) }
}

/// A stamped batch of `messages` messages with payloads of `payload_bytes`.
pub fn batch(number: u32, base: u64, timestamp: u64, messages: u32, payload_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    for index in 0..messages {
        let payload = vec![(base as u8).wrapping_add(index as u8); payload_bytes.max(1)];
        builder.push(u128::from(base) + 1, Micros(1_000), &payload, b"").unwrap();
    }
    let mut bytes = builder.finish().unwrap();
    stamp(&mut bytes, PartitionId(number), Offset(base), Micros(timestamp)).unwrap();
    bytes.freeze()
}

pub fn record(lane: u32, op: u64, batch: Bytes) -> Record {
    Record {
        lane: LaneId(lane),
        op: Op(op),
        view: 1,
        timestamp: Micros(1_000 + op),
        class: SyncClass::Persisted,
        placing: Placing::Unplaced,
        prefix: Bytes::from(format!("op {op} of lane {lane}")),
        batch,
    }
}

/// One shard's storage as the broker wires it.
pub struct Shard {
    pub directory: DataDirectory,
    pub counters: Rc<StorageCounters>,
    pub planner: GroupCommit,
    pub journal: JournalWriter,
    pub segments: Rc<SegmentStore>,
}

/// Bytes of a journal file here: room for a few groups, quick to make.
pub const JOURNAL_BYTES: u64 = 256 << 10;

pub fn limits() -> GroupLimits {
    GroupLimits { journal_bytes_max: JOURNAL_BYTES, ..GroupLimits::default() }
}

/// A record whose batch gets a place in `log`.
pub fn placed(log: &mut PartitionLog, route: Route, record: Record) -> Record {
    let place = log.place(&record.batch, route).unwrap();
    let placing = match route {
        Route::Later => Placing::Inline(place),
        Route::Direct => Placing::Direct(place),
    };
    Record { placing, ..record }
}

impl Shard {
    pub async fn start(directory: &DataDirectory, shard: u16) -> Shard {
        let counters = Rc::new(StorageCounters::default());
        let segments = Rc::new(SegmentStore::new(directory.clone(), Rc::clone(&counters), 8));
        let journal = JournalWriter::create(
            directory.clone(),
            shard,
            JOURNAL_BYTES,
            Rc::clone(&counters),
            Rc::clone(&segments),
        )
        .await
        .unwrap();
        Shard {
            directory: directory.clone(),
            planner: GroupCommit::new(journal.place(), limits()),
            segments,
            journal,
            counters,
        }
    }

    /// Pushes records and writes until nothing waits.
    pub async fn write(&mut self, records: impl IntoIterator<Item = Record>) -> Progress {
        let mut progress = Progress::default();
        for record in records {
            self.planner.push(record).unwrap();
        }
        while let Some(group) = self.planner.begin() {
            let group = self.journal.write_group(group).await.unwrap();
            progress = self.planner.complete(group);
        }
        progress
    }

    pub async fn append(&self, log: &mut PartitionLog, batches: Vec<Bytes>) {
        let plan = log.plan_append(batches).unwrap();
        self.segments.append(&plan).await.unwrap();
        log.appended(&plan);
    }

    pub async fn checkpoint(&self, lane: u32, op: u64, payload: Vec<u8>) {
        let payload = Bytes::from(payload);
        self.directory.write_checkpoint(LaneId(lane), Op(op), payload, &self.counters).await.unwrap();
    }
}

/// Copies a data directory as a crash would leave it, without the lock.
pub fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
