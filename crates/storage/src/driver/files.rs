//! Small file operations with typed errors and counters.

use std::{io, path::Path};

use bytes::{Bytes, BytesMut};
use compio::{
    BufResult,
    buf::{IntoInner, IoBuf},
    fs::{File, OpenOptions},
    io::{AsyncReadAt, AsyncWriteAt},
};

use super::{counters::StorageCounters, faults};
use crate::{
    blocks::{BLOCK_BYTES, aligned_buffer, block_before},
    error::StorageError,
    layout::temporary,
};

/// Entries of one vectored write that the kernel takes (IOV_MAX).
pub(super) const BUFFERS_MAX: usize = 1024;

/// `O_DIRECT` and `O_DSYNC`. The numbers are those of every Linux platform but a few that nobody serves from, where
/// the probe of the data directory finds out.
pub(super) const O_DIRECT: i32 =
    if cfg!(any(target_arch = "aarch64", target_arch = "arm")) { 0o200_000 } else { 0o40_000 };
const O_DSYNC: i32 = 0o10_000;

/// A file with the path that its errors name.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    file: File,
    path: std::rc::Rc<Path>,
    is_durable: bool,
}

/// How writes of whole blocks reach a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockMode {
    /// Past the page cache.
    pub direct: bool,
    /// Each is on stable storage when it is done.
    pub durable: bool,
}

impl BlockMode {
    fn flags(self) -> i32 {
        (if self.direct { O_DIRECT } else { 0 }) | (if self.durable { O_DSYNC } else { 0 })
    }
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
        faults::check("open", path).map_err(StorageError::io("open", path))?;
        let file = options.open(path).await.map_err(StorageError::io("open", path))?;
        counters.update(|counts| counts.opens += 1);
        Ok(OpenFile { file, path: path.into(), is_durable: false })
    }

    /// Opens a file for writes of whole blocks from aligned memory, see [`OpenFile::write_blocks`].
    pub(super) async fn open_blocks(
        path: &Path,
        access: Access,
        mode: BlockMode,
        counters: &StorageCounters,
    ) -> Result<OpenFile, StorageError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(access != Access::Existing).truncate(access == Access::Fresh);
        options.custom_flags(mode.flags());
        faults::check("open", path).map_err(StorageError::io("open", path))?;
        let file = options.open(path).await.map_err(StorageError::io("open", path))?;
        counters.update(|counts| counts.opens += 1);
        Ok(OpenFile { file, path: path.into(), is_durable: mode.durable })
    }

    /// The same open file under the name that it was given meanwhile.
    pub(super) fn renamed(self, path: &Path) -> OpenFile {
        OpenFile { path: path.into(), ..self }
    }

    /// Writes whole blocks from aligned memory, in one operation unless the kernel stops early.
    pub(super) async fn write_blocks(
        &self,
        blocks: Bytes,
        position: u64,
        counters: &StorageCounters,
    ) -> Result<(), StorageError> {
        let mut left = blocks;
        let mut position = position;
        while !left.is_empty() {
            let BufResult(result, written) = (&self.file).write_at(left, position).await;
            left = written;
            let bytes = self.written(result, counters)?;
            position += bytes as u64;
            left = left.split_off(bytes);
        }
        Ok(())
    }

    /// Writes batches from a block on, each of them starting a block, as whole blocks.
    pub(super) async fn write_batches(
        &self,
        batches: Vec<Bytes>,
        position: u64,
        counters: &StorageCounters,
    ) -> Result<(), StorageError> {
        let mut buffers = Vec::with_capacity(batches.len() * 2);
        for batch in batches {
            let whole = block_before(batch.len() as u64) as usize;
            if batch.as_ptr().align_offset(BLOCK_BYTES as usize) == 0 {
                if whole > 0 {
                    buffers.push(Bytes::slice(&batch, ..whole));
                }
                if whole < batch.len() {
                    buffers.push(padded(&batch[whole..]));
                }
            } else {
                counters.update(|counts| counts.moved_bytes += batch.len() as u64);
                buffers.push(padded(&batch));
            }
        }
        self.write_all(buffers, position, counters).await
    }

    fn written(&self, result: io::Result<usize>, counters: &StorageCounters) -> Result<usize, StorageError> {
        let injected = faults::check("write", self.path()).and_then(|()| match self.is_durable {
            // The flush is part of the write.
            true => faults::check("flush", self.path()),
            false => Ok(()),
        });
        let bytes = match injected.and(result) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
        .map_err(StorageError::io("write", self.path()))?;
        counters.update(|counts| {
            counts.writes += 1;
            counts.durable_writes += u64::from(self.is_durable);
            counts.written_bytes += bytes as u64;
        });
        Ok(bytes)
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
        let mut buffers = buffers.into_iter().filter(|buffer| !buffer.is_empty());
        let mut batch: Vec<Bytes> = Vec::new();
        loop {
            batch.extend(buffers.by_ref().take(BUFFERS_MAX - batch.len()));
            if batch.is_empty() {
                return Ok(());
            }
            let BufResult(result, written) = (&self.file).write_vectored_at(batch, position).await;
            let bytes = self.written(result, counters)?;
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
        faults::check("read", self.path()).map_err(StorageError::io("read", self.path()))?;
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

    /// Reads one whole block of a file that [`OpenFile::open_blocks`] opened. What lies behind its end is zeros.
    pub(super) async fn read_block(
        &self,
        position: u64,
        counters: &StorageCounters,
    ) -> Result<BytesMut, StorageError> {
        loop {
            let buffer = aligned_buffer(BLOCK_BYTES as usize).slice(..BLOCK_BYTES as usize);
            let BufResult(result, buffer) = self.file.read_at(buffer, position).await;
            let mut block = buffer.into_inner();
            match result {
                Ok(bytes) => {
                    counters.update(|counts| {
                        counts.reads += 1;
                        counts.read_bytes += bytes as u64;
                    });
                    block.truncate(bytes);
                    block.resize(BLOCK_BYTES as usize, 0);
                    return Ok(block);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StorageError::io("read", self.path())(error)),
            }
        }
    }

    /// Brings contents and length to stable storage.
    pub(super) async fn flush(&self, counters: &StorageCounters) -> Result<(), StorageError> {
        counters.update(|counts| counts.flushes += 1);
        faults::check("flush", self.path()).map_err(StorageError::io("flush", self.path()))?;
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
    Ok(file.renamed(path))
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

/// A copy in aligned memory, filled up with zeros to whole blocks.
fn padded(bytes: &[u8]) -> Bytes {
    let mut buffer = aligned_buffer(bytes.len().next_multiple_of(BLOCK_BYTES as usize));
    buffer.extend_from_slice(bytes);
    crate::blocks::pad(&mut buffer);
    buffer.freeze()
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
