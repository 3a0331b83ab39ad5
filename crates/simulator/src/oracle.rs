//! What must hold over a whole cluster, checked while it runs. The oracle sees what no node can: every apply on every
//! node, every answer to every client, every vote.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use laneway_metadata::{Answer as MetadataAnswer, CommittedReply, Metadata, Outcome};
use laneway_partition::{Applied, ConsumerKey, LaneOp, Receipt, StoreMode};
use laneway_vsr::{Entry, Header, View};
use laneway_wire::{ClientId, Op, PartitionKey, RequestNumber, SessionEpoch};
use xxhash_rust::xxh3::xxh3_64;

use crate::machine::Done;

/// What was found wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// Fails with a [`Violation`] unless a condition holds.
#[macro_export]
macro_rules! hold {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err($crate::oracle::Violation(format!($($text)*)));
        }
    };
}

/// A request as everybody names it.
pub type RequestKey = (ClientId, SessionEpoch, RequestNumber);

/// What an op did, where it was applied first.
#[derive(Clone, Debug)]
enum Outcomes {
    Metadata { outcome: Outcome, places: u64 },
    Data { digest: u64, receipt: Option<Receipt> },
}

#[derive(Clone, Debug)]
struct OpRecord {
    header: Header,
    outcome: Outcomes,
}

/// What one partition must hold.
#[derive(Clone, Debug, Default)]
struct PartitionModel {
    /// The numbers of its messages by offset.
    messages: Vec<u128>,
    /// The values that each consumer's stored offset had, with the ops from which it had them.
    stored: BTreeMap<ConsumerKey, Vec<(Op, Option<u64>)>>,
    /// Messages that clients know to be there.
    acknowledged: u64,
    is_over: bool,
}

/// What a client may rely on when it asks: what it or anybody else was told before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Floor {
    /// The highest op of the lane that was acknowledged.
    pub op: Op,
    /// Messages of the partition that were acknowledged.
    pub messages: u64,
}

/// Everything that is known of one run.
#[derive(Debug, Default)]
pub struct Oracle {
    lanes: Vec<Vec<OpRecord>>,
    acknowledged: Vec<Op>,
    executed: BTreeMap<RequestKey, (u32, Op)>,
    never: BTreeSet<RequestKey>,
    partitions: BTreeMap<PartitionKey, PartitionModel>,
    votes: BTreeMap<(u32, View, usize), u64>,
    images: BTreeMap<(u32, Op), u64>,
    log_heads: BTreeMap<(u32, View), usize>,
}

impl Oracle {
    /// Nothing happened yet.
    pub fn new(lanes: usize) -> Self {
        Self { lanes: vec![Vec::new(); lanes], acknowledged: vec![Op(0); lanes], ..Self::default() }
    }

    /// The highest op of a lane that was applied anywhere.
    pub fn head(&self, lane: usize) -> Op {
        Op(self.lanes[lane].len() as u64)
    }

    /// The highest op of a lane that a client was told about.
    pub fn acknowledged(&self, lane: usize) -> Op {
        self.acknowledged[lane]
    }

