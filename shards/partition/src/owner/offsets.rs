//! Stored offsets.

use bytes::Bytes;
use laneway_reads::Nanos;
use laneway_vsr::EntryBody;
use laneway_wire::reply::ConsumerOffset;
use laneway_wire::{Micros, Offset, Status, StreamId, TopicId};

use super::{DiskState, Owner, Pending, Target, Todo, current_offset};
use crate::core::{Admit, ConsumerKey, Identity, LaneOp, StoreMode};

/// Bytes that the entry of an offset takes at most.
const OFFSET_ENTRY_BYTES_MAX: usize = 512;

impl Owner {
    pub(super) fn store_offset(
        &mut self,
        wall: Micros,
        at: Target,
        identity: Identity,
        consumer: ConsumerKey,
        offset: Offset,
    ) {
        let Some(partition) = self.lanes.get(&at.lane).and_then(|owned| owned.state.get(at.key)) else {
            let status = self.missing(at.lane, at.key);
            return self.refuse(at.reply_to, status);
        };
        let admit = partition.admit_store_offset(Some(&identity), &consumer, offset, wall);
        let lane_op = LaneOp::StoreOffset {
            key: at.key,
            identity: Some(identity),
            consumer,
            offset,
            mode: StoreMode::Explicit,
        };
        self.change_offset(wall, at, identity, admit, lane_op);
    }

    pub(super) fn delete_offset(
        &mut self,
        now: Nanos,
        wall: Micros,
        at: Target,
        identity: Identity,
        consumer: ConsumerKey,
    ) {
        let partition = self.lanes.get_mut(&at.lane).and_then(|owned| owned.state.get_mut(at.key));
        let Some(partition) = partition else {
            let status = self.missing(at.lane, at.key);
            return self.refuse(at.reply_to, status);
        };
        let admit = partition.admit_delete_offset(Some(&identity), &consumer, wall, now);
        let lane_op = LaneOp::DeleteOffset { key: at.key, identity: Some(identity), consumer };
        self.change_offset(wall, at, identity, admit, lane_op);
    }

    fn change_offset(&mut self, wall: Micros, at: Target, identity: Identity, admit: Admit, lane_op: LaneOp) {
        // Only the confirmation of a send names stream and topic.
        let (stream, topic) = (StreamId(0), TopicId(0));
        let owned = self.lanes.get_mut(&at.lane).expect("the caller found the lane in this turn");
        match admit {
            Admit::New => {}
            Admit::Replay(receipt) => {
                return self.answer_receipt(at.reply_to, stream, topic, at.key, &receipt);
            }
            Admit::InFlight(_) if self.disk == DiskState::Broken => {
                return self.refuse(at.reply_to, Status::TransientNotCommitted);
            }
            Admit::InFlight(op) => {
                let client = Pending::Client { reply_to: at.reply_to, stream, topic };
                owned.waiting.entry(op).or_default().push(client);
                return;
            }
            Admit::Refuse(status) => return self.refuse(at.reply_to, status),
        }
        if let Some(status) = self.disk.refuses_changes() {
            return self.refuse(at.reply_to, status);
        }
        if owned.replica.admit(OFFSET_ENTRY_BYTES_MAX).is_err() {
            return self.refuse(at.reply_to, Status::TransientNotAccepted);
        }
        let (op, _) = owned.replica.next(wall);
        let partition = owned.state.get_mut(at.key).expect("the caller found the partition in this turn");
        match &lane_op {
            LaneOp::StoreOffset { consumer, .. } => {
                partition.stage_store_offset(op, Some(identity), consumer)
            }
            LaneOp::DeleteOffset { consumer, .. } => {
                partition.stage_delete_offset(op, Some(identity), consumer);
            }
            _ => unreachable!("offsets are changed by these two"),
        }
        let durability = partition.settings().offset_durability;
        let client = Pending::Client { reply_to: at.reply_to, stream, topic };
        owned.waiting.entry(op).or_default().push(client);
        self.propose(wall, at.lane, durability, EntryBody::operation(Bytes::from(lane_op.encode())));
    }

    pub(super) fn get_offset(&mut self, at: Target, consumer: &ConsumerKey) {
        let Some(partition) = self.lanes.get(&at.lane).and_then(|owned| owned.state.get(at.key)) else {
            let status = self.missing(at.lane, at.key);
            return self.refuse(at.reply_to, status);
        };
        let stored = partition.stored_offset(consumer).map(|stored_offset| ConsumerOffset {
            partition: at.key.partition,
            current_offset: current_offset(partition.head()),
            stored_offset,
        });
        let frame = at.reply_to.echo.read(self.metadata.applied(), |out| {
            if let Some(stored) = stored {
                laneway_wire::reply::Record::put(&stored, out);
            }
        });
        self.todo.push_back(Todo::Answer(at.reply_to, Some(frame)));
    }
}
