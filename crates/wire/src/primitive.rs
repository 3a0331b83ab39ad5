//! The small pieces that bodies are made of: a bounded reader, writing helpers, and the values that many commands
//! share. Source: wire protocol, section 3.

use bytes::{BufMut, BytesMut};

use crate::ids::{Incarnation, Offset, Op, OwnerGeneration, PartitionId};
use crate::status::Status;

/// Longest name and longest byte string with a one-byte length.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of an encoded [`Strategy`].
pub const STRATEGY_BYTES: usize = 9;
/// Bytes of an encoded [`PartitionContext`].
pub const CONTEXT_BYTES: usize = 24;

/// Why a body is not what its command says. The field is the protocol's name of the first field that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body ends inside of a field.
    #[error("{field} needs {needed} bytes, {left} are left")]
    Short {
        /// The field.
        field: &'static str,
        /// Bytes that the field has.
        needed: usize,
        /// Bytes that the body still has.
        left: usize,
    },
    /// Bytes follow a body that must be consumed exactly.
    #[error("{bytes} bytes follow the body")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A field that must not be empty is.
    #[error("{field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// Text that is not UTF-8.
    #[error("{field} is not UTF-8")]
    Utf8 {
        /// The field.
        field: &'static str,
    },
    /// A kind, flag or enumeration that is not declared.
    #[error("{field} is of unknown kind {kind}")]
    Kind {
        /// The field.
        field: &'static str,
        /// The number received.
        kind: u32,
    },
    /// A number, length or count outside of its range.
    #[error("{field} is out of range")]
    Range {
        /// The field.
        field: &'static str,
    },
    /// The same key or partition twice.
    #[error("{field} repeats")]
    Duplicate {
        /// The field.
        field: &'static str,
    },
    /// More entries or bytes than an options block may have.
    #[error("{field} is over the limit of {max}")]
    OptionsTooLarge {
        /// The field.
        field: &'static str,
        /// The limit.
        max: usize,
    },
}

impl DecodeError {
    /// The status that answers a request with such a body.
    pub fn status(&self) -> Status {
        match self {
            DecodeError::OptionsTooLarge { .. } => Status::OptionsBlockTooLarge,
            _ => Status::InvalidCommand,
        }
    }
}

/// Why a value cannot be written. Only request encoders return it: their values come from an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Longer than its length field can say, or than the protocol allows.
    #[error("{field} has {len} bytes or entries, at most {max} are allowed")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A field that must not be empty is.
    #[error("{field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A value that the server would refuse.
    #[error("{field} is out of range")]
    Range {
        /// The field.
        field: &'static str,
    },
    /// The same key twice.
    #[error("{field} repeats")]
    Duplicate {
        /// The field.
        field: &'static str,
    },
}

/// Reads a body from front to back. Never panics, never allocates; every read names its field for the error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

