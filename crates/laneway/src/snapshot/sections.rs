//! What the files of a snapshot say. Read from the kernel, without programs of others: they may be missing, hang, or show
//! arguments and environments, which hold passwords.

use std::fmt::Write;
use std::fs;
use std::time::Instant;

/// Entries of one directory that are listed.
const ENTRIES_MAX: usize = 4096;
/// Processes that are listed.
const PROCESSES_MAX: usize = 4096;
/// Bytes of one file of the kernel.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// Names and sizes in `/tmp` and `/proc`, and what is mounted.
pub fn filesystem(end: Instant) -> String {
    let mut out = String::new();
    for directory in ["/tmp", "/proc"] {
        heading(&mut out, directory);
        let Ok(entries) = fs::read_dir(directory) else {
            out.push_str("cannot be listed\n");
            continue;
        };
        let mut lines: Vec<String> = entries
            .flatten()
            .take_while(|_| Instant::now() < end)
            .take(ENTRIES_MAX)
            .map(|entry| {
                let metadata = entry.metadata().ok();
                let bytes = metadata.as_ref().map_or(0, fs::Metadata::len);
                let kind = metadata.map_or('?', |metadata| if metadata.is_dir() { 'd' } else { '-' });
                format!("{kind} {bytes:>14} {}", entry.file_name().to_string_lossy())
            })
            .collect();
        lines.sort();
        for line in lines {
            let _ = writeln!(out, "{line}");
        }
    }
    file(&mut out, "/proc/mounts");
    file(&mut out, "/proc/partitions");
    out
}

/// Every process: number, parent, state, memory, threads, name.
pub fn processes(end: Instant) -> String {
    let mut out = String::new();
    let _ =
        writeln!(out, "{:>9} {:>9} {:>5} {:>12} {:>7} NAME", "PID", "PPID", "STATE", "RSS_KIB", "THREADS");
    let mut found: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .take(PROCESSES_MAX)
        .collect();
    found.sort_unstable();
    for pid in found {
        if Instant::now() >= end {
            out.push_str("cut short: it took too long\n");
            break;
        }
        // Gone since it was listed: nothing to say.
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or("-").split_whitespace().next().unwrap_or("-").to_owned()
        };
        let _ = writeln!(
            out,
            "{pid:>9} {:>9} {:>5} {:>12} {:>7} {}",
            field("PPid"),
            field("State"),
            field("VmRSS"),
            field("Threads"),
            field("Name"),
        );
    }
    out
}

/// What the machine and this process use.
pub fn resources() -> String {
    let mut out = String::new();
    for path in [
        "/proc/uptime",
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/diskstats",
        "/proc/pressure/cpu",
        "/proc/pressure/io",
        "/proc/pressure/memory",
        "/proc/self/status",
        "/proc/self/limits",
        "/proc/self/io",
        "/proc/self/cgroup",
    ] {
        file(&mut out, path);
    }
    heading(&mut out, "threads of this process: ticks in user mode, in the kernel, name");
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten().take(ENTRIES_MAX) {
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        // The name may hold spaces; the fields are counted from behind it.
        let Some((name, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).copied().unwrap_or("-");
        let name = name.split_once('(').map_or(name, |(_, name)| name);
        let _ = writeln!(out, "{:>10} {:>10} {name}", ticks(11), ticks(12));
    }
    out
}

fn heading(out: &mut String, title: &str) {
    let _ = writeln!(out, "== {title}");
}

fn file(out: &mut String, path: &str) {
    heading(out, path);
    match fs::read_to_string(path) {
        Ok(text) => out.extend(text.chars().take(FILE_BYTES_MAX)),
        Err(error) => {
            let _ = writeln!(out, "cannot be read: {error}");
        }
    }
}
