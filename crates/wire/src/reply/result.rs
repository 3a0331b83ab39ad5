//! The result section. Source: wire protocol, section 1.8.

use bytes::{BufMut, BytesMut};

use crate::primitive::{DecodeError, Reader};
use crate::status::Status;

/// The section of a success; the payload follows it.
pub const SUCCESS: [u8; 4] = [0; 4];
/// Bytes of a rejection, which has no payload.
pub const REJECTION_BYTES: usize = 12;

/// Appends the section of a success.
pub fn put_success(out: &mut BytesMut) {
    out.put_slice(&SUCCESS);
}

/// The body of a rejection.
///
/// # Panics
/// When `status` is a success.
pub fn rejection(status: Status) -> [u8; REJECTION_BYTES] {
    assert!(!status.is_ok(), "a rejection has a reason");
    let mut body = [0; REJECTION_BYTES];
    body[0] = 1;
    body[8..].copy_from_slice(&status.number().to_le_bytes());
    body
}

/// Appends the body of a rejection.
///
/// # Panics
/// When `status` is a success.
pub fn put_rejection(out: &mut BytesMut, status: Status) {
    out.put_slice(&rejection(status));
}

/// Splits a result-framed body into its outcome and the payload. Only the first entry counts.
pub fn split_result(body: &[u8]) -> Result<(Status, &[u8]), DecodeError> {
    let mut reader = Reader::new(body);
    let count = reader.u32("result count")?;
    let mut status = Status::Ok;
    for entry in 0..count {
        // A body that is shorter than its count ends the loop; the count alone reserves nothing.
        reader.u32("result index")?;
        let code = reader.u32("result code")?;
        if entry == 0 {
            status = Status::from_number(code);
        }
    }
    Ok((status, reader.rest()))
}
