//! The disk under the data directory: whether it can be written past the page cache, how fast it makes writes durable,
//! and how much room it has. Writes one small file beside the data and removes it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Check;

/// Flushes that are timed.
const FLUSHES: usize = 32;
/// A flush that takes this long makes every acknowledgement slow.
const FLUSH_SLOW: Duration = Duration::from_millis(10);
/// A flush that is faster than any device: something answers before the medium has it.
const FLUSH_UNBELIEVABLE: Duration = Duration::from_micros(8);
/// Room below which the broker is about to refuse sends.
const FREE_FEW: u64 = 1 << 30;
/// Room below which somebody should look.
const FREE_LITTLE: u64 = 10 << 30;
/// Alignments that direct I/O may need, the best first.
const ALIGNMENTS: [usize; 2] = [512, 4096];

/// Everything about the disk.
pub fn examine(data_dir: &Path) -> Vec<Check> {
    let directory = existing(data_dir);
    let probe = Probe::make(&directory);
    let mut checks = vec![space(&directory)];
    match probe {
        Ok(probe) => {
            checks.push(direct(&probe));
            checks.push(flush(probe.time_flushes()));
        }
        Err(error) => checks.push(Check::fail(
            "disk.write",
            format!("{}: {error}", directory.display()),
            "give the directory to the user that the broker runs as, or choose another with data_dir",
        )),
    }
    checks
}

/// The data directory, or the nearest directory above that a start would make it in.
fn existing(data_dir: &Path) -> PathBuf {
    let absolute = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    absolute.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// A file that is removed again.
struct Probe {
    path: PathBuf,
    file: File,
}

impl Probe {
    fn make(directory: &Path) -> io::Result<Self> {
        let path = directory.join(format!(".laneway-doctor-{}.tmp", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file })
    }

    /// The smallest block that direct writes take; none when the file system has no direct I/O.
    fn direct_alignment(&self) -> Option<usize> {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&self.path).ok()?;
        // Room to start at a multiple of the largest alignment.
        let buffer = vec![0_u8; 3 * 4096];
        let start = buffer.as_ptr().align_offset(4096);
        ALIGNMENTS.into_iter().find(|bytes| {
            buffer.get(start..start + bytes).is_some_and(|block| file.write_all_at(block, 0).is_ok())
        })
    }

    /// Times of small durable writes, shortest first.
    fn time_flushes(&self) -> io::Result<Vec<Duration>> {
        let block = [0x5a; 4096];
        // The file gets its blocks before the time counts, as a journal does.
        self.file.write_all_at(&vec![0; 4096 * FLUSHES], 0)?;
        self.file.sync_all()?;
        let mut times = Vec::with_capacity(FLUSHES);
        for at in 0..FLUSHES {
            let started = Instant::now();
            self.file.write_all_at(&block, 4096 * at as u64)?;
            self.file.sync_data()?;
            times.push(started.elapsed());
        }
        times.sort_unstable();
        Ok(times)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn direct(probe: &Probe) -> Check {
    match probe.direct_alignment() {
        Some(bytes) => Check::ok("disk.direct", format!("direct writes work in blocks of {bytes} bytes")),
        None => Check::warn(
            "disk.direct",
            "the file system takes no direct writes",
            "use ext4 or xfs on a local disk; writes through the page cache are slower",
        ),
    }
}

fn flush(times: io::Result<Vec<Duration>>) -> Check {
    const NAME: &str = "disk.flush";
    let times = match times {
        Ok(times) => times,
        Err(error) => {
            return Check::fail(NAME, format!("a flush failed: {error}"), "do not trust this disk with data");
        }
    };
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let found = format!("4 KiB durable in {median:.1?}, worst {worst:.1?}");
    if median >= FLUSH_SLOW {
        Check::warn(NAME, found, "a disk with power-loss protection makes acknowledgements fast")
    } else if median < FLUSH_UNBELIEVABLE {
        Check::warn(
            NAME,
            found,
            "no medium is that fast: a memory file system or a cache that lies loses data with the power",
        )
    } else {
        Check::ok(NAME, found)
    }
}

fn space(directory: &Path) -> Check {
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    let path = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes()).unwrap_or_default();
    // SAFETY: `path` ends with a zero and lives until the call returns; the kernel writes one `statvfs` into `stat`.
    let result = unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) };
    if result != 0 {
        let error = io::Error::last_os_error();
        return Check::warn("disk.space", format!("cannot be asked: {error}"), "look with df");
    }
    // SAFETY: the call succeeded, so the structure was written.
    let stat = unsafe { stat.assume_init() };
    space_of(stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize))
}

fn space_of(free: u64, total: u64) -> Check {
    let found = format!("{} of {} MiB free", free >> 20, total >> 20);
    if free < FREE_FEW {
        Check::fail("disk.space", found, "make room: sends are refused when the disk is full")
    } else if free < FREE_LITTLE {
        Check::warn("disk.space", found, "make room, or bound topics with max_topic_size")
    } else {
        Check::ok("disk.space", found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn the_probe_leaves_nothing_and_asks_above_a_missing_directory() {
        let home = tempfile::tempdir().unwrap();
        let missing = home.path().join("not/there");
        assert_eq!(existing(&missing), home.path());
        let checks = examine(&missing);
        assert_eq!(
            checks.iter().map(|check| check.name).collect::<Vec<_>>(),
            ["disk.space", "disk.direct", "disk.flush"]
        );
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_cannot_be_written_fails() {
        let checks = examine(Path::new("/proc/self"));
        assert_eq!(
            checks.last().map(|check| (check.name, check.verdict)),
            Some(("disk.write", Verdict::Fail))
        );
    }

    #[test]
    fn room_and_speed_are_judged() {
        assert_eq!(space_of(1 << 20, 1 << 40).verdict, Verdict::Fail);
        assert_eq!(space_of(5 << 30, 1 << 40).verdict, Verdict::Warn);
        assert_eq!(space_of(50 << 30, 1 << 40).verdict, Verdict::Ok);
        let all = |us| Ok(vec![Duration::from_micros(us); 3]);
        assert_eq!(flush(all(1)).verdict, Verdict::Warn);
        assert_eq!(flush(all(200)).verdict, Verdict::Ok);
        assert_eq!(flush(all(20_000)).verdict, Verdict::Warn);
        assert_eq!(flush(Err(io::Error::other("gone"))).verdict, Verdict::Fail);
    }
}