macro_rules! read_number {
    ($($(#[$doc:meta])* $name:ident -> $type:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, field: &'static str) -> Result<$type, DecodeError> {
            Ok(<$type>::from_le_bytes(self.array(field)?))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, position: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Everything not read yet.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.position..];
        self.position = self.bytes.len();
        rest
    }

    /// Ends a body that must be consumed exactly.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { bytes }),
        }
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let left = &self.bytes[self.position..];
        let Some(taken) = left.get(..len) else {
            return Err(DecodeError::Short { field, needed: len, left: left.len() });
        };
        self.position += len;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        Ok(self.take(N, field)?.try_into().expect("take gives exactly N bytes"))
    }

    read_number! {
        /// One byte.
        u8 -> u8;
        /// Two bytes.
        u16 -> u16;
        /// Four bytes.
        u32 -> u32;
        /// Eight bytes.
        u64 -> u64;
        /// Sixteen bytes.
        u128 -> u128;
        /// A single-precision float.
        f32 -> f32;
    }

    /// A boolean of a request: anything but 0 is true.
    pub fn boolean(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.u8(field)? != 0)
    }

    /// A strict presence byte: 0 or 1.
    pub fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            kind => Err(DecodeError::Kind { field, kind: kind.into() }),
        }
    }

    /// A name: length byte 1 to 255, then UTF-8.
    pub fn str8(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes8(field)?;
        if bytes.is_empty() {
            return Err(DecodeError::Empty { field });
        }
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8 { field })
    }

    /// Bytes with a one-byte length, 0 to 255.
    pub fn bytes8(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = self.u8(field)?;
        self.take(len.into(), field)
    }

    /// Text with a four-byte length.
    pub fn str32(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes32(field)?).map_err(|_| DecodeError::Utf8 { field })
    }

    /// Bytes with a four-byte length.
    pub fn bytes32(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = self.u32(field)?;
        self.take(len as usize, field)
    }

    /// An identifier. Source: wire protocol, section 3.1.
    pub fn identifier(&mut self, field: &'static str) -> Result<Identifier<'a>, DecodeError> {
        match self.u8(field)? {
            1 => match self.u8(field)? {
                4 => Ok(Identifier::Numeric(self.u32(field)?)),
                _ => Err(DecodeError::Range { field }),
            },
            2 => Ok(Identifier::Name(self.str8(field)?)),
            kind => Err(DecodeError::Kind { field, kind: kind.into() }),
        }
    }

    /// A consumer. Source: wire protocol, section 3.3.
    pub fn consumer(&mut self) -> Result<Consumer<'a>, DecodeError> {
        let byte = self.u8("consumer")?;
        let kind = ConsumerKind::from_byte(byte)
            .ok_or(DecodeError::Kind { field: "consumer", kind: byte.into() })?;
        Ok(Consumer { kind, id: self.identifier("consumer")? })
    }

    /// An optional partition; always five bytes. Source: wire protocol, section 3.4.
    pub fn optional_partition(&mut self) -> Result<Option<PartitionId>, DecodeError> {
        let present = self.u8("partition")? == 1;
        let partition = self.u32("partition")?;
        Ok(present.then_some(PartitionId(partition)))
    }

    /// A polling strategy. Source: wire protocol, section 3.5.
    pub fn strategy(&mut self) -> Result<Strategy, DecodeError> {
        let kind = self.u8("strategy")?;
        let value = self.u64("strategy")?;
        Strategy::from_parts(kind, value).ok_or(DecodeError::Kind { field: "strategy", kind: kind.into() })
    }

    /// Where a send goes. Source: wire protocol, section 3.5.
    pub fn partitioning(&mut self) -> Result<Partitioning<'a>, DecodeError> {
        let field = "partitioning";
        let kind = self.u8(field)?;
        let value = self.bytes8(field)?;
        match kind {
            1 if value.is_empty() => Ok(Partitioning::Balanced),
            2 => match value.try_into() {
                Ok(partition) => Ok(Partitioning::Partition(PartitionId(u32::from_le_bytes(partition)))),
                Err(_) => Err(DecodeError::Range { field }),
            },
            3 if !value.is_empty() => Ok(Partitioning::Key(value)),
            1 | 3 => Err(DecodeError::Range { field }),
            kind => Err(DecodeError::Kind { field, kind: kind.into() }),
        }
    }

    /// A partition context. Source: wire protocol, section 3.8.
    pub fn context(&mut self) -> Result<PartitionContext, DecodeError> {
        Ok(PartitionContext {
            incarnation: Incarnation(self.u64("incarnation")?),
            owner_generation: OwnerGeneration(self.u64("owner_generation")?),
            metadata_op: Op(self.u64("metadata_op")?),
        })
    }
}

/// How a request names a stream, topic, group or user. Names are looked up as names, even when they look like numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identifier<'a> {
    /// By number, from 0.
    Numeric(u32),
    /// By name, 1 to 255 bytes.
    Name(&'a str),
}

impl<'a> Identifier<'a> {
    /// A number if `text` is one, else a name: how command lines spell identifiers.
    pub fn from_text(text: &'a str) -> Self {
        text.parse().map_or(Identifier::Name(text), Identifier::Numeric)
    }

    /// Appends the identifier.
    pub fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        match self {
            Identifier::Numeric(number) => {
                out.put_slice(&[1, 4]);
                out.put_u32_le(*number);
                Ok(())
            }
            Identifier::Name(name) => {
                check_name(name, field)?;
                out.put_u8(2);
                put_str8(out, name);
                Ok(())
            }
        }
    }
}

impl std::fmt::Display for Identifier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Identifier::Numeric(number) => number.fmt(f),
            Identifier::Name(name) => name.fmt(f),
        }
    }
}

/// What a consumer's offsets are keyed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConsumerKind {
    /// A single reader.
    Consumer = 1,
    /// A consumer group with members that the broker assigns.
    Group = 2,
    /// A group that is managed elsewhere; offsets only.
    ExternalGroup = 3,
}

impl ConsumerKind {
    /// The kind of a byte.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => ConsumerKind::Consumer,
            2 => ConsumerKind::Group,
            3 => ConsumerKind::ExternalGroup,
            _ => return None,
        })
    }
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Consumer<'a> {
    /// What the offsets are keyed by.
    pub kind: ConsumerKind,
    /// Which consumer or group.
    pub id: Identifier<'a>,
}

impl Consumer<'_> {
    /// Appends the consumer.
    pub fn put(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        out.put_u8(self.kind as u8);
        self.id.put(out, "consumer")
    }
}

/// Where a read starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// At this offset.
    Offset(Offset),
    /// At the first batch appended at or after this time, microseconds since the epoch.
    Timestamp(u64),
    /// At the earliest message.
    First,
    /// So that the newest `count` messages are read.
    Last,
    /// After the stored offset of the consumer.
    Next,
}

impl Strategy {
    /// The strategy of its two wire fields; the value of `first`, `last` and `next` is ignored.
    pub const fn from_parts(kind: u8, value: u64) -> Option<Self> {
        Some(match kind {
            1 => Strategy::Offset(Offset(value)),
            2 => Strategy::Timestamp(value),
            3 => Strategy::First,
            4 => Strategy::Last,
            5 => Strategy::Next,
            _ => return None,
        })
    }

