//! A real process is killed while it writes. Whatever it had reported as written is there, whatever class it had.

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use bytes::Bytes;
use laneway_storage::{DataDirectory, GroupCommit, GroupLimits, JournalWriter, StorageCounters, SyncClass};
use laneway_wire::{LaneId, Op};
use support::{record, run};
use tempfile::TempDir;

const HOME: &str = "LANEWAY_TEST_KILL_HOME";
const CYCLES: u64 = 6;

#[test]
fn nothing_reported_is_lost_to_sigkill() {
    let home = TempDir::new().unwrap();
    let mut last = 0;
    for cycle in 0..CYCLES {
        let reported = write_and_kill(home.path(), 40 + cycle * 60);
        let recovery = DataDirectory::open(home.path()).unwrap().recover().unwrap();
        let records = recovery.lanes.get(&LaneId(1)).map_or(&[][..], Vec::as_slice);
        let recovered = records.last().map_or(0, |record| record.op.0);
        assert!(recovered >= reported && reported >= last, "reported {reported}, recovered {recovered}");
        assert!(records.iter().all(|record| record.batch == body(record.op)));
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
        let recovered = recovery.lanes.get(&LaneId(1)).and_then(|records| records.last());
        let mut op = recovered.map_or(0, |record| record.op.0);
        let mut journal =
            JournalWriter::create(directory, 0, StorageCounters::default().into()).await.unwrap();
        let limits = GroupLimits { journal_bytes_max: 1 << 20, ..GroupLimits::default() };
        let mut planner = GroupCommit::new(journal.place(), limits);
        loop {
            for _ in 0..3 {
                op += 1;
                let mut record = record(1, op, body(Op(op)));
                record.class =
                    if op.is_multiple_of(20) { SyncClass::Persisted } else { SyncClass::Replicated };
                planner.push(record).unwrap();
            }
            let group = journal.write_group(planner.begin().unwrap()).await.unwrap();
            planner.complete(group);
            println!("op {op}");
            std::io::stdout().flush().unwrap();
            if planner.rotation_due() {
                planner.rotated(journal.rotate().await.unwrap());
            }
        }
    });
}

fn body(op: Op) -> Bytes {
    Bytes::from(vec![op.0 as u8; (op.0 * 37 % 9_000) as usize])
}
