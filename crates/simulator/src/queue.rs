//! Virtual time: what happens when. Time moves only by taking the next thing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds of virtual time since the start of the run.
pub type Time = u64;

/// A microsecond of virtual time.
pub const MICROSECOND: Time = 1_000;
/// A millisecond of virtual time.
pub const MILLISECOND: Time = 1_000_000;
/// A second of virtual time.
pub const SECOND: Time = 1_000_000_000;

/// Things that will happen, soonest first. What happens at the same time is ordered by a number that the caller draws,
/// then by who came first.
#[derive(Debug)]
pub struct Queue<T> {
    now: Time,
    sequence: u64,
    heap: BinaryHeap<Reverse<(Time, u32, u64, u32)>>,
    // Things lie still while the heap moves its small keys around.
    things: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { now: 0, sequence: 0, heap: BinaryHeap::new(), things: Vec::new(), free: Vec::new() }
    }
}

impl<T> Queue<T> {
    /// The time of the thing that was taken last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How many things will happen.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing will happen.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Plans a thing at a time, now at the earliest.
    pub fn push(&mut self, at: Time, order: u32, thing: T) {
        let at = at.max(self.now);
        self.sequence += 1;
        let index = match self.free.pop() {
            Some(index) => {
                self.things[index as usize] = Some(thing);
                index
            }
            None => {
                self.things.push(Some(thing));
                u32::try_from(self.things.len() - 1).expect("a run has fewer than 2^32 things at once")
            }
        };
        self.heap.push(Reverse((at, order, self.sequence, index)));
    }

    /// Takes the next thing and moves the time to it.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, _, index)) = self.heap.pop()?;
        assert!(at >= self.now, "time went back");
        self.now = at;
        let thing = self.things[index as usize].take().expect("a key of the heap has its thing");
        self.free.push(index);
        Some((at, thing))
    }

    /// The time of the next thing.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_by_time_then_order_then_age() {
        let mut queue = Queue::default();
        for (at, order, name) in [(5, 0, "e"), (1, 2, "c"), (1, 1, "a"), (1, 1, "b"), (2, 0, "d")] {
            queue.push(at, order, name);
        }
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, name)| name).collect();
        assert_eq!(all, ["a", "b", "c", "d", "e"]);
        assert_eq!(queue.now(), 5);
        queue.push(0, 0, "late");
        assert_eq!(queue.pop(), Some((5, "late")), "the past is over");
    }
}
