//! Reading everything back at boot, with plain blocking calls. Nothing is changed before everything is known to be
//! sound: a refusal leaves the directory as it was.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::FileExt,
};

use bytes::Bytes;
use laneway_wire::{
    LaneId, Op,
    batch::{BATCH_HEADER_BYTES, BatchHeader, RECORD_BYTES_MAX, verify_stored},
};

use super::directory::{DataDirectory, sync_directory};
use crate::{
    checkpoint::{self, Checkpoint},
    error::{Damage, StorageError},
    journal::{
        BatchPlace, JournalHeader, JournalMarks, LastRun, Placing, RecordHeader, RecordKind, RecordPlace,
        RecoveredRecord, ScanEnd, ScannedRecord, merge::merge, scan::scan,
    },
    layout::{self, JournalName, SegmentFile},
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
}

impl Recovery {
    /// Where batches end that are in segments already, by what the journals say.
    pub fn direct_batches(&self) -> impl Iterator<Item = (SegmentFile, u64)> {
        self.lanes.values().flatten().filter_map(|record| match record.placing {
            Placing::Direct(place) => Some((place.file, place.position + batch_bytes(&record.batch)?)),
            _ => None,
        })
    }
}

impl DataDirectory {
    /// Reads all checkpoints and journals, whichever shards wrote them, ends the journals that a crash left open, and
    /// flushes what was read: all that it gives is on stable storage. Blocking; for boot, once, before the first journal of this run is made.
    ///
    /// Errors: damage, gaps and conflicts are refusals that name file and position, lane and op; the directory is then
    /// unchanged.
    pub fn recover(&self) -> Result<Recovery, StorageError> {
        let checkpoints = self.read_checkpoints()?;
        let covered = checkpoints.iter().map(|checkpoint| (checkpoint.lane, checkpoint.op)).collect();
        let mut journals = Vec::new();
        let mut records = Vec::new();
        let mut open = Vec::new();
        let mut followed = BTreeSet::new();
        // The newest first: a file is followed by what was written after it.
        for name in self.journals().iter().rev() {
            let journal = self.read_journal(*name, followed.contains(&name.shard), &covered)?;
            let mut marks = JournalMarks::new(*name);
            for record in journal.records {
                marks.note(record.lane, record.op);
                records.push(record);
                followed.insert(name.shard);
            }
            journals.push(marks);
            open.extend(journal.open);
        }
        journals.reverse();
        // Of two records for one op, the one of the older file comes first.
        records.sort_by_key(|record: &RecoveredRecord| {
            (record.journal.sequence, record.journal.shard, record.position)
        });
        let lanes = merge(&covered, records)?;
        let torn = open.iter().filter(|open| open.torn).map(OpenEnd::tail).collect();
        for end in &open {
            self.end(end)?;
        }
        self.flush_what_was_read(&lanes)?;
        Ok(Recovery { checkpoints, lanes, journals, torn })
    }

