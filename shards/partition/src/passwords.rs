//! Password checks and hashes, on threads of their own. One is slow on purpose; none runs on a shard's thread, the
//! threads yield to the shards, and a storm of sign-ins fills a queue of its own and nothing else.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, select};
use laneway_mailbox::Class;
use rustix::process::nice;

use crate::calls::CallId;
use crate::clock;
use crate::damping::{Damping, Source};
use crate::message::{Answer, Message, Post};
use crate::secret::Secret;

/// Sign-ins that may wait for their check. The next one is told to come again.
const SIGN_INS_MAX: usize = 512;

/// Passwords that signed-in users make or change and that may wait. They go before the sign-ins of strangers.
const CHANGES_MAX: usize = 64;

/// How much the threads yield to the shards: a ninth of their share where both want a core.
const NICENESS: i32 = 10;

/// What is done with passwords.
#[derive(Clone)]
pub struct Methods {
    /// Checks a password against the stored hash of a user, or against a stand-in when there is no such user. Takes the
    /// same time either way.
    pub check: Arc<Check>,
    /// Makes the stored hash of a password; none when the system has no random bytes.
    pub hash: Arc<Hash>,
}

/// See [`Methods::check`].
pub type Check = dyn Fn(&str, Option<&str>) -> bool + Send + Sync;

/// See [`Methods::hash`].
pub type Hash = dyn Fn(&str) -> Option<String> + Send + Sync;

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Methods(..)")
    }
}

/// What one caller wants.
#[derive(Debug)]
pub struct Work {
    /// A password to check first; without one the rest is done at once.
    pub check: Option<Guess>,
    /// A password to hash, if the check went well.
    pub hash: Option<Secret>,
}

/// A password that somebody claims to know.
#[derive(Debug)]
pub struct Guess {
    /// Who claims it.
    pub source: Source,
    /// The password.
    pub password: Secret,
    /// The hash that it has to match; none for a user that is not there.
    pub stored: Option<String>,
}

/// What became of [`Work`].
#[derive(Clone, PartialEq, Eq)]
pub enum Checked {
    /// The password was right, or none was to be checked. With the hash that was asked for.
    Right(Option<String>),
    /// The password was wrong.
    Wrong,
    /// Nothing was done: the source was wrong too often, or the system has no random bytes. Try later.
    Later,
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Checked::Right(_) => "Right(..)",
            Checked::Wrong => "Wrong",
            Checked::Later => "Later",
        })
    }
}

/// The way to the threads. They end when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Passwords {
    sign_ins: Sender<Job>,
    changes: Sender<Job>,
}

#[derive(Debug)]
struct Job {
    work: Work,
    answer_to: Post,
    call: CallId,
}

/// Too much waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords wait for their check")]
pub struct Busy;

/// What a thread needs.
#[derive(Clone, Debug)]
struct Worker {
    sign_ins: Receiver<Job>,
    changes: Receiver<Job>,
    methods: Methods,
    /// Shared by the threads of this module only; no shard ever waits for it.
    damping: Arc<Mutex<Damping>>,
}

impl Passwords {
    /// Starts `threads` threads, at least one.
    pub fn start(threads: usize, methods: Methods) -> io::Result<Self> {
        let (sign_ins, sign_ins_waiting) = bounded(SIGN_INS_MAX);
        let (changes, changes_waiting) = bounded(CHANGES_MAX);
        let worker =
            Worker { sign_ins: sign_ins_waiting, changes: changes_waiting, methods, damping: Arc::default() };
        for _ in 0..threads.max(1) {
            let worker = worker.clone();
            std::thread::Builder::new().name("passwords".to_owned()).spawn(move || worker.run())?;
        }
        Ok(Self { sign_ins, changes })
    }

    /// Lets a thread check the password of a stranger. [`Answer::Password`] comes to the shard behind `answer_to`.
    pub fn sign_in(&self, guess: Guess, answer_to: Post, call: CallId) -> Result<(), Busy> {
        let work = Work { check: Some(guess), hash: None };
        self.sign_ins.try_send(Job { work, answer_to, call }).map_err(|_full| Busy)
    }

    /// Lets a thread work for a signed-in user. [`Answer::Password`] comes to the shard behind `answer_to`.
    pub fn change(&self, work: Work, answer_to: Post, call: CallId) -> Result<(), Busy> {
        self.changes.try_send(Job { work, answer_to, call }).map_err(|_full| Busy)
    }
}

impl Worker {
    fn run(&self) {
        // Without it the shards are held up more; everything still works.
        let _ = nice(NICENESS);
        while let Some(Job { work, answer_to, call }) = self.next() {
            let mut message = Message::Answer { call, answer: Answer::Password(self.perform(work)) };
            while let Err(laneway_mailbox::Refused(back)) = answer_to.send(Class::Reply, message) {
                message = back;
                if answer_to.is_closed() {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }

    /// The next job: a change before a sign-in. None when the broker is gone.
    fn next(&self) -> Option<Job> {
        match self.changes.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        select! {
            recv(self.changes) -> job => job.ok(),
            recv(self.sign_ins) -> job => job.ok(),
        }
    }

    fn perform(&self, work: Work) -> Checked {
        if let Some(guess) = &work.check {
            if !self.damping().admits(clock::now(), guess.source) {
                return Checked::Later;
            }
            // A password that is no text is none, and takes as long.
            let text = guess.password.text();
            let matches =
                (self.methods.check)(text.unwrap_or_default(), guess.stored.as_deref()) && text.is_some();
            if !matches {
                self.damping().note_wrong(clock::now(), guess.source);
                return Checked::Wrong;
            }
        }
        let Some(password) = &work.hash else { return Checked::Right(None) };
        match password.text().and_then(|text| (self.methods.hash)(text)) {
            Some(hash) => Checked::Right(Some(hash)),
            None => Checked::Later,
        }
    }

    fn damping(&self) -> std::sync::MutexGuard<'_, Damping> {
        // Counts stay sound whatever happened to the thread that held them.
        self.damping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
