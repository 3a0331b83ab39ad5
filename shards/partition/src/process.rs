//! What the process and its machine use, read from `/proc` and the control group. Takes a part of a millisecond, so a
//! shard reads it at most once a second.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Clock ticks of `/proc` in a second. The kernel reports them in this unit on every platform that we build for.
const TICKS_PER_SECOND: u64 = 100;

/// One reading. Figures that the kernel does not show are 0 or empty.
#[derive(Clone, Debug, Default)]
pub struct Process {
    ticks: Ticks,
    /// Processor time of this process since the reading before, or since its start; percent of one core.
    pub cpu_percent: f32,
    /// Processor time of everything on the machine since the reading before, or since it started; percent of all cores.
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
    let ticks = Ticks { own: own_ticks(), machine: machine_ticks(), run_time_us: run_time_us() };
    let since = before.map_or(Ticks::default(), |before| before.ticks);
    let own = ticks.own.saturating_sub(since.own);
    let span_us = ticks.run_time_us.saturating_sub(since.run_time_us).max(1);
    let busy = ticks.machine.busy.saturating_sub(since.machine.busy);
    let all = ticks.machine.all.saturating_sub(since.machine.all);

    let status = text("/proc/self/status");
    let meminfo = text("/proc/meminfo");
    let io = text("/proc/self/io");
    let memory_bytes = kib(&status, "VmRSS:");
    let limit = cgroup_memory("memory.max");
    let used = cgroup_memory("memory.current");
    let machine_total = kib(&meminfo, "MemTotal:");
    let machine_available = kib(&meminfo, "MemAvailable:");
    let memory_total_bytes = limit.map_or(machine_total, |limit| limit.min(machine_total));
    let memory_available_bytes = match (limit, used) {
        (Some(limit), Some(used)) => limit.saturating_sub(used).min(machine_available),
        _ => machine_available,
    };
    let run_time_us = ticks.run_time_us;
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let (disk_free_bytes, disk_total_bytes) = disk(directory);
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

#[derive(Clone, Copy, Debug, Default)]
struct MachineTicks {
    busy: u64,
    all: u64,
}

fn machine_ticks() -> MachineTicks {
    let stat = text("/proc/stat");
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).map(|part| part.parse().unwrap_or(0)).collect();
    let all = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    MachineTicks { busy: u64::saturating_sub(all, idle), all }
}

fn cgroup_memory(name: &str) -> Option<u64> {
    let own = text("/proc/self/cgroup");
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/')).join(name);
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn open_files_max(limits: &str) -> u64 {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn disk(directory: &Path) -> (u64, u64) {
    rustix::fs::statvfs(directory).map_or((0, 0), |stat| {
        (stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize))
    })
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
