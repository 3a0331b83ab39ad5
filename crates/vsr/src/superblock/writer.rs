//! The order in which a record is written: copy 0, copy 1, flush, copy 2, copy 3, flush, then every copy is read back
//! and three must be equal to what was meant. Before the first flush two copies hold the old record for sure, after it
//! two hold the new one.

use laneway_wire::Nanos;

use super::Superblock;
use super::copies::Opened;
use super::record::{self, COPIES, COPY_SPACING, RECORD_BYTES, Stamp};

/// Copies that must be read back equal before a record counts as durable.
const VERIFIED_MIN: usize = 3;

/// First pause after a failed write. Doubles up to [`RETRY_PAUSE_US_MAX`]. Source: cluster specification, 2.4.
const RETRY_PAUSE_US: u64 = 10_000;

/// Longest pause between two attempts.
const RETRY_PAUSE_US_MAX: u64 = 1_000_000;

/// How long a record may stay unwritable. A replica that cannot write down its promises must not stay in the way of
/// the others, so its process ends. Source: V97.
pub const UNWRITABLE_US_MAX: u64 = 30_000_000;

/// One thing for the driver to do with the file. One at a time.
#[derive(Clone, PartialEq, Eq)]
pub enum Step {
    /// Write all bytes at a position.
    Write {
        /// Position in the file.
        position: u64,
        /// One copy.
        bytes: Vec<u8>,
    },
    /// Make what was written durable.
    Flush,
    /// Read one copy back from the device, not from a cache that would repeat what was written.
    Read {
        /// Position in the file.
        position: u64,
        /// Bytes to read.
        length: usize,
    },
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // A page of numbers helps nobody.
            Step::Write { position, bytes } => write!(f, "Write {{ {} bytes at {position} }}", bytes.len()),
            Step::Flush => f.write_str("Flush"),
            Step::Read { position, length } => write!(f, "Read {{ {length} bytes at {position} }}"),
        }
    }
}

/// What to do about a step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Give {
    /// Ask for the next step at this moment: the whole record is written again.
    RetryAt(Nanos),
    /// End the process.
    Up,
}

/// Writes records one after another. What is asked for during a write forms the next one together.
#[derive(Debug)]
pub struct SuperblockWriter {
    durable: Option<Superblock>,
    /// Checksum of the newest record that was begun: the parent of the next.
    parent: u128,
    /// Highest number that any copy may carry.
    sequence: u64,
    writing: Option<Writing>,
    queued: Option<(u64, Superblock)>,
    failing_since: Option<Nanos>,
    retry_at: Option<Nanos>,
    pause_us: u64,
}

#[derive(Debug)]
struct Writing {
    /// What the caller calls it; `None` for the repair of stale copies.
    ticket: Option<u64>,
    superblock: Superblock,
    bytes: Vec<u8>,
    plan: Vec<Planned>,
    /// Steps of the plan that are done.
    done: usize,
    verified: usize,
    /// The step at `done` was given out.
    in_flight: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planned {
    Write(u8),
    Flush,
    Read(u8),
}

impl Writing {
    fn new(ticket: Option<u64>, superblock: Superblock, stamp: Stamp, copies: &[u8]) -> Writing {
        let bytes = record::encode(&superblock, stamp);
        let mut plan = Vec::new();
        for pair in copies.chunks(2) {
            plan.extend(pair.iter().copied().map(Planned::Write));
            plan.push(Planned::Flush);
        }
        plan.extend((0..COPIES as u8).map(Planned::Read));
        Writing { ticket, superblock, bytes, plan, done: 0, verified: 0, in_flight: false }
    }
}

impl SuperblockWriter {
    /// A writer for a replica that has no record yet.
    pub fn fresh() -> SuperblockWriter {
        SuperblockWriter {
            durable: None,
            parent: 0,
            sequence: 0,
            writing: None,
            queued: None,
            failing_since: None,
            retry_at: None,
            pause_us: RETRY_PAUSE_US,
        }
    }

    /// A writer that goes on where the copies end. It first repairs copies that do not hold the record.
    pub fn resume(opened: &Opened) -> SuperblockWriter {
        let mut writer = SuperblockWriter {
            durable: Some(opened.superblock.clone()),
            parent: opened.checksum,
            sequence: opened.sequence_seen,
            ..SuperblockWriter::fresh()
        };
        if !opened.stale.is_empty() {
            // The good copies are not touched: they may be the only ones.
            writer.writing = Some(Writing::new(None, opened.superblock.clone(), opened.stamp, &opened.stale));
        }
        writer
    }

    /// The newest record that is known to be durable.
    pub fn durable(&self) -> Option<&Superblock> {
        self.durable.as_ref()
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.writing.is_none() && self.queued.is_none()
    }