    /// Ops that were applied anywhere.
    pub fn committed(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.len() as u64).sum()
    }

    /// The header that was decided for an op.
    pub fn header(&self, lane: usize, op: Op) -> Option<&Header> {
        self.lanes[lane].get(usize::try_from(op.0.checked_sub(1)?).ok()?).map(|record| &record.header)
    }

    /// What anybody may rely on from now on.
    pub fn floor(&self, lane: usize, partition: Option<PartitionKey>) -> Floor {
        let messages =
            partition.and_then(|key| self.partitions.get(&key)).map_or(0, |model| model.acknowledged);
        Floor { op: self.acknowledged[lane], messages }
    }

    /// A node applied an entry.
    pub fn applied(
        &mut self,
        node: usize,
        lane: usize,
        entry: &Entry,
        done: &Done,
        metadata: Option<&Metadata>,
    ) -> Result<(), Violation> {
        let op = entry.op();
        let known = self.lanes[lane].len() as u64;
        hold!(op.0 <= known + 1, "node {node} applied op {op} of lane {lane}, but the log ends at {known}");
        if op.0 == known + 1 {
            return self.first_applied(node, lane, entry, done, metadata);
        }
        let record = &self.lanes[lane][op.0 as usize - 1];
        hold!(
            record.header.identity == entry.header.identity,
            "node {node} applied {} at op {op} of lane {lane}, where {} was applied before",
            entry.header.identity,
            record.header.identity
        );
        let same = match (&record.outcome, done) {
            (Outcomes::Metadata { outcome, .. }, Done::Metadata(other)) => outcome == other,
            (Outcomes::Data { digest, .. }, Done::Data(applied)) => *digest == digest_of(applied),
            _ => false,
        };
        hold!(same, "node {node} applied op {op} of lane {lane} with another outcome than before: {done:?}");
        Ok(())
    }

    fn first_applied(
        &mut self,
        node: usize,
        lane: usize,
        entry: &Entry,
        done: &Done,
        metadata: Option<&Metadata>,
    ) -> Result<(), Violation> {
        let header = entry.header;
        let op = header.op;
        if let Some(before) = self.lanes[lane].last() {
            hold!(
                header.follows(&before.header),
                "node {node} applied op {op} of lane {lane}, which does not follow the op before it"
            );
            hold!(
                header.timestamp > before.header.timestamp,
                "the time of op {op} of lane {lane} does not lie after that of the op before it"
            );
        }
        let outcome = match done {
            Done::Metadata(outcome) => {
                self.first_metadata(op, outcome)?;
                Outcomes::Metadata {
                    outcome: outcome.clone(),
                    places: metadata.map(places_digest).unwrap_or_default(),
                }
            }
            Done::Data(applied) => {
                let receipt = self.first_data(lane, entry, applied)?;
                Outcomes::Data { digest: digest_of(applied), receipt }
            }
        };
        self.lanes[lane].push(OpRecord { header, outcome });
        Ok(())
    }

    fn first_metadata(&mut self, op: Op, outcome: &Outcome) -> Result<(), Violation> {
        if let MetadataAnswer::Committed(reply) = &outcome.answer {
            hold!(reply.op == op, "the reply of op {op} says op {}", reply.op);
        }
        Ok(())
    }

    /// A metadata request was executed by an op. Called with the first apply.
    pub fn executed(&mut self, lane: usize, op: Op, key: RequestKey) -> Result<(), Violation> {
        hold!(
            !self.never.contains(&key),
            "request {} of session {} was refused as never taken, and op {op} of lane {lane} executed it",
            key.2,
            key.1
        );
        let before = self.executed.insert(key, (lane as u32, op));
        hold!(
            before.is_none_or(|before| before == (lane as u32, op)),
            "request {} of session {} was executed by op {op} of lane {lane} and before by {before:?}",
            key.2,
            key.1
        );
        Ok(())
    }

    fn first_data(
        &mut self,
        lane: usize,
        entry: &Entry,
        applied: &Applied,
    ) -> Result<Option<Receipt>, Violation> {
        let op = entry.op();
        match applied {
            Applied::Opened { key } => {
                let model = self.partitions.entry(*key).or_default();
                hold!(!model.is_over, "op {op} of lane {lane} opens partition {key} again after its end");
                Ok(None)
            }
            Applied::Appended { key, identity, receipt, head, .. } => {
                let model = self.partitions.entry(*key).or_default();
                let end = model.messages.len() as u64;
                hold!(
                    receipt.base_offset.0 == end,
                    "op {op} of lane {lane} appends at offset {} of partition {key}, which ends at {end}",
                    receipt.base_offset
                );
                let batch = laneway_wire::batch::Batch::parse(&entry.body.batch);
                let batch = batch.map_err(|error| Violation(format!("op {op} holds no batch: {error:?}")))?;
                for message in batch.messages() {
                    let message = message.map_err(|error| Violation(format!("op {op}: {error:?}")))?;
                    model.messages.push(message.id);
                }
                hold!(
                    head.0 + 1 == model.messages.len() as u64,
                    "op {op} of lane {lane} leaves the head of partition {key} at {head}"
                );
                if let Some(identity) = identity {
                    self.executed(lane, op, (identity.client, identity.session, identity.request))?;
                }
                Ok(Some(*receipt))
            }
            Applied::OffsetStored { identity, receipt, .. }
            | Applied::OffsetDeleted { identity, receipt, .. } => {
                let lane_op = LaneOp::decode(&entry.body.prefix);
                let lane_op =
                    lane_op.map_err(|error| Violation(format!("op {op} does not decode: {error}")))?;
                match lane_op {
                    LaneOp::StoreOffset { key, consumer, offset, mode: StoreMode::Explicit, .. } => {
                        self.stored(key, consumer, op, Some(offset.0));
                    }
                    LaneOp::DeleteOffset { key, consumer, .. } => self.stored(key, consumer, op, None),
                    _ => {}
                }
                if let Some(identity) = identity {
                    self.executed(lane, op, (identity.client, identity.session, identity.request))?;
                }
                Ok(Some(*receipt))
            }
            Applied::Fenced { key, .. } => {
                self.partitions.entry(*key).or_default().is_over = true;
                Ok(None)
            }
            Applied::StartAdvanced { identity, receipt, .. } => {
                if let Some(identity) = identity {
                    self.executed(lane, op, (identity.client, identity.session, identity.request))?;
                }
                Ok(Some(*receipt))
            }
            Applied::Missing { .. } | Applied::Retired { .. } | Applied::Skipped => Ok(None),
        }
    }

    fn stored(&mut self, key: PartitionKey, consumer: ConsumerKey, op: Op, value: Option<u64>) {
        self.partitions.entry(key).or_default().stored.entry(consumer).or_default().push((op, value));
    }

    /// A client was told that a request had not been taken, by everybody it asked, and gave it up.
    pub fn given_up(&mut self, key: RequestKey) -> Result<(), Violation> {
        hold!(
            !self.executed.contains_key(&key),
            "request {} of session {} was executed, and its client was told that nothing happened",
            key.2,
            key.1
        );
        self.never.insert(key);
        Ok(())
    }

    /// A client got the receipt of a request.
    pub fn receipt(
        &mut self,
        lane: usize,
        partition: PartitionKey,
        floor: Floor,
        receipt: &Receipt,
    ) -> Result<(), Violation> {
        let op = receipt.op;
        let record = self.lanes[lane].get((op.0 as usize).wrapping_sub(1));
        let known = record.and_then(|record| match &record.outcome {
            Outcomes::Data { receipt, .. } => *receipt,
            Outcomes::Metadata { .. } => None,
        });
        hold!(
            known == Some(*receipt),
            "a client got {receipt:?} for op {op} of lane {lane}, where the log says {known:?}"
        );
        hold!(
            op > floor.op,
            "a request that was sent after op {} of lane {lane} was acknowledged became op {op}",
            floor.op
        );
        self.acknowledged[lane] = self.acknowledged[lane].max(op);
        let model = self.partitions.entry(partition).or_default();
        let end = receipt.base_offset.0 + u64::from(receipt.message_count);
        if receipt.message_count > 0 {
            model.acknowledged = model.acknowledged.max(end);
        }
        Ok(())
    }

    /// A client got the reply of a metadata request.
    pub fn reply(&mut self, floor: Floor, reply: &CommittedReply) -> Result<(), Violation> {
        let op = reply.op;
        let record = self.lanes[0].get((op.0 as usize).wrapping_sub(1));
        let known = record.and_then(|record| match &record.outcome {
            Outcomes::Metadata { outcome, .. } => match &outcome.answer {
                MetadataAnswer::Committed(reply) => Some(reply),
                _ => None,
            },
            Outcomes::Data { .. } => None,
        });
        hold!(known == Some(reply), "a client got {reply:?}, where the log says {known:?}");
        hold!(
            op > floor.op,
            "a metadata request that was sent after op {} was acknowledged became op {op}",
            floor.op
        );
        self.acknowledged[0] = self.acknowledged[0].max(op);
        Ok(())
    }

    /// A client was told its session.
    pub fn registered(&mut self, client: ClientId, session: SessionEpoch) -> Result<(), Violation> {
        let record = self.lanes[0].get((session.0 as usize).wrapping_sub(1));
        let made = record.is_some_and(|record| match &record.outcome {
            Outcomes::Metadata { outcome, .. } => matches!(
                &outcome.answer,
                MetadataAnswer::Registered { client: other, session: epoch, .. }
                    if *other == client && *epoch == session
            ),
            Outcomes::Data { .. } => false,
        });
        hold!(made, "a client was told session {session}, which no op made for it");
        self.acknowledged[0] = self.acknowledged[0].max(Op(session.0));
        Ok(())
    }

    /// A client was told which partitions there are.
    pub fn looked_up(&self, minimum: Op, applied: Op, digest: u64) -> Result<(), Violation> {
        hold!(applied >= minimum, "a client that has seen op {minimum} was answered as of op {applied}");
        if applied == Op(0) {
            return Ok(());
        }
        let record = self.lanes[0].get(applied.0 as usize - 1);
        let same = record.is_some_and(
            |record| matches!(&record.outcome, Outcomes::Metadata { places, .. } if *places == digest),
        );
        hold!(same, "the partitions as of op {applied} are not what that op left");
        Ok(())
    }

    /// A client read messages from an offset.
    pub fn polled(
        &self,
        partition: PartitionKey,
        from: u64,
        floor: Floor,
        head: Option<u64>,
        messages: &[u128],
    ) -> Result<(), Violation> {
        let Some(model) = self.partitions.get(&partition) else {
            hold!(head.is_none(), "a read found messages in partition {partition}, which was never opened");
            return Ok(());
        };
        let end = head.map_or(0, |head| head + 1);
        hold!(
            end >= floor.messages,
            "a stale read: {} messages of partition {partition} were acknowledged before, it saw {end}",
            floor.messages
        );
        hold!(
            end <= model.messages.len() as u64,
            "a read saw {end} messages of partition {partition}, where {} are committed",
            model.messages.len()
        );
        let from = (from as usize).min(model.messages.len());
        let expected = &model.messages[from..model.messages.len().min(from + messages.len())];
        hold!(messages == expected, "a read of partition {partition} from {from} got other messages");
        Ok(())
    }

    /// A client read a stored offset.
    pub fn offset_read(
        &self,
        partition: PartitionKey,
        consumer: &ConsumerKey,
        floor: Floor,
        value: Option<u64>,
    ) -> Result<(), Violation> {
        let values = self.partitions.get(&partition).and_then(|model| model.stored.get(consumer));
        let values = values.map(Vec::as_slice).unwrap_or_default();
        // The value that was current when the newest acknowledged op had been applied, or any later one.
        let current = values.iter().rev().find(|(op, _)| *op <= floor.op).and_then(|(_, value)| *value);
        let is_later = values.iter().any(|(op, later)| *op > floor.op && *later == value);
        hold!(
            current == value || is_later,
            "consumer {consumer:?} of partition {partition} was told {value:?}; after op {} it is {current:?}",
            floor.op
        );
        Ok(())
    }

    /// A replica sent a vote.
    pub fn voted(&mut self, lane: usize, view: View, node: usize, digest: u64) -> Result<(), Violation> {
        let before = *self.votes.entry((lane as u32, view, node)).or_insert(digest);
        hold!(before == digest, "node {node} sent two different votes for view {} of lane {lane}", view.0);
        Ok(())
    }

    /// A replica leads a view.
    pub fn leads(&mut self, lane: usize, view: View, node: usize) -> Result<(), Violation> {
        let before = *self.log_heads.entry((lane as u32, view)).or_insert(node);
        hold!(before == node, "nodes {before} and {node} both lead view {} of lane {lane}", view.0);
        Ok(())
    }

    /// A replica made a checkpoint. Returns whether another one was there to compare it with.
    pub fn checkpoint(&mut self, node: usize, lane: usize, op: Op, hash: u64) -> Result<bool, Violation> {
        match self.images.get(&(lane as u32, op)) {
            Some(before) => {
                hold!(
                    *before == hash,
                    "the checkpoint of node {node} at op {op} of lane {lane} differs from another"
                );
                Ok(true)
            }
            None => {
                self.images.insert((lane as u32, op), hash);
                Ok(false)
            }
        }
    }
}

