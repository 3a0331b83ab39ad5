//! The timers of a replica. A timer that is armed has a time; one without a time does not run, and there is nothing in
//! between (V60).

use laneway_wire::Nanos;

/// One timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The primary shows that it lives.
    Heartbeat,
    /// A backup has heard nothing.
    Suspect,
    /// The primary sends again what is not acknowledged.
    Resend,
    /// A suspicion or a vote is sent again.
    Vote,
    /// A view change takes too long.
    ViewChange,
    /// Ask for the current view again.
    GetView,
    /// A restarted replica found no primary.
    ColdStart,
    /// The primary may have lost its quorum.
    Abdicate,
    /// The next batch of repair.
    Repair,
}

const COUNT: usize = 9;

impl Timer {
    /// All of them, in the order in which they fire at one moment.
    pub const ALL: [Timer; COUNT] = [
        Timer::Heartbeat,
        Timer::Suspect,
        Timer::Resend,
        Timer::Vote,
        Timer::ViewChange,
        Timer::GetView,
        Timer::ColdStart,
        Timer::Abdicate,
        Timer::Repair,
    ];
}

/// All timers of one replica.
#[derive(Clone, Debug)]
pub(super) struct Timers {
    due: [Nanos; COUNT],
}

impl Timers {
    /// None runs.
    pub fn new() -> Timers {
        Timers { due: [Nanos::NEVER; COUNT] }
    }

    /// Lets a timer run until `at`, whether or not it ran before.
    pub fn arm(&mut self, timer: Timer, at: Nanos) {
        self.due[timer as usize] = at;
    }

    /// As [`Timers::arm`], unless it runs already.
    pub fn arm_idle(&mut self, timer: Timer, at: Nanos) {
        if !self.runs(timer) {
            self.arm(timer, at);
        }
    }

    pub fn stop(&mut self, timer: Timer) {
        self.due[timer as usize] = Nanos::NEVER;
    }

    pub fn stop_all(&mut self) {
        *self = Timers::new();
    }

    pub fn runs(&self, timer: Timer) -> bool {
        self.due[timer as usize] != Nanos::NEVER
    }

    pub fn next(&self) -> Nanos {
        self.due.into_iter().min().unwrap_or(Nanos::NEVER)
    }

    /// Stops a timer that is due and gives the time that it was due at. Whoever takes it arms it again or leaves it
    /// stopped, in the same step.
    pub fn take_due(&mut self, timer: Timer, now: Nanos) -> Option<Nanos> {
        let due = self.due[timer as usize];
        (due <= now && due != Nanos::NEVER).then(|| {
            self.stop(timer);
            due
        })
    }
}
