//! Which I/O engine can run here, and why: asked once at start, told in one line.
//!
//! io_uring can be missing (old kernel), switched off (a sysctl), or hidden by a seccomp profile, as container runtimes
//! do by default. Each has its own fix, so each is told apart.

use std::fmt;
use std::io;

use io_uring::{IoUring, Probe, opcode};
use laneway_config::Engine;

/// Entries of the ring that is made to ask: the smallest one.
const RING_ENTRIES: u32 = 2;

/// The operations that the broker needs, with the names that the kernel's documentation uses.
const NEEDED: [(&str, u8); 12] = [
    ("accept", opcode::Accept::CODE),
    ("recv", opcode::Recv::CODE),
    ("send", opcode::Send::CODE),
    ("sendmsg", opcode::SendMsg::CODE),
    ("read", opcode::Read::CODE),
    ("write", opcode::Write::CODE),
    ("readv", opcode::Readv::CODE),
    ("writev", opcode::Writev::CODE),
    ("fsync", opcode::Fsync::CODE),
    ("timeout", opcode::Timeout::CODE),
    ("async_cancel", opcode::AsyncCancel::CODE),
    ("poll_add", opcode::PollAdd::CODE),
];

/// What the broker will run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenEngine {
    IoUring,
    /// Readiness (epoll) and a pool of threads for files.
    Polling,
}

/// The outcome of the probe. Displays as the one line that the log shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub engine: ChosenEngine,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// io_uring works, with these features of the kernel.
    Works { features: Vec<&'static str> },
    /// The configuration asks for polling.
    Asked,
    /// io_uring does not work here.
    Denied(Denial),
}

/// Why io_uring does not work here. Displays with what would change it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("sysctl kernel.io_uring_disabled is {0}; set it to 0 to allow io_uring")]
    Sysctl(u8),
    #[error(
        "not permitted by a security policy (seccomp or similar); container runtimes deny io_uring by default, \
         their seccomp profile must allow io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Policy,
    #[error("this kernel has no io_uring, or a seccomp profile hides it")]
    Missing,
    #[error("not enough locked memory for a ring; raise the memlock limit (ulimit -l)")]
    Memory,
    #[error("this kernel lacks the operations {}", .0.join(", "))]
    Operations(Vec<&'static str>),
    #[error("the kernel answered {0}")]
    Other(String),
}

/// `engine = "io_uring"` was asked for and cannot run.
#[derive(Debug, thiserror::Error)]
#[error("engine: io_uring was asked for, but {0} (or set engine to auto)")]
pub struct EngineUnavailable(pub Denial);

/// What the kernel was found to offer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Finding {
    Available { features: Vec<&'static str> },
    Denied(Denial),
}

/// Asks the kernel and decides. Errors only if io_uring was asked for by name and is not there.
pub fn probe(wanted: Engine) -> Result<Report, EngineUnavailable> {
    decide(wanted, inspect)
}

fn decide(wanted: Engine, inspect: impl FnOnce() -> Finding) -> Result<Report, EngineUnavailable> {
    if wanted == Engine::Polling {
        return Ok(Report { engine: ChosenEngine::Polling, reason: Reason::Asked });
    }
    match inspect() {
        Finding::Available { features } => {
            Ok(Report { engine: ChosenEngine::IoUring, reason: Reason::Works { features } })
        }
        Finding::Denied(denial) if wanted == Engine::IoUring => Err(EngineUnavailable(denial)),
        Finding::Denied(denial) => {
            Ok(Report { engine: ChosenEngine::Polling, reason: Reason::Denied(denial) })
        }
    }
}

impl Report {
    /// Whether the broker falls back to polling although nobody asked for it: worth a warning.
    pub fn is_fallback(&self) -> bool {
        matches!(self.reason, Reason::Denied(_))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Works { features } if features.is_empty() => write!(f, "io_uring, no optional features"),
            Reason::Works { features } => write!(f, "io_uring with {}", features.join(", ")),
            Reason::Asked => write!(f, "polling, as configured"),
            Reason::Denied(denial) => write!(f, "polling, because io_uring is denied: {denial}"),
        }
    }
}

/// Looks from a thread of its own. The kernel takes a closed ring apart later and interrupts the thread that made it: the
/// program that embeds the broker would find its own reads ended with EINTR.
fn inspect() -> Finding {
    std::thread::scope(|scope| scope.spawn(try_ring).join()).expect("trying a ring does not panic")
}

fn try_ring() -> Finding {
    let ring = match IoUring::new(RING_ENTRIES) {
        Ok(ring) => ring,
        Err(error) => return Finding::Denied(classify(&error, disabled_sysctl())),
    };
    let mut probe = Probe::new();
    // A profile may allow making a ring and still deny registering with it.
    if let Err(error) = ring.submitter().register_probe(&mut probe) {
        return Finding::Denied(classify(&error, disabled_sysctl()));
    }
    let missing: Vec<_> =
        NEEDED.iter().filter(|(_, code)| !probe.is_supported(*code)).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        return Finding::Denied(Denial::Operations(missing));
    }
    Finding::Available { features: features(&ring, &probe) }
}

