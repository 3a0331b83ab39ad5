//! Consumer groups: who belongs to one, which member should own which partition, and which hand-offs are on their way.
//!
//! Three things are told apart. The **target** of a partition is what the balance wants. The **owner** is the member whose
//! install the partition's own lane has committed and reported: only it may move the group's offset there. A **pending**
//! entry is the way from the one to the other. A row never loses its owner by a decision here, only by a completed
//! install, so that a partition has at most one owner at every op (G26).
//!
//! Reading order: [`assignment`] (the balance, a pure function), [`row`] (one partition of one group), [`group`] (members,
//! rows, hand-offs), [`registry`] (the groups of a topic).
//!
//! Source: consumer groups, sections 1 and 3.

pub mod assignment;
pub mod group;
pub mod registry;
pub mod row;

#[cfg(test)]
mod assignment_tests;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod walk_tests;

pub use group::{Completion, Group, JoinOutcome, Member};
pub use registry::{CreateGroupError, Groups};
pub use row::{Identity, Owner, Pending, Row};
