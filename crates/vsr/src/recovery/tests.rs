use laneway_wire::{LaneId, Micros, ReplicaId};
use proptest::prelude::*;

use super::*;
use crate::entry::{EntryBody, View};
use crate::header::{ClusterId, Draft, Epoch};

const ROOT: CheckpointId = CheckpointId { op: Op(0), identity: Identity(1) };

/// A chain of entries from op 1; `salt` makes another history.
fn chain(parent: Identity, ops: std::ops::RangeInclusive<u64>, salt: u8) -> Vec<Header> {
    let mut parent = parent;
    let mut headers = Vec::new();
    for op in ops {
        let draft = Draft {
            op: Op(op),
            parent,
            view: View(salt.into()),
            commit: Op(op - 1),
            timestamp: Micros(op),
            epoch: Epoch(0),
            primary: ReplicaId(0),
            durability: Durability::Persisted,
        };
        let header = Header::seal(ClusterId(1), LaneId(1), draft, &EntryBody::operation(vec![salt]));
        parent = header.identity;
        headers.push(header);
    }
    headers
}

fn whole(headers: &[Header]) -> LogScan {
    let found = headers
        .iter()
        .enumerate()
        .map(|(place, header)| Found {
            flush: place as u64 + 1,
            at: place as u64 * 100,
            kind: FoundKind::Entry(*header),
        })
        .collect();
    let flush = headers.len() as u64;
    LogScan { found, tail: Tail::Whole { flush }, witness: Witness::Attests { flush } }
}

/// Cases A, C, D, E, F: the end of the log and its witness, in a group and alone.
#[test]
fn the_end_of_the_log_against_its_witness() {
    let headers = chain(ROOT.identity, 1..=3, 1);
    let broken = Tail::Broken { flush: 4, at: 300 };
    let attests = |flush| Witness::Attests { flush };
    let cases = [
        ("A", Tail::Whole { flush: 3 }, attests(3), Head::Certain, Mend::Nothing),
        (
            "A, witness of the flush before",
            Tail::Whole { flush: 3 },
            attests(2),
            Head::Certain,
            Mend::Nothing,
        ),
        ("C", broken, attests(3), Head::Certain, Mend::Cut { at: 300 }),
        ("D", broken, attests(4), Head::Unknown, Mend::Nothing),
        (
            "D, nothing of the flush is left",
            Tail::Whole { flush: 3 },
            attests(4),
            Head::Unknown,
            Mend::Nothing,
        ),
        ("E", Tail::Whole { flush: 3 }, Witness::Unreadable, Head::Certain, Mend::Witness),
        ("F", broken, Witness::Unreadable, Head::Unknown, Mend::Nothing),
        ("no witness kept", broken, Witness::NotKept, Head::Certain, Mend::Cut { at: 300 }),
    ];
    for (case, tail, witness, head, mend) in cases {
        let log = classify(&LogScan { tail, witness, ..whole(&headers) }, ROOT);
        assert_eq!((log.head, log.mend), (head, mend), "case {case}");
        assert_eq!(log.op_head, Op(3), "case {case}");
        assert_eq!(log.check_alone().is_ok(), head == Head::Certain, "case {case}");
    }
}

/// V82, cases B and G: the entry keeps its place and its name, later entries stay, a lone replica refuses.
#[test]
fn interior_damage_keeps_what_is_behind_it() {
    let headers = chain(ROOT.identity, 1..=4, 1);
    let mut scan = whole(&headers);
    scan.found[1].kind = FoundKind::Damaged;
    let log = classify(&scan, ROOT);
    assert_eq!(log.slots.len(), 4);
    let faulty = RecoveredSlot::Faulty { identity: Some(headers[1].identity), at: None };
    assert_eq!(log.slots[&Op(2)], faulty);
    assert!(matches!(log.slots[&Op(4)], RecoveredSlot::Present { .. }));
    assert_eq!(log.contiguous(Op(0)), Op(1));
    assert_eq!(log.check_alone(), Err(AloneError::Entry { op: Op(2), at: None }));
}

