//! What writes get while the disk takes none. Reads go on in any case.
//!
//! Source: `docs/compatibility.md`, a full or broken disk.

use laneway_wire::Status;

use super::{Owner, Pending};

/// What the disk of a shard does with writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskState {
    /// It takes them.
    #[default]
    Sound,
    /// It has no room: messages are refused, what is small and what gives room back is taken.
    Full,
    /// Checkpoints fail, and what they would have freed must not grow: messages are refused.
    Clogged,
    /// A write or a flush of the journal failed: nothing is taken until a restart has found out what is there.
    Broken,
}

impl DiskState {
    /// What a send is refused with.
    pub(super) fn refuses_messages(self) -> Option<Status> {
        match self {
            DiskState::Sound => None,
            DiskState::Full => Some(Status::TopicFull),
            DiskState::Clogged | DiskState::Broken => Some(Status::CannotAppendMessage),
        }
    }

    /// What every other change is refused with.
    pub(super) fn refuses_changes(self) -> Option<Status> {
        (self == DiskState::Broken).then_some(Status::CannotAppendMessage)
    }
}

impl Owner {
    /// The disk is in this state now.
    pub fn set_disk(&mut self, state: DiskState) {
        self.disk = state;
    }

    /// Answers the clients whose ops are on their way through a journal that does not move: whether these will commit is
    /// unknown. One that asks again waits for the same op.
    pub fn answer_unknown(&mut self) {
        let mut clients = Vec::new();
        for owned in self.lanes.values_mut() {
            for waiting in owned.waiting.values_mut() {
                waiting.retain(|pending| match pending {
                    Pending::Client { reply_to, .. } => {
                        clients.push(*reply_to);
                        false
                    }
                    Pending::Lifecycle(_) => true,
                });
            }
        }
        for reply_to in clients {
            self.refuse(reply_to, Status::TransientNotCommitted);
        }
    }
}
