//! Password checks, on threads of their own. A check is slow on purpose; none runs on a shard's thread, and a storm of
//! sign-ins fills a queue of its own and nothing else.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use laneway_mailbox::Class;

use crate::calls::CallId;
use crate::message::{Answer, Message, Post};

/// Sign-ins that may wait for their check. The next one is told to come again.
const WAITING_MAX: usize = 512;

/// Checks a password against the stored hash of a user, or against a stand-in when there is no such user. Takes the
/// same time either way.
pub type Check = dyn Fn(&str, Option<&str>) -> bool + Send + Sync;

/// The way to the threads that check. They end when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Passwords {
    jobs: Sender<Job>,
}

#[derive(Debug)]
struct Job {
    password: Vec<u8>,
    stored: Option<String>,
    answer_to: Post,
    call: CallId,
}

/// Too many sign-ins wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{WAITING_MAX} sign-ins wait for their password check")]
pub struct Busy;

impl Passwords {
    /// Starts `threads` threads, at least one.
    pub fn start(threads: usize, check: Arc<Check>) -> io::Result<Self> {
        let (jobs, waiting) = bounded(WAITING_MAX);
        for _ in 0..threads.max(1) {
            let (waiting, check) = (waiting.clone(), check.clone());
            std::thread::Builder::new().name("passwords".to_owned()).spawn(move || run(&waiting, &*check))?;
        }
        Ok(Self { jobs })
    }

    /// Lets a thread check. The answer, [`Answer::Password`], comes to the shard behind `answer_to`.
    pub fn check(
        &self,
        password: Vec<u8>,
        stored: Option<String>,
        answer_to: Post,
        call: CallId,
    ) -> Result<(), Busy> {
        self.jobs.try_send(Job { password, stored, answer_to, call }).map_err(|_full| Busy)
    }
}

fn run(jobs: &Receiver<Job>, check: &Check) {
    for Job { password, stored, answer_to, call } in jobs {
        // A password that is no text is none, and takes as long.
        let text = std::str::from_utf8(&password);
        let matches = check(text.unwrap_or_default(), stored.as_deref()) && text.is_ok();
        let mut message = Message::Answer { call, answer: Answer::Password(matches) };
        while let Err(laneway_mailbox::Refused(back)) = answer_to.send(Class::Reply, message) {
            message = back;
            if answer_to.is_closed() {
                break;
            }
            std::thread::yield_now();
        }
    }
}