/// Case I.
#[test]
fn a_damaged_body_keeps_its_header() {
    let headers = chain(ROOT.identity, 1..=2, 1);
    let mut scan = whole(&headers);
    scan.found[1].kind = FoundKind::BodyDamaged(headers[1]);
    let log = classify(&scan, ROOT);
    let faulty = RecoveredSlot::Faulty { identity: Some(headers[1].identity), at: Some(100) };
    assert_eq!(log.slots[&Op(2)], faulty);
    assert_eq!(log.check_alone(), Err(AloneError::Entry { op: Op(2), at: Some(100) }));
}

/// Case H, and what a later view left behind.
#[test]
fn of_two_writes_the_later_one_counts() {
    let old = chain(ROOT.identity, 1..=4, 1);
    let new = chain(old[1].identity, 3..=3, 2);
    let mut scan = whole(&old);
    scan.found.push(Found { flush: 9, at: 900, kind: FoundKind::Truncated { above: Op(2) } });
    scan.found.push(Found { flush: 10, at: 910, kind: FoundKind::Entry(new[0]) });
    let log = classify(&scan, ROOT);
    assert_eq!(log.op_head, Op(3));
    assert_eq!(log.slots[&Op(3)], RecoveredSlot::Present { header: new[0], at: 910 });
    assert_eq!(log.stale, 2);
    assert_eq!(log.check_alone(), Ok(()));
}

#[test]
fn an_entry_that_names_another_parent_than_the_newer_one_is_stale() {
    let old = chain(ROOT.identity, 1..=3, 1);
    let new = chain(old[0].identity, 2..=2, 2);
    let mut scan = whole(&old);
    // Op 2 was replaced in place; op 3 of the old history is still there.
    scan.found.push(Found { flush: 9, at: 900, kind: FoundKind::Entry(new[0]) });
    let log = classify(&scan, ROOT);
    assert_eq!((log.op_head, log.stale), (Op(2), 2));
    assert_eq!(log.check_alone(), Ok(()));
    // The other way round: op 3 is newer, so what stands at op 2 is not its parent.
    let parent = chain(old[0].identity, 2..=3, 2);
    scan.found.pop();
    scan.found[2] = Found { flush: 9, at: 900, kind: FoundKind::Entry(parent[1]) };
    let log = classify(&scan, ROOT);
    assert_eq!(log.slots[&Op(2)], RecoveredSlot::Missing { identity: Some(parent[0].identity) });
    assert_eq!(log.check_alone(), Err(AloneError::Entry { op: Op(2), at: None }));
}

#[test]
fn what_the_checkpoint_holds_is_left_out() {
    let headers = chain(ROOT.identity, 1..=5, 1);
    let checkpoint = CheckpointId { op: Op(4), identity: headers[3].identity };
    let log = classify(&whole(&headers), checkpoint);
    assert_eq!(log.slots.keys().copied().collect::<Vec<_>>(), [Op(5)]);
    assert_eq!((log.contiguous(Op(4)), log.commit_max(Op(2))), (Op(5), Op(4)));
    let beyond = CheckpointId { op: Op(9), ..checkpoint };
    let log = classify(&whole(&headers), beyond);
    assert_eq!((log.op_head, log.slots.len(), log.commit_seen), (Op(9), 0, Op(9)));
}

/// The commit point is the highest of three sources.
#[test]
fn the_commit_point_is_the_highest_that_anything_says() {
    let headers = chain(ROOT.identity, 1..=5, 1);
    let log = classify(&whole(&headers), ROOT);
    assert_eq!(log.commit_max(Op(1)), Op(4), "the entry at op 5 says so");
    assert_eq!(log.commit_max(Op(9)), Op(9), "the superblock says so");
}

