//! How the number types of the wire are written into archives: as their number. The wire crate stays free of the
//! archive format that only the metadata log and its snapshots use.

use laneway_wire::{
    ClientId, Incarnation, LaneId, Micros, Op, PartitionId, RequestNumber, SessionEpoch, StreamId, TopicId,
    UserId,
};
use rkyv::rancor::Fallible;
use rkyv::with::{ArchiveWith, DeserializeWith, SerializeWith};
use rkyv::{Archive, Archived, Place};

/// Archives a number type as its inner number.
pub struct AsNumber;

macro_rules! as_number {
    ($($name:ident($inner:ty),)*) => {$(
        impl ArchiveWith<$name> for AsNumber {
            type Archived = Archived<$inner>;
            type Resolver = ();

            fn resolve_with(field: &$name, resolver: (), out: Place<Self::Archived>) {
                field.0.resolve(resolver, out);
            }
        }

        impl<S: Fallible + ?Sized> SerializeWith<$name, S> for AsNumber {
            fn serialize_with(_: &$name, _: &mut S) -> Result<(), S::Error> {
                Ok(())
            }
        }

        impl<D: Fallible + ?Sized> DeserializeWith<Archived<$inner>, $name, D> for AsNumber {
            fn deserialize_with(field: &Archived<$inner>, _: &mut D) -> Result<$name, D::Error> {
                Ok($name((*field).into()))
            }
        }
    )*};
}

as_number! {
    StreamId(u32),
    TopicId(u32),
    PartitionId(u32),
    UserId(u32),
    LaneId(u32),
    Op(u64),
    Incarnation(u64),
    SessionEpoch(u64),
    RequestNumber(u64),
    Micros(u64),
    ClientId(u128),
}
