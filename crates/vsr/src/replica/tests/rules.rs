//! The rules of the core, one test or more for each. Source: cluster specification, 9.1. The merge has its own tests.

use laneway_wire::{Micros, Nanos, Op, ReplicaId};

use super::bench::*;
use super::cluster::Cluster;
use crate::entry::{Durability, Entry, EntryBody, View};
use crate::event::{Effect, Event, Halt};
use crate::marks;
use crate::message::{Anchor, Message, Nonce};
use crate::recovery::{Tail, Witness};
use crate::replica::{ProposeError, Status, Timer};
use crate::superblock::Promise;
use crate::vote::{Held, LogTrust};

const SUSPECT_US: u64 = 1_000_000;
const FOREVER_US: u64 = 1_400_000;

fn whole() -> (Tail, Witness) {
    (Tail::Whole { flush: 1_000 }, Witness::NotKept)
}

fn restarted(log_view: u32, view_head: u64, headers: &[Entry], entries: &[Entry]) -> Bench {
    let (tail, witness) = whole();
    let promise = Promise::View {
        op_head: Op(view_head),
        headers: headers.iter().rev().map(|entry| entry.header).collect(),
    };
    let (view, commit) = (log_view, 0);
    Bench::restart(1, Found0 { view, log_view, commit, promise, entries, tail, witness })
}

/// The primary of view 1 among 0, 1, 2, elected with the vote of 2, holding `entries`.
fn elected(entries: &[Entry]) -> Bench {
    let mut bench = Bench::holding(1, 0, entries);
    bench.wait(FOREVER_US);
    bench.message(2, suspicion(1));
    bench.message(2, vote(1, 0, 0, entries));
    assert!(bench.replica.is_primary());
    bench
}

