//! Coverage marks: a branch that guards against something rare says that it was reached. Costs nothing unless the crate
//! is built with the feature `marks` or for its own tests.

/// Notes that a branch was reached.
macro_rules! mark {
    ($name:literal) => {
        $crate::marks::hit($name)
    };
}
pub(crate) use mark;

#[cfg(any(test, feature = "marks"))]
mod recorder {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    thread_local! {
        static MARKS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Counts one hit.
    pub fn hit(name: &'static str) {
        MARKS.with(|marks| *marks.borrow_mut().entry(name).or_default() += 1);
    }

    /// The marks that this thread has hit since the last call, with how often.
    pub fn take() -> BTreeMap<&'static str, u64> {
        MARKS.with(|marks| std::mem::take(&mut *marks.borrow_mut()))
    }
}
#[cfg(any(test, feature = "marks"))]
pub use recorder::{hit, take};

/// Counts nothing.
#[cfg(not(any(test, feature = "marks")))]
#[inline(always)]
pub(crate) fn hit(_name: &'static str) {}
