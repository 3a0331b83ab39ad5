//! Reply bodies, both directions: plain structs that borrow what they can, `put` for the broker and `read` or `parse`
//! for clients. Source: wire protocol, sections 1.8, 2.4 and 5.
//!
//! A reply that lists records to the end of its body has no type of its own: the broker puts one record after another,
//! a client calls [`read_list`]. Bytes behind a fixed body are ignored, except where the protocol demands exact
//! consumption: confirmations, fetch sections, routes and lists. Source: wire protocol, section 5.0.

mod change_bodies;
mod changes;
mod groups;
mod messages;
mod resources;
mod result;
mod system;
mod users;

pub use change_bodies::{
    ChangeBody, ChangeOptions, ChangePartitions, ChangePermissions, Maybe, MemberLeft, PermissionsChanged,
    SessionClosed, StateBody, StreamLife, TokenGone, TopicLife, UserLife,
};
pub use changes::{ChangeItem, ChangePhase, ChangeRecord, ChangesPage, ChangesStatus};
pub use groups::{ConsumerOffset, GroupDetails, GroupHeader, GroupMember, GroupSync};
pub use messages::{
    FETCH_ENTRY_BYTES, FETCH_SECTIONS_MAX, FetchReply, FetchSection, POLL_HEAD_BYTES, PartitionRoute,
    PollHead, PollReply, SendConfirmation, parse_confirmations, put_confirmations, put_fetch_table,
};
pub use resources::{
    PARTITION_RECORD_BYTES, PartitionRecord, REPLICAS_MAX, StreamDetails, StreamHeader, TopicDetails,
    TopicHeader, parse_topics, put_topics_count,
};
pub use result::{REJECTION_BYTES, SUCCESS, put_rejection, put_success, rejection, split_result};
pub use system::{
    CacheMetrics, ClientDetails, ClientGroup, ClientHeader, ClusterMetadata, ClusterNode, NodeRole,
    NodeStatus, OptionDescriptor, Registered, Stats, Transport, parse_option_descriptors,
    put_option_descriptors,
};
pub use users::{TokenRecord, UserDetails, UserHeader, parse_token, put_token};

use bytes::{BufMut, BytesMut};

use crate::header::{HEADER_BYTES, ReplyHeader};
use crate::primitive::{DecodeError, Reader};

/// A whole frame: `header` with its size set, then what `body` appends.
///
/// # Panics
/// When the body is larger than a frame can hold; the broker bounds its replies.
pub fn encode_frame(header: &ReplyHeader, body: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::with_capacity(HEADER_BYTES + 64);
    out.put_bytes(0, HEADER_BYTES);
    body(&mut out);
    assert!(out.len() <= crate::header::FRAME_BYTES_MAX, "replies are bounded");
    let header = ReplyHeader { size: out.len() as u32, ..*header };
    header.write(out.first_chunk_mut().expect("room for the header is left above"));
    out
}

/// A record of a reply.
pub trait Record<'a>: Sized {
    /// Reads one record.
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Appends the record.
    ///
    /// # Panics
    /// When a name is empty or longer than 255 bytes, or options break their limits: the broker checks both before it
    /// stores them.
    fn put(&self, out: &mut BytesMut);
}

/// Reads records to the end of a body.
pub fn read_list<'a, T: Record<'a>>(body: &'a [u8]) -> Result<Vec<T>, DecodeError> {
    let mut reader = Reader::new(body);
    let mut list = Vec::new();
    while !reader.is_empty() {
        list.push(T::read(&mut reader)?);
    }
    Ok(list)
}

/// Reads `count` records. Memory grows with the records that are really there.
fn read_counted<'a, T: Record<'a>>(reader: &mut Reader<'a>, count: u32) -> Result<Vec<T>, DecodeError> {
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(T::read(reader)?);
    }
    Ok(list)
}

/// Reads a body of one record; empty means that there is none.
pub fn read_optional<'a, T: Record<'a>>(body: &'a [u8]) -> Result<Option<T>, DecodeError> {
    if body.is_empty() {
        return Ok(None);
    }
    T::read(&mut Reader::new(body)).map(Some)
}

/// Length of a list whose count the wire writes in four bytes.
fn count32(len: usize) -> u32 {
    u32::try_from(len).expect("a frame holds fewer than 2^32 records")
}

/// Declares records as their fields in wire order; `= Codec` names another encoding than the usual one of a type.
macro_rules! records {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? {
            $($(#[$field_doc:meta])* $field:ident: $type:ty $(= $codec:ident)?,)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        $crate::reply::record_impl! { [$($life)?] $name $(<$life>)? { $($field: $type [$($codec)?],)* } }
    )*};
}
use records;

macro_rules! record_impl {
    ([$life:lifetime] $name:ident <$l:lifetime> $fields:tt) => {
        impl<$life> $crate::reply::Record<$life> for $name<$life> {
            $crate::reply::record_methods! { $life $name $fields }
        }
    };
    ([] $name:ident $fields:tt) => {
        impl<'a> $crate::reply::Record<'a> for $name {
            $crate::reply::record_methods! { 'a $name $fields }
        }
    };
}
use record_impl;

macro_rules! record_methods {
    ($life:lifetime $name:ident { $($field:ident: $type:ty [$($codec:ident)?],)* }) => {
        fn read(
            reader: &mut $crate::primitive::Reader<$life>,
        ) -> Result<Self, $crate::primitive::DecodeError> {
            use $crate::field::Codec as _;
            Ok($name { $($field: <$crate::reply::codec!($($codec)?)>::read(reader, stringify!($field))?,)* })
        }

        fn put(&self, out: &mut bytes::BytesMut) {
            use $crate::field::Codec as _;
            $(<$crate::reply::codec!($($codec)?)>::put(&self.$field, out, stringify!($field))
                .expect("what the broker stores fits its field");)*
        }
    };
}
use record_methods;

macro_rules! codec {
    () => {
        $crate::field::Plain
    };
    ($codec:ident) => {
        $crate::field::$codec
    };
}
use codec;
