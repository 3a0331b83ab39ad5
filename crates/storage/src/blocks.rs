//! Blocks: the unit in which journals and segments are written, so that no write ever reads what lies beside it and
//! the kernel takes it without a copy (`O_DIRECT`).

use bytes::BytesMut;

/// Bytes of a block: what every disk in use writes at once, and what page caches and file systems are made of. Disks
/// that accept smaller units accept this one, too.
pub const BLOCK_BYTES: u64 = 4096;

const BLOCK: usize = BLOCK_BYTES as usize;

/// The first multiple of a block at or above a position.
pub fn block_after(position: u64) -> u64 {
    position.next_multiple_of(BLOCK_BYTES)
}

/// The last multiple of a block at or below a position.
pub fn block_before(position: u64) -> u64 {
    position - position % BLOCK_BYTES
}

/// Where the next block starts if nothing but zeros lies between a place and it: a writer padded the block. `rest`
/// starts at `position` and must reach the end of its block or the end of what is there. A place where a block starts
/// is never padding.
pub fn skip_padding(position: u64, rest: &[u8]) -> Option<u64> {
    let next = block_after(position);
    let padding = rest.get(..(next - position) as usize)?;
    (next > position && padding.iter().all(|byte| *byte == 0)).then_some(next)
}

/// Whether the kernel takes this memory as it is: it starts at a multiple of a block and has whole ones.
pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().align_offset(BLOCK) == 0 && bytes.len().is_multiple_of(BLOCK)
}

/// An empty buffer whose memory starts at a multiple of a block, with room for at least `bytes`. What it holds is not
/// zeroed.
pub fn aligned_buffer(bytes: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(bytes + BLOCK);
    let skip = buffer.as_ptr().align_offset(BLOCK);
    assert!(skip < BLOCK, "every address has a multiple of a block above it");
    buffer.resize(skip, 0);
    // Behind the skipped bytes the rest of the allocation begins; they stay with nobody.
    buffer.split_off(skip)
}

/// Fills the last block of a buffer with zeros.
pub fn pad(buffer: &mut BytesMut) {
    buffer.resize(buffer.len().next_multiple_of(BLOCK), 0);
}

/// Buffers that come back: an aligned buffer that was filled once has its pages, and filling it again costs no fault.
#[derive(Debug, Default)]
pub struct BlockPool {
    spare: Vec<BytesMut>,
}

impl BlockPool {
    /// Buffers that wait at most.
    const SPARE_MAX: usize = 4;
    /// A larger buffer goes back to the allocator: one large group must not hold its memory for ever.
    const SPARE_BYTES_MAX: usize = 2 << 20;

    /// An empty aligned buffer with room for `bytes`.
    pub fn take(&mut self, bytes: usize) -> BytesMut {
        match self.spare.iter().position(|spare| spare.capacity() >= bytes) {
            Some(found) => self.spare.swap_remove(found),
            None => aligned_buffer(bytes.next_power_of_two().max(64 * 1024)),
        }
    }

    /// Takes a buffer back once nobody else looks at it.
    pub fn give(&mut self, buffer: bytes::Bytes) {
        let Ok(mut buffer) = buffer.try_into_mut() else { return };
        buffer.clear();
        let fits = (64 * 1024..=Self::SPARE_BYTES_MAX).contains(&buffer.capacity());
        if fits && self.spare.len() < Self::SPARE_MAX && buffer.as_ptr().align_offset(BLOCK) == 0 {
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_zeros_up_to_the_next_block_and_nothing_else() {
        let mut block = vec![0; 3 * BLOCK];
        assert_eq!(skip_padding(100, &block[100..]), Some(BLOCK_BYTES));
        assert_eq!(skip_padding(BLOCK_BYTES, &block[BLOCK..]), None, "a block of zeros is no padding");
        assert_eq!(skip_padding(100, &block[100..BLOCK - 1]), None, "the block ends early");
        block[BLOCK - 1] = 1;
        assert_eq!(skip_padding(100, &block[100..]), None);
        assert_eq!((block_after(1), block_after(4096), block_before(4097)), (4096, 4096, 4096));
    }

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let mut pool = BlockPool::default();
        let mut buffer = pool.take(100_000);
        buffer.extend_from_slice(&[7; 5000]);
        pad(&mut buffer);
        assert!(
            is_aligned(&buffer) && buffer.len() == 2 * BLOCK && buffer[5000..].iter().all(|byte| *byte == 0)
        );
        let memory = buffer.as_ptr();
        pool.give(buffer.freeze());
        let again = pool.take(100_000);
        assert!(again.is_empty() && again.as_ptr() == memory);
    }
}
