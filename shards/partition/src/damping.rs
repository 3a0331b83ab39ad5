//! Wrong passwords slow their sender down: an address that was wrong too often is not checked for a while.
//!
//! Wrong guesses are counted for an address and for an address with a name. Both counts leak, so that nobody is locked
//! out for good, and an account never is: other addresses go on. A client that keeps trying one stale password uses up
//! the count of its own name only, and its neighbours behind the same address still sign in. The table is bounded; when
//! it is full, the entry that was wrong the longest ago makes room.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use laneway_reads::Nanos;
use sha2::{Digest, Sha256};

/// Wrong guesses of one name from one address that are checked at once.
pub const WRONG_PER_NAME_MAX: u32 = 10;
/// Time in which one wrong guess of a name is forgotten, microseconds.
const NAME_LEAK_US: u64 = 2_000_000;
/// Wrong guesses of one address, whatever the names, that are checked at once.
pub const WRONG_PER_ADDRESS_MAX: u32 = 50;
/// Time in which one wrong guess of an address is forgotten, microseconds: five guesses a second go on for ever.
const ADDRESS_LEAK_US: u64 = 200_000;
/// Entries of the table. Each takes about a hundred bytes.
const ENTRIES_MAX: usize = 16_384;

/// Where a guess comes from. An IPv6 network of 64 bits counts as one address: whoever holds one address of it holds all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    address: IpAddr,
    /// The start of a hash of the name: names are of any length, and nobody needs to read them here.
    name: [u8; 8],
}

impl Source {
    /// The source of a guess at the password of `name`.
    pub fn new(address: IpAddr, name: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(name.as_bytes()).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        Self { address: network(address), name: [a, b, c, d, e, f, g, h] }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

/// The wrong guesses of all addresses.
#[derive(Debug, Default)]
pub struct Damping {
    entries: BTreeMap<Key, Entry>,
    by_age: BTreeSet<(Nanos, Key)>,
}

/// An address, or one name from it.
type Key = (IpAddr, Option<[u8; 8]>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    wrong: u32,
    /// When the count was right.
    at: Nanos,
}

impl Damping {
    /// Whether a guess is checked now.
    pub fn admits(&self, now: Nanos, source: Source) -> bool {
        self.wrong(now, (source.address, None), ADDRESS_LEAK_US) < WRONG_PER_ADDRESS_MAX
            && self.wrong(now, (source.address, Some(source.name)), NAME_LEAK_US) < WRONG_PER_NAME_MAX
    }

    /// A guess was wrong.
    pub fn note_wrong(&mut self, now: Nanos, source: Source) {
        self.add((source.address, None), now, ADDRESS_LEAK_US);
        self.add((source.address, Some(source.name)), now, NAME_LEAK_US);
    }

    fn wrong(&self, now: Nanos, key: Key, leak_us: u64) -> u32 {
        let Some(entry) = self.entries.get(&key) else { return 0 };
        let forgotten = now.0.saturating_sub(entry.at.0) / 1_000 / leak_us;
        entry.wrong.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }

    fn add(&mut self, key: Key, now: Nanos, leak_us: u64) {
        let wrong = self.wrong(now, key, leak_us) + 1;
        if let Some(before) = self.entries.insert(key, Entry { wrong, at: now }) {
            self.by_age.remove(&(before.at, key));
        }
        self.by_age.insert((now, key));
        if self.entries.len() > ENTRIES_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.entries.remove(&oldest);
        }
        debug_assert_eq!(self.entries.len(), self.by_age.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn source(address: &str, name: &str) -> Source {
        Source::new(address.parse().unwrap(), name)
    }

    fn guess(damping: &mut Damping, now: Nanos, source: Source) -> bool {
        let checked = damping.admits(now, source);
        if checked {
            damping.note_wrong(now, source);
        }
        checked
    }

    #[test]
    fn one_name_is_damped_and_its_neighbours_are_not() {
        let mut damping = Damping::default();
        let stale = source("10.0.0.1", "ann");
        let checked = (0..1000).filter(|_| guess(&mut damping, Nanos(0), stale)).count();
        assert_eq!(checked as u32, WRONG_PER_NAME_MAX);
        assert!(damping.admits(Nanos(0), source("10.0.0.1", "bob")));
        assert!(damping.admits(Nanos(0), source("10.0.0.2", "ann")), "the account is open to others");
        assert!(damping.admits(Nanos(2 * SECOND), stale), "it is forgotten");
        assert!(!damping.admits(Nanos(2 * SECOND - 1_000_000), stale));
    }

    #[test]
    fn an_address_that_tries_many_names_is_damped_as_a_whole() {
        let mut damping = Damping::default();
        let checked =
            (0..1000).filter(|name| guess(&mut damping, Nanos(0), source("10.0.0.1", &name.to_string())));
        assert_eq!(checked.count() as u32, WRONG_PER_ADDRESS_MAX);
        assert!(damping.admits(Nanos(0), source("10.0.0.2", "ann")));
        let later = Nanos(SECOND);
        let checked =
            (0..1000).filter(|name| guess(&mut damping, later, source("10.0.0.1", &format!("later {name}"))));
        assert_eq!(checked.count(), 5, "five a second");
    }

    #[test]
    fn networks_count_as_one_address() {
        assert_eq!(source("2001:db8::1", "ann"), source("2001:db8::2:0:0:ffff", "ann"));
        assert_ne!(source("2001:db8:0:1::1", "ann"), source("2001:db8::1", "ann"));
        assert_eq!(source("::ffff:10.0.0.1", "ann"), source("10.0.0.1", "ann"));
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest() {
        let mut damping = Damping::default();
        for address in 0..ENTRIES_MAX as u32 {
            let source = Source::new(IpAddr::V4(address.into()), "ann");
            (0..WRONG_PER_NAME_MAX).for_each(|_| damping.note_wrong(Nanos(u64::from(address)), source));
        }
        assert_eq!(damping.entries.len(), ENTRIES_MAX);
        assert!(damping.admits(Nanos(0), Source::new(IpAddr::V4(0.into()), "ann")), "forgotten");
        let newest = Source::new(IpAddr::V4((ENTRIES_MAX as u32 - 1).into()), "ann");
        assert!(!damping.admits(Nanos(0), newest));
    }
}
