//! How far a thread may go: a number that another thread raises and this one waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

use atomic_waker::AtomicWaker;

#[derive(Debug, Default)]
struct Shared {
    stage: AtomicU8,
    waker: AtomicWaker,
}

/// One stage counter: cloned for the thread that raises it, awaited by one task of the thread that follows.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    shared: Arc<Shared>,
}

impl Stage {
    /// Raises the counter; it never goes back.
    pub fn raise(&self, stage: u8) {
        self.shared.stage.fetch_max(stage, Ordering::SeqCst);
        self.shared.waker.wake();
    }

    /// The current number.
    pub fn get(&self) -> u8 {
        self.shared.stage.load(Ordering::SeqCst)
    }

    /// Waits until the counter is at least `stage`.
    pub async fn reached(&self, stage: u8) {
        std::future::poll_fn(|context| {
            if self.get() >= stage {
                return Poll::Ready(());
            }
            self.shared.waker.register(context.waker());
            // Look again: it may have been raised before the waker was there.
            if self.get() >= stage { Poll::Ready(()) } else { Poll::Pending }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn waits_for_its_stage_and_never_goes_back() {
        let stage = Stage::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut second = pin!(stage.reached(2));
        assert!(second.as_mut().poll(&mut context).is_pending());
        stage.raise(1);
        assert!(second.as_mut().poll(&mut context).is_pending());
        stage.raise(2);
        stage.raise(1);
        assert!(second.as_mut().poll(&mut context).is_ready());
        assert_eq!(stage.get(), 2);
    }
}
