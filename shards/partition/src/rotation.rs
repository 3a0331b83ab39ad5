//! Streams follow the keys of the node: in the background, on the shard of the metadata lane, a few at a time.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use laneway_metadata::limits::REWRAPS_PER_OP_MAX;
use laneway_metadata::options::StreamEncryption;
use laneway_metadata::{Metadata, Rewrap};
use laneway_wire::{Op, StreamId};

use crate::clock;
use crate::origin::metadata::Ticket;
use crate::shard::Shard;
use crate::stream_keys::random;

/// How long one op may take before the streams are looked at again.
const OP_MAX: Duration = Duration::from_secs(1);

/// How often the shard looks whether the op was applied. Only while a rotation runs.
const OP_PAUSE: Duration = Duration::from_millis(5);

/// Gives every stream envelopes under the current key, and drops those under retired keys. Ends when nothing is left
/// that can be done; a later start goes on.
pub async fn rotate(shard: Rc<Shard>) {
    let mut stuck = BTreeSet::new();
    let mut rewrapped = 0;
    while !shard.is_stopping() {
        let metadata = shard.metadata();
        let rewraps = plan(&shard, &metadata, &mut stuck);
        if rewraps.is_empty() {
            break;
        }
        let count = rewraps.len();
        if let Some(lane) = shard.lane.borrow_mut().as_mut() {
            lane.rewrap_streams(clock::wall(), rewraps, Ticket::Nobody);
        }
        shard.pump();
        if applied(&shard, metadata.applied()).await {
            rewrapped += count;
        }
    }
    if rewrapped > 0 {
        tracing::info!(streams = rewrapped, "the keys of streams are wrapped under the current key");
    }
}

/// The next streams that need other envelopes. Each stream that cannot get them is named once.
fn plan(shard: &Shard, metadata: &Metadata, stuck: &mut BTreeSet<(StreamId, Op)>) -> Vec<Rewrap> {
    let ring = &shard.settings.keys;
    let mut rewraps = Vec::new();
    for stream in metadata.streams().iter() {
        let StreamEncryption::Sealed(envelopes) = stream.options.encryption() else { continue };
        if ring.is_settled(envelopes) || stuck.contains(&(stream.id, stream.created_op)) {
            continue;
        }
        let Ok(nonce) = random() else { break };
        match ring.rewrap(envelopes, nonce) {
            Ok(new) => rewraps.push(Rewrap {
                stream: stream.id,
                created_op: stream.created_op,
                envelopes: new.to_bytes(),
            }),
            Err(error) => {
                tracing::warn!(stream = %stream.name, %error, "the key of the stream keeps its old envelopes");
                stuck.insert((stream.id, stream.created_op));
            }
        }
        if rewraps.len() == REWRAPS_PER_OP_MAX {
            break;
        }
    }
    rewraps
}

/// Waits for an op after `before`; false when it takes too long or was refused.
async fn applied(shard: &Shard, before: Op) -> bool {
    let started = clock::now();
    while shard.metadata().applied() == before {
        if clock::now() >= started.after_us(OP_MAX.as_micros() as u64) {
            return false;
        }
        compio::time::sleep(OP_PAUSE).await;
    }
    true
}
