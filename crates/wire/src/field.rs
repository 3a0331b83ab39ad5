//! How the fields of bodies are read and written, so that requests and replies can be declared as lists of fields.

use bytes::{BufMut, BytesMut};

use crate::ids::{
    ClientId, Incarnation, Micros, Offset, Op, OwnerGeneration, PartitionId, ReplicaId, SessionEpoch,
    StreamId, TopicId, UserId,
};
use crate::options::{Block, Options};
use crate::permissions::Permissions;
use crate::primitive::{
    AckLevel, Consumer, DecodeError, EncodeError, Identifier, PartitionContext, Partitioning, Reader, Secret,
    Strategy, put_checked_bytes8, put_checked_str8, put_optional_partition, put_str32,
};

/// A field of a body: how it is read and how it is written.
pub(crate) trait Field<'a>: Sized {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError>;
    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError>;
}

/// Another encoding of a type than its usual one.
pub(crate) trait Codec<'a, T> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<T, DecodeError>;
    fn put(value: &T, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError>;
}

/// The usual encoding.
pub(crate) struct Plain;

impl<'a, T: Field<'a>> Codec<'a, T> for Plain {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<T, DecodeError> {
        T::read(reader, field)
    }

    fn put(value: &T, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        value.put(out, field)
    }
}

/// Text with a four-byte length, which may be empty.
pub(crate) struct Text32;

impl<'a> Codec<'a, &'a str> for Text32 {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<&'a str, DecodeError> {
        reader.str32(field)
    }

    fn put(value: &&'a str, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        put_str32(out, value);
        Ok(())
    }
}

macro_rules! number_field {
    ($($type:ty: $read:ident, $put:ident;)*) => {$(
        impl Field<'_> for $type {
            fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
                reader.$read(field)
            }

            fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
                out.$put(*self);
                Ok(())
            }
        }
    )*};
}

number_field! {
    u8: u8, put_u8;
    u16: u16, put_u16_le;
    u32: u32, put_u32_le;
    u64: u64, put_u64_le;
    u128: u128, put_u128_le;
    f32: f32, put_f32_le;
}

macro_rules! id_field {
    ($($type:ident: $read:ident, $put:ident;)*) => {$(
        impl Field<'_> for $type {
            fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
                reader.$read(field).map($type)
            }

            fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
                out.$put(self.0);
                Ok(())
            }
        }
    )*};
}

id_field! {
    StreamId: u32, put_u32_le;
    TopicId: u32, put_u32_le;
    PartitionId: u32, put_u32_le;
    UserId: u32, put_u32_le;
    ReplicaId: u8, put_u8;
    Offset: u64, put_u64_le;
    Op: u64, put_u64_le;
    Micros: u64, put_u64_le;
    Incarnation: u64, put_u64_le;
    OwnerGeneration: u64, put_u64_le;
    SessionEpoch: u64, put_u64_le;
    ClientId: u128, put_u128_le;
}

impl Field<'_> for PartitionContext {
    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        reader.context()
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        PartitionContext::put(self, out);
        Ok(())
    }
}

/// The options block of an answer, with its length.
impl<'a> Field<'a> for Block<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        Options::read_prefixed(reader, field).map(Block::Encoded)
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        self.put_prefixed(out);
        Ok(())
    }
}

impl Field<'_> for bool {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        reader.boolean(field)
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u8((*self).into());
        Ok(())
    }
}

impl<'a> Field<'a> for Identifier<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.identifier(field)
    }

    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        Identifier::put(self, out, field)
    }
}

impl<'a> Field<'a> for Consumer<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        reader.consumer()
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        Consumer::put(self, out)
    }
}

impl Field<'_> for Option<PartitionId> {
    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        reader.optional_partition()
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        put_optional_partition(out, *self);
        Ok(())
    }
}

impl Field<'_> for Strategy {
    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        reader.strategy()
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        Strategy::put(*self, out);
        Ok(())
    }
}

impl<'a> Field<'a> for Partitioning<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        reader.partitioning()
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        Partitioning::put(self, out)
    }
}

impl Field<'_> for AckLevel {
    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        AckLevel::read(reader)
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u8(*self as u8);
        Ok(())
    }
}

/// A name.
impl<'a> Field<'a> for &'a str {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.str8(field)
    }

    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        put_checked_str8(out, self, field)
    }
}

/// A password or token, 0 to 255 bytes.
impl<'a> Field<'a> for Secret<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.bytes8(field).map(Secret)
    }

    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        put_checked_bytes8(out, self.0, field)
    }
}

/// The options block at the end of a body: everything that is left.
impl<'a> Field<'a> for Options<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        Options::parse(reader.rest())
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_slice(self.as_bytes());
        Ok(())
    }
}

/// Permissions of a request: a presence byte, then length and block. Allocates for what they grant.
impl Field<'_> for Option<Permissions> {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        if !reader.flag(field)? {
            return Ok(None);
        }
        Permissions::parse(reader.bytes32(field)?).map(Some)
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u8(self.is_some().into());
        if let Some(permissions) = self {
            permissions.put_prefixed(out);
        }
        Ok(())
    }
}