/// The optional features that matter to a broker, for the log line.
fn features(ring: &IoUring, probe: &Probe) -> Vec<&'static str> {
    let params = ring.params();
    let flags = [
        ("fast_poll", params.is_feature_fast_poll()),
        ("nodrop", params.is_feature_nodrop()),
        ("ext_arg", params.is_feature_ext_arg()),
        ("native_workers", params.is_feature_native_workers()),
        ("no_iowait", params.is_feature_no_iowait()),
        ("send_zc", probe.is_supported(opcode::SendZc::CODE)),
        ("msg_ring", probe.is_supported(opcode::MsgRingData::CODE)),
        ("single_issuer", ring_with(|builder| builder.setup_single_issuer())),
        ("defer_taskrun", ring_with(|builder| builder.setup_single_issuer().setup_defer_taskrun())),
    ];
    flags.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
}

/// Flags of a ring's setup are not probed but tried.
fn ring_with(set: impl FnOnce(&mut io_uring::Builder) -> &mut io_uring::Builder) -> bool {
    let mut builder = IoUring::builder();
    set(&mut builder);
    builder.build(RING_ENTRIES).is_ok()
}

/// The value of `kernel.io_uring_disabled`: 0 allowed, 1 for a group only, 2 for nobody. Kernels before 6.6 have none.
fn disabled_sysctl() -> Option<u8> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

fn classify(error: &io::Error, sysctl: Option<u8>) -> Denial {
    match (error.raw_os_error(), sysctl) {
        (Some(libc::EPERM), Some(level @ 1..)) => Denial::Sysctl(level),
        (Some(libc::EPERM | libc::EACCES), _) => Denial::Policy,
        (Some(libc::ENOSYS), _) => Denial::Missing,
        (Some(libc::ENOMEM), _) => Denial::Memory,
        _ => Denial::Other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> Finding {
        Finding::Denied(Denial::Policy)
    }

    #[test]
    fn auto_takes_io_uring_where_it_works_and_says_with_what() {
        let found = || Finding::Available { features: vec!["ext_arg", "no_iowait"] };
        let report = decide(Engine::Auto, found).unwrap();
        assert_eq!(report.engine, ChosenEngine::IoUring);
        assert!(!report.is_fallback());
        assert_eq!(report.to_string(), "io_uring with ext_arg, no_iowait");
    }

    #[test]
    fn auto_falls_back_where_it_is_denied_and_says_why() {
        let report = decide(Engine::Auto, denied).unwrap();
        assert_eq!(report.engine, ChosenEngine::Polling);
        assert!(report.is_fallback());
        assert!(
            report.to_string().starts_with("polling, because io_uring is denied: not permitted"),
            "{report}"
        );
    }

    #[test]
    fn io_uring_by_name_or_not_at_all() {
        let error = decide(Engine::IoUring, denied).unwrap_err().to_string();
        assert!(error.starts_with("engine: io_uring was asked for, but not permitted"), "{error}");
    }

    #[test]
    fn polling_by_name_asks_the_kernel_nothing() {
        let report = decide(Engine::Polling, || panic!("asked")).unwrap();
        assert_eq!((report.engine, report.is_fallback()), (ChosenEngine::Polling, false));
        assert_eq!(report.to_string(), "polling, as configured");
    }

    #[test]
    fn each_refusal_of_the_kernel_has_its_own_reason() {
        let check = |errno, sysctl, expected: Denial| {
            assert_eq!(classify(&io::Error::from_raw_os_error(errno), sysctl), expected);
        };
        check(libc::EPERM, Some(2), Denial::Sysctl(2));
        check(libc::EPERM, Some(1), Denial::Sysctl(1));
        check(libc::EPERM, Some(0), Denial::Policy);
        check(libc::EPERM, None, Denial::Policy);
        check(libc::EACCES, None, Denial::Policy);
        check(libc::ENOSYS, None, Denial::Missing);
        check(libc::ENOMEM, None, Denial::Memory);
        assert!(matches!(classify(&io::Error::from_raw_os_error(libc::EMFILE), None), Denial::Other(_)));
    }

    #[test]
    fn this_machine_gets_an_engine() {
        let report = probe(Engine::Auto).unwrap();
        assert!(!report.to_string().is_empty());
    }

    /// Runs the probe on a thread whose system call `io_uring_setup` answers `errno`, as a container's profile does it.
    fn probe_denied_with(errno: i32) -> Result<Report, EngineUnavailable> {
        std::thread::spawn(move || {
            let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
            let mut program = [
                // The number of the system call is the first field of the data that the filter sees.
                statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
                libc::sock_filter {
                    code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                    jt: 0,
                    jf: 1,
                    k: libc::SYS_io_uring_setup as u32,
                },
                statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
                statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
            ];
            let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
            // SAFETY: the kernel copies the program, which lives until the calls return. Both calls bind this thread
            // alone, and the thread ends with the probe.
            let results = unsafe {
                [
                    libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                    libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
                ]
            };
            assert_eq!(results, [0, 0], "{}", io::Error::last_os_error());
            probe(Engine::Auto)
        })
        .join()
        .unwrap()
    }

    #[test]
    fn a_seccomp_profile_that_denies_rings_leads_to_polling() {
        let report = probe_denied_with(libc::EPERM).unwrap();
        assert_eq!(report.engine, ChosenEngine::Polling);
        // A machine that has the sysctl set as well names that one: it must be lifted first.
        let reasons = [Denial::Policy, Denial::Sysctl(1), Denial::Sysctl(2)];
        assert!(reasons.iter().any(|denial| report.reason == Reason::Denied(denial.clone())), "{report}");
        let report = probe_denied_with(libc::ENOSYS).unwrap();
        assert_eq!(report.reason, Reason::Denied(Denial::Missing));
    }
}
