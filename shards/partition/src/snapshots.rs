//! Archives for bug reports: one at a time on the node, on a thread of its own. Source: resources, section 19.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use laneway_mailbox::{Class, Refused};
use laneway_wire::request::GetSnapshot;

use crate::calls::CallId;
use crate::message::{Answer, Message, Post};

/// Makes an archive; none when it cannot.
pub type Make = dyn Fn(&GetSnapshot) -> Option<Vec<u8>> + Send + Sync;

/// The way to archives. One for all shards.
#[derive(Clone)]
pub struct Snapshots {
    make: Arc<Make>,
    busy: Arc<AtomicBool>,
}

/// An archive is being made already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a snapshot is being made already")]
pub struct Busy;

/// Lets the next one begin.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Snapshots {
    /// Archives that `make` makes.
    pub fn new(make: Arc<Make>) -> Self {
        Self { make, busy: Arc::default() }
    }

    /// Starts an archive; its answer goes to `call`. Errors: [`Busy`], also when the system has no thread.
    pub fn start(&self, request: GetSnapshot, answer_to: Post, call: CallId) -> Result<(), Busy> {
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(Busy);
        }
        let (turn, make) = (Turn(self.busy.clone()), self.make.clone());
        let work = move || {
            let archive = make(&request).map(Bytes::from);
            drop(turn);
            let mut message = Message::Answer { call, answer: Answer::Snapshot(archive) };
            // A full queue empties within turns of its shard.
            while let Err(Refused(back)) = answer_to.send(Class::Reply, message) {
                message = back;
                thread::sleep(Duration::from_millis(1));
            }
        };
        thread::Builder::new().name("snapshot".to_owned()).spawn(work).map(drop).map_err(|_| Busy)
    }
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshots(..)")
    }
}
