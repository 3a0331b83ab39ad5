//! What all nodes and clients of a run share: time, links, random numbers, and whoever watches.

use laneway_vsr::{Entry, LogNumber, Message, ReadRequest, SuperblockNumber};
use laneway_wire::Op;

use crate::atlas::Atlas;
use crate::contract::{Answer, Request};
use crate::coverage::{Coverage, Mark};
use crate::disk::{FlushMark, WriteId};
use crate::faults::{FaultKind, Faults};
use crate::network::Network;
use crate::options::Plan;
use crate::oracle::Oracle;
use crate::queue::{MICROSECOND, Queue, SECOND, Time};
use crate::random::Streams;
use crate::totals::Totals;
use crate::trace::Trace;

/// A message between two nodes on its way.
#[derive(Debug)]
pub struct Packet {
    /// Who sent it.
    pub from: usize,
    /// Who gets it.
    pub to: usize,
    /// On which connection it was sent.
    pub connection: u32,
    /// Whether it arrives damaged.
    pub garbled: bool,
    /// The lane.
    pub lane: usize,
    /// What it says.
    pub message: Message,
}

/// Something that a disk has done.
#[derive(Debug)]
pub enum Io {
    /// A block of the log was written.
    Block {
        /// The write.
        block: WriteId,
        /// Its number.
        flush: u64,
    },
    /// The log was flushed.
    LogFlush {
        /// How far, of the blocks and of the witnesses.
        marks: (FlushMark, FlushMark),
        /// The changes that it covers.
        number: LogNumber,
    },
    /// Two copies of a superblock were written.
    Superblock {
        /// The writes.
        copies: [WriteId; 2],
        /// The record.
        number: SuperblockNumber,
    },
    /// They were flushed.
    SuperblockFlush {
        /// How far.
        mark: FlushMark,
        /// The record.
        number: SuperblockNumber,
    },
    /// An entry was read.
    Read {
        /// The question.
        request: ReadRequest,
        /// What was there.
        entry: Option<Entry>,
    },
    /// A checkpoint of a peer was written and flushed.
    Install {
        /// The write.
        id: WriteId,
    },
    /// A checkpoint was written and flushed.
    Snapshot {
        /// The write.
        id: WriteId,
        /// What it covers.
        op: Op,
    },
}

/// Something that happens at a time.
#[derive(Debug)]
pub enum Happening {
    /// A message arrives.
    Message(Box<Packet>),
    /// A disk of a node has done something for a lane.
    Io {
        /// The node.
        node: usize,
        /// The start of its process that asked; nobody is told after its end.
        boot: u32,
        /// The lane.
        lane: usize,
        /// What.
        io: Box<Io>,
    },
    /// A timer of a replica is due.
    Timer {
        /// The node.
        node: usize,
        /// The start of its process.
        boot: u32,
        /// The lane.
        lane: usize,
    },
    /// A request reaches a node.
    Request {
        /// The node.
        node: usize,
        /// What is asked.
        request: Box<Request>,
    },
    /// An answer reaches a client.
    Answer {
        /// The client.
        client: usize,
        /// The exchange.
        exchange: u64,
        /// Who answers.
        node: usize,
        /// What.
        answer: Box<Answer>,
    },
    /// A client stops waiting for an answer and sends again.
    Resend {
        /// The client.
        client: usize,
        /// The exchange.
        exchange: u64,
        /// The attempt that got no answer.
        attempt: u32,
    },
    /// A client thinks of something to do.
    Think {
        /// The client.
        client: usize,
    },
    /// The environment does something.
    Fault,
    /// A process starts.
    Start {
        /// The node.
        node: usize,
    },
    /// Faults are over.
    Heal,
}

/// Everything that is not a node and not a client.
#[derive(Debug)]
pub struct Env {
    /// What the run is.
    pub plan: Plan,
    /// What will happen.
    pub queue: Queue<Happening>,
    /// Random numbers.
    pub streams: Streams,
    /// Decisions for faults.
    pub faults: Faults,
    /// Links.
    pub network: Network,
    /// Where damage may fall.
    pub atlas: Atlas,
    /// Who watches.
    pub oracle: Oracle,
    /// The trace.
    pub trace: Trace,
    /// What was met.
    pub coverage: Coverage,
    /// What was done.
    pub totals: Totals,
    /// A lone replica found damage that nobody can repair, and said so: the run ends there.
    pub is_stopped: bool,
    /// A bug to plant.
    pub mutation: Option<usize>,
}

impl Env {
    /// The time.
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// Plans something, in a random order among what happens at the same time.
    pub fn plan_at(&mut self, at: Time, happening: Happening) {
        let order = (self.streams.scheduling.bits() >> 32) as u32;
        self.queue.push(at, order, happening);
    }

    /// A fault that has a chance.
    pub fn fault(&mut self, kind: FaultKind, drawn: bool) -> bool {
        self.faults.decide(kind, drawn)
    }

    /// A mark was met.
    pub fn mark(&mut self, mark: Mark) {
        self.coverage.hit(mark);
    }

    /// Sends a message between nodes.
    pub fn send(&mut self, from: usize, to: usize, lane: usize, message: Message) {
        let now = self.now();
        let [first, second] = self.network.send(now, from, to, &mut self.streams.network, &mut self.faults);
        let packet = |delivery: crate::network::Delivery, message| Packet {
            from,
            to,
            connection: delivery.connection,
            garbled: delivery.garbled,
            lane,
            message,
        };
        if let Some(delivery) = second {
            let copy = Box::new(packet(delivery, message.clone()));
            self.plan_at(delivery.at, Happening::Message(copy));
        }
        if let Some(delivery) = first {
            let packet = Box::new(packet(delivery, message));
            self.plan_at(delivery.at, Happening::Message(packet));
        }
    }

    /// Sends a request of a client to a node.
    pub fn ask(&mut self, node: usize, request: Request) {
        let at = self.now() + self.client_latency();
        self.plan_at(at, Happening::Request { node, request: Box::new(request) });
    }

    /// Answers a client.
    pub fn answer(&mut self, node: usize, client: usize, exchange: u64, answer: Answer) {
        let lost = self.streams.network.chance(self.plan.faults.lost_reply);
        let at = self.now() + self.client_latency();
        if !self.fault(FaultKind::LostReply, lost) {
            self.plan_at(at, Happening::Answer { client, exchange, node, answer: Box::new(answer) });
        }
    }

    fn client_latency(&mut self) -> Time {
        100 * MICROSECOND + self.streams.network.exponential(300 * MICROSECOND)
    }

    /// How long a write takes.
    pub fn write_latency(&mut self) -> Time {
        let settings = self.plan.faults;
        let latency = 10 * MICROSECOND + self.streams.storage.exponential(settings.write_mean);
        let slow = self.streams.storage.chance(settings.slow_write);
        match self.fault(FaultKind::SlowWrite, slow) {
            true => latency + self.streams.storage.exponential(SECOND / 2),
            false => latency,
        }
    }

    /// How long a flush takes.
    pub fn flush_latency(&mut self) -> Time {
        10 * MICROSECOND + self.streams.storage.exponential(self.plan.faults.flush_mean)
    }

    /// How long a read takes.
    pub fn read_latency(&mut self) -> Time {
        10 * MICROSECOND + self.streams.storage.exponential(200 * MICROSECOND)
    }
}
