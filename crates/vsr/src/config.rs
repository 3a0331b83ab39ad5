//! Who a replica is, and how patient.

use laneway_wire::{LaneId, ReplicaId};

use crate::header::ClusterId;
use crate::roster::{Role, Roster};
use crate::vote::WINDOW_OPS_MAX;

/// [`WINDOW_OPS_MAX`] of a lane with one member. Nobody votes there, so it may be deeper; a journal that flushes a thousand
/// entries at once is what makes a single node fast.
pub const WINDOW_OPS_ALONE_MAX: usize = 1024;

/// Bytes of entries that may be proposed and not yet applied. One larger entry is taken when nothing else is in flight.
pub const WINDOW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Who a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The cluster.
    pub cluster: ClusterId,
    /// The lane.
    pub lane: LaneId,
    /// This replica.
    pub replica: ReplicaId,
    /// Who replicates the lane.
    pub roster: Roster,
    /// How patient it is.
    pub timing: Timing,
    /// Start of its randomness: jitter and nonces. Drawn anew at every start of the process.
    pub seed: u64,
}

/// Why a replica cannot start as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The replica is not of the lane.
    #[error("replica {replica} is no member of lane {lane}")]
    Stranger {
        /// The replica.
        replica: ReplicaId,
        /// The lane.
        lane: LaneId,
    },
    /// Two times do not fit.
    #[error("timing: {0}")]
    Timing(&'static str),
}

impl Config {
    /// A lane with one member, which never waits for anybody.
    pub fn alone(cluster: ClusterId, lane: LaneId) -> Config {
        let roster = Roster::initial(lane, 1).expect("one member has quorums");
        Config { cluster, lane, replica: ReplicaId(0), roster, timing: Timing::DEFAULT, seed: 0 }
    }

    /// Checks what must hold.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.roster.role(self.replica) == Role::Stranger {
            return Err(ConfigError::Stranger { replica: self.replica, lane: self.lane });
        }
        self.timing.check().map_err(ConfigError::Timing)
    }

    /// Entries that may be proposed and not yet applied.
    pub fn window_ops(&self) -> usize {
        match self.roster.members().len() {
            1 => WINDOW_OPS_ALONE_MAX,
            _ => WINDOW_OPS_MAX,
        }
    }
}

/// Times of the protocol in microseconds. Source: cluster specification, 2.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between heartbeats.
    pub heartbeat_us: u64,
    /// Silence after which a backup suspects; a heartbeat promises at least this long.
    pub suspect_us: u64,
    /// Random part on top, so that backups do not suspect in step.
    pub suspect_jitter_us: u64,
    /// How long an acknowledged heartbeat lets the primary serve reads.
    pub lease_us: u64,
    /// First wait before an unacknowledged entry is sent again.
    pub resend_us: u64,
    /// Longest wait.
    pub resend_us_max: u64,
    /// Between repeated suspicions and votes.
    pub vote_resend_us: u64,
    /// How long a suspicion of a peer counts.
    pub suspicion_window_us: u64,
    /// First wait for a view change to end.
    pub view_change_us: u64,
    /// Longest wait.
    pub view_change_us_max: u64,
    /// First wait between probes for the current view.
    pub get_view_us: u64,
    /// Longest wait.
    pub get_view_us_max: u64,
    /// How long a restarted replica listens before it suspects.
    pub cold_start_us: u64,
    /// Without a quorum of heartbeat acknowledgements for this long a primary falls silent.
    pub abdicate_us: u64,
    /// Between batches of repair.
    pub repair_us: u64,
    /// Wait for one answer before another peer is asked.
    pub repair_wait_us: u64,
    /// Without progress for this long repair gives way to state transfer.
    pub repair_transfer_us: u64,
}

impl Timing {
    /// For nodes that have a core to themselves.
    pub const DEFAULT: Timing = Timing {
        heartbeat_us: 100_000,
        suspect_us: 1_000_000,
        suspect_jitter_us: 300_000,
        lease_us: 800_000,
        resend_us: 100_000,
        resend_us_max: 800_000,
        vote_resend_us: 100_000,
        suspicion_window_us: 2_000_000,
        view_change_us: 2_000_000,
        view_change_us_max: 8_000_000,
        get_view_us: 200_000,
        get_view_us_max: 1_000_000,
        cold_start_us: 2_000_000,
        abdicate_us: 1_500_000,
        repair_us: 20_000,
        repair_wait_us: 250_000,
        repair_transfer_us: 3_000_000,
    };

    /// For oversubscribed hosts.
    pub const CONSERVATIVE: Timing = Timing {
        heartbeat_us: 500_000,
        suspect_us: 5_000_000,
        suspect_jitter_us: 500_000,
        lease_us: 4_000_000,
        resend_us: 250_000,
        resend_us_max: 4_000_000,
        vote_resend_us: 500_000,
        suspicion_window_us: 5_000_000,
        view_change_us: 5_000_000,
        view_change_us_max: 20_000_000,
        get_view_us: 1_000_000,
        get_view_us_max: 1_000_000,
        cold_start_us: 5_000_000,
        abdicate_us: 8_000_000,
        repair_us: 20_000,
        repair_wait_us: 1_000_000,
        repair_transfer_us: 10_000_000,
    };

    /// Checks the relations between the times; says which one does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let zero = [
            self.heartbeat_us,
            self.suspect_us,
            self.lease_us,
            self.resend_us,
            self.vote_resend_us,
            self.suspicion_window_us,
            self.view_change_us,
            self.get_view_us,
            self.cold_start_us,
            self.abdicate_us,
            self.repair_us,
            self.repair_wait_us,
            self.repair_transfer_us,
        ]
        .contains(&0);
        match () {
            _ if zero => Err("no time may be zero"),
            _ if self.suspect_us < 4 * self.heartbeat_us => Err("suspect is at least four heartbeats"),
            _ if self.lease_us * 5 > self.suspect_us * 4 => Err("lease is at most 0.8 of suspect"),
            _ if self.view_change_us < 8 * self.vote_resend_us => {
                Err("view change is at least eight vote resends")
            }
            _ if self.abdicate_us >= 2 * self.suspect_us => Err("abdicate is below two suspects"),
            _ if self.resend_us > self.resend_us_max
                || self.view_change_us > self.view_change_us_max
                || self.get_view_us > self.get_view_us_max =>
            {
                Err("no first wait is above its longest")
            }
            _ => Ok(()),
        }
    }
}
