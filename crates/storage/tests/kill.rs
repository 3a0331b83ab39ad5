//! A real process is killed while it writes. Whatever it had reported as written is there, whatever class it had.

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use bytes::Bytes;
use laneway_storage::{DataDirectory, PartitionLog, Placing, RecoveredRecord, Route, SyncClass};
use laneway_wire::{LaneId, Op};
use support::{Shard, batch, partition, placed, record, run};
use tempfile::TempDir;

const HOME: &str = "LANEWAY_TEST_KILL_HOME";
const CYCLES: u64 = 6;

#[test]
fn nothing_reported_is_lost_to_sigkill() {
    let home = TempDir::new().unwrap();
    let mut last = 0;
    for cycle in 0..CYCLES {
        let reported = write_and_kill(home.path(), 40 + cycle * 60);
        let directory = DataDirectory::open(home.path()).unwrap();
        let recovery = directory.recover().unwrap();
        let records = recovery.lanes.get(&LaneId(1)).map_or(&[][..], Vec::as_slice);
        let recovered = records.last().map_or(0, |record| record.op.0);
        assert!(recovered >= reported && reported >= last, "reported {reported}, recovered {recovered}");
        for record in records {
            let batch = match record.placing {
                Placing::Direct(place) => directory.read_direct(place, &record.batch).unwrap(),
                _ => record.batch.clone(),
            };
            assert_eq!(batch, body(record.op));
        }
        drop(directory);
        last = recovered;
    }
    assert!(last > 0, "the writer never got to write");
}

/// Runs the writer until it reported `lines` ops, kills it, and gives the last op that it reported.
fn write_and_kill(home: &Path, lines: u64) -> u64 {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "writer_for_the_kill", "--nocapture"])
        .env(HOME, home)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
    let reports = |line: String| line.strip_prefix("op ").and_then(|op| op.parse::<u64>().ok());
    let mut last = output.by_ref().filter_map(reports).nth(lines as usize - 1).unwrap_or(0);
    writer.kill().unwrap();
    writer.wait().unwrap();
    last = output.filter_map(reports).last().unwrap_or(last);
    last
}

#[test]
#[ignore = "the process that the other test kills"]
fn writer_for_the_kill() {
    let Some(home) = std::env::var_os(HOME) else { return };
    run(async {
        let directory = DataDirectory::open(home).unwrap();
        let recovery = directory.recover().unwrap();
        let records = recovery.lanes.get(&LaneId(1)).map_or(&[][..], Vec::as_slice);
        let mut op = records.last().map_or(0, |record| record.op.0);
        let mut log = PartitionLog::new(partition(1), 1 << 20);
        records.iter().for_each(|record| replay(&mut log, record));
        let mut shard = Shard::start(&directory, 0).await;
        loop {
            let first = op + 1;
            op += 3;
            let records = (first..=op).map(|op| {
                let body = body(Op(op));
                let route = if body.len() > 4096 { Route::Direct } else { Route::Later };
                let mut record = placed(&mut log, route, record(1, op, body));
                record.class =
                    if op.is_multiple_of(20) { SyncClass::Persisted } else { SyncClass::Replicated };
                record
            });
            shard.write(records).await;
            println!("op {op}");
            std::io::stdout().flush().unwrap();
            if shard.planner.rotation_due() {
                let place = shard.journal.rotate(|| shard.planner.close()).await.unwrap();
                shard.planner.rotated(place);
            }
        }
    });
}

fn replay(log: &mut PartitionLog, record: &RecoveredRecord) {
    match record.placing {
        Placing::Unplaced => panic!("every record has a place"),
        Placing::Inline(place) => log.place_again(&record.batch, place, Route::Later).unwrap(),
        Placing::Direct(place) => log.place_again(&record.batch, place, Route::Direct).unwrap(),
    }
}

fn body(op: Op) -> Bytes {
    batch(1, op.0 - 1, 1_000 + op.0, 1, (op.0 * 37 % 9_000) as usize)
}
