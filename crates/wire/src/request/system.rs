//! Commands about the node, the roster and connections. Source: wire protocol, section 5.1.

use bytes::{BufMut, BytesMut};

use super::{Request, requests};
use crate::code::Code;
use crate::field::Field;
use crate::primitive::{DecodeError, EncodeError, Reader};

requests! {
    /// Liveness (1).
    Ping {}
    /// Counters of the node (10).
    GetStats {}
    /// Roster of the cluster (12).
    GetClusterMetadata {}
    /// The calling connection (20).
    GetMe {}
    /// Every connection (22).
    GetClients {}
    /// Ends the session (39).
    Logout {}
    /// Options that a scope accepts (13).
    DescribeOptions {
        /// The scope.
        scope: OptionScope,
    }
    /// One connection (21).
    GetClient {
        /// Number of the connection on this server, not the session's client id.
        client_id: u32,
    }
}

/// What a set of options belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OptionScope {
    /// Topics.
    Topic = 1,
    /// Streams.
    Stream = 2,
    /// Users.
    User = 3,
}

impl Field<'_> for OptionScope {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        match reader.u8(field)? {
            1 => Ok(OptionScope::Topic),
            2 => Ok(OptionScope::Stream),
            3 => Ok(OptionScope::User),
            kind => Err(DecodeError::Kind { field, kind: kind.into() }),
        }
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u8(*self as u8);
        Ok(())
    }
}

/// Cancels the waiting read whose number the header repeats (108). Has no body and no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelDeferredRequest {}

impl CancelDeferredRequest {
    /// Checks that there is no body.
    pub fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        Reader::new(body).finish()?;
        Ok(CancelDeferredRequest {})
    }
}

impl Request for CancelDeferredRequest {
    const CODE: Code = Code::CancelDeferredRequest;

    fn encode(&self, _: &mut BytesMut) -> Result<(), EncodeError> {
        Ok(())
    }
}

/// How a diagnostic archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SnapshotCompression {
    /// Not at all.
    Stored = 1,
    /// Deflate.
    Deflated = 2,
    /// Bzip2.
    Bzip2 = 3,
    /// Zstandard.
    Zstd = 4,
    /// LZMA.
    Lzma = 5,
    /// XZ.
    Xz = 6,
}

/// A part of a diagnostic archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SnapshotType {
    /// Overview of the file system.
    Filesystem = 1,
    /// Processes.
    Processes = 2,
    /// Resource usage.
    Resources = 3,
    /// A test part.
    Test = 4,
    /// Logs of the server.
    Logs = 5,
    /// Configuration of the server.
    Config = 6,
    /// Everything.
    All = 100,
}

impl SnapshotType {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => SnapshotType::Filesystem,
            2 => SnapshotType::Processes,
            3 => SnapshotType::Resources,
            4 => SnapshotType::Test,
            5 => SnapshotType::Logs,
            6 => SnapshotType::Config,
            100 => SnapshotType::All,
            _ => return None,
        })
    }
}

/// A diagnostic archive (11). Allocates the list of parts, at most 255.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetSnapshot {
    /// How to compress it.
    pub compression: SnapshotCompression,
    /// What to put in.
    pub types: Vec<SnapshotType>,
}

impl GetSnapshot {
    /// Reads the body.
    pub fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let compression = match reader.u8("compression")? {
            1 => SnapshotCompression::Stored,
            2 => SnapshotCompression::Deflated,
            3 => SnapshotCompression::Bzip2,
            4 => SnapshotCompression::Zstd,
            5 => SnapshotCompression::Lzma,
            6 => SnapshotCompression::Xz,
            kind => return Err(DecodeError::Kind { field: "compression", kind: kind.into() }),
        };
        let types = reader.bytes8("types")?.iter().map(|byte| {
            SnapshotType::from_byte(*byte).ok_or(DecodeError::Kind { field: "types", kind: (*byte).into() })
        });
        Ok(GetSnapshot { compression, types: types.collect::<Result<_, _>>()? })
    }
}

impl Request for GetSnapshot {
    const CODE: Code = Code::GetSnapshot;

    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let len = self.types.len();
        let count = u8::try_from(len).map_err(|_| EncodeError::TooLong { field: "types", len, max: 255 })?;
        out.put_u8(self.compression as u8);
        out.put_u8(count);
        self.types.iter().for_each(|kind| out.put_u8(*kind as u8));
        Ok(())
    }
}
