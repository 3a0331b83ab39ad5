use laneway_wire::Nanos;
use proptest::prelude::*;

use super::record::{encode, parse, set_copy};
use super::*;
use crate::quorum::Quorums;
use crate::vote::tests::{any_vote, header};
use crate::{Epoch, Held, Slot};

const WHO: Identification = Identification {
    cluster: ClusterId(11),
    disk: DiskId(12),
    lane: LaneId(5),
    replica: ReplicaId(1),
    nodes: 3,
};

fn fresh() -> Superblock {
    Superblock::fresh(WHO, Roster::initial(WHO.lane, 3).unwrap(), BootId(77))
}

fn in_view(view: u32) -> Superblock {
    Superblock { view: View(view), log_view: View(view), ..fresh() }
}

/// The file of a superblock. A copy that was written since the last flush may, after a crash, be the old one, the new
/// one or torn.
#[derive(Clone, Debug)]
struct Disk {
    durable: [Option<Vec<u8>>; COPIES],
    cached: [Option<Vec<u8>>; COPIES],
}

impl Disk {
    fn empty() -> Disk {
        Disk { durable: Default::default(), cached: Default::default() }
    }

    fn step(&mut self, writer: &mut SuperblockWriter, step: Step) -> Option<u64> {
        match step {
            Step::Write { position, bytes } => {
                assert_eq!(bytes.len(), RECORD_BYTES);
                self.cached[(position / COPY_SPACING) as usize] = Some(bytes);
                writer.handle_done();
                None
            }
            Step::Flush => {
                self.flush();
                writer.handle_done();
                None
            }
            Step::Read { position, .. } => {
                let copy = (position / COPY_SPACING) as usize;
                let bytes = self.cached[copy].clone().or_else(|| self.durable[copy].clone());
                writer
                    .handle_read(Nanos(0), &bytes.unwrap_or_default())
                    .expect("the disk keeps what it takes")
            }
        }
    }

    fn flush(&mut self) {
        for (durable, cached) in self.durable.iter_mut().zip(&mut self.cached) {
            if let Some(bytes) = cached.take() {
                *durable = Some(bytes);
            }
        }
    }

    /// Every content that the copies may have after a crash now.
    fn after_crash(&self) -> Vec<[Option<Vec<u8>>; COPIES]> {
        let mut outcomes = vec![self.durable.clone()];
        for (copy, cached) in self.cached.iter().enumerate() {
            let Some(new) = cached else { continue };
            let mut torn = new.clone();
            // The front is new, the rest is what was there before.
            let old = self.durable[copy].clone().unwrap_or_else(|| vec![0; RECORD_BYTES]);
            torn[4096..].copy_from_slice(&old[4096..]);
            torn[600] ^= 1;
            outcomes = outcomes
                .into_iter()
                .flat_map(|outcome| {
                    [None, Some(new), Some(&torn)].map(|written| {
                        let mut outcome = outcome.clone();
                        if let Some(bytes) = written {
                            outcome[copy] = Some(bytes.clone());
                        }
                        outcome
                    })
                })
                .collect();
        }
        outcomes
    }

    fn open(&self) -> Result<Opened, OpenError> {
        open_copies(&self.durable)
    }
}

fn open_copies(copies: &[Option<Vec<u8>>; COPIES]) -> Result<Opened, OpenError> {
    open(std::array::from_fn(|copy| copies[copy].as_deref()), &WHO)
}

fn write(disk: &mut Disk, writer: &mut SuperblockWriter, ticket: u64, superblock: Superblock) {
    writer.request(ticket, superblock);
    let mut durable = None;
    while let Some(step) = writer.poll_step(Nanos(0)) {
        durable = disk.step(writer, step).or(durable);
    }
    assert_eq!(durable, Some(ticket));
}

/// What one copy may suffer beside a crash.
fn faults(
    copies: &[Option<Vec<u8>>; COPIES],
    older: &[Option<Vec<u8>>; COPIES],
    copy: usize,
) -> Vec<Option<Vec<u8>>> {
    let intact = copies[copy].clone();
    let flipped = intact.clone().map(|mut bytes| {
        bytes[2000] ^= 8;
        bytes
    });
    let another_lane = Superblock { who: Identification { lane: LaneId(6), ..WHO }, ..in_view(90) };
    let mut misdirected = encode(&another_lane, Stamp { sequence: 99, parent: 0 });
    set_copy(&mut misdirected, copy as u8);
    // Unreadable, rotten, read from a neighbour's place, overwritten by another lane, or a write that was lost.
    vec![intact, None, flipped, copies[(copy + 1) % COPIES].clone(), Some(misdirected), older[copy].clone()]
}

