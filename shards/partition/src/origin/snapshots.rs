//! The archive for a bug report (11).

use std::rc::Rc;

use laneway_metadata::permissions::Rule;
use laneway_wire::header::BODY_BYTES_MAX;
use laneway_wire::request::{GetSnapshot, SnapshotType};
use laneway_wire::{Frame, Status};

use crate::connections::Binding;
use crate::message::{Answer, ReplyTo};
use crate::shard::Shard;

impl Shard {
    /// Serves a snapshot. Collected and packed by a thread of its own.
    pub(super) async fn serve_snapshot(
        self: &Rc<Self>,
        reply_to: ReplyTo,
        binding: &Binding,
        frame: &Frame,
    ) -> Result<(), Status> {
        let request = GetSnapshot::parse(&frame.body).map_err(|error| error.status())?;
        self.metadata().permit(binding.user, Rule::Servers)?;
        let mixed = request.types.contains(&SnapshotType::All) && request.types.len() > 1;
        if mixed || request.types.is_empty() {
            return Err(Status::InvalidCommand);
        }
        let call = self.calls.open();
        self.settings
            .snapshots
            .start(request, self.own_post(), call.id())
            .map_err(|_busy| Status::SnapshotFileCompletionFailed)?;
        match call.wait().await {
            Answer::Snapshot(Some(archive)) if archive.len() <= BODY_BYTES_MAX => {
                self.answer(reply_to, |out| out.extend_from_slice(&archive));
                Ok(())
            }
            _ => Err(Status::SnapshotFileCompletionFailed),
        }
    }
}
