//! Batches out and in.

use laneway_wire::batch::{BatchBuilder, ProducerSection, records};
use laneway_wire::reply::{PollHead, PollReply, parse_confirmations};
use laneway_wire::request::{
    DeferredPoll, DeleteConsumerOffset, GetConsumerOffset, PollMessages, Request, SendMessages,
    StoreConsumerOffset, encode_frame,
};
use laneway_wire::{
    Consumer, ConsumerKind, Identifier, Micros, Offset, Operation, Partitioning, RequestHeader, Strategy,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::client::{Client, Place, Reply, Sent, u32_at, u64_at};

/// What producers say about the time of a message; years away from the broker's clock, so that the two cannot be mixed up.
pub const ORIGIN: u64 = 1_000_000_000_000_000;

/// A batch of these payloads. Message `n` says that it was made `n` microseconds after [`ORIGIN`].
pub fn batch<P: AsRef<[u8]>>(payloads: &[P], producer: Option<ProducerSection>) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    if let Some(producer) = producer {
        builder.producer(producer).expect("a producer section in range");
    }
    for (index, payload) in payloads.iter().enumerate() {
        let index = index as u64;
        builder
            .push(u128::from(index) + 1, Micros(ORIGIN + index), payload.as_ref(), &[])
            .expect("a message in its limits");
    }
    builder.finish().expect("a batch").to_vec()
}

impl Client {
    /// A send of any bytes as its batch.
    pub fn send_frame_of(
        &self,
        place: &Place,
        partitioning: Partitioning<'_>,
        count: u32,
        batch: &[u8],
    ) -> Sent {
        let metadata = SendMessages {
            stream: place.stream(),
            topic: place.topic(),
            partitioning,
            messages_count: count,
            batch_at: 0,
        };
        let sent = self.frame_at(place, &metadata);
        let body = [sent.body(), batch].concat();
        sent.with_body(&body)
    }

    pub fn send_frame<P: AsRef<[u8]>>(&self, place: &Place, payloads: &[P]) -> Sent {
        let partitioning = Partitioning::Partition(place.partition);
        self.send_frame_of(place, partitioning, payloads.len() as u32, &batch(payloads, None))
    }

    pub fn produce_frame<P: AsRef<[u8]>>(
        &self,
        place: &Place,
        payloads: &[P],
        producer: ProducerSection,
    ) -> Sent {
        let partitioning = Partitioning::Partition(place.partition);
        self.send_frame_of(place, partitioning, payloads.len() as u32, &batch(payloads, Some(producer)))
    }

    /// Appends and gives the offset of the first message.
    #[track_caller]
    pub fn append<P: AsRef<[u8]>>(&mut self, place: &Place, payloads: &[P]) -> u64 {
        let sent = self.send_frame(place, payloads);
        confirmed(&self.exchange(&sent), place)
    }

    #[track_caller]
    pub fn poll(&mut self, place: &Place, poll: Poll<'_>) -> Polled {
        let sent = self.poll_frame(place, poll);
        Polled::read(&self.exchange(&sent), place)
    }

    /// The status of a poll that must not be served.
    #[track_caller]
    pub fn poll_status(&mut self, place: &Place, poll: Poll<'_>) -> u32 {
        let sent = self.poll_frame(place, poll);
        let reply = self.exchange(&sent);
        assert_eq!(reply.body(), [0; 0]);
        reply.status()
    }

    pub fn poll_frame(&self, place: &Place, poll: Poll<'_>) -> Sent {
        let Poll { consumer, strategy, count, commit, code, .. } = poll;
        let read = PollMessages {
            consumer,
            stream: place.stream(),
            topic: place.topic(),
            partition: Some(place.partition),
            strategy,
            count,
            auto_commit: commit,
        };
        if code == 100 {
            return self.frame_at(place, &read);
        }
        let Poll { wait_us, min_count, max_bytes, timeout_us, .. } = poll;
        let request_timeout_us = timeout_us.unwrap_or(wait_us + 10_000_000);
        // The fields may break their rules on purpose, so they are not encoded by the type that checks them.
        let sent = self.frame_at(place, &read);
        let body = [
            sent.body(),
            &wait_us.to_le_bytes(),
            &min_count.to_le_bytes(),
            &max_bytes.to_le_bytes(),
            &request_timeout_us.to_le_bytes(),
        ]
        .concat();
        let code = <DeferredPoll<'_> as Request>::CODE.number();
        sent.with_body(&body).with(crate::client::AT_CODE, &code.to_le_bytes())
    }

