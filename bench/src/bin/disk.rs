//! `disk`: what the machine's disk gives to the ways in which a journal could be written. The choices of
//! `docs/storage.md` (block size, depth, flush method) were made with it.
//!
//! Usage: `disk [directory]`. Every figure comes from one file of 512 MiB below the directory, which goes again.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue::Flags, types};
use rustix::fs::{FallocateFlags, OFlags, fallocate};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const FILE_BYTES: u64 = 512 << 20;
/// Time that one figure may take.
const TIME_MAX: Duration = Duration::from_millis(1500);

/// How written bytes reach stable storage.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flush {
    /// Not at all.
    None,
    /// The writes carry `RWF_DSYNC`.
    WithWrite,
    /// A flush after every `depth` writes, which all wait for it.
    After,
    /// The same, submitted together with the writes and drained behind them.
    Linked,
    /// A flush after every `depth` writes, while the next ones are written already.
    Overlapped,
}

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let directory = tempfile::Builder::new().prefix("laneway-disk-").tempdir_in(directory)?;
    let path = directory.path().join("file");
    let file = open(&path)?;
    fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?;
    file.sync_all()?;
    println!("file, write bytes, depth, flush: GB/s, writes/s, p50 ms, p99 ms of a group, core-s per GB");
    run("allocated", &file, 4096, 1, Flush::WithWrite)?;
    run("allocated", &file, 4096, 1, Flush::After)?;
    drop(file);
    std::fs::remove_file(&path)?;
    let file = open(&path)?;
    run("extended", &file, 1 << 20, 1, Flush::WithWrite)?;
    drop(file);
    std::fs::remove_file(&path)?;
    let file = open(&path)?;
    fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?;
    run("allocated", &file, 1 << 20, 1, Flush::After)?;
    drop(file);
    std::fs::remove_file(&path)?;
    let file = open(&path)?;
    fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?;
    run("allocated", &file, 1 << 20, 8, Flush::After)?;
    run("written", &file, 1 << 20, 8, Flush::None)?;
    for flush in [Flush::None, Flush::WithWrite, Flush::After, Flush::Linked, Flush::Overlapped] {
        for (bytes, depths) in [
            (4096, &[1, 4][..]),
            (16 << 10, &[1]),
            (64 << 10, &[1, 4]),
            (256 << 10, &[1, 4]),
            (1 << 20, &[1, 2, 4, 8]),
        ] {
            for depth in depths {
                run("written", &file, bytes, *depth, flush)?;
            }
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(OFlags::DIRECT.bits() as i32);
    Ok(options.open(path)?)
}

fn run(name: &str, file: &File, bytes: usize, depth: u32, flush: Flush) -> Result<()> {
    let mut ring = IoUring::new(64)?;
    let memory = vec![0x5a_u8; bytes + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &memory[start..start + bytes];
    let fd = types::Fd(file.as_raw_fd());
    let rw_flags = if flush == Flush::WithWrite { libc_rwf_dsync() } else { 0 };
    let write = |position: u64| {
        opcode::Write::new(fd, buffer.as_ptr(), bytes as u32).offset(position).rw_flags(rw_flags).build()
    };
    let sync = || opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
    let (mut position, mut written) = (0, 0_u64);
    let mut latencies = Vec::new();
    let (cpu, since) = (cpu_seconds(), Instant::now());
    let mut flushing = false;
    while since.elapsed() < TIME_MAX && (name == "written" || written < FILE_BYTES) {
        let began = Instant::now();
        let mut entries = Vec::new();
        for _ in 0..depth {
            entries.push(write(position).user_data(bytes as u64));
            position = (position + bytes as u64) % FILE_BYTES;
        }
        if flush == Flush::Linked {
            match depth {
                1 => entries[0] = entries[0].clone().flags(Flags::IO_LINK),
                _ => {}
            }
            let flags = if depth == 1 { Flags::empty() } else { Flags::IO_DRAIN };
            entries.push(sync().user_data(0).flags(flags));
        }
        submit(&mut ring, &entries)?;
        wait(&mut ring, entries.len() + usize::from(flushing), bytes)?;
        flushing = false;
        match flush {
            Flush::After => {
                submit(&mut ring, &[sync().user_data(0)])?;
                wait(&mut ring, 1, bytes)?;
            }
            Flush::Overlapped => {
                submit(&mut ring, &[sync().user_data(0)])?;
                flushing = true;
            }
            _ => {}
        }
        written += u64::from(depth) * bytes as u64;
        latencies.push(began.elapsed().as_secs_f64() * 1e3);
    }
    if flushing {
        wait(&mut ring, 1, bytes)?;
    }
    let seconds = since.elapsed().as_secs_f64();
    let gigabytes = written as f64 / 1e9;
    latencies.sort_by(f64::total_cmp);
    println!(
        "{name:9} {bytes:8} {depth} {flush:10?}: {:.3} GB/s {:7.0}/s p50 {:.3} p99 {:.3} cpu {:.3}",
        gigabytes / seconds,
        written as f64 / bytes as f64 / seconds,
        latencies[latencies.len() / 2],
        latencies[latencies.len() * 99 / 100],
        (cpu_seconds() - cpu) / gigabytes
    );
    Ok(())
}

fn submit(ring: &mut IoUring, entries: &[io_uring::squeue::Entry]) -> Result<()> {
    // SAFETY: the buffer and the file outlive `run`, which takes every completion before it returns.
    unsafe { ring.submission().push_multiple(entries)? };
    ring.submit()?;
    Ok(())
}

fn wait(ring: &mut IoUring, count: usize, bytes: usize) -> Result<()> {
    let mut left = count;
    while left > 0 {
        ring.submit_and_wait(1)?;
        for done in ring.completion() {
            if done.result() < 0 || (done.user_data() > 0 && done.result() as usize != bytes) {
                return Err(std::io::Error::from_raw_os_error(-done.result()).into());
            }
            left -= 1;
        }
    }
    Ok(())
}

const fn libc_rwf_dsync() -> i32 {
    2
}

/// CPU of this process, kernel workers of its ring included.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: f64 = fields.get(11..13).unwrap_or_default().iter().filter_map(|f| f.parse::<f64>().ok()).sum();
    ticks / 100.0
}
