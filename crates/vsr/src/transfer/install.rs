//! Putting a fetched checkpoint in place. Each step is durable before the next begins, so that a crash anywhere leads to
//! the old state or to the new one and never to a mixture (V91).

use crate::superblock::Superblock;
use crate::vote::CheckpointId;

/// The steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstallStep {
    /// Flush the staged artifacts and their directory.
    SyncStaged,
    /// Write down which checkpoint is being installed.
    WriteIntent,
    /// Superblock: the checkpoint is the target, its ops are being replaced.
    MarkSuperblock,
    /// Move staged files to their places, remove what they replace, flush the directories. May be done again.
    PlaceFiles,
    /// Superblock: nothing is being replaced any more.
    ClearSuperblock,
    /// Exchange the state in memory, all of it in one step.
    SwapState,
    /// Drop the log below the checkpoint, and above it what does not follow from it.
    TrimLog,
    /// Remove the intent and what is left in staging.
    RemoveIntent,
}

impl InstallStep {
    /// Every step.
    pub const ALL: [InstallStep; 8] = [
        InstallStep::SyncStaged,
        InstallStep::WriteIntent,
        InstallStep::MarkSuperblock,
        InstallStep::PlaceFiles,
        InstallStep::ClearSuperblock,
        InstallStep::SwapState,
        InstallStep::TrimLog,
        InstallStep::RemoveIntent,
    ];

    /// The step after this one.
    pub fn next(self) -> Option<InstallStep> {
        let place = InstallStep::ALL.iter().position(|step| *step == self)?;
        InstallStep::ALL.get(place + 1).copied()
    }
}

/// What a start has to do about an install that a crash interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Nothing was begun, or nothing that counts: the old state is whole. Staged files may be kept for another attempt;
    /// an intent without its superblock is removed.
    OldState,
    /// Go on from this step with the checkpoint of the intent.
    From(InstallStep),
}

/// Why a start cannot go on: the files contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the superblock says that a checkpoint at op {} is being installed, and nothing says from where", self.checkpoint.op)]
pub struct LostIntent {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
}

/// Decides from what is durable. `intent` is the checkpoint that the intent record names.
pub fn resume(intent: Option<CheckpointId>, superblock: &Superblock) -> Result<Resume, LostIntent> {
    let target = superblock.checkpoint.id;
    match (intent, superblock.sync) {
        (None, None) => Ok(Resume::OldState),
        (None, Some(_)) => Err(LostIntent { checkpoint: target }),
        // The superblock was not marked: the old files are all in place.
        (Some(intent), None) if intent != target => Ok(Resume::OldState),
        // Marked and cleared: the new files are all in place.
        (Some(_), None) => Ok(Resume::From(InstallStep::SwapState)),
        (Some(intent), Some(_)) if intent == target => Ok(Resume::From(InstallStep::PlaceFiles)),
        (Some(_), Some(_)) => Err(LostIntent { checkpoint: target }),
    }
}

#[cfg(test)]
mod tests {
    use laneway_wire::{LaneId, Op, ReplicaId};

    use super::*;
    use crate::header::{ClusterId, DiskId, Identity};
    use crate::roster::Roster;
    use crate::superblock::{BootId, CheckpointRef, Identification, SyncRange};

    const OLD: CheckpointId = CheckpointId { op: Op(10), identity: Identity(10) };
    const NEW: CheckpointId = CheckpointId { op: Op(90), identity: Identity(90) };

    /// What is durable: the files of a state, the intent, the superblock.
    #[derive(Clone, Debug)]
    struct Durable {
        /// Old and new files in place.
        files: (bool, bool),
        intent: Option<CheckpointId>,
        superblock: Superblock,
    }

    fn start() -> Durable {
        let who = Identification {
            cluster: ClusterId(1),
            disk: DiskId(1),
            lane: LaneId(1),
            replica: ReplicaId(0),
            nodes: 3,
        };
        let mut superblock = Superblock::fresh(who, Roster::initial(LaneId(1), 3).unwrap(), BootId(1));
        superblock.commit_max = Op(95);
        superblock.checkpoint = CheckpointRef { id: OLD, ..Default::default() };
        Durable { files: (true, false), intent: None, superblock }
    }

    fn perform(durable: &mut Durable, step: InstallStep) {
        match step {
            InstallStep::SyncStaged | InstallStep::SwapState | InstallStep::TrimLog => {}
            InstallStep::WriteIntent => durable.intent = Some(NEW),
            InstallStep::MarkSuperblock => {
                durable.superblock.checkpoint.id = NEW;
                durable.superblock.sync = Some(SyncRange { first: Op(11), last: Op(90) });
            }
            InstallStep::PlaceFiles => durable.files = (false, true),
            InstallStep::ClearSuperblock => durable.superblock.sync = None,
            InstallStep::RemoveIntent => durable.intent = None,
        }
    }

    /// V91: a crash before any step, and in the middle of placing files, then another one at any step of what the restart
    /// does.
    #[test]
    fn a_crash_at_any_step_leads_to_the_old_or_the_new_state() {
        for first in 0..=InstallStep::ALL.len() {
            for second in 0..=InstallStep::ALL.len() {
                let mut durable = start();
                for step in &InstallStep::ALL[..first] {
                    perform(&mut durable, *step);
                }
                if InstallStep::ALL.get(first) == Some(&InstallStep::PlaceFiles) {
                    durable.files = (false, false);
                }
                recover(&mut durable, second);
                recover(&mut durable, usize::MAX);
                let checkpoint = durable.superblock.checkpoint.id;
                let files = if checkpoint == NEW { (false, true) } else { (true, false) };
                assert_eq!((durable.files, durable.superblock.sync), (files, None), "{first} {second}");
                assert_eq!(checkpoint == NEW, first > 2, "{first}");
            }
        }
    }

    fn recover(durable: &mut Durable, crash_after: usize) {
        let mut next = match resume(durable.intent, &durable.superblock).expect("no file is lost") {
            Resume::OldState => {
                durable.intent = None;
                None
            }
            Resume::From(step) => Some(step),
        };
        let mut done = 0;
        while let Some(step) = next.filter(|_| done < crash_after) {
            perform(durable, step);
            next = step.next();
            done += 1;
        }
    }

    #[test]
    fn a_mark_without_its_intent_is_refused() {
        let mut durable = start();
        perform(&mut durable, InstallStep::MarkSuperblock);
        assert_eq!(resume(None, &durable.superblock), Err(LostIntent { checkpoint: NEW }));
        assert_eq!(resume(Some(OLD), &durable.superblock), Err(LostIntent { checkpoint: NEW }));
    }
}
