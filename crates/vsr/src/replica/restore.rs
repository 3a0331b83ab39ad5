//! A replica as it is found on disk.

use laneway_wire::Micros;

use crate::event::{DurableState, SuperblockNumber};
use crate::recovery::RecoveredLog;
use crate::vote::CheckpointId;

/// Everything that a restarted replica knows. Made by the driver from the superblock, the scan of the log and the
/// checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The number of the newest superblock record seen, valid or not; the next one is above it.
    pub superblock: SuperblockNumber,
    /// The content of the newest valid record, with the trust that `recovery::trust` decided.
    pub state: DurableState,
    /// The log, classified, already mended.
    pub log: RecoveredLog,
    /// The state machine has applied through here: the checkpoint, or ops above it that are committed for certain.
    pub applied: CheckpointId,
    /// The timestamp of that op.
    pub timestamp_last: Micros,
}
