//! Exhaustive exploration of the small core: every order of messages, losses, repetitions, timeouts and crashes that fits
//! into the bounds of a scenario, over the same replicas that the broker runs. States that were seen before are not
//! explored again.
//!
//! What is bounded: proposals, timeouts, crashes, and messages that are lost, overtaken or repeated. Each replica has its
//! own clock, which jumps to its next timer; nothing in safety depends on clocks, so they need not agree.

mod world;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;

use crate::mutation::Mutation;
use world::{Action, World};

/// What is explored.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    members: usize,
    proposals: u8,
    /// Timers of a primary.
    heartbeats: u8,
    /// Timers of everybody else.
    timeouts: u8,
    crashes: u8,
    /// The only member that crashes; any one does when this is no member.
    crashes_only: usize,
    losses: u8,
    overtakings: u8,
    repetitions: u8,
    /// Writes finish on their own time, not in the step that began them.
    slow_disk: bool,
    mutation: Option<Mutation>,
    /// More states than this are not looked at.
    states_max: usize,
}

/// What an exploration came to.
#[derive(Debug)]
struct Outcome {
    states: usize,
    transitions: usize,
    /// Whether there was nothing left to explore.
    is_complete: bool,
    /// The first thing that must not happen, with the actions that lead to it.
    violation: Option<String>,
    /// What was seen at least once.
    seen: BTreeSet<&'static str>,
}

fn explore(scenario: Scenario) -> Outcome {
    let mut outcome =
        Outcome { states: 0, transitions: 0, is_complete: false, violation: None, seen: BTreeSet::new() };
    let mut first = World::new(scenario);
    // The order of a hash set is never looked at.
    let mut known: HashSet<u128> = HashSet::from([first.digest()]);
    let mut left: Vec<(World, Vec<Action>)> = vec![(first, Vec::new())];
    while let Some((world, path)) = left.pop() {
        outcome.states += 1;
        if outcome.states > scenario.states_max {
            return outcome;
        }
        for action in world.actions() {
            let mut next = world.clone();
            outcome.transitions += 1;
            let result = next.perform(&action);
            outcome.seen.extend(next.take_seen());
            let mut path = path.clone();
            path.push(action);
            if let Err(what) = result {
                let mut text = what;
                for action in &path {
                    let _ = write!(text, "\n  {action:?}");
                }
                outcome.violation = Some(text);
                return outcome;
            }
            if known.insert(next.digest()) {
                left.push((next, path));
            }
        }
    }
    outcome.is_complete = true;
    outcome
}

/// A scenario that must hold, and reach so many states and all of these situations.
fn holds(scenario: Scenario, states_min: usize, seen: &[&str]) {
    let outcome = explore(scenario);
    println!(
        "{scenario:?}: {} states, {} transitions, seen {:?}",
        outcome.states, outcome.transitions, outcome.seen
    );
    assert!(outcome.violation.is_none(), "{}", outcome.violation.unwrap_or_default());
    assert!(outcome.is_complete, "{} states and not done", outcome.states);
    assert!(outcome.states >= states_min, "only {} states", outcome.states);
    for what in seen {
        assert!(outcome.seen.contains(what), "{what:?} never happened: {:?}", outcome.seen);
    }
}

/// A planted bug that must be found.
fn finds(scenario: Scenario, mutation: Mutation) {
    let outcome = explore(Scenario { mutation: Some(mutation), ..scenario });
    println!("{mutation:?}: found after {} states", outcome.states);
    let violation = outcome
        .violation
        .unwrap_or_else(|| panic!("{mutation:?} was not found in {} states", outcome.states));
    println!("{violation}");
}

/// Nothing happens unless a scenario says so.
const QUIET: Scenario = Scenario {
    members: 3,
    proposals: 1,
    heartbeats: 0,
    timeouts: 0,
    crashes: 0,
    crashes_only: usize::MAX,
    losses: 0,
    overtakings: 0,
    repetitions: 0,
    slow_disk: false,
    mutation: None,
    states_max: 700_000,
};

/// Two entries through links that lose, reorder and repeat.
const LINKS: Scenario = Scenario { proposals: 2, losses: 1, overtakings: 1, repetitions: 1, ..QUIET };

/// The same while any one member crashes at any moment, with any part of its unfinished writes.
const CRASH: Scenario = Scenario { proposals: 2, losses: 1, crashes: 1, ..QUIET };

/// Two backups suspect the primary, whatever has become of its entry, and any message may be lost.
const ELECTION: Scenario = Scenario { timeouts: 2, losses: 1, ..QUIET };

/// The same with disks that take their time: messages arrive while a vote or a view is on its way to the superblock.
const SLOW_ELECTION: Scenario = Scenario { timeouts: 2, slow_disk: true, ..QUIET };

/// The same while the primary crashes and comes back.
const CRASH_ELECTION: Scenario = Scenario { timeouts: 2, crashes: 1, crashes_only: 0, ..QUIET };

/// Two members: both must take part in everything.
const PAIR: Scenario = Scenario { members: 2, heartbeats: 2, timeouts: 2, ..QUIET };

/// Two members, two entries, and either one crashes.
const PAIR_CRASH: Scenario =
    Scenario { members: 2, proposals: 2, heartbeats: 2, timeouts: 1, crashes: 1, ..QUIET };

#[test]
fn three_members_over_bad_links() {
    holds(LINKS, 7_000, &["commit", "message lost", "message overtaken", "message repeated", "repair"]);
}

#[test]
fn three_members_with_a_crash() {
    holds(CRASH, 25_000, &["commit", "crash", "crash with unfinished writes", "message lost", "repair"]);
}

#[test]
fn three_members_elect_whatever_became_of_the_entry() {
    holds(ELECTION, 70_000, &["commit", "vote", "later view", "message lost", "repair", "truncation"]);
}

#[test]
fn three_members_elect_with_slow_disks() {
    holds(SLOW_ELECTION, 100_000, &["commit", "vote", "later view", "repair", "truncation"]);
}

#[test]
fn three_members_elect_while_the_primary_crashes() {
    holds(CRASH_ELECTION, 100_000, &["commit", "crash", "vote", "later view", "repair"]);
}

#[test]
fn two_members_elect() {
    holds(PAIR, 2_000, &["commit", "vote", "later view"]);
}

#[test]
fn two_members_with_a_crash_and_a_view_change() {
    holds(
        PAIR_CRASH,
        20_000,
        &["commit", "crash", "crash with unfinished writes", "vote", "later view", "repair"],
    );
}

/// An exploration that finds nothing proves something only if it finds what is there.
#[test]
fn planted_bugs_are_found_in_small_worlds() {
    finds(LINKS, Mutation::AckBeforeDurable);
    finds(LINKS, Mutation::SmallCommitQuorum);
    finds(ELECTION, Mutation::SkipSuperblockBeforeVote);
    finds(ELECTION, Mutation::SkipSuperblockBeforeAck);
    finds(ELECTION, Mutation::EarlyLogView);
    finds(ELECTION, Mutation::NackHeld);
}