/// V84, V85: crash after any step of a write, any outcome of what was not flushed, any fault of any one copy. The record
/// is the old one or the new one, the new one for sure once the writer said so, and writing goes on from there.
#[test]
fn superblock_survives_any_crash_with_any_fault_of_one_copy() {
    let mut writer = SuperblockWriter::fresh();
    let mut disk = Disk::empty();
    write(&mut disk, &mut writer, 1, in_view(1));
    let older = disk.durable.clone();
    write(&mut disk, &mut writer, 2, in_view(2));
    let mut cases = 0;
    writer.request(3, in_view(3));
    loop {
        let step = writer.poll_step(Nanos(0));
        let finished = match step {
            Some(step) => disk.step(&mut writer, step).is_some(),
            None => panic!("the write ends with a ticket"),
        };
        for crashed in disk.after_crash() {
            for copy in 0..COPIES {
                for fault in faults(&crashed, &older, copy) {
                    let mut copies = crashed.clone();
                    copies[copy] = fault;
                    check_case(&copies, finished);
                    cases += 1;
                }
            }
        }
        if finished {
            break;
        }
    }
    assert!(cases >= 700, "{cases}");
}

fn check_case(copies: &[Option<Vec<u8>>; COPIES], finished: bool) {
    let opened = open_copies(copies).expect("one fault and one crash are survived");
    let view = opened.superblock.view.0;
    assert!(view == 3 || view == 2 && !finished, "view {view}, finished {finished}");
    assert!(opened.sequence_seen >= opened.stamp.sequence);
    // The next write repairs first, and a crash during the repair loses nothing either.
    let mut disk = Disk { durable: copies.clone(), cached: Default::default() };
    let mut writer = SuperblockWriter::resume(&opened);
    while let Some(step) = writer.poll_step(Nanos(0)) {
        disk.step(&mut writer, step);
        for crashed in disk.after_crash() {
            assert_eq!(
                open_copies(&crashed).expect("good copies stay").superblock.view,
                opened.superblock.view
            );
        }
    }
    assert_eq!(disk.open().unwrap().stale, Vec::<u8>::new());
    let mut next = opened.superblock;
    next.view = View(4);
    write(&mut disk, &mut writer, 4, next);
    assert_eq!(disk.open().unwrap().superblock.view, View(4));
}

#[test]
fn an_absent_a_ruined_and_a_contradictory_superblock_are_told_apart() {
    assert_eq!(open([None; COPIES], &WHO), Err(OpenError::Absent));
    let zeros = vec![0u8; RECORD_BYTES];
    assert_eq!(open([Some(&zeros); COPIES], &WHO), Err(OpenError::Damaged));
    let one = encode(&in_view(1), Stamp { sequence: 4, parent: 0 });
    let mut other = encode(&in_view(2), Stamp { sequence: 4, parent: 0 });
    set_copy(&mut other, 1);
    let copies = [Some(&one[..]), Some(&other[..]), None, None];
    assert_eq!(open(copies, &WHO), Err(OpenError::Contradiction { sequence: 4 }));
}

