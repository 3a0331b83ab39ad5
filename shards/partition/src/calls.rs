//! Questions to other shards that a task of this shard waits for. The hot path does not pass here: sends and polls
//! are answered straight into the connection's outbox.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use laneway_transport::Signal;

use crate::message::Answer;

/// A question that waits for its answer. Unique on the asking shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

#[derive(Debug, Default)]
struct Slot {
    answer: RefCell<Option<Answer>>,
    arrived: Signal,
}

/// The questions of one shard that are open.
#[derive(Debug, Default)]
pub struct Calls {
    next: Cell<u64>,
    open: RefCell<BTreeMap<CallId, Rc<Slot>>>,
}

/// One open question. Dropping it gives the answer up.
#[derive(Debug)]
pub struct Call<'a> {
    calls: &'a Calls,
    id: CallId,
    slot: Rc<Slot>,
}

impl Calls {
    /// Opens a question.
    pub fn open(&self) -> Call<'_> {
        let id = CallId(self.next.get());
        self.next.set(id.0 + 1);
        let slot = Rc::new(Slot::default());
        self.open.borrow_mut().insert(id, slot.clone());
        Call { calls: self, id, slot }
    }

    /// Delivers an answer. One that nobody waits for any more is dropped.
    pub fn answer(&self, id: CallId, answer: Answer) {
        if let Some(slot) = self.open.borrow_mut().remove(&id) {
            *slot.answer.borrow_mut() = Some(answer);
            slot.arrived.ring();
        }
    }
}

impl Call<'_> {
    /// The number that the answer has to carry.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Waits for the answer.
    pub async fn wait(self) -> Answer {
        loop {
            if let Some(answer) = self.slot.answer.borrow_mut().take() {
                return answer;
            }
            self.slot.arrived.wait().await;
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.open.borrow_mut().remove(&self.id);
    }
}
