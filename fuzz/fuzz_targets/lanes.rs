//! What the lanes log and checkpoint: ops of partitions, commands of the metadata lane, and both kinds of snapshot.
#![no_main]

use laneway_metadata::{Command, Metadata};
use laneway_partition::{LaneLimits, LaneOp, LaneState};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(op) = LaneOp::decode(bytes) {
        assert_eq!(LaneOp::decode(&op.encode()), Ok(op));
    }
    if let Ok(state) = LaneState::from_checkpoint(bytes, LaneLimits::default()) {
        let again = state.to_checkpoint().expect("nothing of a checkpoint is in memory only");
        assert!(LaneState::from_checkpoint(&again, LaneLimits::default()).is_ok());
    }
    if let Ok(command) = Command::from_bytes(bytes) {
        assert_eq!(Command::from_bytes(&command.to_bytes()).ok(), Some(command));
    }
    if let Ok(metadata) = Metadata::from_snapshot(bytes) {
        assert!(Metadata::from_snapshot(&metadata.to_snapshot()).is_ok());
    }
});
