//! Which cores this process may use: scheduler affinity and the CPU quota of its control groups.
//!
//! A container with a quota of two cores on a machine of sixty-four sees all of them in its affinity; as many shards
//! would only throttle each other. Quotas are rounded up: one and a half cores get two shards.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The cores that the process may use. Taken once at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    /// Numbers of the cores in the affinity mask, ascending; at least one.
    pub ids: Vec<usize>,
    /// The tightest quota of the control groups, in cores, rounded up; `None`: no limit.
    pub quota: Option<usize>,
}

impl Cores {
    /// Asks the kernel. Whatever cannot be read counts as no limit.
    pub fn available() -> Self {
        let ids = affinity().unwrap_or_default();
        // Without an answer there is still the core that runs this.
        let ids = if ids.is_empty() { vec![0] } else { ids };
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let quota = tightest_quota(Path::new(CGROUP_ROOT), &groups, |path| fs::read_to_string(path).ok());
        Self { ids, quota }
    }

    /// How many threads can run at a time; at least 1.
    pub fn count(&self) -> usize {
        self.quota.map_or(self.ids.len(), |quota| quota.min(self.ids.len())).max(1)
    }

    /// The core of a shard. Shards beyond the cores share them in turn.
    pub fn of_shard(&self, shard: usize) -> usize {
        self.ids[shard % self.ids.len()]
    }
}

/// The numbers of the cores in the affinity mask of this thread.
fn affinity() -> Option<Vec<usize>> {
    // SAFETY: all bytes zero is a valid `cpu_set_t`: it is a plain array of integers, an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the given size into `set`, which lives until the call returns.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return None;
    }
    let cores = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below `CPU_SETSIZE`, the number of bits of the set.
        .filter(|core| unsafe { libc::CPU_ISSET(*core, &set) })
        .collect();
    Some(cores)
}

/// The tightest quota of any group that holds this process, in cores, rounded up.
///
/// `groups`: text of `/proc/self/cgroup`. `read`: content of a file, if there is one.
fn tightest_quota(root: &Path, groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    groups
        .lines()
        .filter_map(parse_group)
        .flat_map(|group| match group.controllers {
            None => quotas(root, group.path, |dir| parse_cpu_max(&read(&dir.join("cpu.max"))?)),
            Some(names) => {
                // The directory is called after all controllers mounted together, with a link of the single name.
                let mounts = [root.join(names), root.join("cpu")];
                mounts
                    .iter()
                    .flat_map(|mount| quotas(mount, group.path, |dir| read_cfs_quota(dir, &read)))
                    .collect()
            }
        })
        .min()
}

/// The quotas of a group and of every group above it, each of which binds.
fn quotas(mount: &Path, group: &str, quota: impl Fn(&Path) -> Option<usize>) -> Vec<usize> {
    let relative = group.trim_start_matches('/');
    // A path that leaves its root belongs to another namespace; what applies here is at the mount itself.
    let relative = if relative.split('/').any(|part| part == "..") { "" } else { relative };
    let full: PathBuf = if relative.is_empty() { mount.to_owned() } else { mount.join(relative) };
    full.ancestors().take_while(|dir| dir.starts_with(mount)).filter_map(quota).collect()
}

/// One line of `/proc/self/cgroup` that concerns CPU time.
#[derive(Debug, PartialEq, Eq)]
struct Group<'a> {
    /// `None`: the unified hierarchy (version 2).
    controllers: Option<&'a str>,
    path: &'a str,
}

/// `0::/path` (version 2) or `4:cpu,cpuacct:/path` (version 1).
fn parse_group(line: &str) -> Option<Group<'_>> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.is_empty() {
        return Some(Group { controllers: None, path });
    }
    controllers.split(',').any(|name| name == "cpu").then_some(Group { controllers: Some(controllers), path })
}

/// `cpu.max` of version 2: `QUOTA PERIOD` in microseconds, or `max PERIOD`.
fn parse_cpu_max(text: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    cores(words.next()?.parse().ok()?, words.next()?.parse().ok()?)
}

/// `cpu.cfs_quota_us` (-1: none) and `cpu.cfs_period_us` of version 1.
fn read_cfs_quota(dir: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let number = |name: &str| read(&dir.join(name))?.trim().parse::<i64>().ok();
    let quota = u64::try_from(number("cpu.cfs_quota_us")?).ok()?;
    cores(quota, u64::try_from(number("cpu.cfs_period_us")?).ok()?)
}

fn cores(quota_us: u64, period_us: u64) -> Option<usize> {
    if quota_us == 0 || period_us == 0 {
        return None;
    }
    usize::try_from(quota_us.div_ceil(period_us)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota_of(groups: &str, files: &[(&str, &str)]) -> Option<usize> {
        tightest_quota(Path::new("/cg"), groups, |path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn quotas_are_rounded_up_to_cores() {
        for (text, expected) in [
            ("max 100000", None),
            ("100000 100000", Some(1)),
            ("150000 100000\n", Some(2)),
            ("50000 100000", Some(1)),
            ("400000 100000", Some(4)),
            ("0 100000", None),
            ("100000 0", None),
            ("", None),
            ("-5 100000", None),
        ] {
            assert_eq!(parse_cpu_max(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_tightest_group_on_the_way_up_binds() {
        let files = [
            ("/cg/a/b/cpu.max", "max 100000"),
            ("/cg/a/cpu.max", "300000 100000"),
            ("/cg/cpu.max", "800000 100000"),
        ];
        assert_eq!(quota_of("0::/a/b\n", &files), Some(3));
        assert_eq!(quota_of("0::/other\n", &files), Some(8));
    }

    #[test]
    fn inside_a_container_the_mount_itself_counts() {
        let files = [("/cg/cpu.max", "200000 100000")];
        assert_eq!(quota_of("0::/\n", &files), Some(2));
        assert_eq!(quota_of("0::/../../pod\n", &files), Some(2));
        assert_eq!(quota_of("0::/docker/abc\n", &files), Some(2));
    }

    #[test]
    fn version_one_groups_are_read_too() {
        let groups = "5:memory:/x\n4:cpu,cpuacct:/x\n1:cpuset:/x\n0::/x\n";
        let files = [
            ("/cg/cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n"),
            ("/cg/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
            ("/cg/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("/cg/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota_of(groups, &files), Some(3));
        assert_eq!(quota_of("4:cpu:/x\n", &[("/cg/cpu/x/cpu.cfs_quota_us", "-1\n")]), None);
    }

    #[test]
    fn lines_of_other_controllers_and_broken_ones_are_ignored() {
        assert_eq!(parse_group("5:memory:/x"), None);
        assert_eq!(parse_group("1:cpuset:/x"), None);
        assert_eq!(parse_group("nonsense"), None);
        assert_eq!(parse_group("0::/a:b"), Some(Group { controllers: None, path: "/a:b" }));
    }

    #[test]
    fn a_quota_limits_the_count_and_never_raises_it() {
        let cores = |ids: &[usize], quota| Cores { ids: ids.to_vec(), quota };
        assert_eq!(cores(&[0, 1, 2, 3], None).count(), 4);
        assert_eq!(cores(&[0, 1, 2, 3], Some(2)).count(), 2);
        assert_eq!(cores(&[5], Some(8)).count(), 1);
        assert_eq!(cores(&[2, 5], None).of_shard(3), 5);
    }

    #[test]
    fn this_machine_has_a_core() {
        let cores = Cores::available();
        assert!(cores.count() >= 1 && cores.count() <= cores.ids.len());
    }
}
