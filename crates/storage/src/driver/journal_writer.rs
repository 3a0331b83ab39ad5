//! Writes one shard's journal.

use std::{path::PathBuf, rc::Rc, time::SystemTime};

use bytes::Bytes;
use laneway_wire::Micros;

use super::{
    counters::StorageCounters,
    directory::DataDirectory,
    files::{self, OpenFile},
};
use crate::{
    error::StorageError,
    journal::{JournalHeader, JournalPlace, WriteGroup},
    layout::JournalName,
};

/// The journal file of one shard that is being written. Owned by the shard; the file stays when it is dropped.
#[derive(Debug)]
pub struct JournalWriter {
    directory: DataDirectory,
    counters: Rc<StorageCounters>,
    file: OpenFile,
    place: JournalPlace,
    next_sequence: u64,
    poisoned: bool,
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
    /// Whether the same group may be written again: only when space ran out before any flush. Otherwise the journal is
    /// poisoned, and so must the planner be.
    pub fn may_retry(&self) -> bool {
        matches!(self.error, StorageError::OutOfSpace { operation: "write", .. })
    }
}

impl JournalWriter {
    /// Makes the first file of this run for a shard.
    pub async fn create(
        directory: DataDirectory,
        shard: u16,
        counters: Rc<StorageCounters>,
    ) -> Result<JournalWriter, StorageError> {
        let name = JournalName { shard, sequence: directory.first_sequence() };
        let (file, place) = create_file(&directory, name, &counters).await?;
        let next_sequence = name.sequence + 1;
        Ok(JournalWriter { directory, counters, file, place, next_sequence, poisoned: false })
    }

    /// The current file, for [`crate::GroupCommit::new`].
    pub fn place(&self) -> JournalPlace {
        self.place
    }

    /// Writes a group at its position, and flushes if it asks for that. Gives the group back for
    /// [`crate::GroupCommit::complete`].
    ///
    /// Errors: see [`WriteFailure::may_retry`]. After any other failure every call fails with
    /// [`StorageError::Poisoned`]; the failed flush is never tried again.
    pub async fn write_group(&mut self, group: WriteGroup) -> Result<WriteGroup, WriteFailure> {
        if group.journal != self.place.name {
            panic!("group for {} given to the writer of {}", group.journal, self.place.name);
        }
        match self.write(&group).await {
            Ok(()) => Ok(group),
            Err(error) => {
                let failure = WriteFailure { group, error };
                self.poisoned |= !failure.may_retry();
                Err(failure)
            }
        }
    }

    async fn write(&self, group: &WriteGroup) -> Result<(), StorageError> {
        self.check_usable()?;
        self.file.write_all(group.buffers.iter().cloned(), group.position, &self.counters).await?;
        if group.flush {
            self.file.flush(&self.counters).await?;
        }
        Ok(())
    }

    /// Flushes the current file and goes on in a new one, for [`crate::GroupCommit::rotated`]. When space or
    /// descriptors are exhausted ([`StorageError::is_exhausted`]), the current one stays in use and the call may be
    /// repeated.
    pub async fn rotate(&mut self) -> Result<JournalPlace, StorageError> {
        self.check_usable()?;
        if let Err(error) = self.file.flush(&self.counters).await {
            self.poisoned = true;
            return Err(error);
        }
        let name = JournalName { shard: self.place.name.shard, sequence: self.next_sequence };
        self.next_sequence += 1;
        match create_file(&self.directory, name, &self.counters).await {
            Ok((file, place)) => {
                (self.file, self.place) = (file, place);
                Ok(place)
            }
            Err(error) => {
                // It may have got its name. A successor would make a torn end of the current file look like damage.
                if let Err(kept) = files::remove(&name.path(self.directory.path()), &self.counters).await {
                    self.poisoned = true;
                    return Err(kept);
                }
                Err(error)
            }
        }
    }

    /// Removes files that no lane needs any more.
    ///
    /// # Panics
    /// When the current file is among them.
    pub async fn remove(&self, journals: &[JournalName]) -> Result<(), StorageError> {
        for journal in journals {
            assert_ne!(*journal, self.place.name, "the current journal cannot be removed");
            files::remove(&journal.path(self.directory.path()), &self.counters).await?;
        }
        Ok(())
    }

    /// Whether it still takes writes.
    pub fn is_usable(&self) -> bool {
        !self.poisoned
    }

    fn check_usable(&self) -> Result<(), StorageError> {
        if self.poisoned {
            return Err(StorageError::Poisoned { path: PathBuf::from(self.file.path()) });
        }
        Ok(())
    }
}

async fn create_file(
    directory: &DataDirectory,
    name: JournalName,
    counters: &StorageCounters,
) -> Result<(OpenFile, JournalPlace), StorageError> {
    let header =
        JournalHeader { name, disk: directory.disk(), boot: directory.boot(), created: wall_clock() };
    let path = name.path(directory.path());
    let file = files::create_whole(&path, [Bytes::from(header.encode())], counters).await?;
    Ok((file, JournalPlace { name, tag: header.tag() }))
}

/// The time now. A clock before 1970 reads as 1970: the field is for people.
pub(super) fn wall_clock() -> Micros {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Micros(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
}
