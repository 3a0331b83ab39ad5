//! Consumer groups and stored offsets. Source: wire protocol, sections 5.4 and 5.5.

use bytes::{BufMut, BytesMut};

use super::{Record, count32, read_counted, records};
use crate::field::Field;
use crate::ids::{Offset, PartitionId};
use crate::primitive::{DecodeError, Reader};

records! {
    /// A consumer group.
    GroupHeader<'a> {
        /// Its number in the topic.
        id: u32,
        /// Partitions of the topic.
        partitions_count: u32,
        /// Members.
        members_count: u32,
        /// Its name.
        name: &'a str,
    }
    /// A stored offset; an empty body means that there is none.
    ConsumerOffset {
        /// The partition.
        partition: PartitionId,
        /// Last committed offset of the partition.
        current_offset: Offset,
        /// What the consumer stored.
        stored_offset: Offset,
    }
}

/// A member of a group and its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Its number in the group.
    pub id: u32,
    /// What it owns.
    pub partitions: Vec<PartitionId>,
}

impl<'a> Record<'a> for GroupMember {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(GroupMember { id: reader.u32("member id")?, partitions: read_partitions(reader)? })
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u32_le(self.id);
        put_partitions(out, &self.partitions);
    }
}

/// A group and its members: the answer to GetConsumerGroup and CreateConsumerGroup. `header.members_count` is written
/// from the list.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupDetails<'a> {
    /// The group.
    pub header: GroupHeader<'a>,
    /// Its members.
    pub members: Vec<GroupMember>,
}

impl<'a> Record<'a> for GroupDetails<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let header = GroupHeader::read(reader)?;
        Ok(GroupDetails { header, members: read_counted(reader, header.members_count)? })
    }

    fn put(&self, out: &mut BytesMut) {
        GroupHeader { members_count: count32(self.members.len()), ..self.header }.put(out);
        self.members.iter().for_each(|member| member.put(out));
    }
}

/// What a member owns; an empty body means that the caller is no member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSync {
    /// Changes with every change of the assignment.
    pub generation: u64,
    /// What the caller owns.
    pub partitions: Vec<PartitionId>,
}

impl<'a> Record<'a> for GroupSync {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(GroupSync { generation: reader.u64("generation")?, partitions: read_partitions(reader)? })
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.generation);
        put_partitions(out, &self.partitions);
    }
}

fn read_partitions(reader: &mut Reader<'_>) -> Result<Vec<PartitionId>, DecodeError> {
    let count = reader.u32("partitions")? as usize;
    let bytes = reader.take(count.saturating_mul(4), "partitions")?;
    bytes.chunks_exact(4).map(|bytes| PartitionId::read(&mut Reader::new(bytes), "partitions")).collect()
}

fn put_partitions(out: &mut BytesMut, partitions: &[PartitionId]) {
    out.put_u32_le(count32(partitions.len()));
    partitions.iter().for_each(|partition| out.put_u32_le(partition.0));
}
