//! The 256-byte headers that clients and servers exchange. Source: wire protocol, sections 1.1 to 1.5.
//!
//! Reading a header never fails on its reserved bytes (only an eviction is strict about them); [`RequestHeader::validate`]
//! tells a frame that deserves an answer from one that ends the connection.

use crate::ids::{ClientId, Incarnation, Op, OwnerGeneration, RequestNumber, SessionEpoch};
use crate::operation::Operation;
use crate::protocol::{ProtocolVersion, ProtocolWindow};
use crate::status::Status;

/// Length of every header. Source: wire protocol, section 1.1.
pub const HEADER_BYTES: usize = 256;
/// Largest frame, header included: 64 MiB. Source: wire protocol, section 1.13.
pub const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest body.
pub const BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - HEADER_BYTES;

/// Command byte of a request.
pub const COMMAND_REQUEST: u8 = 5;
/// Command byte of a reply.
pub const COMMAND_REPLY: u8 = 8;
/// Command byte of an eviction.
pub const COMMAND_EVICTION: u8 = 13;

/// Place of the frame size.
pub(crate) const SIZE_AT: usize = 48;
/// Place of the command byte.
pub(crate) const COMMAND_AT: usize = 60;
/// Place of the operation in a request.
pub(crate) const OPERATION_AT: usize = 176;

/// Bytes of a header.
pub type HeaderBytes = [u8; HEADER_BYTES];