/// Hash of everything that the metadata says about partitions.
pub fn places_digest(metadata: &Metadata) -> u64 {
    let places: Rc<[_]> = metadata.partitions().collect();
    digest_places(&places)
}

/// Hash of a list of partitions.
pub fn digest_places(places: &[laneway_metadata::PartitionPlace]) -> u64 {
    let mut digest = places.len() as u64;
    for place in places {
        for number in [
            place.key.incarnation.0,
            place.key.partition.0.into(),
            place.stream.0.into(),
            place.topic.0.into(),
            place.lane.0.into(),
        ] {
            digest = (digest ^ number).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(23);
        }
    }
    digest
}

/// Hash of what an op of a data lane did, as far as replicas must agree on it.
fn digest_of(applied: &Applied) -> u64 {
    let mut bytes = Vec::with_capacity(128);
    let key = |bytes: &mut Vec<u8>, kind: u8, key: &PartitionKey| {
        bytes.push(kind);
        bytes.extend(key.incarnation.0.to_le_bytes());
        bytes.extend(key.partition.0.to_le_bytes());
    };
    match applied {
        Applied::Opened { key: place } => key(&mut bytes, 1, place),
        Applied::Appended { key: place, receipt, head, bytes_total, .. } => {
            key(&mut bytes, 2, place);
            receipt.encode(&mut bytes);
            bytes.extend(head.0.to_le_bytes());
            bytes.extend(bytes_total.to_le_bytes());
        }
        Applied::OffsetStored { key: place, receipt, .. } => {
            key(&mut bytes, 3, place);
            receipt.encode(&mut bytes);
        }
        Applied::OffsetDeleted { key: place, receipt, .. } => {
            key(&mut bytes, 4, place);
            receipt.encode(&mut bytes);
        }
        Applied::Fenced { key: place, partition } => {
            key(&mut bytes, 5, place);
            bytes.push(u8::from(partition.is_some()));
        }
        Applied::Missing { key: place, .. } => key(&mut bytes, 6, place),
        Applied::Retired { session } => {
            bytes.push(7);
            bytes.extend(session.client.0.to_le_bytes());
            bytes.extend(session.session.0.to_le_bytes());
        }
        Applied::Skipped => bytes.push(8),
        Applied::StartAdvanced { key: place, receipt, start, .. } => {
            key(&mut bytes, 9, place);
            receipt.encode(&mut bytes);
            bytes.extend(start.0.to_le_bytes());
        }
    }
    xxh3_64(&bytes)
}