    /// The two wire fields.
    pub const fn parts(self) -> (u8, u64) {
        match self {
            Strategy::Offset(offset) => (1, offset.0),
            Strategy::Timestamp(micros) => (2, micros),
            Strategy::First => (3, 0),
            Strategy::Last => (4, 0),
            Strategy::Next => (5, 0),
        }
    }

    /// Appends nine bytes.
    pub fn put(self, out: &mut BytesMut) {
        let (kind, value) = self.parts();
        out.put_u8(kind);
        out.put_u64_le(value);
    }
}

/// Where a send goes. Reference clients resolve the choice themselves and always send a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partitioning<'a> {
    /// The server chooses.
    Balanced,
    /// This partition.
    Partition(PartitionId),
    /// The partition of this key, 1 to 255 bytes; see [`crate::key::partition_for_key`].
    Key(&'a [u8]),
}

impl Partitioning<'_> {
    /// Appends the choice.
    pub fn put(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            Partitioning::Balanced => out.put_slice(&[1, 0]),
            Partitioning::Partition(partition) => {
                out.put_slice(&[2, 4]);
                out.put_u32_le(partition.0);
            }
            Partitioning::Key(key) => {
                if key.is_empty() {
                    return Err(EncodeError::Empty { field: "partitioning" });
                }
                out.put_u8(3);
                put_checked_bytes8(out, key, "partitioning")?;
            }
        }
        Ok(())
    }
}

/// Which life of a partition, and which owner of it, a request or an answer means. Source: wire protocol, section 3.8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PartitionContext {
    /// The life of the partition; never 0 for a live one.
    pub incarnation: Incarnation,
    /// The group owner, 0 for none.
    pub owner_generation: OwnerGeneration,
    /// The metadata op at which the other two were read.
    pub metadata_op: Op,
}

impl PartitionContext {
    /// Appends 24 bytes.
    pub fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.incarnation.0);
        out.put_u64_le(self.owner_generation.0);
        out.put_u64_le(self.metadata_op.0);
    }
}

/// When an offset write is acknowledged. Source: wire protocol, section 3.9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AckLevel {
    /// After the local fast path.
    NoAck = 0,
    /// After the quorum.
    #[default]
    Quorum = 1,
}

impl AckLevel {
    /// Reads the level.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8("ack")? {
            0 => Ok(AckLevel::NoAck),
            1 => Ok(AckLevel::Quorum),
            kind => Err(DecodeError::Kind { field: "ack", kind: kind.into() }),
        }
    }
}

/// Bytes that must not reach a log: a password, a token or a bind secret. `Debug` hides them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret<'a>(pub &'a [u8]);

impl std::fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Checks a name against the protocol: 1 to 255 bytes.
pub fn check_name(name: &str, field: &'static str) -> Result<(), EncodeError> {
    match name.len() {
        0 => Err(EncodeError::Empty { field }),
        1..=NAME_BYTES_MAX => Ok(()),
        len => Err(EncodeError::TooLong { field, len, max: NAME_BYTES_MAX }),
    }
}

/// Appends a name.
///
/// # Panics
/// When the name is empty or longer than 255 bytes: what the broker stores was checked when it was parsed.
pub fn put_str8(out: &mut BytesMut, name: &str) {
    assert!(check_name(name, "name").is_ok(), "a stored name has 1 to 255 bytes");
    out.put_u8(name.len() as u8);
    out.put_slice(name.as_bytes());
}

/// Appends a name that an application gave.
pub fn put_checked_str8(out: &mut BytesMut, name: &str, field: &'static str) -> Result<(), EncodeError> {
    check_name(name, field)?;
    put_str8(out, name);
    Ok(())
}

/// Appends bytes with a one-byte length that an application gave.
pub fn put_checked_bytes8(out: &mut BytesMut, bytes: &[u8], field: &'static str) -> Result<(), EncodeError> {
    let Ok(len) = u8::try_from(bytes.len()) else {
        return Err(EncodeError::TooLong { field, len: bytes.len(), max: NAME_BYTES_MAX });
    };
    out.put_u8(len);
    out.put_slice(bytes);
    Ok(())
}

/// Appends text with a four-byte length.
///
/// # Panics
/// When the text has 4 GiB or more, which no frame can hold.
pub fn put_str32(out: &mut BytesMut, text: &str) {
    put_bytes32(out, text.as_bytes());
}

/// Appends bytes with a four-byte length.
///
/// # Panics
/// When there are 4 GiB or more, which no frame can hold.
pub fn put_bytes32(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("a frame is smaller than 4 GiB"));
    out.put_slice(bytes);
}

/// Appends an optional partition; always five bytes.
pub fn put_optional_partition(out: &mut BytesMut, partition: Option<PartitionId>) {
    out.put_u8(partition.is_some().into());
    out.put_u32_le(partition.map_or(0, |partition| partition.0));
}
