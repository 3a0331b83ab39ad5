//! Request bodies, one type per command: `parse` for the broker, `encode` for clients. Parsing borrows from the body
//! and, unless a type says otherwise, allocates nothing. Source: wire protocol, section 5.
//!
//! Bytes behind a complete body are ignored, except where the protocol demands exact consumption: bodies that end in an
//! options block, the logins, and commands 16, 17, 106, 108 and 109. Source: wire protocol, section 5.0.

mod changes;
mod fetch;
mod groups;
mod login;
mod offsets;
mod poll;
mod resources;
mod send;
mod system;
mod update;
mod users;

pub use changes::{
    CHANGES_LIMIT_MAX, ChangeCursor, ChangeGroup, ChangePageToken, ChangeStart, GetMetadataChanges,
};
pub use fetch::{FETCH_TARGETS_MAX, FetchMessages, FetchTarget, FetchTargets};
pub use groups::{
    CreateConsumerGroup, DeleteConsumerGroup, GetConsumerGroup, GetConsumerGroups, JoinConsumerGroup,
    LeaveConsumerGroup, SyncConsumerGroup,
};
pub use login::{
    BIND_SECRET_BYTES, BindSecret, BindSession, Login, LoginRegister, LoginRegisterWithPat, VersionPrefix,
};
pub use offsets::{DeleteConsumerOffset, GetConsumerOffset, StoreConsumerOffset};
pub use poll::{DeferredPoll, POLL_BYTES_MIN, PollMessages, REPLY_MARGIN_US, TIMEOUT_US_MAX, WAIT_US_MAX};
pub use resources::{
    CreatePartitions, CreateStream, CreateTopic, DeletePartitions, DeleteSegments, DeleteStream, DeleteTopic,
    GetPartitionRoute, GetStream, GetStreams, GetTopic, GetTopics,
};
pub use send::SendMessages;
pub use system::{
    CancelDeferredRequest, DescribeOptions, GetClient, GetClients, GetClusterMetadata, GetMe, GetSnapshot,
    GetStats, Logout, OptionScope, Ping, SnapshotCompression, SnapshotType,
};
pub use update::{ResetNames, UpdateResource, UpdateTarget};
pub use users::{
    ChangePassword, CreatePersonalAccessToken, CreateUser, DeletePersonalAccessToken, DeleteUser,
    GetPersonalAccessTokens, GetUser, GetUsers, UpdatePermissions, UserStatus,
};

use bytes::{BufMut, BytesMut};

use crate::code::Code;
use crate::header::{BODY_BYTES_MAX, HEADER_BYTES, RequestHeader};
use crate::operation::Operation;
use crate::primitive::EncodeError;

/// A command with its body, as a client sends it.
pub trait Request {
    /// The command.
    const CODE: Code;

    /// Appends the body. On an error `out` holds a part of it and is to be dropped.
    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError>;
}

/// A whole frame: `header` with size, operation and code of the request, then the body.
pub fn encode_frame<R: Request>(header: &RequestHeader, request: &R) -> Result<BytesMut, EncodeError> {
    let mut out = BytesMut::with_capacity(HEADER_BYTES + 64);
    out.put_bytes(0, HEADER_BYTES);
    request.encode(&mut out)?;
    finish_frame(header, R::CODE, &mut out)?;
    Ok(out)
}

/// Writes the header of a frame over the first 256 bytes of `out`, behind which the body is complete. Sets size,
/// operation and code; everything else comes from `header`.
///
/// # Panics
/// When `out` has fewer than 256 bytes.
pub fn finish_frame(header: &RequestHeader, code: Code, out: &mut BytesMut) -> Result<(), EncodeError> {
    let body_bytes = out.len().checked_sub(HEADER_BYTES).expect("the caller leaves room for the header");
    if body_bytes > BODY_BYTES_MAX {
        return Err(EncodeError::TooLong { field: "body", len: body_bytes, max: BODY_BYTES_MAX });
    }
    let operation = Operation::for_code(code);
    let code = if operation == Operation::NonReplicated { code.number() } else { 0 };
    let header = RequestHeader {
        size: (HEADER_BYTES + body_bytes) as u32,
        operation: operation.byte(),
        code,
        ..*header
    };
    header.write(out.first_chunk_mut().expect("checked above"));
    Ok(())
}

/// Declares commands as their fields in wire order.
macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            /// Reads the body.
            #[allow(clippy::needless_lifetimes, unused_variables, unused_mut)]
            pub fn parse(body: & $($life)? [u8]) -> Result<Self, $crate::primitive::DecodeError> {
                let mut reader = $crate::primitive::Reader::new(body);
                Ok($name { $($field: $crate::field::Field::read(&mut reader, stringify!($field))?,)* })
            }
        }

        impl $(<$life>)? $crate::request::Request for $name $(<$life>)? {
            const CODE: $crate::code::Code = $crate::code::Code::$name;

            #[allow(unused_variables)]
            fn encode(&self, out: &mut bytes::BytesMut) -> Result<(), $crate::primitive::EncodeError> {
                $($crate::field::Field::put(&self.$field, out, stringify!($field))?;)*
                Ok(())
            }
        }
    )*};
}
use requests;
