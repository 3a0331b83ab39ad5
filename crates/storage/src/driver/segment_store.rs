//! Reads and writes segment files of one shard.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    path::PathBuf,
    rc::Rc,
};

use bytes::{Bytes, BytesMut};
use laneway_wire::Offset;

use super::{
    counters::StorageCounters,
    descriptors::Descriptors,
    directory::DataDirectory,
    files::{self, Access, BlockMode, OpenFile},
};
use crate::{
    blocks::{BlockPool, block_before, pad},
    error::{Damage, StorageError},
    journal::BatchPlace,
    layout::{self, SegmentFile},
    segment::{AppendPlan, AppendStep, IndexScan, ReadChunk, ReadCursor, ReadPlan, SegmentIndex},
};

/// Segment files that a shard keeps open by default.
pub const DESCRIPTORS_MAX: usize = 256;

/// Bytes of one write of batches that a checkpoint brings to their places.
const FILL_BYTES: usize = 1 << 20;

/// The segment files of one shard. Shared by the shard's tasks; every method takes `&self` and holds no borrow across
/// an await.
#[derive(Debug)]
pub struct SegmentStore {
    directory: DataDirectory,
    counters: Rc<StorageCounters>,
    /// Files open for reading.
    descriptors: RefCell<Descriptors>,
    /// Files open for writing.
    writing: RefCell<Descriptors>,
    /// Directories that got a new file since they were last flushed.
    /// The number counts their new files, so that a flush knows whether it covers all of them.
    dirty_directories: RefCell<BTreeMap<u32, u64>>,
    files_made: Cell<u64>,
    poisoned: Cell<bool>,
    pool: RefCell<BlockPool>,
}

impl SegmentStore {
    /// A store that keeps at most `descriptors_max` files open, half of them for writing, at least one for each.
    pub fn new(
        directory: DataDirectory,
        counters: Rc<StorageCounters>,
        descriptors_max: usize,
    ) -> SegmentStore {
        SegmentStore {
            directory,
            counters,
            descriptors: RefCell::new(Descriptors::new((descriptors_max / 2).max(1))),
            writing: RefCell::new(Descriptors::new((descriptors_max / 2).max(1))),
            dirty_directories: RefCell::default(),
            files_made: Cell::new(0),
            poisoned: Cell::new(false),
            pool: RefCell::default(),
        }
    }

    /// Writes a plan, in large aligned writes that are durable one by one; new directory entries are not before
    /// [`SegmentStore::flush`]. A plan that failed may be written again as it is, until
    /// [`crate::PartitionLog::appended`] notes it.
    pub async fn append(&self, plan: &AppendPlan) -> Result<(), StorageError> {
        for step in &plan.steps {
            self.append_step(step).await?;
        }
        Ok(())
    }

