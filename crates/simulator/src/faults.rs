//! Which faults happen. Every decision for a fault is counted, and a list of numbers can take single ones back: that is
//! how a failing run is made smaller.
//!
//! A decision that was taken back is drawn all the same, so the streams of random numbers stay where they were.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What a fault did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FaultKind {
    /// A message was lost.
    Loss,
    /// A message came twice.
    Duplicate,
    /// A message was held back.
    Delay,
    /// A connection broke: everything on it was lost.
    Reset,
    /// A message was damaged on the way.
    Garble,
    /// Nodes were cut off from each other.
    Partition,
    /// A link held everything back for a while.
    Clog,
    /// A write took long.
    SlowWrite,
    /// A disk did nothing for a while.
    StuckDisk,
    /// A write failed: no room.
    FullDisk,
    /// Written bytes were damaged.
    Corrupt,
    /// A write went to another place.
    Misdirect,
    /// A write was acknowledged and never happened.
    LostWrite,
    /// A flush was acknowledged and never happened.
    LostSync,
    /// An unfinished write was torn by a crash.
    Torn,
    /// A process was killed.
    Crash,
    /// A machine lost power.
    PowerLoss,
    /// A process stood still for a while.
    Pause,
    /// A shard ran slowly for a while.
    SlowShard,
    /// A directory was emptied.
    Wipe,
    /// A directory went back to an older copy.
    Rollback,
    /// A wall clock jumped.
    ClockStep,
    /// A wall clock ran fast or slow.
    ClockDrift,
    /// The reply to a client was lost.
    LostReply,
}

/// Number of kinds.
pub const FAULT_KINDS: usize = 24;

impl FaultKind {
    /// All kinds in the order of their numbers.
    pub const ALL: [FaultKind; FAULT_KINDS] = [
        FaultKind::Loss,
        FaultKind::Duplicate,
        FaultKind::Delay,
        FaultKind::Reset,
        FaultKind::Garble,
        FaultKind::Partition,
        FaultKind::Clog,
        FaultKind::SlowWrite,
        FaultKind::StuckDisk,
        FaultKind::FullDisk,
        FaultKind::Corrupt,
        FaultKind::Misdirect,
        FaultKind::LostWrite,
        FaultKind::LostSync,
        FaultKind::Torn,
        FaultKind::Crash,
        FaultKind::PowerLoss,
        FaultKind::Pause,
        FaultKind::SlowShard,
        FaultKind::Wipe,
        FaultKind::Rollback,
        FaultKind::ClockStep,
        FaultKind::ClockDrift,
        FaultKind::LostReply,
    ];

    /// The name in traces and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Loss => "loss",
            FaultKind::Duplicate => "duplicate",
            FaultKind::Delay => "delay",
            FaultKind::Reset => "reset",
            FaultKind::Garble => "garble",
            FaultKind::Partition => "partition",
            FaultKind::Clog => "clog",
            FaultKind::SlowWrite => "slow-write",
            FaultKind::StuckDisk => "stuck-disk",
            FaultKind::FullDisk => "full-disk",
            FaultKind::Corrupt => "corrupt",
            FaultKind::Misdirect => "misdirect",
            FaultKind::LostWrite => "lost-write",
            FaultKind::LostSync => "lost-sync",
            FaultKind::Torn => "torn",
            FaultKind::Crash => "crash",
            FaultKind::PowerLoss => "power-loss",
            FaultKind::Pause => "pause",
            FaultKind::SlowShard => "slow-shard",
            FaultKind::Wipe => "wipe",
            FaultKind::Rollback => "rollback",
            FaultKind::ClockStep => "clock-step",
            FaultKind::ClockDrift => "clock-drift",
            FaultKind::LostReply => "lost-reply",
        }
    }
}

/// Numbers of decisions that are taken back: single ones and ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask(BTreeSet<u32>);

impl Mask {
    /// A mask of these decisions.
    pub fn of(decisions: impl IntoIterator<Item = u32>) -> Self {
        Self(decisions.into_iter().collect())
    }

    /// Whether the decision is taken back.
    pub fn hides(&self, decision: u32) -> bool {
        self.0.contains(&decision)
    }

    /// How many decisions are taken back.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This mask and some more decisions.
    pub fn with(&self, decisions: impl IntoIterator<Item = u32>) -> Self {
        Self(self.0.iter().copied().chain(decisions).collect())
    }
}

impl fmt::Display for Mask {
    /// `3,7-20`: what [`Mask::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = left.next() {
            let mut last = first;
            while left.peek() == Some(&(last + 1)) {
                last += 1;
                left.next();
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Why text is not a mask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{part}` is neither a number nor a range like 7-20")]
pub struct MaskError {
    part: String,
}

impl FromStr for Mask {
    type Err = MaskError;

    fn from_str(text: &str) -> Result<Self, MaskError> {
        let mut decisions = BTreeSet::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let wrong = || MaskError { part: part.to_owned() };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| wrong())?;
            let last: u32 = last.trim().parse().map_err(|_| wrong())?;
            // A range that no run reaches is a slip, and would only eat memory.
            if last < first || last - first > 10_000_000 {
                return Err(wrong());
            }
            decisions.extend(first..=last);
        }
        Ok(Self(decisions))
    }
}

/// Counts the decisions of one run and takes back those of its mask.
#[derive(Debug, Default)]
pub struct Faults {
    mask: Mask,
    next: u32,
    counts: [u32; FAULT_KINDS],
    healed: bool,
}

impl Faults {
    /// No decision was taken yet.
    pub fn new(mask: Mask) -> Self {
        Self { mask, ..Self::default() }
    }

    /// Decides whether a fault that was drawn happens. After [`Faults::heal`] none does.
    pub fn decide(&mut self, kind: FaultKind, drawn: bool) -> bool {
        if !drawn || self.healed {
            return false;
        }
        let decision = self.next;
        self.next += 1;
        if self.mask.hides(decision) {
            return false;
        }
        self.counts[kind as usize] += 1;
        true
    }

    /// The number that the next decision gets; how many there were.
    pub fn decisions(&self) -> u32 {
        self.next
    }

    /// From now on no fault happens.
    pub fn heal(&mut self) {
        self.healed = true;
    }

    /// Whether faults are over.
    pub fn is_healed(&self) -> bool {
        self.healed
    }

    /// How often each kind happened.
    pub fn counts(&self) -> &[u32; FAULT_KINDS] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_reads_what_it_prints() {
        let mask = Mask::of([1, 2, 3, 7, 9, 10]);
        assert_eq!(mask.to_string(), "1-3,7,9-10");
        assert_eq!("1-3,7,9-10".parse(), Ok(mask));
        assert_eq!("".parse(), Ok(Mask::default()));
        for wrong in ["x", "3-", "5-4", "0-4294967295"] {
            assert!(wrong.parse::<Mask>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn masked_decisions_keep_their_numbers() {
        let mut faults = Faults::new(Mask::of([1]));
        let happened: Vec<bool> =
            [true, true, false, true].map(|drawn| faults.decide(FaultKind::Loss, drawn)).into();
        assert_eq!(happened, [true, false, false, true]);
        assert_eq!(faults.decisions(), 3);
        assert_eq!(faults.counts()[FaultKind::Loss as usize], 2);
        faults.heal();
        assert!(!faults.decide(FaultKind::Crash, true));
    }

    #[test]
    fn kinds_are_numbered_in_order() {
        assert!(FaultKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
    }
}
