//! The keys of encrypted streams as a shard uses them, and the sealing of whole batches.
//!
//! A stream in plain text costs one look at its options. Source: resources, section 16.2.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use laneway_encryption::{
    KEY_BYTES, KeyOrigin, KeyRing, MessageCipher, NONCE_BYTES, SEAL_BYTES, SealedContext, StreamKey,
    TAG_BYTES, WrapSet,
};
use laneway_metadata::Stream;
use laneway_metadata::options::StreamEncryption;
use laneway_wire::batch::{
    Batch, BatchError, BodyLengths, MESSAGE_HEADER_BYTES, PAYLOAD_BYTES_MAX, SEAL_BYTES_MAX, records, rewrite,
};
use laneway_wire::{Op, Status, StreamId};

/// Ciphers that a shard keeps at hand. Above it all are made anew when they are next used.
const CIPHERS_MAX: usize = 4096;

const _: () =
    assert!(SEAL_BYTES == SEAL_BYTES_MAX, "a sealed payload is as long as the wire lets it be stored");

/// What seals and opens the messages of a stream; none in plain text.
pub type StreamCipher = Option<Arc<MessageCipher>>;

/// The ciphers of the streams that a shard met. A stream keeps its key for its life, so one that was made stays right.
#[derive(Debug, Default)]
pub struct StreamKeys {
    /// None for a stream whose key no key of the node opens.
    ciphers: RefCell<HashMap<(StreamId, Op), StreamCipher>>,
}

impl StreamKeys {
    /// The cipher of a stream; none for one in plain text.
    ///
    /// Errors: [`Status::UnsupportedCriticalOption`] for a stream that this node must not serve.
    pub fn cipher(&self, ring: &KeyRing, stream: &Stream) -> Result<StreamCipher, Status> {
        let envelopes = match stream.options.encryption() {
            StreamEncryption::Plain => return Ok(None),
            StreamEncryption::Unreadable => return Err(Status::UnsupportedCriticalOption),
            StreamEncryption::Sealed(envelopes) => envelopes,
        };
        let mut ciphers = self.ciphers.borrow_mut();
        if ciphers.len() >= CIPHERS_MAX {
            ciphers.clear();
        }
        let make = || ring.unwrap(envelopes).map(|key| Arc::new(MessageCipher::new(&key)));
        let cipher = ciphers.entry((stream.id, stream.created_op)).or_insert_with(make);
        cipher.clone().map(Some).ok_or(Status::UnsupportedCriticalOption)
    }
}

/// Makes the envelopes of a new stream: of the key that its creator named, or of one that is drawn now.
///
/// Errors: [`Status::StreamEncryptionUnavailable`] for a key on a node that has none to wrap it with,
/// [`Status::CannotEncryptData`] when the system has no random bytes.
pub fn wrap_new(ring: &KeyRing, named: Option<StreamKey>) -> Result<Option<WrapSet>, Status> {
    let (key, origin) = match named {
        Some(_) if !ring.has_key() => return Err(Status::StreamEncryptionUnavailable),
        Some(key) => (key, KeyOrigin::Client),
        None if !ring.generates() => return Ok(None),
        None => (StreamKey::new(random::<KEY_BYTES>()?), KeyOrigin::Server),
    };
    let nonces = [random()?, random()?, random()?];
    Ok(ring.wrap(&key, origin, &nonces))
}

/// Random bytes of the operating system.
pub fn random<const N: usize>() -> Result<[u8; N], Status> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| Status::CannotEncryptData)?;
    Ok(bytes)
}

/// Seals every message of a verified batch.
///
/// Errors: [`Status::CannotEncryptData`] when the system has no random bytes.
pub fn seal(cipher: &MessageCipher, batch: &[u8], messages: u32) -> Result<BytesMut, Status> {
    let batch = Batch::parse_exact(batch).map_err(|error| error.status())?;
    let mut nonces = vec![0; messages as usize * NONCE_BYTES];
    getrandom::fill(&mut nonces).map_err(|_| Status::CannotEncryptData)?;
    let mut nonces = nonces.as_chunks::<NONCE_BYTES>().0.iter();
    let mut sealed = BytesMut::with_capacity(batch.bytes.len() + messages as usize * SEAL_BYTES);
    rewrite::<BatchError>(&batch, &mut sealed, |message, out| {
        let nonce = *nonces.next().expect("the batch was verified: it holds this many messages");
        let context = SealedContext {
            message_id: message.id,
            payload_bytes: message.payload.len() as u32,
            user_headers_bytes: message.user_headers.len() as u32,
        };
        let at = out.len();
        out.put_bytes(0, NONCE_BYTES);
        out.put_slice(&message.bytes[MESSAGE_HEADER_BYTES..]);
        out.put_bytes(0, TAG_BYTES);
        cipher.seal(nonce, &context, &mut out[at..]);
        Ok(BodyLengths {
            payload: context.payload_bytes + SEAL_BYTES as u32,
            user_headers: context.user_headers_bytes,
        })
    })
    .map_err(|error| error.status())?;
    Ok(sealed)
}

