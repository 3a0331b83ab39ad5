//! The connections that a shard accepted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use compio::net::TcpStream;
use laneway_reads::ConnectionId;
use laneway_transport::{OutFrame, Outbox, Signal, listener};
use laneway_wire::protocol::ProtocolVersion;
use laneway_wire::{ClientId, RequestNumber, SessionEpoch, UserId};

use crate::budgets::{UserCharge, UserLimits, UserUse};
use crate::message::{PartitionRequest, ShardId};
use crate::origin::fetches::FetchState;
use crate::progress::Progress;

/// Bits of a connection's number that count the connections of its shard.
const COUNT_BITS: u32 = 24;

/// What the open requests of one connection may hold. Above it the connection is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How many there are.
    pub requests_max: usize,
    /// Bytes of the frames that came in and of the answers that they ask for. A client that pipelines large reads and
    /// takes no answer holds this much, no more.
    pub bytes_max: usize,
}

/// What one open request holds.
#[derive(Debug, Default)]
struct Charge {
    bytes: usize,
    /// For the user's own budget; a request number that is sent twice counts twice.
    user: Vec<UserCharge>,
}

/// Who is signed in on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The session's client id.
    pub client: ClientId,
    /// The session's epoch.
    pub session: SessionEpoch,
    /// The authenticated user.
    pub user: UserId,
    /// The protocol that the client named; selects every layout that differs.
    pub protocol: ProtocolVersion,
}

/// One connection. Made at accept, lives on the shard that accepted it, ends when its reader ends.
#[derive(Debug)]
pub struct Connection {
    /// Its number, unique on the node while it lives.
    pub id: ConnectionId,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Frames on their way to the client.
    pub outbox: Outbox,
    stream: TcpStream,
    binding: Cell<Option<Binding>>,
    in_flight: Cell<usize>,
    settled: Signal,
    /// Bytes that open requests hold or may still bring, by request number.
    charges: RefCell<BTreeMap<RequestNumber, Charge>>,
    /// What the signed-in user holds on this shard.
    user: RefCell<Option<Rc<UserUse>>>,
    charged: Cell<usize>,
    /// Deferred reads that an owner holds, by request number: where a cancel goes.
    deferred: RefCell<BTreeMap<RequestNumber, ShardId>>,
    /// Grouped fetches that run, by request number.
    pub fetches: RefCell<BTreeMap<RequestNumber, Rc<FetchState>>>,
    /// What keeps the order of a consumer's progress.
    pub progress: RefCell<Progress<PartitionRequest>>,
}

impl Connection {
    /// The number that clients see: the low half of the id.
    pub fn number(&self) -> u32 {
        // A shard's connections are counted below 2^24, and there are at most 2^8 shards above that on one node.
        self.id.0 as u32
    }

    /// The session that this connection is bound to.
    pub fn binding(&self) -> Option<Binding> {
        self.binding.get()
    }

    /// Binds the connection, or unbinds it. `user`: what the user holds on this shard.
    pub fn bind(&self, binding: Option<(Binding, Rc<UserUse>)>) {
        let (binding, user) = binding.unzip();
        self.binding.set(binding);
        *self.user.borrow_mut() = user;
    }