fn array<const N: usize>(bytes: &HeaderBytes, at: usize) -> [u8; N] {
    // The places below are constants of the layout, all inside of the header.
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

fn u32_at(bytes: &HeaderBytes, at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u64_at(bytes: &HeaderBytes, at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

fn u128_at(bytes: &HeaderBytes, at: usize) -> u128 {
    u128::from_le_bytes(array(bytes, at))
}

fn put<const N: usize>(bytes: &mut HeaderBytes, at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The operation is not declared here; it may come from another release. Answer status 3 and keep the connection.
    #[error("operation {operation} is not declared")]
    UndeclaredOperation {
        /// The byte received.
        operation: u8,
    },
    /// A client sent an operation that only servers originate. Answer status 3.
    #[error("operation {operation} is internal to servers")]
    InternalOperation {
        /// The byte received.
        operation: u8,
    },
    /// The header breaks a rule of the layout: no answer, the connection closes.
    #[error("malformed header: {rule}")]
    Malformed {
        /// The rule that is broken.
        rule: &'static str,
    },
}

impl HeaderError {
    /// The status to answer with; none when the connection is to be closed without an answer.
    pub fn status(self) -> Option<Status> {
        match self {
            HeaderError::UndeclaredOperation { .. } | HeaderError::InternalOperation { .. } => {
                Some(Status::InvalidCommand)
            }
            HeaderError::Malformed { .. } => None,
        }
    }
}

/// Header of a request (command 5). Source: wire protocol, section 1.3.
///
/// Fields that the wire reserves or that servers must ignore are written as zero and not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bytes of the frame, this header included.
    pub size: u32,
    /// The command byte; [`COMMAND_REQUEST`] in a valid header.
    pub command: u8,
    /// The logical session of the client; 0 is refused.
    pub client: ClientId,
    /// Identity of a metadata or session request across its resends; 0 for the rest. Not a digest.
    pub request_checksum: u128,
    /// Zero from clients.
    pub timestamp: u64,
    /// Number of the request in its session; 0 before the session exists.
    pub request: RequestNumber,
    /// The operation byte as received; see [`RequestHeader::operation`].
    pub operation: u8,
    /// The session epoch, 0 before it is known.
    pub session: SessionEpoch,
    /// Zero from clients; servers must use the authenticated user instead.
    pub user_id: u32,
    /// The command code of a NonReplicated request, else 0.
    pub code: u32,
    /// The life of the partition that the client means.
    pub partition_incarnation: Incarnation,
    /// The group owner that the client believes to be, 0 for none.
    pub owner_generation: OwnerGeneration,
    /// Metadata op that must be applied before the request is interpreted.
    pub minimum_metadata_op: Op,
}

impl RequestHeader {
    /// A header of `operation` for a body of `body_bytes`, with everything else zero.
    ///
    /// # Panics
    /// When the frame would be larger than [`FRAME_BYTES_MAX`]; callers check the body first.
    pub fn new(operation: Operation, client: ClientId, body_bytes: usize) -> Self {
        RequestHeader {
            size: frame_size(body_bytes),
            command: COMMAND_REQUEST,
            client,
            request_checksum: 0,
            timestamp: 0,
            request: RequestNumber(0),
            operation: operation.byte(),
            session: SessionEpoch(0),
            user_id: 0,
            code: 0,
            partition_incarnation: Incarnation(0),
            owner_generation: OwnerGeneration(0),
            minimum_metadata_op: Op(0),
        }
    }

    /// Reads the fields; checks nothing.
    pub fn parse(bytes: &HeaderBytes) -> Self {
        RequestHeader {
            size: u32_at(bytes, SIZE_AT),
            command: bytes[COMMAND_AT],
            client: ClientId(u128_at(bytes, 128)),
            request_checksum: u128_at(bytes, 144),
            timestamp: u64_at(bytes, 160),
            request: RequestNumber(u64_at(bytes, 168)),
            operation: bytes[OPERATION_AT],
            session: SessionEpoch(u64_at(bytes, 184)),
            user_id: u32_at(bytes, 192),
            code: u32_at(bytes, 196),
            partition_incarnation: Incarnation(u64_at(bytes, 200)),
            owner_generation: OwnerGeneration(u64_at(bytes, 208)),
            minimum_metadata_op: Op(u64_at(bytes, 216)),
        }
    }

    /// Writes all 256 bytes.
    pub fn write(&self, bytes: &mut HeaderBytes) {
        bytes.fill(0);
        put(bytes, SIZE_AT, self.size.to_le_bytes());
        bytes[COMMAND_AT] = self.command;
        put(bytes, 128, self.client.0.to_le_bytes());
        put(bytes, 144, self.request_checksum.to_le_bytes());
        put(bytes, 160, self.timestamp.to_le_bytes());
        put(bytes, 168, self.request.0.to_le_bytes());
        bytes[OPERATION_AT] = self.operation;
        put(bytes, 184, self.session.0.to_le_bytes());
        put(bytes, 192, self.user_id.to_le_bytes());
        put(bytes, 196, self.code.to_le_bytes());
        put(bytes, 200, self.partition_incarnation.0.to_le_bytes());
        put(bytes, 208, self.owner_generation.0.to_le_bytes());
        put(bytes, 216, self.minimum_metadata_op.0.to_le_bytes());
    }

    /// The header as bytes.
    pub fn encode(&self) -> HeaderBytes {
        let mut bytes = [0; HEADER_BYTES];
        self.write(&mut bytes);
        bytes
    }

    /// The operation, when this build declares it.
    pub fn operation(&self) -> Option<Operation> {
        Operation::from_byte(self.operation)
    }

    /// Bytes of the body that follows. A size below the header counts as no body.
    pub fn body_bytes(&self) -> usize {
        (self.size as usize).saturating_sub(HEADER_BYTES)
    }

    /// Checks the rules of section 1.3 and returns the operation. Rules that close the connection come first, so that
    /// an error with a status is only given for a header that can be answered.
    pub fn validate(&self) -> Result<Operation, HeaderError> {
        let malformed = |rule| Err(HeaderError::Malformed { rule });
        if self.command != COMMAND_REQUEST {
            return malformed("the command is a request");
        }
        if (self.size as usize) < HEADER_BYTES || self.size as usize > FRAME_BYTES_MAX {
            return malformed("the size is between the header and the largest frame");
        }
        if self.client.0 == 0 {
            return malformed("the client id is not zero");
        }
        if self.operation == 0 {
            return malformed("the operation is not zero");
        }
        let Some(operation) = self.operation() else {
            return Err(HeaderError::UndeclaredOperation { operation: self.operation });
        };
        match operation {
            Operation::Register if self.session.0 != 0 || self.request.0 != 0 => {
                malformed("a registration has no session and no number")
            }
            Operation::Register | Operation::NonReplicated => Ok(operation),
            _ if self.session.0 == 0 || self.request.0 == 0 => {
                malformed("a replicated request has a session and a number")
            }
            _ if operation.is_internal() => Err(HeaderError::InternalOperation { operation: self.operation }),
            _ => Ok(operation),
        }
    }
}

/// Header of a reply (command 8). Source: wire protocol, section 1.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// Bytes of the frame, this header included.
    pub size: u32,
    /// The command byte; [`COMMAND_REPLY`] in a valid header.
    pub command: u8,
    /// Echo of the request.
    pub request_checksum: u128,
    /// Echo of the request.
    pub client: ClientId,
    /// Log position of the committed operation, 0 when nothing was committed.
    pub op: Op,
    /// Equal to `op` in a committed reply, else the metadata commit of the node or 0.
    pub commit: Op,
    /// Microseconds; clients ignore it.
    pub timestamp: u64,
    /// Echo of the request; clients match replies by it.
    pub request: RequestNumber,
    /// Echo of the request's operation, or the internal operation it was resolved to.
    pub operation: u8,
    /// Outcome as a number; 0 is success. See [`ReplyHeader::status`].
    pub status: u32,
    /// Byte 220: 1 marks the final committed result.
    pub marker: u8,
    /// Echo of the request, or the served incarnation in an answer to a poll.
    pub partition_incarnation: Incarnation,
}

impl ReplyHeader {
    /// A successful reply to `request` that proves no commit: echoes set, op and commit 0.
    ///
    /// # Panics
    /// When the frame would be larger than [`FRAME_BYTES_MAX`]; callers bound their replies.
    pub fn to(request: &RequestHeader, body_bytes: usize) -> Self {
        ReplyHeader {
            size: frame_size(body_bytes),
            command: COMMAND_REPLY,
            request_checksum: request.request_checksum,
            client: request.client,
            op: Op(0),
            commit: Op(0),
            timestamp: 0,
            request: request.request,
            operation: request.operation,
            status: 0,
            marker: 0,
            partition_incarnation: request.partition_incarnation,
        }
    }

    /// A refusal of `request` by status: no body, no proof of a commit.
    pub fn refusal(request: &RequestHeader, status: Status) -> Self {
        ReplyHeader { status: status.number(), ..ReplyHeader::to(request, 0) }
    }

    /// The final committed result of `request` at `op`: marker set, commit equal to op.
    ///
    /// # Panics
    /// When `op` is 0: nothing commits there. When the frame would be too large.
    pub fn committed(request: &RequestHeader, op: Op, body_bytes: usize) -> Self {
        assert!(op.0 != 0, "a committed reply names its op");
        ReplyHeader { op, commit: op, marker: 1, ..ReplyHeader::to(request, body_bytes) }
    }

    /// Reads the fields; checks nothing.
    pub fn parse(bytes: &HeaderBytes) -> Self {
        ReplyHeader {
            size: u32_at(bytes, SIZE_AT),
            command: bytes[COMMAND_AT],
            request_checksum: u128_at(bytes, 128),
            client: ClientId(u128_at(bytes, 160)),
            op: Op(u64_at(bytes, 176)),
            commit: Op(u64_at(bytes, 184)),
            timestamp: u64_at(bytes, 192),
            request: RequestNumber(u64_at(bytes, 200)),
            operation: bytes[208],
            status: u32_at(bytes, 216),
            marker: bytes[220],
            partition_incarnation: Incarnation(u64_at(bytes, 224)),
        }
    }

    /// Writes all 256 bytes.
    pub fn write(&self, bytes: &mut HeaderBytes) {
        bytes.fill(0);
        put(bytes, SIZE_AT, self.size.to_le_bytes());
        bytes[COMMAND_AT] = self.command;
        put(bytes, 128, self.request_checksum.to_le_bytes());
        put(bytes, 160, self.client.0.to_le_bytes());
        put(bytes, 176, self.op.0.to_le_bytes());
        put(bytes, 184, self.commit.0.to_le_bytes());
        put(bytes, 192, self.timestamp.to_le_bytes());
        put(bytes, 200, self.request.0.to_le_bytes());
        bytes[208] = self.operation;
        put(bytes, 216, self.status.to_le_bytes());
        bytes[220] = self.marker;
        put(bytes, 224, self.partition_incarnation.0.to_le_bytes());
    }

    /// The header as bytes.
    pub fn encode(&self) -> HeaderBytes {
        let mut bytes = [0; HEADER_BYTES];
        self.write(&mut bytes);
        bytes
    }

    /// The operation, when this build declares it.
    pub fn operation(&self) -> Option<Operation> {
        Operation::from_byte(self.operation)
    }

    /// The outcome.
    pub fn status(&self) -> Status {
        Status::from_number(self.status)
    }

    /// Whether this is the final committed result.
    pub fn is_committed(&self) -> bool {
        self.marker == 1
    }

    /// Bytes of the body that follows. A size below the header counts as no body.
    pub fn body_bytes(&self) -> usize {
        (self.size as usize).saturating_sub(HEADER_BYTES)
    }

    /// What a client checks before it trusts a reply to `request`; an error closes the link. Source: wire protocol,
    /// section 1.12, rules 4 and 6.
    pub fn validate_for(&self, request: &RequestHeader) -> Result<(), HeaderError> {
        let malformed = |rule| Err(HeaderError::Malformed { rule });
        if self.command != COMMAND_REPLY {
            return malformed("the command is a reply");
        }
        if self.request != request.request {
            return malformed("the reply names the number of its request");
        }
        let Some(operation) = self.operation() else {
            return Err(HeaderError::UndeclaredOperation { operation: self.operation });
        };
        if !self.is_committed() {
            return Ok(());
        }
        if self.client != request.client || self.request_checksum != request.request_checksum {
            return malformed("a committed reply echoes its request");
        }
        if self.partition_incarnation != request.partition_incarnation {
            return malformed("a committed reply echoes the incarnation");
        }
        if Some(operation.request_operation()) != request.operation() {
            return malformed("a committed reply answers the operation asked for");
        }
        if self.op.0 == 0 || self.op != self.commit {
            return malformed("a committed reply has one op above 0");
        }
        Ok(())
    }
}

/// Why a session binding ends. Source: wire protocol, section 1.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EvictionReason {
    /// Replicated request on a connection without a live session.
    NoSession = 1,
    /// The client is too old.
    ClientReleaseTooLow = 2,
    /// The client is too new.
    ClientReleaseTooHigh = 3,
    /// The operation is refused.
    InvalidRequestOperation = 4,
    /// The body is refused.
    InvalidRequestBody = 5,
    /// The size of the body is refused.
    InvalidRequestBodySize = 6,
    /// The request belongs to an older epoch.
    SessionTooLow = 7,
    /// The session belongs to another release.
    SessionReleaseMismatch = 8,
    /// Wrong user name or password, inactive user, length limits broken.
    InvalidCredentials = 9,
    /// Unknown or expired personal access token.
    InvalidToken = 10,
    /// Token of an inactive user.
    UserInactive = 11,
    /// Any other terminal failure of a login.
    SessionError = 12,
    /// Missed heartbeats.
    StaleClient = 13,
    /// The protocol version is outside of the window that the eviction carries.
    IncompatibleProtocol = 14,
    /// The login body cannot be decoded, or a legacy login code.
    MalformedLogin = 15,
}

