//! Metadata: streams, topics, partitions, lanes, users and sessions as one deterministic state machine.
//!
//! `(state, op, timestamp, command) -> (state', outcome)`: no clock, no randomness, no I/O. The metadata lane orders the
//! commands; every node applies the same ones and holds the same state, byte for byte. A state is cheap to copy, because
//! its maps share what did not change, and so each applied version is handed to every shard as a value.
//!
//! The way of a request: [`planner`] turns it into a [`command`], or refuses it before anything happened; the log orders
//! it; [`apply`] changes the state and answers. Decisions that depend on the order (names, permissions, counts) are taken
//! at apply only, so that a refusal commits like a success and a repeated request gets the same one.
//!
//! Reading order: [`metadata`] (the state and its lookups), [`streams`], [`topics`], [`lanes`], [`users`],
//! [`tokens`], [`permissions`], [`sessions`] (the parts), [`options`] (what resources store), [`command`], [`planner`], [`apply`],
//! [`changes`] (what is told of it afterwards), [`replies`], [`views`] (what reads see), [`snapshot`], [`invariants`].
#![forbid(unsafe_code)]

pub mod limits;
pub mod names;

pub mod metadata;

pub mod groups;
pub mod lanes;
pub mod permissions;
pub mod sessions;

pub mod streams;
pub mod tokens;
pub mod topics;
pub mod users;

pub mod options;

pub mod changes;

pub mod apply;
pub mod command;
pub mod planner;
pub mod replies;
pub mod views;

pub mod invariants;
pub mod snapshot;

mod archive;
mod id_space;

pub use apply::{Answer, Effect, Outcome, PartitionPlace};
pub use command::{
    Command, CommandError, CreateRoot, EndSessions, ExpireTokens, Mutation, NewToken, NewUser,
    PasswordChange, Register, RequestIdentity, Rewrap, SessionId, Settings,
};
pub use lanes::{Lane, LaneClass, Lanes};
pub use metadata::Metadata;
pub use names::{Missing, Ref, RefKey};
pub use options::admission::{RawOption, Refusal};
pub use options::{Durability, TopicSettings};
pub use permissions::{Permissions, Rule};
pub use planner::{PlanSettings, Planner};
pub use replies::{CommittedReply, ReplyBody, StreamCreated, TopicCreated, UserCreated};
pub use sessions::{Admit, EndReason, RegisterRefusal, Session, Sessions, Verifier};
pub use snapshot::SnapshotError;
pub use streams::{Stream, Streams};
pub use tokens::{Token, TokenHash, TokenId};
pub use topics::{Partition, Topic, Topics};
pub use users::{PasswordHash, ROOT, ROOT_CREATED_AT, User, UserStatus, Users};
