//! Reads and writes the superblock of a lane. What is in it, in which order its copies are written and which of them is
//! believed is decided by [`laneway_vsr::superblock`]; here are the files.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use compio::{
    BufResult,
    buf::{IntoInner, IoBuf},
    fs::OpenOptions,
    io::{AsyncReadAtExt, AsyncWriteAtExt},
};
use laneway_vsr::Identification;
use laneway_vsr::superblock::{
    COPIES, COPY_SPACING, Give, OpenError, Opened, RECORD_BYTES, Step, Superblock, SuperblockWriter, open,
};
use laneway_wire::{LaneId, Nanos};

use super::{
    counters::StorageCounters,
    directory::{DataDirectory, sync_directory},
};
use crate::{
    error::StorageError,
    layout::{self, superblock_path},
};

impl DataDirectory {
    /// Reads the superblock of a lane. `None` when the lane has no file. Blocking; for boot.
    ///
    /// Errors: [`StorageError::Superblock`] says why no copy can be believed, or that the record is not this replica's.
    pub fn read_superblock(&self, who: &Identification) -> Result<Option<Opened>, StorageError> {
        let path = superblock_path(self.path(), who.lane);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StorageError::io("read", &path)(error)),
        };
        let copies: [Option<&[u8]>; COPIES] = std::array::from_fn(|copy| {
            let start = copy * COPY_SPACING as usize;
            bytes.get(start..start + RECORD_BYTES)
        });
        match open(copies, who) {
            Ok(opened) => Ok(Some(opened)),
            // A file that appears whole or not at all and has nothing in it is damage.
            Err(OpenError::Absent) => Err(StorageError::Superblock { path, source: OpenError::Damaged }),
            Err(source) => Err(StorageError::Superblock { path, source }),
        }
    }
}

/// The superblock of one lane, open for writing. Belongs to the shard that owns the lane.
#[derive(Debug)]
pub struct SuperblockFile {
    path: PathBuf,
    writer: SuperblockWriter,
    ticket: u64,
}

impl SuperblockFile {
    /// Goes on with what a start has read, or with a lane that has no superblock yet.
    pub fn new(directory: &DataDirectory, lane: LaneId, opened: Option<&Opened>) -> SuperblockFile {
        SuperblockFile {
            path: superblock_path(directory.path(), lane),
            writer: opened.map_or_else(SuperblockWriter::fresh, SuperblockWriter::resume),
            ticket: opened.map_or(0, |opened| opened.sequence_seen),
        }
    }

    /// The newest durable record.
    pub fn durable(&self) -> Option<&Superblock> {
        self.writer.durable()
    }

    /// Writes a record. When it returns, the record is durable and was read back. The file of a lane that has none yet
    /// gets its name once it is whole. Blocking; for boot, and for the first record of a lane. Tried once.
    pub fn write_blocking(&mut self, superblock: Superblock) -> Result<(), StorageError> {
        let is_new = self.writer.durable().is_none();
        let beside = layout::temporary(&self.path);
        let path = if is_new { &beside } else { &self.path }.clone();
        self.request(superblock);
        let mut options = File::options();
        options.read(true).write(true).create(is_new).truncate(is_new);
        let file = options.open(&path).map_err(StorageError::io("open", &path))?;
        while let Some(step) = self.writer.poll_step(Nanos(0)) {
            self.perform_blocking(&file, &path, step)?;
        }
        if is_new {
            fs::rename(&beside, &self.path).map_err(StorageError::io("rename", &beside))?;
            sync_directory(self.path.parent().expect("every file of ours has a directory"))?;
        }
        Ok(())
    }

    fn perform_blocking(&mut self, file: &File, path: &Path, step: Step) -> Result<(), StorageError> {
        match step {
            Step::Write { position, bytes } => {
                file.write_all_at(&bytes, position).map_err(StorageError::io("write", path))?;
                self.writer.handle_done();
            }
            Step::Flush => {
                file.sync_data().map_err(StorageError::io("flush", path))?;
                self.writer.handle_done();
            }
            Step::Read { position, length } => {
                forget_cache(file);
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, position).map_err(StorageError::io("read", path))?;
                if self.writer.handle_read(Nanos(0), &bytes).is_err() {
                    return Err(StorageError::Unwritable { path: path.to_owned() });
                }
            }
        }
        Ok(())
    }

    /// Writes a record while the shard goes on. `now` reads the monotonic clock. A failing disk is tried again with
    /// pauses.
    ///
    /// Errors: [`StorageError::Unwritable`] after 30 s: the process has to end.
    pub async fn write(
        &mut self,
        superblock: Superblock,
        now: impl Fn() -> Nanos,
        counters: &StorageCounters,
    ) -> Result<(), StorageError> {
        self.request(superblock);
        loop {
            match self.run_steps(&now, counters).await {
                Ok(()) => return Ok(()),
                Err(Give::Up) => return Err(StorageError::Unwritable { path: self.path.clone() }),
                Err(Give::RetryAt(at)) => {
                    tracing::warn!(path = %self.path.display(), "the superblock is written again");
                    compio::time::sleep(Duration::from_micros(at.us_since(now()))).await;
                }
            }
        }
    }

    async fn run_steps(&mut self, now: &impl Fn() -> Nanos, counters: &StorageCounters) -> Result<(), Give> {
        let opened = OpenOptions::new().read(true).write(true).open(&self.path).await;
        while let Some(step) = self.writer.poll_step(now()) {
            let done = match &opened {
                Ok(file) => perform(file, step, counters).await,
                Err(error) => Err(std::io::Error::from(error.kind())),
            };
            match done {
                Ok(None) => self.writer.handle_done(),
                Ok(Some(bytes)) => {
                    self.writer.handle_read(now(), &bytes)?;
                }
                Err(error) => {
                    tracing::error!(path = %self.path.display(), %error, "the superblock could not be written");
                    return Err(self.writer.handle_failed(now()));
                }
            }
        }
        Ok(())
    }

    fn request(&mut self, superblock: Superblock) {
        self.ticket += 1;
        self.writer.request(self.ticket, superblock);
    }
}