    /// Reads a batch that lies at its place. Blocking; for boot. `header`: its first bytes, as the journal has them.
    ///
    /// Errors: [`StorageError::BatchDamaged`] when what is there is another batch or none.
    pub fn read_direct(&self, place: BatchPlace, header: &[u8]) -> Result<Bytes, StorageError> {
        let path = place.file.path(self.path());
        let damaged = || StorageError::BatchDamaged {
            partition: place.file.partition,
            file: place.file,
            position: place.position,
            offset: place.file.base,
            damage: Damage::BodyChecksum,
        };
        let bytes =
            batch_bytes(header).filter(|bytes| *bytes <= RECORD_BYTES_MAX as u64).ok_or_else(damaged)?;
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(damaged()),
            Err(error) => return Err(StorageError::io("open", &path)(error)),
        };
        let mut batch = vec![0; bytes as usize];
        match file.read_exact_at(&mut batch, place.position) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Err(damaged()),
            Err(error) => return Err(StorageError::io("read", &path)(error)),
        }
        let is_it = batch.starts_with(header) && verify_stored(&batch).is_ok();
        if is_it { Ok(Bytes::from(batch)) } else { Err(damaged()) }
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

    fn read_journal(
        &self,
        name: JournalName,
        is_followed: bool,
        covered: &BTreeMap<LaneId, Op>,
    ) -> Result<ReadJournal, StorageError> {
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
        if (file.len() as u64) < header.file_bytes {
            return Err(damaged(file.len() as u64, Damage::Short, None));
        }
        let last_run = if header.boot == self.boot() { LastRun::SameBoot } else { LastRun::OtherBoot };
        let tag = header.tag();
        let mut scan = scan(&file, tag, last_run);
        let mut open = match scan.end {
            ScanEnd::Closed { .. } => None,
            ScanEnd::Damaged { position, damage, header } => {
                let lane: Option<(LaneId, Op)> = header.map(|header| (header.lane, header.op));
                return Err(damaged(position, damage, lane));
            }
            // The next file of a shard is not written before the end of this one is on stable storage.
            ScanEnd::Open { position, .. } if is_followed => {
                return Err(damaged(position, Damage::Unfinished, None));
            }
            ScanEnd::Open { position, chain, torn } => {
                Some(OpenEnd { journal: name, tag, position, torn, chain })
            }
        };
        if let Some(open) = &mut open
            && let Some(at) = self.first_unwritten(&scan.records, scan.arrived, covered)?
        {
            let first = scan.records[at].header.at;
            (open.position, open.chain, open.torn) = (first.position, first.chain, true);
            scan.records.truncate(at);
        }
        let records = scan.records.into_iter().map(|record| RecoveredRecord::new(name, record)).collect();
        Ok(ReadJournal { records, open })
    }

    /// The first record whose batch did not reach its place. Only those are looked at of which nothing says that they
    /// arrived: the last ones before a crash. The others are checked when they are read.
    fn first_unwritten(
        &self,
        records: &[ScannedRecord],
        arrived: u64,
        covered: &BTreeMap<LaneId, Op>,
    ) -> Result<Option<usize>, StorageError> {
        for (at, record) in records.iter().enumerate() {
            let Placing::Direct(place) = record.header.placing else { continue };
            let is_covered = covered.get(&record.header.lane).is_some_and(|op| *op >= record.header.op);
            if record.header.at.position < arrived || is_covered {
                continue;
            }
            match self.read_direct(place, &record.batch) {
                Ok(_) => {}
                Err(StorageError::BatchDamaged { .. }) => return Ok(Some(at)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// What was read may so far be in the kernel only: the killed process had written it and not yet flushed. From here
    /// on it is answered for as durable, so it must be.
    fn flush_what_was_read(
        &self,
        lanes: &BTreeMap<LaneId, Vec<RecoveredRecord>>,
    ) -> Result<(), StorageError> {
        let flush = |path: &std::path::Path| {
            let file = File::open(path).map_err(StorageError::io("open", path))?;
            file.sync_all().map_err(StorageError::io("flush", path))
        };
        for name in self.journals() {
            flush(&name.path(self.path()))?;
        }
        // Batches at their places are written durably one by one, and a record that stands here names a finished one.
        // The last one may have been the last thing that the process did.
        let mut directories = BTreeSet::new();
        for record in lanes.values().flatten() {
            if let Placing::Direct(place) = record.placing {
                directories.insert(place.file.fan_out());
            }
        }
        for fan_out in directories {
            sync_directory(&layout::fan_out_directory(self.path(), fan_out))?;
        }
        sync_directory(&self.path().join(layout::JOURNAL))?;
        sync_directory(&self.path().join(layout::LANES))
    }

    /// Writes behind the last record that nothing follows, so that what a crash left there is judged once.
    fn end(&self, open: &OpenEnd) -> Result<(), StorageError> {
        let path = open.journal.path(self.path());
        let file = File::options().write(true).open(&path).map_err(StorageError::io("open", &path))?;
        let position = open.position;
        let at =
            RecordPlace { tag: open.tag, position, flushed: position, written: position, chain: open.chain };
        // What stands before it must be on stable storage before it says so.
        file.sync_all().map_err(StorageError::io("flush", &path))?;
        let record = RecordHeader::mark(RecordKind::End, at).encode();
        file.write_all_at(&record, position).map_err(StorageError::io("write", &path))?;
        file.sync_all().map_err(StorageError::io("flush", &path))?;
        if open.torn {
            tracing::warn!(journal = %open.journal, position, "the tail of a write that never finished was cut");
        }
        Ok(())
    }
}

/// Where a journal that was in use ends.
struct OpenEnd {
    journal: JournalName,
    tag: u64,
    position: u64,
    torn: bool,
    /// Checksum of the last record before it.
    chain: u64,
}

impl OpenEnd {
    fn tail(&self) -> TornTail {
        TornTail { journal: self.journal, position: self.position }
    }
}

fn batch_bytes(header: &[u8]) -> Option<u64> {
    let block = header.first_chunk::<BATCH_HEADER_BYTES>()?;
    Some(BatchHeader::parse(block).ok()?.batch_length)
}

struct ReadJournal {
    records: Vec<RecoveredRecord>,
    open: Option<OpenEnd>,
}
