//! The balance: which member shall hold which partition.
//!
//! Sticky and minimal: a member keeps what it holds up to its fair share, and only what nobody holds, or what is above a
//! share, moves. Sizes differ by at most one. Source: consumer groups, section 3.4.

/// For each partition, by number, the index of the member that shall hold it.
///
/// `held` names for each partition the index of the current member that holds it now, or none. `members` is their
/// number, in slot order. The result names a member for every partition, unless there is none.
///
/// Cost: one pass over the partitions plus members x log members; no partition is compared with another.
pub fn balance(held: &[Option<usize>], members: usize) -> Vec<Option<usize>> {
    if members == 0 {
        return vec![None; held.len()];
    }
    let mut loads = vec![0_usize; members];
    for member in held.iter().flatten() {
        loads[*member] += 1;
    }
    let shares = shares(&loads, held.len());
    let mut targets = held.to_vec();
    // The last partitions go first, so that a member keeps its lowest ones.
    for target in targets.iter_mut().rev() {
        if let Some(member) = *target
            && loads[member] > shares[member]
        {
            loads[member] -= 1;
            *target = None;
        }
    }
    fill(&mut targets, &mut loads, &shares);
    assert!(loads == shares, "every partition has a member, and every member its share");
    targets
}

/// The fair share of each member. What does not divide goes to those that hold most now, because that moves least.
fn shares(loads: &[usize], partitions: usize) -> Vec<usize> {
    let members = loads.len();
    let mut by_load: Vec<usize> = (0..members).collect();
    by_load.sort_by_key(|member| std::cmp::Reverse(loads[*member]));
    let mut shares = vec![partitions / members; members];
    for member in by_load.iter().take(partitions % members) {
        shares[*member] += 1;
    }
    shares
}

/// Gives each vacant partition, lowest first, to the member with the smallest load below its share; the lowest slot of
/// several.
fn fill(targets: &mut [Option<usize>], loads: &mut [usize], shares: &[usize]) {
    let mut open: std::collections::BTreeSet<(usize, usize)> = loads
        .iter()
        .zip(shares)
        .enumerate()
        .filter(|(_, (load, share))| load < share)
        .map(|(member, (load, _))| (*load, member))
        .collect();
    for target in targets.iter_mut().filter(|target| target.is_none()) {
        let (load, member) = open.pop_first().expect("the shares add up to the partitions");
        *target = Some(member);
        loads[member] = load + 1;
        if loads[member] < shares[member] {
            open.insert((loads[member], member));
        }
    }
}
