//! Where a read begins.
//!
//! Source: reads specification, section 2.2.

use laneway_wire::{Micros, Offset, Status};

/// How a client names the start of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// From this offset, or from the first retained one above it.
    Offset(Offset),
    /// From the first message of the first batch that was appended at or after this time.
    Timestamp(Micros),
    /// From the first retained message.
    First,
    /// The last `count` messages as of the head of this evaluation.
    Last,
    /// Behind the consumer's stored offset.
    Next,
}

/// A start with nothing left to look up in the consumer's progress. The offset is the one that was asked for: it may
/// lie below the retained range or above the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The first message at or above this offset.
    Offset(Offset),
    /// The first batch with this append time or a later one.
    Timestamp(Micros),
}

/// Why a start cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The stored offset is the highest number, so there is no next one.
    #[error("the stored offset is the last possible one, nothing can follow it")]
    NoNext,
}

impl StartError {
    /// The status that answers it.
    pub fn status(self) -> Status {
        match self {
            StartError::NoNext => Status::InvalidOffset,
        }
    }
}

impl Strategy {
    /// Resolves the start against the head of this evaluation and the consumer's stored offset.
    ///
    /// `Last` moves with the head, so a parked read resolves anew at each evaluation; `Next` is resolved once, at
    /// admission, and is a plain offset from then on.
    pub fn resolve(
        self,
        count: u32,
        head: Option<Offset>,
        stored: Option<Offset>,
    ) -> Result<Start, StartError> {
        Ok(match self {
            Strategy::Offset(offset) => Start::Offset(offset),
            Strategy::Timestamp(timestamp) => Start::Timestamp(timestamp),
            Strategy::First => Start::Offset(Offset(0)),
            Strategy::Last => Start::Offset(last(count, head)),
            Strategy::Next => Start::Offset(next(stored)?),
        })
    }
}

fn last(count: u32, head: Option<Offset>) -> Offset {
    let before = u64::from(count).saturating_sub(1);
    Offset(head.map_or(0, |head| head.0.saturating_sub(before)))
}

fn next(stored: Option<Offset>) -> Result<Offset, StartError> {
    match stored {
        Some(stored) => stored.next().ok_or(StartError::NoNext),
        None => Ok(Offset(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        strategy: Strategy,
        count: u32,
        head: Option<u64>,
        stored: Option<u64>,
        expected: Result<u64, StartError>,
    ) {
        let got = strategy.resolve(count, head.map(Offset), stored.map(Offset));
        assert_eq!(got, expected.map(|offset| Start::Offset(Offset(offset))));
    }

    #[test]
    fn offset_and_first_keep_their_identity() {
        check(Strategy::Offset(Offset(9)), 1, Some(4), Some(2), Ok(9));
        check(Strategy::First, 1, Some(4), Some(2), Ok(0));
    }

    #[test]
    fn last_counts_back_from_the_head() {
        check(Strategy::Last, 3, Some(9), None, Ok(7));
        check(Strategy::Last, 100, Some(9), None, Ok(0));
        check(Strategy::Last, 0, Some(9), None, Ok(9));
        check(Strategy::Last, 3, None, None, Ok(0));
    }

    #[test]
    fn next_follows_the_stored_offset() {
        check(Strategy::Next, 1, Some(4), None, Ok(0));
        check(Strategy::Next, 1, Some(4), Some(4), Ok(5));
        check(Strategy::Next, 1, Some(4), Some(90), Ok(91));
        check(Strategy::Next, 1, Some(4), Some(u64::MAX), Err(StartError::NoNext));
        assert_eq!(StartError::NoNext.status(), Status::InvalidOffset);
    }
}