#[test]
fn v28_equal_inputs_give_equal_outputs() {
    let run = |seed| {
        let mut cluster = Cluster::new(3, seed);
        cluster.loss = 50;
        for _ in 0..20 {
            if let Some(node) = cluster.primary() {
                cluster.propose(node);
            }
            cluster.run(300_000);
        }
        cluster.crash(0);
        cluster.run(5_000_000);
        (cluster.sent.clone(), cluster.committed.clone(), cluster.random.next())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn v29_what_is_durable_never_goes_back() {
    // The cluster compares every superblock record with the one before it.
    for seed in 0..6 {
        let mut cluster = Cluster::new(3, seed);
        cluster.checkpoint_every = 4;
        for round in 0..6 {
            let primary = cluster.primary().unwrap_or(0);
            for _ in 0..5 {
                cluster.propose(primary);
            }
            cluster.run(400_000);
            cluster.crash(round % 3);
            cluster.run(2_500_000);
            cluster.restart(round % 3);
            cluster.run(500_000);
        }
        cluster.heal();
        let (_, state) = cluster.nodes[0].disk.superblock.clone().unwrap();
        assert!(state.view > View(0) && state.log_view <= state.view && state.commit_max > Op(0));
    }
}

#[test]
fn v30_nothing_of_a_view_leaves_before_its_record_is_durable() {
    let log = entries(3, 99);
    let mut bench = Bench::holding(1, 0, &log);
    bench.superblock_works = false;
    bench.wait(FOREVER_US);
    bench.message(2, suspicion(1));
    assert_eq!((bench.replica.status(), bench.replica.view()), (Status::ViewChange, View(1)));
    bench.wait(300_000);
    assert_eq!(bench.count("do_view_change"), 0);
    bench.finish_superblock();
    assert!(bench.count("do_view_change") > 0);
    // The same for the start of the view by its primary.
    bench.superblock_works = false;
    bench.message(2, vote(1, 0, 0, &log));
    assert_eq!(bench.count("start_view"), 0);
    assert_eq!(bench.replica.status(), Status::ViewChange);
    bench.finish_superblock();
    assert!(bench.count("start_view") > 0 && bench.replica.is_primary());
    // And for the acknowledgement of a backup.
    let mut backup = Bench::holding(2, 0, &log);
    backup.superblock_works = false;
    backup.message(1, start_view(1, 0, &log, None));
    assert_eq!(backup.count("prepare_ok"), 0);
    backup.finish_superblock();
    assert_eq!(backup.last_progress().map(|progress| progress.persisted), Some(anchor(&log[2])));
}

#[test]
fn v31_one_vote_a_view_also_after_a_restart() {
    let log = entries(4, 99);
    let mut bench = Bench::holding(2, 1, &log);
    bench.wait(FOREVER_US);
    bench.message(1, suspicion(1));
    let vote = bench.last_vote().cloned().expect("it votes");
    bench.sent.clear();
    bench.wait(500_000);
    assert!(bench.sent.iter().all(|(_, message)| match message {
        Message::DoViewChange(again) => **again == vote,
        _ => true,
    }));
    // What is written is what is said again by the next start, for a later view, too: the log of the old view is open.
    let (tail, witness) = whole();
    let promise = Promise::Vote(vote.clone());
    let found = Found0 { view: 1, log_view: 0, commit: 1, promise, entries: &log, tail, witness };
    let mut bench = Bench::restart(2, found);
    bench.wait(SUSPECT_US);
    bench.message(1, super::bench::vote(2, 0, 1, &log));
    let again = bench.last_vote().expect("it votes");
    assert_eq!((again.view, &again.slots, again.op_head), (View(2), &vote.slots, vote.op_head));
}

#[test]
fn v32_a_view_needs_a_suspicion_quorum_a_vote_or_a_start() {
    let mut bench = Bench::fresh(1);
    bench.message(2, suspicion(5));
    bench.wait(900_000);
    assert_eq!(bench.replica.view(), View(0), "one suspicion raises nothing");
    bench.wait(500_000);
    // Its own suspicion now agrees with the one of 2, which is still fresh.
    assert_eq!((bench.replica.view(), bench.replica.status()), (View(5), Status::ViewChange));

    let mut bench = Bench::fresh(1);
    bench.message(2, vote(3, 0, 0, &[]));
    assert_eq!(bench.replica.view(), View(3));

    let mut bench = Bench::fresh(1);
    bench.message(2, start_view(2, 0, &[], None));
    assert_eq!((bench.replica.view(), bench.replica.status()), (View(2), Status::Normal));

    let mut bench = Bench::fresh(1);
    bench.wait(10_000_000);
    assert_eq!(bench.replica.view(), View(0), "alone it only asks");
    assert!(bench.count("start_view_change") > 10);
}

#[test]
fn v33_a_member_that_hears_nothing_cannot_depose_a_healthy_primary() {
    let mut cluster = Cluster::new(3, 1);
    cluster.run(100_000);
    cluster.cut.extend([(0, 2), (1, 2)]);
    for _ in 0..50 {
        cluster.propose(0);
        cluster.run(200_000);
    }
    assert_eq!(cluster.replica(0).view(), View(0));
    assert_eq!(cluster.replica(1).view(), View(0));
    assert!(cluster.replica(0).is_primary());
    assert!(cluster.replica(0).frontier().commit_min >= Op(49));
    cluster.heal();
}

#[test]
fn v34_no_suspicion_and_no_vote_while_the_promise_runs() {
    let mut bench = Bench::fresh(1);
    bench.message(0, heartbeat(0, 1, 0));
    bench.message(2, vote(1, 0, 0, &[]));
    assert_eq!(bench.replica.view(), View(1), "the vote of another proves the suspicion");
    bench.wait(990_000);
    assert_eq!(bench.count("do_view_change"), 0);
    bench.wait(200_000);
    assert!(bench.count("do_view_change") > 0);

    let mut bench = Bench::fresh(1);
    bench.wait(600_000);
    bench.message(0, heartbeat(0, 1, 0));
    bench.wait(990_000);
    assert_eq!(bench.count("start_view_change"), 0);
}

#[test]
fn v34_a_restarted_replica_may_have_promised() {
    let mut bench = restarted(0, 0, &[], &[]);
    bench.message(2, vote(1, 0, 0, &[]));
    bench.wait(990_000);
    assert_eq!((bench.count("do_view_change"), bench.count("start_view_change")), (0, 0));
    bench.wait(300_000);
    assert!(bench.count("do_view_change") > 0);
}

#[test]
fn v35_reads_need_the_lease_and_what_the_view_inherited() {
    let log = entries(3, 99);
    let mut bench = elected(&log);
    let grant = |bench: &mut Bench, entry: &Entry| {
        let Some(Message::Heartbeat { view, sequence, sent_at, .. }) = bench.last("heartbeat").cloned()
        else {
            panic!("a primary sends heartbeats")
        };
        bench.message(2, Message::HeartbeatAck { view, sequence, sent_at, progress: progress(entry) });
    };
    bench.wait(10_000);
    // Leased, but the inherited entries are not committed yet.
    grant(&mut bench, &log[0]);
    assert!(!bench.replica.may_serve_reads(bench.now));
    grant(&mut bench, &log[2]);
    assert_eq!(bench.applied, [Op(1), Op(2), Op(3)]);
    assert!(bench.replica.may_serve_reads(bench.now));
    // Without another grant it ends.
    assert!(!bench.replica.may_serve_reads(bench.now.after_us(800_000)));
    assert!(bench.replica.lease_until() < bench.now.after_us(800_000));
    assert!(!Bench::fresh(1).replica.may_serve_reads(Nanos(1)), "a backup serves none");
}

#[test]
fn v36_an_acknowledgement_counts_once_in_its_view_and_under_the_name() {
    let log = entries(2, 99);
    let mut bench = elected(&log);
    let ok = |view, progress| Message::PrepareOk { view: View(view), progress };
    let other = entries(2, 2);
    bench.message(2, ok(0, progress(&log[1])));
    assert_eq!(bench.applied, [], "of an older view");
    bench.message(2, ok(1, progress(&other[1])));
    assert_eq!(bench.applied, [], "under another name");
    bench.message(7, ok(1, progress(&log[1])));
    assert_eq!(bench.applied, [], "of a stranger");
    bench.message(1, ok(1, progress(&log[1])));
    assert_eq!(bench.applied, [], "of itself");
    bench.message(2, ok(1, progress(&log[1])));
    assert_eq!(bench.applied, [Op(1), Op(2)]);

    // Five members need three: one of them twice is still one.
    let mut cluster = Cluster::new(5, 9);
    cluster.class = Some(Durability::Persisted);
    cluster.cut.extend((2..5).map(|to| (0, to)));
    cluster.propose(0);
    cluster.run(900_000);
    assert_eq!(cluster.replica(0).frontier().commit_max, Op(0));
}

#[test]
fn v37_the_primary_counts_itself_only_when_durable() {
    let log = entries(1, 99);
    let mut bench = elected(&log);
    bench.message(2, Message::PrepareOk { view: View(1), progress: progress(&log[0]) });
    bench.log_works = false;
    let entry = bench.propose();
    bench.message(2, Message::PrepareOk { view: View(1), progress: progress(&entry) });
    assert_eq!(bench.replica.frontier().commit_max, Op(1));
    bench.finish_log();
    assert_eq!(bench.replica.frontier().commit_max, Op(2));
}

#[test]
fn v38_apply_stops_at_a_gap() {
    let log = entries(4, 99);
    let mut bench = Bench::fresh(1);
    bench.message(0, prepare(0, 0, &log[0]));
    bench.message(0, prepare(0, 4, &log[2]));
    bench.message(0, prepare(0, 4, &log[3]));
    assert_eq!(bench.applied, [Op(1)]);
    bench.message(0, prepare(0, 4, &log[1]));
    assert_eq!(bench.applied, [Op(1), Op(2), Op(3), Op(4)]);
}

#[test]
fn v39_an_acknowledgement_covers_the_whole_verified_prefix_and_no_more() {
    let log = entries(4, 99);
    let mut bench = Bench::fresh(1);
    bench.message(0, prepare(0, 0, &log[0]));
    bench.message(0, prepare(0, 0, &log[2]));
    assert_eq!(bench.last_progress().unwrap().persisted, anchor(&log[0]));
    bench.message(0, prepare(0, 0, &log[1]));
    assert_eq!(bench.last_progress().unwrap().persisted, anchor(&log[2]));

    // After the adoption of a log that begins above the own head nothing of the own head is proven.
    let (ours, theirs) = (entries(3, 2), entries(8, 99));
    let mut bench = Bench::holding(1, 0, &ours);
    bench.message(2, start_view(2, 6, &theirs, None));
    assert_eq!(bench.last_progress().unwrap().persisted.op, Op(0));
    assert_eq!(bench.applied, []);
}

#[test]
fn v40_another_name_in_one_view_overwrites_nothing() {
    let (log, other) = (entries(2, 99), entries(2, 2));
    let mut bench = Bench::holding(1, 0, &log);
    bench.message(0, prepare(0, 2, &other[1]));
    assert_eq!(bench.log[&Op(2)], log[1]);
    assert_eq!(bench.replica.identity(Op(2)), Some(log[1].header.identity));
    assert!(marks::take().contains_key("two names at one op in one view"));
}

#[test]
fn v41_only_what_was_never_acknowledged_is_denied() {
    let log = entries(3, 99);
    let mut bench = Bench::holding(2, 0, &log[..2]);
    bench.log_works = false;
    bench.message(0, prepare(0, 0, &log[2]));
    bench.wait(FOREVER_US);
    bench.message(1, suspicion(1));
    let vote = bench.last_vote().unwrap().clone();
    assert!(matches!(vote.slot(Op(3)).unwrap().held, Held::HeaderOnly(_)) && vote.slot(Op(3)).unwrap().nack);
    for op in [Op(1), Op(2)] {
        assert!(vote.slot(op).unwrap().held.is_present() && !vote.slot(op).unwrap().nack);
    }
    // It becomes durable after all. In the view that it denied it for, it is not acknowledged.
    bench.sent.clear();
    bench.finish_log();
    assert_eq!(bench.count("prepare_ok"), 0);
}

#[test]
fn v42_damaged_and_unfetched_entries_are_not_denied() {
    let log = entries(4, 99);
    // Adopted to op 4, held to op 2.
    let mut bench = Bench::holding(2, 0, &log[..2]);
    bench.message(1, start_view(1, 1, &log, None));
    bench.wait(FOREVER_US);
    bench.message(1, vote(3, 1, 1, &log));
    let vote = bench.last_vote().unwrap();
    assert_eq!((vote.op_head, vote.log_view), (Op(4), View(1)));
    assert!(vote.slots.iter().all(|slot| !slot.nack));
    assert!(matches!(vote.slot(Op(4)).unwrap().held, Held::HeaderOnly(_)));

    // A damaged head: no vote at all.
    let promise = Promise::View { op_head: Op(0), headers: Vec::new() };
    let (tail, witness) = (Tail::Broken { flush: 9, at: 0 }, Witness::Attests { flush: 9 });
    let found = Found0 { view: 0, log_view: 0, commit: 0, promise, entries: &log[..2], tail, witness };
    let mut bench = Bench::restart(2, found);
    assert_eq!(bench.replica.status(), Status::RecoveringHead);
    bench.message(1, super::bench::vote(1, 0, 0, &log));
    bench.wait(20_000_000);
    assert_eq!((bench.count("do_view_change"), bench.count("start_view_change")), (0, 0));
}

#[test]
fn v49_the_log_view_rises_after_the_merged_log_is_durable() {
    let log = entries(3, 99);
    let mut bench = Bench::holding(1, 0, &log[..1]);
    bench.wait(FOREVER_US);
    bench.message(2, suspicion(1));
    bench.log_works = false;
    bench.message(2, vote(1, 0, 0, &log));
    assert_eq!((bench.replica.view(), bench.replica.log_view()), (View(1), View(0)));
    assert!(bench.count("get_prepare") > 0, "it fetches what it lacks");
    for entry in &log[1..] {
        let message =
            Message::RepairPrepare { view: View(1), nonce: Nonce(0), settled: false, entry: entry.clone() };
        bench.message(2, message);
    }
    assert_eq!(bench.replica.log_view(), View(0), "all bodies are here, and not on disk");
    assert!(bench.states.iter().all(|(_, state)| state.log_view == View(0)));
    bench.finish_log();
    assert_eq!(bench.replica.log_view(), View(1));
    assert!(bench.replica.is_primary());
}

#[test]
fn v50_a_started_view_can_be_served_by_its_primary() {
    let log = entries(5, 99);
    let mut bench = Bench::holding(1, 2, &log[..3]);
    bench.wait(FOREVER_US);
    bench.message(2, suspicion(1));
    bench.message(2, vote(1, 0, 2, &log));
    assert_eq!(bench.count("start_view"), 0);
    for entry in &log[3..] {
        let message =
            Message::RepairPrepare { view: View(1), nonce: Nonce(0), settled: false, entry: entry.clone() };
        bench.message(2, message);
    }
    assert!(bench.count("start_view") > 0);
    bench.sent.clear();
    let wanted = log.iter().map(anchor).collect();
    bench.message(2, Message::GetPrepare { view: View(1), nonce: Nonce(8), wanted });
    assert_eq!(bench.count("repair_prepare"), 5);
}

#[test]
fn v51_adoption_cuts_the_log_before_the_next_write() {
    let (ours, theirs) = (entries(5, 4), entries(3, 99));
    let mut bench = Bench::holding(2, 0, &ours);
    bench.message(1, start_view(1, 0, &theirs, None));
    assert_eq!(bench.truncated, [Op(3)]);
    assert_eq!(bench.replica.frontier().op_head, Op(3));
    let next = entry_after(theirs.last(), 1);
    bench.message(1, prepare(1, 0, &next));
    assert_eq!(bench.log[&Op(4)], next);
    assert_eq!(bench.last_progress().unwrap().persisted, anchor(&next));
}

#[test]
fn v51_leftovers_that_a_crash_spared_are_found_at_the_restart() {
    // The superblock says that view 1 began with three entries; the log was not cut before the stop.
    let (old, new) = (entries(5, 99), entries(3, 3));
    let mut bench = restarted(1, 3, &new[1..], &old);
    assert_eq!(bench.replica.frontier().op_head, Op(2), "op 3 was replaced, 4 and 5 were dropped");
    bench.wait(SUSPECT_US);
    bench.message(2, vote(2, 1, 0, &new));
    let vote = bench.last_vote().unwrap();
    assert_eq!(vote.op_head, Op(3));
    assert_eq!(vote.slot(Op(3)).unwrap().held.header(), Some(&new[2].header));
}

#[test]
fn v52_a_disagreement_with_what_is_applied_stops_the_replica() {
    let (ours, theirs) = (entries(3, 99), entries(4, 2));
    let mut bench = Bench::holding(2, 2, &ours);
    assert_eq!(bench.applied, [Op(1), Op(2)]);
    bench.message(1, start_view(1, 2, &theirs, None));
    assert_eq!(bench.replica.status(), Status::Halted);
    let (op, view) = (Op(2), View(1));
    let (ours, theirs) = (ours[1].header.identity, theirs[1].header.identity);
    assert!(bench.others.contains(&Effect::Halt(Halt::Diverged { op, view, ours, theirs })));
    bench.sent.clear();
    bench.message(1, heartbeat(1, 1, 0));
    bench.wait(10_000_000);
    assert_eq!(bench.sent.len(), 0, "it is silent from then on");

    // Also when the start is shorter than what is applied.
    let log = entries(3, 99);
    let mut bench = Bench::holding(2, 2, &log);
    bench.message(1, start_view(1, 1, &log[..1], None));
    assert_eq!(bench.replica.status(), Status::Halted);
}

#[test]
fn v53_an_equal_view_is_adopted_again_after_a_restart() {
    let log = entries(5, 99);
    // The log is longer than what the primary announces.
    let mut bench = restarted(0, 0, &[], &log);
    let nonce = bench.probe();
    bench.message(0, start_view(0, 2, &log[..3], nonce));
    assert_eq!(bench.replica.status(), Status::Normal);
    assert_eq!(bench.truncated, [Op(3)]);
    assert_eq!(bench.applied, [Op(1), Op(2)]);
    assert_eq!(bench.last_progress().unwrap().persisted, anchor(&log[2]));
}

#[test]
fn v54_a_start_for_an_earlier_boot_is_not_adopted() {
    let log = entries(2, 99);
    let mut bench = restarted(0, 0, &[], &log);
    bench.message(0, start_view(0, 0, &log, Some(Nonce(1))));
    bench.message(0, start_view(0, 0, &log, None));
    bench.message(0, start_view(3, 0, &log, Some(Nonce(1))));
    assert_eq!(bench.replica.status(), Status::Recovering);
    bench.message(0, start_view(3, 0, &log, None));
    assert_eq!((bench.replica.status(), bench.replica.view()), (Status::Normal, View(3)));

    // The answer to a probe goes to who asked, and to nobody else.
    let mut primary = Bench::fresh(0);
    primary.sent.clear();
    let probe = Message::GetView { view: View(0), nonce: Nonce(77), op_head: Op(0), recovering: true };
    primary.message(2, probe);
    let starts: Vec<_> = primary.take_sent();
    assert_eq!(starts.len(), 1);
    assert!(
        matches!(&starts[0], (ReplicaId(2), Message::StartView(start)) if start.nonce == Some(Nonce(77)))
    );
}

#[test]
fn v55_the_first_heartbeat_of_a_new_primary_is_accepted() {
    let mut bench = Bench::fresh(2);
    bench.message(0, heartbeat(0, 1_000, 0));
    bench.message(1, start_view(1, 0, &[], None));
    bench.sent.clear();
    bench.message(1, heartbeat(1, 1, 0));
    assert_eq!(bench.count("heartbeat_ack"), 1);
    bench.message(1, heartbeat(1, 1, 0));
    assert_eq!(bench.count("heartbeat_ack"), 1, "the same one grants nothing again");
}

#[test]
fn v56_a_gap_starts_repair_at_once_in_normal_status() {
    let log = entries(3, 99);
    let mut bench = Bench::holding(1, 0, &log[..1]);
    bench.message(0, prepare(0, 0, &log[2]));
    assert_eq!(bench.count("get_prepare"), 1, "in the very step that saw the gap");
    assert_eq!((bench.replica.status(), bench.replica.view()), (Status::Normal, View(0)));
    bench.message(0, prepare(0, 0, &log[1]));
    assert!(!bench.replica.is_repairing());
}

#[test]
fn v57_a_lagging_member_receives_what_has_its_quorum() {
    let mut cluster = Cluster::new(3, 5);
    cluster.cut.insert((0, 2));
    for _ in 0..5 {
        cluster.propose(0);
        cluster.run(20_000);
    }
    assert_eq!(cluster.replica(0).frontier().commit_min, Op(5));
    assert_eq!(cluster.replica(2).frontier().commit_min, Op(0));
    cluster.cut.clear();
    cluster.run(600_000);
    assert_eq!(cluster.replica(2).frontier().commit_min, Op(5));
    assert_eq!(cluster.replica(0).view(), View(0));
}

#[test]
fn v58_a_body_is_accepted_only_under_a_known_name() {
    let (log, other) = (entries(3, 99), entries(3, 2));
    let mut bench = Bench::holding(2, 0, &log[..1]);
    bench.message(1, start_view(1, 0, &log, None));
    let repair = |entry: &Entry, settled| Message::RepairPrepare {
        view: View(1),
        nonce: Nonce(0),
        settled,
        entry: entry.clone(),
    };
    bench.message(0, repair(&other[1], false));
    bench.message(1, repair(&other[1], true));
    bench.message(0, repair(&entry_after(log.last(), 1), true));
    assert_eq!(bench.replica.frontier().op_head, Op(1));
    bench.message(0, repair(&log[1], false));
    bench.message(0, repair(&log[2], false));
    assert_eq!(bench.replica.frontier().op_head, Op(3));
}

#[test]
fn v59_repair_is_served_in_view_change_and_while_recovering() {
    let log = entries(3, 99);
    let mut changing = Bench::holding(2, 0, &log);
    changing.message(1, vote(1, 0, 0, &log));
    assert_eq!(changing.replica.status(), Status::ViewChange);
    let mut recovering = restarted(0, 0, &[], &log);
    assert_eq!(recovering.replica.status(), Status::Recovering);
    for bench in [&mut changing, &mut recovering] {
        bench.sent.clear();
        let wanted = vec![anchor(&log[1]), Anchor { identity: log[0].header.identity, ..anchor(&log[2]) }];
        bench.message(0, Message::GetPrepare { view: View(1), nonce: Nonce(5), wanted });
        assert_eq!(bench.count("repair_prepare"), 1, "and only what bears the name");
        bench.message(0, Message::GetHeaders { view: View(1), nonce: Nonce(5), first: Op(1), last: Op(3) });
        assert_eq!(bench.count("headers"), 1);
    }
}

/// The set of timers of each status is asserted at the end of every step, see `Replica::timers_fit`.
#[test]
fn v60_every_status_has_its_timers() {
    let mut bench = Bench::fresh(1);
    bench.wait(5_000_000);
    bench.message(2, suspicion(1));
    bench.wait(30_000_000);
    assert_eq!(bench.replica.status(), Status::ViewChange);
    assert!(bench.replica.poll_timeout() < bench.now.after_us(1_000_000));
    assert_eq!(Timer::ALL.len(), 9);
    for (place, timer) in Timer::ALL.into_iter().enumerate() {
        assert_eq!(timer as usize, place);
    }
}

#[test]
fn v61_timestamps_increase_across_primaries() {
    let mut late = entries(1, 99);
    late[0].header.timestamp = Micros(1_000_000);
    let body = late[0].body.clone();
    let header = late[0].header;
    let draft = crate::header::Draft {
        op: header.op,
        parent: header.parent,
        view: header.view,
        commit: header.commit,
        timestamp: header.timestamp,
        epoch: header.epoch,
        primary: header.primary,
        durability: header.durability,
    };
    late[0].header = crate::header::Header::seal(super::cluster::CLUSTER, super::cluster::LANE, draft, &body);
    let mut bench = elected(&late);
    bench.message(2, Message::PrepareOk { view: View(1), progress: progress(&late[0]) });
    let entry = bench.propose();
    assert_eq!(entry.timestamp(), Micros(1_000_001), "the clock of the new primary is behind");
}

#[test]
fn v64_a_stalled_judge_suspects_nobody() {
    let mut bench = Bench::fresh(1);
    bench.message(0, heartbeat(0, 1, 0));
    // Nothing runs here for five seconds, and the first thing that does is the suspicion timer.
    bench.now = bench.now.after_us(5_000_000);
    bench.event(Event::Timeout);
    bench.wait(900_000);
    assert_eq!(bench.count("start_view_change"), 0);
    bench.wait(500_000);
    assert!(bench.count("start_view_change") > 0, "it has been awake for long enough now");
}

#[test]
fn v65_a_restart_of_everybody_elects_without_help() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(3, seed);
        for _ in 0..5 {
            cluster.propose(0);
            cluster.run(1_000);
        }
        for node in 0..3 {
            cluster.crash(node);
        }
        for node in 0..3 {
            cluster.restart(node);
        }
        cluster.run(2 * (2_000_000 + SUSPECT_US));
        assert!(cluster.primary().is_some(), "seed {seed}");
        cluster.heal();
    }
}

