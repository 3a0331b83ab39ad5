//! Bugs that can be planted into every replica of a run, to see whether and how soon they are found. Needs the feature
//! `mutations`; without it there is none.

use laneway_vsr::Replica;

/// The names of all of them.
#[cfg(feature = "mutations")]
pub fn all() -> Vec<String> {
    laneway_vsr::mutation::Mutation::ALL.iter().map(|mutation| name_of(*mutation)).collect()
}

/// There is none in this build.
#[cfg(not(feature = "mutations"))]
pub fn all() -> Vec<String> {
    Vec::new()
}

/// The number of the one of that name.
pub fn find(name: &str) -> Option<usize> {
    all().iter().position(|known| known == name)
}

/// The name of the one of that number.
pub fn name(number: usize) -> String {
    all().get(number).cloned().unwrap_or_default()
}

/// Plants a bug.
#[cfg(feature = "mutations")]
pub fn plant(replica: &mut Replica, number: usize) {
    replica.mutate(laneway_vsr::mutation::Mutation::ALL[number]);
}

/// Nothing can be planted in this build.
#[cfg(not(feature = "mutations"))]
pub fn plant(_replica: &mut Replica, _number: usize) {}

/// `DropNackQuorum` as `drop-nack-quorum`.
#[cfg(feature = "mutations")]
fn name_of(mutation: laneway_vsr::mutation::Mutation) -> String {
    let mut name = String::new();
    for letter in format!("{mutation:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}
