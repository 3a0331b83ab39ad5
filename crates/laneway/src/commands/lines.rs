//! Whole lines out of a byte stream, in blocks.
//!
//! A block is what one read had to offer, cut after its last newline. Handing on what is there, instead of filling
//! a fixed buffer, keeps `tail -f FILE | laneway send ...` immediate and still makes large batches of a fast input.
//! Lines keep their newline byte, so the blocks put together are the input, byte for byte.

use std::io::{self, Read};

/// What happens to a line that is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongLine {
    /// Stop with [`LineError::TooLong`].
    Refuse,
    /// Hand it on in pieces of at most the limit; only the last piece ends with the newline.
    Split,
}

/// Why no further line can be read.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// A line, without its newline, is longer than the limit.
    #[error(
        "line {line} is longer than {bytes_max} bytes, the largest payload of one message; split it first"
    )]
    TooLong {
        /// Number of the line in the input, from 1.
        line: u64,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// The input could not be read.
    #[error("read the input: {0}")]
    Input(#[from] io::Error),
}

/// Reads blocks of whole lines. Holds at most two limits of memory: one block and the start of the next line.
#[derive(Debug)]
pub struct LineBlocks<R> {
    source: R,
    /// Bytes that were read and not handed on.
    held: Vec<u8>,
    /// How many bytes at the front of `held` may go as they are: they end with a newline or with the input.
    whole: usize,
    read_bytes: usize,
    line_bytes_max: usize,
    long: LongLine,
    lines_before: u64,
    at_end: bool,
}

impl<R: Read> LineBlocks<R> {
    /// `read_bytes`: size of one read, at least 1. `line_bytes_max`: longest line without its newline, at least 1.
    pub fn new(source: R, read_bytes: usize, line_bytes_max: usize, long: LongLine) -> Self {
        assert!(read_bytes > 0 && line_bytes_max > 0, "empty reads never end");
        // No larger than the limit: then only the first line of a block, which began in an earlier read, can be too
        // long, and the others need no check.
        let read_bytes = read_bytes.min(line_bytes_max);
        let held = Vec::new();
        Self { source, held, whole: 0, read_bytes, line_bytes_max, long, lines_before: 0, at_end: false }
    }

    /// The next block: one or more whole lines (or one piece of a long line, see [`LongLine::Split`]), never empty.
    /// `None` at the end of the input. Take it apart with [`lines`].
    pub fn next_block(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            if self.whole == 0 && self.held.len() <= self.line_bytes_max {
                if self.at_end {
                    return Ok(None);
                }
                self.read_some()?;
                continue;
            }
            let first = self.held.iter().position(|byte| *byte == b'\n').unwrap_or(self.held.len());
            if first <= self.line_bytes_max {
                let block = self.take(self.whole);
                self.lines_before += lines(&block).count() as u64;
                return Ok(Some(block));
            }
            return match self.long {
                LongLine::Refuse => {
                    Err(LineError::TooLong { line: self.lines_before + 1, bytes_max: self.line_bytes_max })
                }
                LongLine::Split => Ok(Some(self.take(self.line_bytes_max))),
            };
        }
    }

    /// Reads once and notes how much of what is held is whole lines now.
    fn read_some(&mut self) -> io::Result<()> {
        let before = self.held.len();
        self.held.resize(before + self.read_bytes, 0);
        let room = self.held.get_mut(before..).unwrap_or_default();
        let result = loop {
            match self.source.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        self.held.truncate(before + *result.as_ref().unwrap_or(&0));
        if result? == 0 {
            self.at_end = true;
            self.whole = self.held.len();
        } else {
            let fresh = self.held.get(before..).unwrap_or_default();
            self.whole = fresh.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| before + at + 1);
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let rest = self.held.split_off(bytes);
        self.whole = self.whole.saturating_sub(bytes);
        std::mem::replace(&mut self.held, rest)
    }
}

/// The lines of a block, each with its newline (the last of the input may have none).
pub fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    block.split_inclusive(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A source that gives its bytes in reads of the given sizes, over and over.
    struct Trickle<'a> {
        bytes: &'a [u8],
        sizes: Vec<usize>,
        turn: usize,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes[self.turn % self.sizes.len()];
            self.turn += 1;
            let count = size.min(into.len()).min(self.bytes.len());
            into[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes = &self.bytes[count..];
            Ok(count)
        }
    }

    fn collect(mut blocks: LineBlocks<impl Read>) -> Result<Vec<Vec<u8>>, LineError> {
        let mut all = Vec::new();
        while let Some(block) = blocks.next_block()? {
            assert!(!block.is_empty(), "an empty block");
            all.extend(lines(&block).map(<[u8]>::to_vec));
        }
        Ok(all)
    }

    #[track_caller]
    fn check(input: &str, expected: &[&str]) {
        let found = collect(LineBlocks::new(input.as_bytes(), 4, 8, LongLine::Refuse)).unwrap();
        assert_eq!(found, expected.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>());
    }

    #[test]
    fn lines_keep_their_newline_and_the_last_needs_none() {
        check("", &[]);
        check("\n", &["\n"]);
        check("a", &["a"]);
        check("a\n\nb\r\nlast", &["a\n", "\n", "b\r\n", "last"]);
        check("12345678\n", &["12345678\n"]);
    }

    #[test]
    fn line_above_the_limit_is_refused_with_its_number() {
        let error = collect(LineBlocks::new(&b"a\nb\n123456789\n"[..], 4, 8, LongLine::Refuse)).unwrap_err();
        assert!(matches!(error, LineError::TooLong { line: 3, bytes_max: 8 }), "{error}");
        let error = collect(LineBlocks::new(&b"123456789"[..], 100, 8, LongLine::Refuse)).unwrap_err();
        assert!(matches!(error, LineError::TooLong { line: 1, .. }), "{error}");
    }

    #[test]
    fn failing_source_is_an_input_error() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("cable"))
            }
        }
        let error = collect(LineBlocks::new(Broken, 4, 8, LongLine::Split)).unwrap_err();
        assert_eq!(error.to_string(), "read the input: cable");
    }

    proptest! {
        #[test]
        fn lines_put_together_are_the_input(
            input in proptest::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..300),
            sizes in proptest::collection::vec(1usize..20, 1..5),
            read_bytes in 1usize..40,
        ) {
            let source = Trickle { bytes: &input, sizes, turn: 0 };
            let found = collect(LineBlocks::new(source, read_bytes, 400, LongLine::Refuse)).unwrap();
            let expected: Vec<Vec<u8>> = lines(&input).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn split_pieces_stay_within_the_limit_and_add_up(
            input in proptest::collection::vec(prop_oneof![9 => any::<u8>(), 1 => Just(b'\n')], 0..300),
            sizes in proptest::collection::vec(1usize..20, 1..5),
            limit in 1usize..30,
        ) {
            let source = Trickle { bytes: &input, sizes, turn: 0 };
            let found = collect(LineBlocks::new(source, 64, limit, LongLine::Split)).unwrap();
            prop_assert!(found.iter().all(|piece| !piece.is_empty() && piece.len() <= limit + 1));
            prop_assert_eq!(found.concat(), input);
        }
    }
}
