//! Brings the segment files back to what the checkpoints name. After a crash there may be more: bytes and files of a
//! checkpoint that was never finished, and files of a removal that was. There may never be less.

use std::{
    collections::BTreeMap,
    fs::{self, File},
};

use super::directory::{DataDirectory, names, sync_directory};
use crate::{
    blocks::block_after,
    error::StorageError,
    layout::{self, FANOUT, SegmentFile},
    segment::PartitionLog,
};

/// What was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReconcileReport {
    /// Files cut to their recorded length.
    pub cut: u64,
    /// Bytes cut.
    pub cut_bytes: u64,
    /// Files that no checkpoint names, removed.
    pub removed: u64,
}

impl DataDirectory {
    /// Cuts every segment to its recorded length and removes those that nothing names. Blocking; for boot, with the
    /// logs of all lanes exactly as the checkpoints hold them, before any journal record is replayed, and with the
    /// batches that the journals name at their places ([`super::Recovery::direct_batches`]).
    ///
    /// Errors: [`StorageError::SegmentShort`] when a named file is missing or too short; nothing was changed then.
    pub fn reconcile<'a>(
        &self,
        logs: impl IntoIterator<Item = &'a PartitionLog>,
        direct: impl IntoIterator<Item = (SegmentFile, u64)>,
    ) -> Result<ReconcileReport, StorageError> {
        let mut named: BTreeMap<SegmentFile, u64> = BTreeMap::new();
        for log in logs {
            for (file, segment) in log.files().zip(log.segments()) {
                named.insert(file, segment.bytes);
            }
        }
        for (file, end) in direct {
            let bytes = named.entry(file).or_default();
            *bytes = end.max(*bytes);
        }
        let found = self.segment_files()?;
        for (file, recorded) in &named {
            let found = found.get(file).copied().unwrap_or(0);
            if found < *recorded {
                let (partition, file, recorded) = (file.partition, *file, *recorded);
                return Err(StorageError::SegmentShort { partition, file, recorded, found });
            }
        }
        let mut report = ReconcileReport::default();
        for (file, bytes) in found {
            match named.get(&file) {
                // The rest of the last block is padding, and is written again with what comes behind.
                Some(recorded) if *recorded == bytes || block_after(*recorded) == bytes => {}
                Some(recorded) => {
                    self.cut_segment(file, *recorded)?;
                    report.cut += 1;
                    report.cut_bytes += bytes - recorded;
                }
                None => {
                    let path = file.path(self.path());
                    fs::remove_file(&path).map_err(StorageError::io("remove", &path))?;
                    report.removed += 1;
                }
            }
        }
        Ok(report)
    }

    fn segment_files(&self) -> Result<BTreeMap<SegmentFile, u64>, StorageError> {
        let mut found = BTreeMap::new();
        for fan_out in 0..FANOUT {
            let directory = layout::fan_out_directory(self.path(), fan_out);
            for name in names(&directory)? {
                let path = directory.join(&name);
                match SegmentFile::parse(&name).filter(|file| file.fan_out() == fan_out) {
                    Some(file) => {
                        let metadata = fs::metadata(&path).map_err(StorageError::io("look up", &path))?;
                        found.insert(file, metadata.len());
                    }
                    None => tracing::warn!(path = %path.display(), "unknown file is left alone"),
                }
            }
        }
        Ok(found)
    }

    fn cut_segment(&self, file: SegmentFile, bytes: u64) -> Result<(), StorageError> {
        let path = file.path(self.path());
        let open = File::options().write(true).open(&path).map_err(StorageError::io("open", &path))?;
        open.set_len(bytes).map_err(StorageError::io("truncate", &path))?;
        open.sync_all().map_err(StorageError::io("flush", &path))?;
        sync_directory(&file.directory(self.path()))
    }
}