/// Carries out one step. Gives what was read.
async fn perform(
    mut file: &compio::fs::File,
    step: Step,
    counters: &StorageCounters,
) -> std::io::Result<Option<Vec<u8>>> {
    match step {
        Step::Write { position, bytes } => {
            counters.update(|counts| {
                counts.writes += 1;
                counts.written_bytes += bytes.len() as u64;
            });
            let BufResult(result, _) = file.write_all_at(Bytes::from(bytes), position).await;
            result.map(|()| None)
        }
        Step::Flush => {
            counters.update(|counts| counts.flushes += 1);
            file.sync_data().await.map(|()| None)
        }
        Step::Read { position, length } => {
            forget_cache(file);
            let buffer = Vec::with_capacity(length).slice(..length);
            let BufResult(result, buffer) = file.read_exact_at(buffer, position).await;
            result.map(|()| Some(buffer.into_inner()))
        }
    }
}

/// Lets the kernel drop what it keeps of the file, so that reading it back asks the device.
fn forget_cache(file: &impl AsFd) {
    // Advice that is not taken costs the check its strength, not its result.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use laneway_vsr::{BootId, ClusterId, DiskId, Roster, View};
    use laneway_wire::ReplicaId;

    use super::*;

    const LANE: LaneId = LaneId(3);

    fn directory() -> (tempfile::TempDir, DataDirectory, Identification) {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(temporary.path()).unwrap();
        let who = Identification {
            cluster: ClusterId(1),
            disk: DiskId(directory.disk().0),
            lane: LANE,
            replica: ReplicaId(0),
            nodes: 1,
        };
        (temporary, directory, who)
    }

    fn record(who: &Identification, view: u32) -> Superblock {
        let fresh = Superblock::fresh(*who, Roster::initial(LANE, 1).unwrap(), BootId(9));
        Superblock { view: View(view), log_view: View(view), ..fresh }
    }

    fn view(directory: &DataDirectory, who: &Identification) -> u32 {
        directory.read_superblock(who).unwrap().expect("the file is there").superblock.view.0
    }

    #[test]
    fn records_are_read_back_after_blocking_and_asynchronous_writes() {
        let (_keep, directory, who) = directory();
        assert_eq!(directory.read_superblock(&who).unwrap(), None);
        let mut file = SuperblockFile::new(&directory, LANE, None);
        file.write_blocking(record(&who, 1)).unwrap();
        assert_eq!(view(&directory, &who), 1);
        let opened = directory.read_superblock(&who).unwrap();
        let mut file = SuperblockFile::new(&directory, LANE, opened.as_ref());
        let counters = StorageCounters::default();
        compio::runtime::Runtime::new().unwrap().block_on(async {
            file.write(record(&who, 2), || Nanos(0), &counters).await.unwrap();
            file.write(record(&who, 3), || Nanos(0), &counters).await.unwrap();
        });
        assert_eq!(view(&directory, &who), 3);
        assert_eq!(counters.get().flushes, 4, "two flushes a record");
    }

    #[test]
    fn a_damaged_copy_is_repaired_and_a_ruined_file_refused() {
        let (_keep, directory, who) = directory();
        SuperblockFile::new(&directory, LANE, None).write_blocking(record(&who, 1)).unwrap();
        let path = superblock_path(directory.path(), LANE);
        let damage = |copy: u64| {
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[0xff; 64], copy * COPY_SPACING + 500).unwrap();
        };
        damage(2);
        let opened = directory.read_superblock(&who).unwrap().unwrap();
        assert_eq!(opened.stale, [2]);
        SuperblockFile::new(&directory, LANE, Some(&opened)).write_blocking(record(&who, 2)).unwrap();
        assert_eq!(directory.read_superblock(&who).unwrap().unwrap().stale, Vec::<u8>::new());
        (0..4).for_each(damage);
        let refused = directory.read_superblock(&who).unwrap_err().to_string();
        assert!(refused.contains("3.superblock") && refused.contains("no copy"), "{refused}");
        fs::write(&path, []).unwrap();
        assert!(directory.read_superblock(&who).is_err(), "an emptied file is damage, not a new lane");
    }

    /// V86, through the file.
    #[test]
    fn the_superblock_of_another_replica_is_refused_by_name() {
        let (_keep, directory, who) = directory();
        SuperblockFile::new(&directory, LANE, None).write_blocking(record(&who, 1)).unwrap();
        let refused = directory.read_superblock(&Identification { nodes: 3, ..who }).unwrap_err().to_string();
        assert!(refused.contains("roster of 1 nodes, the configured roster has 3"), "{refused}");
    }
}
