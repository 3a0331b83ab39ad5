//! Writes one shard's journal.

use std::{
    cell::{Cell, RefCell},
    path::{Path, PathBuf},
    rc::Rc,
    time::SystemTime,
};

use bytes::Bytes;
use laneway_wire::Micros;

use super::{
    counters::StorageCounters,
    directory::DataDirectory,
    files::{self, Access, BlockMode, OpenFile},
    segment_store::SegmentStore,
};
use crate::{
    blocks::{BLOCK_BYTES, aligned_buffer, block_after},
    error::StorageError,
    journal::{BatchPlace, GroupSync, JournalHeader, JournalPlace, WriteGroup, header::JOURNAL_HEADER_BYTES},
    layout::{self, JournalName},
};

/// Bytes of one write that fills a new file. Blocks that were written once take a durable write in less than half of
/// the time: the file system has nothing to note about them.
const FILL_BYTES: usize = 4 << 20;

/// The smallest file: its header and a few groups.
const FILE_BYTES_MIN: u64 = 4 * BLOCK_BYTES;

/// The journal of one shard that is being written. Owned by the shard; its files stay when it is dropped. Several
/// groups may be written at the same time.
#[derive(Debug)]
pub struct JournalWriter {
    directory: DataDirectory,
    counters: Rc<StorageCounters>,
    segments: Rc<SegmentStore>,
    /// Bytes of a file.
    file_bytes: u64,
    current: RefCell<Rc<JournalFile>>,
    /// The file after the current one, ready under its name.
    next: RefCell<Option<Rc<JournalFile>>>,
    next_sequence: Cell<u64>,
    poisoned: Cell<bool>,
}

#[derive(Debug)]
struct JournalFile {
    place: JournalPlace,
    /// Writes that the kernel has when they are done.
    plain: OpenFile,
    /// Writes that are on stable storage when they are done.
    durable: OpenFile,
}

/// A group that was not written, or not flushed.
#[derive(Debug, thiserror::Error)]
#[error("write a group of {} records to {}", group.records, group.journal)]
pub struct WriteFailure {
    /// The group, whole, for [`crate::GroupCommit::retry`].
    pub group: WriteGroup,
    /// Why.
    #[source]
    pub error: StorageError,
}

impl WriteFailure {
    /// Whether the same group may be written again: only when space or descriptors were wanting, and no flush failed.
    /// Otherwise the journal is poisoned, and so must the planner be.
    pub fn may_retry(&self) -> bool {
        may_retry(&self.error)
    }
}

impl JournalWriter {
    /// Makes the first file of this run for a shard. `file_bytes`: of every file, a multiple of a block. Batches that
    /// go to their places go through `segments`.
    pub async fn create(
        directory: DataDirectory,
        shard: u16,
        file_bytes: u64,
        counters: Rc<StorageCounters>,
        segments: Rc<SegmentStore>,
    ) -> Result<JournalWriter, StorageError> {
        let name = JournalName { shard, sequence: directory.first_sequence() };
        let file_bytes = block_after(file_bytes).max(FILE_BYTES_MIN);
        let mut made_bytes = file_bytes;
        let file = loop {
            match make_file(&directory, name, made_bytes, None, &counters).await {
                // A broker on a full disk must start: deletes are how space comes back. The file grows when it has to.
                Err(StorageError::OutOfSpace { .. }) if made_bytes > FILE_BYTES_MIN => {
                    made_bytes = block_after(made_bytes / 8).max(FILE_BYTES_MIN);
                }
                made => break made?,
            }
        };
        Ok(JournalWriter {
            directory,
            counters,
            segments,
            file_bytes,
            current: RefCell::new(Rc::new(file)),
            next: RefCell::default(),
            next_sequence: Cell::new(name.sequence + 1),
            poisoned: Cell::new(false),
        })
    }

    /// The current file, for [`crate::GroupCommit::new`].
    pub fn place(&self) -> JournalPlace {
        self.current.borrow().place
    }

