//! Producers that remember what they were told, and the check of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use crate::client::Client;
use crate::messages::{Poll, confirmed};

/// Most messages of one poll while checking.
const PAGE: u32 = 2000;

/// Runs something that ends by a panic when the broker goes away. The panic is quiet.
pub fn until_gone(work: impl FnOnce()) {
    static QUIET: Once = Once::new();
    thread_local!(static EXPECTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    QUIET.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                loud(info);
            }
        }));
    });
    EXPECTED.set(true);
    let _ = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(false);
}

/// What a producer knows about its partition.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Number of the next message.
    next: u64,
    /// Offset of each message whose send was acknowledged.
    acknowledged: BTreeMap<u64, u64>,
    checked_to: u64,
}

/// Producers of one partition each, and what they were told.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Sends that a full disk refused, and those whose outcome it left open.
    pub refused: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

pub type Ledgers = Arc<Vec<Mutex<Ledger>>>;

pub fn ledgers(count: usize) -> Ledgers {
    Arc::new((0..count).map(|_| Mutex::default()).collect())
}

pub fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(bytes.max(8), number as u8);
    payload
}

impl Load {
    pub fn start(address: SocketAddr, topic: &str, ledgers: &Ledgers, batch: usize, bytes: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(AtomicU64::new(0));
        let thread = |at: usize| {
            let (stop, ledgers, topic) = (stop.clone(), ledgers.clone(), topic.to_owned());
            let refused = refused.clone();
            spawn(move || {
                until_gone(|| {
                    let mut client = Client::sign_in(address);
                    let place = client.route(&topic, at as u32);
                    while !stop.load(Ordering::Relaxed) {
                        let first = {
                            let mut ledger = ledgers[at].lock().unwrap();
                            ledger.next += batch as u64;
                            ledger.next - batch as u64
                        };
                        let payloads: Vec<_> =
                            (0..batch as u64).map(|index| payload(first + index, bytes)).collect();
                        let sent = client.send_frame(&place, &payloads);
                        client.send(&sent);
                        // A full disk makes it wait, for as long as the test likes.
                        let reply = loop {
                            if let Some(reply) = client.reply_within(&sent, Duration::from_millis(200)) {
                                if reply.outcome() != 57 {
                                    break reply;
                                }
                                // Unknown: the same bytes again, until it is known.
                                refused.fetch_add(1, Ordering::Relaxed);
                                sleep(Duration::from_millis(20));
                                client.send(&sent);
                            }
                            if stop.load(Ordering::Relaxed) {
                                return;
                            }
                        };
                        if reply.outcome() == 58 {
                            continue;
                        }
                        if reply.outcome() == 3009 {
                            refused.fetch_add(1, Ordering::Relaxed);
                            sleep(Duration::from_millis(20));
                            continue;
                        }
                        let base = confirmed(&reply, &place);
                        let mut ledger = ledgers[at].lock().unwrap();
                        ledger
                            .acknowledged
                            .extend((0..batch as u64).map(|index| (first + index, base + index)));
                    }
                });
            })
        };
        let threads = (0..ledgers.len()).map(thread).collect();
        Self { stop, refused, threads }
    }

    pub fn join(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

pub fn acknowledged(ledgers: &Ledgers) -> usize {
    ledgers.iter().map(|ledger| ledger.lock().unwrap().acknowledged.len()).sum()
}

/// Reads every partition and compares it with what its producer was told.
pub fn check(client: &mut Client, topic: &str, ledgers: &Ledgers, whole: bool) {
    for (at, ledger) in ledgers.iter().enumerate() {
        let ledger = &mut *ledger.lock().unwrap();
        let place = client.route(topic, at as u32);
        let mut offset = if whole { 0 } else { ledger.checked_to };
        let mut found = BTreeMap::new();
        let mut last = None;
        loop {
            let polled = client.poll(&place, Poll::offset(offset).count(PAGE).max_bytes(4 << 20));
            if polled.messages.is_empty() {
                break;
            }
            for message in polled.messages {
                assert_eq!(message.offset, offset, "partition {at}: offsets are contiguous");
                offset += 1;
                let number = u64::from_le_bytes(message.payload[..8].try_into().unwrap());
                assert_eq!(message.payload, payload(number, message.payload.len()), "partition {at}");
                assert!(last < Some(number), "partition {at}: {number} came after {last:?}");
                last = Some(number);
                found.insert(number, message.offset);
            }
        }
        let from = if whole { 0 } else { ledger.checked_to };
        for (number, told) in ledger.acknowledged.iter().filter(|(_, told)| **told >= from) {
            assert_eq!(found.get(number), Some(told), "partition {at}: message {number} was acknowledged");
        }
        ledger.checked_to = offset;
    }
}
