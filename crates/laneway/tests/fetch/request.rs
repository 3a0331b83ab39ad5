//! Fetches of any fields, and their answers.

use std::time::Duration;

use laneway_wire::batch::records;
use laneway_wire::reply::{FetchReply, FetchSection};

use crate::client::{AT_CODE, Client, Place, Reply, Sent};
use crate::messages::assert_checksums;

pub const SHARDS: [u16; 2] = [1, 3];
/// How long a test looks at something that must not happen.
pub const SETTLING: Duration = Duration::from_millis(200);
/// An event's answer comes within this, far below the wait.
pub const PROMPT: Duration = Duration::from_secs(4);
pub const LONG_US: u64 = 20_000_000;
pub const LIMIT: u32 = 1 << 20;

/// The fields of a fetch, of any value.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub kind: u8,
    pub consumer: u32,
    pub stream: String,
    pub topic: String,
    pub wait_us: u64,
    pub timeout_us: u64,
    pub min_count: u32,
    pub count: u32,
    pub max_bytes: u32,
    pub commit: bool,
    pub targets: Vec<Target>,
    /// What the body says about the number of targets, if not the truth.
    pub claimed: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub partition: u32,
    pub strategy: u8,
    pub value: u64,
    pub max_bytes: u32,
    pub incarnation: u64,
    pub generation: u64,
}

pub fn offset(place: &Place, value: u64) -> Target {
    Target {
        partition: place.partition.0,
        strategy: 1,
        value,
        max_bytes: LIMIT,
        incarnation: place.incarnation.0,
        generation: 0,
    }
}

pub fn next(place: &Place) -> Target {
    Target { strategy: 5, ..offset(place, 0) }
}

pub fn fetch(places: &[Place], target: impl Fn(&Place) -> Target) -> Fetch {
    Fetch {
        kind: 1,
        consumer: 1,
        stream: places[0].stream.clone(),
        topic: places[0].topic.clone(),
        wait_us: 0,
        timeout_us: 10_000_000,
        min_count: 1,
        count: 1000,
        max_bytes: LIMIT,
        commit: false,
        targets: places.iter().map(target).collect(),
        claimed: None,
    }
}

impl Fetch {
    pub fn wait(self, wait_us: u64) -> Self {
        Self { wait_us, timeout_us: wait_us + 10_000_000, ..self }
    }

    pub fn min_count(self, min_count: u32) -> Self {
        Self { min_count, ..self }
    }

    pub fn count(self, count: u32) -> Self {
        Self { count, ..self }
    }

    /// Of the request and of each target.
    pub fn max_bytes(mut self, max_bytes: u32) -> Self {
        self.targets.iter_mut().for_each(|target| target.max_bytes = max_bytes);
        Self { max_bytes, ..self }
    }

    pub fn commit(self) -> Self {
        Self { commit: true, ..self }
    }

    pub fn body(&self) -> Vec<u8> {
        let name = |name: &str| [&[2, name.len() as u8], name.as_bytes()].concat();
        let mut body = vec![self.kind, 1, 4];
        body.extend(self.consumer.to_le_bytes());
        body.extend(name(&self.stream));
        body.extend(name(&self.topic));
        body.extend(self.wait_us.to_le_bytes());
        body.extend(self.timeout_us.to_le_bytes());
        body.extend(self.min_count.to_le_bytes());
        body.extend(self.count.to_le_bytes());
        body.extend(self.max_bytes.to_le_bytes());
        body.push(self.commit.into());
        body.extend(self.claimed.unwrap_or(self.targets.len() as u32).to_le_bytes());
        for target in &self.targets {
            body.extend(target.partition.to_le_bytes());
            body.push(target.strategy);
            body.extend(target.value.to_le_bytes());
            body.extend(target.max_bytes.to_le_bytes());
            body.extend(target.incarnation.to_le_bytes());
            body.extend(target.generation.to_le_bytes());
        }
        body
    }
}

