use proptest::prelude::*;

use super::assignment::balance;

/// The fewest partitions that have to move, over every way to give out what does not divide.
fn fewest_moves(loads: &[usize], partitions: usize) -> usize {
    let members = loads.len();
    let (share, extra) = (partitions / members, partitions % members);
    let kept = (0_u32..1 << members)
        .filter(|chosen| chosen.count_ones() as usize == extra)
        .map(|chosen| {
            let share_of = |member: usize| share + ((chosen >> member) & 1) as usize;
            (0..members).map(|member| loads[member].min(share_of(member))).sum::<usize>()
        })
        .max()
        .expect("some members get the rest");
    partitions - kept
}

fn held() -> impl Strategy<Value = (usize, Vec<Option<usize>>)> {
    (1_usize..=8)
        .prop_flat_map(|members| (Just(members), prop::collection::vec(prop::option::of(0..members), 0..40)))
}

proptest! {
    /// G27, G28: sizes differ by at most one, and every partition has a member.
    #[test]
    fn sizes_differ_by_at_most_one((members, held) in held()) {
        let targets = balance(&held, members);
        let mut loads = vec![0_usize; members];
        for target in &targets {
            loads[target.expect("there are members")] += 1;
        }
        let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{loads:?}");
    }

    /// G29, G30, G31: no way to balance moves fewer partitions.
    #[test]
    fn no_balance_moves_less((members, held) in held()) {
        let targets = balance(&held, members);
        let mut loads = vec![0_usize; members];
        held.iter().flatten().for_each(|member| loads[*member] += 1);
        let moved = held.iter().zip(&targets).filter(|(was, is)| was != is).count();
        prop_assert_eq!(moved, fewest_moves(&loads, held.len()));
    }

    /// What is balanced stays as it is.
    #[test]
    fn balance_is_a_fixed_point((members, held) in held()) {
        let targets = balance(&held, members);
        prop_assert_eq!(balance(&targets, members), targets);
    }
}

#[test]
fn without_members_nobody_holds_anything() {
    assert_eq!(balance(&[None, None], 0), [None, None]);
    assert!(balance(&[], 0).is_empty());
}
