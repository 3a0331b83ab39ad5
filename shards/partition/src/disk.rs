//! Polls that begin in segments. A bounded number reads at once; the others wait in the order in which they came.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use laneway_reads::{Selector, Start, StoredBatch, WaiterId};
use laneway_storage::StorageError;

use crate::clock;
use crate::owner::DiskRead;
use crate::shard::Shard;

/// Bytes that one step reads.
const CHUNK_BYTES: u64 = 1024 * 1024;

/// Reads of segments of one shard.
#[derive(Debug, Default)]
pub struct Reads {
    running: Cell<usize>,
    waiting: RefCell<VecDeque<WaiterId>>,
}

impl Shard {
    /// Reads segments for a poll, now or when its turn comes.
    pub fn read_segments(self: &Rc<Self>, id: WaiterId) {
        self.reads.waiting.borrow_mut().push_back(id);
        if self.reads.running.get() < self.settings.reads_at_once {
            self.reads.running.set(self.reads.running.get() + 1);
            let shard = self.clone();
            compio::runtime::spawn(async move { shard.run_reads().await }).detach();
        }
    }

    async fn run_reads(self: Rc<Self>) {
        loop {
            let next = self.reads.waiting.borrow_mut().pop_front();
            let Some(id) = next else { break };
            self.read_for(id).await;
            self.pump();
        }
        self.reads.running.set(self.reads.running.get() - 1);
    }

    async fn read_for(&self, id: WaiterId) {
        let selector = self.owner.borrow_mut().begin_read(id);
        let Some(mut selector) = selector else { return };
        let mut trimmed = false;
        let damaged = loop {
            if trimmed {
                // A read that has something ends before the gap; one that has nothing begins at the new start.
                if !selector.selected().is_empty() {
                    let (now, wall) = (clock::now(), clock::wall());
                    return self.owner.borrow_mut().finish_partial_read(now, wall, id, selector);
                }
                match self.owner.borrow_mut().begin_read(id) {
                    Some(again) => selector = again,
                    None => return,
                }
                trimmed = false;
            }
            let step = self.owner.borrow().plan_read(id, &selector, CHUNK_BYTES);
            match step {
                DiskRead::Gone => return,
                DiskRead::Done => break None,
                DiskRead::Trimmed => trimmed = true,
                DiskRead::Read(plan) => {
                    let file = plan.file;
                    match self.segments.read(plan).await {
                        Ok(chunk) => {
                            if let Some(index) = chunk.index {
                                self.owner.borrow_mut().install_index(id, file, index);
                            }
                            let Some(first) = chunk.batches.first() else { break None };
                            let first = first.header.base_offset;
                            if let Some(Start::Timestamp(_)) = selector.wants()
                                && let Some(above) = self.owner.borrow().begin_read_above(id, first)
                            {
                                selector = above;
                                continue;
                            }
                            let bytes = chunk.batches.iter().map(|batch| batch.bytes.len() as u64).sum();
                            selector.push_read(chunk.batches.into_iter().map(stored), bytes);
                        }
                        Err(_) if self.owner.borrow().is_trimmed(id, file) => trimmed = true,
                        Err(error) => break Some((file, error)),
                    }
                }
            }
        };
        if let Some((file, error)) = &damaged {
            let partition = self.partition_name(file.partition);
            tracing::error!(partition, %error, "a read of a segment failed");
        }
        self.finish_read(id, selector, damaged.map(|(_, error)| error));
    }

    /// A read that met damage serves what came before it; with nothing before it, the client learns of the damage.
    fn finish_read(&self, id: WaiterId, selector: Selector, damaged: Option<StorageError>) {
        let (now, wall) = (clock::now(), clock::wall());
        let mut owner = self.owner.borrow_mut();
        match damaged {
            Some(error) => {
                let start = match selector.wants() {
                    Some(laneway_reads::Start::Offset(offset)) => offset,
                    _ => laneway_wire::Offset(0),
                };
                if selector.selected().is_empty() && error.is_exhausted() {
                    // Nothing is wrong with the data: the same read works when there are descriptors again.
                    owner.refuse_read(id, laneway_wire::Status::TransientNotAccepted);
                } else if selector.selected().is_empty() {
                    let unreadable = laneway_reads::SelectError::Unreadable { offset: start };
                    owner.fail_read(now, wall, id, unreadable);
                } else {
                    owner.finish_partial_read(now, wall, id, selector);
                }
            }
            None => owner.finish_read(now, wall, id, selector),
        }
    }
}

fn stored(batch: laneway_storage::StoredBatch) -> StoredBatch {
    StoredBatch {
        base_offset: batch.header.base_offset,
        message_count: batch.header.message_count,
        base_timestamp: batch.header.base_timestamp,
        bytes: batch.bytes,
    }
}