    /// Writes a group: its batches to their places and its block to the journal, at the same time, and durable as the
    /// group says. Gives the group back for [`crate::GroupCommit::complete`].
    ///
    /// Errors: see [`WriteFailure::may_retry`]. After any other failure every call fails with
    /// [`StorageError::Poisoned`]; the failed write is never tried again.
    pub async fn write_group(&self, group: WriteGroup) -> Result<WriteGroup, WriteFailure> {
        let file = self.current.borrow().clone();
        if group.journal != file.place.name {
            panic!("group for {} given to the writer of {}", group.journal, file.place.name);
        }
        match self.write(&file, &group).await {
            Ok(()) => Ok(group),
            Err(error) => {
                let failure = WriteFailure { group, error };
                self.poisoned.set(self.poisoned.get() || !failure.may_retry());
                Err(failure)
            }
        }
    }

    async fn write(&self, file: &JournalFile, group: &WriteGroup) -> Result<(), StorageError> {
        self.check_usable()?;
        let bodies: Vec<_> = runs(&group.bodies)
            .into_iter()
            .map(|(place, batches)| {
                let segments = self.segments.clone();
                compio::runtime::spawn(async move { segments.write_direct(place, batches).await })
            })
            .collect();
        let mut result = self.write_block(file, group).await;
        for body in bodies {
            let written = body.await.unwrap_or_else(|_| Err(self.poison_error()));
            // A failure that may be tried again counts for less than one that may not.
            if written.is_err() && result.as_ref().err().is_none_or(may_retry) {
                result = written;
            }
        }
        result?;
        if group.sync == GroupSync::Flush {
            file.plain.flush(&self.counters).await?;
        }
        Ok(())
    }

    async fn write_block(&self, file: &JournalFile, group: &WriteGroup) -> Result<(), StorageError> {
        let into = match group.sync {
            GroupSync::WithWrite => &file.durable,
            GroupSync::None | GroupSync::Flush => &file.plain,
        };
        into.write_blocks(group.block.clone(), group.position, &self.counters).await
    }

    /// Ends the current file with the group of [`crate::GroupCommit::close`], which `close` gives once the next file is
    /// there, and goes on in that one, for [`crate::GroupCommit::rotated`]. When space or descriptors are exhausted
    /// ([`StorageError::is_exhausted`]), the current file stays in use and the call may be repeated.
    pub async fn rotate(&self, close: impl FnOnce() -> WriteGroup) -> Result<JournalPlace, StorageError> {
        self.check_usable()?;
        let next = match self.next.take() {
            Some(next) => next,
            None => self.make_next(None).await?,
        };
        self.write_group(close()).await.map_err(|failure| {
            self.poisoned.set(true);
            failure.error
        })?;
        let place = next.place;
        *self.current.borrow_mut() = next;
        Ok(place)
    }

    async fn make_next(&self, from: Option<JournalName>) -> Result<Rc<JournalFile>, StorageError> {
        let name = JournalName { shard: self.place().name.shard, sequence: self.next_sequence.get() };
        self.next_sequence.set(name.sequence + 1);
        match make_file(&self.directory, name, self.file_bytes, from, &self.counters).await {
            Ok(file) => Ok(Rc::new(file)),
            Err(error) => {
                // It may have got its name. Nothing is in it, so what stays does no harm.
                let _ = files::remove(&name.path(self.directory.path()), &self.counters).await;
                Err(error)
            }
        }
    }

    /// Takes files that no lane needs any more: the first becomes the next file, if none is ready, the others go.
    ///
    /// # Panics
    /// When the current file is among them.
    pub async fn recycle(&self, journals: &[JournalName]) -> Result<(), StorageError> {
        for journal in journals {
            assert_ne!(*journal, self.place().name, "the current journal cannot be removed");
            let is_wanted = self.next.borrow().is_none() && self.has_file_bytes(*journal).await;
            if is_wanted && self.is_usable() {
                let next = self.make_next(Some(*journal)).await?;
                *self.next.borrow_mut() = Some(next);
            } else {
                files::remove(&journal.path(self.directory.path()), &self.counters).await?;
            }
        }
        Ok(())
    }

    async fn has_file_bytes(&self, journal: JournalName) -> bool {
        let path = journal.path(self.directory.path());
        compio::fs::metadata(&path).await.is_ok_and(|metadata| metadata.len() == self.file_bytes)
    }

    /// Whether it still takes writes.
    pub fn is_usable(&self) -> bool {
        !self.poisoned.get()
    }

    fn check_usable(&self) -> Result<(), StorageError> {
        if self.is_usable() { Ok(()) } else { Err(self.poison_error()) }
    }

