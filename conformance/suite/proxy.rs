//! A relay between client and broker that loses replies on demand.
//!
//! The broker has done the work when the reply is thrown away and both connections are cut, so the client cannot
//! know. This is the case in which a resend must not be done twice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Length of every header on the wire, in bytes.
const HEADER_BYTES: usize = 256;
/// Place of the frame's total length in its header.
const SIZE: std::ops::Range<usize> = 48..52;
/// Place of the operation in the header of a reply.
const REPLY_OPERATION: usize = 208;

pub struct Proxy {
    address: SocketAddr,
    losses: Arc<Losses>,
    accept: tokio::task::JoinHandle<()>,
}

/// Which replies are still to be lost.
#[derive(Default)]
struct Losses {
    operation: AtomicU32,
    left: AtomicU32,
    done: AtomicU32,
}

impl Losses {
    fn take(&self, operation: u8) -> bool {
        let lose = u32::from(operation) == self.operation.load(Ordering::SeqCst)
            && self.left.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if lose {
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        lose
    }
}

impl Proxy {
    /// Relays every connection to `broker`.
    pub async fn start(broker: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind the proxy");
        let address = listener.local_addr().expect("the address of the proxy");
        let losses = Arc::new(Losses::default());
        let shared = Arc::clone(&losses);
        let accept = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, broker, Arc::clone(&shared)));
            }
        });
        Self { address, losses, accept }
    }

    pub fn connection_string(&self) -> String {
        format!("iggy+tcp://iggy:iggy@{}?reconnection_interval=50ms", self.address)
    }

    /// Throws away the next `count` replies to `operation` and cuts the connection after each.
    pub fn lose_replies(&self, operation: u8, count: u32) {
        self.losses.operation.store(operation.into(), Ordering::SeqCst);
        self.losses.done.store(0, Ordering::SeqCst);
        self.losses.left.store(count, Ordering::SeqCst);
    }

    /// Replies lost since the last call of [`lose_replies`](Self::lose_replies).
    pub fn lost(&self) -> u32 {
        self.losses.done.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn relay(client: TcpStream, broker: SocketAddr, losses: Arc<Losses>) {
    let Ok(server) = TcpStream::connect(broker).await else { return };
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        _ = relay_replies(from_server, to_client, &losses) => {}
    }
}

/// Copies whole frames until a reply is to be lost or a side ends.
async fn relay_replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    losses: &Losses,
) -> std::io::Result<()> {
    let mut frame = vec![0; HEADER_BYTES];
    loop {
        frame.resize(HEADER_BYTES, 0);
        from.read_exact(&mut frame).await?;
        let size = u32::from_le_bytes(frame[SIZE].try_into().expect("four bytes")) as usize;
        frame.resize(size.max(HEADER_BYTES), 0);
        from.read_exact(&mut frame[HEADER_BYTES..]).await?;
        if losses.take(frame[REPLY_OPERATION]) {
            return Ok(());
        }
        to.write_all(&frame).await?;
    }
}