/// When a log is believed: one case each way for every reason.
#[test]
fn trust_has_three_reasons_and_doubt_stays() {
    let mut log = classify(&whole(&chain(ROOT.identity, 1..=2, 1)), ROOT);
    let head = Some(Identity(44));
    let run = LastRun { trust: LogTrust::Trusted, clean: None, boot: BootId(1) };
    assert_eq!(trust(&log, head, &run, BootId(2)), LogTrust::Trusted, "everything promised stable storage");
    log.all_persisted = false;
    assert_eq!(trust(&log, head, &run, BootId(2)), LogTrust::Untrusted, "a power loss");
    assert_eq!(trust(&log, head, &run, BootId(1)), LogTrust::Trusted, "only the process was killed");
    let unknown = LastRun { boot: BootId(0), ..run };
    assert_eq!(trust(&log, head, &unknown, BootId(0)), LogTrust::Untrusted, "the system names no boot");
    let clean = |op_head, identity| LastRun { clean: Some(CleanStop { op_head, identity }), ..run };
    assert_eq!(
        trust(&log, head, &clean(Op(2), Identity(44)), BootId(2)),
        LogTrust::Trusted,
        "stopped in order"
    );
    assert_eq!(
        trust(&log, head, &clean(Op(3), Identity(44)), BootId(2)),
        LogTrust::Untrusted,
        "at another head"
    );
    assert_eq!(
        trust(&log, head, &clean(Op(2), Identity(45)), BootId(2)),
        LogTrust::Untrusted,
        "another entry"
    );
    let doubtful = LastRun { trust: LogTrust::Untrusted, ..run };
    assert_eq!(trust(&log, head, &doubtful, BootId(1)), LogTrust::Untrusted, "was in doubt before");
}

/// V88.
#[test]
fn an_older_copy_of_a_directory_is_recognised() {
    let remembered = Remembered { view: 4, persisted_committed: Op(100) };
    assert!(!is_rolled_back(&remembered, 4, Op(100)));
    assert!(!is_rolled_back(&remembered, 5, Op(130)));
    assert!(is_rolled_back(&remembered, 3, Op(100)));
    assert!(is_rolled_back(&remembered, 4, Op(99)));
}

proptest! {
    /// V81, V82: any flushes lost, any entries damaged: nothing that is whole is dropped or moved, nothing damaged is
    /// called present, and a lone replica starts only with all of it.
    #[test]
    fn damage_takes_nothing_but_itself(
        length in 1u64..12,
        damage in proptest::collection::vec(0u8..4, 12),
        tail in 0u8..3,
        witness in 0u8..3,
    ) {
        let headers = chain(ROOT.identity, 1..=length, 1);
        let mut scan = whole(&headers);
        let mut sound = true;
        for (found, damage) in scan.found.iter_mut().zip(&damage) {
            match (damage, found.kind) {
                (1, FoundKind::Entry(_)) => { found.kind = FoundKind::Damaged; sound = false }
                (2, FoundKind::Entry(header)) => { found.kind = FoundKind::BodyDamaged(header); sound = false }
                _ => {}
            }
        }
        if tail == 1 {
            scan.tail = Tail::Broken { flush: length + 1, at: length * 100 };
        }
        scan.witness = match witness {
            0 => Witness::Attests { flush: length },
            1 => Witness::Attests { flush: length + 1 },
            _ => Witness::Unreadable,
        };
        let log = classify(&scan, ROOT);
        for (found, header) in scan.found.iter().zip(&headers) {
            let present = matches!(log.slots.get(&header.op), Some(RecoveredSlot::Present { header: here, .. }) if here == header);
            prop_assert_eq!(present, matches!(found.kind, FoundKind::Entry(_)));
        }
        let damaged_last = matches!(scan.found.last().map(|found| found.kind), Some(FoundKind::Damaged));
        let lost_head = witness == 1 || witness == 2 && tail == 1 || damaged_last;
        prop_assert_eq!(log.head == Head::Unknown, lost_head);
        prop_assert_eq!(log.check_alone().is_ok(), sound && !lost_head);
    }
}