impl EvictionReason {
    /// The reason of a byte; none for 0 and for bytes that are not declared.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => EvictionReason::NoSession,
            2 => EvictionReason::ClientReleaseTooLow,
            3 => EvictionReason::ClientReleaseTooHigh,
            4 => EvictionReason::InvalidRequestOperation,
            5 => EvictionReason::InvalidRequestBody,
            6 => EvictionReason::InvalidRequestBodySize,
            7 => EvictionReason::SessionTooLow,
            8 => EvictionReason::SessionReleaseMismatch,
            9 => EvictionReason::InvalidCredentials,
            10 => EvictionReason::InvalidToken,
            11 => EvictionReason::UserInactive,
            12 => EvictionReason::SessionError,
            13 => EvictionReason::StaleClient,
            14 => EvictionReason::IncompatibleProtocol,
            15 => EvictionReason::MalformedLogin,
            _ => return None,
        })
    }

    /// The byte on the wire.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The error that a client reports for it.
    pub const fn status(self) -> Status {
        match self {
            EvictionReason::ClientReleaseTooLow
            | EvictionReason::ClientReleaseTooHigh
            | EvictionReason::InvalidRequestOperation
            | EvictionReason::InvalidRequestBody
            | EvictionReason::InvalidRequestBodySize => Status::InvalidCommand,
            EvictionReason::NoSession
            | EvictionReason::SessionTooLow
            | EvictionReason::SessionReleaseMismatch
            | EvictionReason::UserInactive
            | EvictionReason::SessionError => Status::Unauthenticated,
            EvictionReason::InvalidCredentials => Status::InvalidCredentials,
            EvictionReason::InvalidToken => Status::InvalidPersonalAccessToken,
            EvictionReason::StaleClient => Status::StaleClient,
            EvictionReason::IncompatibleProtocol => Status::IncompatibleProtocolVersion,
            EvictionReason::MalformedLogin => Status::InvalidFormat,
        }
    }
}

