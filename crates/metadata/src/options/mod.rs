//! Options of streams, topics and users: which keys exist, which values they take, how a request's block is admitted,
//! and what a resource stores.
//!
//! Reading order: [`catalog`] (the table), [`defaults`] (what a node may be set to), [`value`] and [`text`] (one value, as bytes or as words), [`admission`] (the
//! order of checks), [`set`] (what is stored),
//! [`encryption`] (what a stream stores about its key), [`settings`] (what the shards read out of it).

pub mod admission;
pub mod catalog;
pub mod defaults;
pub mod encryption;
pub mod set;
pub mod settings;
pub mod text;
pub mod value;

pub use admission::{AdmittedPatch, RawOption, admit_create, admit_update};
pub use catalog::{Descriptor, Key, Scope, describe};
pub use defaults::OptionDefaults;
pub use encryption::StreamEncryption;
pub use set::{OptionEntry, OptionSet, StoredOptions};
pub use settings::{Compression, Durability, ResizePolicy, TopicSettings};
pub use value::OptionValue;