    fn poison_error(&self) -> StorageError {
        StorageError::Poisoned { path: PathBuf::from(self.current.borrow().plain.path()) }
    }
}

fn may_retry(error: &StorageError) -> bool {
    error.is_exhausted() && !matches!(error, StorageError::OutOfSpace { operation: "flush", .. })
}

/// Batches that follow each other in one file, together.
fn runs(bodies: &[(BatchPlace, Bytes)]) -> Vec<(BatchPlace, Vec<Bytes>)> {
    let mut runs: Vec<(BatchPlace, u64, Vec<Bytes>)> = Vec::new();
    for (place, batch) in bodies {
        let end = block_after(place.position + batch.len() as u64);
        let run = runs
            .iter_mut()
            .find(|(first, run_end, _)| first.file == place.file && *run_end == place.position);
        match run {
            Some((_, run_end, batches)) => {
                *run_end = end;
                batches.push(batch.clone());
            }
            None => runs.push((*place, end, vec![batch.clone()])),
        }
    }
    runs.into_iter().map(|(place, _, batches)| (place, batches)).collect()
}

/// Makes a journal file ready under its name: whole, durable, and with blocks that were written once. `from`: a file of
/// ours with the right length that nobody needs any more. What it holds is none of the new file's records, because
/// those carry the tag of its header.
async fn make_file(
    directory: &DataDirectory,
    name: JournalName,
    file_bytes: u64,
    from: Option<JournalName>,
    counters: &StorageCounters,
) -> Result<JournalFile, StorageError> {
    let header = JournalHeader {
        name,
        disk: directory.disk(),
        boot: directory.boot(),
        created: wall_clock(),
        file_bytes,
    };
    let path = name.path(directory.path());
    let beside = layout::temporary(&path);
    let made = make_beside(directory, &beside, &header, from, counters).await;
    let plain = match made {
        Ok(file) => file,
        Err(error) => {
            // The first failure is the one to report; a file that stays is removed at the next start.
            let _ = files::remove(&beside, counters).await;
            return Err(error);
        }
    };
    compio::fs::rename(&beside, &path).await.map_err(StorageError::io("rename", &beside))?;
    files::flush_directory(&path.parent().map(Path::to_owned).unwrap_or_default(), counters).await?;
    let mode = BlockMode { direct: directory.is_direct(), durable: true };
    let durable = OpenFile::open_blocks(&path, Access::Existing, mode, counters).await?;
    Ok(JournalFile { place: JournalPlace { name, tag: header.tag() }, plain: plain.renamed(&path), durable })
}

async fn make_beside(
    directory: &DataDirectory,
    beside: &Path,
    header: &JournalHeader,
    from: Option<JournalName>,
    counters: &StorageCounters,
) -> Result<OpenFile, StorageError> {
    let mode = BlockMode { direct: directory.is_direct(), durable: false };
    let file = match from {
        Some(from) => {
            let from = from.path(directory.path());
            compio::fs::rename(&from, beside).await.map_err(StorageError::io("rename", &from))?;
            // Before its header changes: under its old name the file would look damaged.
            files::flush_directory(&beside.parent().map(Path::to_owned).unwrap_or_default(), counters)
                .await?;
            OpenFile::open_blocks(beside, Access::Existing, mode, counters).await?
        }
        None => {
            let file = OpenFile::open_blocks(beside, Access::Fresh, mode, counters).await?;
            let mut zeros = aligned_buffer(FILL_BYTES);
            zeros.resize(FILL_BYTES, 0);
            let zeros = zeros.freeze();
            for position in (0..header.file_bytes).step_by(FILL_BYTES) {
                let bytes = (header.file_bytes - position).min(FILL_BYTES as u64) as usize;
                file.write_blocks(zeros.slice(..bytes), position, counters).await?;
            }
            file
        }
    };
    let mut block = aligned_buffer(JOURNAL_HEADER_BYTES as usize);
    block.extend_from_slice(&header.encode());
    file.write_blocks(block.freeze(), 0, counters).await?;
    file.flush(counters).await?;
    Ok(file)
}

/// The time now. A clock before 1970 reads as 1970: the field is for people.
pub(super) fn wall_clock() -> Micros {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Micros(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
}
