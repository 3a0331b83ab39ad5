//! What the machine itself can do at this moment, for the same shapes of work.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::Result;
use crate::latency::Latencies;

/// Size of a produced batch, rounded up to blocks.
const BATCH_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 4096;
const DISK_BYTES: u64 = 512 << 20;
const LOOPBACK_BYTES: u64 = 2 << 30;

/// Limits of one moment, GB/s where nothing else is said.
pub struct Limits {
    /// Buffered write and fdatasync of each batch, preallocated file.
    pub buffered: f64,
    /// The same with `O_DIRECT`, blocks that were never written.
    pub direct: f64,
    /// The same over blocks that were written before, as in a recycled file.
    pub recycled: f64,
    /// `O_DIRECT` write and fdatasync of one block over written blocks.
    pub block: Latencies,
    /// 8 loopback connections, one direction, sender and receiver on this machine.
    pub loopback: f64,
}

impl Limits {
    /// Measures in a file below `parent`, which goes again.
    pub fn measure(parent: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("laneway-limit-").tempdir_in(parent)?;
        let mut memory = vec![0x5a; BATCH_BYTES + BLOCK_BYTES];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        let batch = &mut memory[start..start + BATCH_BYTES];

        let buffered = sequential(&open(&directory.path().join("buffered"), false)?, batch)?;
        let file = open(&directory.path().join("direct"), true)?;
        let direct = sequential(&file, batch)?;
        let recycled = sequential(&file, batch)?;
        let mut block = Latencies::default();
        for at in 0..3000 {
            let since = Instant::now();
            file.write_all_at(&batch[..BLOCK_BYTES], at * BLOCK_BYTES as u64)?;
            file.sync_data()?;
            block.push(since.elapsed());
        }
        Ok(Self { buffered, direct, recycled, block, loopback: loopback()? })
    }
}

fn open(path: &Path, is_direct: bool) -> Result<File> {
    let flags = if is_direct { OFlags::DIRECT.bits() as i32 } else { 0 };
    let file = OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, DISK_BYTES)?;
    Ok(file)
}

fn sequential(file: &File, batch: &[u8]) -> Result<f64> {
    let since = Instant::now();
    for at in (0..DISK_BYTES).step_by(batch.len()) {
        file.write_all_at(batch, at)?;
        file.sync_data()?;
    }
    Ok(gigabytes_per_second(DISK_BYTES, since.elapsed()))
}

fn loopback() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let share = LOOPBACK_BYTES / 8;
    let mut pairs = Vec::new();
    for _ in 0..8 {
        let sender = TcpStream::connect(address)?;
        pairs.push((sender, listener.accept()?.0));
    }
    let since = Instant::now();
    std::thread::scope(|scope| {
        for (mut sender, mut receiver) in pairs {
            scope.spawn(move || {
                let data = vec![1u8; BATCH_BYTES];
                (0..share).step_by(BATCH_BYTES).try_for_each(|_| sender.write_all(&data))
            });
            scope.spawn(move || {
                let mut buffer = vec![0u8; BATCH_BYTES];
                while receiver.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
            });
        }
    });
    Ok(gigabytes_per_second(LOOPBACK_BYTES, since.elapsed()))
}

/// 10^9 bytes a second.
pub fn gigabytes_per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e9 / time.as_secs_f64()
}
