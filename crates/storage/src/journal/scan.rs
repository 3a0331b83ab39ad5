//! Reads a journal file back. The scan ends in one of three ways: at the record that ends the file, at the place up to
//! which the file had been written, or at damage that must not be guessed over.
//!
//! Behind the last write a file holds whatever its blocks held before: zeros, or records of the file that it was made
//! from. Nothing there has this file's tag. A place without a record is therefore the end of what was written, unless
//! a record behind it proves that a write of that place had arrived: had finished, while the operating system still
//! runs that did it, or had been flushed, if power may have been lost since.

use bytes::Bytes;
use laneway_wire::batch::verify_stored;

use super::{
    header::JOURNAL_HEADER_BYTES,
    record::{Placing, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader, RecordKind},
};
use crate::{blocks, error::Damage};

/// What happened to the machine since a file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRun {
    /// The operating system still runs: at most the process was killed.
    SameBoot,
    /// The operating system was started anew: power may have been lost.
    OtherBoot,
}

impl LastRun {
    fn arrived(self, header: &RecordHeader) -> u64 {
        match self {
            LastRun::SameBoot => header.at.written,
            LastRun::OtherBoot => header.at.flushed,
        }
    }
}

/// One whole and verified record of an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Its header.
    pub header: RecordHeader,
    /// First part of the body, a slice of the file.
    pub prefix: Bytes,
    /// Second part of the body, a slice of the file; of a batch at its place only the header.
    pub batch: Bytes,
}

/// Everything that a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The records before the end.
    pub records: Vec<ScannedRecord>,
    /// What is known to have arrived: every record that starts below, with the batch at its place.
    pub arrived: u64,
    /// How the file ends.
    pub end: ScanEnd,
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// A record says that nothing follows.
    Closed {
        /// Where that record starts.
        position: u64,
    },
    /// The file was in use. Whatever follows was never acknowledged.
    Open {
        /// Where the next record would start.
        position: u64,
        /// Checksum of the last whole record, or the tag of the file when there is none.
        chain: u64,
        /// Whether something of a write that did not finish is there.
        torn: bool,
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
/// `tag`: of the file's header. Cost: one pass of checksums; then one look at each multiple of 8 of what follows.
pub fn scan(file: &Bytes, tag: u64, last_run: LastRun) -> Scan {
    let mut records: Vec<ScannedRecord> = Vec::new();
    let (mut position, mut chain, mut arrived) = (JOURNAL_HEADER_BYTES, tag, JOURNAL_HEADER_BYTES);
    let end = loop {
        let last_end = position;
        if let Some(next) = skip_padding(file, position) {
            position = next;
        }
        match record_at(file, tag, position, chain) {
            Ok(record) => {
                arrived = arrived.max(last_run.arrived(&record.header));
                if record.header.kind == RecordKind::End {
                    // Written when nothing was in flight any more, so everything before it had arrived.
                    arrived = position;
                    break ScanEnd::Closed { position };
                }
                position = record.header.end();
                chain = record.header.checksum;
                if record.header.kind == RecordKind::Op {
                    records.push(record);
                }
            }
            Err(bad) if bad.damage == Damage::Chain => {
                // What looked like padding was a record; whether it had arrived, the one behind it knows.
                let arrived = bad.header.as_ref().map_or(0, |header| last_run.arrived(header));
                break match arrived > last_end {
                    true => ScanEnd::Damaged { position: last_end, damage: bad.damage, header: None },
                    false => ScanEnd::Open { position: last_end, chain, torn: true },
                };
            }
            Err(bad) => break judge(file, tag, position, chain, bad, last_run),
        }
    };
    Scan { records, arrived, end }
}

fn skip_padding(file: &Bytes, position: u64) -> Option<u64> {
    blocks::skip_padding(position, file.get(position as usize..)?)
}

/// Why there is no record at a position.
struct Bad {
    damage: Damage,
    header: Option<Box<RecordHeader>>,
}

fn record_at(file: &Bytes, tag: u64, position: u64, chain: u64) -> Result<ScannedRecord, Bad> {
    let start = position as usize;
    let rest = file.get(start..).unwrap_or_default();
    let header = RecordHeader::parse(rest, tag, position).map_err(|damage| Bad { damage, header: None })?;
    let bad = |damage| Bad { damage, header: Some(Box::new(header)) };
    if header.at.chain != chain {
        return Err(bad(Damage::Chain));
    }
    if (rest.len() as u64) < header.stored_bytes() {
        return Err(bad(Damage::Length));
    }
    let body = start + RECORD_HEADER_BYTES;
    let batch = body + header.prefix_bytes as usize;
    let end = body + header.body_bytes as usize;
    if !header.covers(&file[body..end]) {
        return Err(bad(Damage::BodyChecksum));
    }
    if matches!(header.placing, Placing::Inline(_)) {
        let whole = verify_stored(&file[batch..end]).is_ok_and(|found| found.bytes.len() == end - batch);
        if !whole {
            return Err(bad(Damage::BodyChecksum));
        }
    }
    Ok(ScannedRecord { header, prefix: file.slice(body..batch), batch: file.slice(batch..end) })
}

fn judge(file: &Bytes, tag: u64, position: u64, chain: u64, bad: Bad, last_run: LastRun) -> ScanEnd {
    let behind = headers_from(file, tag, position);
    // Whole headers of this file that were written at another place: no crash moves blocks.
    let is_moved = behind.iter().any(Result::is_err);
    let arrived = behind.iter().flatten().map(|header| last_run.arrived(header)).max();
    if is_moved || arrived.is_some_and(|arrived| arrived > position) {
        return ScanEnd::Damaged { position, damage: bad.damage, header: bad.header.map(|header| *header) };
    }
    let rest = file.get(position as usize..).unwrap_or_default();
    // Anything but a block border is the rest of a block of ours that is neither a record nor padding.
    let torn = !behind.is_empty()
        || bad.header.is_some()
        || RecordHeader::is_tagged(rest, tag)
        || !position.is_multiple_of(blocks::BLOCK_BYTES);
    ScanEnd::Open { position, chain, torn }
}

/// A whole record header that stands where it was not written.
struct Moved;

/// The whole record headers of this file from a bad place on. None can be forged by what a client sends: it would have
/// to know the file's tag.
fn headers_from(file: &Bytes, tag: u64, position: u64) -> Vec<Result<RecordHeader, Moved>> {
    (position as usize..file.len())
        .step_by(RECORD_ALIGN as usize)
        .filter(|at| RecordHeader::is_tagged(&file[*at..], tag))
        .filter_map(|at| match RecordHeader::parse(&file[at..], tag, at as u64) {
            Ok(header) => Some(Ok(header)),
            Err(Damage::Misplaced) => Some(Err(Moved)),
            Err(_) => None,
        })
        .collect()
}