    /// Asks for a record. `ticket` grows from request to request; the completion of a later one covers the earlier. A
    /// ticket above every number seen at the start becomes the sequence of the record.
    ///
    /// # Panics
    /// When the record takes back what an earlier one promised (V29, V31), or belongs to another replica.
    pub fn request(&mut self, ticket: u64, superblock: Superblock) {
        let before = match (&self.queued, &self.writing) {
            (Some((earlier, queued)), _) => {
                assert!(*earlier < ticket, "ticket {ticket} after {earlier}");
                Some(queued)
            }
            (None, Some(writing)) => {
                assert!(writing.ticket < Some(ticket), "ticket {ticket} after {:?}", writing.ticket);
                Some(&writing.superblock)
            }
            (None, None) => self.durable.as_ref(),
        };
        if let Some(before) = before {
            assert!(before.may_become(&superblock), "{before:?} must not become {superblock:?}");
        }
        assert!(superblock.is_consistent(), "{superblock:?}");
        self.queued = Some((ticket, superblock));
    }

    /// The next step, if one is due. Answered by [`SuperblockWriter::handle_done`], [`SuperblockWriter::handle_read`]
    /// or [`SuperblockWriter::handle_failed`] before the next one is given.
    pub fn poll_step(&mut self, now: Nanos) -> Option<Step> {
        if self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        self.retry_at = None;
        if self.writing.is_none() {
            let (ticket, superblock) = self.queued.take()?;
            // The caller's numbers are the records', so that they go on across restarts.
            self.sequence = ticket.max(self.sequence + 1);
            let stamp = Stamp { sequence: self.sequence, parent: self.parent };
            let copies: Vec<u8> = (0..COPIES as u8).collect();
            let writing = Writing::new(Some(ticket), superblock, stamp, &copies);
            self.parent = record::checksum_of(&writing.bytes);
            self.writing = Some(writing);
        }
        let writing = self.writing.as_mut()?;
        if writing.in_flight {
            return None;
        }
        writing.in_flight = true;
        Some(match writing.plan[writing.done] {
            Planned::Write(copy) => {
                let mut bytes = writing.bytes.clone();
                record::set_copy(&mut bytes, copy);
                Step::Write { position: position(copy), bytes }
            }
            Planned::Flush => Step::Flush,
            Planned::Read(copy) => Step::Read { position: position(copy), length: RECORD_BYTES },
        })
    }

    /// The step, a write or a flush, has finished.
    pub fn handle_done(&mut self) {
        let writing = self.writing.as_mut().expect("a step was given out");
        assert!(writing.in_flight && !matches!(writing.plan[writing.done], Planned::Read(_)));
        writing.in_flight = false;
        writing.done += 1;
    }

    /// The step, a read, has finished. Gives the ticket that is durable now, when this was the last copy and enough
    /// were equal. A record that is not there in spite of its writes is written again, like one whose write failed.
    pub fn handle_read(&mut self, now: Nanos, bytes: &[u8]) -> Result<Option<u64>, Give> {
        let writing = self.writing.as_mut().expect("a step was given out");
        let Planned::Read(copy) = writing.plan[writing.done] else { panic!("the step was no read") };
        assert!(writing.in_flight);
        writing.in_flight = false;
        writing.done += 1;
        record::set_copy(&mut writing.bytes, copy);
        writing.verified += usize::from(writing.bytes == bytes);
        if writing.done < writing.plan.len() {
            return Ok(None);
        }
        if writing.verified < VERIFIED_MIN {
            return Err(self.again(now));
        }
        let writing = self.writing.take().expect("it is being written");
        self.durable = Some(writing.superblock);
        self.failing_since = None;
        self.pause_us = RETRY_PAUSE_US;
        Ok(writing.ticket)
    }

    /// The step has failed.
    pub fn handle_failed(&mut self, now: Nanos) -> Give {
        assert!(self.writing.as_ref().is_some_and(|writing| writing.in_flight), "a step was given out");
        self.again(now)
    }

    /// When to call [`SuperblockWriter::poll_step`] again after a failure.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.retry_at
    }

    fn again(&mut self, now: Nanos) -> Give {
        let since = *self.failing_since.get_or_insert(now);
        if now.us_since(since) >= UNWRITABLE_US_MAX {
            return Give::Up;
        }
        let writing = self.writing.as_mut().expect("something is being written");
        writing.done = 0;
        writing.verified = 0;
        writing.in_flight = false;
        let at = now.after_us(self.pause_us);
        self.pause_us = (self.pause_us * 2).min(RETRY_PAUSE_US_MAX);
        self.retry_at = Some(at);
        Give::RetryAt(at)
    }
}

fn position(copy: u8) -> u64 {
    u64::from(copy) * COPY_SPACING
}
