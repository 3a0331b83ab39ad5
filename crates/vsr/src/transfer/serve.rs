//! Giving a checkpoint away. Any member in normal status or in a view change may, and none owes it: a busy one says so.

use laneway_wire::Nanos;

use super::CHUNK_BYTES;
use crate::message::{CheckpointOffer, Nonce, TransferMessage};

/// What to do about a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Answer with this.
    Answer(TransferMessage),
    /// Read these bytes of an artifact, check them as every read is checked, and answer with a chunk.
    Read {
        /// To pair the answer.
        nonce: Nonce,
        /// Number of the artifact in the offer.
        artifact: u32,
        /// Where.
        offset: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// Say nothing: the question is not about what is held here, or asks for more than there is.
    Nothing,
}

/// Plans the answer. `held` is the durable checkpoint of this replica that may be given away now.
pub fn plan(held: Option<&CheckpointOffer>, question: &TransferMessage) -> Serving {
    match *question {
        TransferMessage::GetCheckpoint { nonce, commit_min } => {
            // Who has applied more than the checkpoint holds is told that there is none for it.
            let offer = held.filter(|offer| offer.checkpoint.op >= commit_min).cloned().map(Box::new);
            Serving::Answer(TransferMessage::Checkpoint { nonce, offer })
        }
        TransferMessage::GetChunk { nonce, checkpoint, artifact, offset, bytes } => {
            let described = held
                .filter(|offer| offer.checkpoint == checkpoint)
                .and_then(|offer| offer.artifacts.get(artifact as usize));
            let wanted = u64::from(bytes);
            match described {
                Some(described)
                    if (1..=CHUNK_BYTES).contains(&wanted)
                        && offset.checked_add(wanted).is_some_and(|end| end <= described.bytes) =>
                {
                    Serving::Read { nonce, artifact, offset, bytes }
                }
                _ => Serving::Nothing,
            }
        }
        TransferMessage::Checkpoint { .. } | TransferMessage::Chunk { .. } => Serving::Nothing,
    }
}

/// Bytes that a node may give away, refilled with time: whoever catches up must not slow down those who work.
#[derive(Clone, Copy, Debug)]
pub struct ServeBudget {
    bytes_per_second: u64,
    bytes: u64,
    refilled: Nanos,
}

impl ServeBudget {
    /// Default rate. Source: cluster specification, 2.13.
    pub const BYTES_PER_SECOND: u64 = 100 * 1024 * 1024;

    /// A full budget of one second.
    pub fn new(now: Nanos, bytes_per_second: u64) -> ServeBudget {
        ServeBudget { bytes_per_second, bytes: bytes_per_second, refilled: now }
    }

    /// Takes bytes, or says when there may be enough. What exceeds a whole second is taken from a full budget.
    pub fn take(&mut self, now: Nanos, bytes: u64) -> Result<(), Nanos> {
        let elapsed_us = now.us_since(self.refilled).min(1_000_000);
        self.bytes = (self.bytes + self.bytes_per_second * elapsed_us / 1_000_000).min(self.bytes_per_second);
        self.refilled = now;
        let price = bytes.min(self.bytes_per_second);
        match self.bytes.checked_sub(price) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => {
                let missing = price - self.bytes;
                Err(now.after_us((missing * 1_000_000).div_ceil(self.bytes_per_second.max(1))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use laneway_wire::Op;

    use super::*;
    use crate::header::Identity;
    use crate::message::Artifact;
    use crate::vote::CheckpointId;

    fn held() -> CheckpointOffer {
        CheckpointOffer {
            checkpoint: CheckpointId { op: Op(50), identity: Identity(5) },
            commit_max: Op(60),
            artifacts: vec![Artifact { kind: 1, name: 0, bytes: 3 * CHUNK_BYTES, hash: 9 }],
        }
    }

    #[test]
    fn only_what_is_held_is_given() {
        let held = held();
        let ask = |checkpoint, artifact, offset, bytes| {
            let nonce = Nonce(7);
            plan(Some(&held), &TransferMessage::GetChunk { nonce, checkpoint, artifact, offset, bytes })
        };
        let chunk = CHUNK_BYTES as u32;
        let last = 2 * CHUNK_BYTES;
        assert_eq!(
            ask(held.checkpoint, 0, last, chunk),
            Serving::Read { nonce: Nonce(7), artifact: 0, offset: last, bytes: chunk }
        );
        assert_eq!(ask(held.checkpoint, 0, last + 1, chunk), Serving::Nothing, "beyond the end");
        assert_eq!(ask(held.checkpoint, 0, u64::MAX, chunk), Serving::Nothing);
        assert_eq!(ask(held.checkpoint, 0, 0, chunk + 1), Serving::Nothing, "more than a chunk");
        assert_eq!(ask(held.checkpoint, 0, 0, 0), Serving::Nothing, "nothing is no progress");
        assert_eq!(ask(held.checkpoint, 1, 0, chunk), Serving::Nothing);
        let other = CheckpointId { op: Op(50), identity: Identity(6) };
        assert_eq!(ask(other, 0, 0, chunk), Serving::Nothing, "another checkpoint");
    }

    #[test]
    fn a_checkpoint_is_offered_to_whom_it_helps() {
        let ask = |held: Option<&CheckpointOffer>, commit_min| {
            plan(held, &TransferMessage::GetCheckpoint { nonce: Nonce(1), commit_min: Op(commit_min) })
        };
        let answer = |offer| Serving::Answer(TransferMessage::Checkpoint { nonce: Nonce(1), offer });
        assert_eq!(ask(Some(&held()), 50), answer(Some(Box::new(held()))));
        assert_eq!(ask(Some(&held()), 51), answer(None));
        assert_eq!(ask(None, 0), answer(None));
    }

    #[test]
    fn a_budget_is_spent_and_comes_back_with_time() {
        let mut budget = ServeBudget::new(Nanos(0), 1_000);
        assert_eq!(budget.take(Nanos(0), 900), Ok(()));
        assert_eq!(budget.take(Nanos(0), 600), Err(Nanos(500_000_000)));
        assert_eq!(budget.take(Nanos(500_000_000), 600), Ok(()));
        assert_eq!(budget.take(Nanos(60_000_000_000), 5_000), Ok(()), "larger than a second's share");
        assert!(budget.take(Nanos(60_000_000_000), 1).is_err(), "an idle minute saves up one second only");
    }
}
