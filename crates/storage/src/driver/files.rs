//! Small file operations with typed errors and counters.

use std::{io, path::Path};

use bytes::Bytes;
use compio::{
    BufResult,
    buf::{IntoInner, IoBuf},
    fs::{File, OpenOptions},
    io::{AsyncReadAt, AsyncWriteAt},
};

use super::counters::StorageCounters;
use crate::{error::StorageError, journal::group_commit::BUFFERS_MAX, layout::temporary};

/// A file with the path that its errors name.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    file: File,
    path: std::rc::Rc<Path>,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It must exist.
    Existing,
    /// It is made when it does not exist.
    Create,
    /// It is made, or emptied when it exists.
    Fresh,
}

impl OpenFile {
    pub(super) async fn open(
        path: &Path,
        access: Access,
        counters: &StorageCounters,
    ) -> Result<OpenFile, StorageError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(access != Access::Existing).truncate(access == Access::Fresh);
        let file = options.open(path).await.map_err(StorageError::io("open", path))?;
        counters.update(|counts| counts.opens += 1);
        Ok(OpenFile { file, path: path.into() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes all buffers back to back from a position on, in as few operations as the kernel allows.
    pub(super) async fn write_all(
        &self,
        buffers: impl IntoIterator<Item = Bytes>,
        mut position: u64,
        counters: &StorageCounters,
    ) -> Result<(), StorageError> {
        let failed = |error| StorageError::io("write", self.path())(error);
        let mut buffers = buffers.into_iter().filter(|buffer| !buffer.is_empty());
        let mut batch: Vec<Bytes> = Vec::new();
        loop {
            batch.extend(buffers.by_ref().take(BUFFERS_MAX - batch.len()));
            if batch.is_empty() {
                return Ok(());
            }
            let BufResult(result, written) = (&self.file).write_vectored_at(batch, position).await;
            let bytes = match result {
                Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(failed(error)),
            };
            counters.update(|counts| {
                counts.writes += 1;
                counts.written_bytes += bytes as u64;
            });
            position += bytes as u64;
            batch = written;
            drop_front(&mut batch, bytes);
        }
    }

    /// Reads up to `length` bytes; fewer only at the end of the file.
    pub(super) async fn read(
        &self,
        position: u64,
        length: usize,
        counters: &StorageCounters,
    ) -> Result<Bytes, StorageError> {
        let mut buffer: Vec<u8> = Vec::with_capacity(length);
        while buffer.len() < length {
            let start = buffer.len();
            let piece = buffer.slice(start..length);
            let BufResult(result, piece) = self.file.read_at(piece, position + start as u64).await;
            buffer = piece.into_inner();
            let bytes = match result {
                Ok(0) => break,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(StorageError::io("read", self.path())(error)),
            };
            counters.update(|counts| {
                counts.reads += 1;
                counts.read_bytes += bytes as u64;
            });
        }
        Ok(Bytes::from(buffer))
    }

    /// Brings contents and length to stable storage.
    pub(super) async fn flush(&self, counters: &StorageCounters) -> Result<(), StorageError> {
        counters.update(|counts| counts.flushes += 1);
        self.file.sync_data().await.map_err(StorageError::io("flush", self.path()))
    }
}

/// Brings the entries of a directory to stable storage.
pub(super) async fn flush_directory(path: &Path, counters: &StorageCounters) -> Result<(), StorageError> {
    let directory = File::open(path).await.map_err(StorageError::io("open", path))?;
    counters.update(|counts| {
        counts.opens += 1;
        counts.flushes += 1;
    });
    directory.sync_all().await.map_err(StorageError::io("flush", path))
}

/// Makes a file that appears under its name only whole and durable: written beside it, flushed, renamed, and the
/// directory flushed. Gives the open file. A failure leaves nothing beside it: the disk may be full.
pub(super) async fn create_whole(
    path: &Path,
    contents: impl IntoIterator<Item = Bytes>,
    counters: &StorageCounters,
) -> Result<OpenFile, StorageError> {
    let beside = temporary(path);
    let file = match create_beside(&beside, path, contents, counters).await {
        Ok(file) => file,
        Err(error) => {
            // The first failure is the one to report; a file that stays is removed at the next start.
            let _ = remove(&beside, counters).await;
            return Err(error);
        }
    };
    let directory = path.parent().expect("every file of ours has a directory");
    flush_directory(directory, counters).await?;
    Ok(OpenFile { path: path.into(), ..file })
}

async fn create_beside(
    beside: &Path,
    path: &Path,
    contents: impl IntoIterator<Item = Bytes>,
    counters: &StorageCounters,
) -> Result<OpenFile, StorageError> {
    let file = OpenFile::open(beside, Access::Fresh, counters).await?;
    file.write_all(contents, 0, counters).await?;
    file.flush(counters).await?;
    compio::fs::rename(beside, path).await.map_err(StorageError::io("rename", beside))?;
    Ok(file)
}

/// Removes a file. One that is gone already is as good.
pub(super) async fn remove(path: &Path, counters: &StorageCounters) -> Result<(), StorageError> {
    match compio::fs::remove_file(path).await {
        Ok(()) => {
            counters.update(|counts| counts.removals += 1);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StorageError::io("remove", path)(error)),
    }
}

fn drop_front(buffers: &mut Vec<Bytes>, mut bytes: usize) {
    let whole = buffers
        .iter()
        .take_while(|buffer| {
            let whole = buffer.len() <= bytes;
            if whole {
                bytes -= buffer.len();
            }
            whole
        })
        .count();
    buffers.drain(..whole);
    if let Some(first) = buffers.first_mut() {
        *first = first.split_off(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_write_goes_on_where_it_stopped() {
        let all = b"abcdefghij";
        for bytes in 0..=all.len() {
            let mut buffers = vec![
                Bytes::from_static(&all[..3]),
                Bytes::from_static(&all[3..4]),
                Bytes::from_static(&all[4..]),
            ];
            drop_front(&mut buffers, bytes);
            assert_eq!(buffers.concat(), all[bytes..], "{bytes} written");
            assert!(buffers.iter().all(|buffer| !buffer.is_empty()));
        }
    }
}
