//! Checkpoints: of this replica, and of others when the log cannot bridge the gap. The session that fetches one is beside
//! the replica.

use laneway_wire::{Micros, Op, ReplicaId};

use super::{Replica, Status};
use crate::event::Effect;
use crate::marks::mark;
use crate::message::TransferMessage;
use crate::vote::{CheckpointId, WINDOW_OPS_MAX};

impl Replica {
    /// The state through an op is durable outside of the log.
    pub(super) fn on_checkpointed(&mut self, checkpoint: CheckpointId) {
        if checkpoint.op <= self.checkpoint.op {
            return;
        }
        let lane = self.config.lane;
        assert!(checkpoint.op <= self.commit_min, "lane {lane}: a checkpoint of what is not applied");
        assert!(
            self.slots.identity(checkpoint.op).is_none_or(|identity| identity == checkpoint.identity),
            "lane {lane}: a checkpoint under another name than op {}",
            checkpoint.op
        );
        self.checkpoint = checkpoint;
        let number = self.save();
        // The anchor of a later vote stays, and a window below it for those who are a little behind (V92).
        let below = Op(checkpoint.op.0.saturating_sub(WINDOW_OPS_MAX as u64));
        self.effects.push_back(Effect::Trim { below, after: number });
    }

    /// Gives up on the log and fetches a checkpoint.
    pub(super) fn start_transfer(&mut self) {
        mark!("state transfer started");
        self.transferring = true;
        self.ahead.clear();
        self.repair.forget();
        self.reading.clear();
        self.effects.push_back(Effect::StartTransfer { at_least: self.commit_min.next() });
    }

    pub(super) fn on_transfer_failed(&mut self) {
        mark!("state transfer failed");
        self.transferring = false;
        self.repair.progress_at = self.now;
        self.apply_ready();
        self.acknowledge();
    }

    /// A checkpoint of another replica is in place. Source: V91, V93, V95.
    pub(super) fn on_checkpoint_installed(&mut self, checkpoint: CheckpointId, timestamp: Micros) {
        self.transferring = false;
        self.repair.progress_at = self.now;
        if checkpoint.op <= self.commit_min {
            mark!("installed checkpoint is old");
            return;
        }
        mark!("checkpoint installed");
        self.slots.install(Replica::anchor_of(checkpoint));
        self.checkpoint = checkpoint;
        (self.commit_min, self.applying) = (checkpoint.op, checkpoint.op);
        self.commit_max = self.commit_max.max(checkpoint.op);
        self.timestamp_last = self.timestamp_last.max(timestamp);
        self.reading.clear();
        self.ahead.retain(|op, _| *op > checkpoint.op);
        self.forget_applied_headers();
        self.repair.forget();
        self.syncing = self.config.roster.members().len() > 1;
        self.storage.disk_head = self.storage.disk_head.max(self.slots.head());
        self.storage.acknowledge_after = self.save();
        if matches!(self.status, Status::Normal) {
            self.slots.verify(checkpoint.op);
            self.truncate_disk();
            if self.reconcile() {
                self.drain_ahead();
            }
        }
    }

    pub(super) fn on_transfer_message(&mut self, from: ReplicaId, message: TransferMessage) {
        let effect = match message {
            TransferMessage::GetCheckpoint { .. } | TransferMessage::GetChunk { .. } => {
                let serves = matches!(self.status, Status::Normal | Status::ViewChange) && !self.transferring;
                if !serves {
                    return;
                }
                Effect::ServeTransfer { to: from, message }
            }
            TransferMessage::Checkpoint { .. } | TransferMessage::Chunk { .. } => {
                if !self.transferring {
                    return;
                }
                Effect::DeliverTransfer { from, message }
            }
        };
        self.effects.push_back(effect);
    }
}
