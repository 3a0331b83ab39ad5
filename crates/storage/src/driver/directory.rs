//! Opening a data directory: who may, and which format it has.

use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use laneway_wire::{LaneId, Op};

use super::{counters::StorageCounters, files, journal_writer::wall_clock};
use crate::{
    blocks::{BLOCK_BYTES, aligned_buffer},
    checkpoint,
    error::StorageError,
    journal::header::BootId,
    layout::{self, FANOUT, JournalName, LaneFile},
    version::{DiskId, FORMAT, Version},
};

/// How blocks of journals and segments are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockWrites {
    /// Past the page cache, where the file system takes that.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// An open, locked data directory. A cheap handle that every shard has; the lock is held until the last one is gone.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    version: Version,
    boot: BootId,
    /// Files found at open, sorted.
    journals: Vec<JournalName>,
    checkpoints: Vec<LaneId>,
    superblocks: Vec<LaneId>,
    /// Whether journals and segments are written past the page cache.
    direct: bool,
    /// Closed last, which releases the lock.
    _lock: File,
}

impl DataDirectory {
    /// Opens a data directory, and makes it first when the path is missing or empty. Blocking; for boot.
    ///
    /// Errors: [`StorageError::Locked`] when another broker has it, [`StorageError::NotADataDirectory`] when it holds
    /// something else, [`StorageError::NewerFormat`] when a later release wrote it; all before anything is changed.
    pub fn open(path: impl Into<PathBuf>) -> Result<DataDirectory, StorageError> {
        Self::open_with(path, BlockWrites::Direct)
    }

    /// The same, for a given way of writing blocks. What is on disk is the same for both.
    pub fn open_with(path: impl Into<PathBuf>, writes: BlockWrites) -> Result<DataDirectory, StorageError> {
        let path = path.into();
        // Only for its owner: it holds everybody's messages and the hashes of passwords.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(StorageError::io("create", &path))?;
        let made = path.join(layout::VERSION).try_exists().map_err(StorageError::io("look up", &path))?;
        if !made && !is_empty_directory(&path)? {
            return Err(StorageError::NotADataDirectory { path });
        }
        let lock = lock(&path)?;
        let version = match read_version(&path)? {
            Some(version) => version,
            None => create(&path)?,
        };
        create_fan_out(&path)?;
        for directory in [path.clone(), path.join(layout::JOURNAL), path.join(layout::LANES)] {
            remove_temporaries(&directory)?;
        }
        let journals = list(&path.join(layout::JOURNAL), JournalName::parse)?;
        let (mut checkpoints, mut superblocks) = (Vec::new(), Vec::new());
        for file in list(&path.join(layout::LANES), LaneFile::parse)? {
            match file {
                LaneFile::Checkpoint(lane) => checkpoints.push(lane),
                LaneFile::Superblock(lane) => superblocks.push(lane),
            }
        }
        let boot = boot_id();
        let direct = writes == BlockWrites::Direct && takes_direct_writes(&path)?;
        Ok(DataDirectory {
            inner: Arc::new(Inner {
                path,
                version,
                boot,
                journals,
                checkpoints,
                superblocks,
                direct,
                _lock: lock,
            }),
        })
    }

    /// Whether blocks are written past the page cache.
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Its random identity.
    pub fn disk(&self) -> DiskId {
        self.inner.version.disk
    }

    /// The run of the operating system.
    pub fn boot(&self) -> BootId {
        self.inner.boot
    }

    /// Journals that were there when it was opened.
    pub fn journals(&self) -> &[JournalName] {
        &self.inner.journals
    }

    /// Lanes that had a checkpoint when it was opened.
    pub fn checkpoints(&self) -> &[LaneId] {
        &self.inner.checkpoints
    }

    /// Lanes that had a superblock when it was opened.
    pub fn superblocks(&self) -> &[LaneId] {
        &self.inner.superblocks
    }

    /// The sequence of this run's first journals: above every sequence that is there, of any shard.
    pub fn first_sequence(&self) -> u64 {
        self.inner.journals.iter().map(|journal| journal.sequence).max().unwrap_or(0) + 1
    }

    /// Writes a lane's checkpoint. When it returns, the checkpoint is durable and has replaced the one before; at any
    /// moment of a crash, one of the two is there whole. The segments that the payload names must have been flushed
    /// before ([`super::SegmentStore::flush`]).
    pub async fn write_checkpoint(
        &self,
        lane: LaneId,
        op: Op,
        payload: Bytes,
        counters: &StorageCounters,
    ) -> Result<(), StorageError> {
        let header = checkpoint::encode_header(self.disk(), lane, op, &payload);
        let path = layout::checkpoint_path(self.path(), lane);
        files::create_whole(&path, [Bytes::copy_from_slice(&header), payload], counters).await.map(drop)
    }

    /// Removes the checkpoint of a lane that no longer exists.
    pub async fn remove_checkpoint(
        &self,
        lane: LaneId,
        counters: &StorageCounters,
    ) -> Result<(), StorageError> {
        files::remove(&layout::checkpoint_path(self.path(), lane), counters).await
    }

    /// Removes journals of earlier runs, once [`crate::journal::JournalMarks::covered_by`] says so.
    pub async fn remove_journals(
        &self,
        journals: &[JournalName],
        counters: &StorageCounters,
    ) -> Result<(), StorageError> {
        for journal in journals {
            files::remove(&journal.path(self.path()), counters).await?;
        }
        Ok(())
    }
}