#[derive(Clone, Debug)]
pub struct Section {
    pub head: FetchSection,
    pub offsets: Vec<u64>,
    pub payloads: Vec<Vec<u8>>,
}

/// Reads an answer and checks what holds for each.
#[track_caller]
pub fn read(reply: &Reply, fetch: &Fetch) -> Vec<Section> {
    assert_eq!(reply.status(), 0, "{:?}", reply.header());
    let parsed = FetchReply::parse(reply.body()).expect("sections");
    let mut sections = Vec::new();
    for (head, bytes) in parsed.sections {
        let (mut offsets, mut payloads) = (Vec::new(), Vec::new());
        for record in records(bytes) {
            let record = record.expect("a record");
            assert_checksums(record.bytes);
            assert_eq!(record.header.partition_id, u64::from(head.partition.0));
            for message in record.messages() {
                let message = message.expect("a frame");
                offsets.push(record.header.base_offset.0 + u64::from(message.offset_delta));
                payloads.push(message.payload.to_vec());
            }
        }
        assert!(offsets.windows(2).all(|pair| pair[0] + 1 == pair[1]), "R20");
        let target = fetch.targets.iter().find(|target| target.partition == head.partition.0);
        let target = target.expect("a section of a target");
        if head.status.is_ok() {
            assert_eq!(head.context.incarnation.0, target.incarnation);
            if let Some(last) = offsets.last() {
                assert_eq!(head.next_offset.0, last + 1);
                assert!(head.current_offset.0 >= *last, "R31");
            }
        } else {
            assert_eq!(head, FetchSection::failed(head.partition, head.status));
        }
        sections.push(Section { head, offsets, payloads });
    }
    let order: Vec<u32> = sections.iter().map(|section| section.head.partition.0).collect();
    let asked: Vec<u32> =
        fetch.targets.iter().map(|target| target.partition).filter(|id| order.contains(id)).collect();
    assert_eq!(order, asked, "sections come in the order of the targets");
    let messages: usize = sections.iter().map(|section| section.offsets.len()).sum();
    let bytes: u32 = sections.iter().map(|section| section.head.records_len).sum();
    assert!(messages <= fetch.count as usize, "R18: {messages}");
    if messages != 1 {
        assert!(bytes <= fetch.max_bytes, "R22: {bytes}");
        for section in &sections {
            let target = fetch.targets.iter().find(|target| target.partition == section.head.partition.0);
            assert!(section.head.records_len <= target.unwrap().max_bytes, "R23");
        }
    }
    sections
}

pub fn total(sections: &[Section]) -> usize {
    sections.iter().map(|section| section.offsets.len()).sum()
}

impl Client {
    pub fn fetch_frame(&self, fetch: &Fetch) -> Sent {
        self.raw(109, &fetch.body())
    }

    #[track_caller]
    pub fn fetch(&mut self, fetch: &Fetch) -> Vec<Section> {
        let sent = self.fetch_frame(fetch);
        read(&self.exchange(&sent), fetch)
    }

    #[track_caller]
    pub fn fetch_status(&mut self, fetch: &Fetch) -> u32 {
        let sent = self.fetch_frame(fetch);
        self.exchange(&sent).status()
    }

    #[track_caller]
    pub fn park(&mut self, fetch: &Fetch) -> Sent {
        let sent = self.fetch_frame(fetch);
        self.send(&sent);
        self.assert_alive();
        assert!(self.reply_within(&sent, SETTLING).is_none(), "the fetch parks");
        sent
    }

    #[track_caller]
    pub fn prompt(&mut self, sent: &Sent) -> Reply {
        self.reply_within(sent, PROMPT).expect("an answer soon after the event")
    }
}

pub fn cancel(sent: &Sent) -> Sent {
    let header = Sent { bytes: sent.bytes[..256].to_vec() };
    header.with(AT_CODE, &108u32.to_le_bytes()).with_body(&[])
}
