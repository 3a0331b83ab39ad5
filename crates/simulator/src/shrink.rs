//! Makes a failing run smaller: fewer nodes, clients and requests, then fewer faults, as long as it still fails the same
//! way.

use crate::faults::Mask;
use crate::options::Options;
use crate::run;

/// What a failure is about, without the numbers in it: two runs fail the same way if this is equal.
pub fn kind_of(violation: &str) -> String {
    let mut kind = String::new();
    for word in violation.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 2) {
        kind.push_str(word);
        kind.push(' ');
        if kind.len() > 60 {
            break;
        }
    }
    kind
}

/// A smaller run and how it was found.
#[derive(Debug)]
pub struct Shrunk {
    /// The run.
    pub options: Options,
    /// How it fails.
    pub violation: String,
    /// Decisions for faults that are left.
    pub faults_left: u32,
    /// Runs that it took.
    pub tries: u32,
}

struct Search {
    kind: String,
    tries: u32,
    tries_max: u32,
}

impl Search {
    /// Runs and says how it fails, if it fails the same way.
    fn fails(&mut self, options: &Options) -> Option<(String, u32)> {
        self.tries += 1;
        let outcome = run::run(options);
        let violation = outcome.violation?.0;
        (kind_of(&violation) == self.kind).then_some((violation, outcome.decisions))
    }

    fn is_over(&self) -> bool {
        self.tries >= self.tries_max
    }
}

/// Shrinks a run that fails; `None` when it does not fail. At most `tries_max` runs.
pub fn shrink(options: &Options, tries_max: u32) -> Option<Shrunk> {
    let outcome = run::run(options);
    let mut violation = outcome.violation?.0;
    let plan = outcome.plan;
    let mut decisions = outcome.decisions;
    let mut search = Search { kind: kind_of(&violation), tries: 1, tries_max };
    let mut best = Options {
        nodes: Some(plan.nodes),
        clients: Some(plan.clients),
        requests: Some(plan.requests),
        ..options.clone()
    };
    // Numbers first: each makes every later run shorter.
    for nodes in 1..plan.nodes {
        let smaller = Options { nodes: Some(nodes), ..best.clone() };
        if let Some(found) = search.fails(&smaller) {
            (violation, decisions) = found;
            best = smaller;
            break;
        }
    }
    for clients in 1..plan.clients {
        let smaller = Options { clients: Some(clients), ..best.clone() };
        if let Some(found) = search.fails(&smaller) {
            (violation, decisions) = found;
            best = smaller;
            break;
        }
    }
    let mut requests = plan.requests;
    while requests > 1 && !search.is_over() {
        let smaller = Options { requests: Some(requests / 2), ..best.clone() };
        match search.fails(&smaller) {
            Some(found) => {
                (violation, decisions) = found;
                best = smaller;
                requests /= 2;
            }
            None => break,
        }
    }
    // Then faults, in ever smaller pieces.
    let mut piece = decisions.max(1);
    while piece > 0 && !search.is_over() {
        let mut from = 0;
        while from < decisions && !search.is_over() {
            let to = (from + piece).min(decisions);
            if (from..to).any(|decision| !best.mask.hides(decision)) {
                let smaller = Options { mask: best.mask.with(from..to), ..best.clone() };
                if let Some(found) = search.fails(&smaller) {
                    violation = found.0;
                    best = smaller;
                }
            }
            from = to;
        }
        piece /= 2;
    }
    let faults_left = decisions.saturating_sub(best.mask.len() as u32);
    Some(Shrunk { options: best, violation, faults_left, tries: search.tries })
}

/// The command line that repeats a run.
pub fn command_of(options: &Options) -> String {
    let mut command = format!("laneway-sim --seed {}", options.seed);
    if options.profile == crate::options::Profile::Swarm {
        command.push_str(" --profile swarm");
    }
    for (name, number) in [
        ("nodes", options.nodes.map(|nodes| nodes as u64)),
        ("clients", options.clients.map(|clients| clients as u64)),
        ("requests", options.requests.map(u64::from)),
    ] {
        if let Some(number) = number {
            command.push_str(&format!(" --{name} {number}"));
        }
    }
    if let Some(mutation) = options.mutation {
        command.push_str(&format!(" --mutation {}", crate::mutations::name(mutation)));
    }
    if options.mask != Mask::default() {
        command.push_str(&format!(" --mask {}", options.mask));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_differ_in_numbers_are_of_one_kind() {
        assert_eq!(
            kind_of("node 3 applied 12ab at op 4 of lane 1, where 77"),
            kind_of("node 0 applied 99cd at op 17 of lane 2, where 3")
        );
        assert_ne!(kind_of("a stale read: 3 messages"), kind_of("node 0 applied"));
    }
}
