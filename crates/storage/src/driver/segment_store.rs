//! Reads and writes segment files of one shard.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    path::PathBuf,
    rc::Rc,
};

use bytes::Bytes;
use laneway_wire::Offset;

use super::{
    counters::StorageCounters,
    descriptors::Descriptors,
    directory::DataDirectory,
    files::{self, Access, OpenFile},
};
use crate::{
    error::{Damage, StorageError},
    layout::{self, SegmentFile},
    segment::{AppendPlan, AppendStep, IndexScan, ReadChunk, ReadCursor, ReadPlan, SegmentIndex},
};

/// Segment files that a shard keeps open by default.
pub const DESCRIPTORS_MAX: usize = 256;

/// Flushes that run at the same time. The file system joins them into few commits of its own journal.
const FLUSHES_AT_ONCE: usize = 16;

/// The segment files of one shard. Shared by the shard's tasks; every method takes `&self` and holds no borrow across
/// an await.
#[derive(Debug)]
pub struct SegmentStore {
    directory: DataDirectory,
    counters: Rc<StorageCounters>,
    descriptors: RefCell<Descriptors>,
    /// Files written since they were last flushed.
    dirty: RefCell<BTreeSet<SegmentFile>>,
    /// Directories that got a new file since they were last flushed.
    dirty_directories: RefCell<BTreeSet<u32>>,
    poisoned: Cell<bool>,
}

impl SegmentStore {
    /// A store that keeps at most `descriptors_max` files open.
    pub fn new(
        directory: DataDirectory,
        counters: Rc<StorageCounters>,
        descriptors_max: usize,
    ) -> SegmentStore {
        SegmentStore {
            directory,
            counters,
            descriptors: RefCell::new(Descriptors::new(descriptors_max)),
            dirty: RefCell::default(),
            dirty_directories: RefCell::default(),
            poisoned: Cell::new(false),
        }
    }

    /// Writes a plan. Nothing of it is durable before [`SegmentStore::flush`]. A plan that failed may be written again
    /// as it is, until [`crate::PartitionLog::appended`] notes it.
    pub async fn append(&self, plan: &AppendPlan) -> Result<(), StorageError> {
        for step in &plan.steps {
            self.append_step(step).await?;
        }
        Ok(())
    }

    async fn append_step(&self, step: &AppendStep) -> Result<(), StorageError> {
        let access = match step.position {
            0 => Access::Create,
            _ => Access::Existing,
        };
        // Before the write: a write that fails half-way is dirty too.
        self.dirty.borrow_mut().insert(step.file);
        if step.position == 0 {
            self.dirty_directories.borrow_mut().insert(step.file.fan_out());
        }
        let file = self.open(step.file, access).await?;
        file.write_all(step.batches.iter().cloned(), step.position, &self.counters).await
    }

    /// Brings everything appended so far to stable storage, new directory entries included. Must succeed before a
    /// checkpoint that names the segments is written. A failed flush poisons the store: no checkpoint can follow.
    pub async fn flush(&self) -> Result<(), StorageError> {
        if self.poisoned.get() {
            return Err(self.poison_error());
        }
        let files = self.dirty.take();
        let directories = self.dirty_directories.take();
        let result = self.flush_all(&files, &directories).await;
        if let Err(error) = &result {
            self.poisoned.set(is_failed_flush(error));
            // Without a failed flush (no descriptor was free, say) nothing is lost: the next call does it all.
            self.dirty.borrow_mut().extend(files);
            self.dirty_directories.borrow_mut().extend(directories);
        }
        result
    }

    async fn flush_all(
        &self,
        files: &BTreeSet<SegmentFile>,
        directories: &BTreeSet<u32>,
    ) -> Result<(), StorageError> {
        let mut files = files.iter().copied().peekable();
        while files.peek().is_some() {
            let mut flushes = Vec::with_capacity(FLUSHES_AT_ONCE);
            for file in files.by_ref().take(FLUSHES_AT_ONCE) {
                let open = self.open(file, Access::Existing).await?;
                let counters = Rc::clone(&self.counters);
                flushes.push(compio::runtime::spawn(async move { open.flush(&counters).await }));
            }
            let mut result = Ok(());
            for flush in flushes {
                let flushed = flush.await.unwrap_or_else(|_| Err(self.poison_error()));
                result = result.and(flushed);
            }
            result?;
        }
        for fan_out in directories {
            let path = layout::fan_out_directory(self.directory.path(), *fan_out);
            files::flush_directory(&path, &self.counters).await?;
        }
        Ok(())
    }

