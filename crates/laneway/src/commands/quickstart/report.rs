//! What the quickstart prints at the end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use super::{Outcome, Plan};
use crate::commands::output::{bytes_text, count_text, counted, printable, time_text};

/// Everything that is worth a line.
#[derive(Debug)]
pub struct Report {
    pub label: String,
    /// From nothing to a broker that listens.
    pub boot: Duration,
    pub plan: Plan,
    pub outcome: Outcome,
    /// What to type to run this program.
    pub program: String,
    /// Where the broker still listens after the report.
    pub kept: Option<SocketAddr>,
}

impl Report {
    /// Writes the report.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Outcome { produced, verified, sending, total } = &self.outcome;
        let Plan { producers, partitions, .. } = self.plan;
        writeln!(out, "source      {}", printable(&self.label))?;
        writeln!(out, "broker      listened after {}", time_text(self.boot))?;
        writeln!(
            out,
            "sent        {}, {} in {}, {}, {}, in {}",
            counted(produced.lines, "line"),
            bytes_text(produced.bytes),
            batches_text(produced.batches),
            counted(producers.into(), "producer"),
            counted(partitions.into(), "partition"),
            time_text(*sending)
        )?;
        writeln!(
            out,
            "verified    {}, every byte and the order in every partition, {}, after {}",
            counted(*verified, "line"),
            counted(self.plan.consumers().into(), "consumer"),
            time_text(*total)
        )?;
        writeln!(
            out,
            "throughput  {}/s sent and acknowledged, {} lines/s; {}/s end to end",
            bytes_text(rate(produced.bytes, *sending)),
            count_text(rate(produced.lines, *sending)),
            bytes_text(rate(produced.bytes, *total))
        )?;
        let latencies = &produced.latencies;
        writeln!(
            out,
            "latency     of the acknowledgement of a batch: p50 {}, p95 {}, p99 {}, max {}",
            time_text(latencies.percentile(50.0)),
            time_text(latencies.percentile(95.0)),
            time_text(latencies.percentile(99.0)),
            time_text(latencies.max())
        )?;
        match self.kept {
            Some(address) => write_kept(out, &self.program, address),
            None => write_next(out, &self.program),
        }
    }
}

fn write_next(out: &mut dyn Write, program: &str) -> io::Result<()> {
    let commands = [
        (format!("{program} --dev &"), "a broker on 127.0.0.1:8090, user iggy, password iggy"),
        ("export LANEWAY_PASSWORD=iggy".to_owned(), "who may use it"),
        (format!("seq 1000 | {program} send demo/lines --create"), "lines of standard input become messages"),
        (format!("{program} tail demo/lines --first"), "read them back; -f keeps following"),
        (format!("{program} streams list"), "what is there"),
        ("iggy -u iggy -p iggy stream list".to_owned(), "the client that you already use works as well"),
    ];
    let width = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
    writeln!(out, "\nWhat to try next:")?;
    commands.iter().try_for_each(|(command, what)| writeln!(out, "  {command:<width$}  # {what}"))
}

fn write_kept(out: &mut dyn Write, program: &str, address: SocketAddr) -> io::Result<()> {
    write!(
        out,
        "\nThe broker keeps running until you press Ctrl-C; then its data goes away. In another terminal:
  export LANEWAY_SERVER=iggy://iggy:iggy@{address}
  {program} topics show quickstart/lines
  {program} tail quickstart/lines --last 5
"
    )?;
    out.flush()
}

fn batches_text(count: u64) -> String {
    let plural = if count == 1 { "batch" } else { "batches" };
    format!("{} {plural}", count_text(count))
}

/// Per second, at least over a microsecond.
fn rate(count: u64, time: Duration) -> u64 {
    (count as f64 / time.as_secs_f64().max(1e-6)) as u64
}

#[cfg(test)]
mod tests {
    use super::super::produce::Produced;
    use super::*;

    #[test]
    fn report_has_a_line_for_everything_measured() {
        let mut produced = Produced { lines: 1000, bytes: 4 << 20, batches: 8, ..Produced::default() };
        produced.latencies.record(Duration::from_micros(750));
        let total = Duration::from_millis(2500);
        let outcome = Outcome { produced, verified: 1000, sending: Duration::from_secs(2), total };
        let plan = Plan { producers: 4, partitions: 3, batch: 1000 };
        let report = Report {
            label: "a\nfile".into(),
            boot: Duration::from_millis(12),
            plan,
            outcome,
            program: "./bin/laneway".into(),
            kept: None,
        };
        let mut out = Vec::new();
        report.print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for expected in [
            "source      a\u{fffd}file\n",
            "1,000 lines, 4.0 MiB in 8 batches, 4 producers, 3 partitions, in 2.00 s",
            "2.0 MiB/s sent and acknowledged, 500 lines/s; 1.6 MiB/s end to end",
            "p50 750 us, p95 750 us, p99 750 us, max 750 us",
            "  ./bin/laneway --dev &",
            "| ./bin/laneway send demo/lines --create  # lines",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