/// V86: each difference is refused and names both values.
#[test]
fn a_superblock_of_somebody_else_is_refused_with_both_values() {
    let others = [
        (Identification { cluster: ClusterId(1), ..WHO }, "1, this node is of cluster"),
        (Identification { disk: DiskId(1), ..WHO }, "1, this directory is disk"),
        (Identification { lane: LaneId(9), ..WHO }, "lane 9, expected lane 5"),
        (Identification { replica: ReplicaId(2), ..WHO }, "replica 2, this node is replica 1"),
        (Identification { nodes: 5, ..WHO }, "5 nodes, the configured roster has 3"),
    ];
    for (who, words) in others {
        let mut writer = SuperblockWriter::fresh();
        let mut disk = Disk::empty();
        write(&mut disk, &mut writer, 1, Superblock { who, ..fresh() });
        let refused = disk.open().unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
}

#[test]
fn a_newer_format_is_named_and_not_repaired() {
    let mut block = encode(&fresh(), Stamp { sequence: 1, parent: 0 });
    block[40] = 2;
    let checksum = xxhash_rust::xxh3::xxh3_128(&block[32..]);
    block[..16].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(parse(&block, 0), Err(RecordError::Newer { found: 2 }));
    assert_eq!(open([Some(&block), None, None, None], &WHO), Err(OpenError::Newer { found: 2 }));
}

#[test]
fn requests_during_a_write_become_one_record() {
    let mut writer = SuperblockWriter::fresh();
    let mut disk = Disk::empty();
    writer.request(1, in_view(1));
    let step = writer.poll_step(Nanos(0)).unwrap();
    assert_eq!(writer.poll_step(Nanos(0)), None, "one step at a time");
    disk.step(&mut writer, step);
    writer.request(2, in_view(2));
    writer.request(3, in_view(3));
    let mut tickets = Vec::new();
    while let Some(step) = writer.poll_step(Nanos(0)) {
        tickets.extend(disk.step(&mut writer, step));
    }
    assert_eq!(tickets, [1, 3]);
    let opened = disk.open().unwrap();
    assert_eq!((opened.superblock.view, opened.stamp.sequence), (View(3), 3));
    assert_eq!(writer.durable().map(|superblock| superblock.view), Some(View(3)));
}

/// V97: retried with growing pauses, and given up in time.
#[test]
fn an_unwritable_superblock_is_retried_and_given_up() {
    let mut writer = SuperblockWriter::fresh();
    writer.request(1, in_view(1));
    let mut now = Nanos(5);
    let mut attempts = 0;
    let ended = loop {
        assert!(attempts == 0 || writer.poll_step(Nanos(now.0 - 1)).is_none(), "before its time");
        assert!(writer.poll_step(now).is_some());
        attempts += 1;
        match writer.handle_failed(now) {
            Give::RetryAt(at) => now = at,
            Give::Up => break now,
        }
    };
    assert!(ended.us_since(Nanos(5)) >= writer::UNWRITABLE_US_MAX);
    assert!(ended.us_since(Nanos(5)) < writer::UNWRITABLE_US_MAX + 2_000_000);
    assert!((30..60).contains(&attempts), "{attempts}");
}

#[test]
fn writes_that_the_disk_lost_are_seen_when_they_are_read_back() {
    let mut writer = SuperblockWriter::fresh();
    writer.request(1, in_view(1));
    let mut outcome = Ok(None);
    while let Some(step) = writer.poll_step(Nanos(0)) {
        match step {
            Step::Write { .. } | Step::Flush => writer.handle_done(),
            Step::Read { .. } => outcome = writer.handle_read(Nanos(0), &vec![0; RECORD_BYTES]),
        }
    }
    assert_eq!(outcome, Err(Give::RetryAt(Nanos(10_000_000))));
    assert!(!writer.is_idle() && writer.durable().is_none());
    assert!(matches!(writer.poll_step(Nanos(10_000_000)), Some(Step::Write { position: 0, .. })));
}

#[test]
#[should_panic(expected = "must not become")]
fn a_view_is_never_taken_back() {
    let mut writer = SuperblockWriter::fresh();
    writer.request(1, in_view(4));
    writer.request(2, in_view(3));
}

/// V29 and V31, one field at a time.
#[test]
fn nothing_that_was_promised_is_taken_back() {
    let vote = |nack| {
        let mut vote = Vote {
            view: View(3),
            log_view: View(2),
            op_head: Op(8),
            commit_max: Op(7),
            checkpoint: CheckpointId::default(),
            trust: LogTrust::Trusted,
            syncing: false,
            slots: vec![Slot { held: Held::Blank, nack }],
        };
        vote.commit_max = Op(7);
        Promise::Vote(vote)
    };
    let base = Superblock {
        view: View(3),
        log_view: View(2),
        commit_max: Op(7),
        checkpoint: CheckpointRef {
            id: CheckpointId { op: Op(4), identity: Identity(1) },
            ..Default::default()
        },
        promise: vote(true),
        ..fresh()
    };
    assert!(base.is_consistent());
    let may = |next: Superblock| base.may_become(&next);
    assert!(may(Superblock { commit_max: Op(9), ..base.clone() }));
    assert!(!may(Superblock { commit_max: Op(6), ..base.clone() }));
    assert!(!may(Superblock { view: View(2), ..base.clone() }));
    assert!(!may(Superblock { log_view: View(1), ..base.clone() }));
    assert!(!may(Superblock { promise: vote(false), ..base.clone() }), "another vote in the same view");
    assert!(!may(Superblock { promise: Promise::None, ..base.clone() }), "the vote is forgotten");
    assert!(
        may(Superblock { promise: Promise::None, log_view: View(3), ..base.clone() }),
        "a log was adopted"
    );
    assert!(!may(Superblock { who: Identification { lane: LaneId(1), ..WHO }, ..base.clone() }));
    let back = CheckpointRef { id: CheckpointId { op: Op(3), identity: Identity(1) }, ..Default::default() };
    assert!(!may(Superblock { checkpoint: back, ..base.clone() }));
    let sync = Some(SyncRange { first: Op(1), last: Op(3) });
    assert!(may(Superblock { checkpoint: back, sync, ..base.clone() }), "installed from another replica");
    let roster = Roster::new(Epoch(1), vec![ReplicaId(1)], vec![], Quorums::of(1).unwrap()).unwrap();
    let moved = Superblock { roster, ..base.clone() };
    assert!(may(moved.clone()) && !moved.may_become(&base));
}

fn any_superblock() -> impl Strategy<Value = Superblock> {
    let promise = prop_oneof![
        Just(Promise::None),
        any_vote().prop_map(Promise::Vote),
        (1u64..300, 0usize..4).prop_map(|(op, count)| {
            let mut headers = Vec::new();
            let mut parent = Identity(5);
            for op in op..op + count as u64 {
                let mut next = header(op, op);
                next.parent = parent;
                parent = next.identity;
                headers.insert(0, next);
            }
            let op_head = headers.first().map_or(Op(0), |header: &Header| header.op);
            Promise::View { op_head, headers }
        }),
    ];
    (promise, any::<[u64; 6]>(), any::<[bool; 4]>()).prop_map(|(promise, numbers, flags)| {
        let [a, b, c, d, e, f] = numbers;
        let (view, log_view) = match &promise {
            Promise::Vote(vote) => (vote.view, vote.log_view),
            Promise::View { .. } => (View(a as u32), View(a as u32)),
            Promise::None => (View(a as u32 | 7), View(a as u32 & 7)),
        };
        Superblock {
            view,
            log_view,
            commit_max: Op(b | c),
            checkpoint: CheckpointRef {
                id: CheckpointId { op: Op(b), identity: Identity(d.into()) },
                snapshot: e,
                snapshot_hash: u128::from(f) << 60,
            },
            sync: flags[0].then_some(SyncRange { first: Op(c & d), last: Op(c) }),
            trust: if flags[1] { LogTrust::Untrusted } else { LogTrust::Trusted },
            syncing: flags[3],
            clean: flags[2].then_some(CleanStop { op_head: Op(e), identity: Identity(f.into()) }),
            boot: BootId(u128::from(a) * 3),
            promise,
            ..fresh()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_record_round_trips(superblock in any_superblock(), sequence: u64, parent: u128, copy in 0u8..4) {
        let mut block = encode(&superblock, Stamp { sequence, parent });
        set_copy(&mut block, copy);
        let parsed = parse(&block, copy).unwrap();
        prop_assert_eq!(&parsed.superblock, &superblock);
        prop_assert_eq!(parsed.stamp, Stamp { sequence, parent });
        let misplaced = parse(&block, (copy + 1) % 4);
        prop_assert_eq!(misplaced, Err(RecordError::Misplaced { place: (copy + 1) % 4, found: copy.into() }));
    }

    #[test]
    fn every_flipped_bit_is_seen(superblock in any_superblock(), bits in proptest::collection::vec(0..RECORD_BYTES * 8, 8)) {
        let block = encode(&superblock, Stamp { sequence: 3, parent: 9 });
        for bit in bits.into_iter().chain(0..256) {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(parse(&flipped, 0).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn any_bytes_with_a_right_checksum_are_read_without_a_panic(
        patches in proptest::collection::vec((32..1000usize, any::<u8>()), 1..20),
        superblock in any_superblock(),
    ) {
        let mut block = encode(&superblock, Stamp { sequence: 3, parent: 9 });
        for (place, value) in patches {
            block[place] = value;
        }
        let checksum = xxhash_rust::xxh3::xxh3_128(&block[32..]);
        block[..16].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(parsed) = parse(&block, 0) {
            prop_assert!(parsed.superblock.is_consistent());
        }
    }
}