/// A frame that ends the session binding of a connection (command 13); always a header alone. Source: wire protocol,
/// section 1.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The client of the request that caused it; never 0.
    pub client: ClientId,
    /// Why.
    pub reason: EvictionReason,
    /// What the server accepts; only with [`EvictionReason::IncompatibleProtocol`].
    pub window: Option<ProtocolWindow>,
}

impl Eviction {
    /// An eviction without a window.
    pub fn new(client: ClientId, reason: EvictionReason) -> Self {
        Eviction { client, reason, window: None }
    }

    /// The answer to a protocol version outside of `window`.
    pub fn incompatible(client: ClientId, window: ProtocolWindow) -> Self {
        Eviction { client, reason: EvictionReason::IncompatibleProtocol, window: Some(window) }
    }

    /// Reads an eviction. Reserved bytes must be zero. A reason that is not declared reads as
    /// [`EvictionReason::SessionError`] and a window that is none is dropped, as clients do it.
    pub fn parse(bytes: &HeaderBytes) -> Result<Self, HeaderError> {
        let malformed = |rule| Err(HeaderError::Malformed { rule });
        if bytes[COMMAND_AT] != COMMAND_EVICTION {
            return malformed("the command is an eviction");
        }
        if u32_at(bytes, SIZE_AT) as usize != HEADER_BYTES {
            return malformed("an eviction has no body");
        }
        if bytes[62..128].iter().chain(&bytes[152..255]).any(|byte| *byte != 0) {
            return malformed("the reserved bytes of an eviction are zero");
        }
        let client = ClientId(u128_at(bytes, 128));
        if client.0 == 0 {
            return malformed("the client id is not zero");
        }
        if bytes[255] == 0 {
            return malformed("an eviction has a reason");
        }
        let reason = EvictionReason::from_byte(bytes[255]).unwrap_or(EvictionReason::SessionError);
        let (max, min) = (u32_at(bytes, 144), u32_at(bytes, 148));
        if reason != EvictionReason::IncompatibleProtocol && (max != 0 || min != 0) {
            return malformed("only an incompatible protocol carries a window");
        }
        let window = (min >= 1 && min <= max)
            .then_some(ProtocolWindow { min: ProtocolVersion(min), max: ProtocolVersion(max) });
        Ok(Eviction { client, reason, window })
    }

    /// Writes all 256 bytes.
    pub fn write(&self, bytes: &mut HeaderBytes) {
        bytes.fill(0);
        put(bytes, SIZE_AT, (HEADER_BYTES as u32).to_le_bytes());
        bytes[COMMAND_AT] = COMMAND_EVICTION;
        put(bytes, 128, self.client.0.to_le_bytes());
        if let (EvictionReason::IncompatibleProtocol, Some(window)) = (self.reason, self.window) {
            put(bytes, 144, window.max.0.to_le_bytes());
            put(bytes, 148, window.min.0.to_le_bytes());
        }
        bytes[255] = self.reason.byte();
    }

    /// The eviction as bytes, ready to send.
    pub fn encode(&self) -> HeaderBytes {
        let mut bytes = [0; HEADER_BYTES];
        self.write(&mut bytes);
        bytes
    }
}

/// The size field for a body of `body_bytes`.
fn frame_size(body_bytes: usize) -> u32 {
    assert!(body_bytes <= BODY_BYTES_MAX, "a frame stays below its largest size");
    (HEADER_BYTES + body_bytes) as u32
}