    async fn append_step(&self, step: &AppendStep) -> Result<(), StorageError> {
        self.check_usable()?;
        let file = self.open_to_write(step.file).await?;
        let mut position = block_before(step.position);
        let mut block = self.pool.borrow_mut().take(FILL_BYTES);
        if position < step.position {
            // The block is written again with the batches that end in it.
            block.extend_from_slice(&file.read_block(position, &self.counters).await?);
            block.truncate((step.position - position) as usize);
        }
        for batch in &step.batches {
            let mut rest = &batch[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(FILL_BYTES - block.len()));
                block.extend_from_slice(now);
                rest = later;
                if block.len() == FILL_BYTES {
                    block = self.write_fill(&file, block, &mut position).await?;
                }
            }
        }
        if !block.is_empty() {
            pad(&mut block);
            block = self.write_fill(&file, block, &mut position).await?;
        }
        self.pool.borrow_mut().give(block.freeze());
        Ok(())
    }

    async fn write_fill(
        &self,
        file: &OpenFile,
        block: BytesMut,
        position: &mut u64,
    ) -> Result<BytesMut, StorageError> {
        let block = block.freeze();
        let written = file.write_blocks(block.clone(), *position, &self.counters).await;
        self.note_write(&written);
        written?;
        *position += block.len() as u64;
        let mut pool = self.pool.borrow_mut();
        pool.give(block);
        Ok(pool.take(FILL_BYTES))
    }

    /// Writes batches that follow each other in a segment, each from the start of a block on. When it returns they are
    /// on stable storage, and so is the name of the file.
    pub async fn write_direct(&self, place: BatchPlace, batches: Vec<Bytes>) -> Result<(), StorageError> {
        self.check_usable()?;
        let file = self.open_to_write(place.file).await?;
        let written = file.write_batches(batches, place.position, &self.counters).await;
        self.note_write(&written);
        written?;
        self.flush_directory(place.file.fan_out()).await
    }

    /// Brings the entries of a directory to stable storage, if it got one since that was last done.
    async fn flush_directory(&self, fan_out: u32) -> Result<(), StorageError> {
        let Some(entries) = self.dirty_directories.borrow().get(&fan_out).copied() else { return Ok(()) };
        let path = layout::fan_out_directory(self.directory.path(), fan_out);
        let flushed = files::flush_directory(&path, &self.counters).await;
        self.note_write(&flushed);
        flushed?;
        let mut dirty = self.dirty_directories.borrow_mut();
        // An entry that came meanwhile may have missed it.
        if dirty.get(&fan_out) == Some(&entries) {
            dirty.remove(&fan_out);
        }
        Ok(())
    }

    /// Every write is durable when it is done, so a failed one may have been a failed flush: what the kernel has kept
    /// of it is unknown, and no checkpoint may follow. Only a full disk is known to have taken nothing.
    fn note_write(&self, result: &Result<(), StorageError>) {
        if let Err(error) = result {
            let is_broken = match error {
                StorageError::OutOfSpace { operation, .. } => *operation == "flush",
                StorageError::Io { operation, .. } => *operation == "write" || *operation == "flush",
                _ => true,
            };
            self.poisoned.set(self.poisoned.get() || is_broken);
        }
    }

    fn check_usable(&self) -> Result<(), StorageError> {
        if self.poisoned.get() { Err(self.poison_error()) } else { Ok(()) }
    }

    /// Brings the directory entries of everything appended so far to stable storage. Must succeed before a checkpoint
    /// that names the segments is written. A failed flush poisons the store: no checkpoint can follow.
    pub async fn flush(&self) -> Result<(), StorageError> {
        self.check_usable()?;
        let directories: Vec<u32> = self.dirty_directories.borrow().keys().copied().collect();
        for fan_out in directories {
            self.flush_directory(fan_out).await?;
        }
        Ok(())
    }

    /// Reads whole batches. When the plan has no index entry to start from, the index is built first and comes with
    /// the answer.
    ///
    /// Errors: [`StorageError::BatchDamaged`] names partition, file, position and offset; [`StorageError::SegmentShort`]
    /// when the file ends before its recorded length. Neither is ever an empty read.
    pub async fn read(&self, plan: ReadPlan) -> Result<ReadChunk, StorageError> {
        let file = self.open(plan.file).await.map_err(|error| missing(&plan, error))?;
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
            self.writing.borrow_mut().remove(file);
            files::remove(&file.path(self.directory.path()), &self.counters).await?;
        }
        Ok(())
    }

    /// Files open now.
    pub fn open_files(&self) -> usize {
        self.descriptors.borrow().len() + self.writing.borrow().len()
    }

    async fn open(&self, file: SegmentFile) -> Result<OpenFile, StorageError> {
        if let Some(open) = self.descriptors.borrow_mut().get(file) {
            return Ok(open);
        }
        let path = file.path(self.directory.path());
        let open = OpenFile::open(&path, Access::Existing, &self.counters).await?;
        self.descriptors.borrow_mut().insert(file, open.clone());
        Ok(open)
    }

    /// A file open for writing, made if it is not there.
    async fn open_to_write(&self, file: SegmentFile) -> Result<OpenFile, StorageError> {
        if let Some(open) = self.writing.borrow_mut().get(file) {
            return Ok(open);
        }
        let path = file.path(self.directory.path());
        let mode = BlockMode { direct: self.directory.is_direct(), durable: true };
        let open = match OpenFile::open_blocks(&path, Access::Existing, mode, &self.counters).await {
            Ok(open) => open,
            Err(StorageError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                // Before the file is there: whoever finds it must know that its name may not be durable.
                self.files_made.set(self.files_made.get() + 1);
                self.dirty_directories.borrow_mut().insert(file.fan_out(), self.files_made.get());
                let made = OpenFile::open_blocks(&path, Access::Create, mode, &self.counters).await?;
                // Again: a flush may have passed between the two.
                self.files_made.set(self.files_made.get() + 1);
                self.dirty_directories.borrow_mut().insert(file.fan_out(), self.files_made.get());
                made
            }
            Err(error) => return Err(error),
        };
        self.writing.borrow_mut().insert(file, open.clone());
        Ok(open)
    }

    fn poison_error(&self) -> StorageError {
        StorageError::Poisoned { path: PathBuf::from(self.directory.path()).join(layout::SEGMENTS) }
    }
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
