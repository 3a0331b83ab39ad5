//! Numbers of streams, topics and users: the lowest free one is given out next, and a freed one is used again.

use imbl::OrdSet;

/// Which numbers are taken, as the gaps below the first number never used.
///
/// Only the set of taken numbers counts: two spaces with the same taken numbers give out the same next number, however
/// they came to it. That is why a snapshot does not hold it.
#[derive(Clone, Debug, Default)]
pub struct IdSpace {
    /// All numbers from here on are free.
    next: u32,
    /// The free numbers below `next`.
    gaps: OrdSet<u32>,
}

impl IdSpace {
    /// Rebuilds the space from the taken numbers, in ascending order.
    pub fn of_taken(taken: impl IntoIterator<Item = u32>) -> Self {
        let mut space = Self::default();
        for id in taken {
            assert!(id >= space.next, "taken numbers come in ascending order and once");
            space.gaps.extend(space.next..id);
            space.next = id + 1;
        }
        space
    }

    /// The number that [`Self::take_lowest`] gives out next.
    pub fn lowest_free(&self) -> u32 {
        self.gaps.get_min().copied().unwrap_or(self.next)
    }

    /// Takes the lowest free number. The caller bounds how many are taken, far below `u32::MAX`.
    pub fn take_lowest(&mut self) -> u32 {
        match self.gaps.get_min().copied() {
            Some(id) => {
                self.gaps.remove(&id);
                id
            }
            None => {
                let id = self.next;
                self.next = id.checked_add(1).expect("limits keep numbers far below u32::MAX");
                id
            }
        }
    }

    /// Frees a taken number.
    pub fn release(&mut self, id: u32) {
        assert!(self.is_taken(id), "number {id} was not taken");
        self.gaps.insert(id);
    }

    /// Whether the number is in use.
    pub fn is_taken(&self, id: u32) -> bool {
        id < self.next && !self.gaps.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn lowest_gap_is_given_out_before_a_new_number() {
        let mut space = IdSpace::default();
        assert_eq!([space.take_lowest(), space.take_lowest(), space.take_lowest()], [0, 1, 2]);
        space.release(0);
        space.release(1);
        assert_eq!([space.take_lowest(), space.take_lowest(), space.take_lowest()], [0, 1, 3]);
    }

    proptest! {
        #[test]
        fn matches_a_plain_set(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let mut space = IdSpace::default();
            let mut model = BTreeSet::new();
            for (take, index) in steps {
                if take || model.is_empty() {
                    let lowest = (0u32..).find(|id| !model.contains(id)).unwrap_or_default();
                    prop_assert_eq!(space.take_lowest(), lowest);
                    model.insert(lowest);
                } else {
                    let id = *model.iter().nth(index.index(model.len())).unwrap_or(&0);
                    space.release(id);
                    model.remove(&id);
                }
                let rebuilt = IdSpace::of_taken(model.iter().copied());
                prop_assert_eq!(rebuilt.lowest_free(), space.lowest_free());
            }
        }
    }
}