    pub fn store_frame(&self, place: &Place, consumer: Consumer<'_>, offset: u64) -> Sent {
        let store = StoreConsumerOffset {
            consumer,
            stream: place.stream(),
            topic: place.topic(),
            partition: Some(place.partition),
            offset: Offset(offset),
            ack: Default::default(),
        };
        self.frame_at(place, &store)
    }

    #[track_caller]
    pub fn store(&mut self, place: &Place, consumer: Consumer<'_>, offset: u64) {
        let sent = self.store_frame(place, consumer, offset);
        let reply = self.exchange(&sent);
        assert_eq!(
            (reply.is_committed(), reply.body()),
            (true, &[0; 4][..]),
            "a store: {:?}",
            reply.header()
        );
    }

    pub fn delete_offset_frame(&self, place: &Place, consumer: Consumer<'_>) -> Sent {
        let delete = DeleteConsumerOffset {
            consumer,
            stream: place.stream(),
            topic: place.topic(),
            partition: Some(place.partition),
            ack: Default::default(),
        };
        self.frame_at(place, &delete)
    }

    #[track_caller]
    pub fn delete_offset(&mut self, place: &Place, consumer: Consumer<'_>) -> Reply {
        let sent = self.delete_offset_frame(place, consumer);
        self.exchange(&sent)
    }

    pub fn get_offset_frame(&self, place: &Place, consumer: Consumer<'_>) -> Sent {
        let get = GetConsumerOffset {
            consumer,
            stream: place.stream(),
            topic: place.topic(),
            partition: Some(place.partition),
        };
        self.frame_at(place, &get)
    }

    /// The stored offset of a consumer, by its 20 bytes or none.
    #[track_caller]
    pub fn stored(&mut self, place: &Place, consumer: Consumer<'_>) -> Option<u64> {
        let sent = self.get_offset_frame(place, consumer);
        let reply = self.exchange(&sent);
        stored_in(&reply, place)
    }
}

#[track_caller]
pub fn stored_in(reply: &Reply, place: &Place) -> Option<u64> {
    let body = reply.payload();
    if body.is_empty() {
        return None;
    }
    assert_eq!(body.len(), 20);
    assert_eq!(crate::client::u32_at(body, 0), place.partition.0);
    Some(crate::client::u64_at(body, 12))
}

/// The base offset of a confirmation, whose every byte is checked.
#[track_caller]
pub fn confirmed(reply: &Reply, place: &Place) -> u64 {
    assert_eq!(reply.outcome(), 0, "{:?}", reply.header());
    assert!(reply.is_committed());
    assert_eq!(reply.header().request_checksum, 0);
    let confirmations = parse_confirmations(reply.body()).expect("confirmations");
    assert_eq!(confirmations.len(), 1);
    assert_eq!(confirmations[0].partition, place.partition);
    confirmations[0].base_offset.0
}

pub fn numbered(id: u32) -> Consumer<'static> {
    Consumer { kind: ConsumerKind::Consumer, id: Identifier::Numeric(id) }
}

pub fn named(name: &str) -> Consumer<'_> {
    Consumer { kind: ConsumerKind::Consumer, id: Identifier::Name(name) }
}

/// A poll with the defaults of the reference client.
#[derive(Clone, Copy, Debug)]
pub struct Poll<'a> {
    pub code: u32,
    pub consumer: Consumer<'a>,
    pub strategy: Strategy,
    pub count: u32,
    pub commit: bool,
    pub wait_us: u64,
    pub min_count: u32,
    pub max_bytes: u32,
    /// None: ten seconds above the wait.
    pub timeout_us: Option<u64>,
}

impl Poll<'static> {
    /// A deferred poll that does not wait.
    pub fn new(strategy: Strategy) -> Self {
        Poll {
            code: 106,
            consumer: numbered(1),
            strategy,
            count: 1000,
            commit: false,
            wait_us: 0,
            min_count: 1,
            max_bytes: 1 << 20,
            timeout_us: None,
        }
    }

    pub fn offset(offset: u64) -> Self {
        Self::new(Strategy::Offset(Offset(offset)))
    }

    pub fn next() -> Self {
        Self::new(Strategy::Next)
    }
}

impl<'a> Poll<'a> {
    pub fn code(self, code: u32) -> Self {
        Self { code, ..self }
    }

