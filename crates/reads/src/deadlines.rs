//! Deadlines of deferred reads: what is left of the client's times after the queue, and the margins before a reply.
//!
//! Source: reads specification, sections 4.1 and 5.1.

use laneway_wire::Nanos;

/// Longest wait that a client may name, microseconds. Source: reads specification, section 10.
pub const WAIT_US_MAX: u64 = 600_000_000;
/// Longest request timeout that a client may name, microseconds. Source: reads specification, section 10.
pub const REQUEST_TIMEOUT_US_MAX: u64 = 630_000_000;
/// A wait ends at least this long before the request's own timeout, so that the reply still finds the client waiting.
/// Microseconds. Source: reads specification, section 10.
pub const REPLY_MARGIN_US: u64 = 1_000_000;
/// Margin of a grouped fetch, taken once for the reply and once more for its reads. Microseconds. Source: reads
/// specification, section 10.
pub const FETCH_MARGIN_US: u64 = 200_000;
/// Longest wait that the server grants unless configured otherwise, microseconds. Longer requests are shortened, never
/// refused. Source: reads specification, section 10.
pub const SERVER_WAIT_US_MAX: u64 = 30_000_000;

/// The times of a deferred read as the client sent them and as its frame arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredTimes {
    /// When the frame arrived.
    pub arrival: Nanos,
    /// Longest wait from the arrival, microseconds.
    pub wait_us: u64,
    /// When the client gives up, microseconds from the arrival.
    pub request_timeout_us: u64,
}

/// The moments at which a deferred read ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// The read answers with what it holds.
    pub wait: Nanos,
    /// The read is refused with [`laneway_wire::Status::TransientNotCommitted`]; from here on it stores nothing.
    pub request: Nanos,
}

/// The moments of a grouped fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchDeadlines {
    /// The wait ends and the reads start.
    pub wait: Nanos,
    /// A read that has not committed by now is refused.
    pub read: Nanos,
    /// The reply leaves with the sections that arrived.
    pub reply: Nanos,
    /// The client gives up.
    pub request: Nanos,
}

/// The request's timeout passed while it was queued. Answer [`laneway_wire::Status::TransientNotAccepted`], read
/// nothing, store nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request waited {elapsed_us} us in a queue, its client waits {request_timeout_us} us")]
pub struct QueuedTooLong {
    /// Time in the queue, microseconds.
    pub elapsed_us: u64,
    /// The client's patience, microseconds.
    pub request_timeout_us: u64,
}

impl DeferredTimes {
    /// The deadlines of a deferred poll that is served at `now`. `server_wait_us_max` is microseconds.
    pub fn deadlines(&self, now: Nanos, server_wait_us_max: u64) -> Result<Deadlines, QueuedTooLong> {
        let left = self.left(now)?;
        let wait_us = left.wait_us.min(server_wait_us_max);
        Ok(Deadlines { wait: now.after_us(wait_us), request: now.after_us(left.request_timeout_us) })
    }

    /// The deadlines of a grouped fetch whose handler starts at `now`.
    pub fn fetch_deadlines(
        &self,
        now: Nanos,
        server_wait_us_max: u64,
    ) -> Result<FetchDeadlines, QueuedTooLong> {
        let left = self.left(now)?;
        let request = now.after_us(left.request_timeout_us);
        let read = request.before_us(2 * FETCH_MARGIN_US).max(now);
        let reply = request.before_us(FETCH_MARGIN_US).max(now);
        let wait = now.after_us(left.wait_us.min(server_wait_us_max)).min(read);
        Ok(FetchDeadlines { wait, read, reply, request })
    }

    /// What the queue left of both times.
    fn left(&self, now: Nanos) -> Result<Left, QueuedTooLong> {
        let elapsed_us = now.us_since(self.arrival);
        if elapsed_us >= self.request_timeout_us {
            return Err(QueuedTooLong { elapsed_us, request_timeout_us: self.request_timeout_us });
        }
        let request_timeout_us = self.request_timeout_us - elapsed_us;
        let wait_us =
            self.wait_us.saturating_sub(elapsed_us).min(request_timeout_us.saturating_sub(REPLY_MARGIN_US));
        Ok(Left { wait_us, request_timeout_us })
    }
}

struct Left {
    wait_us: u64,
    request_timeout_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arrival: u64, wait_us: u64, timeout_us: u64, now_us: u64, expected: Option<(u64, u64)>) {
        let times =
            DeferredTimes { arrival: Nanos(arrival * 1_000), wait_us, request_timeout_us: timeout_us };
        let got = times.deadlines(Nanos(now_us * 1_000), SERVER_WAIT_US_MAX).ok();
        let expected = expected
            .map(|(wait, request)| Deadlines { wait: Nanos(wait * 1_000), request: Nanos(request * 1_000) });
        assert_eq!(got, expected);
    }

    #[test]
    fn unqueued_request_keeps_its_times() {
        check(5, 250_000, 2_000_000, 5, Some((250_005, 2_000_005)));
    }

    #[test]
    fn queue_time_comes_off_both_times() {
        check(0, 5_000_000, 7_000_000, 1_000_000, Some((5_000_000, 7_000_000)));
    }

    #[test]
    fn wait_keeps_the_reply_margin() {
        // 4.5 s queued: 1.5 s of the timeout are left, 0.5 s of the wait; one more second queued leaves no wait.
        check(0, 5_000_000, 6_000_000, 4_500_000, Some((5_000_000, 6_000_000)));
        check(0, 5_000_000, 6_000_000, 5_500_000, Some((5_500_000, 6_000_000)));
    }

    #[test]
    fn timeout_in_the_queue_refuses() {
        check(0, 0, 1_000, 1_000, None);
        check(0, 0, 1_000, 999, Some((999, 1_000)));
    }

    #[test]
    fn long_wait_is_cut_to_the_server_maximum() {
        check(0, WAIT_US_MAX, REQUEST_TIMEOUT_US_MAX, 0, Some((SERVER_WAIT_US_MAX, REQUEST_TIMEOUT_US_MAX)));
    }

    #[test]
    fn fetch_keeps_two_margins_before_its_timeout() {
        let times = DeferredTimes { arrival: Nanos(0), wait_us: 1_000_000, request_timeout_us: 2_000_000 };
        let got = times.fetch_deadlines(Nanos(900_000_000), SERVER_WAIT_US_MAX).unwrap();
        // 1.1 s left: the wait keeps 100 ms, the reads end 400 ms and the reply 200 ms before the client gives up.
        assert_eq!(got.wait, Nanos(1_000_000_000));
        assert_eq!(got.read, Nanos(1_600_000_000));
        assert_eq!(got.reply, Nanos(1_800_000_000));
        assert_eq!(got.request, Nanos(2_000_000_000));
    }
}
