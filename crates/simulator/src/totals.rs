//! What a set of runs did, added up.

use crate::coverage::Coverage;
use crate::faults::{FAULT_KINDS, FaultKind};
use crate::queue::Time;

/// Counters of one run or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Runs by number of nodes.
    pub by_nodes: [u64; 7],
    /// Virtual time.
    pub simulated: u128,
    /// Things that happened.
    pub steps: u64,
    /// Ops committed.
    pub committed: u64,
    /// Requests that clients finished.
    pub requests: u64,
    /// Views that started with another primary.
    pub view_changes: u64,
    /// Entries that came from a peer.
    pub repairs: u64,
    /// Checkpoints that came from a peer.
    pub transfers: u64,
    /// Processes that ended.
    pub crashes: u64,
    /// Damaged records and copies that a start or a read met.
    pub corruptions: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Runs whose damage was beyond the model.
    pub beyond_model: u64,
    /// How often each kind of fault happened.
    pub faults: [u64; FAULT_KINDS],
    /// Marks.
    pub coverage: Coverage,
}

impl Totals {
    /// Notes the virtual time of a run.
    pub fn ran(&mut self, time: Time) {
        self.runs += 1;
        self.simulated += u128::from(time);
    }

    /// Adds other runs.
    pub fn add(&mut self, other: &Totals) {
        self.runs += other.runs;
        self.by_nodes.iter_mut().zip(other.by_nodes).for_each(|(sum, more)| *sum += more);
        self.simulated += other.simulated;
        self.steps += other.steps;
        self.committed += other.committed;
        self.requests += other.requests;
        self.view_changes += other.view_changes;
        self.repairs += other.repairs;
        self.transfers += other.transfers;
        self.crashes += other.crashes;
        self.corruptions += other.corruptions;
        self.checkpoints += other.checkpoints;
        self.beyond_model += other.beyond_model;
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, more)| *sum += more);
        self.coverage.add(&other.coverage);
    }

    /// Virtual seconds.
    pub fn simulated_seconds(&self) -> u64 {
        u64::try_from(self.simulated / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// A readable table.
    pub fn report(&self) -> String {
        let nodes: Vec<String> =
            self.by_nodes.iter().enumerate().skip(1).map(|(n, runs)| format!("{n}: {runs}")).collect();
        let faults: Vec<String> = FaultKind::ALL
            .iter()
            .zip(self.faults)
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| format!("{} {count}", kind.name()))
            .collect();
        format!(
            "runs                 {} (by nodes: {}), {} beyond the model\n\
             ops committed        {}\n\
             requests finished    {}\n\
             view changes         {}\n\
             repairs              {}\n\
             transfers            {}\n\
             crashes              {}\n\
             corruptions survived {}\n\
             checkpoints          {}\n\
             faults               {}\n\
             simulated            {} s in {} steps",
            self.runs,
            nodes.join(", "),
            self.beyond_model,
            self.committed,
            self.requests,
            self.view_changes,
            self.repairs,
            self.transfers,
            self.crashes,
            self.corruptions,
            self.checkpoints,
            faults.join(", "),
            self.simulated_seconds(),
            self.steps,
        )
    }
}
