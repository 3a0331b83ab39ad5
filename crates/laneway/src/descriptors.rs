//! The limit of open descriptors: raised at start, halved for client connections.

use std::io;

/// Raises the soft limit of descriptors to the hard one and returns the limit that is now in effect.
///
/// Called once, before any thread starts. Source: resources, section 22.2.
pub fn raise_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit` into `limit`, which lives until the call returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    // A refusal leaves the old limit, which works as well.
    // SAFETY: the kernel reads one `rlimit` from `raised`, which lives until the call returns.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    Ok(if result == 0 { raised.rlim_cur } else { limit.rlim_cur })
}

/// Most client connections: the configured number, or half of the descriptors, so that files always find some.
pub fn connections_max(configured: Option<u32>, descriptors: u64) -> u32 {
    configured.unwrap_or_else(|| u32::try_from(descriptors / 2).unwrap_or(u32::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_are_for_connections_unless_told_otherwise() {
        assert_eq!(connections_max(None, 1024), 512);
        assert_eq!(connections_max(Some(7), 1024), 7);
        assert_eq!(connections_max(None, 1), 1);
        assert_eq!(connections_max(None, u64::MAX), u32::MAX);
    }

    #[test]
    fn the_limit_is_never_lowered() {
        let first = raise_limit().unwrap();
        assert!(first > 0);
        assert_eq!(raise_limit().unwrap(), first);
    }
}
