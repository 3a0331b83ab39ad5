//! Little-endian fields at fixed places. A read past the end gives `None`: nothing here trusts a length.

pub(crate) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

pub(crate) fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    array_at(bytes, at).map(u128::from_le_bytes)
}

/// Writes `field` at a place that the caller's layout constant guarantees to exist.
pub(crate) fn put<const N: usize>(block: &mut [u8], at: usize, field: [u8; N]) {
    block[at..at + N].copy_from_slice(&field);
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
