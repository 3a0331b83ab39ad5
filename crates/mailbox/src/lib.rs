//! The bounded queues into a shard. What crosses is owned data: buffers move, nothing is shared, nothing is locked.
//!
//! A mailbox has three queues, so that bulk cannot starve what ends other people's waits: control (the shard's own
//! lanes and partitions), replies, and requests; and one cell that holds only the newest published value (the
//! metadata version). A full queue refuses at once and gives the message back; nobody ever blocks.
//!
//! Waking costs one system call and is coalesced: a sender wakes a receiver only if the receiver sleeps, and only the
//! first of many senders does.
#![forbid(unsafe_code)]

mod stage;

pub use stage::Stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use crossbeam_channel::{Receiver as Queue, Sender as QueueSender, TrySendError};
use crossbeam_queue::ArrayQueue;

/// Which queue a message takes. The order is the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Opens and fences of partitions, and what answers them. Bounded by the metadata requests in flight.
    Control,
    /// Answers to requests that this shard sent. Bounded by those requests.
    Reply,
    /// Requests from other shards.
    Request,
}

/// How many messages each queue holds.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Control messages.
    pub control: usize,
    /// Replies.
    pub reply: usize,
    /// Requests.
    pub request: usize,
}

/// The queue of that class is full, or the shard is gone. The message comes back; nothing happened.
#[derive(Debug, thiserror::Error)]
#[error("the mailbox is full or its shard has stopped")]
pub struct Refused<M>(pub M);

/// Counts of one mailbox, read by statistics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages taken in.
    pub sent: AtomicU64,
    /// Messages refused because a queue was full.
    pub refused: AtomicU64,
    /// Wake-ups, each one system call.
    pub wakes: AtomicU64,
}

#[derive(Debug)]
struct Bell {
    waker: AtomicWaker,
    sleeping: AtomicBool,
    closed: AtomicBool,
    counters: Counters,
}

impl Bell {
    fn ring(&self) {
        // The receiver sets the flag before it looks at its queues for the last time, so either it sees the message
        // or this sees the flag.
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.counters.wakes.fetch_add(1, Ordering::Relaxed);
            self.waker.wake();
        }
    }
}

/// The sending side, one clone for each shard that sends.
#[derive(Debug)]
pub struct Sender<M, P> {
    control: QueueSender<M>,
    reply: QueueSender<M>,
    request: QueueSender<M>,
    published: Arc<ArrayQueue<P>>,
    bell: Arc<Bell>,
}

impl<M, P> Clone for Sender<M, P> {
    fn clone(&self) -> Self {
        Self {
            control: self.control.clone(),
            reply: self.reply.clone(),
            request: self.request.clone(),
            published: self.published.clone(),
            bell: self.bell.clone(),
        }
    }
}

/// The receiving side. Lives on its shard.
#[derive(Debug)]
pub struct Mailbox<M, P> {
    control: Queue<M>,
    reply: Queue<M>,
    request: Queue<M>,
    published: Arc<ArrayQueue<P>>,
    bell: Arc<Bell>,
}

/// A mailbox and its sender. Capacities are at least 1.
pub fn mailbox<M, P>(capacity: Capacity) -> (Sender<M, P>, Mailbox<M, P>) {
    let (control_in, control) = crossbeam_channel::bounded(capacity.control.max(1));
    let (reply_in, reply) = crossbeam_channel::bounded(capacity.reply.max(1));
    let (request_in, request) = crossbeam_channel::bounded(capacity.request.max(1));
    let published = Arc::new(ArrayQueue::new(1));
    let bell = Arc::new(Bell {
        waker: AtomicWaker::new(),
        sleeping: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        counters: Counters::default(),
    });
    let sender = Sender {
        control: control_in,
        reply: reply_in,
        request: request_in,
        published: published.clone(),
        bell: bell.clone(),
    };
    (sender, Mailbox { control, reply, request, published, bell })
}

impl<M, P> Sender<M, P> {
    /// Puts a message into its queue and wakes the shard if it sleeps.
    pub fn send(&self, class: Class, message: M) -> Result<(), Refused<M>> {
        let queue = match class {
            Class::Control => &self.control,
            Class::Reply => &self.reply,
            Class::Request => &self.request,
        };
        match queue.try_send(message) {
            Ok(()) => {
                self.bell.counters.sent.fetch_add(1, Ordering::Relaxed);
                self.bell.ring();
                Ok(())
            }
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => {
                self.bell.counters.refused.fetch_add(1, Ordering::Relaxed);
                Err(Refused(message))
            }
        }
    }

    /// Replaces the published value and wakes the shard if it sleeps. Only the newest value is kept.
    pub fn publish(&self, value: P) {
        self.published.force_push(value);
        self.bell.ring();
    }

    /// Whether the shard is gone: nothing will ever be taken again.
    pub fn is_closed(&self) -> bool {
        self.bell.closed.load(Ordering::Acquire)
    }