#[test]
fn v66_a_lone_member_commits_what_its_log_holds() {
    let mut cluster = Cluster::new(1, 2);
    for _ in 0..9 {
        cluster.propose(0).unwrap();
    }
    cluster.run(1);
    cluster.crash(0);
    let durable = cluster.nodes[0].disk.log(false).len();
    cluster.restart(0);
    cluster.run(100_000);
    assert!(cluster.replica(0).is_primary());
    assert_eq!(cluster.replica(0).frontier().commit_min, Op(durable as u64));
    assert_eq!(cluster.sent.len(), 0);
}

#[test]
fn v67_a_refused_merge_changes_nothing_and_is_tried_again() {
    let log = entries(3, 99);
    let mut bench = Bench::holding(1, 2, &log);
    bench.wait(FOREVER_US);
    bench.message(2, suspicion(1));
    let before = bench.replica.frontier();
    // Two names in one view.
    bench.message(2, vote(1, 0, 2, &entries(3, 3)));
    bench.message(0, vote(1, 0, 2, &log));
    assert!(bench.replica.refusal().is_some());
    assert_eq!(bench.replica.frontier(), before);
    assert_eq!((bench.replica.status(), bench.replica.log_view()), (Status::ViewChange, View(0)));
    bench.wait(5_000_000);
    assert!(bench.count("start_view_change") > 0, "it asks for the next view");
    bench.message(2, vote(4, 0, 2, &log));
    assert_eq!(bench.replica.view(), View(4));
    assert!(bench.replica.is_primary());
}

