//! `laneway ping`: the round trip to a broker.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::CommandError;
use super::connect;
use super::output::counted;
use crate::cli::PingArgs;

/// Connects once and times each ping; ends with a summary.
pub fn ping(args: &PingArgs) -> Result<(), CommandError> {
    let mut client = connect::visit(&args.connection)?;
    let address = client.settings().address.clone();
    let mut times = Vec::new();
    for number in 1..=args.count {
        if number > 1 {
            std::thread::sleep(args.interval);
        }
        let start = Instant::now();
        client.ping()?;
        let time = start.elapsed();
        times.push(time);
        let mut out = io::stdout().lock();
        writeln!(out, "{address}: ping {number} took {}", text(time))
            .and_then(|()| out.flush())
            .map_err(CommandError::Output)?;
    }
    let total: Duration = times.iter().sum();
    let (min, max) = (times.iter().min().copied(), times.iter().max().copied());
    let average = total / args.count.max(1);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}: least {}, average {}, most {}",
        counted(args.count.into(), "ping"),
        text(min.unwrap_or_default()),
        text(average),
        text(max.unwrap_or_default())
    )
    .map_err(CommandError::Output)
}

fn text(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1000.0)
}
