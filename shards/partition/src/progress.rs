//! The order of what one connection does to one consumer's progress on one partition: stores, deletes and reads of its
//! offset, `Next` polls and committing polls run one after the other, in the order in which they came. Everything else
//! passes. Orders one connection only; between connections the read fences decide.
//!
//! Source: reads specification, section 3.5.

use std::collections::{BTreeMap, VecDeque};

use laneway_wire::{PartitionKey, RequestNumber};

use crate::core::ConsumerKey;

/// What is kept in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgressKey {
    /// The partition.
    pub partition: PartitionKey,
    /// The consumer.
    pub consumer: ConsumerKey,
}

/// The requests of one connection that change or follow progress. `R` is a request that waits for its turn; their
/// number is bounded by the requests that a connection may have open.
#[derive(Debug)]
pub struct Progress<R> {
    /// Busy keys, and what waits behind the request that runs.
    busy: BTreeMap<ProgressKey, VecDeque<(RequestNumber, R)>>,
    /// Which key a running request holds.
    running: BTreeMap<RequestNumber, ProgressKey>,
}

impl<R> Default for Progress<R> {
    fn default() -> Self {
        Self { busy: BTreeMap::new(), running: BTreeMap::new() }
    }
}

impl<R> Progress<R> {
    /// Gives the request back if its turn is now; otherwise it waits.
    pub fn enter(&mut self, key: ProgressKey, number: RequestNumber, request: R) -> Option<R> {
        if let Some(waiting) = self.busy.get_mut(&key) {
            waiting.push_back((number, request));
            return None;
        }
        self.busy.insert(key.clone(), VecDeque::new());
        self.running.insert(number, key);
        Some(request)
    }

    /// A request was answered: the next one of its key runs. Gives that one.
    pub fn leave(&mut self, number: RequestNumber) -> Option<R> {
        let key = self.running.remove(&number)?;
        let waiting = self.busy.get_mut(&key).expect("a running request keeps its key busy");
        match waiting.pop_front() {
            Some((next, request)) => {
                self.running.insert(next, key);
                Some(request)
            }
            None => {
                self.busy.remove(&key);
                None
            }
        }
    }

    /// Takes back a request that still waits for its turn.
    pub fn cancel(&mut self, number: RequestNumber) -> Option<R> {
        for waiting in self.busy.values_mut() {
            if let Some(at) = waiting.iter().position(|(waits, _)| *waits == number) {
                return waiting.remove(at).map(|(_, request)| request);
            }
        }
        None
    }

    /// Whether nothing runs or waits.
    pub fn is_empty(&self) -> bool {
        self.busy.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use laneway_wire::{Incarnation, PartitionId};

    use super::*;
    use crate::core::ConsumerKind;

    fn key(consumer: u64) -> ProgressKey {
        let partition = PartitionKey { incarnation: Incarnation(4), partition: PartitionId(0) };
        ProgressKey { partition, consumer: ConsumerKey::number(ConsumerKind::Consumer, consumer) }
    }

    #[test]
    fn one_consumers_requests_run_one_after_the_other() {
        let mut progress = Progress::default();
        assert_eq!(progress.enter(key(1), RequestNumber(1), "a"), Some("a"));
        assert_eq!(progress.enter(key(1), RequestNumber(2), "b"), None);
        assert_eq!(progress.enter(key(1), RequestNumber(3), "c"), None);
        assert_eq!(progress.leave(RequestNumber(1)), Some("b"));
        assert_eq!(progress.leave(RequestNumber(2)), Some("c"));
        assert_eq!(progress.leave(RequestNumber(3)), None);
        assert!(progress.is_empty());
    }

    #[test]
    fn another_consumer_passes() {
        let mut progress = Progress::default();
        assert_eq!(progress.enter(key(1), RequestNumber(1), "a"), Some("a"));
        assert_eq!(progress.enter(key(2), RequestNumber(2), "b"), Some("b"));
    }

    #[test]
    fn request_that_waits_can_be_taken_back_and_one_that_runs_cannot() {
        let mut progress = Progress::default();
        assert_eq!(progress.enter(key(1), RequestNumber(1), "a"), Some("a"));
        assert_eq!(progress.enter(key(1), RequestNumber(2), "b"), None);
        assert_eq!(progress.enter(key(1), RequestNumber(3), "c"), None);
        assert_eq!(progress.cancel(RequestNumber(1)), None);
        assert_eq!(progress.cancel(RequestNumber(2)), Some("b"));
        assert_eq!(progress.leave(RequestNumber(1)), Some("c"));
    }

    #[test]
    fn answer_of_a_request_without_progress_moves_nothing() {
        let mut progress = Progress::default();
        assert_eq!(progress.enter(key(1), RequestNumber(1), "a"), Some("a"));
        assert_eq!(progress.leave(RequestNumber(9)), None);
        assert!(!progress.is_empty());
    }
}
