//! Configuration: what can be set, where a value came from, and what is wrong with it.
//!
//! One table ([`keys::KEYS`]) names every key with its type, default, range, environment name and flag. The file parser,
//! the environment reader, the listing of `laneway config` and `docs/configuration.md` are all derived from it, so they
//! cannot disagree. The crate is pure: the only function that touches a file is [`load`].

#![forbid(unsafe_code)]

pub mod units;