    /// The counts of this mailbox.
    pub fn counters(&self) -> &Counters {
        &self.bell.counters
    }
}

impl<M, P> Drop for Mailbox<M, P> {
    fn drop(&mut self) {
        self.bell.closed.store(true, Ordering::Release);
    }
}

impl<M, P> Mailbox<M, P> {
    /// The newest published value that was not taken yet.
    pub fn take_published(&self) -> Option<P> {
        self.published.pop()
    }

    /// The next message: control before replies before requests.
    pub fn take(&self) -> Option<M> {
        self.control.try_recv().or_else(|_| self.reply.try_recv()).or_else(|_| self.request.try_recv()).ok()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.control.is_empty()
            && self.reply.is_empty()
            && self.request.is_empty()
            && self.published.is_empty()
    }

    /// Ready when something waits. Until then the first send wakes the task of `context`.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_empty() {
            return Poll::Ready(());
        }
        self.bell.waker.register(context.waker());
        self.bell.sleeping.store(true, Ordering::SeqCst);
        // Look again after announcing sleep: a message that came in between rang no bell.
        if self.is_empty() {
            return Poll::Pending;
        }
        self.bell.sleeping.store(false, Ordering::SeqCst);
        Poll::Ready(())
    }

    /// Waits until something waits here.
    pub async fn ready(&self) {
        std::future::poll_fn(|context| self.poll_ready(context)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Rings(AtomicUsize);

    impl Wake for Rings {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn small() -> (Sender<u32, u32>, Mailbox<u32, u32>) {
        mailbox(Capacity { control: 2, reply: 2, request: 2 })
    }

    #[test]
    fn control_comes_before_replies_and_replies_before_requests() {
        let (sender, mailbox) = small();
        sender.send(Class::Request, 3).unwrap();
        sender.send(Class::Reply, 2).unwrap();
        sender.send(Class::Control, 1).unwrap();
        let taken: Vec<u32> = std::iter::from_fn(|| mailbox.take()).collect();
        assert_eq!(taken, [1, 2, 3]);
    }

    #[test]
    fn full_queue_gives_the_message_back_and_leaves_the_others_open() {
        let (sender, mailbox) = small();
        sender.send(Class::Request, 1).unwrap();
        sender.send(Class::Request, 2).unwrap();
        let Refused(back) = sender.send(Class::Request, 3).unwrap_err();
        assert_eq!(back, 3);
        sender.send(Class::Reply, 4).unwrap();
        assert_eq!(mailbox.take(), Some(4));
        assert_eq!(sender.counters().refused.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn only_the_newest_published_value_is_kept() {
        let (sender, mailbox) = small();
        for version in 1..=5 {
            sender.publish(version);
        }
        assert_eq!(mailbox.take_published(), Some(5));
        assert_eq!(mailbox.take_published(), None);
    }

    #[test]
    fn sleeping_receiver_is_woken_once_for_many_messages() {
        let (sender, mailbox) = small();
        let rings = Arc::new(Rings::default());
        let waker = Waker::from(rings.clone());
        let mut context = Context::from_waker(&waker);
        assert!(mailbox.poll_ready(&mut context).is_pending());
        sender.send(Class::Request, 1).unwrap();
        sender.send(Class::Reply, 2).unwrap();
        sender.publish(3);
        assert_eq!(rings.0.load(Ordering::SeqCst), 1);
        assert!(mailbox.poll_ready(&mut context).is_ready());
    }

    #[test]
    fn sender_learns_that_the_shard_is_gone() {
        let (sender, mailbox) = small();
        assert!(!sender.is_closed());
        drop(mailbox);
        assert!(sender.is_closed());
        assert!(sender.send(Class::Reply, 1).is_err());
    }

    #[test]
    fn running_receiver_is_not_woken() {
        let (sender, mailbox) = small();
        let rings = Arc::new(Rings::default());
        let waker = Waker::from(rings.clone());
        sender.send(Class::Request, 1).unwrap();
        assert!(mailbox.poll_ready(&mut Context::from_waker(&waker)).is_ready());
        sender.send(Class::Request, 2).unwrap();
        assert_eq!(rings.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn no_message_is_lost_between_a_sending_and_a_sleeping_thread() {
        const MESSAGES: u32 = 20_000;
        let (sender, mailbox) = mailbox::<u32, u32>(Capacity { control: 1, reply: 1, request: 8 });
        let producer = std::thread::spawn(move || {
            for message in 0..MESSAGES {
                let mut message = message;
                while let Err(Refused(back)) = sender.send(Class::Request, message) {
                    message = back;
                    std::thread::yield_now();
                }
            }
        });
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut expected = 0;
        while expected < MESSAGES {
            match mailbox.poll_ready(&mut context) {
                Poll::Pending => std::thread::park(),
                Poll::Ready(()) => {
                    while let Some(message) = mailbox.take() {
                        assert_eq!(message, expected);
                        expected += 1;
                    }
                }
            }
        }
        producer.join().unwrap();
    }
}
