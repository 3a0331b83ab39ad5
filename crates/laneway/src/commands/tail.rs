//! `laneway tail STREAM/TOPIC`: reads without changing anybody's progress.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Duration;

use laneway_client::{Polled, Reader, Start, Until};
use laneway_wire::{Micros, Offset, PartitionId};

use super::CommandError;
use super::connect;
use super::message_text::{write_json_line, write_plain};
use super::send::{name, now};
use super::stdout;
use super::topics;
use crate::cli::{TailArgs, TailFormat, TailStart};

/// Longest wait at the broker for a next message, and so for the look whether anybody still listens.
const WAIT: Duration = Duration::from_secs(1);

/// Prints messages until the end, the count, or the reader of standard output is gone.
pub fn tail(args: &TailArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.connection)?;
    let (stream, topic) = (&args.topic.stream, &args.topic.topic);
    let details = topics::find(&mut client, &args.topic, None)?;
    let Some(last) = details.partitions.last().map(|partition| partition.id.0) else {
        return Err(CommandError::NoPartitions { topic: args.topic.to_string() });
    };
    let partitions: Vec<PartitionId> = args.partition.iter().copied().map(PartitionId).collect();
    for partition in &args.partition {
        if details.partitions.iter().all(|existing| existing.id.0 != *partition) {
            let topic = args.topic.to_string();
            return Err(CommandError::NoPartition { topic, partition: *partition, last });
        }
    }
    let until = if args.follow { Until::Stopped } else { Until::Now };
    let start = start(args.start(now().0));
    let mut reader = Reader::open(&mut client, &name(stream), &name(topic), &partitions, start, until)?;
    let mut printer = Printer::new(args);
    while !printer.is_done() && !reader.is_done() {
        match reader.next(&mut client, WAIT)? {
            Some(polled) => printer.print(&polled)?,
            // Nothing came: a good time to see whether anybody still listens.
            None => {
                printer.flush()?;
                if stdout::reader_is_gone() {
                    return Ok(());
                }
            }
        }
    }
    printer.flush()
}

fn start(start: TailStart) -> Start {
    match start {
        TailStart::Offset(offset) => Start::Offset(Offset(offset)),
        TailStart::First => Start::First,
        TailStart::Last(count) => Start::Last(count),
        TailStart::TimestampUs(at) => Start::Timestamp(Micros(at)),
    }
}

struct Printer {
    out: BufWriter<io::Stdout>,
    format: TailFormat,
    left: Option<u64>,
    /// A follower's messages must not wait for more of them; a long dump may.
    flush_each: bool,
}

impl Printer {
    fn new(args: &TailArgs) -> Self {
        let out = BufWriter::with_capacity(64 * 1024, io::stdout());
        let flush_each = args.follow || io::stdout().is_terminal();
        Self { out, format: args.format, left: args.count, flush_each }
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    fn print(&mut self, polled: &Polled) -> Result<(), CommandError> {
        for message in polled.messages() {
            let message = message?;
            if self.is_done() {
                break;
            }
            self.left = self.left.map(|left| left - 1);
            match self.format {
                TailFormat::Plain => write_plain(&mut self.out, &message),
                TailFormat::Json => write_json_line(&mut self.out, polled.partition, &message),
            }
            .map_err(CommandError::Output)?;
        }
        if self.flush_each { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), CommandError> {
        self.out.flush().map_err(CommandError::Output)
    }
}
