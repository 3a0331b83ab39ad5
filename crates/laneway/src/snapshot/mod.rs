//! The archive for a bug report (command 11). Made on a thread of its own, bounded in bytes and time, without secrets.
//! Source: resources, section 19.

mod archive;
mod sections;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use laneway_wire::request::{GetSnapshot, SnapshotCompression, SnapshotType};

use archive::{Archive, Method};

/// Largest file of an archive. Five of them stay far below the largest frame, packed or not.
pub const SECTION_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest time that an archive may take; what was not collected by then is cut short.
pub const COLLECT_MAX: Duration = Duration::from_secs(5);

/// What a snapshot is made from, beside the machine itself.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The effective configuration, secrets masked.
    pub config: String,
}

/// Makes an archive. None when it cannot be written.
pub fn make(request: &GetSnapshot, sources: &Sources) -> Option<Vec<u8>> {
    let started = Instant::now();
    let end = started + COLLECT_MAX;
    let mut archive = Archive::new(method(request.compression));
    for section in sections_of(&request.types) {
        let mut text = match section {
            SnapshotType::Filesystem => sections::filesystem(end),
            SnapshotType::Processes => sections::processes(end),
            SnapshotType::Resources => sections::resources(),
            SnapshotType::Test => "test".to_owned(),
            SnapshotType::Logs => crate::logging::recent(),
            SnapshotType::Config => sources.config.clone(),
            SnapshotType::All => continue,
        };
        cut(&mut text);
        archive.add(file_name(section), text.as_bytes()).ok()?;
    }
    let archive = archive.finish();
    tracing::info!(
        bytes = archive.len(),
        took_ms = started.elapsed().as_millis() as u64,
        "made a snapshot for a bug report"
    );
    Some(archive)
}

/// What every reader unpacks: the other methods would need libraries of their own for a few kilobytes of text.
fn method(compression: SnapshotCompression) -> Method {
    match compression {
        SnapshotCompression::Stored => Method::Stored,
        _ => Method::Deflated,
    }
}

/// The files in the order of their codes, each once.
fn sections_of(types: &[SnapshotType]) -> Vec<SnapshotType> {
    use SnapshotType::{All, Config, Filesystem, Logs, Processes, Resources, Test};
    if types.contains(&All) {
        return vec![Filesystem, Processes, Resources, Logs, Config];
    }
    let wanted: BTreeSet<u8> = types.iter().map(|section| *section as u8).collect();
    let known = [Filesystem, Processes, Resources, Test, Logs, Config];
    known.into_iter().filter(|section| wanted.contains(&(*section as u8))).collect()
}

fn file_name(section: SnapshotType) -> &'static str {
    match section {
        SnapshotType::Filesystem => "filesystem_overview.txt",
        SnapshotType::Processes => "process_list.txt",
        SnapshotType::Resources => "resource_usage.txt",
        SnapshotType::Test => "test.txt",
        SnapshotType::Logs => "server_logs.txt",
        SnapshotType::Config => "server_config.txt",
        SnapshotType::All => "all.txt",
    }
}

fn cut(text: &mut String) {
    if text.len() > SECTION_BYTES_MAX {
        let end = (0..=SECTION_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::*;

    fn files(compression: SnapshotCompression, types: &[SnapshotType]) -> Vec<(String, String)> {
        let request = GetSnapshot { compression, types: types.to_vec() };
        let archive = make(&request, &Sources { config: "the configuration".to_owned() }).unwrap();
        let mut archive = zip::ZipArchive::new(Cursor::new(archive)).expect("a reader of others reads it");
        (0..archive.len())
            .map(|at| {
                let mut file = archive.by_index(at).unwrap();
                let mut text = String::new();
                file.read_to_string(&mut text).expect("the checksum is right");
                (file.name().unwrap().into_owned(), text)
            })
            .collect()
    }

    #[test]
    fn s103_the_test_part_holds_one_word_in_either_packing() {
        for compression in
            [SnapshotCompression::Stored, SnapshotCompression::Deflated, SnapshotCompression::Xz]
        {
            let found = files(compression, &[SnapshotType::Test, SnapshotType::Test]);
            assert_eq!(found, [("test.txt".to_owned(), "test".to_owned())]);
        }
    }

    #[test]
    fn everything_is_every_part_but_the_test() {
        let found = files(SnapshotCompression::Deflated, &[SnapshotType::All]);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "filesystem_overview.txt",
                "process_list.txt",
                "resource_usage.txt",
                "server_logs.txt",
                "server_config.txt"
            ]
        );
        assert!(found[0].1.contains("/proc"), "{}", found[0].1);
        assert!(found[1].1.contains(&format!("\n{:>9} ", std::process::id())), "{}", found[1].1);
        assert!(found[2].1.contains("MemTotal"), "{}", found[2].1);
        assert_eq!(found[4].1, "the configuration");
        // Arguments and environments of processes hold passwords.
        let variable = std::env::var("PATH").unwrap();
        assert!(found.iter().all(|(_, text)| !text.contains(&variable)));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let mut text = "\u{20ac}".repeat(SECTION_BYTES_MAX / 3 + 10);
        cut(&mut text);
        assert!(text.len() <= SECTION_BYTES_MAX && text.len() > SECTION_BYTES_MAX - 3);
    }
}
