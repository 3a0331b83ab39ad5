//! A wake-up between tasks of one shard. Remembers one ring, so a ring before the wait is not lost.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// One waiting task at a time; lives on one shard.
#[derive(Debug, Default)]
pub struct Signal {
    rung: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    /// Ends the current wait, or the next one.
    pub fn ring(&self) {
        self.rung.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits for a ring, and takes it.
    pub async fn wait(&self) {
        poll_fn(|context| {
            if self.rung.replace(false) {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn ring_before_the_wait_is_kept_once() {
        let signal = Signal::default();
        signal.ring();
        signal.ring();
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(signal.wait()).poll(&mut context).is_ready());
        assert!(pin!(signal.wait()).poll(&mut context).is_pending());
    }
}