/// Asks the file system by doing it. Some accept the flag and refuse the write.
fn takes_direct_writes(root: &Path) -> Result<bool, StorageError> {
    let path = layout::temporary(&root.join(layout::JOURNAL).join("probe"));
    let open = |flags| {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).custom_flags(flags).open(&path)
    };
    let written = open(files::O_DIRECT).and_then(|file| {
        let mut block = aligned_buffer(BLOCK_BYTES as usize);
        block.resize(BLOCK_BYTES as usize, 0);
        file.write_all_at(&block, 0)
    });
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(StorageError::io("remove", &path)(error)),
    }
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(true),
        Err(error) => {
            tracing::warn!(
                path = %root.display(),
                %error,
                "the file system takes no direct writes; blocks go through the page cache, which costs throughput"
            );
            Ok(false)
        }
    }
}

/// Takes the lock, and writes our process number into it for whoever fails to take it.
fn lock(root: &Path) -> Result<File, StorageError> {
    let path = root.join(layout::LOCK);
    let mut options = fs::OpenOptions::new();
    let lock = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(StorageError::io("open", &path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).ok().map(|text| text.trim().to_owned());
            let holder = holder.filter(|text| !text.is_empty());
            return Err(StorageError::Locked { path: root.into(), holder });
        }
        Err(TryLockError::Error(error)) => return Err(StorageError::io("lock", &path)(error)),
    }
    fs::write(&path, format!("{}\n", std::process::id())).map_err(StorageError::io("write", &path))?;
    Ok(lock)
}

/// True when the directory holds nothing, or only what an interrupted first start left: no data can be among it.
fn is_empty_directory(root: &Path) -> Result<bool, StorageError> {
    let known = [layout::LOCK, layout::JOURNAL, layout::LANES, layout::SEGMENTS];
    let version = layout::temporary(Path::new(layout::VERSION));
    let ours = |name: &str| known.contains(&name) || Some(name) == version.to_str();
    if !names(root)?.iter().all(|name| ours(name)) {
        return Ok(false);
    }
    for directory in [layout::JOURNAL, layout::LANES] {
        let path = root.join(directory);
        if path.is_dir() && !names(&path)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_version(root: &Path) -> Result<Option<Version>, StorageError> {
    let path = root.join(layout::VERSION);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("read", &path)(error)),
    };
    match Version::parse(&bytes) {
        Ok(version) if version.format > FORMAT => {
            Err(StorageError::NewerFormat { path, found: version.format, supported: FORMAT })
        }
        Ok(version) => Ok(Some(version)),
        Err(damage) => Err(StorageError::Damaged { path, position: 0, damage, lane: None }),
    }
}

/// Makes the directories, and last the VERSION file: without it, nothing of the rest counts.
fn create(root: &Path) -> Result<Version, StorageError> {
    for name in [layout::JOURNAL, layout::LANES] {
        let directory = root.join(name);
        fs::create_dir_all(&directory).map_err(StorageError::io("create", &directory))?;
    }
    create_fan_out(root)?;
    let disk = DiskId(u128::from_le_bytes(random_bytes(root)?));
    let version = Version { format: FORMAT, created: wall_clock(), disk };
    let path = root.join(layout::VERSION);
    let beside = layout::temporary(&path);
    fs::write(&beside, version.encode()).map_err(StorageError::io("write", &beside))?;
    let file = File::open(&beside).map_err(StorageError::io("open", &beside))?;
    file.sync_all().map_err(StorageError::io("flush", &beside))?;
    fs::rename(&beside, &path).map_err(StorageError::io("rename", &beside))?;
    sync_directory(root)?;
    Ok(version)
}

/// Makes the directories of segments. Also those that a copy of the directory left out because they were empty.
fn create_fan_out(root: &Path) -> Result<(), StorageError> {
    let mut made = false;
    for directory in (0..FANOUT).map(|number| layout::fan_out_directory(root, number)) {
        if !directory.is_dir() {
            fs::create_dir_all(&directory).map_err(StorageError::io("create", &directory))?;
            made = true;
        }
    }
    if made { sync_directory(&root.join(layout::SEGMENTS)) } else { Ok(()) }
}

pub(super) fn sync_directory(path: &Path) -> Result<(), StorageError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(StorageError::io("flush", path))
}

/// The names in a directory, sorted. A name that is no text is none of ours and reads as its lossy form.
pub(super) fn names(path: &Path) -> Result<Vec<String>, StorageError> {
    let entries = fs::read_dir(path).map_err(StorageError::io("list", path))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StorageError::io("list", path))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn remove_temporaries(directory: &Path) -> Result<(), StorageError> {
    for name in names(directory)?.iter().filter(|name| name.ends_with(layout::TEMPORARY)) {
        let path = directory.join(name);
        fs::remove_file(&path).map_err(StorageError::io("remove", &path))?;
    }
    Ok(())
}

fn list<T: Ord>(directory: &Path, parse: fn(&str) -> Option<T>) -> Result<Vec<T>, StorageError> {
    let mut found = Vec::new();
    for name in names(directory)? {
        match parse(&name) {
            Some(parsed) => found.push(parsed),
            None => tracing::warn!(directory = %directory.display(), name, "unknown file is left alone"),
        }
    }
    found.sort();
    Ok(found)
}

/// Identity of this run of the kernel. Where the kernel does not tell, a random one: every earlier journal then counts
/// as written before a power loss, which only cuts tails that could otherwise be told to be damaged.
fn boot_id() -> BootId {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(boot) if boot != 0 => BootId(boot),
        _ => BootId(random_bytes(Path::new("/")).map(u128::from_le_bytes).unwrap_or(1)),
    }
}

fn random_bytes(for_path: &Path) -> Result<[u8; 16], StorageError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(error.to_string()))
        .map_err(StorageError::io("draw an identity for", for_path))?;
    Ok(bytes)
}