    pub fn by<'b>(self, consumer: Consumer<'b>) -> Poll<'b> {
        let Poll { code, strategy, count, commit, wait_us, min_count, max_bytes, timeout_us, .. } = self;
        Poll { code, consumer, strategy, count, commit, wait_us, min_count, max_bytes, timeout_us }
    }

    pub fn count(self, count: u32) -> Self {
        Self { count, ..self }
    }

    pub fn commit(self) -> Self {
        Self { commit: true, ..self }
    }

    pub fn wait_ms(self, wait_ms: u64) -> Self {
        Self { wait_us: wait_ms * 1000, ..self }
    }

    pub fn min_count(self, min_count: u32) -> Self {
        Self { min_count, ..self }
    }

    pub fn max_bytes(self, max_bytes: u32) -> Self {
        Self { max_bytes, ..self }
    }

    pub fn timeout_us(self, timeout_us: u64) -> Self {
        Self { timeout_us: Some(timeout_us), ..self }
    }
}

/// A message as a consumer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub offset: u64,
    pub payload: Vec<u8>,
    /// When the broker appended its batch.
    pub timestamp: u64,
    /// When its producer made it.
    pub origin: u64,
    /// Offset of the first message of its stored batch.
    pub base_offset: u64,
}

/// The answer to a poll.
#[derive(Clone, Debug)]
pub struct Polled {
    pub head: PollHead,
    pub messages: Vec<Got>,
    pub body_bytes: usize,
}

impl Polled {
    /// Reads an answer and checks what holds for each: R19, R20, R31, R33, and that no producer section is served.
    #[track_caller]
    pub fn read(reply: &Reply, place: &Place) -> Self {
        assert_eq!(reply.status(), 0, "{:?}", reply.header());
        assert!(!reply.is_committed(), "a read proves no commit");
        let poll = PollReply::parse(reply.body()).expect("head and records");
        assert_eq!(poll.head.partition, place.partition);
        assert_eq!(poll.head.context.incarnation, place.incarnation, "R14, R33");
        assert_eq!(poll.head.context.owner_generation.0, 0, "R33");
        assert!(poll.head.context.metadata_op >= place.metadata_op, "R33");
        let mut messages = Vec::new();
        for record in records(poll.records) {
            let record = record.expect("a record");
            assert_checksums(record.bytes);
            assert!(record.bytes[52..256].iter().all(|byte| *byte == 0), "no producer section");
            assert_eq!(record.header.partition_id, u64::from(place.partition.0));
            for message in record.messages() {
                let message = message.expect("a frame");
                messages.push(Got {
                    offset: record.header.base_offset.0 + u64::from(message.offset_delta),
                    payload: message.payload.to_vec(),
                    timestamp: record.header.base_timestamp.0,
                    origin: record.origin_timestamp_of(&message).0,
                    base_offset: record.header.base_offset.0,
                });
            }
        }
        assert_eq!(poll.head.messages_count as usize, messages.len());
        assert!(messages.windows(2).all(|pair| pair[0].offset + 1 == pair[1].offset), "R20");
        if let Some(last) = messages.last() {
            assert!(poll.head.current_offset.0 >= last.offset, "R31");
        }
        Self { head: poll.head, messages, body_bytes: reply.body().len() }
    }

    pub fn offsets(&self) -> Vec<u64> {
        self.messages.iter().map(|message| message.offset).collect()
    }

    pub fn payloads(&self) -> Vec<String> {
        let text = |message: &Got| String::from_utf8(message.payload.clone()).expect("text");
        self.messages.iter().map(text).collect()
    }
}

/// Computes the checksums of a record anew, from the bytes alone. Source: wire protocol, sections 4.2 and 4.3.
#[track_caller]
pub fn assert_checksums(record: &[u8]) {
    let mut covered = [&record[..40], &record[48..52]].concat();
    let mut at = 256;
    while at < record.len() {
        let end = at + 48 + (u32_at(record, at + 32) + u32_at(record, at + 36)) as usize;
        assert_eq!(u64_at(record, at), xxh3_64(&record[at + 8..end]), "the checksum of the message at {at}");
        covered.extend_from_slice(&record[at..at + 8]);
        at = end;
    }
    assert_eq!(at, record.len(), "frames tile the record");
    assert_eq!(u64_at(record, 40), xxh3_64(&covered), "the checksum of the batch");
}

/// A header alone, for frames whose body is made by hand.
pub fn header_of(operation: Operation, client: laneway_wire::ClientId) -> RequestHeader {
    RequestHeader::new(operation, client, 0)
}

/// A whole frame of a request under a header.
pub fn frame_of<R: Request>(header: &RequestHeader, request: &R) -> Sent {
    Sent { bytes: encode_frame(header, request).expect("a request that can be encoded").to_vec() }
}
