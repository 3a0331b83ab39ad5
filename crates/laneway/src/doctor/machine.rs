//! Kernel, I/O engine, limits, cores, memory and clock.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use laneway_config::Config;

use super::Check;
use crate::cpus::Cores;
use crate::probe;

/// Descriptors below which a busy broker runs out: half of them are for connections.
const DESCRIPTORS_FEW: u64 = 4096;
/// Locked memory that rings need on kernels that count it: they did until 5.12.
const MEMLOCK_FEW: u64 = 8 << 20;
/// The oldest kernel whose io_uring the broker is tested with.
const KERNEL_OLD: (u32, u32) = (6, 1);
/// 1 January 2024: a clock before it was never set.
const CLOCK_MIN_S: u64 = 1_704_067_200;

/// Everything about the machine.
pub fn examine(config: &Config) -> Vec<Check> {
    vec![
        kernel(&text("/proc/sys/kernel/osrelease")),
        engine(config),
        descriptors(limit(libc::RLIMIT_NOFILE)),
        memlock(limit(libc::RLIMIT_MEMLOCK), &text("/proc/sys/kernel/osrelease")),
        cores(config),
        memory(config, &text("/proc/meminfo")),
        clock(
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            synchronised(),
        ),
        clock_source(text("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim()),
    ]
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Check {
    match version(release) {
        Some(found) if found >= KERNEL_OLD => Check::ok("kernel", release.trim()),
        _ => Check::warn(
            "kernel",
            format!("{:?} is older than {}.{}", release.trim(), KERNEL_OLD.0, KERNEL_OLD.1),
            "io_uring of older kernels is slower and less tested; update the kernel",
        ),
    }
}

fn engine(config: &Config) -> Check {
    match probe::probe(config.engine) {
        Ok(report) if report.is_fallback() => {
            Check::warn("engine", report.to_string(), "allow io_uring as it says; polling is slower")
        }
        Ok(report) => Check::ok("engine", report.to_string()),
        Err(error) => Check::fail("engine", error.to_string(), "set engine to auto"),
    }
}

/// Soft and hard limit; the largest number stands for none.
fn limit(which: libc::__rlimit_resource_t) -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit` into `limit`, which lives until the call returns.
    match unsafe { libc::getrlimit(which, &raw mut limit) } {
        0 => (limit.rlim_cur, limit.rlim_max),
        _ => (0, 0),
    }
}

fn descriptors((soft, hard): (u64, u64)) -> Check {
    // The broker raises the soft limit to the hard one by itself.
    let found = format!("{hard} descriptors (soft limit {soft}, raised at start)");
    match hard >= DESCRIPTORS_FEW {
        true => Check::ok("limits.nofile", found),
        false => Check::warn(
            "limits.nofile",
            found,
            "raise the hard limit: LimitNOFILE=65536 in the unit, or ulimit -Hn",
        ),
    }
}

fn memlock((soft, _): (u64, u64), release: &str) -> Check {
    let shown = if soft == u64::MAX { "unlimited".to_owned() } else { format!("{} KiB", soft / 1024) };
    match soft >= MEMLOCK_FEW || version(release) >= Some((5, 12)) {
        true => Check::ok("limits.memlock", shown),
        false => Check::warn(
            "limits.memlock",
            format!("{shown}; this kernel counts the rings"),
            "raise it: LimitMEMLOCK=infinity in the unit, or ulimit -l",
        ),
    }
}

fn cores(config: &Config) -> Check {
    let there = Cores::available().count();
    let shards = config.shards.map_or(there, usize::from);
    let found = format!("{there} cores, {shards} shards");
    match shards > there {
        true => Check::warn("cores", found, "more shards than cores take turns; set shards to auto"),
        false => Check::ok("cores", found),
    }
}

fn memory(config: &Config, meminfo: &str) -> Check {
    let kib = |name: &str| -> u64 {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let available = kib("MemAvailable:") << 10;
    let shards = config.shards.map_or(Cores::available().count(), usize::from) as u64;
    let (storage, reads) = (&config.storage, &config.reads);
    let each = storage.cache_bytes_max + storage.journal_bytes_max + reads.inflight_bytes_max;
    let needed = shards.saturating_mul(each);
    let found = format!("{} MiB available, bounds of {shards} shards: {} MiB", available >> 20, needed >> 20);
    match needed <= available {
        true => Check::ok("memory", found),
        false => Check::warn(
            "memory",
            found,
            "lower storage.cache_bytes_max, storage.journal_bytes_max or reads.inflight_bytes_max",
        ),
    }
}

/// Whether the kernel says that something keeps the clock; none when it does not say.
fn synchronised() -> Option<bool> {
    // SAFETY: all bytes zero is a valid `timex`, a plain structure of numbers, and asks for nothing to be changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `timex` into `state`, which lives until the call returns.
    match unsafe { libc::adjtimex(&raw mut state) } {
        -1 => None,
        _ => Some(state.status & libc::STA_UNSYNC == 0),
    }
}

fn clock(now_s: u64, synchronised: Option<bool>) -> Check {
    if now_s < CLOCK_MIN_S {
        return Check::fail(
            "clock",
            format!("the calendar stands at {now_s} s since 1970"),
            "set the clock: messages carry its time for good",
        );
    }
    match synchronised {
        Some(false) => Check::warn(
            "clock",
            "nothing keeps it in step",
            "run chrony or systemd-timesyncd: retention and reads by time follow this clock",
        ),
        Some(true) => Check::ok("clock", "kept in step"),
        None => Check::ok("clock", "set; the kernel does not say what keeps it"),
    }
}

fn clock_source(source: &str) -> Check {
    match source {
        "hpet" | "acpi_pm" | "jiffies" => Check::warn(
            "clock.source",
            format!("{source}: every look at the time is a slow one"),
            "boot with clocksource=tsc where the processor has a constant one",
        ),
        "" => Check::ok("clock.source", "not shown"),
        source => Check::ok("clock.source", source),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn each_check_tells_good_from_bad() {
        let check = |check: Check, verdict: Verdict| {
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert_eq!(
                check.remedy.is_some(),
                verdict != Verdict::Ok,
                "what is wrong can be mended: {check:?}"
            );
        };
        check(kernel("6.18.2-generic\n"), Verdict::Ok);
        check(kernel("5.10.0"), Verdict::Warn);
        check(kernel("who knows"), Verdict::Warn);
        check(descriptors((1024, 1 << 20)), Verdict::Ok);
        check(descriptors((1024, 1024)), Verdict::Warn);
        check(memlock((64 << 10, 64 << 10), "6.1.0"), Verdict::Ok);
        check(memlock((64 << 10, 64 << 10), "5.4.0"), Verdict::Warn);
        check(memlock((u64::MAX, u64::MAX), "5.4.0"), Verdict::Ok);
        check(clock(0, Some(true)), Verdict::Fail);
        check(clock(CLOCK_MIN_S, Some(false)), Verdict::Warn);
        check(clock(CLOCK_MIN_S, Some(true)), Verdict::Ok);
        check(clock_source("tsc"), Verdict::Ok);
        check(clock_source("hpet"), Verdict::Warn);
        let config = Config { shards: Some(2), ..Config::default() };
        check(memory(&config, "MemAvailable: 8000000 kB\n"), Verdict::Ok);
        check(memory(&config, "MemAvailable: 8000 kB\n"), Verdict::Warn);
        check(cores(&Config { shards: Some(255), ..Config::default() }), Verdict::Warn);
    }
}
