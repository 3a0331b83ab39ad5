//! Streams with a key: what is ordered holds envelopes, never the key.

use laneway_encryption::KeyRing;
use laneway_metadata::Mutation;
use laneway_metadata::planner::Planner;
use laneway_wire::Status;
use laneway_wire::request::CreateStream;

use crate::stream_keys;

/// Plans the create of a stream, and wipes the request: it may hold a key.
pub(super) fn plan_create(
    planner: &Planner<'_>,
    keys: &KeyRing,
    body: &mut [u8],
) -> Result<Mutation, Status> {
    let planned = match CreateStream::parse(body) {
        Ok(request) => planner
            .create_stream_with(request.name, request.options, |key| stream_keys::wrap_new(keys, key))
            .map_err(|refusal| refusal.status),
        Err(error) => Err(error.status()),
    };
    body.fill(0);
    planned
}
