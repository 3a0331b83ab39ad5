//! The segment list of a partition, as it stands in the checkpoint of its lane.

use laneway_wire::{Micros, Offset};

use crate::{
    error::Damage,
    fields::{u32_at, u64_at},
};

/// Bytes before the entries.
pub const CATALOGUE_HEADER_BYTES: usize = 16;
/// Bytes of one entry.
pub const CATALOGUE_ENTRY_BYTES: usize = 48;

const SEALED: u32 = 1;

/// What is known of one segment without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentMeta {
    /// Offset of the first message.
    pub base: Offset,
    /// The offset after the last message.
    pub next: Offset,
    /// Where the last batch ends, padding before it included.
    pub bytes: u64,
    /// Bytes of all batches.
    pub batch_bytes: u64,
    /// Append time of the last batch; times never go back within a partition.
    pub max_timestamp: Micros,
    /// Whether it takes no more batches.
    pub sealed: bool,
}

/// Appends the list to `out`. `next`: the offset after the last stored message, kept also when no segment is left.
/// Source: `docs/storage.md`, segment list.
pub fn encode(next: Offset, segments: &[SegmentMeta], out: &mut Vec<u8>) {
    let count = u32::try_from(segments.len()).expect("a partition never has 2^32 segments");
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&next.0.to_le_bytes());
    for segment in segments {
        out.extend_from_slice(&segment.base.0.to_le_bytes());
        out.extend_from_slice(&segment.next.0.to_le_bytes());
        out.extend_from_slice(&segment.bytes.to_le_bytes());
        out.extend_from_slice(&segment.max_timestamp.0.to_le_bytes());
        out.extend_from_slice(&segment.batch_bytes.to_le_bytes());
        out.extend_from_slice(&(if segment.sealed { SEALED } else { 0 }).to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
    }
}

/// Reads a list from the start of `bytes` and gives what follows it.
pub fn decode(bytes: &[u8]) -> Result<(Offset, Vec<SegmentMeta>, &[u8]), Damage> {
    let count = u32_at(bytes, 0).ok_or(Damage::Short)? as usize;
    let next = Offset(u64_at(bytes, 8).ok_or(Damage::Short)?);
    if u32_at(bytes, 4) != Some(0) {
        return Err(Damage::Reserved);
    }
    let end = count
        .checked_mul(CATALOGUE_ENTRY_BYTES)
        .and_then(|entries| entries.checked_add(CATALOGUE_HEADER_BYTES))
        .ok_or(Damage::Length)?;
    let entries = bytes.get(CATALOGUE_HEADER_BYTES..end).ok_or(Damage::Short)?;
    let segments =
        entries.chunks_exact(CATALOGUE_ENTRY_BYTES).map(decode_entry).collect::<Result<Vec<_>, _>>()?;
    check(next, &segments)?;
    Ok((next, segments, &bytes[end..]))
}

fn decode_entry(entry: &[u8]) -> Result<SegmentMeta, Damage> {
    let flags = u32_at(entry, 40).ok_or(Damage::Short)?;
    if flags & !SEALED != 0 || u32_at(entry, 44) != Some(0) {
        return Err(Damage::Reserved);
    }
    Ok(SegmentMeta {
        base: Offset(u64_at(entry, 0).ok_or(Damage::Short)?),
        next: Offset(u64_at(entry, 8).ok_or(Damage::Short)?),
        bytes: u64_at(entry, 16).ok_or(Damage::Short)?,
        max_timestamp: Micros(u64_at(entry, 24).ok_or(Damage::Short)?),
        batch_bytes: u64_at(entry, 32).ok_or(Damage::Short)?,
        sealed: flags & SEALED != 0,
    })
}

/// Segments follow each other without a gap, none is empty, and only the last may be open.
fn check(next: Offset, segments: &[SegmentMeta]) -> Result<(), Damage> {
    let follow = segments.windows(2).all(|pair| {
        pair[0].next == pair[1].base && pair[0].max_timestamp <= pair[1].max_timestamp && pair[0].sealed
    });
    let whole = segments.iter().all(|segment| {
        segment.base < segment.next && segment.batch_bytes > 0 && segment.batch_bytes <= segment.bytes
    });
    let ends = segments.last().is_none_or(|last| last.next == next);
    if follow && whole && ends { Ok(()) } else { Err(Damage::Catalogue) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(base: u64, next: u64, sealed: bool) -> SegmentMeta {
        SegmentMeta {
            base: Offset(base),
            next: Offset(next),
            bytes: 512,
            batch_bytes: 500,
            max_timestamp: Micros(next),
            sealed,
        }
    }

    fn check_decode(next: u64, segments: &[SegmentMeta], expected: Result<(), Damage>) {
        let mut bytes = Vec::new();
        encode(Offset(next), segments, &mut bytes);
        bytes.extend_from_slice(b"rest");
        match decode(&bytes) {
            Ok((found, list, rest)) => {
                assert_eq!((found, list.as_slice(), rest), (Offset(next), segments, &b"rest"[..]));
                assert_eq!(expected, Ok(()));
            }
            Err(damage) => assert_eq!(expected, Err(damage)),
        }
    }

    #[test]
    fn lists_round_trip() {
        check_decode(0, &[], Ok(()));
        check_decode(77, &[], Ok(()));
        check_decode(9, &[segment(2, 5, true), segment(5, 9, false)], Ok(()));
    }

    #[test]
    fn lists_that_contradict_themselves_are_refused() {
        check_decode(9, &[segment(2, 5, true), segment(6, 9, false)], Err(Damage::Catalogue));
        check_decode(9, &[segment(2, 5, false), segment(5, 9, false)], Err(Damage::Catalogue));
        check_decode(8, &[segment(5, 9, false)], Err(Damage::Catalogue));
        check_decode(5, &[segment(5, 5, false)], Err(Damage::Catalogue));
    }

    #[test]
    fn a_cut_list_is_refused() {
        let mut bytes = Vec::new();
        encode(Offset(9), &[segment(2, 5, true), segment(5, 9, false)], &mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]).unwrap_err(), Damage::Short, "length {length}");
        }
    }
}
