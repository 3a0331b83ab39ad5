//! What the process and its machine use, read from `/proc` and the control group. Takes a part of a millisecond, so a
//! shard reads it at most once a second.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Clock ticks of `/proc` in a second. The kernel reports them in this unit on every platform that we build for.
const TICKS_PER_SECOND: u64 = 100;

/// Highest number of a core that is looked at.
const CORES_MAX: u32 = 4096;

/// One reading. Figures that the kernel does not show are 0 or empty.
#[derive(Clone, Debug, Default)]
pub struct Process {
    ticks: Ticks,
    /// Processor time of this process since the reading before, or since its start; percent of one core.
    pub cpu_percent: f32,
    /// Processor time of everything on the cores that this process may run on, since the reading before, or since the
    /// machine started; percent of those cores.
    pub total_cpu_percent: f32,
    /// Resident memory.
    pub memory_bytes: u64,
    /// Memory of the machine, or the limit of the control group if that is lower.
    pub memory_total_bytes: u64,
    /// Memory that can still be taken.
    pub memory_available_bytes: u64,
    /// Time since the process started.
    pub run_time_us: u64,
    /// When it started, since the Unix epoch.
    pub start_time_us: u64,
    /// Bytes that it read from storage.
    pub read_bytes: u64,
    /// Bytes that it wrote to storage.
    pub written_bytes: u64,
    /// Its threads.
    pub threads: u32,
    /// Its descriptors.
    pub open_files: u64,
    /// Descriptors that it may have.
    pub open_files_max: u64,
    /// Free bytes of the data directory's file system.
    pub disk_free_bytes: u64,
    /// Bytes of the data directory's file system.
    pub disk_total_bytes: u64,
    /// Name of the machine.
    pub hostname: String,
    /// Name of the system.
    pub os_name: String,
    /// Version of the system.
    pub os_version: String,
    /// Version of the kernel.
    pub kernel_version: String,
}

/// Reads everything. `before` is the reading before this one, which the use of the processor is measured from.
pub fn read(directory: &Path, before: Option<&Process>) -> Process {
    let status = text("/proc/self/status");
    let cores = cores_allowed(&status);
    let machine = machine_ticks(&text("/proc/stat"), &cores);
    let ticks = Ticks { own: own_ticks(), machine, run_time_us: run_time_us() };
    let since = before.map_or(Ticks::default(), |before| before.ticks);
    let own = ticks.own.saturating_sub(since.own);
    let span_us = ticks.run_time_us.saturating_sub(since.run_time_us).max(1);
    let busy = ticks.machine.busy.saturating_sub(since.machine.busy);
    let all = ticks.machine.all.saturating_sub(since.machine.all);

    let meminfo = text("/proc/meminfo");
    let io = text("/proc/self/io");
    let memory_bytes = kib(&status, "VmRSS:");
    let machine = Memory { total: kib(&meminfo, "MemTotal:"), available: kib(&meminfo, "MemAvailable:") };
    let Memory { total: memory_total_bytes, available: memory_available_bytes } =
        machine.within(Path::new("/sys/fs/cgroup"), &text("/proc/self/cgroup"));
    let run_time_us = ticks.run_time_us;
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let (disk_free_bytes, disk_total_bytes) = disk(directory).unwrap_or((0, 0));
    let release = text("/etc/os-release");
    Process {
        ticks,
        cpu_percent: (own as f64 / TICKS_PER_SECOND as f64 / (span_us as f64 / 1e6) * 100.0) as f32,
        total_cpu_percent: if all == 0 { 0.0 } else { busy as f32 / all as f32 * 100.0 },
        memory_bytes,
        memory_total_bytes,
        memory_available_bytes,
        run_time_us,
        start_time_us: now_us.saturating_sub(run_time_us),
        read_bytes: number(&io, "read_bytes:"),
        written_bytes: number(&io, "write_bytes:"),
        threads: u32::try_from(number(&status, "Threads:")).unwrap_or(u32::MAX),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
        open_files_max: open_files_max(&text("/proc/self/limits")),
        disk_free_bytes,
        disk_total_bytes,
        hostname: text("/proc/sys/kernel/hostname").trim().to_owned(),
        os_name: os_release(&release, "NAME").unwrap_or_else(|| "Linux".to_owned()),
        os_version: os_release(&release, "VERSION_ID").unwrap_or_default(),
        kernel_version: text("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}

/// `1.2.3` as 1002003; 0 when it is no version. Source: resources, section 17.
pub fn semver(version: &str) -> u32 {
    let mut parts = version.split(['.', '-', '+']).map(str::parse::<u32>);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch))) => {
            major.saturating_mul(1_000_000).saturating_add(minor.saturating_mul(1_000)).saturating_add(patch)
        }
        _ => 0,
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn number(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn kib(text: &str, name: &str) -> u64 {
    number(text, name).saturating_mul(1024)
}

fn os_release(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned())
}

/// Fields of `/proc/self/stat` behind the name, which may hold spaces.
fn own_stat() -> Vec<String> {
    let stat = text("/proc/self/stat");
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split_whitespace().map(str::to_owned).collect()
}

fn stat_field(fields: &[String], number: usize) -> u64 {
    // The manual counts from 1, and the first field here is the third.
    fields.get(number - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn own_ticks() -> u64 {
    let fields = own_stat();
    stat_field(&fields, 14) + stat_field(&fields, 15)
}

fn run_time_us() -> u64 {
    let started = stat_field(&own_stat(), 22).saturating_mul(1_000_000 / TICKS_PER_SECOND);
    let uptime = text("/proc/uptime");
    let up: f64 = uptime.split_whitespace().next().and_then(|up| up.parse().ok()).unwrap_or(0.0);
    ((up * 1e6) as u64).saturating_sub(started)
}

/// Where the counters of the processor stood.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    own: u64,
    machine: MachineTicks,
    run_time_us: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MachineTicks {
    busy: u64,
    all: u64,
}

/// The cores that the process may run on, from a list such as `0-2,5`. Empty when the kernel does not say.
fn cores_allowed(status: &str) -> Vec<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse::<u32>().ok()?, last.parse::<u32>().ok()?.min(CORES_MAX)))
    });
    ranges.flat_map(|(first, last)| first..=last).collect()
}

