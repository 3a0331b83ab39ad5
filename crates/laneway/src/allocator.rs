//! What the program tells its allocator. For the program only: a process that embeds the broker keeps its own settings.

/// Blocks from this size on are mapped on their own, and go back to the system when they are freed. Bytes.
const MAPPED_BYTES_MIN: i32 = 4 << 20;

/// Fixes the size from which blocks are mapped on their own. Called once, before any thread starts.
///
/// Left alone, glibc raises that size to the largest block that was freed, up to 32 MiB, and keeps what lies below in
/// one arena per thread. A password check takes 19 MiB for some ten milliseconds: a few sign-ins at once left close to
/// a gigabyte behind, and an idle broker held 57 MB where 17 are enough.
pub fn return_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes two numbers, and no thread runs yet that could allocate meanwhile. A refusal changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    }
}
