//! Reads a journal file back. The scan ends in one of three ways: cleanly at the end of the file, at a torn tail that
//! is to be cut, or at damage that must not be guessed over.
//!
//! What counts as torn depends on who stopped the writer. A killed process leaves a prefix of what it wrote, because
//! the kernel keeps every completed write: in a file of this run of the operating system, anything else is damage. A
//! power loss leaves any subset of the unflushed pages: then a bad record is torn, unless a record behind it proves
//! that the place had been flushed before.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    header::JOURNAL_HEADER_BYTES,
    record::{RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader},
};
use crate::error::Damage;

/// What happened to the machine since a file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRun {
    /// The operating system still runs: at most the process was killed.
    SameBoot,
    /// The operating system was started anew: power may have been lost.
    OtherBoot,
}

/// One whole and verified record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Its header.
    pub header: RecordHeader,
    /// First part of the body, a slice of the file.
    pub prefix: Bytes,
    /// Second part of the body, a slice of the file.
    pub batch: Bytes,
}

/// Everything a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The records before the end.
    pub records: Vec<ScannedRecord>,
    /// How the file ends.
    pub end: ScanEnd,
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// The last record ends with the file.
    Clean {
        /// Bytes of the file.
        position: u64,
    },
    /// The file goes on with bytes that were never acknowledged and are to be cut.
    Torn {
        /// Where the last whole record ends.
        position: u64,
    },
    /// The file holds damage that may have been acknowledged.
    Damaged {
        /// Where the damaged record starts.
        position: u64,
        /// What is wrong there.
        damage: Damage,
        /// The header at that place, when it is whole.
        header: Option<RecordHeader>,
    },
}

/// Scans a whole journal file behind its header block.
///
/// `tag`: of the file's header. Cost: one pass of checksums; after a bad record, one look at each multiple of 8.
pub fn scan(file: &Bytes, tag: u64, last_run: LastRun) -> Scan {
    let mut records = Vec::new();
    let mut position = JOURNAL_HEADER_BYTES;
    let end = loop {
        if position == file.len() as u64 {
            break ScanEnd::Clean { position };
        }
        match record_at(file, tag, position) {
            Ok(record) => {
                position += record.header.stored_bytes();
                records.push(record);
            }
            Err(bad) => break judge(file, tag, position, bad, last_run),
        }
    };
    Scan { records, end }
}

/// Why there is no record at a position.
struct Bad {
    damage: Damage,
    header: Option<RecordHeader>,
    /// The bytes are, or can be, the beginning of a record whose write was cut off by the end of the file.
    cut_off: bool,
}

fn record_at(file: &Bytes, tag: u64, position: u64) -> Result<ScannedRecord, Bad> {
    let start = position as usize;
    let rest = file.get(start..).unwrap_or_default();
    let header = RecordHeader::parse(rest, tag, position).map_err(|damage| {
        let cut_off = match damage {
            Damage::Short => true,
            _ => !RecordHeader::resembles(rest, tag),
        };
        Bad { damage, header: None, cut_off }
    })?;
    if (rest.len() as u64) < header.stored_bytes() {
        return Err(Bad { damage: Damage::Length, header: Some(header), cut_off: true });
    }
    let body = start + RECORD_HEADER_BYTES;
    let batch = body + header.prefix_bytes as usize;
    let end = body + header.body_bytes as usize;
    if xxh3_64(&file[body..end]) != header.body_checksum {
        return Err(Bad { damage: Damage::BodyChecksum, header: Some(header), cut_off: false });
    }
    Ok(ScannedRecord { header, prefix: file.slice(body..batch), batch: file.slice(batch..end) })
}

fn judge(file: &Bytes, tag: u64, position: u64, bad: Bad, last_run: LastRun) -> ScanEnd {
    let damaged = ScanEnd::Damaged { position, damage: bad.damage, header: bad.header };
    let behind = headers_behind(file, tag, position);
    match last_run {
        LastRun::SameBoot if bad.cut_off && behind.is_none() => ScanEnd::Torn { position },
        LastRun::SameBoot => damaged,
        LastRun::OtherBoot if behind.is_some_and(|flushed| flushed > position) => damaged,
        LastRun::OtherBoot => ScanEnd::Torn { position },
    }
}

/// The furthest flushed position that any whole header behind a bad place proves; `None` when there is no such header.
/// A header cannot be forged by what a client sends: it would have to know the file's tag and its own position.
fn headers_behind(file: &Bytes, tag: u64, position: u64) -> Option<u64> {
    let first = (position + RECORD_ALIGN) as usize;
    (first..file.len())
        .step_by(RECORD_ALIGN as usize)
        .filter_map(|at| RecordHeader::parse(&file[at..], tag, at as u64).ok())
        .map(|header| header.flushed)
        .max()
}
