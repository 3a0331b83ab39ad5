//! Whole clusters of the real cores on one thread, driven by one 64-bit seed.
//!
//! Everything that a node of Laneway decides by is here as it is in the product: consensus, metadata with its client
//! table, the partitions of the data lanes. What is replaced is what surrounds them: links, disks, clocks, processes and
//! clients. A run draws all that they do from its seed, so it can be repeated byte for byte.
//!
//! Reading order: [`random`], [`queue`], [`trace`] (a run can be repeated), [`faults`], [`network`], [`disk`],
//! [`atlas`], [`clock`] (what goes wrong), [`options`] (what a run is), [`storage`], [`machine`], [`node`] (a node),
//! [`contract`], [`client`] (who uses it), [`oracle`] (what must hold), [`env`], [`world`] (a run), [`run`],
//! [`shrink`] (what came of it), [`coverage`], [`totals`] (what was met and done).
#![forbid(unsafe_code)]

pub mod queue;
pub mod random;
pub mod trace;

pub mod faults;

pub mod atlas;
pub mod clock;
pub mod disk;
pub mod network;

pub mod options;

pub mod machine;
pub mod storage;

pub mod contract;

pub mod coverage;
pub mod totals;

pub mod oracle;

pub mod env;

pub mod client;
pub mod node;

pub mod world;

pub mod mutations;
pub mod run;
pub mod shrink;

pub use options::{Options, Profile};
pub use world::{Outcome, World};
