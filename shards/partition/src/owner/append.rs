//! Appending a batch.

use bytes::{Bytes, BytesMut};
use laneway_vsr::EntryBody;
use laneway_wire::batch::{self, BatchHeader, ProducerSection};
use laneway_wire::{Micros, Status, StreamId, TopicId};

use super::{DiskState, Owner, Pending, Target};
use crate::core::{Admit, Identity, LaneOp};

/// What a client wants appended. The batch was verified where it came in.
#[derive(Debug)]
pub(super) struct Append {
    pub identity: Identity,
    pub stream: StreamId,
    pub topic: TopicId,
    pub batch: BytesMut,
    pub messages: u32,
    pub producer: Option<ProducerSection>,
}

impl Owner {
    pub(super) fn append(&mut self, wall: Micros, at: Target, append: Append) {
        let Append { identity, stream, topic, mut batch, messages, producer } = append;
        let client = Pending::Client { reply_to: at.reply_to, stream, topic };
        let room = self.has_room(batch.len());
        let Some(owned) = self.lanes.get_mut(&at.lane) else {
            return self.refuse(at.reply_to, Status::TransientNotAccepted);
        };
        let Some(partition) = owned.state.get_mut(at.key) else {
            let status = self.missing(at.lane, at.key);
            return self.refuse(at.reply_to, status);
        };
        match partition.admit_append(Some(&identity), messages, producer.as_ref(), wall) {
            Admit::New => {}
            Admit::Replay(receipt) => {
                return self.answer_receipt(at.reply_to, stream, topic, at.key, &receipt);
            }
            Admit::InFlight(_) if self.disk == DiskState::Broken => {
                return self.refuse(at.reply_to, Status::TransientNotCommitted);
            }
            Admit::InFlight(op) => {
                owned.waiting.entry(op).or_default().push(client);
                return;
            }
            Admit::Refuse(status) => return self.refuse(at.reply_to, status),
        }
        if let Some(status) = self.disk.refuses_messages() {
            return self.refuse(at.reply_to, status);
        }
        if !room || owned.replica.admit(batch.len()).is_err() {
            return self.refuse(at.reply_to, Status::TransientNotAccepted);
        }
        let (op, timestamp) = owned.replica.next(wall);
        let stamp = partition.stage_append(op, Some(identity), messages, producer, timestamp);
        batch::stamp(&mut batch, at.key.partition, stamp.base_offset, stamp.timestamp)
            .expect("the origin verified the batch");
        let durability = partition.settings().durability;
        let lane_op = LaneOp::AppendBatch {
            key: at.key,
            identity: Some(identity),
            base_offset: stamp.base_offset,
            producer,
        };
        owned.waiting.entry(op).or_default().push(client);
        let batch_checksum = batch
            .first_chunk()
            .and_then(|header| BatchHeader::parse(header).ok())
            .expect("a stamped batch has its header")
            .batch_checksum;
        let body = EntryBody { prefix: Bytes::from(lane_op.encode()), batch: batch.freeze(), batch_checksum };
        let proposed = self.propose(wall, at.lane, durability, body);
        assert!(proposed == op, "the op that was staged is the op that was proposed");
    }
}