    /// Counts a request that will be answered, with the bytes of its frame.
    pub fn begin(&self, request: RequestNumber, bytes: usize) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.charge(request, bytes);
        if let Some(user) = &*self.user.borrow() {
            let charge = UserCharge::new(user.clone(), bytes);
            self.charges.borrow_mut().entry(request).or_default().user.push(charge);
        }
    }

    /// Charges an open request for more bytes: those that its answer may have.
    pub fn charge(&self, request: RequestNumber, bytes: usize) {
        self.charges.borrow_mut().entry(request).or_default().bytes += bytes;
        self.charged.set(self.charged.get() + bytes);
    }

    /// Takes the answer of a counted request.
    pub fn finish(&self, request: RequestNumber, frame: OutFrame) {
        self.outbox.push(frame);
        self.settle(request);
    }

    /// Takes the end of a counted request that gets no answer.
    pub fn settle(&self, request: RequestNumber) {
        let charge = self.charges.borrow_mut().remove(&request).unwrap_or_default();
        self.charged.set(self.charged.get() - charge.bytes);
        let left = self.in_flight.get().checked_sub(1).expect("every answer belongs to a counted request");
        self.in_flight.set(left);
        self.settled.ring();
    }

    /// Whether the user's open requests on this shard, the newest included, are within its budget.
    pub fn user_is_within(&self, limits: &UserLimits) -> bool {
        self.user.borrow().as_ref().is_none_or(|user| user.is_within(limits))
    }

    /// Waits until there is room for one more counted request, and the client takes its replies. One request is always
    /// taken, however large.
    pub async fn room(&self, limits: &ConnectionLimits) {
        self.outbox.room().await;
        while self.is_full(limits) && !self.outbox.is_closed() {
            self.settled.wait().await;
        }
    }

    fn is_full(&self, limits: &ConnectionLimits) -> bool {
        let open = self.in_flight.get();
        open >= limits.requests_max || (open > 0 && self.charged.get() > limits.bytes_max)
    }

    /// Remembers where a deferred read waits.
    pub fn defer(&self, request: RequestNumber, owner: ShardId) {
        self.deferred.borrow_mut().insert(request, owner);
    }

    /// Forgets a deferred read that was answered; says where it waited.
    pub fn undefer(&self, request: RequestNumber) -> Option<ShardId> {
        self.deferred.borrow_mut().remove(&request)
    }

    /// Where a deferred read waits.
    pub fn deferred(&self, request: RequestNumber) -> Option<ShardId> {
        self.deferred.borrow().get(&request).copied()
    }

    /// The shards that hold deferred reads of this connection; empties the list.
    pub fn take_deferring_shards(&self) -> Vec<ShardId> {
        let mut shards: Vec<ShardId> =
            std::mem::take(&mut *self.deferred.borrow_mut()).into_values().collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Sends what is queued, then ends the connection.
    pub fn close(&self) {
        self.outbox.close();
        self.settled.ring();
    }

    /// Ends both directions at once; the reader returns.
    pub fn abort(&self) {
        self.close();
        listener::close(&self.stream);
    }
}

/// All connections of one shard.
#[derive(Debug)]
pub struct Connections {
    shard: ShardId,
    next: u64,
    open: BTreeMap<ConnectionId, Rc<Connection>>,
}

impl Connections {
    /// No connection yet.
    pub fn new(shard: ShardId) -> Self {
        Self { shard, next: 1, open: BTreeMap::new() }
    }

    /// Takes a connection in. Its number fits the 32 bits that clients see: the shard above, a count below.
    pub fn insert(&mut self, stream: TcpStream, peer: SocketAddr) -> Rc<Connection> {
        let id = loop {
            let count = self.next & ((1 << COUNT_BITS) - 1);
            self.next += 1;
            let id = ConnectionId(u64::from(self.shard.0) << COUNT_BITS | count);
            if count != 0 && !self.open.contains_key(&id) {
                break id;
            }
        };
        let connection = Rc::new(Connection {
            id,
            peer,
            outbox: Outbox::default(),
            stream,
            binding: Cell::new(None),
            in_flight: Cell::new(0),
            settled: Signal::default(),
            charges: RefCell::default(),
            user: RefCell::default(),
            charged: Cell::new(0),
            deferred: RefCell::default(),
            fetches: RefCell::default(),
            progress: RefCell::default(),
        });
        self.open.insert(id, connection.clone());
        connection
    }

    /// The connection with this number, if it is still open.
    pub fn get(&self, id: ConnectionId) -> Option<&Rc<Connection>> {
        self.open.get(&id)
    }

    /// Forgets a connection that ended.
    pub fn remove(&mut self, id: ConnectionId) {
        self.open.remove(&id);
    }

    /// Number of open connections.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Every open connection, oldest number first.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<Connection>> {
        self.open.values()
    }
}