/// What the cores did, by the lines of `/proc/stat`.
fn machine_ticks(stat: &str, cores: &[u32]) -> MachineTicks {
    let mut sum = MachineTicks::default();
    for line in stat.lines() {
        let Some((name, ticks)) = line.split_once(' ') else { continue };
        let core = name.strip_prefix("cpu").and_then(|number| number.parse().ok());
        if !core.is_some_and(|core| cores.contains(&core)) {
            continue;
        }
        let ticks: Vec<u64> =
            ticks.split_whitespace().take(8).map(|part| part.parse().unwrap_or(0)).collect();
        let all: u64 = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        sum.all += all;
        sum.busy += all.saturating_sub(idle);
    }
    sum
}

/// Memory of the machine, or of what the process may take of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    /// The same within the limits of the process's control group and of every group above it. `cgroup`: what the kernel
    /// says of the process's groups. Both versions of control groups are read below `root`.
    fn within(self, root: &Path, cgroup: &str) -> Self {
        let mut memory = self;
        for line in cgroup.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let (mount, limit, used) = match controllers {
                "" => (root.to_owned(), "memory.max", "memory.current"),
                list if list.split(',').any(|name| name == "memory") => {
                    (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
                }
                _ => continue,
            };
            // In a container the path may be the host's, of which only the end of the way up is there.
            for group in mount.join(path.trim_start_matches('/')).ancestors() {
                if let Some(limit) = number_in(&group.join(limit)) {
                    let used = number_in(&group.join(used)).unwrap_or(0);
                    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
                    // Pages of files that nobody used lately are given back before anything is refused.
                    let idle = number(&stat, "inactive_file ").max(number(&stat, "total_inactive_file "));
                    memory.total = memory.total.min(limit);
                    let left = limit.saturating_sub(used.saturating_sub(idle));
                    memory.available = memory.available.min(left);
                }
                if group == mount {
                    break;
                }
            }
        }
        memory
    }
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn open_files_max(limits: &str) -> u64 {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Free bytes and all bytes of the file system of a directory.
pub fn disk(directory: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(directory).ok()?;
    Some((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_becomes_a_number() {
        assert_eq!(semver("1.2.3"), 1_002_003);
        assert_eq!(semver("0.1.0-edge.4"), 1_000);
        assert_eq!(semver("next"), 0);
    }

    #[test]
    fn only_the_cores_of_the_process_count() {
        assert_eq!(cores_allowed("Name:\tx\nCpus_allowed_list:\t0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cores_allowed("Name:\tx\n"), [0; 0]);
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 0 0\ncpu1 50 0 0 50 0 0 0 0\nintr 5\n";
        assert_eq!(machine_ticks(stat, &[0]), MachineTicks { busy: 20, all: 100 });
        assert_eq!(machine_ticks(stat, &[0, 1]), MachineTicks { busy: 70, all: 200 });
    }

    #[test]
    fn the_lowest_limit_of_the_control_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/memory.current", "900\n");
        write("a/memory.stat", "anon 5\ninactive_file 300\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "10\n");
        let machine = Memory { total: 5000, available: 4000 };
        let within = |cgroup: &str| machine.within(root.path(), cgroup);
        assert_eq!(within("0::/a/b\n"), Memory { total: 1000, available: 400 });
        assert_eq!(within("0::/\n"), machine);
        assert_eq!(within("0::/of/the/host\n"), machine);
        assert_eq!(within("garbage\n"), machine);
        write("memory/c/memory.limit_in_bytes", "2000\n");
        write("memory/c/memory.usage_in_bytes", "500\n");
        assert_eq!(within("4:cpu,memory:/c\n3:pids:/x\n"), Memory { total: 2000, available: 1500 });
    }

    #[test]
    fn reading_shows_this_process() {
        let process = read(Path::new("."), None);
        assert!(process.memory_bytes > 0 && process.memory_bytes < process.memory_total_bytes);
        assert!(process.memory_available_bytes <= process.memory_total_bytes);
        assert!(process.threads >= 1 && process.open_files >= 3);
        assert!(process.open_files_max >= process.open_files);
        assert!(process.disk_total_bytes >= process.disk_free_bytes && process.disk_total_bytes > 0);
        assert!(process.run_time_us > 0 && process.start_time_us > 1_600_000_000_000_000);
        assert!(!process.kernel_version.is_empty() && !process.hostname.is_empty());
    }
}