#[test]
fn v87_v115_an_emptied_directory_is_silent_until_it_is_admitted() {
    let log = entries(3, 99);
    let replica = crate::Replica::amnesiac(config(2), Nanos(1_000), crate::DiskId(4));
    let mut bench = Bench::around(replica, Nanos(1_000), &[]);
    assert!(bench.count("recovery") == 2);
    bench.message(1, vote(1, 0, 0, &[]));
    bench.message(0, heartbeat(0, 1, 0));
    bench.wait(5_000_000);
    let Some(Message::Recovery { nonce, .. }) = bench.last("recovery").cloned() else { panic!() };
    let Message::StartView(start) = start_view(0, 2, &log, Some(nonce)) else { panic!() };
    let reply = |start_view| Message::RecoveryReply {
        view: View(0),
        nonce,
        log_view: View(0),
        op_head: Op(3),
        commit_max: Op(2),
        start_view,
    };
    bench.message(1, reply(None));
    assert_eq!(bench.replica.status(), Status::Amnesiac, "one answer is not enough");
    bench.message(0, reply(Some(start)));
    assert_eq!(bench.replica.status(), Status::Normal);
    for entry in &log {
        bench.message(0, prepare(0, 2, entry));
    }
    assert_eq!(bench.applied, [Op(1), Op(2)]);
    bench.message(1, vote(1, 0, 0, &[]));
    bench.wait(5_000_000);
    let binding = ["prepare_ok", "heartbeat_ack", "do_view_change", "start_view_change"];
    assert!(binding.iter().all(|kind| bench.count(kind) == 0));

    bench.event(Event::Admission { replica: ReplicaId(2), admitted: true });
    bench.message(0, heartbeat(0, 2, 2));
    assert_eq!(bench.count("heartbeat_ack"), 1);
}

