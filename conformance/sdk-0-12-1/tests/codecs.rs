//! Our codecs against the published protocol crate of 0.12.1.

use iggy_binary_protocol::PartitionContext;
use iggy_binary_protocol::responses::topics::PartitionResponse;
use laneway_wire::ProtocolVersion;

#[path = "../../suite/codecs.rs"]
mod codecs;

const VERSION: ProtocolVersion = ProtocolVersion::V0_12_1;
/// What the partitions of [`partition`] say about their replicas.
const PARTITION_MEMBERS: &[u8] = &[];

fn partition(id: u32) -> PartitionResponse {
    PartitionResponse {
        id,
        created_at: 1_700_000_000_000_000,
        segments_count: 1,
        current_offset: id.into(),
        size_bytes: 3,
        messages_count: 4,
        context: PartitionContext { incarnation: 5, owner_generation: 0, metadata_op: 6 },
    }
}
