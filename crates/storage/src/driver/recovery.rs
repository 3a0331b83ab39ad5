//! Reading everything back at boot, with plain blocking calls. Nothing is changed before everything is known to be
//! sound: a refusal leaves the directory as it was.

use std::{
    collections::BTreeMap,
    fs::{self, File},
};

use bytes::Bytes;
use laneway_wire::{LaneId, Op};

use super::directory::{DataDirectory, sync_directory};
use crate::{
    checkpoint::{self, Checkpoint},
    error::{Damage, StorageError},
    journal::{JournalHeader, JournalMarks, LastRun, RecoveredRecord, ScanEnd, merge::merge, scan::scan},
    layout::{self, JournalName},
};

/// Everything that the directory holds outside of segments.
#[derive(Debug)]
pub struct Recovery {
    /// The checkpoint of every lane that has one, in lane order.
    pub checkpoints: Vec<Checkpoint>,
    /// Each lane's ops above its checkpoint, gap-free and in order.
    pub lanes: BTreeMap<LaneId, Vec<RecoveredRecord>>,
    /// The journals that were read. They may be removed once checkpoints cover them.
    pub journals: Vec<JournalMarks>,
    /// Torn tails that were cut.
    pub torn: Vec<TornTail>,
}

/// A tail that was cut off a journal: a write that was never acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The journal.
    pub journal: JournalName,
    /// Where the last whole record ends.
    pub position: u64,
    /// Bytes that were cut.
    pub bytes: u64,
}

impl DataDirectory {
    /// Reads all checkpoints and journals, whichever shards wrote them, cuts torn tails, and flushes what was read: all
    /// that it gives is on stable storage. Blocking; for boot, once, before the first journal of this run is made.
    ///
    /// Errors: damage, gaps and conflicts are refusals that name file and position, lane and op; the directory is then
    /// unchanged.
    pub fn recover(&self) -> Result<Recovery, StorageError> {
        let checkpoints = self.read_checkpoints()?;
        let mut journals = Vec::new();
        let mut records = Vec::new();
        let mut torn = Vec::new();
        for name in self.journals() {
            let journal = self.read_journal(*name)?;
            let mut marks = JournalMarks::new(*name);
            for record in journal.records {
                marks.note(record.lane, record.op);
                records.push(record);
            }
            journals.push(marks);
            torn.extend(journal.torn);
        }
        let covered = checkpoints.iter().map(|checkpoint| (checkpoint.lane, checkpoint.op)).collect();
        let lanes = merge(&covered, records)?;
        for tail in &torn {
            self.cut(tail)?;
        }
        self.flush_what_was_read()?;
        Ok(Recovery { checkpoints, lanes, journals, torn })
    }

    fn read_checkpoints(&self) -> Result<Vec<Checkpoint>, StorageError> {
        self.checkpoints().iter().map(|lane| self.read_checkpoint(*lane)).collect()
    }

    fn read_checkpoint(&self, lane: LaneId) -> Result<Checkpoint, StorageError> {
        let path = layout::checkpoint_path(self.path(), lane);
        let bytes = Bytes::from(fs::read(&path).map_err(StorageError::io("read", &path))?);
        let damaged = |damage| StorageError::Damaged { path: path.clone(), position: 0, damage, lane: None };
        let (disk, checkpoint) = checkpoint::parse(&bytes).map_err(damaged)?;
        if disk != self.disk() {
            return Err(StorageError::ForeignFile { path });
        }
        if checkpoint.lane != lane {
            return Err(damaged(Damage::Name));
        }
        Ok(checkpoint)
    }

    fn read_journal(&self, name: JournalName) -> Result<ReadJournal, StorageError> {
        let path = name.path(self.path());
        let file = Bytes::from(fs::read(&path).map_err(StorageError::io("read", &path))?);
        let damaged =
            |position, damage, lane| StorageError::Damaged { path: path.clone(), position, damage, lane };
        let header = JournalHeader::parse(&file).map_err(|damage| damaged(0, damage, None))?;
        if header.disk != self.disk() {
            return Err(StorageError::ForeignFile { path });
        }
        if header.name != name {
            return Err(damaged(0, Damage::Name, None));
        }
        let last_run = if header.boot == self.boot() { LastRun::SameBoot } else { LastRun::OtherBoot };
        let scan = scan(&file, header.tag(), last_run);
        let torn = match scan.end {
            ScanEnd::Clean { .. } => None,
            ScanEnd::Damaged { position, damage, header } => {
                let lane: Option<(LaneId, Op)> = header.map(|header| (header.lane, header.op));
                return Err(damaged(position, damage, lane));
            }
            // A file was flushed before the next one of its shard was begun, so it cannot have a torn tail.
            ScanEnd::Torn { position } if self.has_successor(name) => {
                return Err(damaged(position, Damage::Length, None));
            }
            ScanEnd::Torn { position } => {
                Some(TornTail { journal: name, position, bytes: file.len() as u64 - position })
            }
        };
        let records = scan.records.into_iter().map(|record| RecoveredRecord::new(name, record)).collect();
        Ok(ReadJournal { records, torn })
    }

    /// What was read may so far be in the kernel only: the killed process had written it and not yet flushed. From here
    /// on it is answered for as durable, so it must be.
    fn flush_what_was_read(&self) -> Result<(), StorageError> {
        for name in self.journals() {
            let path = name.path(self.path());
            let file = File::open(&path).map_err(StorageError::io("open", &path))?;
            file.sync_all().map_err(StorageError::io("flush", &path))?;
        }
        sync_directory(&self.path().join(layout::JOURNAL))?;
        sync_directory(&self.path().join(layout::LANES))
    }

    fn has_successor(&self, name: JournalName) -> bool {
        self.journals().iter().any(|other| other.shard == name.shard && other.sequence > name.sequence)
    }

    fn cut(&self, tail: &TornTail) -> Result<(), StorageError> {
        let path = tail.journal.path(self.path());
        let file = File::options().write(true).open(&path).map_err(StorageError::io("open", &path))?;
        file.set_len(tail.position).map_err(StorageError::io("truncate", &path))?;
        file.sync_all().map_err(StorageError::io("flush", &path))?;
        tracing::warn!(journal = %tail.journal, position = tail.position, bytes = tail.bytes, "torn tail cut");
        Ok(())
    }
}

struct ReadJournal {
    records: Vec<RecoveredRecord>,
    torn: Option<TornTail>,
}