#[test]
fn v115_a_member_that_is_not_admitted_counts_nowhere() {
    let log = entries(1, 99);
    let mut bench = elected(&log);
    bench.event(Event::Admission { replica: ReplicaId(2), admitted: false });
    bench.message(2, Message::PrepareOk { view: View(1), progress: progress(&log[0]) });
    assert_eq!(bench.applied, []);
    bench.message(2, vote(2, 0, 0, &log));
    bench.message(2, suspicion(7));
    assert_eq!(bench.replica.view(), View(1));
    bench.message(0, Message::PrepareOk { view: View(1), progress: progress(&log[0]) });
    assert_eq!(bench.applied, [Op(1)]);
}

#[test]
fn v95_a_checkpoint_that_may_be_alone_is_not_buried() {
    let log = entries(2, 99);
    let mut bench = Bench::fresh(1);
    bench.message(0, heartbeat(0, 1, 500));
    bench.wait(4_000_000);
    assert!(bench.others.iter().any(|effect| matches!(effect, Effect::StartTransfer { .. })));
    let checkpoint = crate::CheckpointId { op: Op(400), identity: log[0].header.identity };
    bench.event(Event::CheckpointInstalled { checkpoint, timestamp: Micros(9) });
    assert_eq!(bench.replica.frontier().commit_min, Op(400));
    assert!(bench.states.last().unwrap().1.syncing);
    let known = Message::Heartbeat {
        view: View(0),
        sequence: 99,
        sent_at: Nanos(0),
        commit: Op(500),
        op_head: Op(500),
        checkpoint: Op(400),
        checkpoint_quorum: Op(400),
    };
    bench.message(0, known);
    assert!(!bench.states.last().unwrap().1.syncing);
}

