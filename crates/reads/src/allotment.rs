//! How one grouped fetch spends its messages and bytes over the partitions that hold something.
//!
//! Source: reads specification, section 5.5.

/// Least bytes that a read is worth starting with: a poll head, a batch header and a message header.
pub const READ_BYTES_MIN: u32 = 344;

/// A target that holds messages, in the order of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyTarget {
    /// Messages behind its start.
    pub available: u64,
    /// Most bytes that it may bring: its own limit.
    pub wanted_bytes: u32,
}

/// What one target may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Most messages.
    pub messages: u32,
    /// Most bytes, poll head included.
    pub bytes: u32,
}

/// Spends `count` messages and `bytes` over the targets: small ones first, so that a backlog cannot hold them back, then
/// the rest in their order. `None` waits for a later fetch.
pub fn allot(ready: &[ReadyTarget], count: u32, bytes: u32) -> Vec<Option<Share>> {
    let Some(even) = even_share(ready.len(), count, bytes) else { return Vec::new() };
    let mut shares = vec![None; ready.len()];
    let (mut count_left, mut bytes_left) = (count, bytes);
    let is_small = |target: &ReadyTarget| {
        target.available <= u64::from(even.messages) && target.wanted_bytes <= even.bytes
    };
    for (share, target) in shares.iter_mut().zip(ready).filter(|(_, target)| is_small(target)) {
        let messages = (target.available.min(u64::from(count_left))) as u32;
        let taken = target.wanted_bytes.min(bytes_left);
        if messages > 0 && taken >= READ_BYTES_MIN {
            *share = Some(Share { messages, bytes: taken });
            count_left -= messages;
            bytes_left -= taken;
        }
    }
    let mut later: u64 = ready
        .iter()
        .filter(|target| !is_small(target))
        .fold(0, |sum, target| sum.saturating_add(target.available));
    for (share, target) in shares.iter_mut().zip(ready).filter(|(_, target)| !is_small(target)) {
        let messages = target.available.min(u64::from(count_left));
        let spread = later.min(u64::from(count_left)).max(1);
        later -= target.available.min(later);
        let part = (u64::from(bytes_left) * messages / spread).max(u64::from(READ_BYTES_MIN));
        let taken = part.min(u64::from(bytes_left)).min(u64::from(target.wanted_bytes)) as u32;
        if messages > 0 && taken >= READ_BYTES_MIN {
            *share = Some(Share { messages: messages as u32, bytes: taken });
            count_left -= messages as u32;
            bytes_left -= taken;
        }
    }
    shares
}

/// The share of each of `targets` when every one of them is read, so that each reports its own condition. None without
/// targets.
pub fn even_share(targets: usize, count: u32, bytes: u32) -> Option<Share> {
    let targets = u32::try_from(targets).ok().filter(|targets| *targets > 0)?;
    Some(Share { messages: count.div_ceil(targets), bytes: (bytes / targets).max(READ_BYTES_MIN) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u32 = 1024 * 1024;

    fn check(ready: &[(u64, u32)], count: u32, bytes: u32, expected: &[Option<(u32, u32)>]) {
        let ready: Vec<ReadyTarget> = ready
            .iter()
            .map(|(available, wanted_bytes)| ReadyTarget {
                available: *available,
                wanted_bytes: *wanted_bytes,
            })
            .collect();
        let got: Vec<Option<(u32, u32)>> = allot(&ready, count, bytes)
            .into_iter()
            .map(|share| share.map(|share| (share.messages, share.bytes)))
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn backlog_that_can_take_the_count_reads_whole() {
        let backlog = (10_000, 4 * MIB);
        check(&[backlog; 3], 900, 4 * MIB, &[Some((900, 4 * MIB)), None, None]);
    }

    #[test]
    fn first_of_many_backlogs_takes_a_small_count() {
        let mut expected = vec![None; 24];
        expected[0] = Some((10, MIB));
        check(&[(10_000, MIB); 24], 10, MIB, &expected);
    }

    #[test]
    fn count_and_bytes_are_spread_by_messages() {
        check(&[(5, MIB); 3], 10, MIB, &[Some((5, MIB / 2)), Some((5, MIB / 2)), None]);
    }

    #[test]
    fn small_target_behind_a_backlog_is_not_held_back() {
        check(&[(100_000, MIB), (5, 1000)], 1000, MIB, &[Some((995, MIB - 1000)), Some((5, 1000))]);
    }

    #[test]
    fn nothing_ready_means_nothing_to_share() {
        check(&[], 10, MIB, &[]);
        assert_eq!(even_share(0, 10, MIB), None);
        assert_eq!(even_share(3, 10, 600), Some(Share { messages: 4, bytes: READ_BYTES_MIN }));
    }

    proptest! {
        #[test]
        fn never_spends_more_than_it_has_and_serves_somebody(
            ready in prop::collection::vec((1..5000_u64, READ_BYTES_MIN..4 * MIB), 1..40),
            count in 1..4000_u32,
            bytes in READ_BYTES_MIN..8 * MIB,
        ) {
            let ready: Vec<ReadyTarget> = ready
                .into_iter()
                .map(|(available, wanted_bytes)| ReadyTarget { available, wanted_bytes })
                .collect();
            let shares = allot(&ready, count, bytes);
            let served: Vec<Share> = shares.iter().flatten().copied().collect();
            prop_assert!(!served.is_empty());
            prop_assert!(served.iter().map(|share| u64::from(share.messages)).sum::<u64>() <= u64::from(count));
            prop_assert!(served.iter().map(|share| u64::from(share.bytes)).sum::<u64>() <= u64::from(bytes));
            for (share, target) in shares.iter().zip(&ready) {
                if let Some(share) = share {
                    prop_assert!(share.messages > 0 && u64::from(share.messages) <= target.available);
                    prop_assert!((READ_BYTES_MIN..=target.wanted_bytes).contains(&share.bytes));
                }
            }
        }
    }
}