    /// Reads whole batches. When the plan has no index entry to start from, the index is built first and comes with
    /// the answer.
    ///
    /// Errors: [`StorageError::BatchDamaged`] names partition, file, position and offset; [`StorageError::SegmentShort`]
    /// when the file ends before its recorded length. Neither is ever an empty read.
    pub async fn read(&self, plan: ReadPlan) -> Result<ReadChunk, StorageError> {
        let file = self.open(plan.file, Access::Existing).await.map_err(|error| missing(&plan, error))?;
        let (plan, index) = match plan.start {
            Some(_) => (plan, None),
            None => {
                let index = self.build_index(&plan, &file).await?;
                (plan.with_index(&index), Some(index))
            }
        };
        let mut cursor = ReadCursor::new(&plan);
        while let Some((position, length)) = cursor.request() {
            let piece = self.read_exact(&plan, &file, position, length).await?;
            cursor
                .feed(&piece)
                .map_err(|(position, offset, damage)| damaged(&plan, position, offset, damage))?;
        }
        Ok(ReadChunk { batches: cursor.finish(), index })
    }

    async fn build_index(&self, plan: &ReadPlan, file: &OpenFile) -> Result<SegmentIndex, StorageError> {
        let mut scan = IndexScan::new(plan.segment.base, plan.segment.bytes);
        while let Some((position, length)) = scan.request() {
            let piece = self.read_exact(plan, file, position, length).await?;
            scan.feed(&piece)
                .map_err(|(position, damage)| damaged(plan, position, scan.expected(), damage))?;
        }
        let (next, index) = scan.finish();
        if next != plan.segment.next {
            return Err(damaged(plan, plan.segment.bytes, next, Damage::Offsets));
        }
        Ok(index)
    }

    async fn read_exact(
        &self,
        plan: &ReadPlan,
        file: &OpenFile,
        position: u64,
        length: usize,
    ) -> Result<Bytes, StorageError> {
        let piece = file.read(position, length, &self.counters).await?;
        if piece.len() < length {
            return Err(StorageError::SegmentShort {
                partition: plan.file.partition,
                file: plan.file,
                recorded: plan.segment.bytes,
                found: position + piece.len() as u64,
            });
        }
        Ok(piece)
    }

    /// Unlinks segment files: those of a deleted partition, or those that retention removed. Only after a checkpoint
    /// that does not name them is durable; a crash in between is made good by [`DataDirectory::reconcile`].
    pub async fn remove(&self, files: impl IntoIterator<Item = SegmentFile>) -> Result<(), StorageError> {
        for file in files {
            self.descriptors.borrow_mut().remove(file);
            self.dirty.borrow_mut().remove(&file);
            files::remove(&file.path(self.directory.path()), &self.counters).await?;
        }
        Ok(())
    }

    /// Files open now.
    pub fn open_files(&self) -> usize {
        self.descriptors.borrow().len()
    }

    async fn open(&self, file: SegmentFile, access: Access) -> Result<OpenFile, StorageError> {
        if let Some(open) = self.descriptors.borrow_mut().get(file) {
            return Ok(open);
        }
        let path = file.path(self.directory.path());
        let open = OpenFile::open(&path, access, &self.counters).await?;
        self.descriptors.borrow_mut().insert(file, open.clone());
        Ok(open)
    }

    fn poison_error(&self) -> StorageError {
        StorageError::Poisoned { path: PathBuf::from(self.directory.path()).join(layout::SEGMENTS) }
    }
}

fn is_failed_flush(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::Io { operation: "flush", .. }
            | StorageError::OutOfSpace { operation: "flush", .. }
            | StorageError::Poisoned { .. }
    )
}

fn damaged(plan: &ReadPlan, position: u64, offset: Offset, damage: Damage) -> StorageError {
    StorageError::BatchDamaged { partition: plan.file.partition, file: plan.file, position, offset, damage }
}

fn missing(plan: &ReadPlan, error: StorageError) -> StorageError {
    match error {
        StorageError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            StorageError::SegmentShort {
                partition: plan.file.partition,
                file: plan.file,
                recorded: plan.segment.bytes,
                found: 0,
            }
        }
        other => other,
    }
}