#[test]
fn v96_a_failed_log_acknowledges_nothing_and_gives_up_the_lead() {
    let log = entries(2, 99);
    let mut bench = elected(&log);
    bench.event(Event::LogFailed);
    let refused = bench.replica.propose(Micros(1), Durability::Persisted, EntryBody::default());
    assert!(matches!(refused, Err(ProposeError::NotReady { .. })));
    bench.sent.clear();
    bench.wait(500_000);
    assert_eq!(bench.count("heartbeat"), 0);
    let mut backup = Bench::holding(2, 0, &log);
    backup.event(Event::LogFailed);
    backup.message(0, prepare(0, 0, &log[1]));
    assert_eq!(backup.count("prepare_ok"), 0);
    backup.message(0, heartbeat(0, 9, 0));
    assert_eq!(backup.count("heartbeat_ack"), 0);
}

#[test]
fn an_untrusted_log_is_trusted_again_after_it_caught_up() {
    let log = entries(3, 99);
    let (tail, witness) = (Tail::Broken { flush: 9, at: 0 }, Witness::Unreadable);
    let promise = Promise::View { op_head: Op(0), headers: Vec::new() };
    let found = Found0 { view: 0, log_view: 0, commit: 0, promise, entries: &log[..2], tail, witness };
    let mut bench = Bench::restart(1, found);
    let nonce = bench.probe();
    bench.message(0, start_view(0, 3, &log, nonce));
    assert_eq!(bench.states.last().unwrap().1.trust, LogTrust::Untrusted);
    bench.message(0, prepare(0, 3, &log[2]));
    assert_eq!(bench.states.last().unwrap().1.trust, LogTrust::Trusted);
}

