//! Failures of the disk on demand: what a test cannot ask a healthy disk for. With the feature `faults` only; without
//! it, nothing of this is compiled in.

use std::{io, path::Path};

#[cfg(feature = "faults")]
pub use plan::{Fault, fail};

/// Fails where a test asked for it.
#[cfg(feature = "faults")]
pub(super) fn check(operation: &'static str, path: &Path) -> io::Result<()> {
    plan::check(operation, path)
}

/// Never fails.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(super) fn check(_operation: &'static str, _path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(feature = "faults")]
mod plan {
    use std::{
        io,
        path::{Path, PathBuf},
        sync::{Mutex, PoisonError},
    };

    /// Id, directory, suffix, operation and error number of each fault.
    type Entry = (u64, PathBuf, &'static str, &'static str, i32);

    static PLAN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

    /// A fault that is in force until it is dropped.
    #[derive(Debug)]
    pub struct Fault(u64);

    /// Lets every `operation` (`open`, `write`, `read`, `flush`) fail with the error number `errno` on files below
    /// `directory` whose names end with `suffix`.
    pub fn fail(directory: &Path, suffix: &'static str, operation: &'static str, errno: i32) -> Fault {
        let mut plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
        let id = plan.last().map_or(1, |(id, ..)| id + 1);
        plan.push((id, directory.to_owned(), suffix, operation, errno));
        Fault(id)
    }

    pub(super) fn check(operation: &'static str, path: &Path) -> io::Result<()> {
        let plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = plan.iter().find(|(_, directory, suffix, of, _)| {
            *of == operation
                && path.starts_with(directory)
                && path.as_os_str().as_encoded_bytes().ends_with(suffix.as_bytes())
        });
        hit.map_or(Ok(()), |(.., errno)| Err(io::Error::from_raw_os_error(*errno)))
    }

    impl Drop for Fault {
        fn drop(&mut self) {
            PLAN.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, ..)| *id != self.0);
        }
    }
}
