//! Which record the copies hold.
//!
//! A write goes to the copies one after another, so a crash leaves the old record in some, the new one in others, and a
//! torn copy where it was; one more copy may have rotted. Two equal copies are proof enough, and the newest such record
//! wins. Where the crash and the damage together left no two equal copies, the newest whole one is taken: a record
//! counts as written only once three copies were read back equal, so a single copy that is newer than anything else was
//! either never relied on or is what a completed write left. Going back behind it is what must not happen.

use super::record::{self, COPIES, Parsed, RecordError};
use super::{ForeignSuperblock, Identification, Stamp, Superblock};

/// What a start found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The record.
    pub superblock: Superblock,
    /// Its place in the row.
    pub stamp: Stamp,
    /// Its checksum.
    pub checksum: u128,
    /// The highest number that any copy carries: numbering goes on above it.
    pub sequence_seen: u64,
    /// Copies that do not hold the record and must be written again before anything else is.
    pub stale: Vec<u8>,
}

/// Why a replica cannot start from its superblock. A lone node refuses to start; a member of a cluster has lost its
/// memory and may only ask the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is nothing at all.
    #[error("there is no superblock")]
    Absent,
    /// No copy is whole.
    #[error("no copy of the superblock is whole")]
    Damaged,
    /// Two different records under one number.
    #[error("two different superblock records carry number {sequence}")]
    Contradiction {
        /// The number.
        sequence: u64,
    },
    /// Written by a newer release.
    #[error("the superblock has format {found}, this release reads up to {}", record::FORMAT)]
    Newer {
        /// Its format.
        found: u32,
    },
    /// Written by somebody else.
    #[error("the superblock is not ours: {0}")]
    Foreign(#[from] ForeignSuperblock),
}

/// Chooses the record. A copy is `None` when its place could not be read or the file ends before it. A copy of another
/// lane or directory in the midst of our own is damage (a misdirected write); when all whole copies are foreign, the
/// file is.
pub fn open(copies: [Option<&[u8]>; COPIES], who: &Identification) -> Result<Opened, OpenError> {
    if copies.iter().all(Option::is_none) {
        return Err(OpenError::Absent);
    }
    let mut whole: Vec<(u8, Parsed)> = Vec::new();
    let mut foreign = None;
    for (place, bytes) in (0u8..).zip(copies) {
        match bytes.map(|bytes| record::parse(bytes, place)) {
            Some(Ok(parsed)) => match who.check(&parsed.superblock.who) {
                Ok(()) => whole.push((place, parsed)),
                Err(difference) => foreign = Some(difference),
            },
            Some(Err(RecordError::Newer { found })) => return Err(OpenError::Newer { found }),
            Some(Err(RecordError::Damaged | RecordError::Misplaced { .. })) | None => {}
        }
    }
    let winner = match choose(&whole)? {
        Some(winner) => winner.clone(),
        None => return Err(foreign.map_or(OpenError::Damaged, OpenError::Foreign)),
    };
    let holds = |place: u8| whole.iter().any(|(at, copy)| *at == place && copy.checksum == winner.checksum);
    let sequence_seen =
        whole.iter().map(|(_, copy)| copy.stamp.sequence).max().unwrap_or(winner.stamp.sequence);
    Ok(Opened {
        stale: (0..COPIES as u8).filter(|place| !holds(*place)).collect(),
        superblock: winner.superblock,
        stamp: winner.stamp,
        checksum: winner.checksum,
        sequence_seen,
    })
}

fn choose(whole: &[(u8, Parsed)]) -> Result<Option<&Parsed>, OpenError> {
    for (at, copy) in whole {
        let rival = |(other, rival): &&(u8, Parsed)| {
            other > at && rival.stamp.sequence == copy.stamp.sequence && rival.checksum != copy.checksum
        };
        if whole.iter().any(|pair| rival(&pair)) {
            return Err(OpenError::Contradiction { sequence: copy.stamp.sequence });
        }
    }
    let copies_of = |checksum| whole.iter().filter(|(_, copy)| copy.checksum == checksum).count();
    let newest = |least| {
        let candidates = whole.iter().map(|(_, copy)| copy).filter(|copy| copies_of(copy.checksum) >= least);
        candidates.max_by_key(|copy| copy.stamp.sequence)
    };
    Ok(newest(2).or_else(|| newest(1)))
}