#[test]
fn two_members_elect_when_the_primary_comes_back_without_a_view() {
    let mut cluster = Cluster::new(2, 8);
    for _ in 0..3 {
        cluster.propose(0);
        cluster.run(10_000);
    }
    cluster.crash(0);
    cluster.run(3_000_000);
    assert_eq!(cluster.primary(), None);
    cluster.restart(0);
    cluster.run(6_000_000);
    assert!(cluster.primary().is_some());
    cluster.heal();
}

#[test]
fn an_isolated_primary_abdicates_and_goes_on_when_nobody_took_its_place() {
    let mut cluster = Cluster::new(3, 8);
    cluster.run(500_000);
    // The others cannot hear each other, so they elect nobody.
    for from in 0..3 {
        for to in 0..3 {
            cluster.cut.insert((from, to));
        }
    }
    cluster.run(2_000_000);
    assert!(!cluster.replica(0).may_serve_reads(cluster.now));
    cluster.heal();
}

#[test]
fn a_member_bound_to_a_newer_view_is_not_left_behind() {
    // The third member is bound to view 4, whatever bound it, and cannot vote; the others lead a healthy view 0.
    let log = entries(1, 99);
    let mut bench = Bench::fresh(0);
    let lost =
        |nonce| Message::GetView { view: View(4), nonce: Nonce(nonce), op_head: Op(0), recovering: true };
    for nonce in 0..60 {
        bench.message(2, lost(nonce));
        bench.message(1, Message::PrepareOk { view: View(0), progress: Default::default() });
        bench.wait(100_000);
    }
    bench.sent.clear();
    bench.wait(1_000_000);
    assert_eq!(bench.count("heartbeat"), 0, "it makes room for an election");
    bench.message(1, suspicion(1));
    bench.message(1, vote(4, 0, 0, &log));
    assert_eq!(bench.replica.view(), View(4));
}

#[test]
fn a_primary_from_the_future_is_replaced() {
    let mut bench = Bench::fresh(1);
    bench.event(Event::ClockBound(Micros(10)));
    let log = entries(12, 99);
    for entry in &log[..10] {
        bench.message(0, prepare(0, 0, entry));
    }
    assert_eq!(bench.replica.frontier().op_head, Op(10));
    bench.message(0, prepare(0, 0, &log[10]));
    assert_eq!(bench.replica.frontier().op_head, Op(10), "above the bound");
    for sequence in 1..20 {
        bench.message(0, heartbeat(0, sequence, 0));
        bench.wait(100_000);
    }
    assert!(bench.count("start_view_change") > 0);
}