/// Why records that a read found do not open. They are not served in part.
#[derive(Debug, thiserror::Error)]
pub enum Unopened {
    /// Not records.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Not sealed under the stream's key, or damaged.
    #[error("a message does not open under the stream's key")]
    Message,
}

/// Opens the records of a read: what a client sees is what a producer sent.
pub fn open(cipher: &MessageCipher, parts: &[Bytes]) -> Result<Bytes, Unopened> {
    let sealed = parts.concat();
    let mut opened = BytesMut::with_capacity(sealed.len());
    for record in records(&sealed) {
        rewrite(&record?, &mut opened, |message, out| {
            let payload_bytes = message.payload.len().checked_sub(SEAL_BYTES).ok_or(Unopened::Message)?;
            let context = SealedContext {
                message_id: message.id,
                payload_bytes: payload_bytes as u32,
                user_headers_bytes: message.user_headers.len() as u32,
            };
            let at = out.len();
            out.put_slice(&message.bytes[MESSAGE_HEADER_BYTES..]);
            let text_bytes = cipher.open(&context, &mut out[at..]).map_err(|_| Unopened::Message)?.len();
            out.copy_within(at + NONCE_BYTES..at + NONCE_BYTES + text_bytes, at);
            out.truncate(at + text_bytes);
            Ok::<_, Unopened>(BodyLengths {
                payload: context.payload_bytes,
                user_headers: context.user_headers_bytes,
            })
        })?;
    }
    debug_assert!(payloads_are_legal(&opened), "what was sealed was within the limits of a producer");
    Ok(opened.freeze())
}

fn payloads_are_legal(opened: &[u8]) -> bool {
    records(opened).flatten().all(|record| {
        record.messages().flatten().all(|message| (1..=PAYLOAD_BYTES_MAX).contains(&message.payload.len()))
    })
}

#[cfg(test)]
mod tests {
    use laneway_wire::batch::{BatchBuilder, slice, stamp, verify_producer_batch, verify_stored};
    use laneway_wire::{Micros, Offset, PartitionId};
    use proptest::prelude::*;

    use super::*;

    fn cipher(byte: u8) -> MessageCipher {
        MessageCipher::new(&StreamKey::new([byte; 32]))
    }

    fn batch(payloads: &[Vec<u8>]) -> BytesMut {
        let mut builder = BatchBuilder::new();
        for (index, payload) in payloads.iter().enumerate() {
            let headers = vec![3; index % 4];
            builder.push(index as u128, Micros(1000 + index as u64), payload, &headers).unwrap();
        }
        builder.finish().unwrap()
    }

    proptest! {
        #[test]
        fn any_slice_of_a_sealed_batch_opens_to_the_slice_of_the_plain_one(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 1..8),
            from in 0_u64..8,
            count in 1_u32..9,
        ) {
            let messages = payloads.len() as u32;
            let mut plain = batch(&payloads);
            let mut sealed = seal(&cipher(1), &plain, messages).unwrap();
            prop_assert_eq!(sealed.len(), plain.len() + payloads.len() * SEAL_BYTES);
            verify_producer_batch(&sealed, messages).unwrap();
            for batch in [&mut plain, &mut sealed] {
                stamp(batch, PartitionId(3), Offset(10), Micros(5000)).unwrap();
                verify_stored(batch).unwrap();
            }
            let cut = |batch: &BytesMut| {
                let slice = slice(batch, Offset(10 + from), count, usize::MAX)?;
                Some([Bytes::copy_from_slice(&slice.header), Bytes::copy_from_slice(&batch[slice.range])])
            };
            prop_assert_eq!(cut(&plain).is_some(), cut(&sealed).is_some());
            if let (Some(plain), Some(sealed)) = (cut(&plain), cut(&sealed)) {
                prop_assert_eq!(open(&cipher(1), &sealed).unwrap(), plain.concat());
                prop_assert!(matches!(open(&cipher(2), &sealed), Err(Unopened::Message)));
            }
        }
    }

    #[test]
    fn plain_records_do_not_pass_for_sealed_ones() {
        let plain = batch(&[b"short".to_vec(), vec![7; 100]]).freeze();
        assert!(matches!(open(&cipher(1), &[plain]), Err(Unopened::Message)));
    }

    #[test]
    fn two_batches_of_the_same_messages_have_nothing_in_common() {
        let plain = batch(&[vec![7; 64]]);
        let sealed = || seal(&cipher(1), &plain, 1).unwrap();
        let body = |batch: &BytesMut| batch[batch.len() - 64..].to_vec();
        assert_ne!(body(&sealed()), body(&sealed()));
    }
}
